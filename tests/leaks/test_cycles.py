# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5, 6: Cycles of all objects leave nothing; `make leaks` runs twenty times as
many."""

import pathlib
import random
import subprocess
import sys

import torchcomms
from leaks import cycles

PROGRAM = pathlib.Path(cycles.__file__)


def test_five_hundred_cycles_leave_nothing():
    """The seed is in the output, to run the same cycles again."""
    seed = random.randrange(1 << 32)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "500", str(seed)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("flat: ")


def test_growth_is_a_problem():
    before = (10, 1 << 28, 1000)
    assert cycles.problems(before, before) == []
    assert cycles.problems(before, (11, 1 << 28, 1000)) == [
        "descriptors grew by 1, from 10 to 11"
    ]
    resident = (1 << 28) + cycles.RESIDENT_BYTES
    assert cycles.problems(before, (10, resident, 1050)) == []
    assert len(cycles.problems(before, (9, resident + 1, 1051))) == 2


def test_every_kind_of_use_is_made():
    """None of them fails to do anything on all kinds of communicators."""
    rng = random.Random(3)
    for use in cycles.USES:
        made = 0
        for _ in range(12):
            bag = cycles.Bag(rng)
            use(bag)
            made += len(bag.things)
            for thing in bag.things + bag.comms:
                if isinstance(thing, torchcomms.TorchComm):
                    thing.finalize()
        assert made > 0, use.__name__
