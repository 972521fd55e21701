# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: the operations, their tensors, and what the first result must be.

`bytes` of a case is what one rank contributes to the operation or gets from it: the
tensor of all_reduce, one rank's block of all_gather, reduce_scatter and all_to_all.
"""

import math
from dataclasses import dataclass

import torch

from torchcomms.bench.machine import last_level_cache
from torchcomms.bench.settings import OFF, ON

# Sums of small numbers, which every dtype holds exactly up to 40 ranks.
_VALUES = 4
ROOT = 0


@dataclass(frozen=True)
class Operation:
    name: str
    in_blocks: int | str  # blocks of `bytes` each; "ranks" is one for each rank
    out_blocks: int | str
    in_place: bool
    traffic: str  # key of _TRAFFIC
    only_ranks: int | None = None


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("all_reduce", 1, 1, True, "there and back"),
        Operation("reduce", 1, 1, True, "block"),
        Operation("broadcast", 1, 1, True, "block"),
        Operation("all_gather", 1, "ranks", False, "others"),
        Operation("reduce_scatter", "ranks", 1, False, "others"),
        Operation("all_to_all", "ranks", "ranks", False, "others"),
        Operation("gather", 1, "ranks", False, "others"),
        Operation("scatter", "ranks", 1, False, "others"),
        Operation("ping_pong", 1, 1, False, "twice", only_ranks=2),
        Operation("barrier", 0, 0, True, "none"),
    )
}

# Blocks that the busiest link carries: bytes times this, over the time, is the bus
# bandwidth. These are the factors of nccl-tests, which counts all ranks' blocks of
# all_gather and its like as the size, where we count one: (n - 1) / n of n blocks.
# A ping_pong carries its bytes twice, once there and once back.
_TRAFFIC = {
    "there and back": lambda ranks: 2 * (ranks - 1) / ranks,
    "block": lambda ranks: 1 if ranks > 1 else 0,
    "others": lambda ranks: ranks - 1,
    "twice": lambda ranks: 2,
    "none": lambda ranks: 0,
}

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
    )
}


def contribution(rank, block, count, dtype):
    """What `rank` puts into this block, different at each rank, block and place."""
    return ((torch.arange(count) + 3 * rank + block) % _VALUES).to(dtype)


# Below this a program finds its tensors in a cache, whoever measures.
_ROTATE_FROM = 16 << 10
_ROTATE_LEAST = 64 << 20
_ROTATE_MOST = 256 << 20
_MOST_PLACES = 4096  # each has a Python object for each contender


def places_needed(footprint, nbytes, rotate):
    """Sets of tensors to go round in, so that a cache holds none at its turn."""
    if rotate == OFF or footprint == 0 or (rotate != ON and nbytes < _ROTATE_FROM):
        return 1
    total = min(max(2 * last_level_cache(), _ROTATE_LEAST), _ROTATE_MOST)
    return min(math.ceil(total / footprint), _MOST_PLACES)


@dataclass(frozen=True)
class Place:
    """One set of tensors of a case."""

    input: torch.Tensor
    output: torch.Tensor


class Case:
    """The tensors of one operation at one size; all contenders work on the same."""

    def __init__(self, operation, nbytes, dtype, rank, ranks, rotate=OFF):
        self.operation = operation
        self.dtype = dtype
        self.rank, self.ranks = rank, ranks
        self.count = nbytes // dtype.itemsize
        self.nbytes = self.count * dtype.itemsize
        self.blocks_in = self._blocks(operation.in_blocks)
        blocks = self._blocks(operation.out_blocks)
        if not operation.in_place:
            blocks += self.blocks_in
        needed = places_needed(blocks * self.nbytes, self.nbytes, rotate)
        self.places = [self._place() for _ in range(needed)]

    def _blocks(self, blocks):
        return self.ranks if blocks == "ranks" else blocks

    def _place(self):
        output = self._touched(self._blocks(self.operation.out_blocks))
        if self.operation.in_place:
            return Place(output, output)
        return Place(self._touched(self.blocks_in), output)

    def _touched(self, blocks):
        """A first touch costs more than a transfer, so it is done here."""
        return torch.zeros(blocks * self.count, dtype=self.dtype)

    def _block(self, rank, block):
        return contribution(rank, block, self.count, self.dtype)

    def _sum(self, block):
        total = self._block(0, block)
        for rank in range(1, self.ranks):
            total = total + self._block(rank, block)
        return total

    def fill(self, place):
        place.output.zero_()
        for block in range(self.blocks_in):
            part = place.input[block * self.count : (block + 1) * self.count]
            part.copy_(self._block(self.rank, block))

    def clear(self):
        """Zeros: sums of sums stay what they are, however often they are taken."""
        for place in self.places:
            place.output.zero_()
            place.input.zero_()

    def expected(self):
        """The output after one call on what fill() left; None where it is undefined."""
        everyone = range(self.ranks)
        at_root = self.rank == ROOT
        name = self.operation.name
        if name == "all_reduce" or (name == "reduce" and at_root):
            return self._sum(0)
        if name == "broadcast":
            return self._block(ROOT, 0)
        if name == "all_gather" or (name == "gather" and at_root):
            return torch.cat([self._block(rank, 0) for rank in everyone])
        if name == "reduce_scatter":
            return self._sum(self.rank)
        if name == "all_to_all":
            return torch.cat([self._block(rank, self.rank) for rank in everyone])
        if name == "scatter":
            return self._block(ROOT, self.rank)
        if name == "ping_pong":
            return self._block(1 - self.rank, 0)
        return None

    def is_right(self, place):
        expected = self.expected()
        return expected is None or torch.equal(place.output, expected)

    def bus_gigabytes(self, seconds):
        """Gigabytes per second over the busiest link."""
        blocks = _TRAFFIC[self.operation.traffic](self.ranks)
        return self.nbytes * blocks / seconds / 1e9
