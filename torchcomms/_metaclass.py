# SPDX-License-Identifier: BSD-3-Clause
"""Gives classes torch's metaclass as soon as there is a torch that has one.

`import torchcomms` does not import torch, and types of C have the metaclass `type` when
they are made. So the classes change theirs afterwards: at the end of `import
torchcomms` where torch is there already, else while torch imports us.
"""

import sys

from torchcomms import _core

_classes: list[type] = []


def want(*classes: type) -> None:
    """Names the classes; those that can get the metaclass now do."""
    _classes.extend(classes)
    if "torch" in sys.modules:
        adopt()


def adopt() -> None:
    """Changes the metaclass of every class that was named. May be called again."""
    try:
        from torchcomms._opaque_meta import OpaqueBaseMeta
    except ImportError:
        return  # a torch without one, or none
    for cls in _classes:
        if type(cls) is type:
            _core._set_metaclass(cls, OpaqueBaseMeta)
