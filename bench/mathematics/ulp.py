"""``python -m bench ulp``: errors and times of the native backend's mathematics.

Errors are in units in the last place of the exact result: f32 against NumPy and SciPy
in float64, f64 against long double where that is longer.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import click
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from eqsat.backends.native.machine import Host, LoadedObject, compile_ir, load
from eqsat.backends.native.math import FUNCTIONS, WRITERS, MathTarget

Array = Any
LLVM_OF = {"float32": ir.FloatType(), "float64": ir.DoubleType()}


# -- compiling -------------------------------------------------------------------------


@dataclass(frozen=True)
class CompileTarget:
    """A CPU to compile for, and what the mathematics may rely on."""

    cpu: str
    features: str
    host: MathTarget

    @staticmethod
    @cache
    def native() -> CompileTarget:
        """This machine."""
        features = llvm.get_host_cpu_features()
        return CompileTarget(
            llvm.get_host_cpu_name(), features.flatten(), MathTarget.of(features)
        )

    @staticmethod
    def generic() -> CompileTarget:
        """What every CPU of this kind has, with nothing relied on."""
        return CompileTarget("x86-64" if _is_x86() else "generic", "", MathTarget())

    @staticmethod
    def avx2() -> CompileTarget:
        """x86-64 with AVX2 and FMA but not AVX-512; elsewhere this machine."""
        if not _is_x86():
            return CompileTarget.native()
        return CompileTarget("x86-64-v3", "", MathTarget(has_fma=True, has_round=True))


def _is_x86() -> bool:
    return str(llvm.get_process_triple()).startswith("x86_64")


def loop_text(name: str, arity: int, dtype: str, width: int, host: MathTarget) -> str:
    """A module whose ``loop(n, x, [y,] out)`` applies op ``name`` to n elements of
    ``dtype``, a multiple of ``width``; a width of 1 means scalars."""
    element = LLVM_OF[dtype]
    vector = element if width == 1 else ir.VectorType(element, width)
    module = ir.Module()
    size = ir.IntType(64)
    pointer = ir.PointerType()
    kind = ir.FunctionType(ir.VoidType(), [size] + [pointer] * (arity + 1))
    function = ir.Function(module, kind, "loop")
    n, *arrays = function.args
    for array in arrays:
        array.add_attribute("noalias")
    entry, body, done = (function.append_basic_block(x) for x in ("in", "body", "out"))
    ir.IRBuilder(entry).branch(body)
    b = ir.IRBuilder(body)
    i = b.phi(size)
    i.add_incoming(size(0), entry)
    at = [b.gep(p, [i], source_etype=element) for p in arrays]
    align = element.get_abi_size(llvm.create_target_data("e"))
    loaded = [b.load(p, typ=vector, align=align) for p in at[:-1]]
    b.store(WRITERS[name](b, *loaded, host), at[-1], align=align)
    following = b.add(i, size(width))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, n), body, done)
    ir.IRBuilder(done).ret_void()
    return str(module)


@dataclass(frozen=True)
class CompiledLoop:
    """An op over arrays."""

    function: Callable[..., None]
    width: int
    library: LoadedObject

    def __call__(self, *arrays: Array) -> Array:
        """The op of contiguous arrays of one dtype and length."""
        size = arrays[0].size
        rest = -size % self.width
        padded = [
            np.pad(a, (0, rest)) if rest else np.ascontiguousarray(a) for a in arrays
        ]
        out = np.empty_like(padded[0])
        self.function(out.size, *(a.ctypes.data for a in (*padded, out)))
        return out[:size]


@cache
def compiled(
    name: str, arity: int, dtype: str, width: int, target: CompileTarget | None = None
) -> CompiledLoop:
    """Op ``name`` for ``target``, this machine if None."""
    target = target or CompileTarget.native()
    text = loop_text(name, arity, dtype, width, target.host)
    machine = Host(llvm.get_process_triple(), target.cpu, target.features)
    library = load(compile_ir(text, machine, "full"), ["loop"])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (arity + 1))
    return CompiledLoop(kind(library.address("loop")), width, library)


# -- exact results ---------------------------------------------------------------------


def erf(x: Array) -> Array:
    """erf in long double: 2/√π exp(-x²) Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!, all of one sign."""
    if x.dtype == np.float64:
        from scipy.special import erf

        return erf(x)
    a = np.minimum(np.abs(x), 7)
    term = total = a
    for n in range(1, 250):
        term = term * (2 * a * a) / (2 * n + 1)
        total = total + term
    pi = np.longdouble("3.14159265358979323846264338327950288")
    return np.copysign(2 / np.sqrt(pi) * np.exp(-a * a) * total, x)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(np.less(x, 0), e, 1) / (1 + e)


def normal_cdf(x: Array) -> Array:
    return (1 + erf(x * np.sqrt(x.dtype.type(0.5)))) / 2


def _by_scipy(name: str) -> Callable[..., Array]:
    def function(x: Array) -> Array:
        import scipy.special

        if x.dtype == np.longdouble:
            return _by_digits(name, x)
        return getattr(scipy.special, "psi" if name == "digamma" else name)(x)

    return function


def _by_digits(name: str, x: Array) -> Array:
    """``name`` of float64 in long double, by mpmath; SciPy's where not finite."""
    import mpmath as mp
    import scipy.special

    def wide(v: Any) -> Any:
        high = float(v)
        return np.longdouble(high) + np.longdouble(float(v - high))

    def erfcx(v: Any) -> Any:
        if v < 1e8:
            return mp.exp(v * v) * mp.erfc(v)
        return (1 - 1 / (2 * v * v)) / (v * mp.sqrt(mp.pi))

    def log_ndtr(v: Any) -> Any:
        if v < 0:
            return mp.log(erfcx(-v / mp.sqrt(2)) / 2) - v * v / 2
        return mp.log1p(-mp.erfc(v / mp.sqrt(2)) / 2)

    functions = {
        "erfc": mp.erfc,
        "erfcx": erfcx,
        "erfinv": mp.erfinv,
        "log_ndtr": log_ndtr,
        "gammaln": lambda v: mp.re(mp.loggamma(v)),
        "digamma": mp.digamma,
    }
    scipys = getattr(scipy.special, "psi" if name == "digamma" else name)
    found = scipys(x.astype(np.float64)).astype(np.longdouble)
    with mp.workdps(50):
        known = np.isfinite(found) & ((found != 0) | (np.abs(x) < 45))
        known |= (name == "gammaln") & (np.abs(x) < 1)
        for i in np.flatnonzero(known & (x != 0)):
            found[i] = wide(functions[name](mp.mpf(float(x[i]))))
    return found


def _parts_of_digamma(x: Array) -> Array:
    """1 + |ψ(1 - x)| + |π cot πx| where x < 0, else |ψ(x)|."""
    from scipy.special import psi

    x = x.astype(np.float64)
    below = x < 0
    cotangent = np.pi / np.tan(np.pi * (x - np.rint(x)))
    y = np.abs(psi(np.where(below, 1 - x, x)))
    return np.where(below, 1 + y + np.abs(cotangent), y)


SCIPY = ("erfc", "erfcx", "erfinv", "log_ndtr", "gammaln", "digamma")
EXACT: dict[str, Callable[..., Array]] = {
    **{name: _by_scipy(name) for name in SCIPY},
    "erf": erf,
    "normal_cdf": normal_cdf,
    "sigmoid": sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
"""Functions that NumPy lacks; the others are NumPy's own."""

BINARY = (
    *("power", "hypot", "arctan2", "logaddexp", "logaddexp2"),
    *("copysign", "maximum", "minimum", "fmax", "fmin", "nextafter"),
    *("fmod", "remainder", "floor_divide"),
)
SAME = ("nextafter", "remainder", "floor_divide")
"""What depends on the format, so that a wider one gives no reference."""


def arity_of(name: str) -> int:
    return 2 if name in BINARY else 1


def exact(name: str) -> Callable[..., Array]:
    """Op ``name``, of arrays of any float dtype."""
    return EXACT.get(name) or getattr(np, name)


def reference(name: str, *values: Array) -> tuple[Array, Array | None]:
    """Op ``name`` in a wider format, and the magnitude whose last place counts, None
    for that of the result: the logarithm of a sum is a sum of two, which may cancel,
    and so is ``normal_cdf``."""
    wide = np.float64 if values[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        wanted = exact(name)(*(v if name in SAME else v.astype(wide) for v in values))
        if name == "normal_cdf":
            return wanted, np.ones_like(wanted)
        if name == "digamma":
            return wanted, _parts_of_digamma(*values)
        if not name.startswith("logaddexp"):
            return wanted.astype(wide), None
        largest = np.maximum(*values)
        return wanted, np.abs(largest) + np.abs(wanted - largest)


def ulps(got: Array, wanted: Array, size: Array | None = None) -> Array:
    """|got - wanted| in units in the last place of ``wanted``, or of ``size``, in the
    format of ``got``.

    0 for NaN where NaN is wanted; ∞ for a wrong NaN, a wrong finite or infinite result,
    or a zero of the wrong sign. Infinity counts as the power of two after the largest
    number, so that rounding up to it is an error of less than a unit.
    """
    info = np.finfo(got.dtype)
    edge = np.ldexp(np.ones((), wanted.dtype), info.maxexp)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(got.dtype)
        size = wanted if size is None else size
        size = np.where(size == 0, info.tiny, np.where(np.isfinite(size), size, edge))
        _, e = np.frexp(size)
        e = np.clip(e - 1, info.minexp, info.maxexp - 1)
        unit = np.ldexp(np.ones((), wanted.dtype), e - info.nmant)
        finite = np.where(
            np.isinf(got), np.copysign(edge, got), got.astype(wanted.dtype)
        )
        error = np.abs(finite - np.clip(wanted, -edge, edge)) / unit
    nan = np.isnan(wanted)
    wrong = nan != np.isnan(got)
    wrong |= np.isinf(wanted) & ~nan & (got != wanted)
    wrong |= (rounded == 0) & (got == 0) & (np.signbit(rounded) != np.signbit(got))
    error = np.where(nan | (np.isinf(wanted) & (got == wanted)), 0, error)
    return np.where(wrong, np.inf, error).astype(np.float64)


# -- arguments -------------------------------------------------------------------------


def all_floats(chunk: int = 1 << 16) -> Iterator[Array]:
    """All 2³² float32, in parts."""
    for start in range(0, 1 << 32, chunk):
        yield np.arange(start, start + chunk, dtype=np.uint32).view(np.float32)


SPECIAL = (0.0, 1.0, 0.5, 2.0, 3.0, np.inf, np.nan, 1e-30, 1e30)


def sample(dtype: str, count: int, seed: int = 0) -> Array:
    """At least ``count`` numbers of both signs, in random order: every exponent with
    random fractions, numbers from 0 to 1000, and, with their neighbours, multiples of
    1/8, ln 2 / 2 and π/4 and special values."""
    rng = np.random.default_rng(seed)
    info, of = np.finfo(dtype), np.dtype(dtype).type
    unsigned: Any = np.uint32 if dtype == "float32" else np.uint64
    most = (1 << info.nexp) - 1
    each = -(-count // (4 * most))
    exponents: Array = np.repeat(np.arange(most, dtype=unsigned), each)
    fractions = rng.integers(0, 1 << info.nmant, exponents.size, dtype=unsigned)
    spread = (exponents << unsigned(info.nmant) | fractions).view(dtype)
    usual = rng.uniform(0, 1, count // 4) * np.exp2(rng.integers(-4, 11, count // 4))
    steps = np.arange(1, 1100)
    special = np.array([*SPECIAL, info.tiny, info.smallest_subnormal, info.max], dtype)
    near = np.concatenate([steps / 8, steps * np.log(2) / 2, steps * np.pi / 4])
    near = np.concatenate([near.astype(dtype), special])
    with np.errstate(all="ignore"):
        beside = [np.nextafter(near, of(np.inf)), np.nextafter(near, of(0))]
    values = np.concatenate([spread, usual.astype(dtype), near, *beside])
    return rng.permutation(np.concatenate([values, -values]))


def arguments(name: str, dtype: str, count: int, seed: int = 0) -> list[Array]:
    """Arrays to call op ``name`` with. Half of pairs are of :func:`sample`, half are
    moderate numbers, small multiples of ½, and multiples of each other."""
    x = sample(dtype, count, seed)
    if name in SCIPY and dtype == "float64":
        x = x[:: max(1, x.size // BY_DIGITS)]
    if arity_of(name) == 1:
        return [x]
    rng = np.random.default_rng(seed + 1)
    part = x.size // 3
    moderate = np.exp(rng.normal(0, 8, part)), rng.normal(0, 8, part)
    halves = rng.integers(-40, 40, (2, part)) / 2
    y = rng.normal(0, 3, part).astype(dtype)
    multiples = y * rng.integers(-1000, 1000, part).astype(dtype), y
    pairs = zip((x, rng.permutation(x)), moderate, halves, multiples, strict=True)
    return [np.concatenate([v.astype(dtype) for v in group]) for group in pairs]


BY_DIGITS = 3000
"""Numbers of float64 that are computed by mpmath, each in 0.1 ms and more."""


# -- the command -----------------------------------------------------------------------

LENGTH = 4096
"""Elements whose arguments and results stay in the first cache."""


def _seconds(work: Callable[[], object]) -> float:
    """The median of 31 times of 20 calls, each."""
    times = []
    for _ in range(31):
        start = time.perf_counter()
        for _ in range(20):
            work()
        times.append((time.perf_counter() - start) / 20)
    return statistics.median(times)


def _nanoseconds(apply: Callable[..., object], name: str, dtype: str) -> float:
    """Per element, the cost of a call taken off, of usual arguments."""
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.1, 0.9, LENGTH).astype(dtype) for _ in range(arity_of(name))]
    few = [a[:16].copy() for a in args]
    out, little = np.empty_like(args[0]), np.empty_like(few[0])
    if isinstance(apply, CompiledLoop):
        run = apply.function
        long = [LENGTH, *(a.ctypes.data for a in (*args, out))]
        short = [16, *(a.ctypes.data for a in (*few, little))]
        taken = _seconds(lambda: run(*long)) - _seconds(lambda: run(*short))
    else:
        with np.errstate(invalid="ignore"):
            taken = _seconds(lambda: apply(*args)) - _seconds(lambda: apply(*few))
    return taken / (LENGTH - 16) * 1e9


def _numpy_of(name: str) -> Callable[..., Array]:
    if name == "erf":
        from scipy.special import erf

        return erf  # type: ignore[no-any-return]
    return exact(name)


@click.command()
@click.argument("functions", nargs=-1)
@click.option("--count", default=1 << 18, help="Values a function.")
@click.option("--times/--no-times", default=True, help="Also ns an element, in cache.")
def ulp(functions: tuple[str, ...], count: int, times: bool) -> None:
    """Largest errors of the vector mathematics, with and without fused multiply-adds,
    and times beside NumPy's (SciPy's erf). All FUNCTIONS if none is named."""
    head = f"{'':14}{'':9}{'ulp':>8}{'generic':>9}"
    click.echo(head + (f"{'ns':>9}{'AVX2':>8}{'NumPy':>9}" if times else ""))
    for name in functions or FUNCTIONS:
        for dtype, width in (("float32", 16), ("float64", 8)):
            args = arguments(name, dtype, count)
            wanted = reference(name, *args)
            line = f"{name:14}{dtype:9}"
            for target, lanes in (
                (CompileTarget.native(), width),
                (CompileTarget.generic(), 4),
            ):
                run = compiled(name, len(args), dtype, lanes, target)
                line += f"{ulps(run(*args), *wanted).max():>8.3f} "
            if times:
                kinds = (
                    (CompileTarget.native(), width),
                    (CompileTarget.avx2(), width // 2),
                )
                for target, lanes in kinds:
                    run = compiled(name, len(args), dtype, lanes, target)
                    line += f"{_nanoseconds(run, name, dtype):>8.3f}"
                line += f"{_nanoseconds(_numpy_of(name), name, dtype):>9.3f}"
            click.echo(line)


@click.command()
def minimax() -> None:
    """Compute the polynomials of the vector mathematics again, and write them."""
    # mpmath, which only this needs, need not be installed for the other commands.
    from bench.mathematics.coefficients import TARGET, text

    TARGET.write_text(text(), encoding="utf-8")
