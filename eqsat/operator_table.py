"""What the tables of operators of other libraries share: the values that their
functions are given, and why a function does not serve."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.support import EqsatError
from eqsat.terms import BF16, Traced, constant
from eqsat.trace import Tracer

HALVES = (np.dtype(np.float16), np.dtype(BF16))


class UnsupportedError(EqsatError):
    """An operator, or one of its arguments, is not in a table."""


def is_array(x: Any) -> bool:
    """Whether an argument is an array, traced or not."""
    return isinstance(x, (np.ndarray, np.generic, Traced))


def cast(x: Any, dtype: Any) -> Any:
    """``x`` in ``dtype``; Python numbers stay as they are."""
    return x.astype(dtype) if is_array(x) and x.dtype != dtype else x


def widened(
    function: Callable[..., Any], takes_complex: bool = False
) -> Callable[..., Any]:
    """``function``, of halves in float32, and of real numbers unless
    ``takes_complex``."""

    def wide(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(map(wide, x))
        if not takes_complex and is_array(x) and np.dtype(x.dtype).kind == "c":
            raise TypeError("complex numbers")
        return cast(x, np.float32) if is_array(x) and x.dtype in HALVES else x

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return function(*map(wide, args), **{k: wide(v) for k, v in named.items()})

    return call


def indexable(x: Any, *beside: Any) -> Any:
    """x, traced where anything ``beside`` it is: arrays of NumPy take no traced
    index."""
    traced = next((v for v in beside if isinstance(v, Tracer)), None)
    if isinstance(x, Tracer) or traced is None:
        return x
    return Tracer(constant(traced.term.graph, np.asarray(x)), True)


def writable(x: Any, *beside: Any) -> Any:
    """A copy of x to write to, traced where anything ``beside`` it is."""
    return indexable(x, *beside).copy()


def frozen(x: Any) -> Any:
    """The values of an array as they are now, where nobody can write to them."""
    if not x.size:
        return np.empty(x.shape, x.dtype)
    return np.frombuffer(x.tobytes(), np.uint8).view(x.dtype).reshape(x.shape)


def said(error: Exception) -> str:
    """An error as a reason."""
    first = str(error).partition("\n")[0]
    return (
        first if isinstance(error, EqsatError) else f"{type(error).__name__}: {first}"
    )
