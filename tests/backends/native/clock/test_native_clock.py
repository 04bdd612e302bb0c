"""What the clock of machine code says before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.backends.native import NativeBackend
from eqsat.backends.native import backend as native
from eqsat.backends.native.clock import ClockRates, shipped
from eqsat.backends.native.clock import measure_rates as measuring
from eqsat.kernels import between, clock_of, measure_numpy
from eqsat.kernels.calibrate import device_file, keep

Array = np.ndarray[Any, Any]
F = Callable[..., Any]


def draw(*shape: int, dtype: str = "f4") -> Array:
    return np.random.default_rng(shape).uniform(0.5, 1.5, shape).astype(dtype)


def call_s(f: F, *args: Any, rates: ClockRates | None = None) -> float:
    low = eq.jit(f, backend="native").lower(*args)
    clock = clock_of(native, low.model)
    if rates is not None:
        clock = replace(clock, rates=rates)  # type: ignore[call-arg]
    return clock.call_s(low.program)


X = draw(384, 384)


@pytest.mark.parametrize(
    ("less", "more", "at_least"),
    [
        (lambda x: x + 1, np.tanh, 1.5),
        (np.tanh, lambda x: np.tanh(np.tanh(np.tanh(x))), 2),
        (lambda x: x + 1, lambda x: x.T + 1, 1.2),
        (lambda x: x.sum(), lambda x: np.sort(x, -1), 3),
        (lambda x: x[:8] @ x, lambda x: x @ x, 8),
        (lambda x: np.linalg.inv(x[:32, :32]), lambda x: np.linalg.inv(x), 100),
        (lambda x: x.reshape(-1) + 1, lambda x: x.reshape(-1)[::-1] + 1, 1),
        (
            lambda x: x.reshape(-1, 128).max(0),
            lambda x: x.reshape(-1, 3)[:, 1:].max(1),
            1.2,  # vectors of 256 bits leave fewer lanes empty than those of 512
        ),
        (lambda x: np.cumsum(x, 0), lambda x: np.cumprod(x, 1), 1.2),
    ],
)
def test_what_is_more_work_takes_longer(less: F, more: F, at_least: float) -> None:
    assert call_s(more, X) > at_least * call_s(less, X)


def test_elements_that_lie_in_many_pages_take_longer() -> None:
    near, far = draw(1500, 40, 40), draw(40, 40, 1500)
    turned = lambda x: np.exp(x.transpose(2, 1, 0))  # noqa: E731
    assert call_s(turned, far) != call_s(turned, near)
    few = call_s(lambda t, i: t[i], draw(1 << 10), np.arange(1 << 16) % 1000)
    many = call_s(lambda t, i: t[i], draw(1 << 23), np.arange(1 << 16))
    assert many > 2 * few


def test_rows_that_are_shorter_than_vectors_take_longer() -> None:
    soft = lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0)  # noqa: E731
    assert call_s(soft, draw(1067, 11)) > 1.2 * call_s(soft, draw(733, 16))


def test_functions_in_a_row_wait_for_each_other() -> None:
    def row(h: Array) -> Array:
        for _ in range(8):
            h = np.tanh(0.1 * h + 0.5)
        return h

    def beside(h: Array) -> Any:
        return tuple(np.tanh(0.1 * h + i) for i in range(8))

    h = draw(1024)
    assert call_s(row, h) > call_s(beside, h)


def test_what_numpy_runs_has_a_price() -> None:
    low = eq.jit(lambda x: eq.ops.j0(x) + 1, backend="native").lower(draw(4096))
    expected = clock_of(native, low.model).kernels(low.program)
    assert len(expected) == len(low.program.kernels)
    assert sum(e.seconds for e in expected) > 1e-5


def test_a_result_that_is_a_copy_has_a_price() -> None:
    assert call_s(lambda x: x.T, draw(700, 900)) > 1e-5


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u2", "?", "c8"])
def test_each_dtype_has_a_price(dtype: str) -> None:
    x = draw(300, 7).astype(dtype)
    for f in (lambda x: x + x, lambda x: np.exp(x), lambda x: x.sum(0), np.ravel):
        assert 0 < call_s(f, x) < 1e-3


# -- rates -----------------------------------------------------------------------------


def test_rates_are_kept_as_they_are_and_broken_ones_refused() -> None:
    record = shipped().record()
    assert ClockRates.of_record(json.loads(json.dumps(record))).record() == record
    for broken in (
        {**record, "far_s": -1.0},
        {**record, "row_s": float("nan")},
        {**record, "products": {"any": 0.0}},
        {**record, "vectors": {}},
        {k: v for k, v in record.items() if k != "reads"},
    ):
        with pytest.raises((ValueError, LookupError)):
            ClockRates.of_record(broken)


def test_sizes_between_those_measured_are_between_them() -> None:
    table = [(16.0, 1.0), (64.0, 3.0)]
    assert [between(table, n) for n in (1, 16, 32, 64, 1e9)] == [1, 1, 2, 3, 3]


def test_measured_rates_are_used(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path))
    assert NativeBackend().clock.rates == shipped()  # type: ignore[attr-defined]
    slow = replace(shipped(), name="slow", entry_s=1.0)
    keep("native", native.model.device, rates=slow)
    found = NativeBackend().clock.rates  # type: ignore[attr-defined]
    assert found.record() == slow.record()
    device_file().write_text(device_file().read_text().replace('"entry_s"', '"x"'))
    with pytest.raises(eq.OptionError, match=r"devices\.json"):
        _ = NativeBackend().clock


def test_half_as_wide_vectors_take_twice_as_long() -> None:
    usual = shipped()
    wide = replace(usual, vector_bits=2 * usual.vector_bits)
    assert call_s(np.tanh, X, rates=wide) > 1.5 * call_s(np.tanh, X, rates=usual)


# Rates that are kept, and what they say of programs, are tested every time.
@pytest.mark.slow
def test_each_rate_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some sizes stand for all: what is measured is whether all of it can be."""
    few = {"ROUND_S": 1e-5, "ROUNDS": 1, "SIDE": 32, "ELEMENTS": 256}
    few |= {"SIZES": (1 << 13, 1 << 16), "NETWORKS": (4, 8)}
    monkeypatch.setattr(measure_numpy, "SIDES", (8, 12))
    monkeypatch.setattr(measure_numpy, "ROWS", (20, 50))
    for name, value in few.items():
        monkeypatch.setattr(measuring_module(), name, value)
    told: list[str] = []
    found = measuring("here", told.append)
    assert len(told) > 4
    assert ClockRates.of_record(found.record()).name == "here"
    assert set(found.functions) >= {k for k in shipped().functions if "float32" in k}


def measuring_module() -> Any:
    import importlib

    return importlib.import_module("eqsat.backends.native.clock.rate_measurement")
