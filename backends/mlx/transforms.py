"""Transformations of MLX over programs with generated kernels, for which MLX has no
rules: they are given a function in MLX's own ops that computes the same."""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from .array_struct import watched
from .arrays import Array, is_float

Function = Callable[..., Sequence[Array]]


def transformable(program: Function, plain: Callable[[], Function]) -> Function:
    """``program``, whose kernels MLX cannot transform, as a function that it can:
    ``mx.grad`` and its like see what ``plain()`` gives, a function in MLX's own ops
    that computes the same.

    ``mx.vmap`` and ``mx.jvp`` go through what a custom function has recorded before
    they ask for a rule of its own, and refuse a generated kernel. So inside of them
    ``plain()`` is recorded; where that cannot be told they refuse still.
    """
    plain = functools.cache(plain)
    made: Any = mx.custom_function(lambda *xs: tuple(program(*xs)))

    def several(x: Any) -> list[Array]:
        return list(x) if isinstance(x, (tuple, list)) else [x]

    @made.vjp
    def vjp(primals: Any, cotangents: Any, outputs: Any) -> Any:
        given = several(primals)
        moving = [i for i, x in enumerate(given) if is_float(x)]

        def of_floats(*xs: Array) -> list[Array]:
            known = dict(zip(moving, xs, strict=True))
            found = plain()(*(known.get(i, x) for i, x in enumerate(given)))
            return [y for y in found if is_float(y)]

        wanted = several(cotangents)
        wanted = [
            c for c, y in zip(wanted, several(outputs), strict=True) if is_float(y)
        ]
        _, found = mx.vjp(of_floats, [given[i] for i in moving], wanted)
        by = dict(zip(moving, found, strict=True))
        grads = tuple(by.get(i, mx.zeros_like(x)) for i, x in enumerate(given))
        return grads if isinstance(primals, (tuple, list)) else grads[0]

    def function(*xs: Array) -> Sequence[Array]:
        found: Sequence[Array] = (plain() if is_pushed_forward() else made)(*xs)
        return found

    return function


def is_pushed_forward() -> bool:
    """Whether this thread is inside ``mx.vmap`` or ``mx.jvp``, as far as can be told:
    whether the code of MLX that calls what they transform is running."""
    seen = watched()
    if seen is None or not seen.is_tracer():
        return False
    return not _callers().isdisjoint(_running())


@functools.cache
def _callers() -> frozenset[int]:
    """Where ``mx.vmap`` and ``mx.jvp`` call the function that they transform: what runs
    in MLX's library inside of them and inside of no other transformation. Those at work
    around this call count for nothing."""
    x, around = mx.ones((1, 1)), Counter(_running())
    found: list[Counter[int]] = []

    def look(y: Any) -> Any:
        found.append(Counter(_running()) - around)
        return y.sum()

    mx.vmap(look)(x)
    mx.jvp(look, [x], [x])
    wanted = set().union(*found)
    found.clear()
    mx.grad(look)(x)
    mx.vjp(look, [x], [mx.ones(())])
    mx.compile(look)(x)
    mx.checkpoint(look)(x)
    mx.custom_function(look)(x)
    others = set().union(*found)
    seen = watched()
    if seen is None or wanted <= others:
        return frozenset()
    mlx = _library(ctypes.cast(seen.function, ctypes.c_void_p))
    places = (ctypes.c_void_p(a) for a in wanted - others)
    return frozenset(a.value for a in places if a.value and _library(a) == mlx)


def _running() -> list[int]:
    """Where the C functions that are running in this thread go on, the latest first;
    none where the system does not tell."""
    backtrace = getattr(ctypes.pythonapi, "backtrace", None)
    if backtrace is None:
        return []
    room = 256
    while True:
        places = (ctypes.c_void_p * room)()
        count = backtrace(places, room)
        if count < room:
            return [a for a in places[:count] if a]
        room *= 4


class _Symbol(ctypes.Structure):
    """``Dl_info`` of POSIX."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("start", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library(code: ctypes.c_void_p) -> int | None:
    """Where the library starts that ``code`` is in."""
    found = _Symbol()
    known = ctypes.pythonapi.dladdr(code, ctypes.byref(found))
    return found.start if known else None
