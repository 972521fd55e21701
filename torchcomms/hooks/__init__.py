# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that are attached to communicators.

`clog` is the class; the package of that name is in sys.modules. `import torch` imports
this package: what the classes need waits for their first use.
"""

from typing import TYPE_CHECKING

from torchcomms.hooks.clog import clog
from torchcomms.hooks.fr import FlightRecorderHook

if TYPE_CHECKING:
    from torchcomms.hooks.nan_check import NanCheckHook

__all__ = ["clog", "FlightRecorderHook", "NanCheckHook"]  # noqa: RUF022


def __getattr__(name):
    if name == "NanCheckHook":
        from torchcomms.hooks.nan_check import NanCheckHook

        return NanCheckHook
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
