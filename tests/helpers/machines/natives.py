"""Programs of the native backend, and arrays in every layout, for tests of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import made
import numpy as np
from agreement import BF16, FLOATS
from bodies import fused_op
from hypothesis import strategies as st
from programs import program_of

from eqsat.backends.loop_ir.index_maps import (
    Unsupported,
)
from eqsat.backends.native import NativeProgram
from eqsat.backends.native.lower import CompiledProgram, _layout, _readable
from eqsat.backends.native.machine import Tuning
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.numpy_fallback import Python
from eqsat.kernels.program import Program
from eqsat.terms.op import Op

Array = np.ndarray[Any, Any]
INTEGERS = [np.dtype(n) for n in "i1 u1 i2 u2 i4 u4 i8 u8".split()]
DTYPES = [*FLOATS, *INTEGERS, np.dtype(bool)]
LENGTHS = (37, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 130)
"""Around the lengths of vectors and of steps of several."""
LAYOUTS = "packed fortran reversed strided window broadcast misaligned field".split()
layouts, threads = st.sampled_from(LAYOUTS), st.sampled_from([1, 2, 8])


def laid(x: Array, layout: str) -> Array:
    """The elements of ``x`` in another layout; broadcast, those of its first row."""
    if layout == "broadcast" and x.ndim and x.shape[0]:
        return np.broadcast_to(x[:1].copy(), x.shape)
    if layout == "fortran":
        return np.asfortranarray(x)
    if layout == "reversed":
        return np.flip(np.flip(x).copy())
    if layout == "strided" and x.ndim:
        return np.repeat(x, 3, axis=-1)[..., ::3]
    if layout == "window":
        whole = np.zeros([n + 3 for n in x.shape], x.dtype)
        part = whole[(..., *(slice(1, n + 1) for n in x.shape))]
        part[...] = x
        return part
    if layout == "misaligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
        moved = np.ndarray(x.shape, x.dtype, raw.data)
        moved[...] = x
        return moved
    if layout == "field":
        records = np.zeros(x.shape, [("head", "u1"), ("x", x.dtype)])
        records["x"] = x
        return records["x"]
    return np.array(x, order="C")


def mixed(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Array:
    """Elements of all kinds: usual, whole, huge, denormal, NaN, ±∞, ±0; integers of
    the whole range with its ends and small ones; bools."""
    dtype = np.dtype(dtype)
    if dtype == np.dtype(bool):
        return np.asarray(rng.random(shape) < 0.5)
    if dtype not in FLOATS:
        info = np.iinfo(dtype)
        whole = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        small = rng.integers(-3 if info.min else 0, 4, shape).astype(dtype)
        ends = rng.choice(np.array([info.min, info.max], dtype), shape)
        return np.choose(rng.integers(0, 3, shape), [whole, small, ends])
    usual = rng.normal(0, 2, shape)
    whole = rng.integers(-4, 5, shape) / 2
    odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
    least, most = {2: (2.0**-24, 6e4), 4: (1.4e-45, 3e38), 8: (5e-324, 1e308)}[
        4 if dtype == BF16 else dtype.itemsize
    ]
    if dtype == BF16:
        least = 2.0**-133
    far = most ** rng.uniform(-1, 1, shape) * rng.choice([-1, 1], shape)
    tiny = rng.integers(-40, 40, shape) * least
    kinds = [usual, usual, whole, odd, far, tiny]
    with np.errstate(all="ignore"):
        found = np.choose(rng.integers(0, len(kinds), shape), kinds)
        return np.asarray(found).astype(dtype)


def lowered(
    program: Program, threads: int = 1, cpu: str | None = None
) -> NativeProgram:
    """Native code of a program."""
    return NativeProgram(program, host(cpu), threads)


def run(
    program: Program,
    arrays: Sequence[Array],
    threads: int = 1,
    cpu: str | None = None,
    products: str | None = None,
) -> tuple[list[Array], dict[str, str]]:
    """The results of a program compiled for the layouts of ``arrays`` alone, and why
    some of its kernels run as NumPy."""
    machine = host(cpu, products)
    given = [*map(_readable, arrays)]
    with _kept_if_nothing_is_replaced():
        try:
            compiled = CompiledProgram(
                program, [*map(_layout, given)], machine, threads
            )
        except Unsupported:  # a view that only packed memory has: Lowered copies then
            given = [np.ascontiguousarray(a) for a in given]
            compiled = CompiledProgram(
                program, [*map(_layout, given)], machine, threads
            )
    parts = [p for p in compiled.parts if isinstance(p, Python)]
    before = [a.tobytes() for a in arrays]
    with _all_awake():
        got = compiled.run(given)
    assert [a.tobytes() for a in arrays] == before
    checked(got, arrays, program)
    return got, {kernel.name: why for p in parts for kernel, why in p.kernels}


@contextmanager
def _kept_if_nothing_is_replaced() -> Iterator[None]:
    """Programs are kept between runs, but not those of a test that changes how code is
    made."""
    before = os.environ.get("EQSAT_CACHE")
    if not made.Programs.keeps:
        os.environ["EQSAT_CACHE"] = "0"
    try:
        yield
    finally:
        os.environ.pop("EQSAT_CACHE", None)
        if before is not None:
            os.environ["EQSAT_CACHE"] = before


@contextmanager
def _all_awake() -> Iterator[None]:
    """All threads have a part of the work, whoever sleeps."""
    before = Tuning.wake_s
    Tuning.wake_s = 0.0
    try:
        yield
    finally:
        Tuning.wake_s = before


def called(low: NativeProgram, *arrays: Array) -> list[Array]:
    """The results of ``low``, which leaves its arguments alone."""
    before = [a.tobytes() for a in arrays]
    with _all_awake():
        got = low(*arrays)
    assert [a.tobytes() for a in arrays] == before
    checked(got, arrays, low.program)
    return got


def checked(got: Sequence[Array], arrays: Sequence[Array], program: Program) -> None:
    """Results are of the right types, in memory of their own in C order."""
    for i, (g, root) in enumerate(zip(got, program.roots, strict=True)):
        assert type(g) is np.ndarray
        assert (g.dtype, g.shape) == root.type
        assert g.flags.c_contiguous and g.flags.writeable and g.flags.aligned
        others = [*arrays, *got[:i], *root.graph.arrays.values()]
        assert not any(np.may_share_memory(g, o) for o in others)


def natively(
    f: Callable[..., Any],
    *arrays: Array,
    constants: Sequence[Array] = (),
    threads: int = 1,
    cpu: str | None = None,
    products: str | None = None,
) -> list[Array]:
    """What the program of ``f`` computes, all of it in machine code."""
    program = program_of(f, *arrays, constants=constants)
    got, reasons = run(program, arrays, threads, cpu, products)
    assert not reasons
    return got


def fused(f: Callable[..., Any], count: int) -> Op:
    """``f`` of ``count`` arrays as one kernel."""
    module = f.__module__.rpartition(".")[2]
    return fused_op(f"one_kernel_of_{module}", f, count)


def same_bits(got: Array, want: Any, signs: bool = True) -> None:
    """Equal elements, NaN equal to NaN and, unless ``signs`` is false, 0.0 apart from
    -0.0."""
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype in FLOATS:
        with np.errstate(all="ignore"):  # NaNs that signal
            got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    if signs and want.dtype.kind == "f":
        kept = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[kept], np.signbit(want)[kept])


def near(got: Array, want: Array, error: Any) -> None:
    """``got`` is a number that rounding may make of one within ``error`` of ``want``,
    which is of a wider dtype."""
    assert got.shape == want.shape
    wide = want.dtype
    with np.errstate(all="ignore"):
        low = (want - error).astype(got.dtype).astype(wide)
        high = (want + error).astype(got.dtype).astype(wide)
    nan = np.isnan(want)
    x = got.astype(wide)
    inside = np.where(nan, np.isnan(x), (low <= x) & (x <= high))
    # The infinities have no error.
    inside |= np.isinf(want) & (x == want)
    at = int(np.argmin(inside))
    assert inside.all(), (at, x.flat[at], want.flat[at], (~inside).sum())


def run_in_child(code: str) -> str:
    """Run ``code`` in a process of its own, where tests can be imported; what it says
    on stderr."""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
