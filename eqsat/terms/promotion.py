"""How dtypes meet: NumPy's promotion, for arrays, terms and bare numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.support import DTypeError, RangeError, TraceError, at, caller_line
from eqsat.terms.op import HALF, SCALAR
from eqsat.terms.term import DType, Term, Weak
from eqsat.terms.type_rules import BF16, dtype_code, is_complex, is_float


def dtype_of(who: str, i: int, value: Any) -> DType:
    """The dtype of an argument. Raises :class:`TraceError` for what is no array or
    number."""
    if isinstance(value, Term):
        return value.dtype
    if isinstance(value, (bool, np.ndarray, np.generic)):
        dtype = np.asarray(value).dtype
        dtype_code(dtype)
        return dtype
    if isinstance(value, (int, float)):
        return Weak.FLOAT if isinstance(value, float) else Weak.INT
    if isinstance(value, complex):
        return Weak.COMPLEX
    raise TraceError(
        f"{who}: argument {i} is {type(value).__name__!r}, expected an array or a "
        f"number"
        f"{at(caller_line())}"
    )


def check_range(who: str, value: Any, dtype: np.dtype[Any] | None) -> None:
    """Raise :class:`RangeError` for a bare integer that ``dtype`` cannot hold, as NumPy
    does."""
    if isinstance(value, Term) and value.op is SCALAR:
        value = value.attrs[0]
    if type(value) is int and dtype is not None and dtype.kind in "iu":
        held = np.iinfo(dtype)
        if not held.min <= value <= held.max:
            raise RangeError(
                f"{who}: {value} is out of bounds for {dtype}{at(caller_line())}"
            )


def beyond(value: Any, known: Sequence[DType]) -> Any:
    """A bare integer that is compared with integers none of which reaches it, as ±∞;
    any other ``value`` as it is."""
    if type(value) is not int:
        return value
    for dtype in known:
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            held = np.iinfo(dtype)
            if not held.min <= value <= held.max:
                return math.copysign(math.inf, value)
    return value


def in_half(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """A bare number in the half precision in which it is compared: for float16, 2049 is
    2048, and 70000 is infinite. Any other ``value`` as it is, and so are floats beside
    bfloat16, which NumPy compares in float32."""
    known = isinstance(value, Term) and value.op is SCALAR
    number = value.attrs[0] if known else value
    if type(number) not in (int, float) or dtype not in HALF:
        return value
    if type(number) is float and dtype == BF16:
        return value
    with np.errstate(over="ignore"):
        return float(np.asarray(float(number)).astype(dtype))


def ufunc_dtypes(
    who: str, ufunc: np.ufunc, known: Sequence[DType]
) -> Sequence[np.dtype[Any]]:
    """The dtypes of the loop that ``ufunc`` takes for arguments of dtypes ``known``."""
    asked = tuple(weak_type(d, known) if isinstance(d, Weak) else d for d in known)
    try:
        return ufunc.resolve_dtypes((*asked, None))[: len(known)]
    except TypeError as error:
        raise DTypeError(
            f"{who}: no loop for dtypes "
            f"({', '.join(map(str, known))}){at(caller_line())}"
        ) from error


def weak_type(weak: Weak, met: Sequence[DType]) -> type:
    """What NumPy is asked about a bare number: a float would widen bfloat16, unlike
    every dtype of NumPy's own, so there it stands as an int."""
    return int if BF16 in met else weak.value


def common_dtype(who: str, promotion: str, known: Sequence[DType]) -> np.dtype[Any]:
    """The one dtype in which arguments of dtypes ``known`` meet."""
    parts = [weak_type(d, known)(1) if isinstance(d, Weak) else d for d in known]
    try:
        dtype = np.result_type(*parts)
    except TypeError as error:
        raise DTypeError(f"{who}: {error}{at(caller_line())}") from error
    fractions = is_float(dtype) or is_complex(dtype)
    return np.dtype("f8") if promotion == "float" and not fractions else dtype
