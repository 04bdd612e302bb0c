"""What must hold of a nest: its loops, and each statement where it stands.

A statement has a rule for its kind, in :data:`RULES`. Plans and GPU kernels ask too,
since they change nests after they are made.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from eqsat.support import Broken, EqsatError
from eqsat.terms import HALF, Op

from .index_maps import (
    Affine,
    Extent,
    LoopVar,
    bounds,
)
from .nest import (
    CDF,
    REDUCTIONS,
    RUNNING,
    WIDE,
    Accumulate,
    Compute,
    Const,
    DType,
    Gather,
    Joining,
    Keep,
    Kept,
    Load,
    Nest,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Within,
    operands,
    text_of,
)

Fault = tuple[str, object, object]
"""The rule that a statement breaks, actual and expected."""
BOOL = np.dtype(bool)


def broken_nest(
    nest: Nest,
    extents: Sequence[Extent | None],
    name: str,
    reductions: Collection[str] = REDUCTIONS,
) -> Iterator[Broken]:
    """The rules that a nest breaks. ``extents``: what its buffers hold, None where that
    is not known; ``reductions``: names of those that the backend knows."""
    yield from _loops(nest, name)
    yield from _Scope(nest, name, reductions).broken()
    called = [b.name for b in nest.buffers]
    for s in nest.statements():
        if isinstance(s, (Load, Gather, Store)):
            where = f"{name}: {text_of(s, called)}"
            yield from inside(where, bounds(s.at), extents[s.buffer])
    stored = {s.buffer for s in nest.statements() if isinstance(s, (Store, Within))}
    for i, b in enumerate(nest.buffers):
        if b.written != (i in stored):
            rule = "a buffer is written where it is declared so"
            yield Broken(f"{name}: {b.name}", rule, i in stored, b.written)


def inside(name: str, found: Extent, limits: Extent | None) -> Iterator[Broken]:
    """Addresses are inside of memory that has these ``limits``."""
    if limits is not None and (found[0] < limits[0] or found[1] > limits[1]):
        actual, expected = (f"{low} to {high}" for low, high in (found, limits))
        yield Broken(name, "its addresses are inside of its memory", actual, expected)


def is_widened(memory: DType, value: DType) -> bool:
    """Whether elements of ``memory`` are computed with in ``value``."""
    return memory == value or (memory in HALF and value == WIDE)


def _loops(nest: Nest, name: str) -> Iterator[Broken]:
    """Loops run over variables of their own, which have values."""
    for p in nest.passes:
        variables = (*nest.grid, *p.loops)
        for v in variables:
            if v.size < 1:
                yield Broken(f"{name}: loop {v}", "a loop has turns", v.size, "1 up")
        if len({v.name for v in variables}) < len(variables):
            rule = "loops have variables of their own"
            yield Broken(name, rule, _names(variables), "distinct ones")
    if nest.vertical and not nest.grid:
        yield Broken(name, "rows side by side have a variable", (), "a grid")
    if nest.chunk is not None and nest.chunk not in nest.grid:
        yield Broken(name, "parts are of the grid", nest.chunk, nest.grid)
    last = nest.grid[len(nest.grid) - len(nest.ordered) :]
    if nest.ordered != last:
        yield Broken(name, "what is ordered ends the grid", nest.ordered, last)


def _names(variables: Collection[LoopVar]) -> list[str]:
    return sorted(v.name for v in variables)


class _Scope:
    """What is known where a statement of a nest stands."""

    def __init__(self, nest: Nest, name: str, reductions: Collection[str]) -> None:
        self.nest, self.name, self.reductions = nest, name, reductions
        self.called = [b.name for b in nest.buffers]
        self.row: dict[int, DType] = {}
        self.follows: dict[int, frozenset[LoopVar]] = {}
        """The variables that a value changes with."""
        self.kept: dict[int, tuple[LoopVar, ...]] = {}
        """Places that earlier passes wrote, and over which loops."""
        self.loops: tuple[LoopVar, ...] = ()
        """Those of the pass, inside of which it stands."""

    def broken(self) -> Iterator[Broken]:
        """What statements break, in order."""
        for p in self.nest.passes:
            self.loops = ()
            for s in p.before:
                if isinstance(s, (Keep, Kept, Accumulate, Running)):
                    yield self._of(s, "it is of an element", "before loops", "in them")
                yield from self._statement(s, self.row, self.row)
            self.loops = p.loops
            inner: dict[int, DType] = {}
            after: dict[int, DType] = {}
            known = ChainMap(inner, self.row)
            for s in p.body:
                made = after if isinstance(s, Accumulate) else inner
                yield from self._statement(s, known, made)
            self.row |= after
            self.kept |= {s.place: p.loops for s in p.body if isinstance(s, Keep)}

    def _of(self, s: Statement, rule: str, actual: object, expected: object) -> Broken:
        return Broken(f"{self.name}: {text_of(s, self.called)}", rule, actual, expected)

    def _statement(
        self, s: Statement, known: Mapping[int, DType], made: dict[int, DType]
    ) -> Iterator[Broken]:
        if type(s) not in RULES:
            kinds = ", ".join(sorted(k.__name__ for k in RULES))
            yield Broken(self.name, "a statement is known", s, kinds)
            return
        buffers = range(len(self.nest.buffers))
        if getattr(s, "buffer", 0) not in buffers:
            yield Broken(self.name, "its buffer exists", s, buffers)
            return
        missing = [a for a in operands(s) if a not in known]
        if missing:
            rule = "a value is made before it is read"
            yield self._of(s, rule, f"v{missing[0]}", sorted(known))
            return
        at = set(getattr(s, "at", Affine()).variables)
        around = {*self.nest.grid, *self.loops}
        if not at <= around:
            rule = "its index follows the loops around it"
            yield self._of(s, rule, _names(at), _names(around))
        for fault in RULES[type(s)](self, s, [known[a] for a in operands(s)]):
            yield self._of(s, *fault)
        varying = frozenset(at).union(*(self.follows[a] for a in operands(s)))
        if isinstance(s, (Keep, Store)):
            yield from self._written(s, varying)
            return
        if s.target in made and not isinstance(s, Const):
            yield self._of(s, "a value is made once", "again", "once in a pass")
        made[s.target] = s.dtype
        self.follows[s.target] = self._varying(s, varying)

    def _varying(self, s: Statement, varying: frozenset[LoopVar]) -> frozenset[LoopVar]:
        """The variables that what ``s`` makes changes with, where those of its operands
        are ``varying``."""
        if isinstance(s, (Kept, Running)):
            return varying | set(self.loops)
        if isinstance(s, Accumulate):
            chunk = [v for v in self.nest.grid if v == self.nest.chunk]
            return (varying - set(self.loops)).union(chunk)
        return varying

    def _written(
        self, s: Keep | Store, varying: frozenset[LoopVar]
    ) -> Iterator[Broken]:
        """Points of the loops that write different values write different elements."""
        if type(s) is not Store:
            return
        if any(v.size > 1 for v in varying - set(s.at.variables)):
            rule = "what a value changes with, its address does too"
            yield self._of(s, rule, _names(s.at.variables), _names(varying))
        span = 0
        for v, c in sorted(s.at.terms, key=lambda t: abs(t[1])):
            if abs(c) <= span:
                rule = "no two points of the loops write one element"
                yield self._of(s, rule, f"a step of {c}", f"more than {span}")
            span += abs(c) * (v.size - 1)


# -- statements ------------------------------------------------------------------------


def _const(c: _Scope, s: Const, args: Sequence[DType]) -> Iterator[Fault]:
    return iter(())


def _load(c: _Scope, s: Load | Gather, args: Sequence[DType]) -> Iterator[Fault]:
    memory = c.nest.buffers[s.buffer].dtype
    if not is_widened(memory, s.dtype):
        yield "a value has the dtype of its memory", s.dtype, memory
    yield from _index(args)


def _index(dtypes: Sequence[DType]) -> Iterator[Fault]:
    for dtype in dtypes:
        if dtype.kind not in "iu":
            yield "an index is an integer", dtype, "an integer"


def _within(c: _Scope, s: Within, args: Sequence[DType]) -> Iterator[Fault]:
    yield from _index(args)
    yield from _same(s.dtype, args[0])
    if s.low >= s.high:
        yield "a range has numbers", (s.low, s.high), "low < high"


def _same(dtype: DType, expected: DType) -> Iterator[Fault]:
    if dtype != expected:
        yield "it has the dtype of its value", dtype, expected


def _position(c: _Scope, s: Position, args: Sequence[DType]) -> Iterator[Fault]:
    yield from _index([s.dtype])


def _running(c: _Scope, s: Running, args: Sequence[DType]) -> Iterator[Fault]:
    yield from _same(s.dtype, args[0])
    if s.op not in RUNNING:
        yield "its op is one of running results", s.op, ", ".join(sorted(RUNNING))
    if len(c.loops) != 1:
        yield "it runs along one loop", _names(c.loops), "one"


OWN = {
    "cast": 1,
    "divisor_scale": 1,
    CDF: 1,
    "round_float16": 1,
    "round_bfloat16": 1,
}
"""Operations that are not in eqsat's catalogue, or have a dtype of their own, and how
many arguments they have."""


def _compute(c: _Scope, s: Compute, args: Sequence[DType]) -> Iterator[Fault]:
    op = Op.registry.get(s.op)
    if s.op not in OWN and (op is None or op.kind != "pointwise"):
        yield "its op is a pointwise one of the catalogue", s.op, "a pointwise op"
        return
    count = OWN.get(s.op, len(op.params) if op is not None else 0)
    if len(args) != count and not (op is not None and op.variadic):
        yield "arity", len(args), count
        return
    for i in op.truths if op is not None else ():
        if args[i] != BOOL:
            yield "a truth value is bool", args[i], BOOL
    expected: Any = s.dtype if s.op == "cast" else args[0]
    if op is not None and s.op not in OWN:
        try:
            expected = op.type_rule.infer(s.op, [(a, ()) for a in args], {})[0]
        except EqsatError as error:
            expected = error
    if s.dtype != expected:
        yield "its dtype follows from its arguments", s.dtype, expected


def _keep(c: _Scope, s: Keep, args: Sequence[DType]) -> Iterator[Fault]:
    yield from _place(c, s.place, args[0])


def _kept(c: _Scope, s: Kept, args: Sequence[DType]) -> Iterator[Fault]:
    yield from _place(c, s.place, s.dtype)
    if c.kept.get(s.place) != c.loops:
        rule = "what is kept was written by an earlier pass over the same loops"
        yield rule, c.kept.get(s.place), c.loops


def _place(c: _Scope, place: int, dtype: DType) -> Iterator[Fault]:
    if place not in range(len(c.nest.keeps)):
        yield "the place that is kept exists", place, len(c.nest.keeps)
        return
    held, size = c.nest.keeps[place]
    if held != dtype:
        yield "what is kept has one dtype", dtype, held
    if size < prod(v.size for v in c.loops):
        yield "a whole row is kept", size, c.loops


def _accumulate(c: _Scope, s: Accumulate, args: Sequence[DType]) -> Iterator[Fault]:
    if s.joining is not None:
        yield from _joining(c, s.joining, args[0])
        yield from _same(s.dtype, args[0])
    elif s.op not in c.reductions:
        yield "its reduction is known", s.op, ", ".join(sorted(c.reductions))
    elif s.op in ("argmax", "argmin"):
        if s.position < 0:
            yield "it keeps a position", s.position, "a value"
        yield from _same(s.dtype, args[-1])
    else:
        yield from _same(s.dtype, args[0])
    if not c.loops:
        yield "a reduction runs over loops", c.loops, "one or more"


def _joining(c: _Scope, how: Joining, dtype: DType) -> Iterator[Fault]:
    dtypes = {0: dtype, 1: dtype}
    for s in how.body:
        if isinstance(s, Compute):
            unknown = [a for a in s.args if a not in dtypes]
            if unknown:
                yield "a joining reads what it has computed", unknown, sorted(dtypes)
                return
            yield from _compute(c, s, [dtypes[a] for a in s.args])
        dtypes[s.target] = s.dtype
    if dtypes.get(how.result) != dtype:
        yield "a joining gives the dtype that it takes", dtypes.get(how.result), dtype


def _stored(c: _Scope, s: Store, args: Sequence[DType]) -> Iterator[Fault]:
    memory = c.nest.buffers[s.buffer].dtype
    if not is_widened(memory, args[0]):
        yield "memory has the dtype of what is stored", args[0], memory
    yield from _index(args[1:])


RULES: dict[type, Callable[[_Scope, Any, Sequence[DType]], Iterator[Fault]]] = {
    Const: _const,
    Load: _load,
    Gather: _load,
    Within: _within,
    Position: _position,
    Running: _running,
    Compute: _compute,
    Keep: _keep,
    Kept: _kept,
    Accumulate: _accumulate,
    Store: _stored,
    Scatter: _stored,
}
"""What must hold of a statement of each kind, besides that what it reads is there."""
