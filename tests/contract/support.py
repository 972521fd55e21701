# SPDX-License-Identifier: BSD-3-Clause
"""What the bodies of this directory share."""

import re

import pytest
import torch

SIZE = 4
COUNTS = [0, 4, 1024]
DTYPES = [torch.float32, torch.int32, torch.int8, torch.bfloat16]


def raises(text):
    """RuntimeError with this text."""
    return pytest.raises(RuntimeError, match=re.escape(text))
