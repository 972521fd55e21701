# SPDX-License-Identifier: BSD-3-Clause
"""The class of the backend `ncclx`: on a CPU device, this package's own engine."""

from torchcomms._python_backend import TorchCommBackend


class TorchCommNCCLX(TorchCommBackend):
    """What `get_backend_impl()` gives for a communicator of `ncclx`."""
