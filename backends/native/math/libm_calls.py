"""Calls of the C library, lane by lane: what has no vector code, and rare arguments."""

from __future__ import annotations

from llvmlite import ir

from .vector_values import I32, SINGLE, EmittedValue, declared


def _scalar(x: EmittedValue, name: str, arity: int) -> ir.Function:
    """C's ``name`` for one lane: ``float @sinf(float)`` or ``double @sin(double)``."""
    full = name + "f" if x.format is SINGLE else name
    return declared(x.b, full, [x.element] * arity, x.element)


def _each_lane(name: str, *values: EmittedValue) -> EmittedValue:
    first = values[0]
    scalar = _scalar(first, name, len(values))
    if first.lanes is None:
        return first.of(first.b.call(scalar, [v.value for v in values]))
    result: ir.Value = ir.Constant(first.type, ir.Undefined)
    for i in range(first.lanes):
        lane = I32(i)
        args = [v.b.extract_element(v.value, lane) for v in values]
        one = first.b.call(scalar, args)
        result = first.b.insert_element(result, one, lane)
    return first.of(result)


def _outlined(x: EmittedValue, name: str, arity: int) -> ir.Function:
    """A function of the module that calls C's ``name`` on each lane of a vector.

    Apart, so that an unrolled loop holds one call and not one for each lane.
    """
    full = f"lanes.{name}.{x.lanes}.{x.format.bits}"
    function = declared(x.b, full, [x.type] * arity, x.type)
    if function.is_declaration:
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("cold")
        b = ir.IRBuilder(function.append_basic_block())
        b.ret(
            _each_lane(
                name, *(EmittedValue(b, x.host, arg) for arg in function.args)
            ).value
        )
    return function


def any_of(mask: EmittedValue) -> ir.Value:
    """One truth value: whether any lane of ``mask`` is true."""
    if mask.lanes is None:
        return mask.value
    whole = mask.b.bitcast(mask.value, ir.IntType(mask.lanes))
    return mask.b.icmp_unsigned("!=", whole, whole.type(0))


def call_lanes(
    name: str, rare: EmittedValue, near: EmittedValue, *args: EmittedValue
) -> EmittedValue:
    """``near``, but C's ``name`` of ``args`` where ``rare``: a branch that is seldom
    taken. The builder goes on in a new block."""
    b = near.b
    before = b.block
    with b.if_then(any_of(rare), likely=False):
        if near.lanes is None:
            called = _scalar(near, name, len(args))
        else:
            called = _outlined(near, name, len(args))
        slow = near.of(b.call(called, [arg.value for arg in args]))
        mixed = rare.where(slow, near)
        after = b.block
    result = b.phi(near.type)
    result.add_incoming(near.value, before)
    result.add_incoming(mixed.value, after)
    return near.of(result)
