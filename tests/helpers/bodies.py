"""Random functions over arrays, for kernels that nobody wrote.

A body decides by shapes and a seed alone, so that it does the same on arrays and on
traced values, and keeps its values small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.ops.pointwise import less, maximum, where
from eqsat.ops.position import diagonal_band, pad, take
from eqsat.ops.transcendental import erf, exp, rsqrt, sigmoid, sqrt, tanh
from eqsat.ops.view import broadcast_to, concatenate, flip, permute, reshape, window
from eqsat.terms.op import INPUT, Op
from eqsat.terms.signature import broadcast
from eqsat.terms.term import Term, TermGraph, Type
from eqsat.terms.type_rules import Custom
from eqsat.trace.tracer import Tracer

LARGEST = 4096
"""Elements of the largest array that a body makes."""


def shapes(draws: Random, most: int) -> list[tuple[int, ...]]:
    """Shapes of one to three arrays that broadcast to the first, whose axes have up to
    ``most`` elements."""
    base = [draws.randint(1, most) for _ in range(draws.randint(1, 4))]
    found = [tuple(base)]
    for _ in range(draws.randint(0, 2)):
        kept = base[draws.randint(0, len(base)) :]
        found.append(tuple(d if draws.random() < 0.7 else 1 for d in kept))
    return found


def body(seed: int, steps: int) -> Callable[..., Any]:
    """A function of any number of arrays, of ``steps`` operations and more."""

    def run(*arrays: Any) -> Any:
        rng = Random(seed)
        pool = list(arrays)
        for _ in range(steps):
            made = rng.choice(_STEPS)(rng, rng.choice(pool[-4:]), pool)
            if 0 < math.prod(made.shape) <= LARGEST:
                pool.append(made)
        last = pool[-1]
        return last + 1.0 if len(pool) == len(arrays) else last

    return run


def fused_op(name: str, run: Callable[..., Any], count: int) -> Op:
    """An op of ``count`` arrays whose body is ``run``."""

    def infer(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        graph = TermGraph(sources=False)
        leaves = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(types)]
        term: Term = run(*map(Tracer, leaves)).term
        return term.type

    return Op(
        name=name,
        kind="fused",
        doc="One kernel of a test.",
        type_rule=Custom(infer),
        reference=run,
        params=tuple("abcdef"[:count]),
        body=run,
    )


def _unary(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    return rng.choice(
        [
            tanh,
            sigmoid,
            erf,
            lambda x: exp(-abs(x)),
            lambda x: rsqrt(x * x + 0.5),
            lambda x: sqrt(abs(x)) * 2.0,
            lambda x: tanh(x**2),
            lambda x: maximum(x, 0.25),
            lambda x: -x,
        ]
    )(x)


def _binary(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    fits = [y for y in pool if broadcast(tuple(x.shape), tuple(y.shape)) is not None]
    y = rng.choice(fits)
    shape = broadcast(tuple(x.shape), tuple(y.shape))
    if math.prod(shape or ()) > LARGEST:
        return x
    return rng.choice(
        [
            lambda x, y: x + y,
            lambda x, y: tanh(x * y),
            lambda x, y: x - 0.5 * y,
            lambda x, y: where(less(x, y), x, 0.5),
            lambda x, y: where(less(x, 0.1), y, x),
        ]
    )(x, y)


def _reduction(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    ndim = len(x.shape)
    if not ndim:
        return x
    axes = tuple(sorted(rng.sample(range(-ndim, 0), rng.randint(1, min(2, ndim)))))
    reduce = rng.choice([ops.sum, ops.mean, ops.max])
    return tanh(reduce(x, axes, keepdims=rng.random() < 0.8))


def _product(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    if len(x.shape) < 2:
        return x
    fits = [
        y
        for y in pool
        if len(y.shape) >= 2
        and y.shape[-1] == x.shape[-1]
        and broadcast(tuple(x.shape[:-2]), tuple(y.shape[:-2])) is not None
    ]
    y = rng.choice([x, *fits])
    if math.prod(x.shape) * math.prod(y.shape) > LARGEST**2 // 16:
        return x
    return tanh(ops.matmul(x, y.mT) / x.shape[-1])


def _attention(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    if len(x.shape) < 2 or x.shape[-2] ** 2 * math.prod(x.shape[:-2]) > LARGEST:
        return x
    scores = ops.matmul(x, x.mT)
    if rng.random() < 0.5:
        n = x.shape[-2]
        scores = where(diagonal_band(n, n, 0, like=x), scores, -math.inf)
    return ops.matmul(ops.softmax(scores), x)


def _view(rng: Random, x: Any, pool: Sequence[Any]) -> Any:
    ndim = len(x.shape)
    if not ndim:
        return reshape(x, (1,))
    a = rng.randrange(ndim)
    n = x.shape[a]
    kind = rng.randrange(8)
    if kind == 0:
        return permute(x, rng.sample(range(-ndim, 0), ndim))
    if kind == 1:
        return reshape(x, (*x.shape[:a], math.prod(x.shape[a:])))
    if kind == 2 and n % 2 == 0:
        return reshape(x, (*x.shape[:a], 2, n // 2, *x.shape[a + 1 :]))
    if kind == 3:
        start = rng.randrange(n)
        sizes = [rng.randint(1, n - start), *x.shape[a + 1 :]]
        return window(x, [start, *(0 for _ in sizes[1:])], sizes)
    if kind == 4:
        return flip(x, a)
    if kind == 5:
        return concatenate([x, tanh(x)], a)
    if kind == 6:
        return broadcast_to(x, (rng.randint(1, 3), *x.shape))
    if kind == 7:
        return pad(x, [(i == a, 2 * (i == a)) for i in range(ndim)])
    return take(x, np.array([rng.randrange(n) for _ in range(3)]), a)


_STEPS = [
    _unary,
    _unary,
    _binary,
    _binary,
    _binary,
    _reduction,
    _product,
    _attention,
    _view,
    _view,
]
