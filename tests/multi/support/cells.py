# SPDX-License-Identifier: BSD-3-Clause
"""The cells of the matrix of collectives: how each is called and what it should give.

A cell is one call of one collective on one dtype and length. It is begun, waited for if
it is asynchronous, and then says whether this rank has the right bytes, its inputs are
as they were, and nothing beside its outputs was written.
"""

import torch

from multi.support import reference

MARGIN = 64
MARK = torch.full((MARGIN,), 0xA5, dtype=torch.uint8)
IN_FLIGHT = 6


class Guarded:
    """A tensor with marked bytes on both sides, and the bytes it should have."""

    def __init__(self, dtype, count, content=None):
        size = count * dtype.itemsize
        self._buffer = torch.full((2 * MARGIN + size,), 0xA5, dtype=torch.uint8)
        self.bytes = self._buffer[MARGIN : MARGIN + size]
        self.tensor = self.bytes.view(dtype)
        if content is not None:
            self.bytes.copy_(content.view(torch.uint8))
        self.expected = None

    def expect(self, tensor):
        self.expected = tensor.view(torch.uint8)
        return self

    def is_right(self):
        return (
            torch.equal(self._buffer[:MARGIN], MARK)
            and torch.equal(self._buffer[-MARGIN:], MARK)
            and (self.expected is None or torch.equal(self.bytes, self.expected))
        )


def kept(content):
    """An input: the same afterwards."""
    return Guarded(content.dtype, content.numel(), content).expect(content)


def ramp(total, size):
    """Lengths that grow with the rank and sum to `total`."""
    weight = size * (size + 1) // 2
    lengths = [total * (r + 1) // weight for r in range(size)]
    lengths[-1] += total - sum(lengths)
    return lengths


def one_empty(total, size):
    """The same, with nothing for rank 0."""
    return [total] if size == 1 else [0, *ramp(total, size - 1)]


UNEVEN = {"ramp": ramp, "one empty": one_empty}


def blocks(tensor, lengths):
    return list(torch.split(tensor, lengths))


class Cell:
    def __init__(self, name, begin, *tensors):
        self.name = name
        self.begin = begin
        self._tensors = [t for t in tensors if t is not None]

    def is_right(self):
        return all(t.is_right() for t in self._tensors)


class Maker:
    """Makes the cells of one dtype and one length, `count` elements a rank."""

    def __init__(self, me, comm, dtype, count):
        self.rank = me.rank
        self.size = me.size
        self.comm = comm
        self.dtype = dtype
        self.count = count
        self._root = 0

    def next_root(self):
        self._root = (self._root + 1) % self.size
        return self._root

    def out(self, expected):
        return Guarded(self.dtype, expected.numel()).expect(expected)

    # Reductions --------------------------------------------------------------------

    def numbers(self, count):
        return reference.numbers(self.dtype, count, self.rank)

    def reduced(self, op, count):
        return reference.reduced_numbers(op, self.dtype, count, self.size)

    def all_reduce(self, op, extra):
        count = self.count * self.size + extra
        t = Guarded(self.dtype, count, self.numbers(count))
        t.expect(self.reduced(op, count))
        redop = reference.op_of(op, self.rank)
        return Cell("all_reduce", lambda a: self.comm.all_reduce(t.tensor, redop, a), t)

    def reduce(self, op, extra):
        count = self.count * self.size + extra
        root = self.next_root()
        t = Guarded(self.dtype, count, self.numbers(count))
        if root == self.rank:
            t.expect(self.reduced(op, count))
        redop = reference.op_of(op, self.rank)
        return Cell(
            f"reduce to {root}",
            lambda a: self.comm.reduce(t.tensor, root, redop, a),
            t,
        )

    def reduce_scatter(self, op, lengths, name, call):
        count = self.count * self.size
        whole = kept(self.numbers(count))
        expected = blocks(self.reduced(op, count), lengths)[self.rank]
        out = self.out(expected)
        parts = blocks(whole.tensor, lengths)
        redop = reference.op_of(op, self.rank)
        return Cell(name, lambda a: call(out.tensor, parts, redop, a), whole, out)

    def reduce_scatter_single(self, op, in_place):
        count = self.count * self.size
        whole = Guarded(self.dtype, count, self.numbers(count))
        own = blocks(whole.tensor, [self.count] * self.size)[self.rank]
        expected = self.reduced(op, count)
        expected = blocks(expected, [self.count] * self.size)[self.rank]
        out = self.out(expected)
        target = out.tensor
        if in_place:
            target = own
            after = self.numbers(count).clone()
            start = self.count * self.rank
            after.view(torch.uint8)[
                start * self.dtype.itemsize : (start + self.count) * self.dtype.itemsize
            ] = expected.view(torch.uint8)
            whole.expect(after)
            out = None
        else:
            whole.expect(self.numbers(count))
        redop = reference.op_of(op, self.rank)
        return Cell(
            "reduce_scatter_single" + (" in place" if in_place else ""),
            lambda a: self.comm.reduce_scatter_single(target, whole.tensor, redop, a),
            *(whole, out),
        )

    def reductions(self, op):
        comm = self.comm
        even = [self.count] * self.size
        extra = 3 if self.count > 1 else 0
        yield self.all_reduce(op, extra)
        yield self.reduce(op, extra)
        yield self.reduce_scatter(op, even, "reduce_scatter", comm.reduce_scatter)
        for how, lengths in UNEVEN.items():
            yield self.reduce_scatter(
                *(op, lengths(self.count * self.size, self.size)),
                *(f"reduce_scatter_v {how}", comm.reduce_scatter_v),
            )
        yield self.reduce_scatter_single(op, in_place=False)
        yield self.reduce_scatter_single(op, in_place=True)

    # Movement ----------------------------------------------------------------------

    def pattern(self, count, rank=None):
        rank = self.rank if rank is None else rank
        return reference.pattern(self.dtype, count, rank)

    def broadcast(self):
        root = self.next_root()
        t = Guarded(self.dtype, self.count, self.pattern(self.count))
        t.expect(self.pattern(self.count, root))
        return Cell(
            f"broadcast from {root}",
            lambda a: self.comm.broadcast(t.tensor, root, a),
            t,
        )

    def gather_outputs(self, lengths):
        return [self.out(self.pattern(n, r)) for r, n in enumerate(lengths)]

    def all_gather(self, lengths, name, call, in_place=False):
        outs = self.gather_outputs(lengths)
        mine = kept(self.pattern(lengths[self.rank]))
        if in_place:
            outs[self.rank] = mine
        tensors = [o.tensor for o in outs]
        return Cell(name, lambda a: call(tensors, mine.tensor, a), mine, *outs)

    def all_gather_single(self, in_place):
        every = [self.pattern(self.count, r) for r in range(self.size)]
        out = self.out(torch.cat([t.view(torch.uint8) for t in every]).view(self.dtype))
        mine = kept(self.pattern(self.count))
        source = mine.tensor
        if in_place:
            source = blocks(out.tensor, [self.count] * self.size)[self.rank]
            source.view(torch.uint8).copy_(mine.bytes)
        return Cell(
            "all_gather_single" + (" in place" if in_place else ""),
            lambda a: self.comm.all_gather_single(out.tensor, source, a),
            *(out, mine),
        )

    def pair(self, source, target):
        """How much `source` has for `target`: from nothing to `count` elements."""
        return self.count * ((source + 2 * target) % 4) // 3

    def block_of(self, source, target, length):
        whole = self.pattern(self.count * self.size, source)
        return whole[self.count * target : self.count * target + length]

    def all_to_all(self):
        ins = [
            kept(self.block_of(self.rank, r, self.pair(self.rank, r)))
            for r in range(self.size)
        ]
        outs = [
            self.out(self.block_of(r, self.rank, self.pair(r, self.rank)))
            for r in range(self.size)
        ]
        targets, sources = [o.tensor for o in outs], [i.tensor for i in ins]
        return Cell(
            "all_to_all",
            lambda a: self.comm.all_to_all(targets, sources, a),
            *(*ins, *outs),
        )

    def joined(self, parts):
        return torch.cat([p.view(torch.uint8) for p in parts]).view(self.dtype)

    def all_to_all_single(self):
        ranks = range(self.size)
        whole = kept(self.pattern(self.count * self.size))
        out = self.out(
            self.joined([self.block_of(r, self.rank, self.count) for r in ranks])
        )
        return Cell(
            "all_to_all_single",
            lambda a: self.comm.all_to_all_single(out.tensor, whole.tensor, a),
            *(whole, out),
        )

    def all_to_all_v_single(self, width):
        """Rows of `width` elements; one row more than the splits name."""
        ranks = range(self.size)
        sends = [self.pair(self.rank, r) // width for r in ranks]
        gets = [self.pair(r, self.rank) // width for r in ranks]
        spare = self.pattern(width, self.size)
        source = kept(
            self.joined(
                [self.block_of(self.rank, r, sends[r] * width) for r in ranks] + [spare]
            )
        )
        out = self.out(
            self.joined(
                [self.block_of(r, self.rank, gets[r] * width) for r in ranks] + [spare]
            )
        )
        out.tensor[-width:].view(torch.uint8).copy_(spare.view(torch.uint8))
        shape = (-1, width)
        return Cell(
            f"all_to_all_v_single, rows of {width}",
            lambda a: self.comm.all_to_all_v_single(
                *(out.tensor.view(shape), source.tensor.view(shape), gets, sends, a)
            ),
            *(source, out),
        )

    def scatter(self, in_place):
        root = self.next_root()
        out = self.out(self.block_of(root, self.rank, self.count))
        ins = []
        if root == self.rank:
            ins = [kept(self.block_of(root, r, self.count)) for r in range(self.size)]
        target = out.tensor
        if in_place and ins:
            target, out = ins[self.rank].tensor, None
        sources = [i.tensor for i in ins]
        return Cell(
            f"scatter from {root}" + (" in place" if in_place else ""),
            lambda a: self.comm.scatter(target, sources, root, a),
            *(out, *ins),
        )

    def gather(self, in_place):
        root = self.next_root()
        mine = kept(self.pattern(self.count))
        outs = []
        if root == self.rank:
            outs = self.gather_outputs([self.count] * self.size)
            if in_place:
                outs[root] = mine
        targets = [o.tensor for o in outs]
        return Cell(
            f"gather to {root}" + (" in place" if in_place else ""),
            lambda a: self.comm.gather(targets, mine.tensor, root, a),
            *(mine, *outs),
        )

    def gather_single(self):
        root = self.next_root()
        mine = kept(self.pattern(self.count))
        before = self.pattern(self.count * self.size, self.size)
        out = Guarded(self.dtype, before.numel(), before).expect(before)
        if root == self.rank:
            every = [self.pattern(self.count, r) for r in range(self.size)]
            out.expect(self.joined(every))
        return Cell(
            f"gather_single to {root}",
            lambda a: self.comm.gather_single(out.tensor, mine.tensor, root, a),
            *(mine, out),
        )

    def movements(self):
        comm = self.comm
        even = [self.count] * self.size
        yield from (self.broadcast() for _ in range(self.size))
        yield self.all_gather(even, "all_gather", comm.all_gather)
        yield self.all_gather(even, "all_gather in place", comm.all_gather, True)
        for how, lengths in UNEVEN.items():
            sizes = lengths(self.count * self.size, self.size)
            yield self.all_gather(sizes, f"all_gather_v {how}", comm.all_gather_v)
        yield self.all_gather_single(in_place=False)
        yield self.all_gather_single(in_place=True)
        yield self.all_to_all()
        yield self.all_to_all_single()
        yield self.all_to_all_v_single(width=1)
        yield self.all_to_all_v_single(width=3)
        yield self.scatter(in_place=False)
        yield self.scatter(in_place=True)
        yield self.gather(in_place=False)
        yield self.gather(in_place=True)
        yield self.gather_single()


def run(cells, asynchronous):
    """Runs them all, the asynchronous ones a few at a time; the names of those that are
    wrong."""
    wrong = []
    started = []

    def settle():
        for cell, work in started:
            try:
                work.wait()
            except RuntimeError as error:
                wrong.append(f"{cell.name}: {error}")
                continue
            if not work.is_completed() or not cell.is_right():
                wrong.append(cell.name)
        started.clear()

    for cell in cells:
        try:
            started.append((cell, cell.begin(asynchronous)))
        except RuntimeError as error:
            wrong.append(f"{cell.name}: {error}")
        if not asynchronous or len(started) == IN_FLIGHT:
            settle()
    settle()
    return wrong
