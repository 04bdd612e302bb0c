"""Positions among all elements of arrays that are computed in loops in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat as eq

COMPUTED = {
    "broadcast": lambda x, y: x + y,
    "first column": lambda x, y: y - y[..., :1],
    "chosen": lambda x, y: np.where(x > 2, x, y),
    "turned": lambda x, y: (x * y).swapaxes(-1, -2),
}


@pytest.mark.parametrize("find", [np.argmax, np.argmin])
@pytest.mark.parametrize("has_nan", [False, True])
@pytest.mark.parametrize("shape", [(3, 6), (4, 8), (5, 64), (100, 7), (2, 3, 5)])
@pytest.mark.parametrize("name", COMPUTED)
def test_the_position_among_all_elements(
    name: str, shape: tuple[int, ...], has_nan: bool, find: Any
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape[-1]), rng.normal(size=shape)
    if has_nan:
        y.flat[y.size // 2] = np.nan
    assert eq.jit(lambda x, y: find(COMPUTED[name](x, y)))(x, y) == find(
        COMPUTED[name](x, y)
    )
