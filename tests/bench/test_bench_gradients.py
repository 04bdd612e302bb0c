"""The gradients of ``python -m bench run``: what they are compared with, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.peers import usual
from bench.reports.table import text
from bench.runner.exactness import FLOAT32_ROUNDING, reference, wide
from bench.runner.measure import Method
from bench.runner.need import need
from bench.runner.run import collect
from bench.workloads import Workload, leaves, mapped, select

pytestmark = pytest.mark.bench

STEPS = (1e-6, 1e-9)
"""The first is the more exact, unless a number comes past the bend of a relu."""
TINY = Method(rounds=2, round_s=0.001, limit_sizes=(1 << 20,))
WITHOUT = {"onnxruntime", "openvino", "numexpr", "numba"}
"""Peers that have no gradients."""


@pytest.fixture(autouse=True)
def workers_find_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(__file__).resolve().parents[1] / "helpers")
    )


@pytest.mark.parametrize("w", select(["gradient"]), ids=lambda w: w.name)
def test_gradients_by_hand_are_the_slopes_of_the_losses(w: Workload) -> None:
    inputs, weights = mapped(w.draw(0), wide)
    assert not weights
    value, gradients = w.plain(*inputs)
    assert value == pytest.approx(w.over_plain(*inputs), rel=1e-13)
    rng = np.random.default_rng(0)
    varied = list(leaves([inputs[n] for n in w.argnums]))
    for array, gradient in zip(varied, leaves(gradients), strict=True):
        assert gradient.shape == array.shape
        for _ in range(2):
            way = rng.standard_normal(array.shape)
            slopes = (_slope(w, inputs, array, way * step) / step for step in STEPS)
            expected = np.vdot(gradient, way)
            # as large as slopes are over all ways of this length
            typical = np.linalg.norm(gradient) * np.linalg.norm(way) / array.size**0.5
            assert any(abs(s - expected) < 1e-5 * typical for s in slopes)


def _slope(w: Workload, inputs: list[Any], array: Any, step: Any) -> Any:
    """Half of what the loss gains from a step back to a step ahead of ``array``, which
    is one of ``inputs``."""
    kept = array.copy()
    ends = []
    for moved in (kept + step, kept - step):
        array[...] = moved
        ends.append(w.over_plain(*inputs))
    array[...] = kept
    return (ends[0] - ends[1]) / 2


def test_eqsat_has_the_gradients_of_all() -> None:
    chosen = select(["gradient"])
    found = collect(chosen, ["eqsat-native", "numpy"], [1], TINY)
    assert len(found["rows"]) == len(chosen) == 9
    for row in found["rows"]:
        for result in row["results"].values():
            assert result["status"] == "ok" and result["median_s"] > 0, row


def test_peers_have_gradients_or_say_that_they_do_not() -> None:
    found = collect(select(["grad_rosenbrock/100"]), usual(quick=True), [1], TINY)
    (row,) = found["rows"]
    assert WITHOUT < {*row["results"]}
    for peer, result in row["results"].items():
        if result["status"] == "missing":
            continue
        expected = "unsupported" if peer in WITHOUT else "ok"
        assert result["status"] == expected, (peer, result)
        assert result.get("reason") == ("no gradients" if peer in WITHOUT else None)


def test_a_small_gradient_that_is_wrong_is_seen_beside_large_ones() -> None:
    faults = ("LastPartWrong", "LastPartMissing")
    peers = [f"bench_candidates:{cls}" for cls in faults]
    found = collect(select(["grad_logistic/10000x64"]), peers, [1], TINY)
    (row,) = found["rows"]
    wrong, short = (row["results"][p] for p in peers)
    assert wrong["status"] == short["status"] == "wrong"
    assert wrong["error"] == pytest.approx(1e-3, rel=0.01) and short["error"] is None
    assert f"error 1.0e-03, at most {wrong['bound']:.1e}" in text(found)


def test_each_array_of_a_result_has_a_bound_of_its_own() -> None:
    (w,) = select(["grad_layer_norm/1024x1024"])
    known = reference(w, w.draw(0))
    terms = [1024 * 1024, 1024, 1024, 1024]
    assert known.need.longest_sums == tuple(terms)
    assert known.bounds == [8 * FLOAT32_ROUNDING * n**0.5 for n in terms]
    exact = list(known.exact)
    assert known.worst(exact) == (0, known.bounds[0])
    exact[3] = exact[3] * (1 + 2 * known.bounds[3])
    error, bound = known.worst(exact)
    assert bound == known.bounds[3] and error == pytest.approx(2 * bound)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("grad_cross_entropy/512x784x10", 2 * (2 * 512 * 784 * 10)),
        ("grad_attention/8x256x64", 3 * (4 * 8 * 256 * 256 * 64)),
        ("grad_embedding/5000x64x1024x16", 3 * (2 * 1024 * 64 * 16)),
        (
            "grad_conv/16x32x3x16x32",
            2 * (2 * 27 * 16 * 16 * 32**2)
            + 3 * (2 * 144 * 16 * 32 * 16**2 + 2 * 16 * 32 * 10),
        ),
    ],
)
def test_products_are_done_again_for_each_factor_that_varies(
    name: str, flops: int
) -> None:
    (w,) = select([name])
    drawn = w.draw(0)
    assert need(w, drawn, w.plain(*drawn[0])).product_flops == flops


def test_only_the_rows_of_a_table_that_are_named_need_be_read() -> None:
    (w,) = select(["grad_embedding/5000x64x1024x16"])
    drawn = w.draw(0)
    table, small, ids, y = drawn[0]
    read = 4 * 64 * len({*ids}) + small.nbytes + ids.nbytes + y.nbytes
    written = 4 + table.nbytes + small.nbytes
    assert need(w, drawn, w.plain(*drawn[0])).bytes == read + written


def test_arrays_of_dicts_come_in_the_order_of_keys() -> None:
    assert list(leaves(({"b": 1, "a": [2, 3]}, 4))) == [2, 3, 1, 4]
