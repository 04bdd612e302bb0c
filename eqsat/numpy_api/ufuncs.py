"""NumPy's and SciPy's ufuncs on traced values (NEP 13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.complex_numbers import FOR_COMPLEX, conjugate, holds_complex, numpy_call
from eqsat.numpy_api.operands import (
    axes_of,
    judged,
    name_of,
    one_axis,
    operand,
    refuse_argument,
    refuse_function,
    settled,
)
from eqsat.numpy_api.special import SCIPY
from eqsat.numpy_api.statistics import REDUCTIONS, cast, product, total
from eqsat.ops import dtype_of, is_traced
from eqsat.support import (
    DTypeError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
)
from eqsat.terms import Op, Traced

Handler = Callable[..., Any]

_IGNORED = frozenset({"order", "subok"})
_JUDGED = _IGNORED | {"casting", "keepdims"}

_RUNNING = frozenset({"add", "multiply", "maximum", "minimum", "fmax", "fmin"})
"""Ufuncs with ``accumulate``."""

_TAKES_ROOTS = np.lib.NumpyVersion(np.__version__) >= "2.4.0"


def power(x: Any, y: Any) -> Any:
    """xʸ. Raises :class:`TraceValueError` for integers to a negative number."""
    base = dtype_of(x)
    if type(y) is int and y < 0 and base is not None and base.kind in "biu":
        raise TraceValueError(
            f"integers ({base}) to the negative power {y} are not integers; use x ** "
            f"{float(y)}{at(caller_line())}"
        )
    of_integers = base is not None and base.kind in "biu" and not is_traced(y)
    if of_integers and not isinstance(y, (int, float, complex)):
        known = np.asarray(y)
        is_whole = known.dtype.kind == "i"
        if is_whole and np.result_type(base, known).kind == "i" and np.any(known < 0):
            raise TraceValueError(
                f"integers ({base}) to negative powers ({known.dtype}) are not "
                f"integers; use x ** y.astype(float){at(caller_line())}"
            )
    return _root(x, y) if _is_half(y) else ops.power(x, y)


def _is_half(y: Any) -> bool:
    """Whether NumPy's loops of powers take a root: since 2.4, where the exponent is one
    number for all. They differ at -inf and -0."""
    is_one = not is_traced(y) and np.ndim(y) == 0 and _TAKES_ROOTS
    return bool(is_one and y == 0.5)


def _root(x: Any, y: Any) -> Any:
    """xʸ for y = ½, in the dtypes whose loops take a root."""
    made = ops.power(x, y)
    dtype = dtype_of(made)
    if dtype is None or dtype.kind != "f" or dtype.itemsize < 4:
        return made
    return ops.sqrt(cast(x, dtype))


def _modf(x: Any) -> tuple[Any, Any]:
    whole = ops.trunc(x)
    part = ops.where(np.signbit(x), -(whole - x), x - whole)  # of the sign of x: ±0
    return ops.where(ops.isinf(x), ops.copysign(0.0, x), part), whole


def _ldexp(x: Any, n: Any) -> Any:
    """x 2ⁿ, rounded once: for known exponents of powers that the dtype has."""
    if not is_traced(n):
        with np.errstate(all="ignore"):
            power_of_2 = np.ldexp(np.ones((), dtype_of(x)), n)
        if np.all(np.isfinite(power_of_2) & (power_of_2 > 0)):
            return ops.multiply(x, power_of_2)
    dtype = dtype_of(x)
    where = "" if dtype is None else f" in {dtype}"
    raise TraceError(
        f"np.ldexp: n must be known while tracing, and 2**n finite and not 0{where}\n"
        f"  write x * 2.0**n, which overflows where 2.0**n does{at(caller_line())}"
    )


def _by_matrix(name: str, a: Any, x: Any) -> Any:
    """Matrices times vectors, or vectors times matrices."""
    if len(a.shape) < 2 or not x.shape:
        raise ShapeError(
            f"np.{name}: matrices of shape {tuple(a.shape)} and vectors of shape "
            f"{tuple(x.shape)}, expected two axes or more and one or more"
            f"{at(caller_line())}"
        )
    if name == "matvec":
        return ops.squeeze(ops.matmul(a, ops.expand_dims(x, -1)), -1)
    return ops.squeeze(ops.matmul(ops.expand_dims(x, -2), a), -2)


_NUMPY: dict[str, Handler] = {
    "clip": ops.clip,
    "conjugate": conjugate,
    "divmod": lambda x, y: (ops.floor_divide(x, y), ops.remainder(x, y)),
    "fabs": ops.absolute,
    "ldexp": _ldexp,
    "matmul": ops.matmul,
    "matvec": lambda a, x: _by_matrix("matvec", a, x),
    "modf": _modf,
    "power": power,
    "positive": lambda x: x,
    "vecdot": lambda x, y: ops.squeeze(
        ops.matmul(x[..., None, :], y[..., None]), (-2, -1)
    ),
    "vecmat": lambda x, a: _by_matrix("vecmat", a, x),
}
"""Ufuncs of NumPy that are more than an op, or none."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """``getattr(ufunc, method)(*inputs, **kwargs)`` on traced values.

    Raises :class:`TraceError` for a ufunc, a method or an argument that cannot be
    recorded.
    """
    inputs, kwargs = settled(tuple(inputs)), settled(dict(kwargs))
    name = name_of(ufunc)
    for k in _JUDGED.intersection(kwargs):
        judged(name, k, kwargs[k])
    given = {
        k: v for k, v in kwargs.items() if k not in _IGNORED and not _default(k, v)
    }
    for k in ("out", "where"):
        if k in given and (k == "out" or method != "reduce"):
            refuse_argument(name, k)
    values = [operand(v) for v in inputs]
    for i, v in enumerate(inputs):
        if values[i] is NotImplemented:
            if hasattr(type(v), "__array_ufunc__"):
                return NotImplemented
            raise TraceError(
                f"{name}: argument {i} is {type(v).__name__!r}, expected an array or a "
                f"number{at(caller_line())}"
            )
    if method == "reduce":
        return _reduce(ufunc, name, values, given)
    if method == "accumulate":
        return _accumulate(ufunc, name, values, given)
    if method == "outer":
        a, b = values
        first = ops.reshape(a, (*np.shape(a), *(1,) * np.ndim(b)))
        return call_ufunc(ufunc, "__call__", (first, b), kwargs)
    if method != "__call__":
        refuse_function(f"{name}.{method}")
    return _call(ufunc, name, values, given)


def _default(key: str, value: Any) -> bool:
    """Whether an argument of a ufunc says nothing."""
    if key == "where":
        return value is True
    if key not in ("out", "dtype", "signature", "initial"):
        return False
    unset = value if isinstance(value, tuple) else (value,)
    return all(v is None or v is np._NoValue for v in unset)


def _call(ufunc: np.ufunc, name: str, values: list[Any], given: dict[str, Any]) -> Any:
    if ufunc.__name__ in FOR_COMPLEX and any(map(holds_complex, values)):
        return numpy_call(ufunc.__name__, values, given)
    handler = _handler(ufunc)
    if handler is None:
        refuse_function(name)
    asked = {k: given.pop(k) for k in ("dtype", "casting") if k in given}
    for k in given:
        refuse_argument(name, k)
    if asked or not isinstance(handler, Op) or handler.ufunc is not ufunc:
        values = _as_resolved(ufunc, name, values, **asked)
    return handler(*values)


def _reduce(
    ufunc: np.ufunc, name: str, values: list[Any], given: dict[str, Any]
) -> Any:
    handler = REDUCTIONS.get(ufunc.__name__)
    if handler is None:
        refuse_function(f"{name}.reduce")
    x, *rest = values
    options = dict(zip(("axis", "dtype"), rest, strict=False)) | given
    for k in options:
        if k not in ("axis", "dtype", "keepdims", "initial", "where"):
            refuse_argument(f"{name}.reduce", k)
    dtype = options.pop("dtype", None)
    if handler in (total, product):
        options["dtype"] = dtype
    elif dtype is not None:
        if ufunc.__name__.startswith("logical") and np.dtype(dtype) != bool:
            raise DTypeError(
                f"{name}.reduce: no loop for dtype={np.dtype(dtype)}{at(caller_line())}"
            )
        x = cast(x, dtype)
    options["axis"] = axes_of(f"{name}.reduce", ufunc.reduce, x, options.get("axis", 0))
    return handler(x, **options)


def _accumulate(
    ufunc: np.ufunc, name: str, values: list[Any], given: dict[str, Any]
) -> Any:
    if ufunc.__name__ not in _RUNNING:
        refuse_function(f"{name}.accumulate")
    x, *rest = values
    options = dict(zip(("axis", "dtype"), rest, strict=False)) | given
    for k in options:
        if k not in ("axis", "dtype"):
            refuse_argument(f"{name}.accumulate", k)
    axis = axes_of(f"{name}.accumulate", ufunc.accumulate, x, options.pop("axis", 0))
    return ops.accumulate(ufunc.__name__, x, one_axis(axis) or 0, **options)


def _handler(ufunc: np.ufunc) -> Handler | None:
    name = ufunc.__name__
    if getattr(np, name, None) is not ufunc and name != "clip":
        return SCIPY.get(name)
    return _NUMPY.get(name) or Op.registry.get(name)


def supported_ufuncs() -> list[str]:
    """Names of the ufuncs of NumPy that can be traced."""
    named = [o.ufunc.__name__ for o in Op.registry.values() if o.ufunc is not None]
    return sorted(f"np.{n}" for n in {*named, *_NUMPY} if hasattr(np, n))


def _as_resolved(
    ufunc: np.ufunc,
    name: str,
    values: list[Any],
    dtype: Any = None,
    casting: str = "same_kind",
) -> list[Any]:
    """``values`` in the dtypes of the loop that ``ufunc`` would run for a result of
    ``dtype``."""
    known = [dtype_of(v) or type(v) for v in values]
    if any(issubclass(k, Traced) for k in known if isinstance(k, type)):
        return values
    results = (None,) * ufunc.nout
    more: dict[str, Any] = {"casting": casting}
    if dtype is not None:
        more["signature"] = (*(None for _ in known), np.dtype(dtype))
    try:
        wanted = ufunc.resolve_dtypes((*known, *results), **more)
    except TypeError:
        shown = ", ".join(k.__name__ if isinstance(k, type) else str(k) for k in known)
        given = "" if dtype is None else f" and dtype={np.dtype(dtype)}"
        given += "" if casting == "same_kind" else f" with casting={casting!r}"
        raise DTypeError(
            f"{name}: no loop for dtypes ({shown}){given}{at(caller_line())}"
        ) from None
    single = ufunc.__name__ not in SCIPY or getattr(np, ufunc.__name__, None) is ufunc
    return [  # in functions of several ops a bare number may meet bare ones alone
        v if isinstance(k, type) and single else cast(v, w)
        for v, k, w in zip(values, known, wanted, strict=False)
    ]
