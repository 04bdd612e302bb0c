"""NumPy's functions on traced values (NEP 18).

Arguments are bound by NumPy's own signature: those that are required are passed on by
position, the others by NumPy's names, and only when they differ from NumPy's defaults.
A handler therefore lists what it supports, and everything else is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from eqsat.complex_numbers import (
    ALWAYS,
    FOR_COMPLEX,
    REAL_ONLY,
    holds_complex,
    numpy_call,
)
from eqsat.numpy_api.at_end import AtEnd
from eqsat.numpy_api.operands import (
    axes_of,
    judged,
    name_of,
    refuse_argument,
    refuse_function,
    refuse_subclass,
    settled,
    values_in,
)
from eqsat.numpy_api.table import DIRECT, FUNCTIONS
from eqsat.numpy_api.ufuncs import supported_ufuncs
from eqsat.ops import rank
from eqsat.support import (
    BoundsError,
    DTypeError,
    MatrixError,
    ShapeError,
    at,
    caller_line,
)
from eqsat.terms import Traced

_WITHOUT_MEANING = frozenset({"copy", "device", "optimize", "subok", "like"})
"""Arguments that say nothing about values."""


_JUDGED = frozenset({"casting", "keepdims"})
"""Arguments of which NumPy takes few values, whatever the function."""
_ADDED = frozenset({np.sum, np.prod, np.mean, np.cumsum, np.cumprod, np.trace})
"""Functions that compute in the dtype of ``out``, unless they are told one."""

_AXES = ("axis", "axis1", "axis2", "axes", "source", "destination")
"""Names of arguments that are axes."""
Judge = Callable[[Any, Any], Any]


def _judges() -> dict[Callable[..., Any], Judge]:
    """Functions that need more than an array and an axis, and a call of NumPy that
    takes the same axes."""
    vecdot: Callable[..., Any] = np.linalg.vecdot
    window = np.lib.stride_tricks.sliding_window_view
    nans = (np.nanpercentile, np.nanquantile)
    sections = (np.array_split, np.split, np.diagonal, np.trace)
    crosses = (np.cross, np.linalg.cross)
    judges: list[tuple[Judge, tuple[Callable[..., Any], ...]]] = [
        (np.argsort, (np.argpartition, np.compress, np.repeat, np.take)),
        (np.sort, (np.delete, np.partition, np.take_along_axis, np.unique)),
        (np.flip, (np.gradient, np.percentile, np.quantile, *nans)),
        (lambda x, k: np.roll(x, 0, k), (np.roll, window)),
        (
            lambda x, k: np.swapaxes(x, k, k),
            (*crosses, np.rollaxis, np.swapaxes, *sections),
        ),
        (lambda x, k: np.moveaxis(x, k, k), (np.moveaxis,)),
        (lambda x, k: np.concatenate([x], k), (np.append,)),
        (lambda x, k: vecdot(x, x, axis=k), (vecdot,)),
        (
            lambda x, k: np.linalg.tensorsolve(x, np.ones(()), k),
            (np.linalg.tensorsolve,),
        ),
    ]
    return {f: judge for judge, functions in judges for f in functions}


_JUDGES = _judges()
_OF_TWO = frozenset({np.tensordot, np.linalg.tensordot, np.linspace, np.logspace})
"""Functions whose axes are of two arrays: these look at them themselves."""


def call_function(
    function: Callable[..., Any],
    types: Sequence[type],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """``function(*args, **kwargs)`` on traced values.

    Raises :class:`TraceError` for a function or an argument that cannot be recorded.
    """
    name = name_of(function)
    for value in values_in(args, kwargs):
        if isinstance(value, AtEnd):
            return value.given_to(function, args, kwargs)
    out = _out(function, args, kwargs)
    if out is not None:
        args, kwargs = _without_out(function, args, kwargs, out)
        found = call_function(function, types, args, kwargs)
        if function is np.nan_to_num:  # which gives a number of an array without axes
            found = out.assigned(found, f"{name}(x, copy=False)")
            return found if found.shape else found[()]
        return out.assigned(found, f"{name}(..., out=x)")
    args, kwargs = settled(tuple(args)), settled(dict(kwargs))
    handler = FUNCTIONS.get(function)
    if handler is None:
        refuse_function(name)
    for kind in types:
        if issubclass(kind, np.ndarray):
            refuse_subclass(kind, f"{name}: an argument")
        elif not issubclass(kind, Traced):
            return NotImplemented
    with _of_matrices(name):
        found = _called(function, handler, name, args, kwargs)
    first = next((a for a in values_in(args, kwargs) if isinstance(a, Traced)), None)
    return found if first is None else first.result_of(function, args, kwargs, found)


@contextmanager
def _of_matrices(name: str) -> Iterator[None]:
    """Shapes that do not fit are errors of ``np.linalg`` in its functions."""
    try:
        yield
    except ShapeError as error:
        if isinstance(error, LinAlgError) or not name.startswith("np.linalg."):
            raise
        if isinstance(error, BoundsError):
            raise
        raise MatrixError(str(error)) from None


def _called(
    function: Callable[..., Any],
    handler: Any,
    name: str,
    args: Any,
    kwargs: Any,
) -> Any:
    """What the ``handler`` of a function of NumPy gives."""
    if _calls_numpy(function, name, args, kwargs):
        return numpy_call(name.removeprefix("np."), args, kwargs)
    if function in DIRECT:
        given = {
            k: v
            for k, v in kwargs.items()
            if k not in _WITHOUT_MEANING and v is not None
        }
        for key in given:
            refuse_argument(name, key)
        return handler(*args)
    return _bound(function, handler, name, args, kwargs)


def _calls_numpy(
    function: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> bool:
    """Whether NumPy computes what the function is asked for, of complex numbers."""
    short = name.removeprefix("np.")
    if short not in FOR_COMPLEX | REAL_ONLY:
        return short in ALWAYS
    is_complex = any(map(holds_complex, values_in(args, kwargs)))
    if is_complex and short in REAL_ONLY:
        raise DTypeError(f"{name} takes no complex numbers{at(caller_line())}")
    return is_complex


_COMPOSED = frozenset(
    "convolve dot einsum inner linalg.matrix_power linalg.multi_dot "
    "linalg.tensordot tensordot trapezoid".split()
)
"""Functions that NumPy computes of complex numbers, and whose handlers say the same in
other functions."""


def composed(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the handler of a function that NumPy computes makes of complex numbers; None
    where it is right for real ones only."""
    if name not in _COMPOSED:
        return None
    function: Any = np
    for part in name.split("."):
        function = getattr(function, part)
    handler = FUNCTIONS[function]
    if function in DIRECT:
        return handler(*args)
    return _bound(function, handler, f"np.{name}", args, kwargs)


def call_traced(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """``function(*args, **kwargs)`` on traced values, also where NumPy does not look at
    the traced one of its arguments."""
    if function in FUNCTIONS:
        return call_function(function, (), args, kwargs)
    return function(*args, **kwargs)


def _out(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Traced | None:
    """The traced array that a function is to write its result to."""
    out = kwargs.get("out")
    if function is np.nan_to_num:
        given = _signature(function).bind_partial(*args, **kwargs).arguments
        out = None if given.get("copy", True) else given.get("x")
    elif (
        out is None and args and isinstance(args[-1], Traced) and function not in DIRECT
    ):
        given = _signature(function).bind_partial(*args).arguments
        out = given.get("out")
    return out if isinstance(out, Traced) else None


def _without_out(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments without ``out``, in the dtype of which sums are added up."""
    if function is np.nan_to_num:
        args = (*args[:1], True, *args[2:]) if len(args) > 1 else args
        return args, {k: v for k, v in kwargs.items() if k != "copy"}
    named = {k: v for k, v in kwargs.items() if k != "out"}
    if len(named) == len(kwargs):
        place = list(_signature(function).parameters).index("out")
        args = (*args[:place], None, *args[place + 1 :])
    if function in _ADDED and out.dtype.kind in "fc":
        given = _signature(function).bind_partial(*args, **named).arguments
        if given.get("dtype") is None and len(args) < 3:
            named["dtype"] = out.dtype
    return args, named


def _bound(
    function: Callable[..., Any],
    handler: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    parameters = _signature(function).parameters
    positional: list[Any] = []
    named: dict[str, Any] = {}
    given = _signature(function).bind(*args, **kwargs).arguments
    _settle_axes(function, name, given)
    for key, value in given.items():
        p = parameters[key]
        if p.kind is p.VAR_POSITIONAL:
            positional.extend(value)
        elif p.kind is p.VAR_KEYWORD:
            named.update(value)
        elif p.default is p.empty or p.kind is p.POSITIONAL_ONLY:
            positional.append(value)
        elif value is not p.default:
            if key in _JUDGED:
                judged(name, key, value)
            if key not in _WITHOUT_MEANING:
                named[key] = value
    accepted = _signature(handler).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for key in named:
        if key not in accepted and not free:
            if _same(
                named[key], parameters[key].default if key in parameters else None
            ):
                continue
            refuse_argument(name, key)
    named = {k: v for k, v in named.items() if free or k in accepted}
    return handler(*positional, **named)


def _settle_axes(
    function: Callable[..., Any], name: str, given: dict[str, Any]
) -> None:
    """Make ints of the axes among the arguments of a function, as NumPy does."""
    if function is np.diff and given.get("n") == 0:  # x itself: no axis is looked at
        return
    parameters = _signature(function).parameters
    for key in _AXES:
        if key not in parameters or function in _OF_TWO:
            continue
        default = parameters[key].default
        axis = given.get(key, default)
        x = next(v for k, v in given.items() if k != "condition")
        if (axis is None and default is None) or _is_plain(key, axis, x):
            continue
        judge = _JUDGES.get(function, partial(_judged, function, key))
        found = axes_of(name, judge, x, axis)
        if key in given:
            given[key] = found


def _is_plain(key: str, axis: Any, x: Any) -> bool:
    """Whether every function takes this axis of ``x``."""
    if type(axis) is not int or key == "axes" or isinstance(x, (list, tuple)):
        return False
    ndim = rank(x)
    return ndim is not None and -ndim <= axis < ndim


def _judged(function: Callable[..., Any], key: str, x: Any, axis: Any) -> Any:
    return function(x, **{key: axis})


def _same(value: Any, default: Any) -> bool:
    """Whether ``value`` equals a default that is a number, a string or None."""
    return isinstance(value, (bool, int, float, str)) and bool(value == default)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def supported_functions() -> list[str]:
    """Names of all functions and ufuncs of NumPy that can be traced."""
    return sorted({*map(name_of, FUNCTIONS), *supported_ufuncs()})
