"""The table of MLX's primitives: which function over NumPy computes which one.

A function takes the inputs of the primitive, arrays or traced values, then its
arguments as ``mx.export_function`` names them, and returns an array or a tuple of them.
By keyword it may ask for the ``shape`` and the ``dtype`` of its first result. What it
returns is cast to the dtype that MLX gives the result.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from eqsat.mlx.primitive_graph import ArraySpec, Primitive
from eqsat.operator_table import UnsupportedError, is_array, widened
from eqsat.support import counted

Handler = Callable[..., Any]


class PrimitiveEntry(NamedTuple):
    """The function of a primitive."""

    function: Handler
    elementwise: bool
    """Whether it may be given operands that are still to be broadcast, and give such a
    result."""
    asked: frozenset[str]
    """What it asks for by keyword."""


TABLE: dict[str, PrimitiveEntry] = {}


def primitive(
    *names: str, elementwise: bool = False, in_float32: bool = False
) -> Callable[[Handler], Handler]:
    """Enter a function under ``names``. ``in_float32``: of float16 and bfloat16 it is
    computed in float32."""

    def enter(function: Handler) -> Handler:
        kinds = inspect.signature(function).parameters.values()
        asked = frozenset(p.name for p in kinds if p.kind is p.KEYWORD_ONLY)
        entered = widened(function, takes_complex=True) if in_float32 else function
        TABLE.update(dict.fromkeys(names, PrimitiveEntry(entered, elementwise, asked)))
        return function

    return enter


def enter_all(table: Mapping[str, Handler], in_float32: bool = False) -> None:
    """Enter each function of ``table``, which computes element by element."""
    for name, function in table.items():
        entered = widened(function, takes_complex=True) if in_float32 else function
        TABLE[name] = PrimitiveEntry(entered, True, frozenset())


def whole(x: Any, shape: tuple[int, ...]) -> Any:
    """A value that is still to be broadcast, in its shape."""
    return x if x.shape == shape else np.broadcast_to(x, shape)


def computed(node: Primitive, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The results of a primitive, which may be smaller than their shapes and broadcast
    to them.

    Raises what the functions of the table raise, and :class:`UnsupportedError` where a
    result has another shape than MLX's.
    """
    entry = TABLE.get(node.op)
    if entry is None:
        raise UnsupportedError("the table has no such primitive")
    given = [values[i.name] for i in node.inputs]
    if not entry.elementwise:
        given = [whole(x, i.shape) for x, i in zip(given, node.inputs, strict=True)]
    first = node.outputs[0]
    known = {"shape": first.shape, "dtype": first.dtype}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = entry.function(
            *given, *node.arguments, **{k: known[k] for k in entry.asked}
        )
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(node.outputs):
        raise UnsupportedError(f"{counted(len(node.outputs), 'result')}")
    return tuple(
        _fitted(x, like, entry.elementwise)
        for x, like in zip(results, node.outputs, strict=True)
    )


def _fitted(x: Any, like: ArraySpec, elementwise: bool) -> Any:
    """What a function gave, in the dtype of MLX's result."""
    if not is_array(x):
        raise UnsupportedError(f"a result that is {type(x).__name__}")
    shape = tuple(x.shape)
    fits = shape == like.shape or (elementwise and _broadcasts(shape, like.shape))
    if not fits:
        raise UnsupportedError(f"a result of shape {shape}, expected {like.shape}")
    if np.dtype(x.dtype).kind == "c" and like.dtype.kind != "c":
        raise UnsupportedError("a complex result where MLX has a real one")
    return x if x.dtype == like.dtype else x.astype(like.dtype)


def _broadcasts(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    if len(shape) > len(other):
        return False
    ends = other[len(other) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, ends, strict=True))
