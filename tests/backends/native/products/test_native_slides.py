"""Convolutions by few kernels against wider numbers: blurs, and long lines by long
kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layers import Sizes, attributes
from natives import fused, laid, natively, near
from test_native_conv import (
    CPUS,
    F16,
    F32,
    F64,
    ORDERS,
    UNIT,
    WIDE,
    cpus,
    draw,
    exact,
    right,
    seeds,
    threads,
)

import eqsat as eq
from eqsat import ops
from eqsat.backends.native.convolutions import conv_plan

ONE = (1, 1)
KERNELS = [
    *((3, 3), (5, 7), (9, 9), (2, 20), (40, 1), (31, 3)),
    *((1, 9), (1, 33), (1, 70), (1, 97), (1, 130), (1, 260)),
]


@st.composite
def slid(draw: Any) -> tuple[Sizes, Sizes, dict[str, Any]]:
    """Shapes of images and kernels, and attributes."""
    number: Callable[..., Any] = lambda *of: draw(st.sampled_from(of))  # noqa: E731
    groups, each, m = number(1, 1, 2), number(1, 1, 2, 5), number(1, 1, 2, 3, 6)
    kernel = draw(st.sampled_from(KERNELS))
    stride = number(ONE, ONE, ONE, (2, 1), (1, 2), (2, 2), (3, 5))
    dilation = number(ONE, ONE, ONE, (2, 1), (1, 2), (2, 2))
    padding = number((0, 0), (1, 1), (2, 30), (kernel[0] // 2, kernel[1] // 2))
    least = [
        max((k - 1) * d + 1 - 2 * p, 1)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    h = least[0] + number(0, 0, 1, 2, 5, 11)
    w = least[1] + stride[1] * number(15, 16, 31, 40, 130, 300, 517)
    shape = number(1, 2), groups * each, h, w
    attrs = attributes(stride, padding, dilation, groups)
    return shape, (groups * m, each, *kernel), attrs


@settings(max_examples=200, deadline=None)
@given(
    seeds,
    slid(),
    st.sampled_from([F32, F32, F64, F16, BF16]),
    st.tuples(st.sampled_from(ORDERS), st.sampled_from(ORDERS)),
    threads,
    cpus,
)
@example(
    0,
    ((1, 1, 1, 300), (1, 1, 1, 300), attributes(padding=(0, 299))),
    F64,
    ("packed", "packed"),
    1,
    None,
)
def test_few_kernels(
    seed: int,
    drawn: tuple[Sizes, Sizes, dict[str, Any]],
    dtype: Any,
    orders: tuple[str, str],
    threads: int,
    cpu: str | None,
) -> None:
    shape, kernel, attrs = drawn
    x = laid(draw(seed, *shape).astype(dtype), orders[0])
    w = laid(draw(seed + 1, *kernel).astype(dtype), orders[1])
    (got,) = natively(
        lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads, cpu=cpu
    )
    right(got, x, w, **attrs)


@settings(max_examples=60, deadline=None)
@given(seeds, slid(), st.sampled_from([F32, F64]), threads, cpus)
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


@settings(max_examples=60, deadline=None)
@given(seeds, slid(), st.sampled_from([np.nan, np.inf]), st.booleans(), threads)
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


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 1, 1, 40_000), (1, 1, 1, 257), attributes(padding=(0, 128))),
        ((1, 1, 1, 40_000), (3, 1, 1, 97), attributes()),
        ((1, 1, 1, 5000), (1, 1, 1, 600), attributes(ONE, (0, 7), (1, 3))),
        ((1, 1, 1, 9000), (2, 1, 1, 300), attributes((1, 2), (0, 7), (1, 2))),
        ((2, 3, 1, 4000), (6, 1, 1, 200), attributes(groups=3)),
        ((1, 1, 200, 200), (1, 1, 15, 15), attributes(padding=(7, 7))),
        ((1, 1, 200, 203), (1, 1, 61, 1), attributes(padding=(30, 0))),
        ((1, 1, 200, 403), (1, 1, 1, 161), attributes(padding=(0, 80))),
        ((1, 64, 40, 40), (3, 64, 3, 3), attributes(padding=ONE)),  # in bands
        ((2, 3, 90, 90), (16, 3, 7, 7), attributes(padding=(3, 3))),
        ((1, 3, 91, 90), (2, 3, 7, 7), attributes((2, 2), (3, 3))),
        ((1, 3, 91, 90), (2, 3, 7, 7), attributes((1, 1), (3, 3), (2, 3))),
        ((1, 500, 9, 40), (2, 500, 3, 3), attributes()),  # many channels
        ((1, 16, 1, 3000), (2, 16, 1, 9), attributes(padding=(0, 4))),
    ],
)
def test_cuts(
    shape: Sizes,
    kernel: Sizes,
    attrs: dict[str, Any],
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds, cut = [], conv_plan.cut

    def noted(*args: Any) -> Any:
        found = cut(*args)
        kinds.append(found[1].plan.kind)
        return found

    monkeypatch.setattr(conv_plan, "cut", noted)
    x, w = draw(0, *shape), draw(1, *kernel)
    for cpu in CPUS:
        (got,) = natively(
            lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads, cpu=cpu
        )
        right(got, x, w, **attrs)
    assert set(kinds) == {"slide"}


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(1000, 1000), (3000, 101), (50, 700), (90, 64)])
def test_convolve_and_correlate(mode: Any, sizes: tuple[int, int]) -> None:
    x, y = draw(0, sizes[0], dtype=F64), draw(1, sizes[1], dtype=F64)
    for f in (np.convolve, np.correlate):
        got = eq.jit(lambda x, y, f=f: f(x, y, mode))(x, y)
        np.testing.assert_allclose(got, f(x, y, mode), rtol=1e-12, atol=1e-12)
