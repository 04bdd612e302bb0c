"""Values in order: which pass computes each, what passes keep for later ones, and which
loops run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .coalesce import coalesced, spread_out
from .index_maps import Affine, LoopVar, Unsupported
from .nest import (
    FAULT,
    Accumulate,
    Buffer,
    Compute,
    Const,
    DType,
    Gather,
    Keep,
    Kept,
    Load,
    Nest,
    Pass,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Within,
)
from .normal_cdf_gelu import CDF, normal_at_once
from .values import FUNCTIONS, KernelValue, Values

WEIGHTS = {
    **dict.fromkeys("divide sqrt rsqrt reciprocal floor_divide remainder".split(), 3),
    **dict.fromkeys(FUNCTIONS, 10),
    CDF: 9,
}
"""What an op costs beside an addition, where that differs."""
WORTH_KEEPING = 4
"""Additions beyond which a value is kept for a later pass, not computed again."""
KEPT_BYTES = 1 << 20
"""Most bytes of a row that are kept; longer rows are computed again."""


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
    sweeps: bool = False
    """Whether kernels that touch much memory run through it back to front each second
    time, in parts, by one thread too."""
    most: tuple[int, int] | None = None
    """How many times as often as it has elements a pointwise op may be computed in one
    nest, light ones and functions, before it is in memory; None for any number."""
    normal: bool = False
    """Whether Φ(x) = ½ (1 + erf(x √½)) is one operation, ``normal_cdf``."""


Placed = tuple[Any, Affine, int]
"""A store: memory, the address, the number of the value."""


@dataclass(frozen=True)
class Scattering:
    """How stores go to elements that are computed."""

    by: int
    """The number of the value that says how far behind its address an element lies."""
    ordered: tuple[LoopVar, ...]
    """What this value follows: one thread takes these points in order."""
    row: tuple[LoopVar, ...]
    """What is side by side at each of them."""
    adds: bool
    """Whether values are added to what is there; else the last one stays."""


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
    return _Schedule(values, stores, chunk, target, scattering).nest()


class _Schedule:
    def __init__(
        self,
        values: Values,
        stores: Sequence[Placed],
        chunk: LoopVar | None,
        target: LoopTarget,
        scattering: Scattering | None,
    ) -> None:
        self.values = list(values.values)
        self.whole = target.rows
        self.threads = target.threads
        self.exact = target.exact
        self.stores = [(o, at, self._unrounded(o.dtype, n)) for o, at, n in stores]
        self.chunk = chunk
        self.scattering = scattering
        self.operands: list[Any] = []
        places = [] if scattering is None else [scattering.by]
        self.live = self._below([*places, *(n for *_, n in self.stores)])
        self.variables: dict[int, frozenset[LoopVar]] = {}
        self.stages: dict[int, int] = {}
        for i in self.live:
            self._measure(i)
        self._loops(values)
        if target.normal:
            normal_at_once(self.values, self.live, [n for *_, n in self.stores])
        if not target.exact:
            self._divide_once()
        self.order = self._ordered()
        self.keeps: dict[int, int] = {}
        self.kept_in: dict[int, int] = {}

    def _unrounded(self, dtype: DType, number: int) -> int:
        """A value rounded to the dtype of its buffer is rounded by the store."""
        v = self.values[number]
        return v.args[0] if v.op == f"round_{dtype.name}" else number

    def _below(self, roots: Iterable[int]) -> list[int]:
        found = set(roots)
        stack = list(found)
        while stack:
            new = set(self.values[stack.pop()].args) - found
            found |= new
            stack.extend(new)
        return sorted(found)

    def _measure(self, i: int) -> None:
        v = self.values[i]
        near = frozenset(v.at.variables)
        near = near.union(*(self.variables[a] for a in v.args)) - set(v.over)
        self.variables[i] = near
        stage = max((self.stages[a] for a in v.args), default=0)
        self.stages[i] = stage + bool(v.over)

    # -- loops -------------------------------------------------------------------------

    def _loops(self, values: Values) -> None:
        """The grid, the row, and what of the results runs along neither."""
        strides = self._strides()
        self.grid: tuple[LoopVar, ...] = ()
        self.row: tuple[LoopVar, ...]
        self.tail: tuple[LoopVar, ...]
        if values.running is not None:
            self._running_loops(values.base, values.running)
            return
        if self.scattering is not None:
            self.is_map = self.vertical = False
            self.row = self.tail = self.scattering.row
            last = (*self.scattering.ordered, *self.row)
            first = [v for v in values.base if v not in last]
            self.grid = (*first, *self.scattering.ordered)
            return
        if values.row is None or not any(self.values[i].over for i in self.live):
            used = frozenset().union(*(at.variables for _, at, _ in self.stores))
            base = [v for v in values.base if v in used]
            self.row = self.tail = tuple(base)
            self.vertical = False
            self.is_map = True
            return
        self.is_map = False
        near = self._main_load()
        self.row = tuple(sorted(values.row, key=lambda v: -near.coefficient(v)))
        grid = [v for v in values.base if v in values.grid]
        self.tail = tuple(v for v in values.base if v not in values.grid)
        if set(self.tail) == set(self.row):
            self.tail = self.row
        grid.sort(key=lambda v: (-near.coefficient(v), -strides.get(v, 0)))
        contiguous = [v for v in (*grid, *self.row) if near.coefficient(v) == 1]
        self.vertical = bool(contiguous) and contiguous[-1] in grid
        if self.vertical:
            lane = contiguous[-1]
            grid = [*(v for v in grid if v is not lane), lane]
        if self.chunk is not None:
            grid.insert(len(grid) - self.vertical, self.chunk)
        self.grid = tuple(grid)

    def _running_loops(self, base: Sequence[LoopVar], along: LoopVar) -> None:
        """Rows along an axis with running results."""
        self.is_map = False
        self.row = self.tail = (along,)
        near = self._main_load()
        grid = [v for v in base if v != along]
        strides = self._strides()
        grid.sort(key=lambda v: (-near.coefficient(v), -strides.get(v, 0)))
        lanes = [v for v in grid if near.coefficient(v) == 1]
        self.vertical = bool(lanes) and near.coefficient(along) != 1
        if self.vertical:
            grid = [*(v for v in grid if v is not lanes[-1]), lanes[-1]]
        self.grid = tuple(grid)

    def _strides(self) -> dict[LoopVar, int]:
        found: dict[LoopVar, int] = {}
        for _, at, _ in self.stores:
            for v, c in at.terms:
                found.setdefault(v, abs(c))
        return found

    def _main_load(self) -> Affine:
        """The address of the load that reads most."""
        loads = [
            self.values[i] for i in self.live if self.values[i].op in ("load", "gather")
        ]
        sizes = [prod(v.size for v in x.at.variables) for x in loads]
        return loads[sizes.index(max(sizes))].at if loads else Affine()

    def _divide_once(self) -> None:
        """Divisions of elements by a value of their row become products with its
        reciprocal, since eight divisions take as long as twenty products.

        The divisor is scaled to [½, 1) first: its reciprocal is then as precise as
        others, and no product overflows whose quotient would not. That of a softmax
        needs no scale.
        """
        factors: dict[int, list[int]] = {}
        for i in list(self.live):
            v = self.values[i]
            if v.op != "divide" or v.dtype.kind != "f" or self._is_row(i):
                continue
            x, y = v.args
            if not self._is_row(y) or self._is_row(x):
                continue
            if y not in factors:
                factors[y] = self._turned(y, v.dtype)
            *scales, last = factors[y]
            for scale in scales:
                x = self._added(KernelValue("multiply", v.dtype, (x, scale)), i)
            self.values[i] = KernelValue("multiply", v.dtype, (x, last))

    def _turned(self, y: int, dtype: DType) -> list[int]:
        """Factors that together are 1 / y."""
        scales = []
        near = y
        if not self._is_sum_of_powers(y):
            scales = [self._added(KernelValue("divisor_scale", dtype, (y,)), y)]
            near = self._added(KernelValue("multiply", dtype, (y, *scales)), y)
        return [*scales, self._added(KernelValue("reciprocal", dtype, (near,)), y)]

    def _is_sum_of_powers(self, i: int) -> bool:
        """Whether a value is Σ e^(v - max v): 1 to the length of the row, or NaN."""
        total = self.values[i]
        if total.op != "sum" or not total.over:
            return False
        power = self.values[total.args[0]]
        if power.op not in ("exp", "exp2") or power.over:
            return False
        difference = self.values[power.args[0]]
        if difference.op != "subtract":
            return False
        x, y = difference.args
        top = self.values[y]
        return top.op == "max" and top.args == (x,) and top.over == total.over

    def _added(self, value: KernelValue, like: int) -> int:
        """A new value that is computed where ``like`` is."""
        number = len(self.values)
        self.values.append(value)
        self.variables[number] = self.variables[like]
        self.stages[number] = self.stages[like]
        self.live.append(number)
        return number

    def _ordered(self) -> dict[int, int]:
        """The place of each value in an order with arguments first."""
        order: dict[int, int] = {}

        def visit(i: int) -> None:
            if i not in order:
                for a in self.values[i].args:
                    visit(a)
                order[i] = len(order)

        for i in self.live:
            visit(i)
        return order

    # -- passes ------------------------------------------------------------------------

    def nest(self) -> tuple[Nest, tuple[Any, ...]]:
        """The nest and the memory of its buffers."""
        reduces = [i for i in self.live if self.values[i].over]
        count = max((self.stages[i] for i in reduces), default=0)
        goals: list[list[int]] = [[] for _ in range(count + 1)]
        for i in reduces:
            goals[self.stages[i] - 1].append(i)
        bodies: list[list[Statement]] = [[] for _ in range(count + 1)]
        rows: list[list[Statement]] = [[] for _ in range(count + 1)]
        loops = [self.row] * count + [self.tail]
        written: list[list[Placed]] = [[] for _ in range(count + 1)]
        row_stores: list[list[Placed]] = [[] for _ in range(count + 1)]
        for store in self.stores:
            of_row = set(store[1].variables) <= set(self.grid)
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
            rows[self.stages[i]].append(self._statement(i))
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
            along = set(store[1].variables) - set(self.grid)
            return count if along else self.stages[number]
        along = {*self.variables[number], *store[1].variables} - set(self.grid)
        if along <= set(self.row):
            return min(self.stages[number], count) if self.tail == self.row else count
        if not along <= set(self.tail):
            raise Unsupported("results along different loops")
        return count

    def _is_row(self, i: int) -> bool:
        return self.variables[i] <= set(self.grid)

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
        if first == p or loops != self.row:
            return False
        size = prod(v.size for v in self.row) * self.values[i].dtype.itemsize
        return size <= KEPT_BYTES and self._cost(i) > WORTH_KEEPING

    def _cost(self, i: int) -> int:
        """Additions that computing an element again takes."""
        seen = {i}
        stack = [i]
        total = 0
        while stack:
            v = self.values[stack.pop()]
            total += WEIGHTS.get(v.op, 1)
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
        ordered = ("multiply", "add") if self.exact else ("multiply",)
        return v.dtype.kind == "f" and v.source in ordered

    def _accumulate(self, i: int) -> Statement:
        v = self.values[i]
        return Accumulate(i, v.dtype, v.op, v.args[0], *v.args[1:])

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
        row = prod(v.size for v in self.row)
        keeps = tuple((self.values[i].dtype, row) for i in self.keeps)
        nest = Nest(
            buffers,
            self.grid,
            tuple(passes),
            keeps,
            self.vertical,
            self.chunk,
            threads=self.threads,
            ordered=() if self.scattering is None else self.scattering.ordered,
        )
        nest = coalesced(nest, self.whole)
        return spread_out(nest) if self.is_map else nest, tuple(self.operands)
