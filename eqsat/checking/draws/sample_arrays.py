"""Shapes that fit an axis signature, and arrays of several kinds of values: what the
check of rules and :mod:`eqsat.testing` draw from.

Shapes: named axes of pairwise distinct sizes, some of size 0 or 1; the axes of ``...``
broadcast. Choices go through a function ``pick``, so that a random generator and
Hypothesis can both make them; the first option of every choice is the simplest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from eqsat.checking.bounds import PRECISION
from eqsat.support import Array
from eqsat.terms import BF16, BOOL, Axes

Pick = Callable[[int], int]
"""A number of ``range(n)``; 0 stands for the simplest option."""
Shape = tuple[int, ...]
T = TypeVar("T")

FLOATS: tuple[np.dtype[Any], ...] = (
    np.dtype("f8"),
    np.dtype("f4"),
    np.dtype("f2"),
    BF16,
)
LIMIT = {d: 1e2 if d == np.dtype("f2") else 1e4 for d in FLOATS}
"""The working range |x| ≤ limit of each floating dtype."""
GRID = (2, 3, 4, 5, 6, 7, 8)
"""Sizes of named axes, pairwise distinct."""
UNUSUAL = (None, None, None, 1, 1, 0)
"""Sizes that some axes get instead, None for no such axis."""
SELDOM_UNUSUAL = (*(None,) * 12, 1, 1, 1, 0)


def one_of(pick: Pick, options: Sequence[T]) -> T:
    """One of ``options``, the first of which is the simplest."""
    return options[pick(len(options))]


def shuffled(pick: Pick, options: Sequence[T]) -> list[T]:
    """``options`` in some order, their own being the simplest."""
    rest = list(options)
    return [rest.pop(pick(len(rest))) for _ in range(len(rest))]


# -- shapes ----------------------------------------------------------------------------


def fitting_shapes(
    arguments: Sequence[Axes],
    pick: Pick,
    fixed: Mapping[str, int] | None = None,
    *,
    batch: Sequence[int] | None = None,
    whole: bool = False,
    unusual: Sequence[int | None] = UNUSUAL,
) -> list[Shape]:
    """Shapes that fit the axes of some arguments.

    The axes ``fixed`` have their size. ``batch`` are the sizes that all axes of ``...``
    broadcast to; with ``whole`` every ``...`` has just these. One or two axes may have
    one of the sizes ``unusual``.
    """
    tokens = [a for axes in arguments for a in axes.tokens]
    names = [a for a in dict.fromkeys(tokens) if isinstance(a, str) and a != "..."]
    grid = GRID if len(names) <= len(GRID) else range(2, len(names) + 2)
    size = dict(zip(names, shuffled(pick, grid), strict=False))
    if batch is None:
        rank = one_of(pick, (0, 1, 2, 2, 3))
        batch = shuffled(pick, (2, 3, 5, 1))[:rank]
    batch = list(batch)
    odd = one_of(pick, unusual)
    if odd is not None and names:
        size[one_of(pick, names)] = odd
        size[one_of(pick, names)] = odd
    elif odd == 0 and batch and not fixed:
        batch[0] = 0
    size |= fixed or {}
    shapes = []
    for axes in arguments:
        shape: list[int] = []
        for a in axes.tokens:
            if a != "...":
                shape.append(a if isinstance(a, int) else size[a])
            else:
                shape += batch if whole else broadcastable(batch, pick)
        shapes.append(tuple(shape))
    return shapes


def broadcastable(batch: Sequence[int], pick: Pick) -> list[int]:
    """Axes that broadcast to ``batch``: all of them, or fewer, or some of size 1."""
    if not pick(2):
        return list(batch)
    kept = batch[pick(len(batch) + 1) :]
    return [1 if pick(2) else b for b in kept]


# -- values ----------------------------------------------------------------------------


def _uniform(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.asarray(rng.uniform(-2, 2, shape))


def _large(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * LIMIT[dtype] * rng.choice([1.0, 0.1]))


def _tiny(rng: Any, shape: Shape, dtype: Any) -> Array:
    least = 1e-3 if dtype == np.dtype("f2") else 1e-20
    return np.asarray(rng.uniform(-least, least, shape))


def _denormal(rng: Any, shape: Shape, dtype: Any) -> Array:
    least = max(float(2 * PRECISION[dtype].tiny), 5e-324)
    return np.asarray(rng.integers(-9, 9, shape) * least)


def _zeros(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.asarray(rng.choice([0.0, -0.0], shape))


def _repeated(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.full(shape, rng.uniform(-2, 2) * rng.choice([1.0, 10.0]))


def _small_integers(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.asarray(rng.integers(-3, 4, shape) * 1.0)


def _special(rng: Any, shape: Shape, dtype: Any) -> Array:
    rare = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape)
    common = rng.uniform(-2, 2, shape)
    return np.asarray(np.where(rng.uniform(0, 1, shape) < 0.5, rare, common))


def _huge(rng: Any, shape: Shape, dtype: Any) -> Array:
    return np.asarray(rng.uniform(-1, 1, shape) * float(PRECISION[dtype].largest))


VALUES: dict[str, Callable[[Any, Shape, Any], Array]] = {
    "uniform": _uniform,
    "integers": _small_integers,
    "large": _large,
    "repeated": _repeated,
    "zeros": _zeros,
    "tiny": _tiny,
    "denormal": _denormal,
    "special": _special,
    "huge": _huge,
}
"""Kinds of values, those outside the working range last."""
INSIDE = tuple(VALUES)[:-2]
"""Kinds of values in the working range."""
PLAIN = ("uniform", "uniform", "large", "integers")


def bools(rng: Any, shape: Sequence[int]) -> Array:
    """Bools, as often true as false."""
    return np.asarray(rng.uniform(-1, 1, shape) > 0)


def values(kind: str, rng: Any, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """An array of ``dtype``: floats of a kind, any integers, or bools."""
    if dtype == BOOL:
        return bools(rng, shape)
    if dtype not in PRECISION:
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, True))
    with np.errstate(all="ignore"):
        return VALUES[kind](rng, shape, dtype).astype(dtype)
