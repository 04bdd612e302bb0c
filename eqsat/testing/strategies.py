"""The Hypothesis strategies: arrays of a signature, and programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eqsat.samples import INSIDE, Pick, one_of
from eqsat.testing.builder import Builder
from eqsat.testing.drawn import DrawnProgram
from eqsat.testing.steps import STEPS
from eqsat.testing.templates import template
from eqsat.typerule import BF16

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int32",
    "int64",
    "int8",
    "uint8",
)
"""Dtypes of the arguments of drawn programs."""
KINDS = ("integers", "uniform", "uniform", "uniform", "repeated", "zeros", "tiny")
"""Kinds of values of the arguments of drawn programs."""
MOST_OPS = 12


def picker(draw: st.DrawFn) -> Pick:
    """Choices that Hypothesis makes and shrinks."""

    def pick(n: int) -> int:
        return draw(st.integers(0, n - 1)) if n > 1 else 0

    return pick


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    max_ops: int = MOST_OPS,
    ops: Collection[str] | None = None,
    dtypes: Sequence[Any] = DTYPES,
    elements: str | Sequence[str] = KINDS,
) -> DrawnProgram:
    """Random well-typed programs."""
    pick = picker(draw)
    known = tuple(BF16 if d == "bfloat16" else np.dtype(d) for d in dtypes)
    kinds = (elements,) if isinstance(elements, str) else tuple(elements)
    wild = not set(kinds) <= set(INSIDE)
    b = Builder(pick, one_of(pick, known), kinds, ops, wild)
    rank = one_of(pick, (2, 1, 3, 2, 0, 4))
    b.leaf(tuple(one_of(pick, b.sizes) for _ in range(rank)))
    steps = (*STEPS, *(template,) * len(STEPS))

    def step() -> None:
        one_of(pick, steps)(b)

    draw(st.lists(st.builds(step), min_size=1, max_size=max_ops))
    return b.program()
