"""Rows whose elements lie side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from eqsat.terms import HALF

from ...loop_ir import (
    Accumulate,
    DType,
    Kept,
    Load,
    LoopVar,
    Pass,
    Store,
    operands,
)
from ..c_code import SIMD, value_type
from .kernel_writer import JOINS, Reducing, of_pack
from .maps import MAP_GROUP
from .online_softmax import online, recomputed

WIDE_GROUP = 256
"""Threads of a group that several rows share."""
LEAST_GROUP = 128
"""Threads that a long row has at least."""
MOST_GROUP = 1024
FEW_ROWS = 256
"""Rows below which a row takes as many threads as it can use."""
MANY_ROWS = 2048
"""Rows from which 32 lanes take a row that they can hold: a group for each would be
more groups than a device runs at once, and an H200 starts 1,400 in a microsecond. For
4,096 rows of 1,024 bfloat16 the log-sum-exp takes 4.1 µs instead of 4.8, and 2.0
instead of 3.0 where kernels overlap; softmax 5.6 instead of 5.8, and a copy 5.5."""
TINY = 8
"""Elements of a row that one thread reduces."""
SHARE = 64
"""Bytes of a row that a thread reads at most, where the row is not too long: more, and
more threads wait for memory at once; less, and they spend their time on joining. Where
a long row is written too, half as much is best: for 16,384 rows of 4,096 an H200 takes
0.98 to 1.00 of the time (float32 softmax 129.8 µs instead of 131.3), but log-sum-exp,
which only reads, 1.12."""


class ContiguousRows(Reducing):
    """Rows whose elements lie side by side."""

    def write(self) -> None:
        self._measure()
        once = self.nest if self.registers else online(self.nest)
        if once is not self.nest:
            self.take(once)
            self._measure()
        out = self.out
        if self.lanes == self.group:
            row = "group"
        elif self.lanes == 1:
            row = f"{self.unsigned}(group) * {self.group} + lane"
        else:
            row = (
                f"{self.unsigned}(group) * {self.group // self.lanes} "
                f"+ lane / {self.lanes}"
            )
        out.add(f"const {self.unsigned} row = {row};")
        if self.nest.rows % (self.group // self.lanes):
            out.add(f"if (row >= {self.nest.rows}) return;")
        own = "0" if self.lanes == 1 else f"lane % {self.lanes}"
        if self.lanes == self.group and self.lanes & (self.lanes - 1):
            own = "lane"
        out.add(f"const {self.unsigned} own = {own};")
        self.split("row", self.nest.grid)
        if self.lanes > SIMD:
            for s in self.accumulators():
                self.slots(s, SIMD)
        self._registers()
        for i, p in enumerate(self.nest.passes):
            self._pass(i, p)

    def _measure(self) -> None:
        """How rows are shared out among threads, and what these hold of them."""
        nest, self.group = self.nest, 1
        loops = {p.loops for p in nest.passes if p.body}
        self.length = max(prod(v.size for v in p.loops) for p in nest.passes)
        statements = [s for p in nest.passes for s in p.body]
        inner = next(p.loops[-1] for p in nest.passes if p.body)
        chunked = nest.chunk is not None
        if chunked:
            self.n = 1
        elif len(loops) == 1:
            self.n = self.width(statements, inner, inner.size)
        else:
            each = ((p.body, p.loops[-1]) for p in nest.passes if p.body)
            self.n = min(self.width(body, v, v.size) for body, v in each)
        self.may_hold = len(loops) == 1 and not chunked
        self.kept = self._kept()
        self._share()

    def _share(self) -> None:
        """Lanes of a row, and threads of a group."""
        parts = -(-self.length // self.n)
        rows = self.nest.rows
        if self.length <= TINY and rows >= FEW_ROWS:
            self.lanes, self.group = 1, MAP_GROUP
        elif parts <= SIMD or (parts <= 2 * SIMD and rows >= FEW_ROWS):
            self.lanes = SIMD
            self.group = min(WIDE_GROUP, SIMD * rows)
        elif (
            rows >= MANY_ROWS
            and parts * self.n <= SIMD * self._most()
            and self._holds(SIMD, parts)
        ):
            self.lanes, self.group = SIMD, LEAST_GROUP
        else:
            self.lanes = min(self._lanes(parts), -(-parts // SIMD) * SIMD)
            self.group = self.lanes
        self.each = -(-parts // self.lanes) * self.n
        self.registers = self._holds(self.lanes, parts)
        self.groups = -(-rows // (self.group // self.lanes))

    def _lanes(self, parts: int) -> int:
        """Threads of a long row."""
        if self.nest.rows < FEW_ROWS:
            return MOST_GROUP
        most = self._most() // (2 if self._writes() else 1)
        lanes = LEAST_GROUP
        while lanes < MOST_GROUP and -(-parts // lanes) * self.n > most:
            lanes *= 2
        half = MOST_GROUP // 2  # two of which run at once where one of the most does
        return half if lanes == MOST_GROUP and self._holds(half, parts) else lanes

    def _writes(self) -> bool:
        """Whether rows are written, and not only what becomes of them."""
        return any(isinstance(s, Store) for p in self.nest.passes for s in p.body)

    def loads(self, s: Load) -> str:
        """The function that reads neighbours: of what no other row reads, where rows
        are written too, what has been read leaves CUDA's second cache after what has
        been written.

        The device then writes more at a time: for 16384×4096 float32 an H200 takes
        125.0 µs for a softmax instead of 129.6, and 252 for a sum with its ``rms_norm``
        instead of 261; of bfloat16 63.8 instead of 66.3. What fits in the cache takes
        as long as before, and so does what other kernels read after it. The opposite,
        what has been read leaving first, takes 135 µs; policies for what is written
        change nothing, and maps gain nothing (129.9 instead of 129.4).
        """
        known = "eq_load_kept" in self.dialect.mathematics
        own = all(s.at.coefficient(v) for v in self.nest.grid if v.size > 1)
        return "eq_load_kept" if known and own and self._writes() else "eq_load"

    def _most(self) -> int:
        """Elements of a long row that a thread reads at most."""
        least = min(b.dtype.itemsize for b in self.nest.buffers)
        return min(self.dialect.most_held, SHARE // least)

    def _holds(self, lanes: int, parts: int) -> bool:
        """Whether each of so many threads can hold its share of a row."""
        each = -(-parts // lanes) * self.n
        size = sum(d.itemsize for d in self.kept.values())
        fits = size * each <= self.dialect.room(max(lanes, self.group))
        return self.may_hold and each <= self.dialect.most_held and fits

    def _kept(self) -> dict[int, DType]:
        """What several passes read, and the dtype that it is held in."""
        found: dict[int, DType] = {}
        seen: dict[int, int] = {}
        for i, p in enumerate(self.nest.passes):
            for s in p.body:
                if isinstance(s, Kept):
                    found[s.target] = self.dtypes[s.target]
                elif isinstance(s, Load) and seen.setdefault(s.target, i) != i:
                    if s.at.variables and set(s.at.variables) & set(p.loops):
                        found[s.target] = self.nest.buffers[s.buffer].dtype
        return found

    def _registers(self) -> None:
        """Declare what is held."""
        self.hold: dict[int, str] = {}
        if not self.registers:
            return
        inner = next(p.loops[-1] for p in self.nest.passes if p.body)
        for s in self.nest.statements():
            if isinstance(s, Load) and self.kept.get(s.target) in HALF:
                if self.is_read_packed(s, inner, self.n):
                    self.packed.add(s.target)
        for i, dtype in self.kept.items():
            kind = value_type(self.dtypes[i])
            if dtype != self.dtypes[i]:
                kind = self.dialect.memory_type(dtype)
                self.raw.add(i)
            if i in self.packed:
                turns = self.each // self.n
                self.out.add(f"EqPack<{kind}, {self.n}> r{i}[{turns}];")
                self.hold[i] = f"r{i}[{'k' if turns > 1 else '0'}]"
                continue
            self.out.add(f"{kind} r{i}[{self.each}];")
            slot = "j" if self.n > 1 else "0"
            if self.each > self.n:
                slot = f"k * {self.n} + j" if self.n > 1 else "k"
            self.hold[i] = f"r{i}[{slot}]"

    def _pass(self, i: int, p: Pass) -> None:
        out = self.out
        stores = [s for s in p.before if isinstance(s, Store)]
        for s in p.before:
            self.define(s, self.row, self.index, "a")
        if stores:
            if self.lanes > 1:
                out.open("if (own == 0)")
            for s in stores:
                name = self.nest.buffers[s.buffer].name
                text = self.narrowed(self.value(s.value, {}), s.value, s.buffer)
                out.add(f"{name}[{self.at(s.at)}] = {text};")
            if self.lanes > 1:
                out.close()
        if p.body:
            self._elements(i, p)

    def _elements(self, i: int, p: Pass) -> None:
        out = self.out
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        for s in sums:
            kind, none = self.state(s)
            out.add(f"{kind} s{s.target} = {none};")
        names = {s.target: f"s{s.target}" for s in sums}
        if self.registers:
            self._held_elements(p, names)
        else:
            self._looped_elements(i, p, names)
        for s in sums:
            kind, none = self.state(s)
            join = JOINS[s.op]
            text = f"s{s.target}"
            if self.lanes > SIMD:
                count = self.lanes // SIMD
                text = (
                    f"eq_group<{join}>({text}, {none}, slots{s.target}, lane, {count})"
                )
            elif self.lanes == SIMD:
                text = f"eq_simd<{join}>({text})"
            value = value_type(s.dtype)
            out.add(f"const {value} a{s.target} = {self.result(s, text)};")
            self.row[s.target] = f"a{s.target}"

    def _held_elements(self, p: Pass, names: Mapping[int, str]) -> None:
        out, parts = self.out, self.length // self.n
        known = set(self.held)
        body = [s for s in p.body if getattr(s, "target", None) not in known]
        new = {i: t for i, t in self.hold.items() if i not in self.held}
        turns = self.each // self.n
        kept = dict(self.index)
        if turns > 1:
            out.add("#pragma unroll")
            out.open(f"for (int k = 0; k < {turns}; ++k)")
            part = f"k * {self.lanes} + own"
        else:
            part = "own"
        guard = parts != turns * self.lanes
        if guard:
            out.open(f"if ({part} < {parts})")
        elif turns == 1:
            out.add("{")
            out.depth += 1
        self._element_index(part, p.loops)
        for i in sorted(self.packed & known & {a for s in body for a in operands(s)}):
            out.add(f"const auto h{i} = eq_held({self.hold[i]});")
        self.block(body, p.loops[-1], self.n, new, names)
        if guard or turns == 1:
            out.close()
        if turns > 1:
            out.close()
        self.index = kept
        made = {getattr(s, "target", None) for s in body}
        for i, text in new.items():
            if i in made:
                kind = value_type(self.dtypes[i])
                self.held[i] = f"{kind}({text})" if i in self.raw else text
                if i in self.packed:
                    self.held[i] = of_pack(f"h{i}", self.kept[i], self.dtypes[i])

    def _element_index(self, part: str, loops: Sequence[LoopVar]) -> None:
        if len(loops) == 1:
            text = f"({part})" if " " in part else part
            text = part if self.n == 1 else f"{text} * {self.n}"
            self.out.add(f"const {self.int} e = {text};")
            self.index[loops[0]] = "e"
        else:
            self.out.add(f"const {self.unsigned} e = {part};")
            self.split("e", loops, self.n)

    def _looped_elements(self, i: int, p: Pass, names: Mapping[int, str]) -> None:
        out = self.out
        body = recomputed(self.nest.passes, i)
        kept = dict(self.index)
        _, _, most = self.turns(p)
        n = self.width(body, p.loops[-1], p.loops[-1].size)
        whole = prod(v.size for v in p.loops)
        while most % n or whole % n:
            n //= 2
        self.n, before = n, self.n
        if most == whole:
            first, last = "own", str(whole // n)
        else:
            chunk = self.nest.chunk
            assert chunk is not None
            c, each = self.index[chunk], most // n
            first = f"{c} * {each} + own"
            last = f"eq_min(({c} + 1) * {each}, {self.int}({whole // n}))"
        out.add("#pragma unroll 4")
        step = f"part += {self.lanes}"
        out.open(f"for ({self.int} part = {first}; part < {last}; {step})")
        self._element_index("part", p.loops)
        self.block(body, p.loops[-1], self.n, None, names)
        out.close()
        self.index, self.n = kept, before
