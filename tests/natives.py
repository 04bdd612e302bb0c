"""Programs of the native backend, and arrays in every layout, for tests of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from agreement import BF16, FLOATS
from programs import program_of

from eqsat.backends.native import Lowered
from eqsat.backends.native.machine import host
from eqsat.program import Program

Array = np.ndarray[Any, Any]
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 64, 65, 127, 129, 130)
"""Around the lengths of vectors and of steps of several."""
LAYOUTS = (
    "packed fortran reversed strided window broadcast misaligned field".split()
)


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


def lowered(program: Program, threads: int = 1, cpu: str | None = None) -> Lowered:
    """Native code of a program."""
    return Lowered(program, host(cpu), threads)


def called(low: Lowered, *arrays: Array) -> list[Array]:
    """The results of ``low``, of the right types, in memory of their own; it leaves its
    arguments alone."""
    before = [a.tobytes() for a in arrays]
    got = low(*arrays)
    assert [a.tobytes() for a in arrays] == before
    roots = low.program.roots
    for i, (g, root) in enumerate(zip(got, roots, strict=True)):
        assert type(g) is np.ndarray
        assert (g.dtype, g.shape) == root.type
        assert g.flags.c_contiguous and g.flags.writeable and g.flags.aligned
        others = [*arrays, *got[:i], *root.graph.arrays.values()]
        assert not any(np.may_share_memory(g, o) for o in others)
    return got


def natively(
    f: Callable[..., Any],
    *arrays: Array,
    constants: Sequence[Array] = (),
    threads: int = 1,
    cpu: str | None = None,
    whole: bool = True,
) -> list[Array]:
    """What the native program of ``f`` computes; where ``whole``, without NumPy."""
    program = program_of(f, *arrays, constants=constants)
    low = lowered(program, threads, cpu)
    if whole:
        assert not low.reasons
    return called(low, *arrays)


def same_bits(got: Array, want: Any, signs: bool = True) -> None:
    """Equal elements, NaN equal to NaN and, unless ``signs`` is false, 0.0 apart from
    -0.0."""
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype in FLOATS:
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    if signs and want.dtype.kind == "f":
        kept = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[kept], np.signbit(want)[kept])
