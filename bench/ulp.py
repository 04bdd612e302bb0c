"""``python -m bench ulp``: errors and times of the native backend's mathematics.

Errors are in units in the last place of the exact result: f32 against NumPy and SciPy in
float64, f64 against long double where that is longer.
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

from eqsat.backends.native.math import FUNCTIONS, Host

Array = Any
LLVM_OF = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
BASELINE = ("x86-64", "")


# -- compiling -------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A CPU to compile for, and what the mathematics may rely on."""

    cpu: str
    features: str
    host: Host

    @staticmethod
    @cache
    def native() -> Target:
        """This machine."""
        features = llvm.get_host_cpu_features()
        return Target(llvm.get_host_cpu_name(), features.flatten(), Host.of(features))

    @staticmethod
    def generic() -> Target:
        """What every CPU of this kind has, with nothing relied on."""
        is_x86 = llvm.get_process_triple().startswith("x86_64")
        return Target("x86-64" if is_x86 else "generic", "", Host())


@cache
def _initialised() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def loop_text(name: str, arity: int, dtype: str, width: int, host: Host) -> str:
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
    b.store(FUNCTIONS[name](b, *loaded, host), at[-1], align=align)
    following = b.add(i, size(width))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, n), body, done)
    ir.IRBuilder(done).ret_void()
    return str(module)


@dataclass(frozen=True)
class Compiled:
    """An op over arrays."""

    function: Callable[..., None]
    width: int
    engine: Any
    assembly: str

    def __call__(self, *arrays: Array) -> Array:
        """The op of contiguous arrays of one dtype and length."""
        size = arrays[0].size
        rest = -size % self.width
        padded = [np.pad(a, (0, rest)) if rest else np.ascontiguousarray(a) for a in arrays]
        out = np.empty_like(padded[0])
        self.function(out.size, *(a.ctypes.data for a in (*padded, out)))
        return out[:size]


@cache
def compiled(
    name: str, arity: int, dtype: str, width: int, target: Target | None = None
) -> Compiled:
    """Op ``name`` for ``target``, this machine if None."""
    _initialised()
    target = target or Target.native()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=3
    )
    module = llvm.parse_assembly(loop_text(name, arity, dtype, width, target.host))
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    assembly = machine.emit_assembly(module)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (arity + 1))
    return Compiled(kind(engine.get_function_address("loop")), width, engine, assembly)


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


EXACT: dict[str, Callable[..., Array]] = {
    "erf": erf,
    "sigmoid": sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
"""Functions that NumPy lacks; the others are NumPy's own."""

BINARY = (
    *("power", "hypot", "arctan2", "logaddexp", "logaddexp2"),
    *("copysign", "maximum", "minimum", "fmax", "fmin", "nextafter"),
    *("fmod", "remainder", "floor_divide"),
)


def arity_of(name: str) -> int:
    return 2 if name in BINARY else 1


def exact(name: str) -> Callable[..., Array]:
    """Op ``name``, of arrays of any float dtype."""
    return EXACT.get(name) or getattr(np, name)


def ulps(got: Array, wanted: Array) -> Array:
    """|got - wanted| in units in the last place of ``wanted`` in the format of ``got``.

    0 for NaN where NaN is wanted; ∞ for a wrong NaN, or a wrong infinity, or a zero of
    the wrong sign. Infinity counts as the power of two after the largest number.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(got.dtype)
        _, e = np.frexp(np.where(np.isfinite(wanted), wanted, 1))
        e = np.maximum(np.minimum(e - 1, info.maxexp - 1), info.minexp)
        unit = np.ldexp(np.ones((), wanted.dtype), e - info.nmant)
        edge = np.ldexp(np.ones((), wanted.dtype), info.maxexp)
        near = [
            np.where(np.isinf(v), np.copysign(edge, v), v)
            for v in (got.astype(wanted.dtype), np.clip(wanted, -edge, edge))
        ]
        error = np.abs(near[0] - near[1]) / unit
    error = np.where(rounded == got, np.minimum(error, 1), error)
    error = np.where(np.isinf(wanted) & (rounded != got), np.inf, error)
    nan = np.isnan(rounded)
    error = np.where(nan | np.isnan(got), np.where(nan == np.isnan(got), 0, np.inf), error)
    zero = (rounded == 0) & (got == 0) & (np.signbit(rounded) != np.signbit(got))
    return np.where(zero, np.inf, error).astype(np.float64)


# -- arguments -------------------------------------------------------------------------


def all_floats(chunk: int = 1 << 22) -> Iterator[Array]:
    """All 2³² float32, in parts."""
    for start in range(0, 1 << 32, chunk):
        yield np.arange(start, start + chunk, dtype=np.uint32).view(np.float32)


SPECIAL = (0.0, 1.0, 0.5, 2.0, 3.0, np.inf, np.nan, 1e-30, 1e30)


def sample(dtype: str, count: int, seed: int = 0) -> Array:
    """At least ``count`` numbers of both signs: every exponent with random fractions,
    numbers of the size of thresholds, small integers, special values, and neighbours."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    unsigned = np.uint32 if dtype == "float32" else np.uint64
    each = -(-count // (2 << info.nexp)) 
    exponents = np.repeat(np.arange(1 << info.nexp, dtype=unsigned), each)
    fractions = rng.integers(0, 1 << info.nmant, exponents.size, dtype=unsigned)
    shift = unsigned(info.nmant)
    spread = ((exponents << shift) | fractions).view(dtype)
    usual = rng.uniform(0, 1, count // 4) * np.exp2(rng.integers(-3, 11, count // 4))
    few = np.arange(0, 2048) / 8
    special = np.array([*SPECIAL, info.tiny, info.smallest_subnormal, info.max], dtype)
    logs = np.log(2) * np.arange(1, 1100) / 2
    pi = np.pi / 4 * np.arange(1, 4096)
    exact_ones = np.concatenate([few, logs, pi]).astype(dtype)
    near = np.concatenate([exact_ones, special[np.isfinite(special)]])
    with np.errstate(all="ignore"):
        near = np.concatenate(
            [near, np.nextafter(near, dtype_of(dtype)(np.inf)), np.nextafter(near, dtype_of(dtype)(0))]
        )
    values = np.concatenate([spread, usual.astype(dtype), near, special])
    return np.concatenate([values, -values])


def dtype_of(name: str) -> Any:
    return np.dtype(name).type
