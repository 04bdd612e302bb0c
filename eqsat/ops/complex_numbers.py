"""Complex numbers: one op calls NumPy for all functions that take or give them.

Rules, kernels and derivatives of the other ops are stated and proved for real numbers.
So no term of theirs is complex: ``make`` writes :func:`of_complex` instead, which no
rule knows, and NumPy computes it on all backends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.ops.position import zeros_like
from eqsat.ops.support import dtype_of, is_traced
from eqsat.support import DTypeError, ShapeError, at, caller_line
from eqsat.terms import (
    OF_COMPLEX,
    Custom,
    Op,
    Shape,
    Type,
    broadcast,
    is_complex,
    op,
    settings_of,
    through_views,
)

_CALLS = frozenset(
    "add subtract multiply divide power float_power negative square reciprocal "
    "absolute sign copy where cast equal not_equal less less_equal greater "
    "greater_equal isnan isinf isfinite logical_and logical_or logical_xor logical_not "
    "maximum minimum fmax fmin rint exp exp2 expm1 log log2 log10 log1p sqrt sin cos "
    "tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh reshape "
    "broadcast_to transpose slice concatenate pad sum prod mean max min any all argmax "
    "argmin take iota add_at set_at accumulate sort argsort matmul pinv".split()
)
"""Ops whose reference is right for complex numbers too."""


class Function(NamedTuple):
    """A function of complex numbers that is no op of real ones."""

    run: Callable[..., Any]
    """Arrays and settings to an array."""
    type: Callable[..., Type]
    """Types and settings to the type of the result."""


FUNCTIONS: dict[str, Function] = {}


def call(function: str, *args: Any, **settings: Any) -> Any:
    """``function``, one of :data:`FUNCTIONS`, of complex numbers."""
    if not is_traced(*args):
        return FUNCTIONS[function].run(*args, **settings)
    return of_complex(*args, function=function, settings=repr(settings))


def known_op(who: str) -> Op | None:
    """The op that a node calls; None where that is one of :data:`FUNCTIONS`.

    Raises :class:`DTypeError` for a function that is not there for complex numbers.
    """
    if who in FUNCTIONS:
        return None
    if who not in _CALLS:
        raise DTypeError(
            f"{who}: not supported for complex numbers{at(caller_line())}\n"
            f"  compute with x.real and x.imag"
        )
    return Op.registry[who]


def _type(_: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    who = attrs["function"]
    known = known_op(who)
    types, settings = through_views(types, settings_of(attrs["settings"]), _viewed)
    if known is None:
        return FUNCTIONS[who].type(*types, **settings)
    if known.ufunc is not None and known.promotion in ("ufunc", "float"):
        return _ufunc_type(known.ufunc, types)
    counted = [t[0] for i, t in enumerate(types) if i not in known.own]
    met = [np.result_type(*counted)] * len(types) if counted else []
    if known.promotion == "first":
        met = [t[0] for t in types]
    same = [t if i in known.own else (met[i], t[1]) for i, t in enumerate(types)]
    return known.type_rule.infer(who, same, settings)


def _viewed(view: Op, x: Type, attrs: dict[str, Any]) -> Type:
    return view.type_rule.infer(view.name, [x], attrs)


def _ufunc_type(ufunc: np.ufunc, types: Sequence[Type]) -> Type:
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
    dtypes = [t[0] for t in types]
    try:
        return ufunc.resolve_dtypes((*dtypes, None))[-1], shape
    except TypeError as error:
        raise DTypeError(
            f"{ufunc.__name__}: no loop for dtypes ({', '.join(map(str, dtypes))})"
            f"{at(caller_line())}"
        ) from error


@op(
    Custom(_type),
    name=OF_COMPLEX,
    variadic=True,
    promotion="first",
)
def of_complex(*arrays: Any, function: str, settings: str) -> Any:
    """What NumPy's ``function`` gives of arrays, some complex, with settings written
    as a dict of Python."""
    known = known_op(function)
    run = FUNCTIONS[function].run if known is None else known.reference
    shown, own = through_views(arrays, settings_of(settings), _shown)
    return run(*shown, **own)


def _shown(view: Op, x: Any, attrs: dict[str, Any]) -> Any:
    return view.reference(x, **attrs)


# -- types -----------------------------------------------------------------------------


def real_dtype(dtype: Any) -> Any:
    """float32 of complex64, float64 of complex128, and any other dtype as it is."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def complex_dtype(dtype: Any) -> Any:
    """The complex dtype that numbers of ``dtype`` become."""
    return np.result_type(dtype, np.complex64)


def _part(x: Type) -> Type:
    return real_dtype(x[0]), x[1]


def _same(x: Type) -> Type:
    return x


def _angle(z: Any, *, deg: bool = False) -> Any:
    return np.angle(z, deg)


def _angle_type(x: Type, *, deg: bool = False) -> Type:
    return _part(x)


def _with_parts(real: Any, imag: Any) -> Any:
    found = np.empty(real.shape, complex_dtype(real.dtype))
    found.real, found.imag = real, imag
    return found


def _with_parts_type(real: Type, imag: Type) -> Type:
    return complex_dtype(real[0]), real[1]


FUNCTIONS |= {
    "with_parts": Function(_with_parts, _with_parts_type),
    "conjugate": Function(np.conjugate, _same),
    "real": Function(np.real, _part),
    "imag": Function(np.imag, _part),
    "angle": Function(_angle, _angle_type),
}


# -- public functions ------------------------------------------------------------------


def holds_complex(x: Any) -> bool:
    """Whether the elements of ``x`` are complex numbers."""
    dtype = dtype_of(x)
    return isinstance(x, complex) if dtype is None else is_complex(dtype)


def real(x: Any) -> Any:
    """The real parts; ``x`` itself where it is real."""
    return call("real", x) if holds_complex(x) else x


def imag(x: Any) -> Any:
    """The imaginary parts, 0 where ``x`` is real."""
    return call("imag", x) if holds_complex(x) else zeros_like(x)


def conjugate(x: Any) -> Any:
    """x with the opposite imaginary part; ``x`` itself where it is real."""
    return call("conjugate", x) if holds_complex(x) else x


def with_parts(real: Any, imag: Any) -> Any:
    """Complex numbers of their parts, which have the same shape and dtype."""
    return call("with_parts", real, imag)
