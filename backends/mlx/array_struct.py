"""What native code has to know of MLX: where fields of an ``mx.array`` lie, and how to
tell that a transformation is going on. Both are tried before anything relies on them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..native.machine import OBJECTS, Objects, is_as_expected

FIELDS: Objects = {
    # What nanobind makes of an array: where the array is, what may be done to it, and
    # the array, which is a pointer to its description.
    "Instance": {"held": ("i64", 16), "description": ("ptr", 24)},
    "Description": {
        "shape": ("ptr", 8),
        "shape_end": ("ptr", 16),
        "dtype": ("i32", 192),
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
    """Whether arrays of this MLX lie in memory as written here, and transformations can
    be noticed."""
    if not is_as_expected() or mx.array.__basicsize__ < 40:
        return False
    return all(map(_lies_as_expected, _arrays())) and watched() is not None


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
    return shape == x.shape and number == dtype_number(x.dtype)


IS_TRACER = "_ZNK3mlx4core5array9is_tracerEv"
"""``bool array::is_tracer() const``: whether an array is marked as followed by a
transformation, and one is going on in this thread."""


@dataclass(frozen=True)
class Watched:
    """An array that no transformation follows, but is marked so: it is a tracer
    whenever one is going on. The arrays that one follows cannot be asked: another one
    inside of it takes their marks away."""

    array: Any
    function: Any
    """:data:`IS_TRACER`."""

    @property
    def place(self) -> int:
        """The address of what the function takes."""
        return id(self.array) + FIELDS["Instance"]["description"][1]

    def is_tracer(self) -> bool:
        """Whether this thread is inside ``mx.grad``, ``mx.compile`` or their like."""
        return bool(self.function(self.place))


@functools.cache
def watched() -> Watched | None:
    """Such an array, None where there is no way to tell."""
    function = getattr(ctypes.CDLL(mx.__file__), IS_TRACER, None)
    if function is None:
        return None
    function.restype, function.argtypes = ctypes.c_bool, (ctypes.c_void_p,)
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x * 2)  # not reached from the result, so the mark stays
        return x.sum()

    mx.grad(keep)(mx.ones(1))
    found = Watched(kept[0], function)
    return found if _tells(found) else None


def _tells(watched: Watched) -> bool:
    """Whether every transformation is noticed, and that it ends. This may be called
    inside of one, where the end of another is not seen."""
    x, inside = mx.ones((2, 3)), watched.is_tracer()
    seen: list[bool] = []

    def look(y: Any) -> Any:
        seen.append(watched.is_tracer())
        return y * y

    def outer(y: Any) -> Any:
        mx.grad(lambda z: look(y * z).sum())(x)
        return look(y).sum()

    transforms: tuple[tuple[int, Callable[[], Any]], ...] = (
        (1, lambda: mx.grad(lambda y: look(y).sum())(x)),
        (1, lambda: mx.vjp(look, [x], [x])),
        (1, lambda: mx.jvp(look, [x], [x])),
        (1, lambda: mx.compile(look)(x)),
        (1, lambda: mx.vmap(look)(x)),
        (2, lambda: mx.grad(outer)(x)),
    )
    for count, transform in transforms:
        before = len(seen)
        transform()
        if len(seen) != before + count or watched.is_tracer() != inside:
            return False
    return all(seen)


def _at(address: int, record: str, field: str) -> int:
    kind, offset = FIELDS[record][field]
    return int(_C[kind].from_address(address + offset).value)
