"""Instructions of AVX-512: exponents, significands and small tables, in vectors of any
length. :attr:`.vector_values.MathTarget.has_scale` says whether a host has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from .vector_values import F32, F64, I32, SINGLE, EmittedValue, declared


def can_scale(x: EmittedValue) -> bool:
    """Whether :func:`scaled_by` is there for vectors of this length."""
    bits = (x.lanes or 0) * x.format.bits
    return x.host.has_scale and bits in (256, 512)


def scaled_by(x: EmittedValue, power: EmittedValue) -> EmittedValue:
    """x · 2^⌊power⌋, rounded once."""
    return _wide("scalef", x, power)


def exponent(x: EmittedValue) -> EmittedValue:
    """⌊log₂ |x|⌋ as a float; -∞ of 0, ∞ of ±∞."""
    return _wide("getexp", x)


def significand(x: EmittedValue, interval: int, negative: str = "kept") -> EmittedValue:
    """m of x = m 2ᵉ: m from 1 to 2 for interval 0, from ¾ to 1½ for 3; 1 of 0 and ∞. Of
    negative numbers ``absolute`` or ``NaN``, those of -0 being either."""
    control = {"kept": 0, "absolute": 1, "NaN": 2}[negative]
    return _wide("getmant", x, immediate=interval | control << 2)


def fraction(x: EmittedValue) -> EmittedValue:
    """x - rint(x), and 0 of ±∞."""
    return _wide("reduce", x, immediate=8)


def _wide(
    name: str, *values: EmittedValue, immediate: int | None = None
) -> EmittedValue:
    """The instruction ``name``."""

    def write(x: EmittedValue, *rest: EmittedValue) -> EmittedValue:
        lanes, kind = x.lanes or 1, x.type
        bits = lanes * x.format.bits
        suffix = "ps" if x.format is SINGLE else "pd"
        full = f"llvm.x86.avx512.mask.{name}.{suffix}.{bits}"
        mask = ir.IntType(max(lanes, 8))
        numbers = [] if immediate is None else [I32(immediate)]
        rounding = [I32(4)] if bits == 512 else []  # as the processor is set
        args = [x.value, *(v.value for v in rest), *numbers, x.value, mask(-1)]
        args += rounding
        return x.of(x.b.call(declared(x.b, full, [a.type for a in args], kind), args))

    return in_parts(write, (256, 512), *values)


def looked_up(x: EmittedValue, table: Sequence[float]) -> EmittedValue:
    """The entry of a ``table`` of 16 numbers that the low 4 bits of these integers
    name.

    What fills up shorter vectors is undefined: where it is the last lane, LLVM 22 puts
    the first of two lanes in the place of both.
    """
    assert len(table) == 16

    def write(index: EmittedValue) -> EmittedValue:
        lanes = index.lanes or 1
        element = F32 if index.format is SINGLE else F64
        kind = ir.VectorType(element, lanes)
        parts = [
            ir.Constant(kind, [ir.Constant(element, v) for v in table[i : i + lanes]])
            for i in range(0, 16, lanes)
        ]
        if index.format is SINGLE:
            name, args = "permvar.sf.512", [parts[0], index.value]
        else:
            name, args = "vpermi2var.pd.512", [parts[0], index.value, parts[1]]
        types = [a.type for a in args]
        full = declared(index.b, f"llvm.x86.avx512.{name}", types, kind)
        return index.of(index.b.call(full, args))

    return in_parts(write, (512,), x, filled=False)


def in_parts(
    write: Callable[..., EmittedValue],
    sizes: Sequence[int],
    *values: EmittedValue,
    filled: bool = True,
) -> EmittedValue:
    """``write`` of values of any length, where it can be written for vectors of
    ``sizes`` bits alone: the longer ones are cut, and the shorter ones lengthened by
    their last lane, or if not ``filled`` by what is undefined."""
    first = values[0]
    lanes, bits = first.lanes or 1, first.format.bits
    if first.lanes and lanes * bits in sizes:
        return write(*values)
    size = next((s for s in sizes if s >= lanes * bits), sizes[-1]) // bits
    parts = [
        write(*(v.of(_lanes(v, start, size, filled)) for v in values)).value
        for start in range(0, lanes, size)
    ]
    b = first.b
    if first.lanes is None:
        return first.of(b.extract_element(parts[0], I32(0)))
    while len(parts) > 1:
        parts += parts[-1:] * (len(parts) % 2)
        both = 2 * parts[0].type.count
        parts = [
            b.shuffle_vector(low, high, _places(range(both)))
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
    whole = parts[0]
    if whole.type.count > lanes:
        whole = b.shuffle_vector(whole, whole, _places(range(lanes)))
    return first.of(whole)


def _lanes(v: EmittedValue, start: int, count: int, filled: bool) -> ir.Value:
    """``count`` lanes from ``start`` on, beyond the last one that one, or undefined."""
    x = v.value
    if v.lanes is None:
        none = ir.Constant(ir.VectorType(v.element, 1), ir.Undefined)
        x = v.b.insert_element(none, x, I32(0))
    lanes = x.type.count
    beyond = lanes - 1 if filled else lanes  # the first of what is undefined
    places = (i if i < lanes else beyond for i in range(start, start + count))
    undefined = ir.Constant(x.type, ir.Undefined)
    return v.b.shuffle_vector(x, undefined, _places(places))


def _places(places: Iterable[int]) -> ir.Constant:
    numbers = [I32(i) for i in places]
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)
