# SPDX-License-Identifier: BSD-3-Clause
"""The metaclass that torch.compile wants of the classes whose objects it passes on.

Its name depends on the version of torch; a torch that has none is not compiled with.
Imported only once torch is (it may be half imported): see torchcomms._metaclass.
"""

try:
    from torch._custom_class_base import OpaqueBaseMeta
except ImportError:  # before torch 2.14
    from torch._opaque_base import OpaqueBaseMeta

__all__ = ["OpaqueBaseMeta"]
