"""Terms made of ops: dtypes meet, attributes take their normal form, types are
inferred."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from eqsat.support import DTypeError, at, caller_line
from eqsat.terms.complex_calls import OF_COMPLEX, as_call, settings_of
from eqsat.terms.op import CONSTANT, SCALAR, Op
from eqsat.terms.promotion import (
    beyond,
    check_range,
    common_dtype,
    dtype_of,
    in_half,
    ufunc_dtypes,
)
from eqsat.terms.term import DType, Term, TermGraph, Type, Weak
from eqsat.terms.type_rules import Custom, dtype_code, is_complex, is_float

_COMPARISONS = frozenset(
    (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
)
_I8 = np.dtype(np.int64)
_U8 = np.dtype("u8")
WIDE = 16
"""Arguments beyond which an op is one that joins arrays. A loop that writes n elements
makes n of them, of 1 to n arguments, so that what each argument costs counts."""
_BOOL = np.dtype(bool)


def apply(
    op: Op, graph: TermGraph, args: Sequence[Any], attrs: Mapping[str, Any]
) -> Term:
    """The term ``op(*args, **attrs)``; ``args`` may be terms, arrays and numbers.

    Dtypes meet as NumPy's do: casts are inserted, and a scalar becomes a bare number
    wherever that changes nothing. Raises :class:`ShapeError` and :class:`DTypeError`
    with the user's line.
    """
    if args and len(args) <= WIDE and "dtype" not in attrs:
        known = tuple(a.type[0] if type(a) is Term else None for a in args)
        if _is_plain(op, known):
            return _node(op, graph, args, op.settle(attrs, args[0].ndim))
    if _is_of_complex(op, args, attrs):
        return _of_complex(op, graph, args, attrs)
    if len(args) > WIDE and _are_alike(args):
        return make(op, graph, args, op.settle(attrs, args[0].ndim))
    if op.ufunc in _COMPARISONS and _meet_in_no_integer(op, args):
        return _compared(op, graph, args)
    values = _promote(op, graph, args)
    settled = op.settle(attrs, values[0].ndim if values else 0)
    return make(op, graph, values, settled)


def make(
    op: Op, graph: TermGraph, args: Sequence[Term], attrs: Mapping[str, Any]
) -> Term:
    """The node itself: no promotion, attributes already in normal form."""
    if op.name == OF_COMPLEX:
        settings = settings_of(attrs["settings"])
        args, attrs = as_call(attrs["function"], args, settings)
    elif _is_of_complex(op, args, attrs):
        args, attrs = as_call(op.name, args, attrs)
        op = Op.registry[OF_COMPLEX]
    return _node(op, graph, args, attrs)


@lru_cache(maxsize=4096)
def _is_plain(op: Op, known: tuple[DType | None, ...]) -> bool:
    """Whether ``op`` takes terms of these dtypes as they are; None for what is no
    term. Most calls are such."""
    if op.name == OF_COMPLEX or op.truths:
        return False
    if any(d is None or isinstance(d, Weak) or is_complex(d) for d in known):
        return False
    if op.promotion == "first" or len(op.own) >= len(known):
        return True
    if op.ufunc in _COMPARISONS and len({*known}) > 1:
        return False
    pairs = zip(known, _wanted(op, cast("tuple[DType, ...]", known)), strict=True)
    return all(wanted is None or wanted == own for own, wanted in pairs)


def _node(
    op: Op, graph: TermGraph, args: Sequence[Term], attrs: Mapping[str, Any]
) -> Term:
    return node_over(op, graph, args, tuple(attrs[n] for n in op.attrs))


def node_over(
    op: Op, graph: TermGraph, args: Sequence[Term], values: tuple[Any, ...]
) -> Term:
    """The node of an op whose attributes have the ``values`` of another node, over
    arguments of the same dtypes."""
    types = tuple([(a.dtype, a.shape) for a in args])
    return graph.node(op, args, values, infer(op, types, values))


def _are_alike(args: Sequence[Any]) -> bool:
    """Whether all are terms of one dtype, none a bare number: nothing meets here."""
    if any(type(a) is not Term for a in args):
        return False
    dtypes = {a.dtype for a in args}
    return len(dtypes) == 1 and not isinstance(dtypes.pop(), Weak)


def infer(op: Op, types: tuple[Type, ...], attrs: tuple[Any, ...]) -> Type:
    """The type of ``op`` over arguments of ``types``."""
    # Answers for many arguments would take more memory than they save time. What a
    # user's function says of types may change: it reads what it likes.
    asks = type(op.type_rule) is Custom and not _is_own(op.reference)
    if asks or len(types) > WIDE:
        return _inferred.__wrapped__(op, types, attrs)
    return _inferred(op, types, attrs)


def _is_own(function: Any) -> bool:
    """Whether a function comes with eqsat."""
    return str(getattr(function, "__module__", "")).startswith("eqsat.")


@lru_cache(maxsize=1 << 14)
def _inferred(op: Op, types: tuple[Type, ...], attrs: tuple[Any, ...]) -> Type:
    """The type, found once: layers repeat."""
    for i in op.truths:
        if types[i][0] != _BOOL:
            raise DTypeError(
                f"{op.name}: argument {i} is a truth value, expected bool, got "
                f"{types[i][0]}{at(caller_line())}"
            )
    type_ = op.type_rule.infer(op.name, types, dict(zip(op.attrs, attrs, strict=True)))
    dtype_code(type_[0])
    return type_


def constant(graph: TermGraph, array: np.ndarray[Any, Any]) -> Term:
    """An array known when tracing, held by identity."""
    dtype_code(array.dtype)
    return graph.known(CONSTANT, array)


def scalar(graph: TermGraph, value: float) -> Term:
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


def _is_of_complex(op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
    """Whether ``op`` takes or gives complex numbers here, which it has no rules for."""
    if op.name == OF_COMPLEX:
        return False
    for a in args:
        if _holds_complex(getattr(a, "dtype", None) or a.__class__):
            return True
    return "dtype" in attrs and np.dtype(attrs["dtype"]).kind == "c"


def _holds_complex(kind: Any) -> bool:
    """Whether values of a dtype, or of a class without one, are complex numbers."""
    return issubclass(kind, complex) if isinstance(kind, type) else is_complex(kind)


def _of_complex(
    op: Op, graph: TermGraph, args: Sequence[Any], attrs: Mapping[str, Any]
) -> Term:
    """The call of NumPy that ``op`` is where numbers are complex. NumPy promotes; only
    bare numbers get the dtype here that they take on beside the others."""
    known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    bare = [isinstance(d, Weak) for d in known]
    wanted: Sequence[np.dtype[Any] | None] = [None] * len(args)
    if any(bare) and len(op.own) < len(args) and op.promotion != "first":
        wanted = _wanted(op, tuple(known))
    terms = [
        _known(graph, a, w) if b else a if isinstance(a, Term) else _known(graph, a)
        for a, b, w in zip(args, bare, wanted, strict=True)
    ]
    settled = op.settle(attrs, terms[0].ndim if terms else 0)
    return make(op, graph, terms, settled)


def _known(graph: TermGraph, value: Any, dtype: Any = None) -> Term:
    """The array of a number or of an array."""
    if isinstance(value, Term):
        if value.op is not SCALAR:
            return value
        value = value.attrs[0]
    array = np.asarray(value, dtype)
    return constant(graph, array)


def _promote(op: Op, graph: TermGraph, args: Sequence[Any]) -> list[Term]:
    """Arguments as terms of the dtypes in which ``op`` computes."""
    if op.truths and op.ufunc is not None:
        for a in args:
            check_range(op.name, a, _I8)
    args = [_truth(graph, a) if i in op.truths else a for i, a in enumerate(args)]
    known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    if op.ufunc in _COMPARISONS:
        args = [beyond(a, known) for a in args]
        known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    if op.promotion == "first" or len(op.own) >= len(args):
        return [_as_term(graph, a, None) for a in args]
    wanted = _wanted(op, tuple(known))
    if op.ufunc in _COMPARISONS:
        args = [in_half(a, w) for a, w in zip(args, wanted, strict=True)]
    for a, w in zip(args, wanted, strict=True):
        check_range(op.name, a, w)
    terms = [_as_term(graph, a, w) for a, w in zip(args, wanted, strict=True)]
    pairs = list(zip(terms, wanted, strict=True))
    if all(isinstance(t.dtype, Weak) for t, w in pairs if w is not None):
        terms = [t if w is None else cast_to(t, w) for t, w in pairs]
    return terms


def _meet_in_no_integer(op: Op, args: Sequence[Any]) -> bool:
    """Whether these are integers of uint64 and of a signed dtype."""
    known = [dtype_of(op.name, i, a) for i, a in enumerate(args)]
    kinds = {d.kind for d in known if not isinstance(d, Weak)}
    return _U8 in known and "i" in kinds


def _compared(op: Op, graph: TermGraph, args: Sequence[Any]) -> Term:
    """``op`` of uint64 and signed integers by their values, as NumPy compares them: in
    uint64, and apart from that where one is negative."""
    assert op.ufunc is not None
    ops = Op.registry
    x, y = (a if isinstance(a, Term) else constant(graph, np.asarray(a)) for a in args)
    wide = apply(op, graph, [cast_to(x, _U8), cast_to(y, _U8)], {})
    signed, holds = (y, op.ufunc(1, -1)) if x.dtype == _U8 else (x, op.ufunc(-1, 1))
    negative = apply(ops["less"], graph, [signed, 0], {})
    if holds:
        return apply(ops["logical_or"], graph, [negative, wide], {})
    natural = apply(ops["logical_not"], graph, [negative], {})
    return apply(ops["logical_and"], graph, [natural, wide], {})


@lru_cache(maxsize=4096)
def _wanted(op: Op, known: tuple[DType, ...]) -> list[np.dtype[Any] | None]:
    """The dtype in which ``op`` takes each argument; None for those of their own."""
    if op.ufunc is not None and op.promotion == "ufunc":
        return list(ufunc_dtypes(op.name, op.ufunc, known))
    counted = [d for i, d in enumerate(known) if i not in op.own]
    dtype = common_dtype(op.name, op.promotion, counted)
    return [None if i in op.own else dtype for i in range(len(known))]


def _truth(graph: TermGraph, value: Any) -> Any:
    """``value`` as bool, true where it is not 0."""
    if isinstance(value, Term):
        known = value.op is SCALAR
        return scalar(graph, bool(value.attrs[0])) if known else cast_to(value, _BOOL)
    if isinstance(value, (int, float)):
        return scalar(graph, bool(value))
    return cast_to(constant(graph, np.asarray(value)), _BOOL)


def _as_term(graph: TermGraph, value: Any, dtype: np.dtype[Any] | None) -> Term:
    if isinstance(value, Term):
        if dtype is None:
            return value
        if isinstance(value.dtype, Weak):
            number = value.attrs[0] if value.op is SCALAR else None
            if is_float(dtype) and isinstance(number, (int, float)):
                return _number(graph, float(number), dtype)
            return value
        return cast_to(value, dtype)
    if isinstance(value, (int, float)) and not isinstance(value, (bool, np.generic)):
        if dtype is None or not is_float(dtype):
            return scalar(graph, value)
        return _number(graph, float(value), dtype)
    array = np.asarray(value)
    if array.ndim == 0 and dtype is not None and dtype != np.dtype(bool):
        if array is value:  # kept, since someone may write to it
            graph.arrays[id(array)] = array
        rounded = array.astype(dtype)
        if not is_float(dtype):
            return scalar(graph, int(rounded))
        return _number(graph, float(rounded), dtype)
    term = constant(graph, array)
    return term if dtype is None else cast_to(term, dtype)


def _number(graph: TermGraph, value: float, dtype: np.dtype[Any]) -> Term:
    """A bare number of a float dtype; -0 as an array, since engines take -0 for 0."""
    if value == 0 and math.copysign(1, value) < 0:
        return constant(graph, np.asarray(value, dtype))
    return scalar(graph, value)
