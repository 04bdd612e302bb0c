"""Programs in NumPy that are drawn line by line have NumPy's results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy_programs import numpy_program
from sizes import some

import eqsat as eq

SEEDS = range(2000)
SMALL = 60


def function(text: str) -> Any:
    names: dict[str, Any] = {"np": np}
    exec(compile(text, "<drawn>", "exec"), names)
    return names["f"]


def agrees(seed: int, backend: str, numerics: Any) -> bool:
    """Whether eqsat takes the program; raises where its results are others."""
    text, args = numpy_program(seed)
    f = function(text)
    with np.errstate(all="ignore"):
        want = f(*(a.copy() for a in args))
    fast = eq.jit(f, backend=backend, options=eq.Options(numerics=numerics))
    try:
        got = fast(*(a.copy() for a in args))
    except eq.EqsatError:  # refused by name
        return False
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for a, b in pairs:
        x, y = np.asarray(a), np.asarray(b)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), text
        assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), text
    return True


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("how", ["native", "native exact", "numpy"])
def test_drawn_programs_are_numpys(how: str, part: int) -> None:
    backend, *exact = how.split()
    seeds = some(SEEDS[part::4], SMALL // 4, how, part)
    taken = [agrees(s, backend, "exact" if exact else "reassociate") for s in seeds]
    assert sum(taken) > 0.8 * len(taken)


def test_drawn_programs_are_numpys_on_mlx() -> None:
    pytest.importorskip("mlx.core")
    taken = [agrees(s, "mlx", "reassociate") for s in some(SEEDS[:200], 6)]
    assert any(taken)
