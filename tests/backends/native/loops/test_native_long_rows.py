"""Rows of more elements than memory holds: they are reduced as they are read."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

LONG = (1 << 25) + 3
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum of a cast": lambda x: np.sum(x.astype(np.float64)),
    "mean of a cast": lambda x: x.astype(np.float64).mean(),
    "sum as another dtype": lambda x: np.sum(x, dtype=np.float64),
    "count": lambda x: np.count_nonzero(x * 2 > 1),
    "largest": lambda x: (x.astype(np.float64) * 3).max(),
    "position": lambda x: (x.astype(np.float64) * 3).argmax(),
    "any": lambda x: (x.astype(np.int64) > 9).any(),
    "root of squares": lambda x: np.sqrt((x.astype(np.float64) ** 2).sum()),
    "columns": lambda x: (x[1:-2].reshape(-1, 2).astype(np.float64) + 1).sum(0),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_long_rows_give_numpys_answer_in_memory_that_does_not_grow(name: str) -> None:
    x = np.zeros(LONG, np.int8)
    x[:: 1 << 20] = 1
    x[-3:] = 5, 7, 3
    f = eq.jit(REDUCTIONS[name], backend="native")
    np.testing.assert_allclose(f(x), REDUCTIONS[name](x), rtol=1e-12)
    tracemalloc.start()
    try:
        f(x)
        assert tracemalloc.get_traced_memory()[1] < LONG
    finally:
        tracemalloc.stop()


# Reductions of rows of this length run every time.
@pytest.mark.slow
def test_a_softmax_of_one_long_row() -> None:
    x = np.random.default_rng(0).standard_normal(LONG, dtype=np.float32)

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max())
        return e / e.sum()

    got = eq.jit(softmax, backend="native")(x)
    want = np.exp(x.astype(np.float64) - x.max())
    np.testing.assert_allclose(got, want / want.sum(), rtol=1e-5)


_FAR = """
import resource
import numpy as np, eqsat as eq
x = np.broadcast_to(np.float32(1.5), (2**31 + 1,))
f = eq.jit(lambda x: np.sum(x.astype(np.float64)), backend="native")
g = eq.jit(lambda x: (x.astype(np.float64) > 1).sum(), backend="native")
for _ in range(2):
    assert f(x) == 1.5 * (2**31 + 1) and g(x) == 2**31 + 1
with open("/proc/self/status") as status:
    (most,) = [line.split()[1] for line in status if line.startswith("VmHWM")]
assert int(most) < 1 << 20
resource.setrlimit(resource.RLIMIT_AS, (10 << 30, resource.RLIM_INFINITY))
for backend in ("native", "numpy"):
    try:
        eq.jit(lambda x: x.astype(np.float64), backend=backend)(x)
    except MemoryError as error:
        assert str(8 * (2**31 + 1)) in str(error) or "16.0 GiB" in str(error), error
    else:
        raise AssertionError(backend)
"""


# Rows of LONG elements run every time.
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded otherwise")
def test_more_elements_than_32_bits_count() -> None:
    done = subprocess.run([sys.executable, "-c", _FAR], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
