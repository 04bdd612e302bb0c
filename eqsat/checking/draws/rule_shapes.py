"""Shapes of the arrays of a rule, as programs hold them.

Named axes get sizes that differ, that are equal, or that are 0 or 1. The axes of
``...`` are drawn for each array by itself: all of them, fewer, none, some of size 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.checking.draws.sample_arrays import Shape
from eqsat.rulelang import Expr, PatternNode, PatternVar, Rule, exprs, nodes

Random = Any
"""A ``numpy.random.Generator``."""
SIZES = (2, 3, 4, 5, 6, 7, 8)
"""Sizes of named axes where these differ."""
RANKS = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6)
"""How many axes ``...`` stands for, as often as they are drawn."""
MOST_AXES = 8
FEW_ELEMENTS = 100
"""Of the named axes of one array: of more, most cases get smaller sizes."""
MOST_ELEMENTS = 3000
"""Of one array: longer ``...`` are cut to fit."""
STYLES = ("differ",) * 7 + ("equal", "equal", "pair", "unusual", "unusual", "unusual")


def draw_shapes(
    rule: Rule,
    rng: Random,
    fixed: Mapping[str, int],
    batch: Sequence[int] | None = None,
) -> dict[str, Shape]:
    """Shapes of the arrays of ``rule``, in which the axes ``fixed`` have their size.

    ``batch``: the axes that all ``...`` broadcast to; named axes then differ. Without
    it they are drawn, and named axes may be equal, 1 or 0.
    """
    inputs = rule.signature.inputs
    size = _sizes(named_axes(rule), rng, "" if batch is None else "differ")
    if rng.integers(4) and _is_large(rule, size):
        size = {a: int(rng.integers(min(n, 1), 4)) for a, n in size.items()}
    size |= fixed
    batch = _batch(rng) if batch is None else batch
    several = sum(a.variadic for a in inputs) > 1
    shapes = {}
    for param, axes in zip(rule.tensors, inputs, strict=True):
        named = [
            a if isinstance(a, int) else size[a] for a in axes.tokens if a != "..."
        ]
        own = _own(batch, rng) if several else list(batch)
        while own and math.prod([*own, *named]) > MOST_ELEMENTS:
            own = own[1:]
        own = own[-(MOST_AXES - len(named)) :] if len(named) < MOST_AXES else []
        at = axes.tokens.index("...") if axes.variadic else 0
        shapes[param] = (
            *named[:at],
            *(own if axes.variadic else ()),
            *named[at:],
        )
    return shapes


def named_axes(rule: Rule) -> list[str]:
    """The names of axes in the signature of ``rule``."""
    tokens = [a for axes in rule.signature.inputs for a in axes.tokens]
    return [a for a in dict.fromkeys(tokens) if isinstance(a, str) and a != "..."]


def _is_large(rule: Rule, size: Mapping[str, int]) -> bool:
    """Whether the named axes of an array of ``rule`` have many elements."""
    tokens = (a.tokens for a in rule.signature.inputs)
    products = (math.prod(size.get(str(a), 1) for a in t) for t in tokens)
    return max(products, default=0) > FEW_ELEMENTS


def _sizes(names: Sequence[str], rng: Random, style: str) -> dict[str, int]:
    grid = SIZES if len(names) <= len(SIZES) else range(2, len(names) + 2)
    size = dict(zip(names, map(int, rng.permutation(grid)), strict=False))
    if not names:
        return size
    style = style or str(rng.choice(STYLES))
    if style == "equal":
        size = dict.fromkeys(names, int(rng.choice((1, 2, 3, 4))))
    elif style == "pair":
        size[str(rng.choice(names))] = size[str(rng.choice(names))]
    elif style == "unusual":
        small = int(rng.choice((0, 1, 1)))
        for _ in range(int(rng.integers(1, 3))):
            size[str(rng.choice(names))] = small
    return size


def _batch(rng: Random) -> list[int]:
    """The sizes that the axes of all ``...`` broadcast to."""
    n = int(rng.choice(RANKS))
    if n > 3:
        return [int(a) for a in rng.choice((1, 2, 2), n)]
    batch = [int(a) for a in rng.permutation((2, 3, 4, 5))[:n]]
    odd = int(rng.choice((2, 2, 2, 2, 1, 0)))
    if n and odd < 2:
        batch[int(rng.integers(n))] = odd
    return batch


def _own(batch: Sequence[int], rng: Random) -> list[int]:
    """The axes of ``...`` of one array: all of ``batch``, or fewer, or some of size
    1."""
    how = rng.integers(4)
    if how < 2:
        return list(batch)
    kept = batch[int(rng.integers(len(batch) + 1)) :] if how == 2 else batch
    return [
        1 if rng.integers(3) == 0 or (how == 3 and rng.integers(2)) else b for b in kept
    ]


def fitting_sizes(
    rule: Rule, numbers: Mapping[str, Any], rng: Random
) -> dict[str, int]:
    """Sizes that fit where a convolution or a number of groups asks for them; often,
    not always, as programs hold the others as well."""
    size: dict[str, int] = {}
    for side in rule.left:
        for p in nodes(side):
            if isinstance(p, PatternNode) and p.op.name.startswith("conv2d"):
                size |= _of_convolution(p, numbers, rng)
        for e in exprs(side):
            if rng.integers(2):
                size |= _multiples(e, numbers)
    return size


def _of_convolution(
    p: PatternNode, numbers: Mapping[str, Any], rng: Random
) -> dict[str, int]:
    tokens = [a.axes.tokens for a in p.args[:2] if isinstance(a, PatternVar)]
    if [len(t) for t in tokens] != [4, 4]:
        return {}
    (_, i, h, v), (o, j, kh, kw) = tokens
    groups = numbers.get(getattr(p.attrs[3], "head", ""), p.attrs[3])
    each = int(rng.integers(1, 4))
    found = {
        j: each,
        i: each * max(groups, 1),
        o: max(groups, 1) * int(rng.integers(1, 3)),
        kh: int(rng.integers(1, 4)),
        kw: int(rng.integers(1, 4)),
        h: int(rng.integers(4, 8)),
        v: int(rng.integers(4, 8)),
    }
    odd = {a: int(rng.integers(2)) for a in found if rng.integers(16) == 0}
    return {a: n for a, n in (found | odd).items() if isinstance(a, str)}


def _multiples(e: Expr, numbers: Mapping[str, Any]) -> dict[str, int]:
    """Axes that an integer parameter divides, as multiples of it."""
    if e.head != "//" or getattr(e.args[1], "head", None) not in numbers:
        return {}
    divisor = numbers[e.args[1].head]  # type: ignore[union-attr]
    names = sorted(e.names - numbers.keys())
    return {name: max(divisor, 1) * k for k, name in enumerate(names, 2)}
