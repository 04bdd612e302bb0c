"""eq.random: the same bits everywhere, and the distributions that it says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, cast

import numpy as np
import pytest

import eqsat as eq
from eqsat import random

KEY = random.key(2**40 + 17)
DRAWS: dict[str, Callable[[Any], Any]] = {
    "bits": lambda k: random.bits(k, (5, 7)),
    "one": random.bits,
    "none": lambda k: random.bits(k, (3, 0)),
    "split": lambda k: random.split(k, 3),
    "fold": lambda k: random.fold_in(k, 7),
    "uniform": lambda k: random.uniform(k, (3, 5)),
    "uniform32": lambda k: random.uniform(k, 33, np.float32),
    "normal": lambda k: random.normal(k, (1000,)),
    "normal32": lambda k: random.normal(k, (3, 11), np.float32),
    "integers": lambda k: random.integers(k, (100,), -5, 2**31),
    "permutation": lambda k: random.permutation(k, 50),
    "choice": lambda k: random.choice(k, 50, (3, 4)),
    "different": lambda k: random.choice(k, 50, (3, 4), replace=False),
    "several": lambda k: random.normal(random.fold_in(random.split(k)[1], 3), 9),
}


@pytest.mark.parametrize("backend", ["native", "numpy", "mlx"])
@pytest.mark.parametrize("name", DRAWS)
def test_jitted_and_eager_have_the_same_bits(name: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    draw = DRAWS[name]
    jitted = eq.jit(draw, backend=backend)
    for key in (KEY, random.key(0)):
        eager, made = draw(key), np.asarray(jitted(key))
        assert made.dtype == eager.dtype and made.shape == np.shape(eager)
        assert made.tobytes() == eager.tobytes()


@pytest.mark.parametrize(
    "key, counter, bits",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers_of_threefry(key: Any, counter: Any, bits: Any) -> None:
    """From the authors' Random123: kat_vectors, threefry2x32, 20 rounds."""
    a, b = np.array(counter[:1], np.uint32), np.uint32(counter[1])
    assert bits == tuple(int(w[0]) for w in random._threefry(np.uint32(key), a, b))


def test_a_key_in_an_argument_draws_anew() -> None:
    @eq.jit
    def noisy(x: Any, key: Any, step: Any) -> Any:
        return x + random.normal(random.fold_in(key, step), x.shape, x.dtype)

    x = np.zeros((4, 3), np.float32)
    drawn = {noisy(x, KEY, np.int64(i)).tobytes() for i in range(20)}
    assert len(drawn) == 20
    assert noisy(x, KEY, np.int64(3)).tobytes() in drawn


def test_keys_are_unlike() -> None:
    keys = [random.key(s) for s in (0, 1, -1, 2**32, 2**63)]
    keys += [*random.split(KEY, 1000), *(random.fold_in(KEY, i) for i in range(1000))]
    assert len({k.tobytes() for k in keys}) == len(keys)
    assert random.key(2**64 + 5).tolist() == random.key(5).tolist() == [0, 5]


# -- distributions: chance passes each bound in one of 10⁶ seeds -----------------------

N, SIGMAS = 1 << 18, 5.0


def chi_square_is_plausible(counts: np.ndarray[Any, Any]) -> bool:
    """By Wilson and Hilferty: the cube root of χ²/n is nearly normal."""
    expected, n = counts.sum() / counts.size, counts.size - 1
    chi2 = ((counts - expected) ** 2 / expected).sum()
    z = ((chi2 / n) ** (1 / 3) - 1 + 2 / (9 * n)) / math.sqrt(2 / (9 * n))
    return abs(float(z)) < SIGMAS


def largest_gap(sorted_cdf: np.ndarray[Any, Any]) -> float:
    """√n times the statistic of Kolmogorov and Smirnov; 2.7 is one in 10⁶."""
    n = sorted_cdf.size
    steps = np.arange(n + 1) / n
    gap = max((steps[1:] - sorted_cdf).max(), (sorted_cdf - steps[:-1]).max())
    return float(math.sqrt(n) * gap)


@pytest.mark.parametrize("seed", range(3))
def test_bits_are_even_and_independent(seed: int) -> None:
    words = random.bits(random.key(seed), N)
    for i in range(32):
        bit = words >> np.uint32(i) & np.uint32(1)
        pairs = np.bincount(2 * bit[:-1] + bit[1:], minlength=4)
        assert abs(int(bit.sum()) - N / 2) < SIGMAS * math.sqrt(N) / 2
        assert abs(int(pairs[0] + pairs[3]) - N / 2) < SIGMAS * math.sqrt(N) / 2
    assert chi_square_is_plausible(np.bincount(words >> np.uint32(20), minlength=4096))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_and_normal_have_their_distributions(seed: int, dtype: Any) -> None:
    u = random.uniform(random.key(seed), N, dtype)
    assert u.dtype == dtype and u.min() >= 0 and u.max() < 1
    assert largest_gap(np.sort(u.astype(float))) < 2.7
    z = random.normal(random.key(seed), N, dtype).astype(float)
    assert largest_gap(np.array([*map(NormalDist().cdf, np.sort(z))])) < 2.7
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        error = (z**power).mean() - moment
        assert abs(error) < SIGMAS * math.sqrt(spread / N)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < SIGMAS / math.sqrt(N)


def test_normal_quantiles_are_right_to_the_last(monkeypatch: Any) -> None:
    """Every 65,537th of the 2³² words, and those of both ends."""
    words = [np.arange(0, 2**32, 65537), np.arange(300), 2**32 - 1 - np.arange(300)]
    u = np.concatenate(words).astype(np.uint32)
    monkeypatch.setattr(random, "bits", lambda key, shape: u)
    z = random.normal(KEY, u.shape)
    want = np.array([NormalDist().inv_cdf((int(w) + 0.5) / 2**32) for w in u])
    slope = np.exp(want**2 / 2) * math.sqrt(2 * math.pi)
    assert (np.abs(z - want) / slope).max() < 2**-16 / 16  # in probability
    assert (np.abs(z - want) < 0.02).all()


@pytest.mark.parametrize("low, high", [(0, 7), (-3, 1000), (0, 2**32), (5, 6)])
def test_integers_are_even(low: int, high: int) -> None:
    found = random.integers(KEY, N, low, high)
    assert found.dtype == np.int64 and found.min() >= low and found.max() < high
    bins = min(high - low, 64)
    counts = np.bincount((found - low) * bins // (high - low), minlength=bins)
    if bins in (7, 64) and (high - low) % bins == 0:
        assert chi_square_is_plausible(counts)
    assert counts.min() > 0


def test_permutations_are_even_and_choices_differ() -> None:
    keys = random.split(KEY, 6000)
    orders = [tuple(random.permutation(k, 3).tolist()) for k in keys]
    counts = np.array([orders.count(o) for o in sorted({*orders})])
    assert counts.size == 6 and chi_square_is_plausible(counts)
    chosen = random.choice(KEY, 40, 40, replace=False)
    assert sorted(chosen.tolist()) == [*range(40)]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: random.bits(np.zeros(2), 3), "key is of float64, expected uint32"),
        (lambda: random.bits(5, 3), "key is of int, expected uint32"),
        (lambda: random.bits(random.split(KEY), 3), r"has shape \(2, 2\), expected"),
        (lambda: random.uniform(KEY, 3, np.int32), "dtype is int32, expected float32"),
        (lambda: random.normal(KEY, 3, np.float16), "dtype is float16, expected"),
        (lambda: random.integers(KEY, 3, 5, 5), "high - low is 0, expected 1"),
        (lambda: random.integers(KEY, 3, 0, 2**33), "expected 1 to"),
        (lambda: random.choice(KEY, 3, 4, replace=False), "4 different numbers of 3"),
        *(
            (
                lambda f=f, n=n: f(KEY, n),
                rf"{re.escape(repr(n))}, expected integers of 0",
            )
            for f in (random.uniform, random.bits, random.permutation, random.split)
            for n in (-3, 2.5, None, "3")
        ),
        (lambda: random.normal(KEY, (2, -3)), "shape is -3, expected integers"),
        (lambda: random.normal(KEY, (-2, -3)), "shape is -2, expected integers"),
        (
            lambda: random.permutation(KEY, cast(int, np.arange(5))),
            "expected integers of 0 or",
        ),
        (
            lambda: random.permutation(KEY, cast(int, (2, 3))),
            "expected integers of 0 or more",
        ),
        (lambda: random.choice(KEY, 5, -1), "shape is -1, expected integers"),
        (lambda: random.fold_in(KEY, 1.5), "data is of float64, expected an integer"),
        (lambda: random.fold_in(KEY, np.float32(2)), "data is of float32, expected"),
        (lambda: random.fold_in(KEY, np.arange(3)), "expected one integer"),
    ],
)
def test_messages(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(eq.EqsatError, match=message):
        call()
