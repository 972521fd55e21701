# SPDX-License-Identifier: BSD-3-Clause
"""TorchCommBackend: the base of the classes behind communicators."""


class TorchCommBackend:
    """The base of what `TorchComm.get_backend_impl()` gives."""
