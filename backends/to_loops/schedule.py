"""Values in order: which pass computes each, what passes keep for later ones, and which
loops run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..loop_ir import (
    FAULT,
    LOOPS,
    Accumulate,
    Buffer,
    Compute,
    Const,
    Gather,
    Keep,
    Kept,
    Load,
    LoopTuning,
    LoopVar,
    Nest,
    Operand,
    Pass,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Unsupported,
    Within,
    weight,
)
from .coalesce import (
    coalesced,
    spread_out,
)
from .joinings import (
    joining_of,
)
from .nest_loops import (
    NestLoops,
    Placed,
    Scattering,
    loops_of,
)
from .normal_cdf_gelu import (
    normal_at_once,
)
from .value_graph import (
    KernelValue,
    ValueGraph,
    divide_once,
    graph_of,
)
from .values import (
    Values,
)


@dataclass(frozen=True)
class LoopTarget:
    """What decides how kernels are cut."""

    threads: int = 1
    """Most threads that run one kernel."""
    exact: bool = False
    """Whether each operation rounds as it is written."""
    rows: frozenset[int] = frozenset()
    """Sizes of innermost loops that stay as they are: rows of products, which run in
    panels with what follows them."""
    halves: bool = False
    """Whether products in float32 read float16 and bfloat16."""
    pairs: bool = False
    """Whether they multiply and sum pairs of bfloat16."""
    orders: frozenset[str] = frozenset()
    """Names of the dtypes whose rows can be put in order."""
    scatters: bool = False
    """Whether rows can be added to elements that are computed."""
    factors: bool = False
    """Whether there are factorisations of matrices."""
    reads_parts: bool = False
    """Whether nests read parts of what other nests of the kernel join."""
    sweeps: bool = False
    """Whether kernels that touch much memory run through it back to front each second
    time, in parts, by one thread too."""
    remembers: bool = False
    """Whether what takes long to compute again comes to be in memory first."""
    tuning: LoopTuning = LOOPS
    """Numbers that were chosen by measuring."""
    normal: bool = False
    """Whether Φ(x) = ½ (1 + erf(x √½)) is one operation, ``normal_cdf``."""


def schedule(
    values: Values,
    stores: Sequence[Placed],
    target: LoopTarget,
    chunk: LoopVar | None = None,
    scattering: Scattering | None = None,
) -> tuple[Nest, tuple[Any, ...]]:
    """The nest that makes ``stores``, and the memory of each of its buffers.

    With ``chunk`` each value of that variable reduces its own part of the row.
    """
    placed = [(o, at, _unrounded(values, o, n)) for o, at, n in stores]
    results = [n for *_, n in placed]
    places = [] if scattering is None else [scattering.by]
    graph = graph_of(values.values, [*places, *results])
    loops = loops_of(graph, values, placed, chunk, scattering)
    if target.normal:
        normal_at_once(graph.values, graph.live, results)
    if not target.exact:
        divide_once(graph, loops.grid)
    return _Schedule(graph, loops, placed, chunk, target, scattering).nest()


def _unrounded(values: Values, out: Operand, number: int) -> int:
    """A value rounded to the dtype of its buffer is rounded by the store."""
    v = values.values[number]
    return v.args[0] if v.op == f"round_{out.dtype.name}" else number


class _Schedule:
    def __init__(
        self,
        graph: ValueGraph,
        loops: NestLoops,
        stores: Sequence[Placed],
        chunk: LoopVar | None,
        target: LoopTarget,
        scattering: Scattering | None,
    ) -> None:
        self.graph, self.loops, self.stores = graph, loops, stores
        self.values, self.order = graph.values, graph.order()
        self.chunk, self.target, self.scattering = chunk, target, scattering
        self.operands: list[Any] = []
        self.keeps: dict[int, int] = {}
        self.kept_in: dict[int, int] = {}

    # -- passes ------------------------------------------------------------------------

    def nest(self) -> tuple[Nest, tuple[Any, ...]]:
        """The nest and the memory of its buffers."""
        reduces = [i for i in self.graph.live if self.values[i].over]
        count = max((self.graph.stages[i] for i in reduces), default=0)
        goals: list[list[int]] = [[] for _ in range(count + 1)]
        for i in reduces:
            goals[self.graph.stages[i] - 1].append(i)
        bodies: list[list[Statement]] = [[] for _ in range(count + 1)]
        rows: list[list[Statement]] = [[] for _ in range(count + 1)]
        loops = [self.loops.row] * count + [self.loops.tail]
        written: list[list[Placed]] = [[] for _ in range(count + 1)]
        row_stores: list[list[Placed]] = [[] for _ in range(count + 1)]
        for store in self.stores:
            of_row = set(store[1].variables) <= set(self.loops.grid)
            of_row = of_row and self._is_row(store[2])
            (row_stores if of_row else written)[self._pass_of(store, count)].append(
                store
            )
        needed: set[int] = set()
        for p in range(count + 1):
            roots = [self.values[i].args for i in goals[p]]
            wanted = [a for args in roots for a in args]
            wanted += [n for *_, n in written[p]]
            body, outer = self._body(p, wanted, loops[p], bodies)
            needed |= outer | {n for *_, n in row_stores[p]}
            bodies[p] += body
            bodies[p] += [self._accumulate(i) for i in goals[p]]
            bodies[p] += [self._store(s) for s in written[p]]
            needed |= {a for args in roots for a in args if self._is_row(a)}
            needed |= {n for *_, n in written[p] if self._is_row(n)}
        if self.scattering is not None:
            needed.add(self.scattering.by)
        for i in self._row_values(needed):
            rows[self.graph.stages[i]].append(self._statement(i))
        for p in range(count + 1):
            rows[p] += [self._store(s) for s in row_stores[p]]
        passes = [
            Pass(tuple(r), loop if b else (), tuple(b))
            for r, loop, b in zip(rows, loops, bodies, strict=True)
            if r or b
        ]
        return self._finished(passes)

    def _pass_of(self, store: Placed, count: int) -> int:
        number = store[2]
        if self._is_row(number):
            along = set(store[1].variables) - set(self.loops.grid)
            return count if along else self.graph.stages[number]
        along = {*self.graph.variables[number], *store[1].variables} - set(
            self.loops.grid
        )
        if along <= set(self.loops.row):
            return (
                min(self.graph.stages[number], count)
                if self.loops.tail == self.loops.row
                else count
            )
        if not along <= set(self.loops.tail):
            raise Unsupported("results along different loops")
        return count

    def _is_row(self, i: int) -> bool:
        return self.graph.is_row(i, self.loops.grid)

    def _row_values(self, needed: Iterable[int]) -> list[int]:
        """The values of the row below ``needed``; reductions come out of passes."""
        found: set[int] = set()
        stack = [i for i in needed if self._is_row(i)]
        while stack:
            i = stack.pop()
            if i in found:
                continue
            found.add(i)
            if not self.values[i].over:
                stack += self.values[i].args
        left = (i for i in found if not self.values[i].over)
        return sorted(left, key=self.order.__getitem__)

    def _body(
        self,
        p: int,
        wanted: Sequence[int],
        loops: tuple[LoopVar, ...],
        bodies: list[list[Statement]],
    ) -> tuple[list[Statement], set[int]]:
        """Statements of pass ``p`` that compute ``wanted``, and what they read of the
        row."""
        order: list[int] = []
        outer: set[int] = set()
        kept: set[int] = set()
        seen: set[int] = set()
        stack = list(wanted)
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            if self._is_row(i):
                outer.add(i)
                continue
            order.append(i)
            if self._is_kept(i, p, loops):
                kept.add(i)
            else:
                stack += self.values[i].args
        out: list[Statement] = []
        for i in sorted(order, key=self.order.__getitem__):
            if i in kept:
                out.append(self._recall(i, bodies))
            else:
                out.append(self._statement(i))
                self.kept_in.setdefault(i, p)
        return out, outer

    def _is_kept(self, i: int, p: int, loops: tuple[LoopVar, ...]) -> bool:
        first = self.kept_in.get(i, p)
        if first == p or loops != self.loops.row:
            return False
        size = prod(v.size for v in self.loops.row) * self.values[i].dtype.itemsize
        known = self.target.tuning
        return size <= known.kept_bytes and self._cost(i) > known.worth_keeping

    def _cost(self, i: int) -> int:
        """Additions that computing an element again takes."""
        seen = {i}
        stack = [i]
        total = 0
        while stack:
            v = self.values[stack.pop()]
            total += weight(v.op)
            new = {a for a in v.args if a not in seen and not self._is_row(a)}
            seen |= new
            stack += new
        return total

    def _recall(self, i: int, bodies: list[list[Statement]]) -> Statement:
        place = self.keeps.get(i)
        if place is None:
            place = self.keeps[i] = len(self.keeps)
            earlier = bodies[self.kept_in[i]]
            made = next(
                j for j, s in enumerate(earlier) if getattr(s, "target", None) == i
            )
            earlier.insert(made + 1, Keep(i, place))
        return Kept(i, self.values[i].dtype, place)

    # -- statements --------------------------------------------------------------------

    def _statement(self, i: int) -> Statement:
        v: KernelValue = self.values[i]
        if v.op == "const":
            return Const(i, v.dtype, v.source[1])
        if v.op == "load":
            return Load(i, v.dtype, self._buffer(v.source), v.at)
        if v.op == "position":
            return Position(i, v.dtype, v.at)
        if v.op == "gather":
            return Gather(i, v.dtype, self._buffer(v.source), v.at, v.args[0])
        if v.op == "within":
            low, high = v.source
            return Within(i, v.dtype, v.args[0], low, high, self._buffer(FAULT))
        if v.op == "running":
            return Running(i, v.dtype, v.source, v.args[0], self._is_ordered(v))
        return Compute(i, v.dtype, v.op, v.args)

    def _is_ordered(self, v: KernelValue) -> bool:
        """Whether running results of floats must be made one from the other. Grouped
        products may overflow where these do not."""
        ordered = ("multiply", "add") if self.target.exact else ("multiply",)
        return v.dtype.kind == "f" and v.source in ordered

    def _accumulate(self, i: int) -> Statement:
        v = self.values[i]
        value, position = (*v.args, -1)[:2]
        how = None if v.source is None else joining_of(v.source, v.dtype)
        return Accumulate(i, v.dtype, v.op, value, position, how)

    def _store(self, store: Placed) -> Statement:
        operand, at, number = store
        if self.scattering is not None:
            s = self.scattering
            return Scatter(self._buffer(operand), at, number, s.by, s.adds)
        return Store(self._buffer(operand), at, number)

    def _buffer(self, operand: Any) -> int:
        if operand not in self.operands:
            self.operands.append(operand)
        return self.operands.index(operand)

    def _finished(self, passes: Sequence[Pass]) -> tuple[Nest, tuple[Any, ...]]:
        written = {
            s.buffer for p in passes for s in (*p.before, *p.body)
            if isinstance(s, (Store, Within))
        }  # fmt: skip
        buffers = tuple(
            Buffer(f"b{i}", o.dtype, i in written) for i, o in enumerate(self.operands)
        )
        row = prod(v.size for v in self.loops.row)
        keeps = tuple((self.values[i].dtype, row) for i in self.keeps)
        nest = Nest(
            buffers,
            self.loops.grid,
            tuple(passes),
            keeps,
            self.loops.vertical,
            self.chunk,
            threads=self.target.threads,
            ordered=() if self.scattering is None else self.scattering.ordered,
        )
        nest = coalesced(nest, self.target.rows)
        return spread_out(nest) if self.loops.is_map else nest, tuple(self.operands)
