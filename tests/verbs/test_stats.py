"""``eq.stats()`` and ``fn.stats()``: what is counted, and that nothing is while it is
off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.kernels import kernel_alone
from eqsat.measure.kernel_times import KernelTimes

X = np.linspace(0.1, 0.9, 64 * 32, dtype=np.float32).reshape(64, 32)
W = np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
ON = eq.Options(stats=True)


@pytest.fixture(autouse=True)
def nothing_counted() -> Iterator[None]:
    eq.stats().reset()
    yield
    eq.stats().reset()


def layer(x: Any, w: Any) -> Any:
    h = np.tanh(x @ w)
    return h.T @ h, np.sort(h, axis=0)[::2] * 2


def only(f: Any) -> dict[str, Any]:
    (found,) = f.stats().record()["functions"]
    return dict(found)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_calls_seconds_bytes_and_memory(backend: str) -> None:
    f = eq.jit(layer, backend=backend, options=ON)
    expected = eq.jit(layer, backend=backend)(X, W)
    for _ in range(5):
        got = f(X, W)
    assert all(map(np.array_equal, got, expected))
    found = only(f)
    low = f.lower(X, W)
    assert found["name"] == "layer" and "test_stats.py:" in found["line"]
    assert found["calls"] == 5 and found["memory_hits"] == 4
    assert found["compiles"] + found["disk_hits"] == 1 and found["compile_s"] > 0
    assert found["bytes"] == 5 * low.program.bytes
    assert 0 < found["seconds_s"] < 60 and found["seconds_s"] > 0
    assert found["peak_bytes"] == low.peak_bytes >= 32 * 32 * 4 + 32 * 32 * 4
    assert found["of_limit"] == pytest.approx(found["limit_s"] / found["seconds_s"])


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_each_kernel_is_measured_on_calls_1_2_4_and_so_on(backend: str) -> None:
    f = eq.jit(layer, backend=backend, options=ON)
    for calls, samples in ((1, 1), (1, 2), (1, 2), (1, 3), (3, 3), (1, 4)):
        for _ in range(calls):
            f(X, W)
        (program,) = only(f)["programs"]
        kernels = program["kernels"]
        assert [k["samples"] for k in kernels] == [samples] * len(kernels)
        assert program["untimed"] == ""
    assert [k["name"] for k in kernels] == [
        k.name for k in f.lower(X, W).program.kernels
    ]
    assert len(kernels) > 1
    for k in kernels:
        assert k["seconds_s"] > 0 and k["model_s"] > k["limit_s"] > 0
        assert k["bytes"] > 0 and k["flops"] >= 0


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_kernels_one_by_one_compute_what_the_program_does(backend: str) -> None:
    """With views between them, constants, and several results of one kernel."""
    table = np.arange(32, dtype=np.float32)

    def long(x: Any, w: Any) -> Any:
        h = np.tanh(x @ w + table).T
        return h @ x, h.sum(1), h.max(1), np.cumsum(h[::2], axis=1), w * 2 - 1

    low = eq.jit(long, backend=backend).lower(X, W)
    times = KernelTimes(low)
    assert len(times.sample((X, W))) == len(low.program.kernels) > 1
    values = times.values((X, W))
    expected = low.executable(X, W)
    for root, want in zip(low.program.roots, expected, strict=True):
        np.testing.assert_allclose(values[root], want, rtol=1e-5, atol=1e-6)


def test_a_kernel_alone_holds_its_constants() -> None:
    weight = np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    weight.flags.writeable = False
    program = eq.jit(lambda x: x @ weight).lower(X).program
    (kernel,) = program.kernels
    alone, arguments = kernel_alone(kernel, program.constants)
    assert arguments == program.inputs and len(alone.constants) == 1
    alone, arguments = kernel_alone(kernel)
    assert len(arguments) == 2 and not alone.constants


def test_each_signature_is_a_program() -> None:
    f = eq.jit(lambda x: x + 1, options=ON)
    f(X)
    f(X)
    f(X[0])
    programs = only(f)["programs"]
    assert [(p["signature"], p["calls"]) for p in programs] == [
        ("64×32 float32", 2),
        ("32 float32", 1),
    ]


def test_found_on_disk_and_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))

    def fresh(x: Any) -> Any:
        return np.exp(x) * 0.7361 + np.cos(x)

    counts = []
    for _ in range(2):
        f = eq.jit(fresh, options=ON)
        f(X)
        f(X)
        found = only(f)
        counts.append([found[k] for k in ("compiles", "disk_hits", "memory_hits")])
    assert counts == [[1, 0, 1], [0, 1, 1]]


def test_nothing_is_counted_while_it_is_off() -> None:
    f = eq.jit(layer)
    f(X, W)
    assert f.stats().calls == 0 == eq.stats().calls
    assert f._direct is f._entry.function
    with eq.options(stats=True):
        f(X, W)
        assert f.stats().calls == 1
    f(X, W)
    assert f.stats().calls == 1 and eq.stats().calls == 1
    assert "nothing was counted" not in str(eq.stats())


def test_the_variable_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_STATS", "1")
    f = eq.jit(layer)
    f(X, W)
    assert f.stats().calls == 1


def test_all_functions_in_a_table_and_json() -> None:
    f, g = eq.jit(layer, options=ON), eq.jit(lambda x: x * 2, options=ON)
    f(X, W)
    g(X)
    table = str(eq.stats())
    assert table.splitlines()[0].startswith("function, program, kernel")
    for text in ("layer (test_stats.py:", "<lambda> (", "  64×32 float32", "pooled"):
        assert text in table
    assert re.search(r"^    matmul\S* contract +1 +[\d.]+ +[\d.]+ KiB", table, re.M)
    record = json.loads(eq.stats().json())
    assert [r["name"] for r in record["functions"]] == ["<lambda>", "layer"]
    assert record["pooled_bytes"] >= 0 and record == eq.stats().record()


def test_reset() -> None:
    f, g = eq.jit(layer, options=ON), eq.jit(lambda x: x * 2, options=ON)
    f(X, W)
    g(X)
    g.stats().reset()
    assert g.stats().calls == 0 and only(g)["compiles"] == 0
    assert f.stats().calls == 1 == eq.stats().calls
    eq.stats().reset()
    assert "nothing was counted" in str(eq.stats())
    f(X, W)
    assert only(f)["calls"] == 1 == only(f)["memory_hits"]


def test_what_a_traced_function_calls_is_part_of_it() -> None:
    inner = eq.jit(lambda x: x * 2, options=ON)
    outer = eq.jit(lambda x: inner(x) + 1, options=ON)
    inner(X)
    outer(X)
    assert inner.stats().calls == 1 == outer.stats().calls


def test_errors_and_calls_that_fail_are_not_counted() -> None:
    f = eq.jit(lambda x, i: x[i], options=ON)
    with pytest.raises(IndexError):
        f(X, np.array([70]))
    assert f.stats().calls == 0
    assert f(X, np.array([1])).shape == (1, 32) and f.stats().calls == 1


def test_arguments_that_the_function_writes() -> None:
    @eq.jit(options=ON)
    def add(x: Any) -> Any:
        x += 1
        return x.sum()

    x = np.zeros(100, np.float32)
    for k in range(1, 5):
        assert add(x) == 100 * k and (x == k).all()
    assert add.stats().calls == 4


def test_submitted_calls_and_threads_are_counted() -> None:
    f = eq.jit(layer, options=ON)
    for future in [f.submit(X, W) for _ in range(20)]:
        future.result(600)
    assert f.stats().calls == 20 and only(f)["compiles"] + only(f)["disk_hits"] == 1


def test_arrays_of_mlx_are_waited_for_where_kernels_are_measured() -> None:
    mx = pytest.importorskip("mlx.core")
    f = eq.jit(lambda x: (np.tanh(x) @ x).T + np.sort(x), options=ON)
    x = mx.array(np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64))
    for _ in range(4):
        f(x)
    found = only(f)
    (program,) = found["programs"]
    assert found["calls"] == 4 and program["computed_later"]
    assert {k["samples"] for k in program["kernels"]} == {3}
    assert found["run_s"] == program["run_s"] > 0
    assert found["of_limit"] == pytest.approx(found["limit_s"] / found["run_s"])
    assert "shares are of runs that were waited for" in str(f.stats())


def test_a_function_that_mlx_compiles_has_no_share() -> None:
    mx = pytest.importorskip("mlx.core")
    f = eq.jit(lambda x: np.tanh(x).sum(), options=ON)
    mx.compile(f)(mx.ones((8,)))
    assert only(f)["of_limit"] is None and only(f)["run_s"] is None
    assert "kernels were not measured: ValueError" in str(f.stats())
    f(mx.ones((8,)))
    assert only(f)["of_limit"] > 0 and "not measured" not in str(f.stats())


def test_gradients_are_functions_of_their_own() -> None:
    df = eq.grad(lambda x: np.tanh(x).sum(), options=ON)
    df(X)
    assert df.stats().calls == 1
    (found,) = eq.stats().record()["functions"]
    assert found["name"].startswith("grad of")


# -- lazy arrays -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_lazy_arrays_are_counted_by_the_line_that_records(backend: str) -> None:
    x, w = eq.array(X, backend=backend), eq.array(W)
    with eq.options(stats=True):
        for k in range(1, 5):
            h = np.tanh(x @ w)
            for a in (h.T @ h, np.sort(h, axis=0) * 0.3721):  # one line, two programs
                a.eval()
            (np.exp(x) * 0.3172 + k % 2).eval()
    (x * 0.1 + 7).eval()
    lines = eq.stats().record()["functions"]
    assert [f["name"] for f in lines] == ["lazy arrays"] * 2
    found = next(f for f in lines if len(f["programs"][0]["kernels"]) > 1)
    assert len({f["line"] for f in lines}) == 2
    assert all("test_stats.py:" in f["line"] for f in lines)
    (other,) = [f for f in lines if f is not found]
    assert other["calls"] == 4 and other["compiles"] + other["disk_hits"] == 2
    assert found["calls"] == 8 and found["compiles"] + found["disk_hits"] == 2
    for f in lines:
        assert f["memory_hits"] == f["calls"] - 2 and f["seconds_s"] > 0
        assert f["of_limit"] > 0 and f["peak_bytes"] > 0
        for p in f["programs"]:
            assert p["calls"] == f["calls"] / 2 and "float32" in p["signature"]
            assert {k["samples"] for k in p["kernels"]} <= {2, 3}


def test_lazy_arrays_count_nothing_while_it_is_off() -> None:
    x = eq.array(X)
    for _ in range(3):
        (x * 0.1 + 9).eval()
    assert eq.stats().calls == 0
    with eq.options(stats=True):
        (x * 0.1 + 9).eval()
    assert eq.stats().calls == 1
    (x * 0.1 + 9).eval()
    assert eq.stats().calls == 1


def test_lazy_arrays_of_mlx_have_a_share() -> None:
    mx = pytest.importorskip("mlx.core")
    x = eq.array(mx.array(X))
    with eq.options(stats=True):
        for _ in range(2):
            np.asarray(np.tanh(x) * 0.7123)
    (found,) = eq.stats().record()["functions"]
    (program,) = found["programs"]
    assert found["calls"] == 2 and found["of_limit"] > 0
    assert {k["samples"] for k in program["kernels"]} == {2}


def test_compiles_of_lazy_arrays_are_logged_with_their_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with eq.options(log={"compiles"}):
        (eq.array(X) * 0.6137 - 2).eval()
    told = capsys.readouterr().err
    assert re.match(r"eqsat: compiled 'lazy arrays' \(\S*test_stats.py:\d+\) in ", told)
