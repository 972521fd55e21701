# SPDX-License-Identifier: BSD-3-Clause
"""Process groups of torch.distributed for tests, ours and gloo's beside it."""

import contextlib
import os
from datetime import timedelta

import torch.distributed as dist
import torch.distributed.config as config

import torchcomms

LIMIT = timedelta(seconds=60)


@contextlib.contextmanager
def _default_group(me, backend, name, timeout):
    dist.init_process_group(
        backend,
        rank=me.rank,
        world_size=me.size,
        store=me.store(name),
        timeout=timeout,
    )
    try:
        yield dist.group.WORLD
    except BaseException:
        # The others shall not wait for this rank until their deadline.
        with contextlib.suppress(Exception):
            dist.group.WORLD.abort()
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def world(me, backend="torchcomms", name="c10d", timeout=LIMIT):
    """The default group of this rank's process; destroyed at the end."""
    torchcomms.register_c10d()
    with _default_group(me, backend, name, timeout) as group:
        yield group


@contextlib.contextmanager
def switched_world(me, backend="ncclx", name="c10d"):
    """The same by torch's switch."""
    os.environ.update(RANK=str(me.rank), WORLD_SIZE=str(me.size))
    with config.patch(use_torchcomms=True):
        with _default_group(me, backend, name, LIMIT) as group:
            yield group


DOORS = {"name": world, "switch": switched_world}


@contextlib.contextmanager
def both(me):
    """Our default group, and a group of gloo over the same ranks."""
    with world(me) as ours:
        yield ours, dist.new_group(backend="gloo", timeout=LIMIT)
