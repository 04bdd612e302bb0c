"""Terms made of ops: dtypes meet, attributes take their normal form, types are
inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.op import CONSTANT, SCALAR, Op
from eqsat.promote import beyond, check_range, common_dtype, dtype_of, ufunc_dtypes
from eqsat.term import DType, Graph, Term, Type, Weak
from eqsat.typerule import dtype_code, is_float

_COMPARISONS = frozenset(
    (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
)


def apply(op: Op, graph: Graph, args: Sequence[Any], attrs: Mapping[str, Any]) -> Term:
    """The term ``op(*args, **attrs)``; ``args`` may be terms, arrays and numbers.

    Dtypes meet as NumPy's do: casts are inserted, and a scalar becomes a bare number
    wherever that changes nothing. Raises :class:`ShapeError` and :class:`DTypeError`
    with the user's line.
    """
    if op.ufunc in _COMPARISONS and len(args) == 2:
        compared = _of_both_signs(op, graph, args)
        if compared is not None:
            return compared
    values = _promote(op, graph, args)
    settled = op.settle(attrs, values[0].ndim if values else 0)
    return make(op, graph, values, settled)


def make(op: Op, graph: Graph, args: Sequence[Term], attrs: Mapping[str, Any]) -> Term:
    """The node itself: no promotion, attributes already in normal form."""
    values = tuple(attrs[n] for n in op.attrs)
    return graph.node(op, args, values, infer(op, tuple(a.type for a in args), values))


@lru_cache(maxsize=1 << 14)
def infer(op: Op, types: tuple[Type, ...], attrs: tuple[Any, ...]) -> Type:
    """The type of ``op`` over arguments of ``types``. Layers repeat, so answers are
    kept."""
    type_ = op.type_rule.infer(op.name, types, dict(zip(op.attrs, attrs, strict=True)))
    dtype_code(type_[0])
    return type_


def constant(graph: Graph, array: np.ndarray[Any, Any]) -> Term:
    """An array known when tracing, held by identity."""
    dtype_code(array.dtype)
    return graph.known(CONSTANT, array)


def scalar(graph: Graph, value: float) -> Term:
    """A bare Python number, without a dtype of its own."""
    if isinstance(value, bool):
        return constant(graph, np.asarray(value))
    weak = Weak.FLOAT if isinstance(value, float) else Weak.INT
    return graph.node(SCALAR, (), (value,), (weak, ()))


def cast_to(term: Term, dtype: np.dtype[Any]) -> Term:
    """``term`` with ``dtype``; itself when it has it already."""
    if term.dtype == dtype:
        return term
    return make(Op.registry["cast"], term.graph, [term], {"dtype": dtype.name})


def _promote(op: Op, graph: Graph, args: Sequence[Any]) -> list[Term]:
    """Arguments as terms of the dtypes in which ``op`` computes."""
    known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    if op.ufunc in _COMPARISONS:
        args = [beyond(a, known) for a in args]
        known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    if op.promotion == "first" or not args:
        return [_as_term(graph, a, None) for a in args]
    wanted = _wanted(op, tuple(known))
    for a, w in zip(args, wanted, strict=True):
        check_range(op.name, a, w)
    terms = [_as_term(graph, a, w) for a, w in zip(args, wanted, strict=True)]
    pairs = list(zip(terms, wanted, strict=True))
    if all(isinstance(t.dtype, Weak) for t, w in pairs if w is not None):
        terms = [t if w is None else cast_to(t, w) for t, w in pairs]
    return terms


_TURNED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
"""The comparison that holds of y and x where one holds of x and y."""


def _of_both_signs(op: Op, graph: Graph, args: Sequence[Any]) -> Term | None:
    """The comparison of an array of signed integers with one of uint64, which have no
    common dtype, by the sign of the one and as uint64; None for other dtypes."""
    known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    if any(isinstance(d, Weak) for d in known) or np.dtype("u8") not in known:
        return None
    x, y = args
    name = op.name
    if known[0] == np.dtype("u8"):
        x, y, known = y, x, known[::-1]
        name = _TURNED.get(name, name)
    if known[0].kind != "i":  # type: ignore[union-attr]
        return None
    ops = Op.registry
    below = apply(ops["less"], graph, [x, 0], {})
    bits = apply(ops["cast"], graph, [x], {"dtype": "uint64"})
    if name in ("less", "less_equal", "not_equal"):
        beside = apply(ops[name], graph, [bits, y], {})
        return apply(ops["logical_or"], graph, [below, beside], {})
    beside = apply(ops[name], graph, [bits, y], {})
    above = apply(ops["logical_not"], graph, [below], {})
    return apply(ops["logical_and"], graph, [above, beside], {})


@lru_cache(maxsize=4096)
def _wanted(op: Op, known: tuple[DType, ...]) -> list[np.dtype[Any] | None]:
    """The dtype in which ``op`` takes each argument; None for those of their own."""
    if op.ufunc is not None and op.promotion == "ufunc":
        return list(ufunc_dtypes(op.name, op.ufunc, known))
    counted = [d for i, d in enumerate(known) if i not in op.own]
    dtype = common_dtype(op.name, op.promotion, counted)
    return [None if i in op.own else dtype for i in range(len(known))]


def _as_term(graph: Graph, value: Any, dtype: np.dtype[Any] | None) -> Term:
    if isinstance(value, Term):
        if dtype is None:
            return value
        if isinstance(value.dtype, Weak):
            number = value.attrs[0] if value.op is SCALAR else None
            if is_float(dtype) and isinstance(number, int):
                return scalar(graph, float(number))
            return value
        return cast_to(value, dtype)
    if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)):
        return scalar(
            graph, float(value) if dtype is not None and is_float(dtype) else value
        )
    array = np.asarray(value)
    if array.ndim == 0 and dtype is not None and dtype != np.dtype(bool):
        if array is value:  # kept, since someone may write to it
            graph.arrays[id(array)] = array
        rounded = array.astype(dtype)
        return scalar(graph, float(rounded) if is_float(dtype) else int(rounded))
    term = constant(graph, array)
    return term if dtype is None else cast_to(term, dtype)
