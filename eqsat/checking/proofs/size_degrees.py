"""How sizes of axes enter what terms compute: as polynomials of what degree.

A term is a quotient of polynomials in the elements of its arrays and in the results of
functions. Sizes enter the coefficients: a number that is a size, or a sum of equal
elements. :class:`SizeDegree` bounds that.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, mul, or_
from typing import Any

from eqsat.checking.proofs.field_semantics import LOGIC, MOST_POWER
from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.ops import iota_op
from eqsat.rulelang import Expr
from eqsat.terms import BOOL, SCALAR, Op, Term, is_float, postorder

Degrees = Counter[str]
"""A degree for each axis."""
Labels = frozenset[str]
"""The axes that the size of a dimension is made of."""


@dataclass(frozen=True)
class SizeDegree:
    """A bound on a quotient of polynomials in sizes."""

    num: Degrees = field(default_factory=Counter)
    den: Degrees = field(default_factory=Counter)
    """Of a denominator that is no product of sizes."""
    by: Degrees = field(default_factory=Counter)
    """Of a denominator that is a product of sizes, as that of a mean is."""
    sums: Degrees = field(default_factory=Counter)
    """How many sums over each axis a product of the numerator has at most."""
    along: Labels = frozenset()
    """Axes along which the denominator varies."""

    def __add__(self, o: SizeDegree) -> SizeDegree:
        by = self.by | o.by
        one, other = (a.num + b.den + (by - a.by) for a, b in ((self, o), (o, self)))
        sums = self.sums + o.sums if self.den or o.den else self.sums | o.sums
        return SizeDegree(one | other, self.den + o.den, by, sums, self.along | o.along)

    def __mul__(self, o: SizeDegree) -> SizeDegree:
        return SizeDegree(
            self.num + o.num,
            self.den + o.den,
            self.by + o.by,
            self.sums + o.sums,
            self.along | o.along,
        )

    def over(self, o: SizeDegree, along: Labels) -> SizeDegree:
        """The quotient by what varies along some axes."""
        turned = SizeDegree(o.den + o.by, o.num, sums=o.sums, along=along | o.along)
        return self * turned

    def total(self, axes: Labels, kinds: int) -> SizeDegree:
        """The sum over axes of elements that are of so many kinds."""
        n = kinds if axes & self.along else 1
        num, one = self.num + _times(n - 1, self.den), Counter(axes)
        den, along = _times(n, self.den), self.along - axes
        return SizeDegree(num + one, den, self.by, self.sums + one, along)


def _times(n: int, d: Degrees) -> Degrees:
    return Counter({a: n * k for a, k in d.items() if n * k})


def of_number(e: Expr | float, sizes: Iterable[str]) -> SizeDegree:
    """The degree of a number that is made of ``sizes``.

    Raises :class:`Unprovable` for a size that is divided by another in integers.
    """
    names = {*sizes}
    if not isinstance(e, Expr) or not e.names & names:
        return SizeDegree()
    if not e.args:
        return SizeDegree(Counter([e.head]))
    a, b = e.args
    if e.head in ("//", "%"):
        if isinstance(b, Expr) and b.names & names:
            raise Unprovable(f"{e}: a size divided by a size")
        return of_number(a, names) if e.head == "//" else SizeDegree()
    x, y = of_number(a, names), of_number(b, names)
    if e.head == "/":
        return x * SizeDegree(y.den, y.num) if y.den else x * SizeDegree(by=y.num)
    return x * y if e.head == "*" else x + y


@dataclass
class SizesOfTerms:
    """The degrees of terms without composites."""

    labels: dict[Term, tuple[Labels, ...]]
    """For each dimension of a leaf, the axes it is made of; of other terms they
    follow."""
    numbers: Mapping[Term, SizeDegree]
    kinds: int = 1
    """How many kinds of elements an axis holds: one for each sum, and the rest."""
    degrees: dict[Term, SizeDegree] = field(default_factory=dict)
    fed: list[SizeDegree] = field(default_factory=list)
    """What functions were applied to."""
    totals: set[Labels] = field(default_factory=set)
    """What was summed along."""

    def needed(self, left: Sequence[Term], right: Sequence[Term]) -> SizeDegree:
        """The degree of a polynomial that is 0 wherever the sides agree by chance: in
        one element, or because two arguments of functions are equal there."""
        for t in postorder([*left, *right]):
            if t not in self.degrees:
                self.degrees[t] = self._degree(t)
        num: Degrees = Counter()
        sums: Degrees = Counter()
        for a, b in zip(left, right, strict=True):
            apart = self.degrees[a] + self.degrees[b]
            num |= apart.num
            sums |= self.degrees[a].sums + self.degrees[b].sums
        fed = [d for d in self.fed if d.num or d.den or d.by]
        pairs = itertools.combinations_with_replacement(fed, 2)
        num += reduce(add, ((a + b).num for a, b in pairs), Counter())
        sums |= reduce(or_, (d.sums for d in self.fed), Counter())
        return SizeDegree(num, sums=sums)

    @property
    def _every(self) -> Labels:
        return frozenset[str]().union(*itertools.chain(*self.labels.values()))

    def _degree(self, t: Term) -> SizeDegree:
        if not isinstance(t.op, Op) or not t.args:
            self.labels.setdefault(t, (self._every,) * len(t.shape))
            if t.op is iota_op:
                return SizeDegree(Counter(self._every))
            return self.numbers.get(t, SizeDegree())
        args = [self.degrees[a] for a in t.args]
        self.labels[t] = self._labels(t)
        name = t.op.name
        if name in ("sum", "mean"):
            return self._sum(t, args[0], name == "mean")
        if name == "prod":
            raise Unprovable("a product of as many factors as an axis has elements")
        if name == "matmul":
            inner = self.labels[t.args[0]][-1] | self.labels[t.args[1]][-2]
            return self._total(args[0] * args[1], inner)
        if name == "conv2d":
            w = self.labels[t.args[1]]
            return self._total(args[0] * args[1], frozenset().union(*w[1:]))
        if name in RATIONAL:
            return self._rational(t, args)
        if t.op.kind == "view" or name in ("copy", "take"):
            return reduce(_either, args)
        return self._function(t, args)

    def _sum(self, t: Term, x: SizeDegree, mean: bool) -> SizeDegree:
        assert isinstance(t.op, Op)
        axes = t.op.attr_dict(t)["axis"]
        held = self.labels[t.args[0]]
        over: Labels = frozenset().union(*(held[a] for a in axes))
        found = self._total(x, over)
        return found * SizeDegree(by=Counter(over)) if mean else found

    def _total(self, x: SizeDegree, axes: Labels) -> SizeDegree:
        self.totals.add(axes)
        return x.total(axes, self.kinds)

    def _rational(self, t: Term, args: Sequence[SizeDegree]) -> SizeDegree:
        assert isinstance(t.op, Op)
        name = t.op.name
        if name in ("divide", "reciprocal"):
            varies = frozenset().union(*self.labels[t.args[-1]])
            one = args[0] if len(args) == 2 else SizeDegree()
            return one.over(args[-1], varies)
        if name == "cast" and not is_float(t.dtype):
            return self._function(t, args)
        if name == "square":
            return args[0] * args[0]
        if name == "power":
            return self._power(t, args)
        if name == "where":
            chosen = self._function(t, args[:1]) if t.args[0].dtype != BOOL else args[0]
            return (chosen + SizeDegree()) * (args[1] + args[2])
        if name in LOGIC:
            return reduce(mul, (a + SizeDegree() for a in args))
        return reduce(mul if name == "multiply" else add, args)

    def _power(self, t: Term, args: Sequence[SizeDegree]) -> SizeDegree:
        n: Any = t.args[1].attrs[0] if t.args[1].op is SCALAR else None
        if n is None or n != int(n) or abs(n) > MOST_POWER:
            return self._function(t, args)
        found = reduce(mul, [args[0]] * abs(int(n)), SizeDegree())
        varies = frozenset().union(*self.labels[t])
        return found if n >= 0 else SizeDegree().over(found, varies)

    def _function(self, t: Term, args: Sequence[SizeDegree]) -> SizeDegree:
        """A function of which nothing is known."""
        self.fed += args
        sums: Degrees = reduce(add, (a.sums for a in args), Counter())
        return SizeDegree(sums=sums)

    # -- axes of dimensions ------------------------------------------------------------

    def _labels(self, t: Term) -> tuple[Labels, ...]:
        assert isinstance(t.op, Op)
        held = [self.labels[a] for a in t.args]
        attrs, name = t.op.attr_dict(t), t.op.name
        if name == "transpose":
            lead, perm = len(t.shape) - len(attrs["perm"]), attrs["perm"]
            return (*held[0][:lead], *(held[0][p] for p in perm))
        if name == "reshape":
            return _regrouped(held[0], t.args[0].shape, t.shape)
        if name == "matmul":
            return (*_joined(held[0][:-2], held[1][:-2]), held[0][-2], held[1][-1])
        if name == "conv2d":
            x, w = held
            return (x[0], w[0], x[2] | w[2], x[3] | w[3])
        if t.op.kind == "reduce":
            gone = {a % len(t.shape) for a in attrs["axis"]}
            none: Labels = frozenset()
            return tuple(none if i in gone else a for i, a in enumerate(held[0]))
        if name == "broadcast_to":
            old = (0,) * (len(t.shape) - len(held[0])) + t.args[0].shape
            kept = _joined(held[0], (frozenset(),) * len(t.shape))
            sizes = zip(kept, old, t.shape, strict=True)
            return tuple(a if n == m else self._every for a, n, m in sizes)
        if t.op.kind == "pointwise" or name in ("slice", "pad", "concatenate"):
            found = reduce(_joined, held)
        else:
            every: Labels = frozenset().union(*itertools.chain(*held))
            found = (every,) * len(t.shape)
        return (*(frozenset(),) * (len(t.shape) - len(found)), *found)


RATIONAL = LOGIC.keys() | frozenset(
    "add subtract multiply divide negative square reciprocal cast power".split()
)
"""Ops that are polynomials or quotients; conditions are 0 or 1."""


def _either(a: SizeDegree, b: SizeDegree) -> SizeDegree:
    sums, along = a.sums | b.sums, a.along | b.along
    return SizeDegree(a.num | b.num, a.den | b.den, a.by | b.by, sums, along)


def _joined(a: Sequence[Labels], b: Sequence[Labels]) -> tuple[Labels, ...]:
    """The labels of what broadcasts, from the last dimension."""
    n = max(len(a), len(b))
    x, y = ((*(frozenset(),) * (n - len(v)), *v) for v in (a, b))
    return tuple(p | q for p, q in zip(x, y, strict=True))


def _regrouped(
    held: Sequence[Labels], old: Sequence[int], new: Sequence[int]
) -> tuple[Labels, ...]:
    """The labels of dimensions that are merged and split: those of the fewest whole
    groups of as many elements."""
    found: list[Labels] = []
    i = j = 0
    while j < len(new):
        start = (i, j)
        i, j = min(i + 1, len(old)), j + 1
        while math.prod(old[start[0] : i]) != math.prod(new[start[1] : j]):
            short = math.prod(old[start[0] : i]) < math.prod(new[start[1] : j])
            if short and i < len(old):
                i += 1
            elif j < len(new):
                j += 1
            else:
                return (frozenset().union(*held),) * len(new)
        own: Labels = frozenset().union(*held[start[0] : i])
        found += [own] * (j - start[1])
    return tuple(found)


__all__ = ["SizeDegree", "SizesOfTerms", "of_number"]
