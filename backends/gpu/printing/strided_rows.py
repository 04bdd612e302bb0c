"""Rows that lie side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...loop_ir import (
    Accumulate,
    Const,
    LoopVar,
    Pass,
    Statement,
    Store,
)
from ..c_code import SIMD, number, value_type
from .kernel_writer import JOINS, Reducing
from .online_softmax import POWERS, online, recomputed

Loops = tuple[LoopVar, ...]
MOST = 8
"""Columns that a thread takes, at most."""
DEEP = 8
"""Threads that share the elements of a column, at most: with 16 of them adding up their
parts took as long as products of 8-bit weights."""
WITHIN = 4
"""Turns of an innermost loop that one thread takes together: nibbles of a byte."""
MOST_SLOTS = 4
"""Of 256 threads with 8 numbers each, 8 KiB: Metal has 32."""


class Columns(Reducing):
    """Rows that lie side by side: lanes run along these, and the threads of a group
    share the elements of each out."""

    def write(self) -> None:
        once = online(self.nest)
        sums = [s for s in once.statements() if isinstance(s, Accumulate)]
        if len(sums) + sum(s.op == POWERS for s in sums) <= MOST_SLOTS:
            self.take(once)
        nest, out = self.nest, self.out
        *outer, lane = nest.grid
        statements = [s for p in nest.passes for s in (*p.before, *p.body)]
        self.lane = lane
        self.n = min(self.width(statements, lane, lane.size), MOST)
        blocks = -(-lane.size // (SIMD * self.n))
        longest = max(self.turns_of(p) for p in nest.passes)
        self.depth = 1
        while self.depth < DEEP and self.depth * 8 < longest:
            self.depth *= 2
        self.group = SIMD * self.depth
        self.groups = prod(v.size for v in outer) * blocks
        out.add("const uint x = lane % 32, y = lane / 32;")
        out.add(f"const {self.int} block = group % {blocks};")
        if outer:
            out.add(f"const {self.int} part = group / {blocks};")
            self.split("part", outer)
        out.add(f"const {self.int} c = (block * {SIMD} + x) * {self.n};")
        out.add(f"const bool inside = c < {lane.size};")
        self.index[lane] = "c"
        if self.depth > 1:
            for s in self.accumulators():
                self.slots(s, self.group * self.n)
        self.known = "inside"
        """Which threads know the values of columns."""
        for i, p in enumerate(nest.passes):
            self._pass(i, p)

    def turns_of(self, p: Pass) -> int:
        whole = prod(v.size for v in p.loops)
        chunk = self.nest.chunk
        return whole if chunk is None else -(-whole // chunk.size)

    def _pass(self, i: int, p: Pass) -> None:
        self._of_columns(p.before)
        if p.body:
            if not any(later.body for later in self.nest.passes[i + 1 :]):
                self.known = "inside && y == 0"
            self._elements(i, p)

    def _of_columns(self, before: Sequence[Statement]) -> None:
        """Values of a column each; the first threads of a column write."""
        out, n = self.out, self.n
        makes = [s for s in before if not isinstance(s, (Store, Const))]
        for s in before:
            if isinstance(s, Const):
                self.row[s.target] = number(s.value, s.dtype)
        for s in makes:
            out.add(f"{value_type(self.dtypes[s.target])} a{s.target}[{n}];")  # type: ignore[union-attr]
        hold = {s.target: f"a{s.target}[{'j' if n > 1 else '0'}]" for s in makes}  # type: ignore[union-attr]
        stores = [s for s in before if isinstance(s, Store)]
        if makes:
            out.open(f"if ({self.known})")
            self.block(makes, self.lane, n, hold)
            out.close()
        self.row |= hold
        if stores:
            out.open("if (inside && y == 0)")
            self.block(stores, self.lane, n)
            out.close()

    def _elements(self, i: int, p: Pass) -> None:
        out, n = self.out, self.n
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        slot = "j" if n > 1 else "0"
        for s in sums:
            kind, none = self.state(s)
            out.add(f"{kind} s{s.target}[{n}];")
            out.add(f"for (int j = 0; j < {n}; ++j) s{s.target}[j] = {none};")
        names = {s.target: f"s{s.target}[{slot}]" for s in sums}
        kept = dict(self.index)
        low, high, loops, within = self._loops(p)
        out.open("if (inside)")
        first = "y" if low == "0" else f"{low} + y"
        out.add("#pragma unroll 4")
        out.open(f"for ({self.int} e = {first}; e < {high}; e += {self.depth})")
        self.split("e", loops)
        for v in within:
            out.add("#pragma unroll")
            out.open(f"for (int i_{v} = 0; i_{v} < {v.size}; ++i_{v})")
            self.index[v] = f"i_{v}"
        self.block(recomputed(self.nest.passes, i), self.lane, n, None, names)
        for _ in within:
            out.close()
        out.close()
        out.close()
        self.index = kept
        for s in sums:
            self._joined(s)

    def _loops(self, p: Pass) -> tuple[str, str, Loops, Loops]:
        """First turn of the threads' loop and the first after it, the variables that it
        runs over, and those that each thread runs over in a turn. That of a chunk with
        one value is no loop."""
        low, high, _ = self.turns(p)
        loops, chunk = p.loops, self.nest.chunk
        if chunk is not None and low != "0":
            if chunk.size != loops[0].size:
                return low, high, loops, ()
            self.index[loops[0]] = self.index[chunk]
            loops = loops[1:]
        few = len(loops) > 1 and loops[-1].size <= WITHIN
        loops, within = (loops[:-1], loops[-1:]) if few else (loops, ())
        return "0", str(prod(v.size for v in loops)), loops, within

    def _joined(self, s: Accumulate) -> None:
        """The accumulators of all threads of a column as one, in each of them."""
        out, n = self.out, self.n
        kind, none = self.state(s)
        value = value_type(s.dtype)
        out.add(f"{value} a{s.target}[{n}];")
        if self.depth > 1:
            place = f"slots{s.target}[lane * {n} + j]"
            out.add(f"for (int j = 0; j < {n}; ++j) {place} = s{s.target}[j];")
            out.add("EQ_BARRIER();")
        out.open(f"if ({self.known})")
        out.open(f"for (int j = 0; j < {n}; ++j)")
        if self.depth > 1:
            out.add(f"{kind} all = {none};")
            other = f"slots{s.target}[(k * {SIMD} + x) * {n} + j]"
            out.add(
                f"for (uint k = 0; k < {self.depth}; ++k) "
                f"all = {JOINS[s.op]}::join(all, {other});"
            )
            out.add(f"a{s.target}[j] = {self.result(s, 'all')};")
        else:
            out.add(f"a{s.target}[j] = {self.result(s, f's{s.target}[j]')};")
        out.close()
        out.close()
        self.row[s.target] = f"a{s.target}[{'j' if n > 1 else '0'}]"
