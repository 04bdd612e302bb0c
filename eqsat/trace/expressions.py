"""Ops that users define: what can be traced is an expression, which every backend
computes; what cannot is opaque, and NumPy computes it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import Parameter
from typing import Any, ParamSpec

import numpy as np

from eqsat.support import EqsatError, an
from eqsat.terms import (
    HALF,
    INPUT,
    DType,
    Op,
    Term,
    TermGraph,
    Type,
    TypeRule,
    Weak,
    common_dtype,
    op,
    pointwise,
)
from eqsat.trace.tracer import Tracer

Q = ParamSpec("Q")
_BY_ITSELF = "only a NumPy function says what it computes"


def traced_over(
    function: Callable[..., Any], types: Sequence[Type]
) -> tuple[list[Term], Term]:
    """``function`` of values of ``types``: the terms of its arguments and its result.

    Raises :class:`EqsatError` where it gives no traced value.
    """
    graph = TermGraph(sources=False)
    leaves = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(types)]
    found = function(*map(Tracer, leaves))
    if not isinstance(found, Tracer):
        raise EqsatError(f"it gives {an(type(found).__name__)}, not an array")
    return leaves, found.term


def define_op(
    signature: str | TypeRule, *, kind: str = "library", **given: Any
) -> Callable[[Callable[Q, Any]], Op[Q]]:
    """Make an op of a NumPy reference, which alone says what it computes.

    ``signature``: the axes of arguments and result, such as ``"m k, k n -> m n"``.

    As ``eqsat.terms.op``, which says what the arguments are. No kernel of several
    ops holds it, whatever its ``kind``: backends know it by its reference only.
    """
    if kind not in ("library", "pointwise", "reduce", "view", "contract"):
        raise EqsatError(
            f"op: kind={kind!r}, expected library, pointwise, reduce, view or contract"
        )

    def define(reference: Callable[Q, Any]) -> Op[Q]:
        made = op(signature, kind="library", **given)(reference)
        return replace(made, opaque=_BY_ITSELF)

    return define


def define_pointwise(
    name: str, reference: Callable[..., Any], *, dtype: Any = None, **given: Any
) -> Op:
    """Make a pointwise op called ``name``. ``reference`` is a function of elements
    written with NumPy's functions and operators, which fuses with what is around it.

    Where it cannot be traced, as a ufunc that eqsat does not know, it is opaque: NumPy
    computes it in a kernel of its own. ``dtype``: that of the result, where it is not
    that of the arguments. ``nin``: how many arrays it takes, where its signature does
    not say. The rest is as of ``eqsat.terms.pointwise``.
    """
    if given.get("nin") is None and not isinstance(reference, np.ufunc):
        given["nin"] = _positional(reference)
    made = pointwise(name, reference, dtype=dtype, **given)
    types: list[Type] = [(np.dtype(np.float32), (2,))] * len(made.params)
    try:
        leaves, found = traced_over(reference, types)
    except (EqsatError, TypeError, ValueError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        return replace(made, kind="library", opaque=f"{_BY_ITSELF} ({first})")
    wanted = np.dtype(np.float32) if dtype is None else np.dtype(dtype)
    if found.type != (wanted, (2,)):
        raise EqsatError(
            f"pointwise {name}: of float32 elements it gives {found.dtype} of shape "
            f"{found.shape}, expected {wanted} of shape (2,)"
        )
    _try_elements(name, reference, len(leaves))
    return _expression(made)


_TRIED = (
    (-1.5, 0.25, 0.75, -0.5, 0.5),
    (0, 0, 0.5, 0, 0),
    (0.5,) * 5,
    (0.25, 1, 2, 3, 4),
)
"""Elements that a pointwise function is tried with, together and one by one."""


def _try_elements(name: str, function: Callable[..., Any], count: int) -> None:
    """Raises :class:`EqsatError` where numbers show that an element of the result is
    not a function of those at its place alone."""
    for values in _TRIED:
        x = np.array(values, np.float32)
        given = [np.roll(x, i) for i in range(count)]
        with np.errstate(all="ignore"):
            try:
                each = [function(*(v[i : i + 1] for v in given)) for i in range(5)]
            except Exception:  # a user's function may raise anything
                continue
            try:
                alike = np.allclose(
                    function(*given), np.concatenate(each), 1e-5, 1e-6, equal_nan=True
                )
            except ValueError:
                alike = False
        if not alike:
            raise EqsatError(
                f"pointwise {name}: of {x} it gives other elements than of each alone; "
                f"an element of a pointwise op reads those at its place only"
            )


def _positional(function: Callable[..., Any]) -> int | None:
    """How many arguments a function needs by position; None where it does not tell."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(p.kind in by_position and p.default is p.empty for p in found)
    return count or None


def _expression(made: Op) -> Op:
    """The op with its reference as its body."""
    body, reference = made.reference, made.reference
    if made.ufunc is None:
        reference = reference_of(made.name, body, made.promotion, made.type_rule)
    return replace(made, kind="composite", body=body, reference=reference)


def reference_of(
    name: str, body: Callable[..., Any], promotion: str, type_rule: TypeRule
) -> Callable[..., Any]:
    """``body`` on arrays as it is computed in kernels: arguments meet in one dtype,
    halves are computed in float32, and the result is rounded once to its type."""

    @functools.wraps(body)
    def reference(*values: Any, **attrs: Any) -> Any:
        given = [v if type(v) in (int, float) else np.asarray(v) for v in values]
        known = [_dtype(v) for v in given]
        dtype = common_dtype(name, promotion, known)
        wide = np.dtype(np.float32) if dtype in HALF else dtype
        types: list[Type] = [(dtype, np.shape(v)) for v in given]
        ready = [
            v.astype(wide, copy=False) if isinstance(v, np.ndarray) else v
            for v in given
        ]
        result, _ = type_rule.infer(name, types, attrs)
        found = np.asarray(body(*ready, **attrs))
        return found.astype(np.dtype(result), copy=False)[()]  # type: ignore[arg-type]

    return reference


def _dtype(value: Any) -> DType:
    weak: dict[type, DType] = {int: Weak.INT, float: Weak.FLOAT}
    return weak.get(type(value)) or value.dtype
