"""Pointwise ops as LLVM instructions, over scalars and vectors alike.

Integers wrap; dividing by 0 gives 0, as NumPy does. Floats keep NaN, infinities and
signed zeros: no instruction carries a fast-math flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from eqsat.typerule import BF16

from ..kernels.affine import Unsupported
from ..kernels.language import DType
from .convert import (
    I1,
    I8,
    constant,
    from_memory,
    lanes_of,
    register_type,
    to_memory,
    widened,
)
from .machine import Host
from .math import FUNCTIONS
from .math import Host as MathHost
from .math.values import declared

Emit = Callable[["Call"], ir.Value]


class Call:
    """One op to be written: its values, their dtype, and the dtype of the result."""

    def __init__(
        self,
        b: ir.IRBuilder,
        op: str,
        args: Sequence[ir.Value],
        of: DType,
        dtype: DType,
        host: Host,
    ) -> None:
        self.b, self.op, self.args, self.of, self.dtype = b, op, args, of, dtype
        self.host = host

    @property
    def lanes(self) -> int:
        return max(map(lanes_of, self.args))

    @property
    def is_float(self) -> bool:
        return self.of.kind == "f"

    @property
    def is_unsigned(self) -> bool:
        return self.of.kind in "ub"

    def number(self, value: float) -> ir.Constant:
        """A constant of the dtype of the arguments."""
        return constant(register_type(self.of), self.lanes, value)


def is_supported(op: str, of: DType, dtype: DType) -> bool:
    """Whether ``op`` of values of dtype ``of`` has code here."""
    if op.startswith("round_"):
        return True
    if op == "cast":
        return all(d.kind in "biuf" for d in (of, dtype))
    return _rule(op, of) is not None


def emit(
    b: ir.IRBuilder,
    op: str,
    args: Sequence[ir.Value],
    of: DType,
    dtype: DType,
    host: Host,
) -> ir.Value:
    """``op`` over ``args`` of dtype ``of``. Raises :class:`Unsupported`."""
    call = Call(b, op, args, of, dtype, host)
    if op.startswith("round_"):
        half = np.dtype(np.float16) if op == "round_float16" else BF16
        bits = to_memory(b, args[0], half, host)
        return from_memory(b, bits, half, host)
    if op == "cast":
        return _cast(call)
    rule = _rule(op, of)
    if rule is None:
        raise Unsupported(f"{op} of {of}")
    return rule(call)


def _rule(op: str, of: DType) -> Emit | None:
    kind = "f" if of.kind == "f" else "b" if of == np.dtype(bool) else "i"
    found = _RULES.get((op, kind))
    if found is None and kind == "f" and op in FUNCTIONS:
        return _function
    return found


def _function(c: Call) -> ir.Value:
    return _written(c, c.op)


def _power(c: Call) -> ir.Value:
    return _written(c, "power")


def _written(c: Call, op: str) -> ir.Value:
    """A call of a function that LLVM inlines: written once, however often it is used,
    since writing an exponential takes longer than compiling it."""
    kind = c.args[0].type
    name = f"{op}.{c.lanes}x{register_type(c.of)}"
    fn = declared(c.b, name, [kind] * len(c.args), kind)
    if fn.is_declaration:
        flags = c.host.flags
        host = MathHost(
            c.host.has_fma,
            c.host.is_arm or "sse4.1" in flags,
            not c.host.is_arm and {"avx512f", "avx512vl"} <= flags,
        )
        fn.linkage = "internal"
        fn.attributes.add("alwaysinline")
        b = ir.IRBuilder(fn.append_basic_block())
        b.ret(FUNCTIONS[op](b, *fn.args, host))
    return c.b.call(fn, list(c.args))


def _intrinsic(name: str) -> Emit:
    def emit_call(c: Call) -> ir.Value:
        kind = c.args[0].type
        one = f"{'f' if c.is_float else 'i'}{8 * c.of.itemsize}"
        full = f"llvm.{name}.{one if c.lanes == 1 else f'v{c.lanes}{one}'}"
        return c.b.call(declared(c.b, full, [kind] * len(c.args), kind), list(c.args))

    return emit_call


def _cast(c: Call) -> ir.Value:
    (x,) = c.args
    b, lanes = c.b, c.lanes
    to = widened(register_type(c.dtype), lanes)
    if c.of == c.dtype:
        return x
    if c.dtype == np.dtype(bool):
        if c.is_float:
            return b.fcmp_unordered("!=", x, c.number(0.0))
        return b.icmp_unsigned("!=", x, c.number(0))
    if c.is_float and c.dtype.kind == "f":
        return b.fpext(x, to) if c.dtype.itemsize > c.of.itemsize else b.fptrunc(x, to)
    if c.is_float:
        return _to_integer(c, x, to)
    if c.dtype.kind == "f":
        return b.uitofp(x, to) if c.is_unsigned else b.sitofp(x, to)
    mine, theirs = register_type(c.of).width, register_type(c.dtype).width
    if theirs < mine:
        return b.trunc(x, to)
    if theirs == mine:
        return x
    return b.zext(x, to) if c.is_unsigned else b.sext(x, to)


def _to_integer(c: Call, x: ir.Value, to: Any) -> ir.Value:
    """As x86-64 converts: out of range is the smallest int64, cut to size."""
    b, lanes = c.b, c.lanes
    wide = ir.IntType(64) if c.dtype.itemsize == 8 else ir.IntType(32)
    if c.dtype.kind == "u" or c.dtype.itemsize == 8:
        wide = ir.IntType(64)
    limit = 2.0 ** (wide.width - 1)
    inside = b.and_(
        b.fcmp_ordered(">=", x, c.number(-limit)),
        b.fcmp_ordered("<", x, c.number(limit)),
    )
    safe = b.select(inside, x, c.number(0.0))
    got = b.fptosi(safe, widened(wide, lanes))
    least = constant(wide, lanes, -(1 << (wide.width - 1)))
    got = b.select(inside, got, least)
    if c.dtype.kind == "u" and c.dtype.itemsize == 8:
        high = b.fcmp_ordered(">=", x, c.number(limit))
        high = b.and_(high, b.fcmp_ordered("<", x, c.number(2 * limit)))
        rest = b.fptosi(
            b.select(high, b.fsub(x, c.number(limit)), c.number(0.0)),
            widened(wide, lanes),
        )
        got = b.select(high, b.xor(rest, least), got)
    return got if to == got.type else b.trunc(got, to)


def _instruction(name: str) -> Emit:
    return lambda c: getattr(c.b, name)(*c.args)


def _compare(sign: str) -> Emit:
    def emit_compare(c: Call) -> ir.Value:
        if c.is_float:
            fcmp = c.b.fcmp_unordered if sign == "!=" else c.b.fcmp_ordered
            return fcmp(sign, *c.args)
        icmp = c.b.icmp_unsigned if c.is_unsigned else c.b.icmp_signed
        return icmp(sign, *c.args)

    return emit_compare


def _select_by(sign: str) -> Emit:
    """The larger or smaller; NaN if one is."""

    def emit_select(c: Call) -> ir.Value:
        b, (x, y) = c.b, c.args
        if not c.is_float:
            icmp = b.icmp_unsigned if c.is_unsigned else b.icmp_signed
            return b.select(icmp(sign, x, y), x, y)
        if _is_number(x):
            x, y = y, x
        if _is_number(y):  # one instruction on x86, which gives NaN for a NaN in x
            return b.select(b.fcmp_ordered(sign, y, x), y, x)
        first = b.select(b.fcmp_ordered(sign, x, y), x, y)
        return b.select(b.fcmp_unordered("uno", x, x), x, first)

    return emit_select


def _is_number(value: ir.Value) -> bool:
    """Whether a value is a constant that is not NaN."""
    if not isinstance(value, ir.Constant):
        return False
    one = value.constant[0].constant if lanes_of(value) > 1 else value.constant
    return bool(one == one)


def _floor_divide(c: Call) -> ir.Value:
    quotient, rest = _divided(c)
    if c.is_unsigned:
        return quotient
    return c.b.select(_is_above(c, rest), c.b.sub(quotient, c.number(1)), quotient)


def _remainder(c: Call) -> ir.Value:
    _, rest = _divided(c)
    if c.is_unsigned:
        return rest
    return c.b.select(_is_above(c, rest), c.b.add(rest, c.args[1]), rest)


def _is_above(c: Call, rest: ir.Value) -> ir.Value:
    """Whether a quotient cut to an integer lies above the exact one: its rest is not 0,
    and its sign not that of the divisor."""
    b, y = c.b, c.args[1]
    off = b.and_(
        b.icmp_signed("!=", rest, c.number(0)),
        b.icmp_signed("<", b.xor(rest, y), c.number(0)),
    )
    return b.and_(off, b.icmp_signed("!=", y, c.number(0)))


def _divided(c: Call) -> tuple[ir.Value, ir.Value]:
    """Quotient and rest, both 0 of division by 0. The least number by -1 wraps."""
    b, (x, y) = c.b, c.args
    zero = b.icmp_signed("==", y, c.number(0))
    safe = b.select(zero, c.number(1), y)
    if c.is_unsigned:
        q, r = b.udiv(x, safe), b.urem(x, safe)
    else:
        minus = b.icmp_signed("==", y, c.number(-1))
        safe = b.select(minus, c.number(1), safe)
        q = b.sdiv(x, safe)
        q = b.select(minus, b.neg(x), q)
        r = b.select(minus, c.number(0), b.srem(x, safe))
    return b.select(zero, c.number(0), q), b.select(zero, c.number(0), r)


def _shift(name: str) -> Emit:
    """Shifts by the width or more, or by a negative count, as NumPy: all bits go."""

    def emit_shift(c: Call) -> ir.Value:
        b, (x, y) = c.b, c.args
        width = register_type(c.of).width
        far = b.icmp_unsigned(">=", y, c.number(width))
        near = b.select(far, c.number(0), y)
        if name == "left":
            return b.select(far, c.number(0), b.shl(x, near))
        if c.is_unsigned:
            return b.select(far, c.number(0), b.lshr(x, near))
        return b.select(far, b.ashr(x, c.number(width - 1)), b.ashr(x, near))

    return emit_shift


def _absolute(c: Call) -> ir.Value:
    (x,) = c.args
    if c.is_unsigned:
        return x
    return c.b.select(c.b.icmp_signed("<", x, c.number(0)), c.b.neg(x), x)


def _sign(c: Call) -> ir.Value:
    b, (x,) = c.b, c.args
    if c.is_float:
        up = b.select(b.fcmp_ordered(">", x, c.number(0.0)), c.number(1.0), x)
        down = b.select(b.fcmp_ordered("<", x, c.number(0.0)), c.number(-1.0), up)
        return b.select(b.fcmp_ordered("==", x, c.number(0.0)), c.number(0.0), down)
    over = b.select(b.icmp_unsigned("!=", x, c.number(0)), c.number(1), c.number(0))
    if c.is_unsigned:
        return over
    return b.select(b.icmp_signed("<", x, c.number(0)), c.number(-1), over)


def _where(c: Call) -> ir.Value:
    return c.b.select(*c.args)


def _truth(c: Call, x: ir.Value) -> ir.Value:
    if c.of == np.dtype(bool):
        return x
    if c.is_float:
        return c.b.fcmp_unordered("!=", x, c.number(0.0))
    return c.b.icmp_unsigned("!=", x, c.number(0))


def _logical(name: str) -> Emit:
    def emit_logical(c: Call) -> ir.Value:
        x, y = (_truth(c, a) for a in c.args)
        return getattr(c.b, name)(x, y)

    return emit_logical


def _divisor_scale(c: Call) -> ir.Value:
    """A power of two that takes the magnitude of a number to [½, 1); of 0, ∞ and NaN
    it is 1, and of denormals as much as keeps them below 1."""
    b, fraction = c.b, 52 if c.of.itemsize == 8 else 23
    bits, bias = 8 * c.of.itemsize, 1023 if c.of.itemsize == 8 else 127
    kind = ir.IntType(bits)

    def number(n: int) -> ir.Constant:
        return constant(kind, c.lanes, n)

    (x,) = c.args
    size = b.and_(b.bitcast(x, widened(kind, c.lanes)), number((1 << bits - 1) - 1))
    e = b.lshr(size, number(fraction))
    scale = b.shl(b.sub(number(2 * bias - 1), e), number(fraction))
    for field, denormal in ((2 * bias - 1, 1), (2 * bias, 2)):
        least = number(1 << fraction - denormal)
        scale = b.select(b.icmp_unsigned("==", e, number(field)), least, scale)
    small = number((2 * bias - 1) << fraction)
    scale = b.select(b.icmp_unsigned("==", e, number(0)), small, scale)
    special = b.or_(
        b.icmp_unsigned("==", size, number(0)),
        b.icmp_unsigned("==", e, number(2 * bias + 1)),
    )
    scale = b.select(special, number(bias << fraction), scale)
    return b.bitcast(scale, widened(register_type(c.of), c.lanes))


def _reciprocal(c: Call) -> ir.Value:
    return c.b.fdiv(c.number(1.0), c.args[0])


def _times(above: float, below: float) -> Emit:
    """Times a fraction, which is rounded to the dtype as NumPy rounds it."""

    def emit_times(c: Call) -> ir.Value:
        factor = float(c.of.type(above) / c.of.type(below))
        return c.b.fmul(c.args[0], c.number(factor))

    return emit_times


def _heaviside(c: Call) -> ir.Value:
    b, (x, y) = c.b, c.args
    side = b.select(b.fcmp_ordered("<", x, c.number(0.0)), c.number(0.0), c.number(1.0))
    at = b.select(b.fcmp_ordered("==", x, c.number(0.0)), y, side)
    return b.select(b.fcmp_unordered("uno", x, x), x, at)


def _bitwise_count(c: Call) -> ir.Value:
    """Ones of the magnitude, as uint8."""
    size = Call(c.b, c.op, [_absolute(c)], c.of, c.dtype, c.host)
    count = _intrinsic("ctpop")(size)
    to = widened(I8, c.lanes)
    return count if count.type == to else c.b.trunc(count, to)


def _integer_power(c: Call) -> ir.Value:
    """By repeated squares, wrapping; exponents are not negative."""
    x, y = c.args
    if isinstance(y, ir.Constant):
        return _fixed_power(
            c, int(y.constant[0].constant if c.lanes > 1 else y.constant)
        )
    kind = widened(register_type(c.of), c.lanes)
    fn = declared(c.b, f"power.{c.lanes}x{register_type(c.of)}", [kind] * 2, kind)
    if fn.is_declaration:
        fn.linkage = "internal"
        first, head, body, done = (fn.append_basic_block() for _ in range(4))
        b = ir.IRBuilder(first)
        b.branch(head)
        b.position_at_end(head)
        power, square, left = (b.phi(kind) for _ in range(3))
        starts = (c.number(1), *fn.args)
        some = b.icmp_unsigned("!=", left, c.number(0))
        if c.lanes > 1:
            bits = ir.IntType(c.lanes)
            some = b.icmp_unsigned("!=", b.bitcast(some, bits), bits(0))
        b.cbranch(some, body, done)
        b.position_at_end(body)
        odd = b.icmp_unsigned("!=", b.and_(left, c.number(1)), c.number(0))
        turned = (
            b.select(odd, b.mul(power, square), power),
            b.mul(square, square),
            b.lshr(left, c.number(1)),
        )
        b.branch(head)
        for phi, start, new in zip((power, square, left), starts, turned, strict=True):
            phi.add_incoming(start, first)
            phi.add_incoming(new, body)
        b.position_at_end(done)
        b.ret(power)
    return c.b.call(fn, [x, y])


def _fixed_power(c: Call, exponent: int) -> ir.Value:
    power, square = None, c.args[0]
    while exponent:
        if exponent & 1:
            power = square if power is None else c.b.mul(power, square)
        exponent >>= 1
        if exponent:
            square = c.b.mul(square, square)
    return c.number(1) if power is None else power


def _square(c: Call) -> ir.Value:
    (x,) = c.args
    return c.b.fmul(x, x) if c.is_float else c.b.mul(x, x)


def _rules() -> dict[tuple[str, str], Emit]:
    rules: dict[tuple[str, str], Emit] = {}
    for op, kinds in {
        "add": {"f": "fadd", "i": "add", "b": "or_"},
        "subtract": {"f": "fsub", "i": "sub"},
        "multiply": {"f": "fmul", "i": "mul", "b": "and_"},
        "divide": {"f": "fdiv"},
        "negative": {"f": "fneg", "i": "neg"},
        "invert": {"i": "not_", "b": "not_"},
        "bitwise_and": {"i": "and_", "b": "and_"},
        "bitwise_or": {"i": "or_", "b": "or_"},
        "bitwise_xor": {"i": "xor", "b": "xor"},
    }.items():
        for kind, name in kinds.items():
            rules[op, kind] = _instruction(name)
    rules["absolute", "f"] = _intrinsic("fabs")
    rules["divisor_scale", "f"] = _divisor_scale
    rules["reciprocal", "f"] = _reciprocal
    rules["floor_divide", "i"] = _floor_divide
    rules["remainder", "i"] = _remainder
    rules["fmod", "i"] = lambda c: _divided(c)[1]
    rules["absolute", "i"] = _absolute
    rules["power", "i"] = _integer_power
    rules["absolute", "b"] = lambda c: c.args[0]
    rules["left_shift", "i"] = _shift("left")
    rules["right_shift", "i"] = _shift("right")
    rules["isnan", "f"] = lambda c: c.b.fcmp_unordered("uno", c.args[0], c.args[0])
    rules["isinf", "f"] = lambda c: c.b.fcmp_ordered(
        "==", _intrinsic("fabs")(c), c.number(float("inf"))
    )
    rules["isfinite", "f"] = lambda c: c.b.fcmp_ordered(
        "<", _intrinsic("fabs")(c), c.number(float("inf"))
    )
    rules["signbit", "f"] = _signbit
    for name in ("isnan", "isinf"):
        rules[name, "i"] = rules[name, "b"] = lambda c: constant(I1, c.lanes, 0)
    rules["isfinite", "i"] = lambda c: constant(I1, c.lanes, 1)
    rules["isfinite", "b"] = rules["isfinite", "i"]
    rules["float_power", "f"] = _power
    rules["heaviside", "f"] = _heaviside
    rules["bitwise_count", "i"] = _bitwise_count
    for name in ("degrees", "rad2deg"):
        rules[name, "f"] = _times(180, np.pi)
    for name in ("radians", "deg2rad"):
        rules[name, "f"] = _times(np.pi, 180)
    for kind in "fi":
        rules["sign", kind] = _sign
        rules["square", kind] = _square
    for name, sign in (("maximum", ">"), ("minimum", "<")):
        rules[name, "i"] = _select_by(sign)
        rules[name, "f"] = _select_by(sign)
        rules[name, "b"] = _logical("or_" if name == "maximum" else "and_")
        rules[f"f{name[:3]}", "i"] = _select_by(sign)
        rules[f"f{name[:3]}", "b"] = rules[name, "b"]
    for name, sign in (
        ("less", "<"),
        ("less_equal", "<="),
        ("greater", ">"),
        ("greater_equal", ">="),
        ("equal", "=="),
        ("not_equal", "!="),
    ):
        for kind in "fib":
            rules[name, kind] = _compare(sign)
    for kind in "fib":
        rules["where", kind] = _where
        rules["logical_and", kind] = _logical("and_")
        rules["logical_or", kind] = _logical("or_")
        rules["logical_xor", kind] = _logical("xor")
        rules["logical_not", kind] = lambda c: c.b.not_(_truth(c, c.args[0]))
    for name in ("floor", "ceil", "trunc", "rint"):
        rules[name, "i"] = rules[name, "b"] = lambda c: c.args[0]
    return rules


def _signbit(c: Call) -> ir.Value:
    bits = ir.IntType(8 * c.of.itemsize)
    as_int = c.b.bitcast(c.args[0], widened(bits, c.lanes))
    return c.b.icmp_signed("<", as_int, constant(bits, c.lanes, 0))


_RULES = _rules()
