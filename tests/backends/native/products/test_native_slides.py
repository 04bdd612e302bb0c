"""Convolutions by few kernels against wider numbers: blurs, and long lines by long
kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolving import (
    CPUS,
    F64,
    draw,
    right,
)
from layers import Sizes, attributes
from natives import natively
from sizes import some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native.convolutions import conv_plan

ONE = (1, 1)
SLIDES: list[tuple[Sizes, Sizes, dict[str, Any]]] = [
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
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", SLIDES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_cuts(
    case: tuple[Sizes, Sizes, dict[str, Any]],
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, kernel, attrs = case
    kinds, cut = [], conv_plan.cut

    def noted(*args: Any) -> Any:
        found = cut(*args)
        kinds.append(found[1].plan.kind)
        return found

    monkeypatch.setattr(conv_plan, "cut", noted)
    x, w = draw(0, *shape), draw(1, *kernel)
    for cpu in some(CPUS, 1):
        (got,) = natively(
            lambda x, w: ops.conv2d(x, w, **attrs), x, w, threads=threads, cpu=cpu
        )
        right(got, x, w, **attrs)
    assert set(kinds) == {"slide"}


LINES = [(1000, 1000), (3000, 101), (50, 700), (90, 64)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", LINES)
def test_convolve_and_correlate(mode: Any, sizes: tuple[int, int]) -> None:
    x, y = draw(0, sizes[0], dtype=F64), draw(1, sizes[1], dtype=F64)
    for f in (np.convolve, np.correlate):
        got = eq.jit(lambda x, y, f=f: f(x, y, mode))(x, y)
        np.testing.assert_allclose(got, f(x, y, mode), rtol=1e-12, atol=1e-12)
