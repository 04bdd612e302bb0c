"""The values of a kernel: bodies demanded at index expressions, from the results down.

A value is a term at an index. Views change the index and vanish; the variables of a
reduction are those of the result that run along the same axes, so that ``x / sum(x)``
reads one ``x`` in both places.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernels import packed
from eqsat.ops import (
    accumulate_op,
    broadcast_to_op,
    cast_op,
    concatenate_op,
    copy,
    power,
    reshape_op,
    slice_op,
    take_op,
    transpose_op,
    where,
)
from eqsat.terms import HALF, Op, Shape, Term, Weak, limits

from ..interpret import evaluate
from ..loop_ir import (
    FAR,
    INDEX,
    NEAR,
    RUNNING,
    WIDE,
    ZERO,
    Affine,
    DType,
    Index,
    Layout,
    LoopVar,
    Unsupported,
    address,
    broadcast_index,
    covers,
    reshape_index,
    slice_index,
    spread,
    transpose_index,
)
from .computed_again import (
    Again,
    additions,
)
from .narrow_products import (
    is_short,
)
from .value_graph import (
    KernelValue,
)

MOST_PLACES = 32
"""Indices at which one nest computes a term, each with code of its own: neighbours that
are joined in pairs, again and again, would be written out for every element."""


class Conflict(Exception):
    """``term`` cannot be computed in this nest: it needs one of its own."""

    def __init__(self, term: Term) -> None:
        super().__init__(f"{term.op.name} needs a kernel of its own")
        self.term = term


class NumberedValues:
    """The values of a nest by number; equal values have one."""

    def __init__(self) -> None:
        self.values: list[KernelValue] = []
        self._numbers: dict[KernelValue, int] = {}

    def add(self, value: KernelValue) -> int:
        """The number of ``value``."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def number(self, number: float, dtype: DType) -> int:
        """A constant. Equal numbers of other signs or types are others."""
        return self.add(KernelValue("const", dtype, source=(repr(number), number)))

    def load(self, source: Any, layout: Layout, index: Index, dtype: DType) -> int:
        """An element of memory."""
        at = address(index, layout.strides, layout.offset)
        return self.add(KernelValue("load", dtype, at=at, source=source))

    def sum(self, x: int, y: int) -> int:
        """x + y."""
        return self.add(KernelValue("add", self.values[x].dtype, (x, y)))

    def within(self, value: int, low: int, high: int) -> int:
        """An integer that fails the call unless ``low <= value < high``."""
        dtype = self.values[value].dtype
        return self.add(KernelValue("within", dtype, (value,), source=(low, high)))

    def cast(self, value: int, dtype: DType) -> int:
        """``value`` in ``dtype``; halves are rounded, and computed with in float32."""
        wide = WIDE if dtype in HALF else dtype
        if self.values[value].dtype != wide:
            value = self.add(KernelValue("cast", wide, (value,)))
        if dtype in HALF:
            return self.add(KernelValue(f"round_{dtype.name}", wide, (value,)))
        return value

    def rounded(self, value: int, half: DType) -> int:
        """``value`` as it is after it was in memory."""
        v = self.values[value]
        known = v.source.dtype == half if v.op == "load" else False
        if known or v.op == f"round_{half.name}":
            return value
        return self.cast(value, half)  # temporary memory of halves is in float32


class Values:
    """The values of one nest. Raises :class:`Conflict` and :class:`Split` when the nest
    has to be begun anew."""

    def __init__(
        self,
        memory: Mapping[Term, tuple[Any, Layout]],
        splits: Mapping[str, int],
        rounds: bool = False,
        again: Again | None = None,
    ) -> None:
        self.memory = memory
        """Terms in memory: what a load of each reads, and its layout."""
        self.splits = splits
        self.rounds = rounds
        """Whether halves are rounded after each op, and numbers that they meet are
        halves too: in a single op of NumPy, but not in a kernel of several, which
        computes in float32 where no decision depends on it."""
        self.again = again
        """What computing values again takes; None where that does not matter."""
        self.times: Counter[Term] = Counter()
        """How often each is computed."""
        self._additions: dict[int, int] = {}
        self.places: Counter[Term] = Counter()
        """At how many indices each is computed."""
        self.numbered = NumberedValues()
        self.values = self.numbered.values
        self.known: dict[tuple[Term, Index], int] = {}
        self.open: list[tuple[Term, Index]] = []
        """What is being demanded, the innermost last."""
        self.base: tuple[LoopVar, ...] = ()
        """The variables of the result."""
        self.running: LoopVar | None = None
        """The variable along which there are running results."""
        self.reductions = RowReductions(self)

    def fresh(self, name: str, size: int) -> Affine:
        """A new variable; two or more where it has been split."""
        inner = self.splits.get(name)
        if inner is None:
            return Affine.of(LoopVar(name, size))
        high = self.fresh(f"{name}a", size // inner)
        return high.times(inner) + self.fresh(f"{name}b", inner)

    def index(self, stem: str, shape: Shape) -> Index:
        """New variables for each axis of ``shape``."""
        return tuple(self.fresh(f"{stem}{i}", n) for i, n in enumerate(shape))

    def root(self, term: Term, index: Index) -> int:
        """The value of a result whose axes are ``index``."""
        if not self.base:
            order = sorted({v for e in index for v in e.variables})
            self.base = tuple(sorted(order, key=lambda v: -_weight(index, term, v)))
        return self.value(term, index)

    def value(self, term: Term, index: Index) -> int:
        """The number of the value of ``term`` at ``index``."""
        key = (term, index)
        if key not in self.known:
            self._count(term, index)
            self.open.append(key)
            self.known[key] = self._demand(term, index)
            self.open.pop()
        return self.known[key]

    def _count(self, term: Term, index: Index) -> None:
        """Raise :class:`Conflict` for what is computed so often, at shifted places,
        that it had better be in memory."""
        op = cast(Op, term.op)
        if op.kind != "pointwise" or term in self.memory:
            return
        self.places[term] += 1
        if self.open and self.places[term] > MOST_PLACES:
            raise Conflict(term)
        if self.again is None:
            return
        self.times[term] += prod(
            {v: v.size for e in index for v in e.variables}.values()
        )
        more = self.times[term] - term.size
        if not self.open or more <= 0:
            return
        first = self.known_index(term)
        if first is not None:
            each = self.additions(self.known[term, first])
            if self.again.is_too_much(term, more, each):
                raise Conflict(term)

    def additions(self, number: int) -> int:
        """What a value takes, as :func:`.computed_again.additions` says it."""
        if number not in self._additions:
            self._additions[number] = additions(self.values, number)
        return self._additions[number]

    def known_index(self, term: Term) -> Index | None:
        """An index that ``term`` is demanded at."""
        return next(iter(self.indices_of(term)), None)

    def indices_of(self, term: Term) -> list[Index]:
        """The indices that ``term`` is demanded at."""
        return [i for t, i in self.known if t is term]

    # -- terms -------------------------------------------------------------------------

    def _demand(self, term: Term, index: Index) -> int:
        if term in self.memory:
            source, layout = self.memory[term]
            is_bare = isinstance(term.dtype, Weak)
            dtype = source.dtype if is_bare else computed_dtype(term)
            return self.numbered.load(source, layout, index, dtype)
        op = cast(Op, term.op)
        attrs = op.attr_dict(term)
        args = term.args
        if op is reshape_op:
            try:
                below = reshape_index(index, term.shape, args[0].shape)
            except Unsupported:
                raise Conflict(term) from None
            return self.value(args[0], below)
        if op is broadcast_to_op:
            return self.value(args[0], broadcast_index(index, args[0].shape))
        if op is transpose_op:
            return self.value(args[0], transpose_index(index, attrs["perm"]))
        if op is slice_op:
            below = slice_index(index, attrs["starts"], attrs["steps"])
            return self.value(args[0], below)
        if op is concatenate_op:
            return self._part(term, attrs["axis"], index)
        if op.kind == "reduce":
            return self.reductions.value(term, op.name, args[0], attrs["axis"], index)
        if op.kind == "pointwise":
            return self._pointwise(term, op, index)
        if is_short(term) and covers(index, term.shape):
            return self._dot(term, index)
        if op.lowerings:
            raise Conflict(term)
        if op is take_op:
            return self._take(term, attrs["axis"], index)
        if op is accumulate_op:
            return self._run(term, attrs["ufunc"], attrs["axis"][0], index)
        raise Conflict(term)

    def _part(self, term: Term, axis: int, index: Index) -> int:
        """An element of joined arrays that is known to be of one of them."""
        at = index[axis]
        steps = [c * (v.size - 1) for v, c in at.terms]
        first = at.offset + sum(s for s in steps if s < 0)
        last = at.offset + sum(s for s in steps if s > 0)
        start = 0
        for a in term.args:
            end = start + a.shape[axis]
            if start <= first and last < end:
                below = list(index)
                below[axis] = at + Affine(-start)
                return self.value(a, tuple(below))
            start = end
        raise Conflict(term)

    def _dot(self, term: Term, index: Index) -> int:
        """An element of a product, as a sum that is written out."""
        x, y = term.args
        *batch, i, j = index
        terms = []
        for k in map(Affine, range(x.shape[-1])):
            at = (*batch, i, k), (*batch, k, j)
            pair = [
                self.value(a, broadcast_index(e, a.shape))
                for a, e in zip((x, y), at, strict=True)
            ]
            terms.append(
                self.numbered.add(
                    KernelValue("multiply", computed_dtype(term), tuple(pair))
                )
            )
        return reduce(self.numbered.sum, terms)

    def _take(self, term: Term, axis: int, index: Index) -> int:
        """Elements of memory at computed indices."""
        x, indices = term.args
        size, lead = x.shape[axis], x.ndim + axis
        of_indices = index[lead : lead + indices.ndim]
        if not covers(of_indices, indices.shape):  # each of them is to be checked
            raise Conflict(term)
        if x not in self.memory:
            raise Conflict(x)
        below = (*index[:lead], ZERO, *index[lead + indices.ndim :])
        source, layout = self.memory[x]
        by = self.place(indices, of_indices, size, layout.strides[axis])
        at = address(below, layout.strides, layout.offset)
        return self.numbered.add(
            KernelValue("gather", computed_dtype(term), (by,), at, source)
        )

    def place(self, indices: Term, index: Index, size: int, stride: int) -> int:
        """How far behind the first of ``size`` elements that lie ``stride`` apart the
        one lies that ``indices`` names, which fails the call if there is none."""
        if size == 0 or indices.dtype == np.dtype(np.uint64):
            raise Unsupported(f"one of {size} elements by {indices.dtype}")
        found = limits(indices)
        assert found is not None
        low, high = found
        narrow = np.iinfo(NEAR)
        fits_second_cache = narrow.min <= low and high <= narrow.max
        fits_second_cache = fits_second_cache and size * max(abs(stride), 1) < FAR
        dtype = NEAR if fits_second_cache else INDEX
        i = self.numbered.cast(self.value(indices, index), dtype)
        if low < -size or high >= size:
            i = self.numbered.within(i, min(max(low, -size), size - 1), size)
        if low < 0:
            behind = self.numbered.add(
                KernelValue("add", dtype, (i, self.numbered.number(size, dtype)))
            )
            zero = self.numbered.number(0, dtype)
            is_behind = self.numbered.add(
                KernelValue("less", np.dtype(bool), (i, zero))
            )
            i = self.numbered.add(KernelValue("where", dtype, (is_behind, behind, i)))
        if stride == 1:
            return i
        step = self.numbered.number(stride, dtype)
        return self.numbered.add(KernelValue("multiply", dtype, (i, step)))

    def _run(self, term: Term, ufunc: str, axis: int, index: Index) -> int:
        """Running results along an axis."""
        (x,) = term.args
        if term.shape[axis] == 1:
            return self.value(x, index)
        if ufunc not in RUNNING:
            raise Unsupported(f"{ufunc}.accumulate in loops")
        e = index[axis]
        along = e.variables[0] if e.terms else None
        others = [v for i, o in enumerate(index, -len(index)) if i != axis
                  for v in o.variables]  # fmt: skip
        if (
            along is None
            or e != Affine.of(along)
            or along.size != term.shape[axis]
            or {along, *others} != set(self.base)
            or along in others
            or self.reductions.row is not None
            or self.reductions.joins is not None
            or self.running not in (None, along)
        ):
            is_cut = len(e.terms) > 1 and term is self.open[0][0]
            raise Conflict(x if is_cut and x not in self.memory else term)
        self.running = along
        at = Affine.of(along)
        number = self.value(x, index)
        return self.numbered.add(
            KernelValue("running", computed_dtype(term), (number,), at, ufunc)
        )

    def _pointwise(self, term: Term, op: Op, index: Index) -> int:
        if op is copy:
            return self.value(term.args[0], index)
        met = [computed_dtype(a) for a in term.args if not isinstance(a.dtype, Weak)]
        if not met or op.lowerings:
            raise Conflict(term)
        if op.in_own_dtype and term.dtype in HALF:
            raise Unsupported(f"{op.name} in float32 of numbers that are not")
        values = []
        for a in term.args:
            if isinstance(a.dtype, Weak) and a not in self.memory:
                number = _bare_number(a)
                dtype = computed_dtype(term) if op is where else met[-1]
                if self.rounds and term.dtype in HALF:
                    number = float(cast("DType", term.dtype).type(number))
                values.append(self.numbered.number(number, dtype))
            else:
                number = self.value(a, broadcast_index(index, a.shape))
                if self.rounds and a.dtype in HALF:
                    number = self.numbered.rounded(number, cast("DType", a.dtype))
                values.append(number)
        if op is cast_op:
            return self.numbered.cast(values[0], cast("DType", term.dtype))
        if op is power and computed_dtype(term).kind in "iu":
            values = self._powers(term, values, index)
        return self.numbered.add(
            KernelValue(op.name, computed_dtype(term), tuple(values))
        )

    def _powers(self, term: Term, values: Sequence[int], index: Index) -> list[int]:
        """The arguments of an integer power, whose exponents must not be negative."""
        dtype = computed_dtype(term)
        x, y = (self.numbered.cast(v, dtype) for v in values)
        exponent = self.values[y]
        if exponent.op == "const":
            if exponent.source[1] < 0:
                raise Unsupported("a negative integer power")
        elif dtype.kind == "i":
            if not covers(index, term.shape):  # each exponent is to be checked
                raise Conflict(term)
            y = self.numbered.within(y, 0, np.iinfo(dtype).max + 1)
        return [x, y]


class RowReductions:
    """The reductions of a nest, all over the row that the first of them begins."""

    def __init__(self, values: Values) -> None:
        # Both are dropped together, with all that they hold: no work for a collector.
        self.values = cast(Values, weakref.proxy(values))
        self.numbered = values.numbered
        self.row: tuple[LoopVar, ...] | None = None
        """The variables that the reductions run over."""
        self.grid: frozenset[LoopVar] = frozenset()
        """Where there is a reduction: the variables outside of it."""
        self.terms: list[Term] = []
        """The reductions, arguments first."""
        self.joins: tuple[Any, Affine, LoopVar, int] | None = None
        """Where parts of the one reduction lie: memory, address, the variable that
        numbers them, and elements of the whole."""

    def value(
        self, term: Term, name: str, arg: Term, axes: Sequence[int], index: Index
    ) -> int:
        op = cast(Op, term.op)
        if op.identity is None and op.fold is None:
            raise Unsupported(f"{name} in loops")
        outer = frozenset(v for e in index for v in e.variables)
        if self.joins is not None:
            return self._join(term, name, outer)
        sizes = tuple(arg.shape[a] for a in axes)
        if prod(sizes) == 1:
            return self._single(term, name, self.values.value(arg, index))
        if self.values.running is not None:
            raise Conflict(term)
        if self.row is None:
            self._begin_row(term, outer, sizes)
        assert self.row is not None
        if outer != self.grid or prod(sizes) != prod(v.size for v in self.row):
            raise Conflict(term)
        below = list(index)
        along = self._along(arg.shape, axes) or spread(self.row, sizes)
        for a, e in zip(axes, along, strict=True):
            below[a + len(index)] = e
        x = self.values.value(arg, tuple(below))
        self.terms.append(term)
        if name in ("argmax", "argmin"):
            (a,) = axes
            at = self.numbered.add(
                KernelValue("position", INDEX, at=below[a + len(below)])
            )
            return self.numbered.add(KernelValue(name, INDEX, (x, at), over=self.row))
        return self._total(term, name, x, prod(sizes))

    def _single(self, term: Term, name: str, x: int) -> int:
        """A reduction over one element."""
        if name in ("argmax", "argmin"):
            return self.numbered.number(0, INDEX)
        return x

    def _join(self, term: Term, name: str, outer: frozenset[LoopVar]) -> int:
        """A reduction of the parts that another nest has reduced."""
        assert self.joins is not None
        source, at, chunk, count = self.joins
        self.grid, self.row = outer, (chunk,)
        dtype = computed_dtype(term)
        x = self.numbered.add(KernelValue("load", dtype, at=at, source=source))
        return self._total(term, name, x, count)

    def _total(self, term: Term, name: str, x: int, count: int) -> int:
        assert self.row is not None
        op, dtype = cast(Op, term.op), computed_dtype(term)
        if op.fold is not None:
            fold = KernelValue(name, dtype, (x,), source=op, over=self.row)
            return self.numbered.add(fold)
        if dtype == np.dtype(bool):
            name = {"sum": "any", "prod": "all"}.get(name, name)
        if name != "mean":
            return self.numbered.add(KernelValue(name, dtype, (x,), over=self.row))
        total = self.numbered.add(KernelValue("sum", dtype, (x,), over=self.row))
        return self.numbered.add(
            KernelValue(
                "divide", dtype, (total, self.numbered.number(float(count), dtype))
            )
        )

    def _along(self, shape: Shape, axes: Sequence[int]) -> Index | None:
        """How the row runs through ``axes`` where a value of ``shape`` is used beside
        its reduction."""
        assert self.row is not None
        for term, index in reversed(self.values.open):
            if term.shape == shape:
                found = tuple(index[a + len(index)] for a in axes)
                if {v for e in found for v in e.variables} == set(self.row):
                    return found
        return None

    def _begin_row(self, term: Term, outer: frozenset[LoopVar], sizes: Shape) -> None:
        inner = tuple(v for v in self.values.base if v not in outer)
        if prod(v.size for v in inner) == prod(sizes):
            self.row = inner
        elif outer <= set(self.values.base) and (outer or not self.values.base):
            found = [self.values.fresh(f"r{i}", n) for i, n in enumerate(sizes)]
            self.row = tuple(v for e in found for v in _ordered(e))
        else:
            raise Conflict(term)
        self.grid = outer


def computed_dtype(term: Term) -> DType:
    """The dtype that a term is computed in: halves in float32."""
    dtype = cast("DType", term.dtype)
    return WIDE if dtype in HALF else dtype


def _bare_number(term: Term) -> float:
    value = evaluate([term], {})[term]
    if isinstance(value, np.ndarray):
        raise Unsupported("a table of bare numbers")
    return value


def _ordered(e: Affine) -> list[LoopVar]:
    """The variables of an index, the outermost first."""
    return [v for v, _ in sorted(e.terms, key=lambda t: -t[1])]


def _weight(index: Index, term: Term, var: LoopVar) -> int:
    """How far one step of ``var`` goes in the packed memory of ``term``."""
    return address(index, packed(term.shape)).coefficient(var)


def matching(trial: Values, values: Values) -> dict[LoopVar, Affine]:
    """What the variables of ``trial`` are in ``values``, by a term that both read."""
    best: dict[LoopVar, Affine] = {}
    for (term, index), _ in trial.known.items():
        for other in values.indices_of(term):
            met: dict[LoopVar, Affine] = {}
            for mine, theirs in zip(index, other, strict=True):
                if len(mine.terms) == 1 and mine.terms[0][1] == 1 and not mine.offset:
                    met[mine.terms[0][0]] = theirs
            if len(met) > len(best):
                best = met
    return best
