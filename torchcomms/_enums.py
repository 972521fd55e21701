# SPDX-License-Identifier: BSD-3-Clause
"""The enums of the package; their members come from the tables of the C core."""

import enum


class _Number(enum.Enum):
    """Members are numbered from 0 and convert to int; they print as `OpName.send`."""

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


def _make(name, members):
    numbered = [(member, number) for number, member in enumerate(members)]
    return _Number(name, numbered, module="torchcomms")
