"""Programs that every backend is tested with, by what they are made of, with arguments.

A case is a function of NumPy and of ops, and the arrays that it is called with. Each
backend checks in its own way what it computes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
from natives import DTYPES, FLOATS, INTEGERS, Array, laid, mixed

from eqsat import ops
from eqsat.ops.pointwise import cast, maximum, where
from eqsat.ops.position import pad, take
from eqsat.ops.scan import accumulate, cumprod, cumsum
from eqsat.ops.transcendental import exp, tanh
from eqsat.ops.view import broadcast_to, concatenate, flip, permute, reshape, window
from eqsat.support.errors import EqsatError
from eqsat.terms.make_term import apply
from eqsat.terms.op import Op
from eqsat.terms.term import TermGraph

Case = tuple[Callable[..., Any], list[Array]]
Shape = tuple[int, ...]
BF16 = np.dtype(ml_dtypes.bfloat16)

# -- pointwise ops ---------------------------------------------------------------------

POINTWISE = sorted(
    o.name
    for o in Op.registry.values()
    if o.kind == "pointwise" and o.name not in ("cast", "where")
)
ANY_ZERO = ("maximum", "minimum", "fmax", "fmin", "sign")
"""Where NumPy's loops do not agree among themselves on the sign of zero."""
SAMPLE = ("add", "exp", "less", "floor_divide", "absolute", "logical_not", "copysign")
BROADCAST: list[tuple[Shape, Shape]] = [
    *[((), ()), ((1,), (1, 1)), ((0,), (1,)), ((2, 0, 3), (3,)), ((), (0, 2))],
    *[((5, 1), (1, 37)), ((3, 1, 5), (4, 1)), ((), (3, 37)), ((2, 3), (1, 3))],
]
"""Shapes that meet."""


@cache
def admitted(name: str) -> list[np.dtype[Any]]:
    """The dtypes that an op takes."""
    op = Op.registry[name]
    found = []
    for d in DTYPES:
        try:
            apply(op, TermGraph(), [np.ones(1, d)] * len(op.params), {})
        except EqsatError:
            continue
        found.append(d)
    return found


def arguments(
    name: str, rng: np.random.Generator, shapes: Sequence[Shape], dtype: Any
) -> list[Array]:
    """Elements of all kinds that an op takes."""
    arrays = [mixed(rng, s, dtype) for s in shapes]
    if name.endswith("shift") and dtype in INTEGERS:
        low = -3 if dtype.kind == "i" else 0
        arrays[1] = rng.integers(low, 8 * dtype.itemsize + 3, shapes[1]).astype(dtype)
    if name == "power" and dtype in INTEGERS:
        arrays[1] = rng.integers(0, 9, shapes[1]).astype(dtype)
    return arrays


def pointwise(
    name: str,
    rng: np.random.Generator,
    shapes: Sequence[Shape],
    layout: str,
    dtypes: Sequence[Any],
) -> Case:
    """An op of arrays of each dtype."""
    op = Op.registry[name]
    count = len(op.params)
    arrays = [
        laid(a, layout) for d in dtypes for a in arguments(name, rng, shapes[:count], d)
    ]
    return each_of(op, count), arrays


def each_of(op: Callable[..., Any], count: int) -> Callable[..., Any]:
    """``op`` of each ``count`` of the arguments."""

    def each(*xs: Any) -> Any:
        return tuple(op(*xs[i : i + count]) for i in range(0, len(xs), count))

    return each


def choices(c: Any, x: Any, z: Any) -> Any:
    """``where`` of arrays and of numbers."""
    return where(c, x, z), where(c, z, 1), where(x, x, z)


def castable(rng: np.random.Generator, a: Any, b: Any, n: int) -> Array:
    """Elements of ``a`` that ``b`` holds, whose cast is the same everywhere."""
    x = mixed(rng, (3, n), a)
    if a not in FLOATS or b not in INTEGERS:
        return x
    info = np.iinfo(b)
    with np.errstate(all="ignore"):
        wide = np.trunc(x.astype(np.longdouble))
        return np.where((wide >= info.min) & (wide <= info.max), x, 3).astype(a)


def casts(rng: np.random.Generator, a: Any, n: int, layout: str, to: Any) -> Case:
    """Elements of ``a`` as each dtype of ``to``."""
    arrays = [laid(castable(rng, a, b, n), layout) for b in to]
    return (
        lambda *xs: tuple(cast(x, b) for x, b in zip(xs, to, strict=True)),
        arrays,
    )


# -- reductions ------------------------------------------------------------------------

REDUCED: list[tuple[Shape, Shape]] = [
    ((3, 37), (-1,)),
    ((37, 5), (-2,)),
    ((5, 33, 7), (-2,)),
    ((5, 33, 7), (-3, -1)),
    ((5, 3, 17), (-3, -2, -1)),
    ((2, 3, 4, 5), (-4, -2)),
    ((1, 5, 1), (-3,)),
    ((70, 130), (-2,)),
    ((3, 1), (-1,)),
    ((), ()),
]
REDUCED_EMPTY: list[tuple[Shape, Shape]] = [
    ((4, 0, 3), (-2,)),
    ((4, 0, 3), (-1,)),
    ((0,), (-1,)),
]
"""Shapes and the axes that are reduced."""
EXACT_REDUCTIONS = ("max", "min", "any", "all", "argmax", "argmin")
ROUNDED_REDUCTIONS = ("sum", "prod", "mean")


def reduction(name: str, case: tuple[Shape, Shape]) -> tuple[Shape, Shape]:
    """The shape and the axes of ``case`` that a reduction takes."""
    shape, axes = case
    if name.startswith("arg") and len(axes) != 1:
        return shape or (1,), axes[:1] or (-1,)
    return shape, axes


def reduction_over(name: str, axes: Shape) -> Callable[[Any], Any]:
    """A reduction over ``axes``."""
    op = Op.registry[name]
    return lambda x: op(x, axis=axes)


def positions(axis: int | None) -> list[Callable[[Any], Any]]:
    """Where the extremes are along an axis."""
    return [lambda x: ops.argmax(x, axis), lambda x: ops.argmin(x, axis)]


def of_reductions(v: Any) -> Any:
    """Rows with reductions of reductions."""
    e = exp(v - ops.max(v, -1, keepdims=True))
    p = e / ops.sum(e, -1, keepdims=True)
    d = p - ops.mean(p, -1, keepdims=True)
    return tanh(d) * ops.sum(d * d, -1, keepdims=True) + ops.max(e, -1, keepdims=True)


def ordinary(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def positive(rng: np.random.Generator, n: int) -> Array:
    return rng.random(n) + 0.5


def huge_first(rng: np.random.Generator, n: int) -> Array:
    """One number, and many that are lost if each is added to it alone."""
    return np.concatenate([[1.0], np.full(n - 1, 2.0**-25)])


def cancelling(rng: np.random.Generator, n: int) -> Array:
    x = 10.0 ** rng.uniform(-8, 8, n)
    return rng.permutation(np.concatenate([x[: n // 2], -x[: n // 2], x[: n % 2]]))


def falling(rng: np.random.Generator, n: int) -> Array:
    return 1.0 / (1 + np.arange(n))


SUMMED = (ordinary, positive, huge_first, cancelling, falling)


def rows_of(x: Array, axis: int) -> Array:
    """``x`` along an axis of an array of shape (3, n), (n, 3) or (2, n, 3), with -x and
    x backwards beside it, or (9) alone."""
    return {
        -1: np.stack([x, -x, x[::-1]]),
        0: np.stack([x, -x, x[::-1]], axis=1),
        1: np.stack([np.stack([x, -x, x[::-1]], axis=1)] * 2),
        9: x,
    }[axis]


# -- running results and computed indices ----------------------------------------------

EXTREMES = ("maximum", "minimum", "fmax", "fmin")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def exact_running(dtype: Any) -> tuple[str, ...]:
    """The running results that rounding does not change."""
    return EXTREMES if dtype in FLOATS else (*EXTREMES, *BITS, "add", "multiply")


def running(names: Sequence[str], axis: int) -> Callable[..., Any]:
    """Running results along an axis."""
    return lambda v: tuple(accumulate(n, v, axis) for n in names)


def running_sums(shape: Shape) -> list[Callable[[Any], Any]]:
    """Running sums among other ops of an array of ``shape``."""
    return [
        lambda v: np.exp(cumsum(v * 2, -1)) + v,
        lambda v: cumsum(cumsum(v, -1), -1),
        lambda v: cumsum(cumsum(v, 0), -1),
        lambda v: cumsum(v - ops.max(v, -1, keepdims=True), -1),
        lambda v: ops.sum(cumsum(v, -1), -1),
        lambda v: cumsum(v, -1)[..., ::-1] * v,
        lambda v: (cumsum(v, -1), cumprod(v, 0), v + 1),
        lambda v: cumsum(v.reshape(-1), 0).reshape(shape) + v,
        lambda v: cumsum(np.broadcast_to(v[:1], shape), 0),
    ]


def taken(rng: np.random.Generator, x: Array, axis: int, many: Shape) -> Array:
    """Indices of all kinds into an axis."""
    n = x.shape[axis]
    kind = rng.choice(["i8", "i4", "i2", "u4", "u2"])
    low = 0 if kind[0] == "u" else -n
    return rng.integers(low, n, many).astype(kind)


TAKES: list[Callable[..., Any]] = [
    lambda w, q, s, i, j, p: take(w, i, 0) + p,
    lambda w, q, s, i, j, p: take(q, i, 0) * take(s, i, 0),
    lambda w, q, s, i, j, p: take(take(w, i, 0), j, 1),
    lambda w, q, s, i, j, p: take(w * 2, i, 0)[:3],
    lambda w, q, s, i, j, p: ops.sum(take(w, i, 0) * p, -1),
    lambda w, q, s, i, j, p: ops.sum(take(w, i, 0), (0, 1)) + ops.max(p, 0),
    lambda w, q, s, i, j, p: take(w.T, i, 1) + p.T,
    lambda w, q, s, i, j, p: cumsum(take(w, i, 0), 0),
    lambda w, q, s, i, j, p: take(w, i * 0 + 3, 0) @ p.T,
    lambda w, q, s, i, j, p: (take(w, i, 0), take(w, -1, 0), i + 1),
    lambda w, q, s, i, j, p: take(np.exp(p), take(j, j % 5, 0), 1),
]


def take_arguments(rng: np.random.Generator) -> list[Array]:
    """What :data:`TAKES` are called with."""
    return [
        rng.standard_normal((50, 24)).astype(np.float32),
        rng.integers(-128, 128, (50, 24)).astype(np.int8),
        rng.random((50, 1)).astype(np.float32),
        rng.integers(-50, 50, 9),
        rng.integers(-24, 24, 5),
        rng.standard_normal((9, 24)).astype(np.float32),
    ]


def integer_powers(a: Any, b: Any) -> Any:
    """Powers that wrap."""
    return a**b, a**0, a**1, a**7, 3**b, (a * 2) ** b[:1] + a


def power_arguments(rng: np.random.Generator, dtype: Any, n: int) -> list[Array]:
    """Bases, and exponents small and large."""
    x = mixed(rng, (3, n), dtype)
    far = rng.integers(0, np.iinfo(dtype).max, (3, n), dtype, endpoint=True)
    return [x, np.where(rng.random((3, n)) < 0.5, far, far % 9).astype(dtype)]


# -- views -----------------------------------------------------------------------------


def views(seed: int, steps: int) -> Callable[..., Any]:
    """A chain of views of an array, with joins and pads between them."""

    def f(x: Any) -> Any:
        r = Random(seed)
        for _ in range(steps):
            y = view(r, x)
            x = y if 0 < y.size < 20_000 else x
        return x

    return f


def view(r: Random, x: Any) -> Any:
    """One of all views of an array."""
    ndim = len(x.shape)
    if not ndim:
        return reshape(x, (1, 1))
    a = r.randrange(ndim)
    n, before, after = x.shape[a], x.shape[:a], x.shape[a + 1 :]
    match r.randrange(9):
        case 0:
            return permute(x, r.sample(range(-ndim, 0), ndim))
        case 1:
            return reshape(x, (*before, n * after[0], *after[1:]) if after else (-1,))
        case 2:
            d = r.choice([d for d in (1, 2, 3, 5, 7) if n % d == 0])
            return reshape(x, (*before, d, n // d, *after))
        case 3:
            start, step = r.randrange(n), r.choice([1, 1, 2, 3])
            sizes = [r.randint(1, -(-(n - start) // step)), *after]
            zeros, ones = [0] * len(after), [1] * len(after)
            return window(x, [start, *zeros], sizes, [step, *ones])
        case 4:
            return flip(x, a)
        case 5:
            return concatenate([x, flip(x, a), x], a)
        case 6:
            return broadcast_to(x, (r.randint(1, 3), *x.shape))
        case 7:
            return pad(x, [(i == a, 2 * (i == a)) for i in range(ndim)])
        case _:
            return permute(x, list(range(-1, -ndim - 1, -1)))


TRANSPOSED: list[Shape] = [(64, 48), (3, 64, 48), (33, 130), (5, 7), (1, 300)]
TRANSPOSES: list[Callable[..., Any]] = [
    lambda v: v.mT == v.mT,
    lambda v: maximum(v.mT, 1),
]


def of_nothing(e: Any, x: Any) -> Any:
    """Of (4, 0) and (4, 6): what arrays without elements give."""
    padded = pad(e, ((2, 1), (1, 0)), constant_values=-3)
    products = ops.matmul(e, e.mT) + x[:, :4], ops.matmul(e.mT, e)
    sums = ops.sum(x[:0], 1), ops.sum(x[:0], 0) + 1.0
    return e, exp(e), e.mT, *products, concatenate([e, x, e], 1), padded, *sums


RESHAPES: list[Callable[..., Any]] = [
    lambda x: tanh(reshape(x.mT + 1.0, (8, 3))),
    lambda x: reshape(exp(x)[:, 1:].mT, (10, 2)),
    lambda x: flip(reshape(flip(x, 0), (24,)), 0) * 2.0,
    lambda x: ops.sum(tanh(reshape(x.mT, (8, 3))), 0),
]
"""Of (4, 6): reshapes that no index says."""
OF_INPUTS: list[Callable[..., Any]] = [
    lambda x: (tanh(reshape(x, (24,))), reshape(x, (2, 12)), reshape(x, (2, 2, 6))),
    lambda x: (x, x.mT, x[::2], flip(reshape(x, (24,)), 0), x[0, :1], x[1, 2]),
    lambda x: (x @ x.mT, ops.sum(x.mT, 1), reshape(x, (4, 1, 6)) + x),
]
"""Of (4, 6): views of what is given."""
