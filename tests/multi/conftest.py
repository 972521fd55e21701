# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for the tests of this directory, and what they may not leave behind."""

import pytest

from multi.support import leftovers
from multi.support.ranks import Pool, Pools, Zygote


@pytest.fixture(scope="session")
def zygote():
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def ranks(zygote):
    """ranks(n) is a pool of n processes, kept for the whole session."""
    pools = Pools(zygote)
    yield pools
    pools.close()


@pytest.fixture
def fresh(zygote):
    """fresh(n) is a pool of n new processes, for one test."""
    made = []

    def make(size, **options):
        made.append(Pool(zygote, size, **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture(scope="module", autouse=True)
def nothing_left(zygote, ranks):
    """After every module: no process, no file in /dev/shm and no socket."""
    before = leftovers.shm_files()
    yield
    expected = {zygote.pid} | ranks.pids()
    problems = leftovers.find_lasting(zygote.session, expected, before)
    assert not problems, "left behind:\n" + "\n".join(problems)
