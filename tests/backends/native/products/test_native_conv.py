"""Convolutions in machine code against wider numbers."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from itertools import product as product_of
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
from agreement import BF16
from convolving import (
    CPUS,
    F16,
    F32,
    F64,
    ONE,
    ORDERS,
    UNIT,
    WIDE,
    cpus,
    draw,
    exact,
    right,
    threads,
)
from hypothesis import example, given
from hypothesis import strategies as st
from layers import Sizes, attributes, drawn_convolutions, slid_convolutions
from natives import Array, fused, laid, lowered, natively, near, run
from programs import program_of
from sizes import examples, seeds, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native import NativeProgram
from eqsat.backends.native.convolutions import (
    channel_lanes,
    conv_calls,
    conv_plan,
    kernel_lane_calls,
)
from eqsat.backends.native.lower import CompiledProgram, Native, _layout
from eqsat.backends.native.machine import COMMON, Tuning
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.plan.buffers import LATE_BYTES
from eqsat.backends.native.products import parts_of, tile
from eqsat.ops.contract import conv2d_op

any_convolutions = drawn_convolutions() | slid_convolutions()


@examples(200)
@given(
    seeds,
    any_convolutions,
    st.sampled_from([F32, F32, F64, F16, BF16]),
    st.tuples(st.sampled_from(ORDERS), st.sampled_from(ORDERS)),
    st.booleans(),
    threads,
    cpus,
)
@example(
    0,
    ((1, 6, 14, 15), (6, 6, 1, 1), attributes()),
    F32,
    ("window", "packed"),
    True,
    3,
    None,
)
@example(
    0,
    ((1, 1, 1, 300), (1, 1, 1, 300), attributes(padding=(0, 299))),
    F64,
    ("packed", "packed"),
    False,
    1,
    None,
)
def test_convolutions(
    seed: int,
    drawn: tuple[Sizes, Sizes, dict[str, Any]],
    dtype: Any,
    orders: tuple[str, str],
    is_constant: bool,
    threads: int,
    cpu: str | None,
) -> None:
    shape, kernel, attrs = drawn
    x = laid(draw(seed, *shape).astype(dtype), orders[0])
    w = laid(draw(seed + 1, *kernel).astype(dtype), orders[1])
    given, fixed = ([x], [w]) if is_constant else ([x, w], [])
    (got,) = natively(
        lambda x, w: ops.conv2d(x, w, **attrs),
        *given,
        constants=fixed,
        threads=threads,
        cpu=cpu,
    )
    right(got, x, w, **attrs)


@examples(120)
@given(seeds, any_convolutions, st.sampled_from([F32, F64]), threads, cpus)
def test_what_follows_runs_for_parts_of_the_places(
    seed: int,
    drawn: tuple[Sizes, Sizes, dict[str, Any]],
    dtype: Any,
    threads: int,
    cpu: str | None,
) -> None:
    shape, kernel, attrs = drawn
    x, w = draw(seed, *shape, dtype=dtype), draw(seed + 1, *kernel, dtype=dtype)
    y = exact(x, w, WIDE[dtype], **attrs)
    b, r = draw(seed, kernel[0], 1, 1, dtype=dtype), draw(2, *y.shape, dtype=dtype)

    def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
        return ops.relu(ops.conv2d(x, w, **attrs) + b) * 2.0 + r

    (got,) = natively(fused(layer, 4), x, w, b, r, threads=threads, cpu=cpu)
    size = exact(np.abs(x), np.abs(w), WIDE[dtype], **attrs)
    bound = UNIT[dtype] * (2 * (w[0].size + 4) * (size + np.abs(b)) + 2 * np.abs(r))
    near(got, np.maximum(y + b, 0) * 2 + r, bound)


# -- cuts ------------------------------------------------------------------------------


CUTS: list[tuple[Sizes, Sizes, dict[str, Any]]] = [
    ((1, 130, 9, 7), (70, 130, 3, 3), attributes(padding=ONE)),  # inner blocks
    ((2, 1500, 5, 5), (300, 1500, 1, 1), attributes()),  # rows of kernels too
    ((1, 20, 5, 7), (130, 20, 3, 3), attributes()),  # few places
    ((3, 2, 40, 61), (17, 2, 5, 5), attributes((2, 2), (2, 2))),
    ((1, 3, 96, 100), (24, 3, 32, 16), attributes((32, 16))),  # patches
    ((1, 2, 150, 211), (2, 1, 3, 3), attributes(padding=ONE, groups=2)),  # bands
    ((2, 5, 31, 33), (10, 1, 7, 7), attributes(padding=(3, 3), groups=5)),
    ((1, 4, 3, 3), (4, 1, 3, 3), attributes(groups=4)),  # one place
    ((1, 1, 1, 300), (3, 1, 1, 9), attributes(padding=(0, 4))),
    ((1, 2, 60, 3), (2, 1, 11, 2), attributes((2, 1), (3, 0), (3, 2), 2)),
    # large kernels in few places
    ((5, 6, 20, 23), (20, 3, 18, 20), attributes((1, 2), (0, 1), groups=2)),
    ((70, 4, 9, 9), (9, 4, 9, 9), attributes()),  # one place
    ((2, 70, 6, 6), (33, 70, 5, 5), attributes()),  # channels at once
    ((9, 2, 40, 41), (50, 2, 30, 20), attributes((1, 2), (1, 3), (1, 2))),
    ((40, 3, 17, 18), (1, 3, 16, 16), attributes(padding=ONE)),  # one kernel
    ((300, 2, 8, 8), (120, 2, 7, 7), attributes(padding=ONE)),  # many rows
    ((2, 5, 90, 90), (30, 5, 88, 89), attributes(padding=ONE)),  # bands
    ((1, 6, 30, 37), (34, 3, 25, 17), attributes((2, 3), (1, 2), ONE, 2)),
    ((3, 4, 20, 40), (28, 1, 9, 17), attributes(dilation=(2, 2), groups=4)),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_cuts(case: tuple[Sizes, Sizes, dict[str, Any]], threads: int) -> None:
    shape, kernel, attrs = case
    x, w = draw(0, *shape), draw(1, *kernel)
    for cpu in some(CPUS, 1):
        (got,) = natively(
            lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads, cpu=cpu
        )
        right(got, x, w, **attrs)


# Convolutions of windows of larger arrays are drawn every time.
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="protects memory")
def test_memory_around_images_is_not_read() -> None:
    """A page that must not be read follows the last element, or precedes the first."""
    page = mmap.PAGESIZE
    block = mmap.mmap(-1, 3 * page, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    whole = np.frombuffer(block, np.uint8)
    address = whole.ctypes.data
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for guard in (0, 2):
        assert protect(address + guard * page, page, 0) == 0
    try:
        cases = product_of((27, 61, 128), (1, 2, 3), (1, 2), (1, 3, -2))
        for n, step, groups, kernel in cases:
            size = 2 * 2 * n * 4
            for start in (page, 2 * page - size):
                x = whole[start : start + size].view(F32).reshape(1, 2, 2, n)
                x[:] = draw(0, *x.shape)
                w = draw(1, 2, 2 // groups, 1, kernel if kernel > 0 else n + kernel)
                attrs = attributes((1, step), (0, max(kernel, 0) // 2), groups=groups)
                (got,) = natively(lambda x, w, a=attrs: ops.conv2d(x, w, **a), x, w)
                right(got, x, w, **attrs)
        for channels, high, across in product_of((16, 17, 31), (1, 4), (2, 5, 7)):
            size = channels * high * across * 4
            for start in (page, 2 * page - size):
                x = whole[start : start + size].view(F32)
                x = x.reshape(1, channels, high, across)
                x[:] = draw(0, *x.shape)
                w, attrs = draw(1, channels, 1, 3, 3), attributes(padding=ONE)
                attrs["groups"] = channels
                f = partial(ops.conv2d, **attrs)
                (got,) = natively(f, x, constants=[w])
                right(got, x, w, **attrs)
    finally:
        for guard in (0, 2):
            protect(address + guard * page, page, mmap.PROT_READ | mmap.PROT_WRITE)


def test_large_results_of_stencils_are_written_part_by_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts begin anywhere in a line of memory, where no cache is asked for."""
    monkeypatch.setattr(Tuning, "streamed_bytes", 1 << 15)
    x, w, b = draw(0, 1, 6, 162, 99), draw(1, 6, 1, 3, 3), draw(2, 6)
    one = fused(lambda x, w, b: ops.conv2d(x, w, groups=6) + b.reshape(-1, 1, 1), 3)
    arrays = [a.astype(F16) for a in (x, w, b)]
    (got,) = natively(one, *arrays, threads=2)
    want = exact(arrays[0], arrays[1], np.float64, **attributes(groups=6))
    near(got, want + arrays[2].astype(np.float64)[:, None, None], 1e-4)


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("form", [(1, (3, 3)), (4, (3, 3)), (2, (7, 20))])
def test_halves_are_summed_in_float32_and_rounded_once(
    dtype: Any, cpu: str | None, form: tuple[int, tuple[int, int]]
) -> None:
    groups, kernel = form
    attrs = attributes((1, 2), ONE, groups=groups)
    x = draw(0, 2, 4, 9, 43).astype(dtype)
    w = draw(1, 8, 4 // groups, *kernel).astype(dtype)
    for arrays, fixed in (([x, w], []), ([x], [w])):
        (got,) = natively(
            lambda x, w: ops.conv2d(x, w, **attrs), *arrays, constants=fixed, cpu=cpu
        )
        assert got.dtype == dtype
        right(got, x, w, **attrs)


@examples(100)
@given(
    seeds, any_convolutions, st.sampled_from([np.nan, np.inf]), st.booleans(), threads
)
def test_odd_numbers_go_where_they_belong(
    seed: int,
    drawn: tuple[Sizes, Sizes, dict[str, Any]],
    odd: float,
    in_x: bool,
    threads: int,
) -> None:
    shape, kernel, attrs = drawn
    x, w = draw(seed, *shape), draw(seed + 1, *kernel)
    x[x == 0] = w[w == 0] = 1
    of = x if in_x else w
    of.flat[seed % of.size] = odd
    (got,) = natively(lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads)
    want = exact(x, w, F64, **attrs)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    others = np.isfinite(want)
    np.testing.assert_allclose(got[others], want[others], 1e-3, 1e-3)


@pytest.mark.parametrize("groups", [1, 64])
def test_errors_are_no_worse_than_those_of_numpy(groups: int) -> None:
    attrs = attributes(padding=ONE, groups=groups)
    for seed, low in ((0, -1.0), (1, 0.0)):
        rng = np.random.default_rng(seed)
        x = rng.uniform(low, 1, (1, 64, 28, 28)).astype(F32)
        w = rng.uniform(low, 1, (64, 64 // groups, 3, 3)).astype(F32)
        want = exact(x, w, F64, **attrs)
        (got,) = natively(lambda x, w: ops.conv2d(x, w, **attrs), x, w)
        other = conv2d_op.reference(x, w, **attrs)
        errors = [np.sqrt(np.mean((y - want) ** 2)) for y in (got, other)]
        assert errors[0] <= 1.1 * errors[1]


def test_convolutions_of_nothing() -> None:
    for shape, kernel in (
        ((0, 3, 5, 5), (2, 3, 3, 3)),
        ((2, 0, 5, 5), (2, 0, 3, 3)),
        ((1, 3, 5, 5), (0, 3, 3, 3)),
    ):
        x, w = draw(0, *shape), draw(1, *kernel)
        (got,) = natively(lambda x, w: ops.conv2d(x, w), x, w)
        np.testing.assert_array_equal(got, conv2d_op.reference(x, w))


# -- programs --------------------------------------------------------------------------


def parts(f: Callable[..., Any], *arrays: Array, threads: int = 1) -> CompiledProgram:
    program = program_of(f, *arrays)
    return CompiledProgram(program, [*map(_layout, arrays)], host(), threads)


def test_a_layer_is_one_step_without_memory_of_its_own() -> None:
    x, w, b = draw(0, 1, 32, 28, 28), draw(1, 48, 32, 3, 3), draw(2, 48, 1, 1)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return ops.relu(ops.conv2d(x, w, padding=1) + b)

    made = parts(fused(layer, 3), x, w, b)
    (only,) = made.parts
    assert isinstance(only, Native)
    assert made.arena_bytes <= COMMON.conv_panel_bytes


def test_a_result_that_others_read_too() -> None:
    x, w, v = draw(0, 2, 5, 11, 13), draw(1, 6, 5, 3, 3), draw(2, 4, 6, 3, 3)

    def both(x: Any, w: Any, v: Any) -> Any:
        y = ops.conv2d(x, w, padding=1)
        z = ops.relu(y)
        return y, z, ops.conv2d(z + x[:, :1], v), ops.sum(y, (2, 3))

    for n in (1, 3):
        y, z, more, sums = natively(both, x, w, v, threads=n)
        right(y, x, w, **attributes(padding=ONE))
        np.testing.assert_array_equal(z, np.maximum(y, 0))
        right(more, z + x[:, :1], v, **attributes())
        np.testing.assert_allclose(sums, y.sum((2, 3)), 1e-4, 1e-4)


def test_images_that_are_computed_and_results_that_are_turned_or_joined() -> None:
    x, w = draw(0, 2, 5, 11, 13), draw(1, 6, 5, 3, 3)

    def computed(x: Any, w: Any) -> Any:
        y = ops.conv2d(np.tanh(x) * 2.0, w + 1.0, padding=1)
        return np.concatenate([y, x], 1), y.transpose(0, 2, 3, 1) * 1.0

    got = natively(fused(lambda x, w: computed(x, w)[0], 2), x, w)
    images, kernels = np.tanh(x) * np.float32(2), w + np.float32(1)
    y = exact(images, kernels, F64, **attributes(padding=ONE))
    np.testing.assert_allclose(got[0], np.concatenate([y, x], 1), 1e-4, 1e-4)
    (got_turned,) = natively(fused(lambda x, w: computed(x, w)[1], 2), x, w)
    np.testing.assert_allclose(got_turned, y.transpose(0, 2, 3, 1), 1e-4, 1e-4)


def test_results_that_are_interleaved_are_written_once() -> None:
    """Joined and reshaped: each part goes where it belongs, products too."""
    x, w = draw(0, 2, 4, 8, 9), draw(1, 6, 4, 3, 3)
    a, b = draw(2, 5, 7), draw(3, 7, 4)

    def joined(x: Any, w: Any, a: Any, b: Any) -> Any:
        y, z = ops.conv2d(x, w), a @ b
        found = ops.stack([y, y * 2.0], -1).reshape(2, 6, 6, 14)
        padded = ops.pad(z.reshape(5, 4, 1), [(0, 0), (0, 0), (1, 1)])
        return found, padded.reshape(5, 12), ops.stack([z, z], 1).reshape(10, 4)

    for n in range(3):
        one = fused(lambda *args, n=n: joined(*args)[n], 4)
        (got,) = natively(one, x, w, a, b)
        y, z = exact(x, w, F64, **attributes()), a.astype(F64) @ b
        want = [
            np.stack([y, y * 2], -1).reshape(2, 6, 6, 14),
            np.stack([0 * z, z, 0 * z], -1).reshape(5, 12),
            np.stack([z, z], 1).reshape(10, 4),
        ][n]
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_the_last_axis_of_images_may_be_channels() -> None:
    x, w = draw(0, 2, 11, 13, 5), draw(1, 6, 5, 3, 3)
    (got,) = natively(lambda x, w: ops.conv2d(x.transpose(0, 3, 1, 2), w), x, w)
    right(got, x.transpose(0, 3, 1, 2), w, **attributes())


def test_strides_without_code_run_as_numpy() -> None:
    x, w = draw(0, 1, 2, 3, 200), draw(1, 3, 2, 3, 3)
    program = program_of(lambda x, w: ops.conv2d(x, w, stride=(1, 40)), x, w)
    (got,), reasons = run(program, [x, w])
    assert [*reasons.values()] == ["a convolution with a stride of 40"]
    right(got, x, w, **attributes((1, 40)))


def test_batch_norm_and_relu_are_part_of_a_convolution() -> None:
    x, w = draw(0, 1, 16, 20, 21), draw(1, 24, 16, 3, 3)
    mean, var, scale, shift = (np.abs(draw(i, 24)) + 0.5 for i in range(4))
    for a in (w, mean, var, scale, shift):
        a.flags.writeable = False

    @eq.jit(backend="native")
    def f(x: Any) -> Any:
        y = ops.conv2d(x, w, padding=1)
        return ops.relu(ops.batch_norm(y, mean, var, scale, shift))

    low = cast(NativeProgram, f.lower(x).executable)
    (only,) = low.first.parts
    assert isinstance(only, Native)
    assert [k.kind for k in low.program.kernels] == ["contract"]
    y = exact(x, w, F64, **attributes(padding=ONE))
    column = (24, 1, 1)
    y = (y - mean.reshape(column)) / np.sqrt(var + 1e-5).reshape(column)
    want = np.maximum(y * scale.reshape(column) + shift.reshape(column), 0)
    np.testing.assert_allclose(f(x), want, 1e-4, 1e-4)


def test_arguments_in_other_layouts_are_copied_or_read() -> None:
    x, w = draw(0, 2, 3, 9, 40), draw(1, 4, 3, 3, 3)
    low = lowered(program_of(lambda x, w: ops.conv2d(x, w), x, w))
    for order in ORDERS:
        a = laid(x, order)
        right(low(a, w)[0], a, w, **attributes())


def test_the_second_time_the_code_comes_from_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "1")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    x, w = draw(0, 2, 5, 19, 23), draw(1, 6, 5, 3, 3)
    program = program_of(lambda x, w: ops.conv2d(x, w), x, constants=[w])

    def made() -> CompiledProgram:
        return CompiledProgram(program, [_layout(x)], host(), 3)

    first = made()
    with mock.patch.object(CompiledProgram, "_write", side_effect=AssertionError):
        second = made()
    for compiled in (first, second):
        (got,) = compiled.run([x])
        right(got, x, w, **attributes())


# -- kernels in lanes ------------------------------------------------------------------


IN_LANES: list[tuple[Sizes, Sizes, dict[str, Any]]] = [
    ((1, 300, 7, 7), (70, 300, 3, 3), attributes(padding=ONE)),  # blocks of channels
    ((2, 512, 6, 6), (100, 512, 1, 1), attributes()),  # a row of places, and an end
    ((1, 96, 5, 7), (45, 96, 1, 1), attributes()),
    ((1, 3, 61, 75), (47, 3, 7, 7), attributes((2, 2), (3, 3))),
    ((2, 20, 13, 27), (48, 20, 3, 5), attributes((1, 2), (1, 2))),
    ((1, 32, 30, 31), (32, 32, 3, 3), attributes((2, 1), (2, 2), (2, 2))),
    ((1, 64, 14, 14), (64, 32, 3, 3), attributes(padding=ONE, groups=2)),
    ((3, 40, 4, 3), (16, 40, 2, 2), attributes()),  # as images lie
    ((1, 40, 32, 32), (32, 40, 2, 2), attributes()),  # channels in one set of a cache
    ((1, 64, 60, 14), (32, 64, 3, 3), attributes(padding=(0, 1))),  # parts of images
    ((1, 700, 5, 5), (64, 700, 1, 1), attributes((2, 2))),
    ((1, 200, 1, 30), (40, 200, 1, 3), attributes(padding=(0, 1))),
    # Threads share the kernels of few places.
    ((1, 96, 7, 7), (512, 96, 3, 3), attributes(padding=ONE)),
    ((1, 300, 7, 7), (250, 300, 1, 1), attributes()),
    ((3, 64, 5, 5), (200, 64, 3, 3), attributes(padding=ONE)),
    ((1, 128, 3, 3), (390, 64, 3, 3), attributes(padding=ONE, groups=2)),
    ((1, 64, 9, 9), (257, 64, 3, 3), attributes((2, 2), ONE)),
    # Taps beside images are left out: of one tile of a row, two, and several rows.
    ((1, 32, 13, 14), (64, 32, 3, 3), attributes(padding=ONE)),
    ((2, 32, 14, 14), (64, 32, 5, 5), attributes(padding=(2, 2))),
    ((1, 32, 11, 7), (48, 32, 3, 3), attributes((2, 1), (3, 2))),
    ((1, 32, 9, 5), (32, 32, 3, 3), attributes(padding=(4, 2), dilation=(2, 2))),
    ((1, 32, 2, 2), (32, 32, 3, 3), attributes(padding=(4, 3), dilation=(3, 2))),
    ((1, 32, 1, 1), (64, 32, 3, 3), attributes(padding=ONE)),
    ((1, 40, 6, 3), (64, 40, 2, 2), attributes(padding=(3, 3))),
    ((1, 32, 7, 20), (64, 32, 4, 1), attributes((3, 1), (2, 0))),
    ((1, 32, 7, 9), (64, 32, 1, 1), attributes(padding=(2, 1))),
    # Of many tiles; of rows that no image is under.
    ((2, 32, 28, 29), (64, 32, 3, 3), attributes(padding=ONE)),
    ((1, 32, 15, 33), (48, 32, 5, 5), attributes((2, 2), (2, 2))),
    ((1, 64, 9, 45), (80, 32, 3, 3), attributes((1, 2), (2, 9), groups=2)),
    ((2, 32, 9, 40), (48, 32, 3, 3), attributes(padding=(5, 1))),
    ((1, 32, 9, 17), (48, 32, 1, 1), attributes(padding=(2, 1))),
    ((1, 32, 1, 30), (48, 32, 2, 3), attributes(padding=(2, 1), dilation=(2, 1))),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", range(len(IN_LANES)))
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_kernels_in_lanes(number: int, threads: int, dtype: Any) -> None:
    check_layers(IN_LANES[number], number, dtype, threads)


def check_layers(
    case: tuple[Sizes, Sizes, dict[str, Any]],
    seed: int,
    dtype: Any,
    threads: int,
    constant: bool = True,
) -> None:
    """A convolution, and one of something computed that more is computed of."""
    shape, kernel, attrs = case
    x, w = draw(seed, *shape, dtype=dtype), draw(9, *kernel, dtype=dtype)
    b = draw(1, kernel[0], 1, 1, dtype=dtype)

    def layers(x: Any, w: Any) -> Any:
        plain = ops.conv2d(x, w, **attrs)
        return plain, ops.relu(ops.conv2d(x + 1, w, **attrs) + b)

    args, fixed = ([x], [w]) if constant else ([x, w], [])
    plain, after = natively(layers, *args, constants=fixed, threads=threads)
    right(plain, x, w, **attrs)
    y = exact(x + 1, w, WIDE[dtype], **attrs)
    size = exact(np.abs(x + 1), np.abs(w), WIDE[dtype], **attrs) + np.abs(b)
    bound = 2 * UNIT[dtype] * (w[0].size + 4) * size
    near(after, np.maximum(y + b, 0), bound)


IN_CHANNELS = [
    ((1, 32, 7, 7), (32, 1, 3, 3), attributes(padding=ONE, groups=32)),
    ((2, 40, 14, 14), (40, 1, 5, 5), attributes((2, 2), (2, 2), groups=40)),
    ((1, 31, 7, 7), (31, 1, 5, 5), attributes(padding=(2, 2), groups=31)),
    ((3, 16, 9, 20), (16, 1, 3, 7), attributes((1, 2), (1, 3), groups=16)),
    ((1, 100, 5, 9), (100, 1, 5, 2), attributes((3, 1), (4, 1), (1, 2), groups=100)),
    ((1, 33, 14, 30), (33, 1, 2, 5), attributes((3, 2), groups=33)),  # in a loop
    ((1, 17, 1, 50), (17, 1, 1, 9), attributes((1, 2), (0, 4), groups=17)),
    ((1, 48, 50, 1), (48, 1, 7, 1), attributes((2, 1), (3, 0), groups=48)),
    ((1, 64, 7, 7), (64, 1, 7, 7), attributes((2, 2), (3, 3), groups=64)),
    ((2, 40, 8, 8), (40, 1, 3, 3), attributes(padding=(4, 4), groups=40)),
    ((1, 24, 32, 32), (24, 1, 5, 5), attributes((2, 2), (2, 2), groups=24)),
]
"""Convolutions of each channel by itself, forms of which have a channel in each lane.
"""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", range(len(IN_CHANNELS)))
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("is_free", [True, False])
def test_channels_in_lanes(
    number: int,
    threads: int,
    dtype: Any,
    constant: bool,
    is_free: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_free:  # where it costs more, too
        monkeypatch.setattr(channel_lanes, "_TURNED", 0.0)
        monkeypatch.setattr(channel_lanes, "_MULTIPLIED", 0.0)
    check_layers(IN_CHANNELS[number], number, dtype, threads, constant)


@pytest.mark.skipif(host().vector_bits < 512, reason="fewer registers")
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "chosen"),
    [
        (7, 5, 1, True),
        (14, 5, 2, True),
        (7, 7, 2, True),
        (112, 5, 2, True),
        (56, 3, 1, False),
        (112, 3, 1, False),
    ],
)
def test_which_convolutions_have_channels_in_lanes(
    size: int, kernel: int, stride: int, chosen: bool
) -> None:
    """Those of small images, and those of which no place is next to another."""
    x, w = np.ones((1, 64, size, size), F32), np.ones((64, 1, kernel, kernel), F32)
    attrs = {"stride": stride, "padding": kernel // 2, "groups": 64}
    text = eq.jit(lambda x: ops.conv2d(x, w, **attrs)).lower(x).source("llvm")
    assert ("lanes_float32" in text) == chosen


@pytest.mark.parametrize("images", [1, 2, 5])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("image", "kernels"),
    [((576, 1, 1), 100), ((16, 7, 7), 3), ((3, 2, 5), 16), ((1, 1, 1), 1)],
)
@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_kernels_as_large_as_images_are_products(
    images: int, image: Sizes, kernels: int, threads: int, dtype: Any
) -> None:
    x = draw(0, images, *image).astype(dtype)
    w = draw(1, kernels, *image).astype(dtype)
    turned = np.ascontiguousarray(x.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)
    for args, fixed in (([x], [w]), ([x, w], []), ([turned], [w])):
        (got,) = natively(ops.conv2d, *args, constants=fixed, threads=threads)
        right(got, x, w, **attributes())


def test_which_convolutions_have_kernels_in_lanes() -> None:
    """Those of constant kernels that lose less so than by gathering and empty lanes."""
    if host().vector_bits < 512:
        pytest.skip("fewer registers")

    def has_lanes(x: Sizes, w: Sizes, constant: bool = True, **attrs: Any) -> bool:
        args, fixed = [np.ones(x, F32)], [np.ones(w, F32)]
        f = eq.jit(lambda *a: ops.conv2d(*a, *(fixed if constant else ()), **attrs))
        text = f.lower(*args, *([] if constant else fixed)).source("llvm")
        return "lanes_float32" in text

    assert has_lanes((1, 64, 7, 7), (64, 64, 3, 3), padding=ONE)
    assert has_lanes((1, 512, 7, 7), (512, 512, 1, 1))
    assert not has_lanes((1, 64, 7, 7), (64, 64, 3, 3), False, padding=ONE)
    assert not has_lanes((1, 64, 56, 56), (256, 64, 1, 1))
    assert not has_lanes((1, 64, 28, 28), (8, 64, 3, 3), padding=ONE)


def test_what_lies_beside_an_image_is_in_no_sum() -> None:
    """Infinite numbers at its edges do not reach what is far from them."""
    x = np.ones((1, 64, 14, 14), F32)
    x[0, 3, 0, :] = np.inf
    w = draw(3, 40, 64, 3, 3)
    (got,) = natively(lambda x, w: ops.conv2d(x, w, padding=ONE), x, constants=[w])
    assert np.isfinite(got[:, :, 2:]).all()
    assert not np.isfinite(got[:, :, :2]).any()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("high", "across"), [(7, 7), (14, 15), (9, 41)])
@pytest.mark.parametrize("groups", [1, 32])
def test_other_images_are_in_no_sum(
    high: int, across: int, threads: int, groups: int
) -> None:
    """Those before and behind one that is read where it lies."""
    x = draw(0, 3, 32, high, across)
    w = draw(1, 32, 32 // groups, 3, 3)
    x[::2] = np.nan
    attrs = attributes(padding=ONE, groups=groups)
    (got,) = natively(
        lambda x, w: ops.conv2d(x, w, **attrs), x, constants=[w], threads=threads
    )
    right(got[1:2], x[1:2], w, **attrs)


@pytest.mark.parametrize("size", [4, 7, 14, 28])
@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("groups", [1, 32])
def test_what_lies_beside_an_image_counts_where_kernels_are_not_finite(
    size: int, odd: float, groups: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Infinity times a zero around the image is NaN; the code for finite kernels, from
    disk, is not used."""
    monkeypatch.setenv("EQSAT_CACHE", "1")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    x, w = draw(0, 1, 32, size, size), draw(1, 32, 32 // groups, 3, 3)
    x[x == 0] = 1
    wrong = w.copy()
    wrong[0, -1, 0, 0] = wrong[1, -1, 2, 1] = wrong[2, 0, 1, 2] = odd
    attrs = attributes(padding=ONE, groups=groups)

    def result(w: Array) -> Array:
        program = program_of(lambda x, w: ops.conv2d(x, w, **attrs), x, constants=[w])
        return CompiledProgram(program, [_layout(x)], host(), 2).run([x])[0]

    for kernels in (w, wrong, w, wrong):
        got, want = result(kernels), exact(x, kernels, F64, **attrs)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
        of_w = exact(x, w, F64, **attrs)
        sizes_ = exact(np.abs(x), np.abs(w), F64, **attrs)
        near(got[:, 3:], of_w[:, 3:], UNIT[F32] * (w[0].size + 2) * sizes_[:, 3:])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", [*CUTS, *IN_LANES])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_constant", [True, False])
def test_results_are_finished_a_few_places_at_a_time(
    case: tuple[Sizes, Sizes, dict[str, Any]],
    threads: int,
    is_constant: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each once, though what follows writes where it has read."""
    called = []

    def few(p: Any, part: Any, kernels: int, step: int) -> int:
        called.extend([step] if part.finish else [])
        return step

    monkeypatch.setattr(conv_calls, "finished_places", few)
    monkeypatch.setattr(kernel_lane_calls, "finished_places", few)
    shape, kernel, attrs = case
    x, w = draw(0, *shape), draw(1, *kernel)
    y = exact(x, w, WIDE[F32], **attrs)
    b, r = draw(2, kernel[0], 1, 1), draw(3, *y.shape)

    def layer(x: Any, b: Any, r: Any, w: Any) -> Any:
        return ops.relu(ops.conv2d(x, w, **attrs) + b) * 3.0 + r

    given = [x, b, r] if is_constant else [x, b, r, w]
    fixed = [w] if is_constant else []
    (got,) = natively(fused(layer, 4), *given, constants=fixed, threads=threads)
    assert called or case not in (CUTS[0], IN_LANES[0])
    size = exact(np.abs(x), np.abs(w), WIDE[F32], **attrs)
    bound = 2 * UNIT[F32] * (3 * (w[0].size + 4) * (size + np.abs(b)) + np.abs(r))
    near(got, np.maximum(y + b, 0) * 3 + r, bound)


@pytest.mark.skipif(host().vector_bits < 512, reason="fewer registers")
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize(("kernels", "size"), [(512, 3), (1000, 1), (2048, 1)])
def test_threads_share_kernels_of_few_places(
    kernels: int, size: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven rows of seven places are no work for two."""
    found, cut = [], conv_plan.cut

    def noted(*args: Any) -> Any:
        found.append(cut(*args))
        return found[-1]

    monkeypatch.setattr(conv_plan, "cut", noted)
    x, w = draw(0, 1, 512, 7, 7), draw(1, kernels, 512, size, size)
    attrs = attributes(padding=(size // 2, size // 2))

    def layer(x: Any, w: Any) -> Any:
        return ops.conv2d(x, w, **attrs)

    (got,) = natively(layer, x, constants=[w], threads=threads)
    right(got, x, w, **attrs)
    ((_, parts),) = found
    assert parts.plan.kind == "lanes"
    heights = [min(parts.rows, kernels - i) for i in range(0, kernels, parts.rows)]
    widths = np.diff([7 * j // parts.columns for j in range(parts.columns + 1)])
    shares = np.outer(heights, widths).ravel()
    ends = [len(shares) * t // threads for t in range(threads + 1)]
    most = max(sum(shares[a:b]) for a, b in pairwise(ends))
    assert most <= 1.13 * 7 * kernels / threads


SHARED = [(256, 14, 1024, 1), (512, 13, 1000, 1), (128, 28, 512, 1), (96, 14, 200, 3)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("case", SHARED)
def test_threads_have_about_as_much_work_each(
    case: tuple[int, int, int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels, side, kernels, size = case
    found, cut = [], conv_plan.cut

    def noted(*args: Any) -> Any:
        found.append(cut(*args))
        return found[-1]

    monkeypatch.setattr(conv_plan, "cut", noted)
    x, w = draw(0, 1, channels, side, side), draw(1, kernels, channels, size, size)
    attrs = attributes(padding=(size // 2, size // 2))
    (got,) = natively(lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads)
    right(got, x, w, **attrs)
    for p, parts in found:
        assert parts.plan.kind == "windows"
        m, n, _ = p.sizes
        tiles, wide = parts_of(n, tile(host(), p.dtype)), tile(host(), p.dtype).columns
        ends = [min(tiles * j // parts.columns * wide, n) for j in range(parts.columns)]
        widths = np.diff([*ends, n])
        heights = [min(parts.rows, m - i) for i in range(0, m, parts.rows)]
        work = np.outer(heights, widths).ravel()
        most = max(part.sum() for part in np.array_split(work, threads))
        assert most <= 1.35 * m * n / threads


def test_large_folded_weights_are_computed_when_they_are_packed(
    kept: list[str],
) -> None:
    rng = np.random.default_rng(0)
    w, s, x = (
        rng.standard_normal(shape).astype("f4")
        for shape in ((256, 1024, 1, 1), (256, 1, 1), (1, 1024, 2, 3))
    )
    expected = np.einsum("oc,nchw->nohw", w[..., 0, 0].astype(float), x) * s
    for _ in range(2):  # the second time from the cache
        f = eq.jit(lambda x: ops.conv2d(x, w) * s)
        assert any(t.nbytes >= LATE_BYTES for t in f.lower(x).program.folded)
        y = f(x)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert len(kept) == 1
