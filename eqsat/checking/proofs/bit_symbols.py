"""Symbolic execution of elements: when two sides are the same bits for all values.

Both sides of a case are computed over arrays of symbols, a symbol an element. A view
moves symbols. Every other op makes a symbol of the op and of its operands' symbols; two
are one where the facts below say so. Where each element of both sides is one symbol,
the sides are the same bits for all values, NaN counting as one number and the sign of
zero counting. A reduction is a function of its elements in their order.

Facts, for the dtypes named:

- floats and integers: x y = y x, x + y = y + x, -x = x (-1), x - y = x + (-y),
  -(-x) = x, (-x) y = -(x y), x 1 = x, x² = x x, x + x = 2 x;
- floats: x + (-0) = x, (-x) / y = x / (-y) = -(x / y), x / 1 = x, \\|-x\\| = \\|x\\|,
  1 / x = reciprocal(x), x / 2ᵏ = x 2⁻ᵏ for \\|k\\| ≤ 14 (2ᵏ and 2⁻ᵏ are numbers of
  every floating dtype);
- comparisons: x < y = y > x, x ≤ y = y ≥ x, x = y = (y = x), not (x = y) = (x ≠ y);
- bools and bits: and, or, xor commute and associate, x and x = x or x = x, not not x =
  x;
- where(c, x, x) = x, where(not c, x, y) = where(c, y, x) for bool c;
- a cast that loses nothing, and back, is nothing.

IEEE 754-2019, §§5.4, 6.2, 6.3; the facts of zero and of NaN are tested bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.ops import MOVES, iota_op, take_op
from eqsat.rulelang import Expr
from eqsat.support import Array
from eqsat.terms import (
    BF16,
    BOOL,
    CONSTANT,
    HALF,
    INPUT,
    SCALAR,
    DType,
    Op,
    Term,
    Weak,
    is_float,
    postorder,
)

Key = tuple[Any, ...]
COMMUTE = frozenset(
    "add multiply equal not_equal logical_and logical_or logical_xor bitwise_and "
    "bitwise_or bitwise_xor".split()
)
BITS = {
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
    "logical_xor": "xor",
    "bitwise_xor": "xor",
}
STRICT = frozenset(
    "expression minus cast-float add subtract multiply divide negative square sqrt "
    "reciprocal rsqrt absolute exp exp2 expm1 log log2 log10 log1p sigmoid tanh sinh "
    "cosh sin cos tan arcsin arccos arctan arcsinh arccosh arctanh cbrt erf erfc floor "
    "ceil trunc rint sign maximum minimum logaddexp logaddexp2 deg2rad rad2deg degrees "
    "radians sum mean prod max min dot window".split()
)
"""Ops whose result is NaN wherever an operand is, whatever the others are."""


@dataclass
class Symbols:
    """Symbols by number; each has a key, made of an op and of other symbols. Integers
    in a key are symbols; what else an op is told is text."""

    keys: list[Key] = field(default_factory=list)
    known: dict[Key, int] = field(default_factory=dict)

    def of(self, *key: Any) -> int:
        """The symbol of ``key``."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = len(self.keys)
            self.keys.append(key)
        return found

    def number(self, value: float) -> int:
        """The symbol of a number; -0 is another than 0."""
        v = value if abs(value) > 2**53 else float(value)  # integers of 64 bits
        return self.of("number", v, math.copysign(1, v)) if v == v else self.of("NaN")

    def value(self, s: int) -> float | None:
        """The number that a symbol is, if it is one."""
        key = self.keys[s]
        return key[1] if key[0] == "number" else None

    # -- arithmetic --------------------------------------------------------------------

    def negative(self, x: int) -> int:
        """-x."""
        key = self.keys[x]
        if key[0] == "number":
            return self.number(-key[1])
        return int(key[1]) if key[0] == "minus" else self.of("minus", x)

    def sign(self, x: int) -> tuple[bool, int]:
        """Whether ``x`` is the negative of another symbol, and that one."""
        key = self.keys[x]
        if key[0] == "minus":
            return True, key[1]
        v = self.value(x)
        if v is not None and math.copysign(1, v) < 0:
            return True, self.number(-v)
        return False, x

    def signed(self, minus: bool, x: int) -> int:
        return self.negative(x) if minus else x

    def add(self, x: int, y: int, floats: bool) -> int:
        """x + y."""
        if floats:
            for a, b in ((x, y), (y, x)):
                if self.value(a) == 0 and self.sign(a)[0]:
                    return b
        if x == y:
            return self.multiply(x, self.number(2), floats)
        return self.of("add", *sorted((x, y)))

    def multiply(self, x: int, y: int, floats: bool) -> int:
        """x y."""
        (a, x), (b, y) = self.sign(x), self.sign(y)
        if self.value(x) == 1 or self.value(y) == 1:
            found = y if self.value(x) == 1 else x
        else:
            found = self.of("multiply", *sorted((x, y)))
        return self.signed(a != b, found)

    def divide(self, x: int, y: int) -> int:
        """x / y of floats."""
        (a, x), (b, y) = self.sign(x), self.sign(y)
        v = self.value(y)
        if v is not None and v and abs(math.log2(v)) in range(15):
            return self.signed(a != b, self.multiply(x, self.number(1 / v), True))
        return self.signed(a != b, self.of("divide", x, y))

    def invert(self, x: int) -> int:
        """not x."""
        key = self.keys[x]
        if key[0] == "not":
            return int(key[1])
        opposite = {"equal": "not_equal", "not_equal": "equal"}.get(key[0])
        return self.of(opposite, *key[1:]) if opposite else self.of("not", x)

    def bits(self, name: str, *args: int) -> int:
        """and, or, xor of bits."""
        flat: list[int] = []
        for a in args:
            key = self.keys[a]
            flat += key[1:] if key[0] == name else (a,)
        held = sorted(flat) if name == "xor" else sorted({*flat})
        return held[0] if len(held) == 1 else self.of(name, *held)

    def where(self, c: int, x: int, y: int) -> int:
        """x where c, else y."""
        if x == y:
            return x
        key = self.keys[c]
        return (
            self.where(key[1], y, x) if key[0] == "not" else self.of("where", c, x, y)
        )

    def expression(self, e: Expr | float) -> int:
        """A number made of parameters, which is computed in float64."""
        if not isinstance(e, Expr):
            return self.number(e)
        if not e.args:
            return self.of("size" if e.kind == "int" else "parameter", e.head)
        a, b = (self.expression(x) for x in e.args if not isinstance(x, tuple))
        if e.head == "-" and e.args[0] == 0:
            return self.negative(b)
        return self.of("expression", e.head, a, b)


# -- terms -----------------------------------------------------------------------------


def symbols_of(
    roots: Sequence[Term], s: Symbols, leaves: Mapping[Term, Array] | None = None
) -> list[Array]:
    """Arrays of symbols, one for each of ``roots``, terms without composites."""
    values: dict[Term, Array] = dict(leaves or {})
    for term in postorder(roots):
        if term not in values:
            values[term] = np.asarray(_value(term, values, s), np.int64)
    return [values[t] for t in roots]


def _value(term: Term, values: Mapping[Term, Array], s: Symbols) -> Any:
    held: Any = term.attrs[0] if term.attrs else None
    if term.op is SCALAR:
        return s.number(held)
    if term.op is CONSTANT:
        array = term.graph.arrays[held]
        if array.dtype.kind in "biu":
            flat = [s.number(int(v)) for v in array.ravel().tolist()]
        else:
            flat = [s.number(v) for v in array.astype(float).ravel().tolist()]
        return np.reshape(np.array(flat, np.int64), array.shape)
    if term.op is INPUT:
        flat = [s.of("input", held, i) for i in range(term.size)]
        return np.reshape(np.array(flat, np.int64), term.shape)
    assert isinstance(term.op, Op)
    args = [values[a] for a in term.args]
    if term.op in MOVES and not (
        term.op is take_op and term.args[1].op is not CONSTANT
    ):
        if term.op is take_op:
            place: Any = term.args[1].attrs[0]
            args[1] = term.graph.arrays[place]
        return term.op.reference(*args, **term.op.attr_dict(term))
    if term.op is iota_op:
        return [s.number(i) for i in range(term.size)]
    if term.op.kind == "pointwise":
        return _pointwise(term, args, s)
    if term.op.kind == "reduce":
        return _reduced(term, args[0], s)
    if term.op.name == "matmul":
        return _product(args[0], args[1], s)
    if term.op.name == "conv2d":
        x, w = args
        return _convolution(x, w, s, **term.op.attr_dict(term))
    whole = tuple(v for a in args for v in a.ravel().tolist())
    types = [(str(a.dtype), a.shape) for a in term.args]
    label = (term.op.name, f"{term.attrs} {types}")
    found = [s.of(*label, str(i), whole) for i in range(term.size)]
    return np.reshape(np.array(found, np.int64), term.shape)


def _pointwise(term: Term, args: Sequence[Array], s: Symbols) -> Array:
    combine = _combine(term, s)
    wide = np.broadcast_arrays(*args)
    flat = [
        combine(*row) for row in zip(*(a.ravel().tolist() for a in wide), strict=True)
    ]
    return np.reshape(np.array(flat, np.int64), term.shape)


def _combine(term: Term, s: Symbols) -> Callable[..., int]:
    assert isinstance(term.op, Op)
    name, dtypes = term.op.name, [a.dtype for a in term.args]
    floats = is_float(term.dtype)
    same = all(isinstance(d, Weak) or d == term.dtype for d in dtypes)
    bool_ = all(d == BOOL for d in dtypes)
    if name == "cast":
        return _cast(dtypes[0], np.dtype(str(term.attrs[0])), s)
    if term.dtype in HALF and same and name in STRICT - MOVING:
        return _in_single(term, s)
    if same and not bool_ and name in ARITHMETIC:
        return ARITHMETIC[name](s, floats)
    if same and floats and name in ("divide", "reciprocal", "absolute"):
        return FLOATING[name](s, floats)
    if name in GREATER:
        turned = (GREATER[name], *(() if same else map(str, reversed(dtypes))))
        return lambda x, y: s.of(*turned, y, x)
    if name in BITS and (bool_ or name.startswith("bitwise")) and same:
        return lambda *x: s.bits(BITS[name], *x)
    if name == "invert" or (name == "logical_not" and bool_):
        return s.invert
    if name == "where" and dtypes[0] == BOOL and _same_but_first(term):
        return s.where
    label = (name, *_key_attrs(term), *(() if same else map(str, dtypes)))
    if name in COMMUTE:
        return lambda x, y: s.of(*label, *sorted((x, y)))
    return lambda *x: s.of(*label, *x)


GREATER = {"greater": "less", "greater_equal": "less_equal"}
MOVING = frozenset(["maximum", "minimum"])
"""Ops that give one of their operands."""


def _in_single(term: Term, s: Symbols) -> Callable[..., int]:
    """An op of half precision: computed in float32, and rounded once."""
    assert isinstance(term.op, Op) and not isinstance(term.dtype, Weak)
    name, half, single = term.op.name, term.dtype, np.dtype("f4")
    table: Any = ARITHMETIC.get(name) or FLOATING.get(name)
    inner = table(s, True) if table else lambda *x: s.of(name, *x)

    widen = _cast(half, single, s)

    def up(x: int) -> int:
        v = s.value(x)
        if v is not None and v == float(np.asarray(v, half)):
            return x
        return widen(x)

    down = _cast(single, half, s)
    return lambda *x: down(inner(*map(up, x)))


def _same_but_first(term: Term) -> bool:
    """Whether all arguments but the first have the dtype of the result."""
    return all(
        isinstance(a.dtype, Weak) or a.dtype == term.dtype for a in term.args[1:]
    )


def _key_attrs(term: Term) -> tuple[Any, ...]:
    return (str(term.attrs),) if term.attrs else ()


def _cast(old: DType, new: np.dtype[Any], s: Symbols) -> Callable[[int], int]:
    if old == new:
        return lambda x: x
    kind = "cast-float" if is_float(old) and is_float(new) else "cast"
    assert not isinstance(new, Weak)

    def cast(x: int) -> int:
        minus, x = s.sign(x) if kind == "cast-float" else (False, x)
        key = s.keys[x]
        back = key[0] == kind and key[2] == new and _keeps(new, old)
        return s.signed(minus, int(key[1]) if back else s.of(kind, x, old, new))

    return cast


def _keeps(narrow: np.dtype[Any], wide: DType) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``."""
    if isinstance(wide, Weak):
        return False
    if BF16 in (narrow, wide):
        return narrow in (BF16, BOOL) and wide in (np.dtype("f4"), np.dtype("f8"), BF16)
    long = narrow.kind in "iu" and narrow.itemsize == 8  # NumPy calls float64 safe
    return bool(np.can_cast(narrow, wide, "safe")) and not (long and wide.kind == "f")


ARITHMETIC: dict[str, Callable[[Symbols, bool], Callable[..., int]]] = {
    "add": lambda s, f: lambda x, y: s.add(x, y, f),
    "subtract": lambda s, f: lambda x, y: s.add(x, s.negative(y), f),
    "multiply": lambda s, f: lambda x, y: s.multiply(x, y, f),
    "square": lambda s, f: lambda x: s.multiply(x, x, f),
    "negative": lambda s, f: s.negative,
}
FLOATING: dict[str, Callable[[Symbols, bool], Callable[..., int]]] = {
    "divide": lambda s, f: s.divide,
    "reciprocal": lambda s, f: lambda x: s.divide(s.number(1), x),
    "absolute": lambda s, f: lambda x: s.of("absolute", s.sign(x)[1]),
}


def _reduced(term: Term, x: Array, s: Symbols) -> Array:
    assert isinstance(term.op, Op)
    attrs = term.op.attr_dict(term)
    axes = tuple(sorted(a % x.ndim for a in attrs.get("axis", ())))
    kept = [a for a in range(x.ndim) if a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    flat = np.transpose(x, (*kept, *axes)).reshape(-1 if count else term.size, count)
    label = (term.op.name, *([str(x.shape)] if len(axes) != 1 else []))
    label = (*label, str(term.args[0].dtype)) if term.op.name in _INDICES else label
    found = [s.of(label[0], tuple(row), *label[1:]) for row in flat.tolist()]
    return np.reshape(np.array(found, np.int64), term.shape)


_INDICES = ("argmax", "argmin", "sum", "mean", "prod", "any", "all")


def _product(x: Array, y: Array, s: Symbols) -> Array:
    """Each element of a product is a function of a row and a column."""
    shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    left = np.broadcast_to(x, (*shape, *x.shape[-2:]))
    right = np.broadcast_to(y.mT, (*shape, *y.mT.shape[-2:]))
    found = np.empty((*shape, x.shape[-2], y.shape[-1]), np.int64)
    for at in np.ndindex(found.shape):
        row, column = left[at[:-1]].tolist(), right[(*at[:-2], at[-1])].tolist()
        found[at] = s.of("dot", (*row, *column))
    return found


def _convolution(
    x: Array,
    w: Array,
    s: Symbols,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """Each element is a function of a window and a kernel."""
    b, _, h, v = x.shape
    o, j, p, q = w.shape
    ends = [(0, 0), (0, 0), *((n, n) for n in padding)]
    padded = np.pad(x, ends, constant_values=s.number(0))
    rows = (h + 2 * padding[0] - dilation[0] * (p - 1) - 1) // stride[0] + 1
    columns = (v + 2 * padding[1] - dilation[1] * (q - 1) - 1) // stride[1] + 1
    found = np.empty((b, o, max(rows, 0), max(columns, 0)), np.int64)
    for n, c, r, k in np.ndindex(found.shape):
        first = c // (o // groups) * j
        top, left = r * stride[0], k * stride[1]
        window = padded[
            n,
            first : first + j,
            top : top + dilation[0] * (p - 1) + 1 : dilation[0],
            left : left + dilation[1] * (q - 1) + 1 : dilation[1],
        ]
        found[n, c, r, k] = s.of(
            "window", (*window.ravel().tolist(), *w[c].ravel().tolist())
        )
    return found
