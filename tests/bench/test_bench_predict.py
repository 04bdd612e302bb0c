"""``python -m bench predict``: drawn programs, and how near estimates are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import eqsat as eq
from bench.__main__ import main
from bench.reports.estimates import classes, summary, text
from bench.runner.exactness import ROUGH, reference
from bench.workloads import leaves, named
from bench.workloads.unseen import LARGEST, drawn, unseen
from bench.workloads.unseen_lines import FAMILIES
from eqsat.support.errors import EqsatError

pytestmark = pytest.mark.bench


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["predict", *map(str, words)])


# -- drawn programs --------------------------------------------------------------------


def test_programs_of_a_seed_are_the_same_each_time() -> None:
    for w in unseen(3, 6):
        before = drawn(w.name)
        drawn.cache_clear()
        after = drawn(w.name)
        assert before.text == after.text
        for a, b in zip(before.inputs, after.inputs, strict=True):
            np.testing.assert_array_equal(a, b)
    texts = {drawn(w.name).text for w in [*unseen(3, 20), *unseen(4, 20)]}
    assert len(texts) > 35


def test_programs_are_of_all_families_dtypes_and_sizes() -> None:
    programs = [drawn(w.name) for w in unseen(5, 120)]
    families = {family for p in programs for family in p.families}
    assert families == {*FAMILIES, "integers"}
    assert {p.dtype for p in programs} == {"float32", "float64", "int32", "int64"}
    sizes = [max(a.size for a in p.inputs) for p in programs]
    assert min(sizes) < 100 and 1_000_000 < max(sizes) <= LARGEST
    assert {len(p.families) for p in programs} >= {1, 2, 3}
    assert any(p.weights for p in programs)


def test_programs_are_what_numpy_runs_and_eqsat_runs_them_right() -> None:
    for w in unseen(6, 12):
        inputs, weights = w.draw(0)
        known = reference(w, (inputs, weights))
        got = eq.jit(w.plain)(*inputs, *weights)
        error, bound = known.worst([np.asarray(a) for a in leaves(got)])
        assert bound == ROUGH and error <= bound, drawn(w.name).text


def test_names_of_other_programs_are_refused() -> None:
    assert named("softmax/1x64").name == "softmax/1x64"
    for name in ("softmax", "unseen/1", "unseen/1/x"):
        with pytest.raises(EqsatError, match="unseen/SEED/NUMBER"):
            named(name)


# -- the command -----------------------------------------------------------------------


def test_a_run_is_resumed_shown_and_drawn(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["--quick", "--out", out, "--seed", "2"]

    done = run("--workloads", "layer_norm/1x64,add_relu/1024", *words)
    assert done.exit_code == 0, done.output
    first = json.loads(out.read_text(encoding="utf-8"))
    more = run("--unseen", "2", "--resume", *words)
    assert more.exit_code == 0 and "unseen/2/1" in more.output, more.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["rows"][: len(first["rows"])] == first["rows"]
    assert {c["set"] for c in found["classes"]} == {"workloads", "drawn"}
    for row in found["rows"]:
        low, high = row["quartiles_s"]
        assert low <= row["measured_s"] <= high and row["predicted_s"] > 0
        assert row["numpy_s"] > 0 and row["numpy_predicted_s"] > 0
    assert run(out).stdout == more.stdout
    other = run("--unseen", "2", "--resume", "--quick", "--out", out, "--seed", "3")
    assert other.exit_code == 1 and "its seed is 2, here it is 3" in other.output
    assert "--resume needs --out" in run("--resume").output
    pytest.importorskip("matplotlib")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_a_run_ends_in_time_and_says_what_is_left(tmp_path: Path) -> None:
    words = ["--unseen", "20", "--quick", "--out", tmp_path / "found.json"]
    done = run(*words, "--seconds", "0.001")
    assert done.exit_code == 1 and "no estimates" in done.output
    done = run(*words, "--seconds", "1", "--resume")
    assert "programs are left: --resume goes on" in done.output


# -- what is said of ratios ------------------------------------------------------------


def row(estimate: float, clock: float, *families: str, **more: Any) -> dict[str, Any]:
    found = {
        "workload": "w",
        "tags": ["map"],
        "dtype": "float32",
        "inputs": ["4 float32"],
        "bytes": 4096,
        "kernels": [{"kind": "map", "estimate_s": estimate}],
        "by_numpy": 0,
        "predicted_s": estimate,
        "measured_s": clock,
        **more,
    }
    if families:
        found |= {"tags": ["unseen", *families], "program": "def f(x): ..."}
    return found


def test_ratios_are_summed_up() -> None:
    rows = [row(r * c, c) for r, c in ((0.4, 1.0), (0.5, 2.0), (1.0, 3.0), (2.1, 4.0))]
    found = summary(rows)
    assert found["number"] == 4 and found["median_ratio"] == pytest.approx(0.75)
    assert found["within_2"] == 0.5 and found["spearman"] == 1
    assert summary(rows[:1])["spearman"] is None


def test_a_drawn_program_is_of_each_family_of_its_lines() -> None:
    rows = [
        row(1.0, 2.0, "maps", "sorts", numpy_predicted_s=8.0, numpy_s=2.0),
        row(3.0, 2.0, "sorts"),
        row(1.0, 9.0),
    ]
    rows.append({"workload": "z", "tags": ["map"], "status": "failed", "reason": "no"})
    every = classes(rows)
    found = {(c["set"], c["class"]): c for c in every if c["side"] == "program"}
    assert not any(c["side"] == "NumPy" and c["set"] == "workloads" for c in every)
    (numpy,) = (c for c in every if (c["side"], c["class"]) == ("NumPy", "kind: maps"))
    assert numpy["median_ratio"] == 4
    assert found["drawn", "kind: sorts"]["median_ratio"] == 1
    assert found["drawn", "kind: maps"]["number"] == 1
    assert found["workloads", "all"]["number"] == 1
    assert found["workloads", "memory: ≤ 32 KiB"]["within_2"] == 0
    record = {
        "cpu": "c",
        "peer": "p",
        "eqsat": "0",
        "commit": "x",
        "threads": 1,
        "versions": {},
        "rows": rows,
        "classes": classes(rows),
    }
    shown = text(record)
    assert "z: failed: no" in shown and "def f(x)" in shown
    assert shown.index("drawn") > shown.index("workloads")
