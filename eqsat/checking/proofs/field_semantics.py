"""What every op means in a field, where it is more than an uninterpreted function.

Each entry is an identity of real numbers, true wherever both of its sides are defined:
tanh x = (1 - e⁻²ˣ) / (1 + e⁻²ˣ), |x| = √x², min(x, y) = -max(-x, -y). Rounding is left
out, so that a cast from one floating dtype to another does nothing, and every number is
finite. Conditions are 0 or 1; an identity that holds for every number in their place
holds for these two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.checking.proofs.prime_field import Field, FieldArray, as_objects
from eqsat.checking.proofs.quotient_bound import ATOM, QuotientBound
from eqsat.ops import MOVES, iota_op, take_op
from eqsat.support import Array
from eqsat.terms import (
    BOOL,
    CONSTANT,
    INPUT,
    SCALAR,
    DType,
    Op,
    Term,
    Weak,
    is_float,
    postorder,
)

Meaning = Callable[..., FieldArray]
"""A field and the values of the arguments to the value of the op."""

MOST_POWER = 64
"""Integer exponents up to this are multiplied out."""


def evaluate(
    roots: Sequence[Term], leaves: Mapping[Term, FieldArray], f: Field
) -> list[FieldArray]:
    """The values of ``roots``, terms without composites, over values of their leaves.

    Raises :class:`Unprovable` for a number that is not finite, and for a division by 0.
    """
    values: dict[Term, FieldArray] = dict(leaves)
    for term in postorder(roots):
        if term not in values:
            values[term] = _value(term, values, f)
    return [values[t] for t in roots]


def _value(term: Term, values: Mapping[Term, FieldArray], f: Field) -> FieldArray:
    held: Any = term.attrs[0] if term.attrs else None
    if term.op is SCALAR:
        return f.number(held)
    if term.op is CONSTANT:
        return f.constants(term.graph.arrays[held])
    if term.op is INPUT:
        raise Unprovable("an input without a value")
    assert isinstance(term.op, Op)
    name, args = term.op.name, [values[a] for a in term.args]
    attrs = term.op.attr_dict(term)
    if term.op in MOVES or term.op is iota_op:
        return _view(term, args, attrs)
    if name == "cast":
        return _cast(f, args[0], term.args[0].dtype, np.dtype(attrs["dtype"]))
    if name == "power":
        return _power(f, args[0], args[1], term.args[1])
    if name == "where" and not _is_bool(term.args[0].dtype):
        args[0] = _nonzero(f, args[0])
    table = LOGIC if _is_bool(term.args[0].dtype if term.args else term.dtype) else REAL
    meaning = table.get(name)
    if meaning is None or (name in _OF_FLOATS and not is_float(term.dtype)):
        return _unknown(f, name, term, args, attrs)
    return meaning(f, *args, **attrs)


def _is_bool(dtype: DType) -> bool:
    return not isinstance(dtype, Weak) and dtype == BOOL


_OF_FLOATS = frozenset(["reciprocal"])
"""Ops that round in integers."""


def _view(
    term: Term, args: Sequence[FieldArray], attrs: Mapping[str, Any]
) -> FieldArray:
    assert isinstance(term.op, Op)
    if term.op is iota_op:
        (n,) = attrs["shape"]
        return FieldArray(
            np.arange(n).astype(object), QuotientBound(0, 0, n.bit_length())
        )
    arrays: list[Array] = [a.array for a in args]
    if term.op is take_op:
        if term.args[1].op is not CONSTANT:
            raise Unprovable("indices that are not known")
        held: Any = term.args[1].attrs[0]
        arrays[1] = term.graph.arrays[held]
    size = QuotientBound()
    for a in args:
        size = size | a.size
    return FieldArray(as_objects(term.op.reference(*arrays, **attrs)), size)


def _unknown(
    f: Field,
    name: str,
    term: Term,
    args: Sequence[FieldArray],
    attrs: Mapping[str, Any],
) -> FieldArray:
    """An op as an uninterpreted function: of elements, or of rows."""
    assert isinstance(term.op, Op)
    label = f"{name} {sorted(attrs.items())} {term.dtype}"
    if term.op.kind == "pointwise":
        if term.op.commutative:
            return f.apply(label, args[0], lambda *v: tuple(sorted(v)), *args[1:])
        return f.function(label, *args)
    raise Unprovable(f"no meaning of {name}")


# -- functions of one element ----------------------------------------------------------


def _cast(f: Field, x: FieldArray, old: DType, new: np.dtype[Any]) -> FieldArray:
    if new == BOOL:
        return x if _is_bool(old) else _nonzero(f, x)
    if is_float(new) or _is_bool(old):
        return x
    return f.function(f"cast {new}", x)


def _zero(f: Field, x: FieldArray) -> FieldArray:
    """1 where x = 0, else 0."""
    return _known_at_zero(x, f.even("zero", x), 1)


def _known_at_zero(x: FieldArray, found: FieldArray, value: int) -> FieldArray:
    return FieldArray(np.where(x.array == 0, value, found.array), found.size)


def _nonzero(f: Field, x: FieldArray) -> FieldArray:
    return _not(f, _zero(f, x))


def _power(f: Field, x: FieldArray, y: FieldArray, exponent: Term) -> FieldArray:
    n: Any = exponent.attrs[0] if exponent.op is SCALAR else None
    if n is not None and abs(n) <= MOST_POWER and 2 * n == int(2 * n):
        if n == int(n):
            return f.power(x, int(n))
        return f.power(_sqrt(f, x), int(2 * n))
    return f.function("power", x, y)


def _sqrt(f: Field, x: FieldArray) -> FieldArray:
    return f.function("sqrt", x)


def _reciprocal(f: Field, x: FieldArray) -> FieldArray:
    return f.divide(f.number(1), x)


def _sigmoid(f: Field, x: FieldArray) -> FieldArray:
    return _reciprocal(f, f.add(f.number(1), f.exp(f.negative(x))))


def _tanh(f: Field, x: FieldArray) -> FieldArray:
    e = f.exp(f.multiply(f.number(-2), x))
    return f.divide(f.subtract(f.number(1), e), f.add(f.number(1), e))


def _hyperbolic(sign: int) -> Meaning:
    def meaning(f: Field, x: FieldArray) -> FieldArray:
        minus = f.multiply(f.number(sign), f.exp(f.negative(x)))
        return f.multiply(f.number(0.5), f.add(f.exp(x), minus))

    return meaning


def _logarithm(base: str) -> Meaning:
    return lambda f, x: f.divide(f.log(x), f.named(base))


def _negative_part(f: Field, x: FieldArray) -> FieldArray:
    """1 where x < 0, else 0."""
    return _known_at_zero(x, f.function("less than 0", x), 0)


def _equal(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    return _zero(f, f.subtract(x, y))


def _not(f: Field, x: FieldArray) -> FieldArray:
    return f.subtract(f.number(1), x)


def _truth(value: int) -> Meaning:
    def meaning(f: Field, x: FieldArray) -> FieldArray:
        made = f.number(value)
        return FieldArray(np.full(x.array.shape, made.array.item(), object), made.size)

    return meaning


# -- functions of several --------------------------------------------------------------


def _larger(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    """The larger of two, as the maximum of a row of two."""
    pair = np.stack(np.broadcast_arrays(x.array, y.array, subok=False), -1)
    found = f.largest(FieldArray(pair, x.size | y.size), (-1,))
    return FieldArray(found.array[..., 0], found.size)


def _smaller(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    return f.negative(_larger(f, f.negative(x), f.negative(y)))


def _where(f: Field, chosen: FieldArray, x: FieldArray, y: FieldArray) -> FieldArray:
    one = f.multiply(chosen, x)
    return f.add(one, f.multiply(_not(f, chosen), y))


def _or(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    return f.subtract(f.add(x, y), f.multiply(x, y))


def _xor(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    both = f.multiply(f.number(2), f.multiply(x, y))
    return f.subtract(f.add(x, y), both)


def _mean(f: Field, x: FieldArray, axis: Sequence[int]) -> FieldArray:
    n = int(np.prod([x.array.shape[a] for a in axis], dtype=int))
    return f.divide(f.sum(x, axis), f.number(n))


def _prod(f: Field, x: FieldArray, axis: Sequence[int]) -> FieldArray:
    n = int(np.prod([x.array.shape[a] for a in axis], dtype=int))
    whole = np.multiply.reduce(x.array, axis=tuple(axis), keepdims=True)
    return FieldArray(as_objects(whole % f.p), x.size.power(n))


def _smallest(f: Field, x: FieldArray, axis: Sequence[int]) -> FieldArray:
    return f.negative(f.largest(f.negative(x), axis))


def _matmul(f: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    found = np.matmul(x.array, y.array) % f.p
    return FieldArray(found, (x.size * y.size).total(x.array.shape[-1]))


def _conv2d(
    f: Field, x: FieldArray, w: FieldArray, padding: Sequence[int], **attrs: Any
) -> FieldArray:
    # np.pad puts int64 zeros into an array of objects, which overflow.
    by = tuple(padding)
    padded = Op.registry["pad"].reference(x.array, 0, low=by, high=by)
    conv2d = Op.registry["conv2d"].reference
    found = conv2d(padded, w.array, padding=(0, 0), **attrs) % f.p
    n = int(np.prod(w.array.shape[1:], dtype=int))
    return FieldArray(found, (x.size * w.size).total(n))


def _position(name: str, sign: int) -> Meaning:
    def meaning(f: Field, x: FieldArray, axis: Sequence[int]) -> FieldArray:
        x = x if sign > 0 else f.negative(x)
        (a,) = axis
        rows = np.moveaxis(x.array, a, -1)
        found = np.empty(rows.shape[:-1], object)
        flat = rows.reshape(-1, rows.shape[-1]).tolist()
        for i, row in enumerate(flat):
            found.flat[i] = f.free.residue(name, tuple(row))
        f.free.feed(name, x.array.size, x.size)
        return FieldArray(np.expand_dims(found, a), ATOM)

    return meaning


def _method(name: str) -> Meaning:
    return lambda f, *args, **attrs: getattr(f, name)(*args, **attrs)


REAL: dict[str, Meaning] = {
    "add": _method("add"),
    "subtract": _method("subtract"),
    "multiply": _method("multiply"),
    "divide": _method("divide"),
    "negative": _method("negative"),
    "square": lambda f, x: f.power(x, 2),
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "rsqrt": lambda f, x: _reciprocal(f, _sqrt(f, x)),
    "hypot": lambda f, x, y: _sqrt(f, f.add(f.power(x, 2), f.power(y, 2))),
    "absolute": lambda f, x: _sqrt(f, f.power(x, 2)),
    "exp": _method("exp"),
    "exp2": lambda f, x: f.exp(f.multiply(x, f.named("ln 2"))),
    "expm1": lambda f, x: f.subtract(f.exp(x), f.number(1)),
    "log": _method("log"),
    "log2": _logarithm("ln 2"),
    "log10": _logarithm("ln 10"),
    "log1p": lambda f, x: f.log(f.add(f.number(1), x)),
    "logaddexp": lambda f, x, y: f.log(f.add(f.exp(x), f.exp(y))),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "sinh": _hyperbolic(-1),
    "cosh": _hyperbolic(1),
    **{
        name: lambda f, x, name=name: f.odd(name, x)
        for name in "sin tan arcsin arctan arcsinh arctanh cbrt erf erfinv sign trunc "
        "rint".split()
    },
    "erfc": lambda f, x: f.subtract(f.number(1), f.odd("erf", x)),
    "cos": lambda f, x: f.even("cos", x),
    "ceil": lambda f, x: f.negative(f.function("floor", f.negative(x))),
    "floor": lambda f, x: f.function("floor", x),
    "maximum": _larger,
    "minimum": _smaller,
    "fmax": _larger,
    "fmin": _smaller,
    "less": lambda f, x, y: _negative_part(f, f.subtract(x, y)),
    "greater": lambda f, x, y: _negative_part(f, f.subtract(y, x)),
    "less_equal": lambda f, x, y: _not(f, _negative_part(f, f.subtract(y, x))),
    "greater_equal": lambda f, x, y: _not(f, _negative_part(f, f.subtract(x, y))),
    "equal": _equal,
    "not_equal": lambda f, x, y: _not(f, _equal(f, x, y)),
    "isfinite": _truth(1),
    "isnan": _truth(0),
    "isinf": _truth(0),
    "where": _where,
    "sum": _method("sum"),
    "mean": _mean,
    "prod": _prod,
    "max": _method("largest"),
    "min": _smallest,
    "argmax": _position("argmax", 1),
    "argmin": _position("argmax", -1),
    "matmul": _matmul,
    "conv2d": _conv2d,
}
"""Ops over numbers."""

LOGIC: dict[str, Meaning] = {
    "logical_not": _not,
    "invert": _not,
    "logical_and": _method("multiply"),
    "bitwise_and": _method("multiply"),
    "logical_or": _or,
    "bitwise_or": _or,
    "logical_xor": _xor,
    "bitwise_xor": _xor,
    "where": _where,
}
"""Ops over conditions."""
