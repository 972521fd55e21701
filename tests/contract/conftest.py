# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as for tests/multi, and the backends that one body runs on."""

import pytest

from multi.conftest import fresh, nothing_left, ranks, zygote  # noqa: F401

BACKENDS = ["ncclx", "gloo"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param
