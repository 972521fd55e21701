# SPDX-License-Identifier: BSD-3-Clause
"""What torch runs at the end of `import torch`: entry point of group torch.backends.

Outside the package, so that nothing in it can break `import torch`.
"""


def register() -> None:
    """Makes our backend names known to torch.distributed; never raises."""
    try:
        from torchcomms._c10d import register_c10d

        register_c10d()
    except Exception as cause:
        import warnings

        warnings.warn(
            f"torchcomms is not available as a backend of torch.distributed: {cause}",
            stacklevel=2,
        )
