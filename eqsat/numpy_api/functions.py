"""NumPy's functions on traced values (NEP 18).

Arguments are bound by NumPy's own signature: those that are required are passed on by
position, the others by NumPy's names, and only when they differ from NumPy's defaults.
A handler therefore lists what it supports, and everything else is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from eqsat.numpy_api.at_end import AtEnd
from eqsat.numpy_api.operands import (
    name_of,
    refuse_argument,
    refuse_function,
    refuse_subclass,
    settled,
    values_in,
)
from eqsat.numpy_api.table import DIRECT, FUNCTIONS
from eqsat.numpy_api.ufuncs import supported_ufuncs
from eqsat.terms import Traced

_WITHOUT_MEANING = frozenset({"copy", "device", "optimize", "subok", "like"})
"""Arguments that say nothing about values."""


_ADDED = frozenset({np.sum, np.prod, np.mean, np.cumsum, np.cumprod, np.trace})
"""Functions that compute in the dtype of ``out``, unless they are told one."""


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
    if function in DIRECT:
        given = {
            k: v
            for k, v in kwargs.items()
            if k not in _WITHOUT_MEANING and v is not None
        }
        for key in given:
            refuse_argument(name, key)
        found = handler(*args)
    else:
        found = _bound(function, handler, name, args, kwargs)
    first = next((a for a in values_in(args, kwargs) if isinstance(a, Traced)), None)
    return found if first is None else first.result_of(function, args, kwargs, found)


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
    if function is np.nan_to_num and kwargs.get("copy", True) is False:
        out = args[0] if args else None
    if out is None and args and isinstance(args[-1], Traced) and function not in DIRECT:
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
        return args, {k: v for k, v in kwargs.items() if k != "copy"}
    named = {k: v for k, v in kwargs.items() if k != "out"}
    if len(named) == len(kwargs):
        place = list(_signature(function).parameters).index("out")
        args = (*args[:place], None, *args[place + 1 :])
    if function in _ADDED and out.dtype.kind == "f":
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
    for key, value in _signature(function).bind(*args, **kwargs).arguments.items():
        p = parameters[key]
        if p.kind is p.VAR_POSITIONAL:
            positional.extend(value)
        elif p.kind is p.VAR_KEYWORD:
            named.update(value)
        elif p.default is p.empty or p.kind is p.POSITIONAL_ONLY:
            positional.append(value)
        elif value is not p.default and key not in _WITHOUT_MEANING:
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


def _same(value: Any, default: Any) -> bool:
    """Whether ``value`` equals a default that is a number, a string or None."""
    return isinstance(value, (bool, int, float, str)) and bool(value == default)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def supported_functions() -> list[str]:
    """Names of all functions and ufuncs of NumPy that can be traced."""
    return sorted({*map(name_of, FUNCTIONS), *supported_ufuncs()})
