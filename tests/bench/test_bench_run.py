"""``python -m bench run``: its method, its checks, its tables."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from waiting import until

from bench.__main__ import main
from bench.peers import PEERS, names
from bench.processes import in_fresh_process
from bench.reports import ratio, write
from bench.reports.compare import best_peer, geometric_mean, speedups
from bench.reports.table import duration, laid_out, text
from bench.runner.exactness import FACTOR, reference, relative
from bench.runner.measure import (
    Method,
    References,
    measure,
    run_again,
    summarise,
    team,
)
from bench.runner.need import Need
from bench.runner.run import collect
from bench.workloads import (
    LINE,
    START,
    TAGS,
    Quantised,
    leaves,
    mapped,
    select,
    workloads,
)
from eqsat.support.errors import EqsatError
from eqsat.trace.call_arguments import never_written

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
HERE = "bench_candidates"
TINY = Method(rounds=9, round_s=0.003, most_s=5.0, limit_sizes=(1 << 20,))


def planted(cls: str) -> str:
    return f"{HERE}:{cls}"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(autouse=True)
def workers_find_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(__file__).resolve().parents[1] / "helpers")
    )


def measured(workload: str, *peers: str, method: Method = TINY) -> dict[str, Any]:
    """One row, with the seconds of each round."""
    (w,) = select([workload])
    limits = in_fresh_process(1, method.limit_sizes)
    with TemporaryDirectory() as folder, team(peers, 1) as workers:
        known = References(Path(folder), method.seed)
        row = measure(w, workers, limits, method, known)
        run_again(row, w, limits, method, known)
    return row


# -- the runner ------------------------------------------------------------------------


def test_faults_are_caught_and_named() -> None:
    faults = ("Wrong", "OneNumberWrong", "NotANumber", "OtherShape", "Raises", "Dies")
    others = ("Refuses", "Absent", "Loud")
    peers = [planted(cls) for cls in (*faults, *others)]
    chosen = select(["softmax/16x64", "add_relu/16"])
    found = collect(chosen, ["eqsat-numpy", *peers], [1], TINY)
    after, row = found["rows"]
    assert after["results"]["eqsat-numpy"]["status"] == "ok"
    assert "ended with 7" in after["results"][planted("Dies")]["reason"]  # once more
    status = {p.rpartition(":")[2]: r["status"] for p, r in row["results"].items()}
    assert status == {
        "eqsat-numpy": "ok",
        **dict.fromkeys(faults[:4], "wrong"),
        **{"Raises": "failed", "Dies": "failed"},
        **{"Refuses": "unsupported", "Absent": "missing", "Loud": "ok"},
    }
    results = {p.rpartition(":")[2]: r for p, r in row["results"].items()}
    assert 0.9e-3 < results["Wrong"]["error"] < 1.1e-3
    assert results["NotANumber"]["error"] is None
    assert results["Raises"]["reason"] == "ValueError: no such kernel"
    assert "ended with 7" in results["Dies"]["reason"]
    assert results["Refuses"]["reason"] == "no such operation"
    assert "median_s" not in results["Wrong"]
    assert best_peer(row) is not None and best_peer(row)[0] == planted("Loud")  # type: ignore[index]
    shown = text(found)
    assert re.search(r"WRONG: softmax/16x64, 1 thread, \S+:Wrong: error 1.0e-03", shown)
    assert "bench_candidates:Absent: not run: No module named 'absent'" in shown
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for it")
def test_workers_end_with_the_runner_that_is_killed() -> None:
    code = (
        "import os, bench.processes.pool as p\n"
        "w = p.Worker('numpy', 1); w.greet()\n"
        "print(w.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == -9
    worker = Path(f"/proc/{int(done.stdout)}/stat")
    until(lambda: not worker.exists() or worker.read_text().split()[2] == "Z", 0.05)


def test_a_slowed_candidate_is_seen_and_a_copy_is_not() -> None:
    method = Method(rounds=25, round_s=0.01, limit_sizes=(1 << 20,))
    plain, slow = planted("Counted"), planted("Slow")
    row = measured("add_relu/65536", plain, f"{plain}#2", slow, method=method)
    rounds = {peer: result["rounds_s"] for peer, result in row["results"].items()}
    slowed, noise = ratio(rounds[slow], rounds[plain])
    assert slowed > noise
    assert slowed == pytest.approx(1.5, rel=0.02)
    again, _ = ratio(rounds[f"{plain}#2"], rounds[plain])
    assert again < slowed / noise
    summarise(row)
    assert row["results"][f"{plain}#2"]["to_first"][0] == pytest.approx(again)


def test_peers_that_are_named_twice_are_compared_with_themselves() -> None:
    plain = planted("Counted")
    found = collect(select(["add_relu/65536"]), [plain, plain], [1], TINY)
    assert found["peers"] == [plain, f"{plain}#2"]
    beside = r"Counted beside itself: geometric mean 1\.000; "
    assert re.search(beside, text(found))


def test_medians_and_spreads_are_kept_and_rounds_are_not() -> None:
    def result(**more: Any) -> dict[str, Any]:
        return {"status": "ok", "median_s": 3.0, **more}

    row: dict[str, Any] = {
        "results": {
            "one": result(rounds_s=[5.0, 1.0, 2.0, 3.0, 4.0]),
            "many": result(rounds_s=[1.0, 9.0], processes_s=[1.0, 3.0, 9.0]),
            "none": {"status": "wrong", "error": 1.0},
        }
    }
    summarise(row)
    span = {"quartiles_s": [2.0, 4.0], "min_s": 1.0, "max_s": 5.0, "rounds": 5}
    assert row["results"]["one"] == {"status": "ok", "median_s": 3.0, **span}
    many = row["results"]["many"]
    assert (many["median_s"], many["processes_s"]) == (3.0, [1.0, 3.0, 9.0])
    assert (many["rounds"], many["quartiles_s"]) == (2, [3.0, 7.0])
    assert row["results"]["none"] == {"status": "wrong", "error": 1.0}


def test_a_result_file_has_a_line_for_each_result(tmp_path: Path) -> None:
    record = {
        "n": 1,
        "text": "µ",
        "rows": [{"a": [k, {}], "b": "x" * 400} for k in "xy"],
    }
    path = tmp_path / "x.json"
    write(path, record)
    assert json.loads(path.read_text(encoding="utf-8")) == record
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1] == ' "n": 1, "text": "µ",'
    assert [line[:13] for line in lines[3:5]] == ['  {"a": ["x",', '  {"a": ["y",']


def test_close_races_are_run_again_in_new_processes() -> None:
    method = Method(rounds=2, round_s=0.002, limit_sizes=(1 << 20,), again=2, close=1e9)
    peers = "eqsat-numpy", "numpy", planted("Loud"), planted("Wrong")
    row = measured("add_relu/65536", *peers, method=method)
    results = row["results"]
    for peer in peers[:3]:
        found = results[peer]
        assert len(found["processes_s"]) == 3 and len(found["rounds_s"]) == 6
        assert found["median_s"] == sorted(found["processes_s"])[1]
    assert "processes_s" not in results[planted("Wrong")]
    ties = replace(method, again=1, again_ties=2, tie=1e9)
    row = measured("add_relu/65536", "eqsat-numpy", "numpy", method=ties)
    assert all(len(row["results"][p]["processes_s"]) == 4 for p in peers[:2])
    assert all(len(row["results"][p]["rounds_s"]) == 8 for p in peers[:2])
    far = replace(method, close=0)
    row = measured("add_relu/65536", "eqsat-numpy", "numpy", method=far)
    assert not any("processes_s" in r for r in row["results"].values())


def test_run_table_and_plot_work_together(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["--peers", "eqsat-native,numpy", "--threads", "1", "--quick"]
    done = run("run", "--workloads", "softmax/1x64", *words, "--out", out)
    assert done.exit_code == 0, done.output
    assert "softmax/1x64" in done.output and "Geometric means" in done.output
    again = run("table", out)
    assert again.stdout == done.stdout
    assert "| softmax/1x64" in run("table", "--markdown", out).output
    assert "softmax/1x64" not in run("table", "--means", out).output
    head, row = run("table", "--short", out).output.splitlines()
    assert head.split("  ")[0] == "workload" and "1 thread" in head
    assert row.startswith("softmax/1x64") and "numpy" in row
    picture = run("plot", out)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "plot needs matplotlib" in picture.output
    else:
        assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workloads", "sofmax"], "no workload matches 'sofmax'"),
        (
            ["--peers", "nump", "--workloads", "add_relu/16"],
            "no peer 'nump'; there are eqsat-",
        ),
        (["--threads", "many"], "invalid literal"),
    ],
)
def test_mistakes_are_answered(words: list[str], said: str) -> None:
    done = run("run", *words)
    assert said in done.output


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1]", encoding="utf-8")
    for command in ("table", "plot", "predict"):
        done = run(command, path)
        assert done.exit_code == 1 and f"{path}: not what" in done.output


# -- workloads -------------------------------------------------------------------------


def test_workloads_have_tags_and_some_are_quick() -> None:
    every = workloads().values()
    assert {tag for w in every for tag in w.tags} == set(TAGS)
    quick = select(quick=True)
    assert {w.tags[0] for w in quick} == set(TAGS) - {"half"}
    assert 20 <= len(quick) <= 40 < len(every)


def test_draws_repeat_and_weights_cannot_be_written_to() -> None:
    for w in select(["linear_gelu/32x256x256", "int4_matmul/1x*", "minilm/1x16"]):
        first, again, other = w.draw(0), w.draw(0), w.draw(1)
        for a, b in zip(leaves(first), leaves(again), strict=True):
            np.testing.assert_array_equal(a, b)
        assert any(
            not np.array_equal(a, b)
            for a, b in zip(leaves(first), leaves(other), strict=True)
        )
        assert all(never_written(a) for a in leaves(first[1]))
        assert {a.ctypes.data % LINE for a in leaves(first)} == {START}


def test_four_bits_are_unpacked_as_they_are_packed() -> None:
    (w,) = select(["int4_matmul/1x2048x2048"])
    (x,), (m,) = w.draw(0)
    k, n = 2 * len(m.q), m.q.shape[1]
    dense = np.empty((k, n))
    for i in range(0, k, 311):
        q = m.q[i // 2] >> 4 if i % 2 else m.q[i // 2] & 15
        g = i * len(m.scale) // k
        dense[i] = (q.astype(int) - m.zero[g]) * m.scale[g].astype(float)
        only = np.zeros_like(x)
        only[0, i] = 1
        np.testing.assert_allclose(w.plain(only, m)[0], dense[i], rtol=1e-6)


def test_trees_are_mapped_and_quantised_matrices_whole_or_by_part() -> None:
    m = Quantised(np.int8([[1]]), np.float32([[2]]), np.int8([[3]]))
    tree = [{"a": np.ones(2)}, (m, np.zeros(1))]
    doubled = mapped(tree, lambda a: NotImplemented if isinstance(a, tuple) else 2 * a)
    assert isinstance(doubled[1][0], Quantised)
    assert [float(a.flat[0]) for a in leaves(doubled)] == [2, 2, 4, 6, 0]
    whole = mapped(m, lambda a: "matrix" if isinstance(a, Quantised) else a)
    assert whole == "matrix"


@pytest.mark.parametrize(
    ("name", "flops", "moved", "longest"),
    [
        ("add_relu/65536", 0, 3 * 4 * 65536, 1),
        ("linear_relu/32x256x256", 2 * 32 * 256 * 256, 4 * (2 * 32 + 257) * 256, 256),
        ("attention/8x128x64", 4 * 8 * 128 * 128 * 64, 4 * 4 * 8 * 128 * 64, 128),
        ("causal_attention/8x128x64", 2 * 8 * 128**2 * 64, 4 * 4 * 8 * 128 * 64, 128),
        ("int8_matmul/1x2048x2048", 2 * 2048**2, 2048**2 + 5 * 16 * 2048 + 16384, 2048),
        ("conv_bn_relu/1x64x64x56x3", 2 * 9 * 64 * 64 * 56**2, None, 9 * 64),
        ("total/128x512", 0, 4 * 128 * 512 + 4, 128 * 512),
        ("group_norm/1x32x32x32", 0, 2 * 4 * 32**3 + 256, 4 * 32 * 32),
    ],
)
def test_what_a_workload_needs(
    name: str, flops: float, moved: int | None, longest: int
) -> None:
    (w,) = select([name])
    needed = reference(w, w.draw(0)).need
    assert needed.product_flops == flops
    assert needed.longest_sums == (longest,)
    assert moved in (None, needed.bytes)


def test_a_limit_is_the_larger_of_two() -> None:
    needed = Need(8e9, 0.0, (1,), 10**9)
    assert needed.limit_s(4e9, 1e9) == 2 and needed.limited_by(4e9, 1e9) == "flops"
    assert needed.limit_s(16e9, 1e9) == 1 and needed.limited_by(16e9, 1e9) == "bytes"


# -- exactness -------------------------------------------------------------------------


def test_plain_numpy_is_within_the_bound_and_other_formulas_are_not() -> None:
    for name in (
        "linear_gelu/32x256x256",
        "softmax/1024x1024/bf16",
        "rms_norm/128x512",
    ):
        (w,) = select([name])
        drawn = w.draw(0)
        known = reference(w, drawn)
        (error,), (bound,) = known.plain_errors, known.bounds
        assert error <= bound / FACTOR
        assert bound < (0.032 if w.dtype == "bfloat16" else 2e-5)
    (w,) = select(["linear_gelu/32x256x256"])
    (x,), (m, b) = w.draw(0)
    h = x @ m + b
    by_tanh = 0.5 * h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3)))
    error, bound = reference(w, w.draw(0)).worst([by_tanh])
    assert error > bound


def test_errors_are_relative_and_infinite_for_no_numbers() -> None:
    exact = np.array([3.0, 4.0])
    assert relative(np.array([3.0, 4.5]), exact) == pytest.approx(0.1)
    assert relative(np.array([3.0, np.nan]), exact) == math.inf
    assert relative(np.array([[3.0, 4.0]]), exact) == math.inf


def test_integers_have_no_bound_but_equality() -> None:
    (w,) = select(["argmax/1024x1024"])
    known = reference(w, w.draw(0))
    (exact,) = known.exact
    assert known.bounds == [0] and known.worst([exact]) == (0, 0)
    assert known.worst([exact + 1]) == (1, 0)


# -- what is made of results -----------------------------------------------------------


def row(tag: str = "map", **seconds: float) -> dict[str, Any]:
    results = {
        peer.replace("_", "-"): {"status": "ok", "median_s": s}
        for peer, s in seconds.items()
    }
    return {"workload": "w", "tags": [tag], "threads": 1, "results": results}


def test_the_best_peer_is_none_of_ours_and_ratios_are_theirs_over_ours() -> None:
    rows = [row(eqsat_numpy=1, numpy=4, torch=2), row(eqsat_numpy=4, numpy=2)]
    assert [best_peer(r) for r in rows] == [("torch", 2), ("numpy", 2)]
    assert speedups(rows, "eqsat-numpy", None) == [2, 0.5]
    assert speedups(rows, "eqsat-numpy", "torch") == [2]
    assert geometric_mean(speedups(rows, "eqsat-numpy", "numpy")) == pytest.approx(
        math.sqrt(2)
    )
    assert math.isnan(geometric_mean([]))


def test_noise_covers_equal_candidates_and_not_different_ones() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        drawn = np.exp(0.1 * rng.standard_normal((2, 25)))
        found, noise = ratio(*drawn)
        inside += max(found, 1 / found) <= noise
    assert 0.9 < inside / 400 < 0.99
    assert ratio([3.0] * 5, [2.0] * 5) == pytest.approx((1.5, 1))


def test_numbers_are_shown_with_three_digits() -> None:
    shown = [duration(s) for s in (2.5e-8, 4.2e-7, 9.999e-4, 0.0123, 1.5, 123.4)]
    assert shown == ["25 ns", "420 ns", "1 ms", "12.3 ms", "1.5 s", "123 s"]
    assert laid_out([["a", "b"], ["ccc", "d"]], True).splitlines()[1] == "|:----|--:|"


def test_every_peer_has_a_module_and_eqsat_comes_first() -> None:
    assert names()[0].startswith("eqsat-")
    for place in PEERS.values():
        module, _, cls = place.partition(":")
        source = ROOT / f"{module.replace('.', '/')}.py"
        assert f"class {cls}" in source.read_text(encoding="utf-8")
    with pytest.raises(EqsatError, match="no workload matches"):
        select(["x"])
