"""Constants are brought into panels beside the compiler, in parts."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

import eqsat as eq
from eqsat.backends.native.plan import buffers, filling
from eqsat.backends.native.plan.filling import BESIDE_BYTES, Filling


@pytest.mark.parametrize("begins", [True, False])
def test_all_are_filled_once(begins: bool) -> None:
    filled: list[int] = []
    all_of = Filling()
    for i in range(40):
        nbytes = BESIDE_BYTES if i % 3 else BESIDE_BYTES - 1
        all_of.add(lambda i=i: filled.append(i), nbytes)  # type: ignore[misc]
    if begins:
        all_of.begin()
    all_of.finish()
    assert sorted(filled) == [*range(40)]
    all_of.finish()
    assert len(filled) == 40


def test_what_the_second_thread_raises_is_raised_at_the_end() -> None:
    started = threading.Event()

    def fails() -> None:
        started.set()
        raise MemoryError("no room")

    of = Filling()
    of.add(fails, BESIDE_BYTES)
    of.begin()
    assert started.wait(10)
    with pytest.raises(MemoryError, match="no room"):
        of.finish()
    of.finish()


@pytest.mark.parametrize("of", [(70, 300), (3, 70, 300), (1, 64)])
@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_make_the_whole(
    of: tuple[int, ...],
    turns: bool,
    dtype: type[np.floating],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filling, "BESIDE_BYTES", 0)
    monkeypatch.setattr(buffers, "PART_BYTES", 4096)
    random = np.random.default_rng(0)
    weights = random.standard_normal(of).astype(dtype)
    if turns:
        weights = np.ascontiguousarray(weights.swapaxes(-1, -2)).swapaxes(-1, -2)
    x = random.standard_normal((*of[:-2], 40, of[-2])).astype(dtype)

    def product(x: NDArray[np.floating]) -> NDArray[np.floating]:
        return x @ weights + 1

    got = eq.jit(product, backend="native")(x)
    expected = x.astype(np.float64) @ weights.astype(np.float64) + 1
    bound = of[-2] * np.finfo(dtype).eps * (abs(x) @ abs(weights) + 1)
    assert (abs(got - expected) <= bound).all()
