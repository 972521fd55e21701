# SPDX-License-Identifier: BSD-3-Clause
"""TorchCommWindow: the name only, until a backend has windows."""


class TorchCommWindow:
    """Memory that other ranks read and write; made by `TorchComm.new_window()`.

    No backend of this package has windows yet: `new_window` raises.
    """

    def __new__(cls, *args: object, **kwargs: object) -> "TorchCommWindow":
        raise TypeError(
            "cannot create 'TorchCommWindow' instances: TorchComm.new_window() makes "
            "them"
        )
