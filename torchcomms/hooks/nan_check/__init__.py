# SPDX-License-Identifier: BSD-3-Clause
"""Refuses operations on tensors that hold a NaN."""

from torchcomms.hooks.nan_check.nan_check import NanCheckHook

__all__ = ["NanCheckHook"]
