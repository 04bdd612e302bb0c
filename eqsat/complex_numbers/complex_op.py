"""The op that calls NumPy's functions of complex numbers, and the types they give."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from eqsat.support import DTypeError, EqsatError, ShapeError, at, caller_line, counted
from eqsat.terms import (
    OF_COMPLEX,
    VIEW_SETTING,
    Custom,
    Op,
    Shape,
    Type,
    broadcast,
    op,
    settings_of,
    through_views,
)

AnyDType = np.dtype[Any]
_CALLS = frozenset(
    "add subtract multiply divide power float_power negative square reciprocal "
    "absolute sign copy where cast equal not_equal less less_equal greater "
    "greater_equal isnan isinf isfinite logical_and logical_or logical_xor logical_not "
    "maximum minimum fmax fmin rint exp exp2 expm1 log log2 log10 log1p sqrt sin cos "
    "tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh reshape "
    "broadcast_to transpose slice concatenate pad sum prod max min any all argmax "
    "argmin take iota add_at set_at accumulate sort argsort matmul decompose "
    "pinv".split()
)
"""Ops whose reference is right for complex numbers too."""


_RUNNING = frozenset("add multiply maximum minimum fmax fmin".split())
"""Ufuncs of running results."""


class Function(NamedTuple):
    """A function of complex numbers that is no op of real ones."""

    run: Callable[..., Any]
    """Arrays and settings to an array."""
    type: Callable[..., Type]
    """Types and settings to the type of the result."""


FUNCTIONS: dict[str, Function] = {}


def function_of(who: str) -> Function | Op:
    """What a node calls. Raises :class:`DTypeError` for a function that is not there
    for complex numbers."""
    if who in FUNCTIONS:
        return FUNCTIONS[who]
    if who not in _CALLS:
        raise DTypeError(
            f"{who} of complex numbers is not supported\n"
            f"  compute with x.real and x.imag{at(caller_line())}"
        )
    return Op.registry[who]


def _type(_: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    who = attrs["function"]
    known, settings = function_of(who), settings_of(attrs["settings"])
    try:
        types, own = through_views(types, settings, _viewed)
        if isinstance(known, Function):
            return known.type(*types, **own)
        return _op_type(known, types, own)
    except EqsatError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise DTypeError(
            f"{who}: arguments or settings that do not fit: {error}{at(caller_line())}"
        ) from None


def _op_type(known: Op, types: Sequence[Type], settings: dict[str, Any]) -> Type:
    if not known.variadic and len(types) != len(known.params):
        raise TypeError(
            f"{counted(len(types), 'argument')}, expected {len(known.params)}"
        )
    settled = _settled(known, settings, len(types[0][1]) if types else 0)
    if known.ufunc is not None and known.promotion in ("ufunc", "float"):
        return ufunc_type(known.ufunc, types)
    dtypes = [cast(AnyDType, t[0]) for t in types]
    own = range(len(types)) if known.promotion == "first" else known.own
    others = [d for i, d in enumerate(dtypes) if i not in own]
    met = np.result_type(*others) if others else None
    same = [t if i in own or met is None else (met, t[1]) for i, t in enumerate(types)]
    return known.type_rule.infer(known.name, same, settled)


def _viewed(view: Op, x: Type, attrs: dict[str, Any]) -> Type:
    return view.type_rule.infer(view.name, [x], _settled(view, attrs, len(x[1])))


def _settled(known: Op, settings: dict[str, Any], ndim: int) -> dict[str, Any]:
    """``settings``, if they are attributes of the op in their normal form."""
    if set(settings) != set(known.attrs):
        raise TypeError(f"settings {sorted(settings)}, expected {sorted(known.attrs)}")
    settled = known.settle(settings, ndim)
    if settled != settings or settings.get("ufunc", "add") not in _RUNNING:
        raise ValueError(f"settings {settings}, expected {settled}")
    return settled


def ufunc_type(ufunc: np.ufunc, types: Sequence[Type]) -> Type:
    """The type of a ufunc's result. Raises :class:`DTypeError` where it has no loop."""
    shape: Shape = ()
    for _, sizes in types:
        joined = broadcast(shape, sizes)
        if joined is None:
            raise ShapeError(
                f"{ufunc.__name__}: shapes {shape} and {sizes} do not broadcast"
                f"{at(caller_line())}"
            )
        shape = joined
    dtypes = [cast(AnyDType, t[0]) for t in types]
    try:
        return ufunc.resolve_dtypes((*dtypes, None))[-1], shape
    except TypeError as error:
        raise DTypeError(
            f"{ufunc.__name__}: no loop for dtypes ({', '.join(map(str, dtypes))})"
            f"{at(caller_line())}"
        ) from error


def _flops(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
    """A product of complex numbers is four of real ones."""
    known = function_of(attrs["function"])
    types, own = through_views(types, settings_of(attrs["settings"]), _viewed)
    if isinstance(known, Function) or known.flops is None:
        return 8.0 * sum(math.prod(shape) for _, shape in (*types, out))
    return 4.0 * known.flops(types, own, out)


@op(
    Custom(_type),
    name=OF_COMPLEX,
    variadic=True,
    promotion="first",
    flops=_flops,
    vjp="complex_gradient.py has its rules",
)
def _of_complex(*arrays: Any, function: str, settings: str) -> Any:
    """What NumPy's ``function`` gives of arrays, some complex, with settings written
    as a dict of Python."""
    return _bound(function, settings)(*arrays)


@functools.lru_cache(maxsize=1 << 14)
def _bound(function: str, settings: str) -> Callable[..., Any]:
    """The function with its settings, of arrays."""
    known, how = function_of(function), settings_of(settings)
    run = known.run if isinstance(known, Function) else known.reference
    own = {k: v for k, v in how.items() if k != VIEW_SETTING}

    def of_arrays(*arrays: Any) -> Any:
        return run(*through_views(arrays, how, _shown)[0], **own)

    return of_arrays if VIEW_SETTING in how else functools.partial(run, **own)


def _shown(view: Op, x: Any, attrs: dict[str, Any]) -> Any:
    return view.reference(x, **attrs)


of_complex = replace(_of_complex, opaque="NumPy computes complex numbers")
