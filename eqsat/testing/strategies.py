"""The Hypothesis strategies: arrays that fit a signature, and programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eqsat.checking import INSIDE, Pick, fitting_shapes, one_of, values
from eqsat.support import Array, OptionError, counted
from eqsat.terms import parse
from eqsat.testing.drawn import DrawnProgram
from eqsat.testing.fuzzing import DTYPES, KINDS, MOST_OPS, Wanted, as_dtype, kinds_of

ELEMENTS = ("integers", *(k for k in INSIDE if k != "integers"))
"""The kinds of values in the working range, the simplest first."""


@st.composite
def arrays(
    draw: st.DrawFn,
    signature: str,
    dtype: Any = "float32",
    elements: str | Sequence[str] = ELEMENTS,
) -> tuple[Array, ...]:
    """Tuples of arrays whose axes fit ``signature``, such as ``"m k, k n, n"``.

    Named axes have sizes from 2 to 8, pairwise distinct, now and then 0 or 1; the axes
    of ``...`` broadcast together. ``dtype`` is one for all arrays or a sequence of one
    for each. ``elements`` names a kind of values or several to draw from:
    ``uniform`` in ±2, ``integers`` in ±3, ``large`` (up to the working range of the
    dtype, 1e4 or 1e2), ``repeated``, ``zeros`` of both signs, ``tiny``, ``denormal``;
    and, unless asked for not drawn, ``special`` (with NaN and ±∞) and ``huge``. Integer
    arrays span their dtype, and bools are of either value.

    Raises :class:`ShapeError` for a wrong signature, :class:`DTypeError` for a dtype
    that eqsat does not have, and :class:`OptionError` for an unknown kind of values.
    """
    axes = parse(signature).inputs
    kinds = kinds_of(elements)
    many = isinstance(dtype, (list, tuple))
    dtypes = [*map(as_dtype, dtype)] if many else [as_dtype(dtype)] * len(axes)
    if len(dtypes) != len(axes):
        raise OptionError(
            f"arrays: {counted(len(dtypes), 'dtype')} for the "
            f"{counted(len(axes), 'array')} of {signature!r}"
        )
    pick = picker(draw)
    shapes = fitting_shapes(axes, pick)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return tuple(
        values(one_of(pick, kinds), rng, shape, d)
        for shape, d in zip(shapes, dtypes, strict=True)
    )


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    max_ops: int = MOST_OPS,
    ops: Collection[str] | None = None,
    dtypes: Sequence[Any] = DTYPES,
    elements: str | Sequence[str] = KINDS,
) -> DrawnProgram:
    """Random well-typed programs over the whole catalogue, with arguments.

    Up to ``max_ops`` steps are drawn: ops of all kinds, and whole sides of stock rules,
    so that the rules have something to do. Values are shared, arguments are variables
    or constants, and there may be several results. ``ops`` names the ops that may be
    used, all by default; ``dtypes`` are those of the arguments; ``elements`` as for
    :func:`arrays`. Unless kinds outside the working range are among them, every value
    that the program goes on with is finite and not decided by rounding, so that
    :func:`agreement` can judge it.

    Raises :class:`OptionError` for names of ops and kinds that do not exist.
    """
    wanted = Wanted.of(max_ops, ops, dtypes, elements)

    def repeat(step: Callable[[], None]) -> None:
        draw(st.lists(st.builds(step), min_size=1, max_size=max_ops))

    return wanted.build(picker(draw), repeat)


def picker(draw: st.DrawFn) -> Pick:
    """Choices that Hypothesis makes and shrinks."""

    def pick(n: int) -> int:
        return draw(st.integers(0, n - 1)) if n > 1 else 0

    return pick
