"""What is read of the standard's test suite, and estimators of scikit-learn."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench.standards.array_api as array_api
from bench.processes.pool import ROOT
from bench.reports import spread
from bench.standards.array_api import by_module, departures, read_report
from bench.standards.sklearn_calls import DISCRIMINANTS, text

pytestmark = pytest.mark.bench

REPORT = """<testsuites><testsuite time="1.5">
<testcase classname="array_api_tests.test_a" name="test_x[add]" />
<testcase classname="array_api_tests.test_a.TestY" name="test_y">
  <failure message="AssertionError: 1 != 2&#10;more">text</failure></testcase>
<testcase classname="array_api_tests.test_b" name="test_z">
  <skipped message="no" /></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_by_module(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    found = read_report(path)
    assert found["seconds_s"] == 1.5
    assert by_module(found["tests"]) == {
        "a": {"passed": 1, "failed": 1},
        "b": {"skipped": 1},
    }


def test_departures_are_what_numpy_alone_passes() -> None:
    ours = {
        "m::a": ("passed", ""),
        "m::b": ("failed", "why"),
        "m::c": ("failed", "as NumPy"),
        "m::d": ("skipped", "no"),
    }
    numpys = {
        **{f"m::{n}": ("passed", "") for n in "abde"},
        "m::c": ("failed", "as well"),
    }
    assert departures(ours, numpys) == {
        "m::b": "why",
        "m::d": "no",
        "m::e": "not collected",
    }


def test_the_page_has_the_table_of_the_results() -> None:
    found = json.loads((ROOT / "bench/results/array_api.json").read_text("utf-8"))
    guide = (ROOT / "eqsat/documentation/howto/array_api.md").read_text("utf-8")
    tables = [found["modules"][m] for m in array_api.MODULES]
    names = sorted({*tables[0], *tables[1]})
    rows = {
        name: [t.get(name, {}).get(o, 0) for t in tables for o in array_api.OUTCOMES]
        for name in names
    }
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    told = [re.split(r"[ |]+", line.strip("| ")) for line in guide.splitlines()]
    shown = {cells[0]: cells[1:] for cells in told if cells[0] in rows}
    assert shown == {name: [*map(str, numbers)] for name, numbers in rows.items()}
    assert found["departures"] == {}


def test_what_numpy_fails_with_other_examples_is_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, list[str]]] = []

    def run(
        module: str, path: Path, examples: int, seed: int, limit: int, names: list[str]
    ) -> dict[str, Any]:
        asked.append((seed, names))
        failed = {"a": seed == 2, "b": False}
        return {"tests": {n: ("failed" if failed[n] else "passed", "") for n in names}}

    monkeypatch.setattr(array_api, "outcomes", run)
    found = array_api.by_chance(tmp_path, {"a": "why", "b": "so"}, 20, 0, 60)
    assert found == {"a": "why"} and len(asked) == array_api.MORE
    assert asked[:3] == [(1, ["a", "b"]), (2, ["a", "b"]), (3, ["b"])]


def test_estimators_give_numpys_results() -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "-W", "ignore", "-m", "bench.standards.estimators"]
    done = subprocess.run(
        [*command, "1000", "8"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert len(records) > 10
    assert [(r["name"], r["why"]) for r in records if r["why"]] == []


# -- the tables of scikit-learn --------------------------------------------------------


def test_calls_with_and_without_figures_in_a_table() -> None:
    spent = {"first_s": 2.0, "NumPy": spread([0.002] * 3), "eqsat": spread([0.001] * 3)}
    other = {"name": "egglog", "why": "ValueError: no"}
    found = {
        "calls": [{"name": DISCRIMINANTS, "why": "", **spent}],
        "egglog_calls": [other],
    }
    lines = text(found, markdown=True).splitlines()
    row = "| 2 s | 1 ms (1 ms to 1 ms) | 2 ms (2 ms to 2 ms) |          2.00 |"
    assert lines[2] == f"| {DISCRIMINANTS} {row.replace('| 2 s', '|   2 s')}"
    assert "| egglog " in lines[7] and lines[7].count("–") == 4
    assert lines[-2:] == [
        "egglog: ValueError: no",
        "1 of 1 call: NumPy's results.",
    ]


def test_the_page_has_the_tables_of_the_results() -> None:
    found = json.loads((ROOT / "bench/results/sklearn.json").read_text("utf-8"))
    page = (ROOT / "bench/README.md").read_text("utf-8")
    for part in text(found, markdown=True).split("\n\n")[:2]:
        assert part in page
    assert all(r["why"] == "" for r in found["calls"])
    for r in found["egglog_calls"]:
        assert r["why"].strip().partition(":")[0] in page


def test_what_egglog_optimises_gives_numpys_results() -> None:
    pytest.importorskip("egglog.exp.array_api_jit")
    code = (
        "import sklearn; sklearn.set_config(array_api_dispatch=True)\n"
        "from bench.standards.egglog_lda import *\n"
        "x, y = classes(300, 6); of = discriminants\n"
        "print(json.dumps(record('egglog', lambda: optimised(of, x, y), of, x, y)))\n"
        "def refused(x, y): raise ValueError('not  so. More')\n"
        "print(json.dumps(record('no', lambda: optimised(refused, x, y), of, x, y)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, done.stderr
    found, no = map(json.loads, done.stdout.splitlines())
    assert found["why"] == "" and found["egglog"]["rounds"] == 31
    assert no == {"name": "no", "why": "ValueError: not so"}
