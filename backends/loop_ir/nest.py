"""Kernels as data: rows over a grid, passes over the elements of a row.

Values are numbered. A value that depends on no variable of a pass's loops is of the
row: computed once, before the loops or after those of the pass that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from .index_maps import (
    Affine,
    LoopVar,
)

DType = np.dtype[Any]


@dataclass(frozen=True)
class Buffer:
    """An argument of a kernel: memory of elements of ``dtype``."""

    name: str
    dtype: DType
    written: bool = False


@dataclass(frozen=True)
class Operand:
    """Memory that a piece of a kernel reads or writes: an ``array`` (a term), a
    ``result`` (its position), a ``temporary`` or a ``table`` (their numbers), or the
    one ``fault``, that :class:`Within` marks."""

    kind: str
    key: Any
    dtype: DType


FAULT = Operand("fault", 0, np.dtype(np.uint8))


@dataclass(frozen=True)
class Const:
    """``value`` as a number of ``dtype``."""

    target: int
    dtype: DType
    value: float


@dataclass(frozen=True)
class Load:
    """An element of a buffer, widened to ``dtype``."""

    target: int
    dtype: DType
    buffer: int
    at: Affine


@dataclass(frozen=True)
class Compute:
    """``op`` of values, by the name in eqsat's catalogue."""

    target: int
    dtype: DType
    op: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Position:
    """The value of an index expression, int64."""

    target: int
    dtype: DType
    at: Affine


@dataclass(frozen=True)
class Gather:
    """The element of a buffer that lies the value ``by`` elements behind ``at``,
    widened to ``dtype``."""

    target: int
    dtype: DType
    buffer: int
    at: Affine
    by: int


@dataclass(frozen=True)
class Within:
    """The integer ``value`` if ``low <= value < high``. If not ``low``, and ``buffer``
    is marked: what the kernel computes is of no use."""

    target: int
    dtype: DType
    value: int
    low: int
    high: int
    buffer: int


@dataclass(frozen=True)
class Running:
    """``op`` of all that ``value`` was so far in the innermost loop, which is one of
    the row's only."""

    target: int
    dtype: DType
    op: str
    value: int
    is_ordered: bool
    """Whether each result is made of the one before it; else they may be grouped."""


@dataclass(frozen=True)
class Keep:
    """Write a value of an element to the row's own memory, for later passes."""

    value: int
    place: int


@dataclass(frozen=True)
class Kept:
    """What :class:`Keep` wrote for this element."""

    target: int
    dtype: DType
    place: int


RUNNING = frozenset(
    "add multiply maximum minimum fmax fmin bitwise_and bitwise_or bitwise_xor".split()
)
"""Ufuncs whose running results loops compute: they are associative."""
CDF = "normal_cdf"
"""Φ(x) = ½ (1 + erf(x √½))."""
WIDE = np.dtype(np.float32)
INDEX = np.dtype(np.int64)
NEAR = np.dtype(np.int32)
"""Indices of which vectors hold twice as many."""
FAR = 1 << 30
"""Elements within which they reach, so that lanes may move on from there."""
REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())
"""Reductions that have a name here."""


@dataclass(frozen=True)
class Joining:
    """How two values become one: straight-line code over the values 0 and 1."""

    identity: float
    """What it leaves other values as they are with."""
    body: tuple[Const | Compute, ...]
    result: int
    """The number of the value that is the result."""


@dataclass(frozen=True)
class Accumulate:
    """Reduce ``value`` over the loops of the pass; ``target`` is known after them.

    For ``argmax`` and ``argmin`` ``position`` is the value that is kept with it. An op
    that is not one of :data:`REDUCTIONS` has a ``joining``.
    """

    target: int
    dtype: DType
    op: str
    value: int
    position: int = -1
    joining: Joining | None = None


@dataclass(frozen=True)
class Store:
    """Write a value, narrowed to the buffer's dtype."""

    buffer: int
    at: Affine
    value: int


@dataclass(frozen=True)
class Scatter(Store):
    """Add a value to the element that lies the value ``by`` elements behind ``at``, or
    write it there."""

    by: int
    adds: bool


Statement = (
    Const
    | Load
    | Gather
    | Compute
    | Within
    | Position
    | Running
    | Keep
    | Kept
    | Accumulate
    | Store
)


def operands(s: Statement) -> tuple[int, ...]:
    """The values that a statement reads."""
    match s:
        case Compute():
            return s.args
        case Gather():
            return (s.by,)
        case Scatter():
            return s.value, s.by
        case Within() | Running() | Keep() | Store():
            return (s.value,)
        case Accumulate():
            return (s.value,) if s.position < 0 else (s.value, s.position)
        case Const() | Load() | Position() | Kept():
            return ()


def over(s: Statement, known: Mapping[LoopVar, Affine]) -> Statement:
    """``s`` with other expressions for the variables that are ``known``."""
    if isinstance(s, Gather | Load | Position | Store):
        return replace(s, at=s.at.substituted(known))
    return s


@dataclass(frozen=True)
class Pass:
    """Loops over the elements of a row, outermost first."""

    before: tuple[Statement, ...]
    """Of the row."""
    loops: tuple[LoopVar, ...]
    body: tuple[Statement, ...]
    """Of each element."""


@dataclass(frozen=True)
class Nest:
    """A kernel: for each point of the grid, the passes in order."""

    buffers: tuple[Buffer, ...]
    grid: tuple[LoopVar, ...]
    passes: tuple[Pass, ...]
    keeps: tuple[tuple[DType, int], ...] = ()
    """Dtype and elements of each place that :class:`Keep` writes, for one row."""
    vertical: bool = False
    """Whether neighbouring rows, not elements of a row, lie side by side in memory: the
    last variable of the grid is the one to vectorise."""
    chunk: LoopVar | None = None
    """A variable of the grid whose values share the outermost loop of the row out among
    them, in order: one takes ``ceil(size / chunk.size)`` turns, the last ones fewer."""
    aliased: frozenset[int] = frozenset()
    """Buffers that may share memory, element by element."""
    threads: int = 1
    """Threads that may share the grid."""
    streamed: frozenset[int] = frozenset()
    """Buffers that are written past the caches: too large to stay in them. They start
    on a cache line."""
    ranged: bool = False
    """Whether calls say which elements of the one loop of a row they want."""
    ordered: tuple[LoopVar, ...] = ()
    """The last variables of the grid, where one thread takes their points in order,
    since rows are added to the same elements."""
    ends: int = 0
    """Where not 0, ``chunk`` has three values, and the first and the last of them take
    ``size // ends`` turns each; 2 or more."""

    @property
    def rows(self) -> int:
        """Points of the grid."""
        return prod(v.size for v in self.grid)

    @property
    def elements(self) -> int:
        """Elements that the longest pass visits, over the whole grid."""
        longest = max((prod(v.size for v in p.loops) for p in self.passes), default=1)
        return self.rows * longest

    def statements(self) -> Iterator[Statement]:
        """All statements in order."""
        for p in self.passes:
            yield from p.before
            yield from p.body

    def changed(self, change: Callable[[Statement], Statement]) -> Nest:
        """The nest of its statements as ``change`` makes them."""
        passes = (
            replace(
                p, before=tuple(map(change, p.before)), body=tuple(map(change, p.body))
            )
            for p in self.passes
        )
        return replace(self, passes=tuple(passes))

    def __str__(self) -> str:
        return listing(self)


def listing(nest: Nest) -> str:
    """A kernel as people read it."""
    called = [b.name for b in nest.buffers]
    args = ", ".join(
        f"{'out ' if b.written else ''}{b.name}: {b.dtype}" for b in nest.buffers
    )
    lines = [f"kernel({args})"]
    depth = 1
    for v in nest.grid:
        last = nest.vertical and v is nest.grid[-1]
        note = "  # lanes" if last else "  # in order" if v in nest.ordered else ""
        lines.append(f"{'  ' * depth}for {v} < {v.size}:{note}")
        depth += 1
    for p in nest.passes:
        lines += ["  " * depth + text_of(s, called) for s in p.before]
        inner = depth
        for v in p.loops:
            lines.append(f"{'  ' * inner}for {v} < {v.size}:")
            inner += 1
        lines += ["  " * inner + text_of(s, called) for s in p.body]
    return "\n".join(lines)


def text_of(s: Statement, called: Sequence[str]) -> str:
    """A statement as people read it; buffers are ``called`` so."""
    match s:
        case Const():
            return f"v{s.target} = {s.value!r}  # {s.dtype}"
        case Load():
            return f"v{s.target} = {called[s.buffer]}[{s.at}]"
        case Gather():
            return f"v{s.target} = {called[s.buffer]}[{s.at} + v{s.by}]"
        case Within():
            return f"v{s.target} = v{s.value}  # {s.low} to {s.high - 1}"
        case Running():
            return f"v{s.target} = running {s.op} of v{s.value}  # {s.dtype}"
        case Compute():
            args = ", ".join(f"v{a}" for a in s.args)
            return f"v{s.target} = {s.op}({args})  # {s.dtype}"
        case Position():
            return f"v{s.target} = {s.at}"
        case Keep():
            return f"keep{s.place} = v{s.value}"
        case Kept():
            return f"v{s.target} = keep{s.place}"
        case Accumulate():
            where = f" at v{s.position}" if s.position >= 0 else ""
            return f"v{s.target} = {s.op} of v{s.value}{where}  # {s.dtype}"
        case Scatter():
            how = "+=" if s.adds else "="
            return f"{called[s.buffer]}[{s.at} + v{s.by}] {how} v{s.value}"
        case Store():
            return f"{called[s.buffer]}[{s.at}] = v{s.value}"


def variables(nest: Nest) -> dict[int, frozenset[LoopVar]]:
    """The loop variables that each value follows."""
    found: dict[int, frozenset[LoopVar]] = {}
    for p in nest.passes:
        for s in (*p.before, *p.body):
            if isinstance(s, (Keep, Store)):
                continue
            near = frozenset[LoopVar]().union(*(found[i] for i in operands(s)))
            if isinstance(s, (Gather, Load, Position)):
                near |= set(s.at.variables)
            if isinstance(s, (Kept, Running)):
                near |= set(p.loops)
            if isinstance(s, Accumulate):
                near -= set(p.loops)
            found[s.target] = near
    return found
