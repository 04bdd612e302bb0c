"""Cases of the sizes that decide a rule (``needed_sizes.py``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.checking.draws import (
    UNDEFINED,
    Case,
    bools,
    inside_domain,
    named_axes,
    roles,
    sample,
)
from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.checking.proofs.needed_sizes import (
    ROWS,
    Needed,
    axes_of,
    places,
    sizes_needed,
)
from eqsat.checking.proofs.sides import of_numbers
from eqsat.rulelang import Expr, PatternNode, PatternVar, Rule, known_value, nodes
from eqsat.support import Array

MOST_CASES = 300
"""A rule that more cases decide has no proof."""
FEW = 12
"""Sizes of each axis that such a rule is tested for."""
DRAWS = 6
"""Cases that are drawn until one is in the domain of such a rule."""
MOST_AXES = 8
"""Of cases in which a permutation is one cycle."""
MOST_ELEMENTS = 3000
"""Of one array in such a case."""
PRIME = 2**31 - 1


def deciding(rule: Rule, cases: Sequence[Case]) -> Decision:
    """Cases of sizes that decide ``rule``, beside small ones of all its classes."""
    held = [c for c in cases if of_numbers(c)] or _longer(rule)
    found = _cycles(rule, held)
    whole = _long_cycles(rule, [*held, *found])
    for base in _bases(rule, held):
        try:
            needed = sizes_needed(rule, base)
        except (*UNDEFINED, Unprovable):
            whole = False
            continue
        if needed:
            more = _grid(base, needed)
            whole &= more is not None
            found += _lines(base, needed) if more is None else more
    return Decision(tuple(found), whole)


@dataclass(frozen=True)
class Decision:
    """Cases that a rule must hold for, and whether it then holds for all sizes."""

    cases: tuple[Case, ...]
    whole: bool


def _bases(rule: Rule, cases: Sequence[Case]) -> Iterator[Case]:
    """The smallest case without empty arrays for each choice of one axis that arrays
    are reduced along; one with one axis of ``...`` where there is one."""
    params = [p for p, (_, attr) in roles(rule).items() if attr == "axis"]
    best: dict[Any, tuple[Any, Case]] = {}
    for c in cases:
        axes = [axes_of(c, p) for p in c.arrays]
        sizes = [n for held in axes for n, _ in held]
        if 0 in sizes:
            continue
        rows = max(sum(n > 1 and a == ROWS for n, a in held) for held in axes or [[]])
        names = [a for _, a in max(axes, key=len, default=[])]
        chosen = [_entries(c.numbers[p]) for p in params]
        key = tuple(
            names[at[0]] if at and len(names) >= -at[0] else "" for at in chosen
        )
        rank = (
            sum(map(len, chosen)),
            abs(rows - 1),
            sizes.count(1),
            sum(a.size for a in c.arrays.values()),
        )
        if key not in best or rank < best[key][0]:
            best[key] = rank, c
    return (c for _, c in best.values())


def _entries(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def _long_cycles(rule: Rule, cases: Sequence[Case]) -> bool:
    """Whether a case has a cycle of more axes than a permutation is applied times."""
    for p, (_, attr) in roles(rule).items():
        if attr == "perm":
            uses = [max(_uses(p, s) for s in side) for side in (rule.left, rule.right)]
            longest = max((_cycle(c.numbers[p]) for c in cases), default=0)
            most = max(len(a.shape) for c in cases for a in c.arrays.values())
            if longest <= sum(uses) and (longest < most or _is_open(rule)):
                return False
    return True


def _cycles(rule: Rule, cases: Sequence[Case]) -> list[Case]:
    """Cases in which each permutation is one cycle, of each number of axes."""
    params = [p for p, (_, attr) in roles(rule).items() if attr == "perm"]
    if not params or not cases or not _is_open(rule):
        return []
    found = []
    for n in range(2, MOST_AXES + 1):
        cycle = tuple((i + 1) % n - n for i in range(n))
        shapes = {
            p: (2,) * n if axes.variadic else cases[0].arrays[p].shape
            for p, axes in zip(rule.tensors, rule.signature.inputs, strict=True)
        }
        arrays = {p: _filled(cases[0].arrays[p], s) for p, s in shapes.items()}
        numbers = {**cases[0].numbers, **dict.fromkeys(params, cycle)}
        case = _admitted(replace(cases[0], arrays=arrays, numbers=numbers))
        found += [case] if case is not None else []
    return found


def _admitted(case: Case) -> Case | None:
    """A case of plain numbers, if the rule admits it."""
    case = replace(case, others={})
    dtypes = of_numbers(case)
    bent = inside_domain(replace(case, dtype=dtypes[0])) if dtypes else None
    return bent if bent is not None and bent.numbers == case.numbers else None


def _is_open(rule: Rule) -> bool:
    return any(axes.variadic for axes in rule.signature.inputs)


def _uses(param: str, side: Any) -> int:
    """How often a parameter is applied at most, one after the other."""
    found: dict[Any, int] = {}
    for p in nodes(side):
        if isinstance(p, PatternNode):
            names = {n for v in p.attrs for e in _expressions(v) for n in e.names}
            inside = max((found[a] for a in p.args), default=0)
            found[p] = inside + (param in names)
        else:
            found[p] = 0
    return found[side]


def _expressions(value: Any) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _expressions(v)


def _cycle(perm: Sequence[int]) -> int:
    """The length of the longest cycle of a permutation of negative axes."""
    n, found = len(perm), 0
    for start in range(n):
        at, length = perm[start] + n, 1
        while at != start and length <= n:
            at, length = perm[at] + n, length + 1
        found = max(found, length)
    return found


def _longer(rule: Rule) -> list[Case]:
    """A case whose axes are longer than the numbers that cut them."""
    sizes = {a: 2 + places(rule) + i for i, a in enumerate(named_axes(rule))}
    drawn = (sample(rule, np.random.default_rng(i), i % 2) for i in range(DRAWS))
    found = (_of_sizes(case, sizes) for case in drawn)
    return [c for c in found if c is not None][:1]


def _lines(base: Case, needed: Mapping[str, Needed]) -> list[Case]:
    """Cases in which one axis alone is as long as it must be."""
    points = ({a: k} for a, n in needed.items() for k in n.sizes[:FEW])
    return [c for p in points if (c := _of_sizes(base, p)) is not None]


def _grid(base: Case, needed: Mapping[str, Needed]) -> list[Case] | None:
    """Cases of sizes on which no polynomial of these degrees is 0 but 0 itself, for
    each combination of remainders."""
    for width in (1, 2, 4):
        spans = [
            range(n.least, n.least + width * len(n.sizes)) for n in needed.values()
        ]
        if math.prod(map(len, spans)) > 4 * MOST_CASES:
            return None
        groups: dict[tuple[int, ...], _Unisolvent] = {}
        for point in itertools.product(*spans):
            key = tuple(
                p % n.period for p, n in zip(point, needed.values(), strict=True)
            )
            group = groups.setdefault(key, _Unisolvent([*needed.values()]))
            if not group.full:
                case = _of_sizes(base, dict(zip(needed, point, strict=True)))
                if case is not None:
                    group.add(point, case)
        held = [g for g in groups.values() if g.cases]
        if held and all(g.full for g in held):
            found = [c for g in held for c in g.cases]
            return found if len(found) <= MOST_CASES else None
    return None


class _Unisolvent:
    """Points whose monomials are independent, and the cases of these sizes."""

    def __init__(self, needed: Sequence[Needed]) -> None:
        self.powers = [*itertools.product(*(range(n.degree + 1) for n in needed))]
        self.rows: list[tuple[int, list[int]]] = []
        self.cases: list[Case] = []

    @property
    def full(self) -> bool:
        return len(self.rows) == len(self.powers)

    def add(self, point: Iterable[int], case: Case) -> None:
        """Keep a point that is independent of the others."""
        at = [*point]
        row = [math.prod(map(pow, at, powers)) % PRIME for powers in self.powers]
        for lead, held in self.rows:
            if k := row[lead]:
                row = [(v - k * h) % PRIME for v, h in zip(row, held, strict=True)]
        first = next((i for i, v in enumerate(row) if v), None)
        if first is not None:
            over = pow(row[first], -1, PRIME)
            self.rows.append((first, [v * over % PRIME for v in row]))
            self.cases.append(case)


def _of_sizes(base: Case, sizes: Mapping[str, int]) -> Case | None:
    """``base`` with other sizes, and other axes as its left side asks for; None where
    the rule admits none."""
    numbers = {**base.numbers, **{p: n for p, n in sizes.items() if p in base.numbers}}
    for others in _others(base, sizes):
        shapes = {p: _resized(base, p, {**others, **sizes}) for p in base.arrays}
        if max(map(math.prod, shapes.values()), default=0) > MOST_ELEMENTS:
            continue
        arrays = {p: _filled(base.arrays[p], s) for p, s in shapes.items()}
        case = _admitted(replace(base, arrays=arrays, numbers=numbers))
        if case is not None:
            return case
    return None


def _others(base: Case, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes of the axes that are free: their own, then such as fit a convolution, then
    a longer one."""
    own = {a: n for p in base.arrays for n, a in axes_of(base, p) if a and a != ROWS}
    free = [a for a in own if a not in sizes]
    yield {}
    fitted = _of_convolutions(base, {**own, **sizes})
    if fitted:
        yield {a: n for a, n in fitted.items() if a in free}
    else:
        top = max(sizes.values(), default=1)
        for a in free:
            yield from ({a: n} for n in range(1, top + 2))


def _of_convolutions(base: Case, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of images and channels that fit kernels of these sizes."""
    found: dict[str, int] = {}
    for p in (p for side in base.rule.left for p in nodes(side)):
        if not isinstance(p, PatternNode) or not p.op.name.startswith("conv2d"):
            continue
        tokens = [t for t in map(_four_axes, p.args[:2]) if t]
        if len(tokens) < 2:
            continue
        (_, i, *image), (o, j, *kernel) = tokens
        given = dict(zip(p.op.attrs, p.attrs, strict=True))
        attrs = {k: known_value(v, base.numbers) for k, v in given.items()}
        found |= {i: sizes.get(j, 1) * attrs["groups"], o: 2 * attrs["groups"]}
        for a, k, d in zip(image, kernel, attrs["dilation"], strict=True):
            found[a] = d * (sizes.get(k, 1) - 1) + 2
    return found


def _four_axes(p: Any) -> list[str]:
    """The axes of an image or a kernel in a pattern."""
    held = (q.axes.tokens for q in nodes(p) if isinstance(q, PatternVar))
    return next(([*map(str, t)] for t in held if len(t) == 4), [])


def _resized(base: Case, param: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an array with other sizes of its axes."""
    rank = base.arrays[param].ndim
    return tuple(
        (
            sizes[a] + (rank - i) % 3
            if a == ROWS and a in sizes and n != 1
            else sizes.get(a, n)
            if a != ROWS
            else n
        )
        for i, (n, a) in enumerate(axes_of(base, param))
    )


def _filled(like: Array, shape: Sequence[int]) -> Array:
    """An array of a shape, of numbers or of bools as another is."""
    rng = np.random.default_rng(0)
    if like.dtype.kind == "b":
        return bools(rng, shape)
    return np.asarray(rng.uniform(0.5, 1.5, shape)).astype(like.dtype)


__all__ = ["Decision", "Needed", "deciding", "sizes_needed"]
