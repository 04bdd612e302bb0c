"""Pointwise ops as LLVM instructions, over scalars and vectors alike.

Floats keep NaN, infinities and signed zeros: no instruction carries a fast-math flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from eqsat.terms import BF16, Op

from ...loop_ir import (
    Compute,
    DType,
    Unsupported,
)
from ..machine import (
    I1,
    I32,
    I64,
    Host,
    constant,
    from_memory,
    lanes_of,
    register_type,
    to_memory,
    widened,
)
from ..math import AVX512, WRITERS, declared
from ..math import MathTarget as MathHost
from . import integer_ops
from .op_call import Emit, OpCall, call_intrinsic, instruction, intrinsic


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
    call = OpCall(b, op, args, of, dtype, host)
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


def computed(
    b: ir.IRBuilder,
    s: Compute,
    args: Sequence[ir.Value],
    dtypes: Mapping[int, DType],
    host: Host,
    op: str = "",
) -> ir.Value:
    """What ``s`` computes of ``args``; ``op``: what stands in for its op."""
    of = dtypes[s.args[-1]]
    return emit(b, op or s.op, args, of, s.dtype, host)


def _rule(op: str, of: DType) -> Emit | None:
    kind = "f" if of.kind == "f" else "b" if of == np.dtype(bool) else "i"
    found = _RULES.get((op, kind))
    if found is not None or kind != "f":
        return found
    if op in WRITERS:
        return _function
    row = Op.registry.get(op)
    return None if row is None or row.scale is None else _scaled


def _function(c: OpCall, op: str = "") -> ir.Value:
    """A call of a function that LLVM inlines: written once, however often it is used,
    since writing an exponential takes longer than compiling it."""
    op, kind = op or c.op, c.args[0].type
    name = f"{op}.{c.lanes}x{register_type(c.of)}"
    fn = declared(c.b, name, [kind] * len(c.args), kind)
    if fn.is_declaration:
        flags = c.host.flags
        host = MathHost(
            c.host.has_fma,
            c.host.is_arm or "sse4.1" in flags,
            not c.host.is_arm and flags >= set(AVX512),
        )
        fn.linkage = "internal"
        fn.attributes.add("alwaysinline")
        b = ir.IRBuilder(fn.append_basic_block())
        b.ret(WRITERS[op](b, *fn.args, host))
    return c.b.call(fn, list(c.args))


def _cast(c: OpCall) -> ir.Value:
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


def _to_integer(c: OpCall, x: ir.Value, to: Any) -> ir.Value:
    """As x86-64 converts: out of range is the smallest int64, cut to size."""
    b, lanes = c.b, c.lanes
    wide = I64 if c.dtype.kind == "u" or c.dtype.itemsize == 8 else I32
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


def _compare(sign: str) -> Emit:
    def emit_compare(c: OpCall) -> ir.Value:
        if c.is_float:
            fcmp = c.b.fcmp_unordered if sign == "!=" else c.b.fcmp_ordered
            return fcmp(sign, *c.args)
        icmp = c.b.icmp_unsigned if c.is_unsigned else c.b.icmp_signed
        return icmp(sign, *c.args)

    return emit_compare


def _select_by(sign: str) -> Emit:
    """The larger or smaller; NaN if one is. LLVM makes three instructions of its own
    maximum, where either zero will do; of comparisons and choices it makes four."""

    def emit_select(c: OpCall) -> ir.Value:
        b, (x, y) = c.b, c.args
        if not c.is_float:
            icmp = b.icmp_unsigned if c.is_unsigned else b.icmp_signed
            return b.select(icmp(sign, x, y), x, y)
        if _is_number(x):
            x, y = y, x
        if _is_number(y):  # one instruction on x86, which gives NaN for a NaN in x
            return b.select(b.fcmp_ordered(sign, y, x), y, x)
        return call_intrinsic(c, "maximum" if sign == ">" else "minimum", ("nsz",))

    return emit_select


def _is_number(value: ir.Value) -> bool:
    """Whether a value is a constant that is not NaN."""
    if not isinstance(value, ir.Constant):
        return False
    one = value.constant[0].constant if lanes_of(value) > 1 else value.constant
    return bool(one == one)


def _sign(c: OpCall) -> ir.Value:
    b, (x,) = c.b, c.args
    if c.is_float:
        up = b.select(b.fcmp_ordered(">", x, c.number(0.0)), c.number(1.0), x)
        down = b.select(b.fcmp_ordered("<", x, c.number(0.0)), c.number(-1.0), up)
        return b.select(b.fcmp_ordered("==", x, c.number(0.0)), c.number(0.0), down)
    over = b.select(b.icmp_unsigned("!=", x, c.number(0)), c.number(1), c.number(0))
    if c.is_unsigned:
        return over
    return b.select(b.icmp_signed("<", x, c.number(0)), c.number(-1), over)


def _where(c: OpCall) -> ir.Value:
    return c.b.select(*c.args)


def _logical(name: str) -> Emit:
    return lambda c: getattr(c.b, name)(*c.args)


def _divisor_scale(c: OpCall) -> ir.Value:
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


def _reciprocal(c: OpCall) -> ir.Value:
    return c.b.fdiv(c.number(1.0), c.args[0])


def _scaled(c: OpCall) -> ir.Value:
    return c.b.fmul(c.args[0], c.number(Op.registry[c.op].factor(c.of)))


def _heaviside(c: OpCall) -> ir.Value:
    b, (x, y) = c.b, c.args
    side = b.select(b.fcmp_ordered("<", x, c.number(0.0)), c.number(0.0), c.number(1.0))
    at = b.select(b.fcmp_ordered("==", x, c.number(0.0)), y, side)
    return b.select(b.fcmp_unordered("uno", x, x), x, at)


def _square(c: OpCall) -> ir.Value:
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
            rules[op, kind] = instruction(name)
    rules["absolute", "f"] = intrinsic("fabs")
    rules["divisor_scale", "f"] = _divisor_scale
    rules["reciprocal", "f"] = _reciprocal
    rules["floor_divide", "i"] = integer_ops.floor_divide
    rules["remainder", "i"] = integer_ops.remainder
    rules["fmod", "i"] = lambda c: integer_ops.divided(c)[1]
    rules["absolute", "i"] = integer_ops.absolute
    rules["power", "i"] = integer_ops.power
    rules["absolute", "b"] = lambda c: c.args[0]
    rules["left_shift", "i"] = integer_ops.shift("left")
    rules["right_shift", "i"] = integer_ops.shift("right")
    rules["isnan", "f"] = lambda c: c.b.fcmp_unordered("uno", c.args[0], c.args[0])
    rules["isinf", "f"] = lambda c: c.b.fcmp_ordered(
        "==", intrinsic("fabs")(c), c.number(float("inf"))
    )
    rules["isfinite", "f"] = lambda c: c.b.fcmp_ordered(
        "<", intrinsic("fabs")(c), c.number(float("inf"))
    )
    rules["signbit", "f"] = _signbit
    for name in ("isnan", "isinf"):
        rules[name, "i"] = rules[name, "b"] = lambda c: constant(I1, c.lanes, 0)
    rules["isfinite", "i"] = lambda c: constant(I1, c.lanes, 1)
    rules["isfinite", "b"] = rules["isfinite", "i"]
    rules["float_power", "f"] = lambda c: _function(c, "power")
    rules["heaviside", "f"] = _heaviside
    rules["bitwise_count", "i"] = integer_ops.bitwise_count
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
    rules["logical_and", "b"] = _logical("and_")
    rules["logical_or", "b"] = _logical("or_")
    rules["logical_xor", "b"] = _logical("xor")
    rules["logical_not", "b"] = _logical("not_")
    for name in ("floor", "ceil", "trunc", "rint"):
        rules[name, "i"] = rules[name, "b"] = lambda c: c.args[0]
    return rules


def _signbit(c: OpCall) -> ir.Value:
    bits = ir.IntType(8 * c.of.itemsize)
    as_int = c.b.bitcast(c.args[0], widened(bits, c.lanes))
    return c.b.icmp_signed("<", as_int, constant(bits, c.lanes, 0))


_RULES = _rules()
