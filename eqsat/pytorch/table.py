"""The table of ATen's operators: which function over NumPy computes which one.

A function takes the arguments of the operator, tensors as arrays or traced values, and
returns an array or a tuple of them. What it returns is cast to the dtype that PyTorch
gives the result, so a function has to see to values, not to dtypes of results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from eqsat.operator_table import HALVES, is_array, widened
from eqsat.terms import BF16

Handler = Callable[..., Any]

TABLE: dict[str, Handler] = {}
"""By the name of an operator, ``add``, or of an overload, ``sum.dim_IntList``."""
VIEWS: set[str] = set()
"""Names of operators whose results PyTorch gives without a copy."""
OF_MEMORY: set[str] = set()
"""Overloads that say where in memory elements lie. They are given tensors whose
elements lie there in order."""


def aten(*names: str, in_float32: bool = True) -> Callable[[Handler], Handler]:
    """Enter a function under ``names``. ``in_float32``: it takes real numbers, and of
    float16 and bfloat16 it is computed in float32, as PyTorch does inside of an
    operator."""

    def enter(function: Handler) -> Handler:
        entered = widened(function) if in_float32 else function
        TABLE.update(dict.fromkeys(names, entered))
        return function

    return enter


def entry_for(name: str) -> Handler | None:
    """The function for an overload such as ``add.Tensor``."""
    return TABLE.get(name) or TABLE.get(name.rpartition(".")[0])


def is_view(name: str) -> bool:
    """Whether PyTorch gives the result of an overload without a copy."""
    return name in VIEWS or name.rpartition(".")[0] in VIEWS


# -- dtypes ----------------------------------------------------------------------------

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(bool),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(BF16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}
"""Dtypes of tensors that eqsat takes."""


def kind_of(x: Any) -> str:
    """``b``, ``i``, ``f`` or ``c``: the category of a tensor, dtype or Python number,
    by which PyTorch promotes."""
    if not is_array(x) and not isinstance(x, np.dtype):
        return {bool: "b", int: "i", float: "f", complex: "c"}[type(x)]
    dtype = np.dtype(getattr(x, "dtype", x))
    if dtype in HALVES:
        return "f"
    return "i" if dtype.kind == "u" else str(dtype.kind)


def promoted(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of tensors of two dtypes: that of the higher category, or what holds
    both."""
    if a == b:
        return a
    low, high = sorted((a, b), key=lambda t: "bifc".index(kind_of(t)))
    if kind_of(low) != kind_of(high):
        if kind_of(high) == "c" and low == np.float64:
            return np.dtype(np.complex128)
        return high
    if kind_of(a) == "f" and {a, b} <= set(HALVES):
        return np.dtype(np.float32)
    if kind_of(a) == "f":
        return max(a, b, key=lambda t: t.itemsize)
    return np.promote_types(a, b)


def default_dtype() -> np.dtype[Any]:
    """What ``torch.set_default_dtype`` says now."""
    return DTYPES[torch.get_default_dtype()]


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The complex dtype whose parts are of a float dtype."""
    if dtype in HALVES:
        raise TypeError(f"complex numbers of {dtype}")
    return np.promote_types(dtype, np.complex64)


def _of_number(x: Any) -> np.dtype[Any]:
    """The dtype of a Python number where no tensor has a say."""
    kind = kind_of(x)
    if kind in "bi":
        return np.dtype(bool if kind == "b" else np.int64)
    return default_dtype() if kind == "f" else complex_of(default_dtype())


def result_type(*args: Any) -> np.dtype[Any]:
    """The dtype in which PyTorch computes with tensors and Python numbers: tensors with
    axes decide, those without axes and numbers only by a higher category."""
    tensors = [a for a in args if is_array(a)]
    groups: list[list[Any]] = [
        [a.dtype for a in tensors if a.ndim],
        [a.dtype for a in tensors if not a.ndim],
        [_of_number(a) for a in args if not is_array(a)],
    ]
    found: np.dtype[Any] | None = None
    for group in groups:
        if not group:
            continue
        other = functools.reduce(promoted, map(np.dtype, group))
        if found is None:
            found = other
        elif "bifc".index(kind_of(other)) > "bifc".index(kind_of(found)):
            is_float = kind_of(other) == "c" and kind_of(found) == "f"
            found = complex_of(found) if is_float else other
    assert found is not None
    return found


def axes_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """Axes that ``dim`` names: one, several, or all where it is None or empty."""
    if not ndim or dim is None or (isinstance(dim, Iterable) and not list(dim)):
        return tuple(range(ndim))
    dims = dim if isinstance(dim, Iterable) else [dim]
    return tuple(d % ndim for d in dims)


def axis_of(dim: int, ndim: int) -> int:
    """An axis, counted from the front."""
    return dim % ndim if ndim else 0
