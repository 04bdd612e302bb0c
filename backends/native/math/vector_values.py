"""Values while code is written: LLVM scalars and vectors with the operators of Python.

What is written here runs alike for ``float``, ``double`` and vectors of them of any
length. No instruction carries a fast-math flag, so that NaN, infinities, denormals and
the sign of zero keep the meaning that IEEE 754 gives them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

from eqsat.support import BackendError

I32, I64 = ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
AVX512 = ("avx512f", "avx512vl", "avx512dq")
"""LLVM's names of what :attr:`MathTarget.has_scale` needs."""


@dataclass(frozen=True)
class MathTarget:
    """What the emitted code may rely on; the defaults hold everywhere."""

    has_fma: bool = False
    """Fused multiply-adds are instructions."""
    has_round: bool = False
    """Rounding to integers is an instruction (SSE4.1, NEON)."""
    has_scale: bool = False
    """Exponents and significands are taken apart, put together and looked up by one
    instruction each, in vectors of 256 and 512 bits (AVX-512)."""

    @staticmethod
    def of(features: Mapping[str, bool], machine: str | None = None) -> MathTarget:
        """As LLVM names ``features``; ``machine`` is of the kind this process runs on,
        if not named. 64-bit ARM always has both."""
        if (machine or platform.machine()).lower() in ("arm64", "aarch64"):
            return MathTarget(True, True)
        wide = all(features.get(f, False) for f in AVX512)
        return MathTarget(
            features.get("fma", False), features.get("sse4.1", False), wide
        )


@dataclass(frozen=True)
class Format:
    """A floating-point format."""

    bits: int
    fraction: int
    """Stored bits of the significand."""
    bias: int
    smallest_normal: float

    @property
    def magic(self) -> float:
        """1.5 · 2^fraction: added to a small number, it leaves the rounded integer in
        the low bits."""
        return 1.5 * 2.0**self.fraction


SINGLE = Format(32, 23, 127, 2.0**-126)
DOUBLE = Format(64, 52, 1023, 2.0**-1022)

Operand: TypeAlias = "EmittedValue | float | int"


@dataclass(frozen=True, eq=False)
class EmittedValue:
    """A scalar or vector of floats, integers or truth values being computed.

    Operators emit one instruction. Numbers are taken for constants of the same type.
    ``<``, ``<=``, ``>`` and ``>=`` are false where an operand is NaN; integers are
    signed.
    """

    b: ir.IRBuilder
    host: MathTarget
    value: ir.Value

    # -- types -------------------------------------------------------------------------

    @property
    def type(self) -> Any:
        """The LLVM type."""
        return self.value.type

    @property
    def element(self) -> Any:
        """The LLVM type of one lane."""
        is_vector = isinstance(self.type, ir.VectorType)
        return self.type.element if is_vector else self.type

    @property
    def lanes(self) -> int | None:
        """The length of a vector; None of a scalar."""
        return self.type.count if isinstance(self.type, ir.VectorType) else None

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    @property
    def format(self) -> Format:
        """That of floats, or of the floats as wide as these integers."""
        if isinstance(self.element, ir.FloatType) or self.element == I32:
            return SINGLE
        if isinstance(self.element, ir.DoubleType) or self.element == I64:
            return DOUBLE
        raise BackendError(
            f"vector mathematics of {self.type}, expected float or double or vectors "
            "of them"
        )

    def like(self, element: Any) -> Any:
        """``element``, or the vector of it with as many lanes."""
        return element if self.lanes is None else ir.VectorType(element, self.lanes)

    def of(self, value: ir.Value) -> EmittedValue:
        """``value``, written by the same builder."""
        return EmittedValue(self.b, self.host, value)

    def constant(self, number: float | int) -> EmittedValue:
        """``number`` in each lane; rounded to the format."""
        one = ir.Constant(self.element, number)
        return self.of(
            one if self.lanes is None else ir.Constant(self.type, [one] * self.lanes)
        )

    def _in(self, other: Operand) -> ir.Value:
        return (
            other if isinstance(other, EmittedValue) else self.constant(other)
        ).value

    # -- arithmetic --------------------------------------------------------------------

    def _pick(
        self, of_floats: str, of_integers: str, other: Operand, flip: bool = False
    ) -> EmittedValue:
        emit = getattr(self.b, of_floats if self.is_float else of_integers)
        pair = (self._in(other), self.value) if flip else (self.value, self._in(other))
        return self.of(emit(*pair))

    def __add__(self, other: Operand) -> EmittedValue:
        return self._pick("fadd", "add", other)

    def __sub__(self, other: Operand) -> EmittedValue:
        return self._pick("fsub", "sub", other)

    def __mul__(self, other: Operand) -> EmittedValue:
        return self._pick("fmul", "mul", other)

    def __truediv__(self, other: Operand) -> EmittedValue:
        return self.of(self.b.fdiv(self.value, self._in(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Operand) -> EmittedValue:
        return self._pick("fsub", "sub", other, flip=True)

    def __rtruediv__(self, other: Operand) -> EmittedValue:
        return self.of(self.b.fdiv(self._in(other), self.value))

    def __neg__(self) -> EmittedValue:
        return self.of(self.b.fneg(self.value))

    def __and__(self, other: Operand) -> EmittedValue:
        return self.of(self.b.and_(self.value, self._in(other)))

    def __or__(self, other: Operand) -> EmittedValue:
        return self.of(self.b.or_(self.value, self._in(other)))

    def __xor__(self, other: Operand) -> EmittedValue:
        return self.of(self.b.xor(self.value, self._in(other)))

    def __invert__(self) -> EmittedValue:
        return self.of(self.b.not_(self.value))

    def __lshift__(self, count: int) -> EmittedValue:
        return self.of(self.b.shl(self.value, self._in(count)))

    def __rshift__(self, count: int) -> EmittedValue:
        """Copies the sign bit."""
        return self.of(self.b.ashr(self.value, self._in(count)))

    def shift_in_zeros(self, count: int) -> EmittedValue:
        """``>>`` of an unsigned integer."""
        return self.of(self.b.lshr(self.value, self._in(count)))

    # -- comparison --------------------------------------------------------------------

    def _compare(self, sign: str, other: Operand) -> EmittedValue:
        emit = self.b.fcmp_ordered if self.is_float else self.b.icmp_signed
        return self.of(emit(sign, self.value, self._in(other)))

    def __lt__(self, other: Operand) -> EmittedValue:
        return self._compare("<", other)

    def __le__(self, other: Operand) -> EmittedValue:
        return self._compare("<=", other)

    def __gt__(self, other: Operand) -> EmittedValue:
        return self._compare(">", other)

    def __ge__(self, other: Operand) -> EmittedValue:
        return self._compare(">=", other)

    def equals(self, other: Operand) -> EmittedValue:
        """False for NaN."""
        return self._compare("==", other)

    def differs(self, other: Operand) -> EmittedValue:
        """True for NaN."""
        emit = self.b.fcmp_unordered if self.is_float else self.b.icmp_signed
        return self.of(emit("!=", self.value, self._in(other)))

    def is_nan(self) -> EmittedValue:
        return self.of(self.b.fcmp_unordered("uno", self.value, self.value))

    def where(self, yes: Operand, no: Operand) -> EmittedValue:
        """Of truth values: ``yes`` where true, else ``no``, one of them a value."""
        known = yes if isinstance(yes, EmittedValue) else no
        assert isinstance(known, EmittedValue)
        return self.of(self.b.select(self.value, known._in(yes), known._in(no)))

    # -- bits --------------------------------------------------------------------------

    @property
    def bits(self) -> EmittedValue:
        """The integers whose bits these floats are."""
        return self.of(
            self.b.bitcast(self.value, self.like(ir.IntType(self.format.bits)))
        )

    @property
    def floats(self) -> EmittedValue:
        """The floats whose bits these integers are."""
        element = F32 if self.format is SINGLE else F64
        return self.of(self.b.bitcast(self.value, self.like(element)))

    @property
    def sign_bit(self) -> EmittedValue:
        """The bits of these floats, without all but the sign."""
        return self.bits & -(1 << (self.format.bits - 1))

    def converted(self, element: Any) -> EmittedValue:
        """Floats to the format ``element``, rounded to nearest."""
        if self.element == element:
            return self
        emit = self.b.fpext if element == F64 else self.b.fptrunc
        return self.of(emit(self.value, self.like(element)))

    # -- functions that are instructions -----------------------------------------------

    def call(self, name: str, *others: Operand) -> EmittedValue:
        """The intrinsic ``llvm.name`` of this and ``others``, all of one type."""
        args = [self.value, *(self._in(other) for other in others)]
        full = f"llvm.{name}.{_mangled(self.type)}"
        types = [self.type] * len(args)
        return self.of(self.b.call(declared(self.b, full, types, self.type), args))

    def __abs__(self) -> EmittedValue:
        return self.call("fabs")

    def sqrt(self) -> EmittedValue:
        """Correctly rounded."""
        return self.call("sqrt")

    def copysign(self, sign: Operand) -> EmittedValue:
        """The magnitude of this with the sign of ``sign``."""
        return self.call("copysign", sign)

    def times_plus(self, factor: Operand, addend: Operand) -> EmittedValue:
        """this · factor + addend: rounded once where the host can, else twice."""
        if self.host.has_fma:
            return self.call("fma", factor, addend)
        return self * factor + addend

    def at_most(self, bound: Operand) -> EmittedValue:
        """The smaller; NaN where this is NaN."""
        return (self.of(self._in(bound)) < self).where(bound, self)

    def at_least(self, bound: Operand) -> EmittedValue:
        """The larger; NaN where this is NaN."""
        return (self.of(self._in(bound)) > self).where(bound, self)

    @property
    def can_scale(self) -> bool:
        """Whether :meth:`scaled_by` is there for vectors of this length."""
        bits = (self.lanes or 0) * self.format.bits
        return self.host.has_scale and bits in (256, 512)

    def scaled_by(self, power: EmittedValue) -> EmittedValue:
        """this · 2^⌊power⌋, rounded once."""
        return self._wide("scalef", power)

    def exponent(self) -> EmittedValue:
        """⌊log₂ |this|⌋ as a float; -∞ of 0, ∞ of ±∞. AVX-512."""
        return self._wide("getexp")

    def significand(self, interval: int, negative: str = "kept") -> EmittedValue:
        """m of this = m 2ᵉ: m from 1 to 2 for interval 0, from ¾ to 1½ for 3; 1 of 0
        and ∞. Of negative numbers ``absolute`` or ``NaN``, those of -0 being either.
        AVX-512."""
        control = {"kept": 0, "absolute": 1, "NaN": 2}[negative]
        return self._wide("getmant", immediate=interval | control << 2)

    def fraction(self) -> EmittedValue:
        """this - rint(this), and 0 of ±∞. AVX-512."""
        return self._wide("reduce", immediate=8)

    def _wide(
        self, name: str, *others: EmittedValue, immediate: int | None = None
    ) -> EmittedValue:
        """The instruction ``name`` of AVX-512."""

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
            return x.of(
                x.b.call(declared(x.b, full, [a.type for a in args], kind), args)
            )

        return in_parts(write, (256, 512), self, *others)

    def looked_up(self, table: Sequence[float]) -> EmittedValue:
        """The entry of a ``table`` of 16 numbers that the low 4 bits of these integers
        name. AVX-512."""
        assert len(table) == 16

        def write(index: EmittedValue) -> EmittedValue:
            lanes = index.lanes or 1
            element = F32 if index.format is SINGLE else F64
            kind = ir.VectorType(element, lanes)
            parts = [
                ir.Constant(
                    kind, [ir.Constant(element, v) for v in table[i : i + lanes]]
                )
                for i in range(0, 16, lanes)
            ]
            if index.format is SINGLE:
                name, args = "permvar.sf.512", [parts[0], index.value]
            else:
                name, args = "vpermi2var.pd.512", [parts[0], index.value, parts[1]]
            types = [a.type for a in args]
            full = declared(index.b, f"llvm.x86.avx512.{name}", types, kind)
            return index.of(index.b.call(full, args))

        return in_parts(write, (512,), self)

    def rint(self) -> EmittedValue:
        """The nearest integer, of two the even one; keeps the sign of zero."""
        if self.host.has_round:
            return self.call("rint")
        shift = 2.0**self.format.fraction
        near = (abs(self) + shift) - shift
        return (abs(self) < shift).where(near, abs(self)).copysign(self)


def declared(
    b: ir.IRBuilder, name: str, types: Sequence[Any], result: Any = VOID
) -> ir.Function:
    """The function ``name`` of the module, declared when it is first asked for."""
    known = b.module.globals.get(name)
    if known is None:
        known = ir.Function(b.module, ir.FunctionType(result, types), name)
    return known


def in_parts(
    write: Callable[..., EmittedValue], sizes: Sequence[int], *values: EmittedValue
) -> EmittedValue:
    """``write`` of values of any length, where it can be written for vectors of
    ``sizes`` bits alone: the shorter ones are filled up and the longer ones are cut."""
    first = values[0]
    lanes, bits = first.lanes or 1, first.format.bits
    if first.lanes and lanes * bits in sizes:
        return write(*values)
    size = next((s for s in sizes if s >= lanes * bits), sizes[-1]) // bits
    parts = [
        write(*(v.of(_lanes(v, start, size)) for v in values)).value
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


def _lanes(v: EmittedValue, start: int, count: int) -> ir.Value:
    """``count`` lanes from ``start`` on, the last one repeated."""
    if v.lanes is None:
        none = ir.Constant(ir.VectorType(v.element, 1), ir.Undefined)
        one = v.b.insert_element(none, v.value, I32(0))
        return v.b.shuffle_vector(one, one, _places([0] * count))
    last = v.lanes - 1
    places = _places(min(start + i, last) for i in range(count))
    return v.b.shuffle_vector(v.value, v.value, places)


def _places(places: Iterable[int]) -> ir.Constant:
    numbers = [I32(i) for i in places]
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)


def _mangled(kind: Any) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_mangled(kind.element)}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"


# -- polynomials -----------------------------------------------------------------------


def horner(x: EmittedValue, coefficients: Sequence[float]) -> EmittedValue:
    """Σ cₖ xᵏ, the lowest power first: len(coefficients) - 1 multiply-adds."""
    *lower, last = coefficients
    value = x.constant(last)
    for c in reversed(lower):
        value = value.times_plus(x, c)
    return value


# -- sums of two: h + l with |l| ≤ ulp(h) / 2 ------------------------------------------

Pair: TypeAlias = tuple[EmittedValue, EmittedValue]


def two_sum(a: EmittedValue, b: EmittedValue) -> Pair:
    """a + b exactly. Knuth 1969, 4.2.2. 6 flop."""
    s = a + b
    c = s - a
    return s, (a - (s - c)) + (b - c)


def fast_two_sum(a: EmittedValue, b: EmittedValue) -> Pair:
    """a + b exactly, for |a| ≥ |b|. Dekker 1971. 3 flop."""
    s = a + b
    return s, b - (s - a)


def two_product(a: EmittedValue, b: EmittedValue) -> Pair:
    """a · b exactly, while nothing overflows: 2 flop fused, else 17. Dekker 1971."""
    p = a * b
    if a.host.has_fma:
        return p, a.times_plus(b, -p)
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: EmittedValue) -> Pair:
    """a as a sum of two numbers of half its bits. Veltkamp 1968."""
    c = a * (2.0 ** ((a.format.fraction + 2) // 2) + 1)
    high = c - (c - a)
    return high, a - high


def emitter(write: Callable[..., EmittedValue]) -> Callable[..., ir.Value]:
    """A function over a builder, LLVM values and a host, from one over values."""

    def emit(b: ir.IRBuilder, *values_and_host: Any) -> ir.Value:
        *values, host = values_and_host
        return write(*(EmittedValue(b, host, value) for value in values)).value

    emit.__name__, emit.__doc__ = write.__name__, write.__doc__
    return emit
