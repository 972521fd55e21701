# SPDX-License-Identifier: BSD-3-Clause
"""The round trip of a bare cache line between the first two ranks.

Two virtual CPUs may share a cache or not, and a host moves them: the same call then
takes up to four times as long. The line tells which it was.
"""

import os

from torchcomms import _core

_PAGE = 4096

# The places two CPUs can have, by the line round trip.
NEAR = "near"
FAR = "far"
SHARED = "shared"  # one CPU for both ranks, while other work has the others
ANY = "any"  # not looked for
PLACEMENTS = (NEAR, FAR, SHARED, ANY)
_NEAR_SECONDS = 0.25e-6
_FAR_SECONDS = 3e-6
_MOVED = 1.25


class Line:
    """A page that ranks 0 and 1 share; other ranks have no part in it.

    One rank has no other. And where there are more ranks than CPUs, the system moves
    these all the time: a line would say nothing of the round beside it.
    """

    def __init__(self, rank, ranks, agreement):
        self._leads = rank == 0
        self._file = None
        made = os.memfd_create("torchcomms bench") if self._leads else -1
        if self._leads:
            os.ftruncate(made, _PAGE)
        pid, number = agreement.largest(
            [os.getpid() if self._leads else 0, made if self._leads else 0]
        )
        if 1 < ranks <= os.cpu_count() and rank < 2:
            path = f"/proc/{int(pid)}/fd/{int(number)}"
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        agreement.barrier()
        if self._leads:
            os.close(made)

    def seconds(self):
        """Of one round trip on rank 0, 0 elsewhere; much less than a millisecond."""
        if self._file is None:
            return 0.0
        return _core._line_round_trip(self._file, self._leads)

    def close(self):
        if self._file is not None:
            os.close(self._file)
            self._file = None


def placement(before, after):
    """Where the CPUs were between two measurements; None where they moved."""
    if not before or not after:
        return ANY
    if min(before, after) > _FAR_SECONDS:
        return SHARED
    if max(before, after) > _MOVED * min(before, after):
        return None
    return NEAR if (before + after) / 2 < _NEAR_SECONDS else FAR
