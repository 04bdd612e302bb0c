"""Functions of NumPy called as they are, whose types NumPy says itself."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np

from eqsat.complex_numbers.complex_op import FUNCTIONS, Function, of_complex
from eqsat.support import (
    BoundsError,
    DTypeError,
    EqsatError,
    ShapeError,
    TraceError,
    at,
    caller_line,
)
from eqsat.terms import Shape, Traced, Type, is_complex

ALWAYS = frozenset(
    f"fft.{name}"
    for name in "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn "
    "rfftn irfftn".split()
)
"""Functions that are of complex numbers whatever they are given."""
FOR_COMPLEX = frozenset(
    "angle around convolve corrcoef correlate cov dot einsum inner insert "
    "interp linalg.matrix_norm linalg.matrix_power linalg.norm linalg.tensordot "
    "linalg.vecdot linalg.vector_norm nan_to_num nancumprod nancumsum nanmean nanprod "
    "nanstd nansum nanvar round sinc std tensordot trapezoid var vdot vecdot vecmat "
    "matvec linalg.cond linalg.pinv linalg.multi_dot median".split()
)
"""Functions that are called as they are where an argument is complex: their formulas
for real numbers are others, or add up in another order."""
REAL_ONLY = frozenset(
    "bincount digitize histogram histogram2d histogramdd histogram_bin_edges isneginf "
    "isposinf nanpercentile nanquantile percentile quantile".split()
)
"""Functions that NumPy refuses complex numbers, or compares their real parts in."""
_SIZES = frozenset({"axis", "axes", "n", "s"})
"""Arguments that are integers, also where they come in an array."""
_NO_VALUES = frozenset({"out", "optimize", "subok", "like"})


def holds_complex(x: Any) -> bool:
    """Whether ``x`` is a complex number, or an array of them."""
    if isinstance(x, (Traced, np.ndarray, np.generic)):
        dtype = getattr(x, "dtype", None)
        return isinstance(dtype, np.dtype) and is_complex(dtype)
    return isinstance(x, complex)


def numpy_call(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What NumPy's ``function`` gives. Raises NumPy's errors as those of tracing, and
    :class:`TraceError` for an argument that is neither an array nor plain data."""
    arrays: list[Any] = []
    with _named(function):
        named = {
            k: _integers(v) if k in _SIZES else v
            for k, v in kwargs.items()
            if k not in _NO_VALUES
        }
        if function in ALWAYS:
            args = (*args[:1], *map(_integers, args[1:]))
    settings = {
        "args": [_noted(function, a, arrays) for a in args],
        "kwargs": {k: _noted(function, a, arrays) for k, a in named.items()},
    }
    return of_complex(*arrays, function=f"np.{function}", settings=repr(settings))


def _integers(value: Any) -> Any:
    """Integers that come in an array or a range."""
    if isinstance(value, (np.ndarray, np.generic)) and not value.ndim:
        return operator.index(cast(Any, value))
    several = isinstance(value, (np.ndarray, range))
    return [operator.index(v) for v in value] if several else value


def _noted(who: str, value: Any, arrays: list[Any]) -> Any:
    """``value`` as it stands in settings; arrays are put with the others."""
    if isinstance(value, (Traced, np.ndarray, np.inexact)):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, (list, tuple)):
        return type(value)([_noted(who, v, arrays) for v in value])
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and value is not None):
        return np.dtype(value).name
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    if value is np._NoValue:
        return {"number": "none"}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if hasattr(value, "__index__"):
        return operator.index(value)
    raise TraceError(
        f"np.{who}: an argument is {type(value).__name__!r}, expected an array, a "
        f"number or a text{at(caller_line())}"
    )


def _given(noted: Any, arrays: Sequence[Any]) -> Any:
    """What :func:`_noted` noted."""
    if isinstance(noted, dict):
        if "array" in noted:
            return arrays[noted["array"]]
        text = noted["number"]
        return np._NoValue if text == "none" else float(text)
    if isinstance(noted, (list, tuple)):
        return type(noted)([_given(v, arrays) for v in noted])
    return noted


def arguments_of(
    arrays: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by name, of settings."""
    given = {k: _given(v, arrays) for k, v in kwargs.items()}
    return [_given(v, arrays) for v in args], given


def _run(function: str, *arrays: Any, args: Any, kwargs: Any) -> Any:
    found: Any = np
    for part in function.split("."):
        found = getattr(found, part)
    positional, named = arguments_of(arrays, args, kwargs)
    return found(*positional, **named)


MOST = 1 << 27
"""Elements of the arrays that NumPy is asked with for the type of a result."""


def _probed(function: str, *types: Type, args: Any, kwargs: Any) -> Type:
    """The type that NumPy gives of simple arrays."""
    if sum(math.prod(shape) for _, shape in types) > MOST:
        raise ShapeError(
            f"np.{function} of complex numbers takes up to {MOST} elements here"
            f"{at(caller_line())}"
        )
    given = [_simple(*t) for t in types]
    with _named(function):
        found = _run(function, *given, args=args, kwargs=kwargs)
    if isinstance(found, (tuple, list)):
        raise TraceError(
            f"np.{function} gives several arrays here, which cannot be traced for "
            f"complex numbers{at(caller_line())}"
        )
    made = np.asarray(found)
    return made.dtype, made.shape


@contextmanager
def _named(function: str) -> Iterator[None]:
    """NumPy's errors become those of tracing, and it warns of nothing."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, EqsatError):
            raise
        kinds = {TypeError: DTypeError, IndexError: BoundsError}
        kind = next((k for e, k in kinds.items() if isinstance(error, e)), ShapeError)
        raise kind(f"np.{function}: {error}{at(caller_line())}") from None


def _simple(dtype: Any, shape: Shape) -> Any:
    """0, but for square matrices, which are identities and so have an inverse."""
    made = np.zeros(shape, dtype)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        made[...] = np.eye(shape[-1])
    return made


def _transformed(function: str, x: Type, *, args: Any, kwargs: Any) -> Type:
    """The type of a Fourier transform: NumPy is asked with axes of up to 2 elements."""
    positional, named = arguments_of([None], args, kwargs)
    several = function[-1] in "2n"
    names = ("a", "s", "axes", "norm") if several else ("a", "n", "axis", "norm")
    given = dict(zip(names, positional, strict=False)) | named
    sizes, key = given.get(names[1]), names[1]
    small = {k: v for k, v in given.items() if k not in ("a", key)}
    if sizes is not None:
        with _named(function):
            short = [min(n, 2) for n in sizes] if several else min(sizes, 2)
            small[key] = short
    dtype, shape = x
    least = tuple(min(n, 2) for n in shape)
    first = {"array": 0}
    found, _ = _probed(function, (dtype, least), args=[first], kwargs=small)
    with _named(function):
        return found, _transformed_shape(function, shape, given, several)


def _transformed_shape(
    function: str, shape: Shape, given: Mapping[str, Any], several: bool
) -> Shape:
    axes, sizes = given.get("axis", -1), given.get("n")
    axes, sizes = [axes], None if sizes is None else [sizes]
    if several:
        default = (-2, -1) if function[-1] == "2" else None
        sizes, axes = given.get("s"), given.get("axes", default)
        if axes is None:
            axes = range(-(len(shape) if sizes is None else len(sizes)), 0)
    axes = list(axes)
    asked = list(sizes or [None] * len(axes))
    known = [
        shape[a] if n in (None, -1) else n for a, n in zip(axes, asked, strict=True)
    ]
    kind = function.removeprefix("fft.").rstrip("2n")
    if axes and kind in ("irfft", "hfft") and asked[-1] in (None, -1):
        known[-1] = 2 * (shape[axes[-1]] - 1)
    if axes and kind in ("rfft", "ihfft"):
        known[-1] = known[-1] // 2 + 1
    lengths = list(shape)
    order = range(len(axes)) if kind == "irfft" else reversed(range(len(axes)))
    for i in order:
        lengths[axes[i]] = known[i]
    return tuple(lengths)


def _shrunk(function: str, *types: Type, args: Any, kwargs: Any) -> Type:
    """The type of a function whose result has sizes of its arguments: NumPy is asked
    with small ones, different where they differ."""
    if function in ("corrcoef", "cov") and len(types) > 1:  # rows are added
        return _probed(function, *types, args=args, kwargs=kwargs)
    many = sorted({n for _, shape in types for n in shape if n > 1})
    small = {n: 2 + i for i, n in enumerate(many)} | {0: 0, 1: 1}
    less = [(dtype, tuple(small[n] for n in shape)) for dtype, shape in types]
    dtype, shape = _probed(function, *less, args=args, kwargs=kwargs)
    whole = {s: n for n, s in small.items()}
    return dtype, tuple(whole[n] for n in shape)


def _slid(function: str, *types: Type, args: Any, kwargs: Any) -> Type:
    """The type of a convolution of two vectors, or lists."""
    short = [(d, tuple(min(n, 2) for n in shape)) for d, shape in types]
    dtype, _ = _probed(function, *short, args=args, kwargs=kwargs)
    flat = [np.broadcast_to(0, shape) for _, shape in types]
    positional, named = arguments_of(flat, args, kwargs)
    given = dict(zip(("a", "v", "mode"), positional, strict=False)) | named
    n, m = np.size(given["a"]), np.size(given["v"])
    mode = given.get("mode", "full" if function == "convolve" else "valid")
    length = {"f": n + m - 1, "s": max(n, m), "v": abs(n - m) + 1}[mode[0]]
    return dtype, (length,)


_BY_FORMULA: dict[str, Callable[..., Type]] = {
    **dict.fromkeys(FOR_COMPLEX, _shrunk),
    **dict.fromkeys(("insert", "nancumprod", "nancumsum"), _probed),
    **dict.fromkeys(("convolve", "correlate"), _slid),
    **dict.fromkeys(ALWAYS, _transformed),
}
FUNCTIONS |= {
    f"np.{name}": Function(partial(_run, name), partial(type_, name))
    for name, type_ in _BY_FORMULA.items()
}
