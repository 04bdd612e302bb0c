"""Pointwise ops of integers: they wrap, and dividing by 0 gives 0, as in NumPy."""

from __future__ import annotations

from dataclasses import replace

from llvmlite import ir

from ..machine import I8, register_type, widened
from ..math import declared
from .op_call import Emit, OpCall, intrinsic


def floor_divide(c: OpCall) -> ir.Value:
    quotient, rest = divided(c)
    if c.is_unsigned:
        return quotient
    return c.b.select(_is_above(c, rest), c.b.sub(quotient, c.number(1)), quotient)


def remainder(c: OpCall) -> ir.Value:
    _, rest = divided(c)
    if c.is_unsigned:
        return rest
    return c.b.select(_is_above(c, rest), c.b.add(rest, c.args[1]), rest)


def _is_above(c: OpCall, rest: ir.Value) -> ir.Value:
    """Whether a quotient cut to an integer lies above the exact one: its rest is not 0,
    and its sign not that of the divisor."""
    b, y = c.b, c.args[1]
    off = b.and_(
        b.icmp_signed("!=", rest, c.number(0)),
        b.icmp_signed("<", b.xor(rest, y), c.number(0)),
    )
    return b.and_(off, b.icmp_signed("!=", y, c.number(0)))


def divided(c: OpCall) -> tuple[ir.Value, ir.Value]:
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


def shift(name: str) -> Emit:
    """Shifts by the width or more, or by a negative count, as NumPy: all bits go."""

    def emit_shift(c: OpCall) -> ir.Value:
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


def absolute(c: OpCall) -> ir.Value:
    (x,) = c.args
    if c.is_unsigned:
        return x
    return c.b.select(c.b.icmp_signed("<", x, c.number(0)), c.b.neg(x), x)


def bitwise_count(c: OpCall) -> ir.Value:
    """Ones of the magnitude, as uint8."""
    count = intrinsic("ctpop")(replace(c, args=[absolute(c)]))
    to = widened(I8, c.lanes)
    return count if count.type == to else c.b.trunc(count, to)


def power(c: OpCall) -> ir.Value:
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


def _fixed_power(c: OpCall, exponent: int) -> ir.Value:
    power, square = None, c.args[0]
    while exponent:
        if exponent & 1:
            power = square if power is None else c.b.mul(power, square)
        exponent >>= 1
        if exponent:
            square = c.b.mul(square, square)
    return c.number(1) if power is None else power
