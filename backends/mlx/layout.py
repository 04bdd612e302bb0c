"""Where fields of an ``mx.array`` lie, checked against live arrays before anything
relies on them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import mlx.core as mx

from ..native.layout import OBJECTS, Objects, is_as_expected

FIELDS: Objects = {
    # What nanobind makes of an array: where the array is, what may be done to it, and
    # the array, which is a pointer to its description.
    "Instance": {"held": ("i64", 16), "description": ("ptr", 24)},
    "Description": {
        "shape": ("ptr", 8),
        "shape_end": ("ptr", 16),
        "dtype": ("i32", 192),
        "tracer": ("i8", 264),
    },
}
"""Fields of MLX 0.32: LLVM type and offset (bytes)."""
LAYOUT: Objects = {**OBJECTS, **FIELDS}
HELD = 24 | 0b11110 << 32
"""``Instance.held`` of an array that starts 24 bytes behind its object, in it, and is
ready for use."""
_C = {
    "i8": ctypes.c_uint8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "ptr": ctypes.c_int64,
}
_DTYPES = (
    "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 "
    "bfloat16 complex64"
).split()
"""MLX's dtypes by their number."""


def dtype_number(dtype: Any) -> int:
    """``Description.dtype`` of arrays of that dtype."""
    return next(i for i, name in enumerate(_DTYPES) if getattr(mx, name) == dtype)


@functools.cache
def is_known() -> bool:
    """Whether arrays of this MLX lie in memory as written here, and those that a
    transformation follows are marked."""
    if not is_as_expected() or mx.array.__basicsize__ < 40:
        return False
    return all(map(_lies_as_expected, _arrays())) and _marks_tracers()


def _arrays() -> Iterator[Any]:
    """Arrays that came about in several ways, with and without axes and elements."""
    for name in _DTYPES:
        if name != "float64":  # which GPUs have not
            yield mx.zeros((2, 3), dtype=getattr(mx, name))
    x = mx.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    yield from (x, x.T, x + 1, x[0], mx.array(1.5), mx.zeros((0, 3)))
    yield from (mx.zeros((1,) * 12), *mx.split(x, 3, axis=1), *x)
    x[0] = 7.0
    yield x


def _lies_as_expected(x: Any) -> bool:
    if _at(id(x), "Instance", "held") != HELD:
        return False
    description = _at(id(x), "Instance", "description")
    start, end = (_at(description, "Description", f) for f in ("shape", "shape_end"))
    if end - start != 4 * x.ndim:
        return False
    shape = tuple((ctypes.c_int32 * x.ndim).from_address(start)) if x.ndim else ()
    number = _at(description, "Description", "dtype")
    return shape == x.shape and number == dtype_number(x.dtype) and not is_tracer(x)


def is_tracer(x: Any) -> bool:
    """The mark of an array whose layout is known: set when a transformation of MLX,
    such as ``mx.grad``, follows it; set too when one did."""
    description = _at(id(x), "Instance", "description")
    return _at(description, "Description", "tracer") != 0


def _marks_tracers() -> bool:
    """Whether every transformation marks what it follows, and nothing else."""
    x = mx.ones((2, 3))
    seen: list[bool] = []

    def look(y: Any) -> Any:
        seen.extend(map(is_tracer, (y, y * 2, mx.reshape(y, (-1,)))))
        seen.append(not is_tracer(x * 2) and not is_tracer(mx.ones(3)))
        return y * y

    transforms: tuple[Callable[[], Any], ...] = (
        lambda: mx.grad(lambda y: look(y).sum())(x),
        lambda: mx.vjp(look, [x], [x]),
        lambda: mx.jvp(look, [x], [x]),
        lambda: mx.compile(look)(x),
        lambda: mx.vmap(look)(x),
    )
    for transform in transforms:
        before = len(seen)
        with suppress(ValueError, RuntimeError):
            transform()
        if len(seen) != before + 4:
            return False
    return all(seen) and not is_tracer(x)


def _at(address: int, record: str, field: str) -> int:
    kind, offset = FIELDS[record][field]
    return int(_C[kind].from_address(address + offset).value)
