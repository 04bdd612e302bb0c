"""Values while code is written: LLVM scalars and vectors with the operators of Python.

What is written here runs alike for ``float``, ``double`` and vectors of them of any
length. No instruction carries a fast-math flag, so that NaN, infinities, denormals and
the sign of zero keep the meaning that IEEE 754 gives them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
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


Unary: TypeAlias = "Callable[[EmittedValue], EmittedValue]"
Binary: TypeAlias = "Callable[[EmittedValue, Operand], EmittedValue]"


def _unary(name: str) -> Unary:
    """The operator that is the instruction ``name``."""
    return lambda x: x.of(getattr(x.b, name)(x.value))


def _intrinsic(name: str) -> Callable[..., EmittedValue]:
    """The operator that is the intrinsic ``llvm.name``."""
    return lambda x, *others: x.call(name, *others)


def _binary(of_floats: str, of_integers: str) -> Binary:
    """The operator that is one instruction of floats, and another of integers."""

    def emit(x: EmittedValue, y: Operand) -> EmittedValue:
        write = getattr(x.b, of_floats if x.is_float else of_integers)
        return x.of(write(x.value, x._in(y)))

    return emit


def _flipped(of_floats: str, of_integers: str) -> Binary:
    """The same for a number to the left."""

    def emit(x: EmittedValue, y: Operand) -> EmittedValue:
        write = getattr(x.b, of_floats if x.is_float else of_integers)
        return x.of(write(x._in(y), x.value))

    return emit


def _comparison(sign: str, of_floats: str = "fcmp_ordered") -> Binary:
    def emit(x: EmittedValue, y: Operand) -> EmittedValue:
        write = getattr(x.b, of_floats if x.is_float else "icmp_signed")
        return x.of(write(sign, x.value, x._in(y)))

    return emit


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

    # -- arithmetic, comparison --------------------------------------------------------

    __add__ = __radd__ = _binary("fadd", "add")
    __sub__, __rsub__ = _binary("fsub", "sub"), _flipped("fsub", "sub")
    __mul__ = __rmul__ = _binary("fmul", "mul")
    __truediv__, __rtruediv__ = _binary("fdiv", "fdiv"), _flipped("fdiv", "fdiv")
    __and__, __or__ = _binary("and_", "and_"), _binary("or_", "or_")
    __xor__ = _binary("xor", "xor")
    __lshift__ = _binary("shl", "shl")
    __rshift__ = _binary("ashr", "ashr")
    """Copies the sign bit."""
    shift_in_zeros = _binary("lshr", "lshr")
    """``>>`` of an unsigned integer."""
    __neg__, __invert__ = _unary("fneg"), _unary("not_")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    equals = _comparison("==")
    """False for NaN."""
    differs = _comparison("!=", "fcmp_unordered")
    """True for NaN."""

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

    __abs__ = _intrinsic("fabs")
    sqrt = _intrinsic("sqrt")
    """Correctly rounded."""
    copysign = _intrinsic("copysign")
    """The magnitude of this with the sign of another."""

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
