"""Index maps: affine expressions of loop variables, and how views change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from eqsat.kernels import packed
from eqsat.terms import Shape


class Unsupported(Exception):
    """A kernel that the language cannot say; another backend has to run it."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of an array lie, in elements of its memory."""

    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, order=True)
class LoopVar:
    """A loop variable that runs from 0 to ``size`` - 1."""

    name: str
    size: int

    def __str__(self) -> str:
        return self.name


class Split(Exception):
    """Variable ``var`` must become two, the inner one of size ``inner``."""

    def __init__(self, var: LoopVar, inner: int) -> None:
        super().__init__(f"{var} into {var.size // inner}×{inner}")
        self.var = var
        self.inner = inner


@dataclass(frozen=True)
class Affine:
    """``offset + Σ coefficient · variable``; variables sorted, no coefficient 0."""

    offset: int = 0
    terms: tuple[tuple[LoopVar, int], ...] = ()

    @classmethod
    def of(cls, var: LoopVar) -> Affine:
        """The variable itself; 0 where it has one value only."""
        return cls(0, ((var, 1),)) if var.size > 1 else ZERO

    @property
    def variables(self) -> tuple[LoopVar, ...]:
        return tuple(v for v, _ in self.terms)

    def coefficient(self, var: LoopVar) -> int:
        """What one step of ``var`` adds."""
        return next((c for v, c in self.terms if v == var), 0)

    def __add__(self, other: Affine) -> Affine:
        if not self.terms and not other.terms:
            return Affine(self.offset + other.offset)
        sums = dict(self.terms)
        for v, c in other.terms:
            sums[v] = sums.get(v, 0) + c
        terms = tuple(sorted((v, c) for v, c in sums.items() if c))
        return Affine(self.offset + other.offset, terms)

    def times(self, factor: int) -> Affine:
        """The expression multiplied by a number."""
        if factor == 0:
            return ZERO
        terms = tuple((v, c * factor) for v, c in self.terms)
        return Affine(self.offset * factor, terms)

    def substituted(self, known: Mapping[LoopVar, Affine]) -> Affine:
        """The expression with other expressions for some variables."""
        out = Affine(self.offset)
        for v, c in self.terms:
            out += known.get(v, Affine(0, ((v, 1),))).times(c)
        return out

    def __str__(self) -> str:
        parts = [f"{c} {v}" if c != 1 else str(v) for v, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)


ZERO = Affine()
Index = tuple[Affine, ...]
"""An expression for each axis of a value."""
Extent = tuple[int, int]
"""The first and the last element that memory has, from where an operand starts."""


def address(index: Index, strides: Sequence[int], offset: int = 0) -> Affine:
    """The place in memory of an element, in elements."""
    out = Affine(offset)
    for e, s in zip(index, strides, strict=True):
        out += e.times(s)
    return out


def bounds(at: Affine) -> Extent:
    """The least and the greatest value of an index expression."""
    ends = [c * (v.size - 1) for v, c in at.terms]
    low, high = (sum(f(e, 0) for e in ends) for f in (min, max))
    return at.offset + low, at.offset + high


def covers(index: Index, shape: Shape) -> bool:
    """Whether ``index`` reaches every element of ``shape`` once."""
    at = address(index, packed(shape))
    unit = 1
    for v, c in sorted(at.terms, key=lambda t: t[1]):
        if c != unit:
            return False
        unit *= v.size
    return unit == prod(shape) and at.offset == 0


def broadcast_index(index: Index, shape: Shape) -> Index:
    """The index of an argument of ``shape`` that is broadcast to what ``index``
    indexes."""
    own = index[len(index) - len(shape) :]
    return tuple(e if n > 1 else ZERO for e, n in zip(own, shape, strict=True))


def transpose_index(index: Index, perm: Sequence[int]) -> Index:
    """The index below a transpose of the trailing axes."""
    lead = len(index) - len(perm)
    below = list(index)
    for i, p in enumerate(perm):
        below[p + len(index)] = index[lead + i]
    return tuple(below)


def slice_index(index: Index, starts: Sequence[int], steps: Sequence[int]) -> Index:
    """The index below a slice of the trailing axes."""
    lead = len(index) - len(starts)
    cut = [
        e.times(step) + Affine(start)
        for e, start, step in zip(index[lead:], starts, steps, strict=True)
    ]
    return (*index[:lead], *cut)


def reshape_index(index: Index, shape: Shape, below: Shape) -> Index:
    """The index below a reshape from ``below`` to ``shape``.

    Axes are matched in groups of equal size. Raises :class:`Split` when a variable has
    to become two first, and :class:`Unsupported` when no affine index exists.
    """
    out: list[Affine] = []
    for mine, theirs in _groups(shape, below):
        if [shape[i] for i in mine] == [below[i] for i in theirs]:
            out += [index[i] for i in mine]
        else:
            digits = [d for i in mine for d in _digits(index[i], shape[i])]
            out += _regrouped(digits, [below[i] for i in theirs])
    return tuple(out)


def spread(variables: Sequence[LoopVar], shape: Shape) -> Index:
    """Axes of ``shape`` run through by ``variables`` in C order."""
    digits = [(v.size, Affine.of(v)) for v in variables if v.size > 1]
    return tuple(_regrouped(digits, shape))


Digit = tuple[int, Affine]
"""A size, and an expression that takes the values below it."""


def _groups(a: Shape, b: Shape) -> list[tuple[range, range]]:
    """Ranges of axes of ``a`` and ``b`` with equal products, as short as can be."""
    groups = []
    i = j = 0
    while i < len(a) or j < len(b):
        i0, j0 = i, j
        m = n = 1
        while True:
            if m == n and (i > i0 or j > j0):
                break
            if (m <= n and i < len(a)) or j == len(b):
                m *= a[i]
                i += 1
            else:
                n *= b[j]
                j += 1
        groups.append((range(i0, i), range(j0, j)))
    return groups


def _digits(e: Affine, size: int) -> list[Digit]:
    """``e``, an index of an axis of ``size``, as digits of a mixed radix."""
    if size == 1:
        return []
    if not e.terms:
        return [(size, e)]
    found: list[Digit] = []
    unit, above = 1, e.offset  # what the offset is of units
    wrong = Unsupported(f"index {e} of an axis of size {size} under a reshape")
    if above < 0:
        raise wrong
    sizes = [*sorted((c, v.size, v) for v, c in e.terms), (size, 1, None)]
    for c, n, v in sizes:
        if c < unit or c % unit:
            raise wrong
        if c > unit:  # digits that no variable has
            found.append((c // unit, Affine(above % (c // unit))))
            unit, above = c, above // (c // unit)
        if above % n:
            raise wrong
        if v is not None:
            found.append((n, Affine.of(v)))
            unit, above = unit * n, above // n
    if above:
        raise wrong
    return found[::-1]


def _regrouped(digits: Sequence[Digit], shape: Sequence[int]) -> list[Affine]:
    """The digits as indices of axes of ``shape``."""
    left = list(digits)
    out: list[Affine] = []
    for size in reversed(shape):
        e, unit = ZERO, 1
        while unit < size:
            n, digit = left.pop()
            need = size // unit
            if need % n == 0:
                e += digit.times(unit)
                unit *= n
                continue
            if size % unit or n % need:
                raise Unsupported(f"a reshape to {tuple(shape)} cuts across axes")
            if not digit.terms:
                low = Affine(digit.offset % need)
                left.append((n // need, Affine(digit.offset // need)))
                e += low.times(unit)
                unit = size
                continue
            ((var, _),) = digit.terms
            raise Split(var, need)
        out.append(e)
    assert prod(n for n, _ in left) == 1
    return out[::-1]
