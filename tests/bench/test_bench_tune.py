"""``python -m bench tune``: what it measures and how it sums up."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.runner.tune import PROGRAMS, summary, text
from bench.workloads import select


def test_twenty_programs() -> None:
    assert len(select(PROGRAMS)) == len(PROGRAMS) == 20


@pytest.mark.parametrize("how", [["--budget", "0.1"], ["--adaptive"]])
def test_a_workload_before_and_after(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", os.environ["EQSAT_CACHE_DIR"])  # put back
    out = tmp_path / "tune.json"
    words = ["tune", "--workloads", "softmax/16x64", *how]
    run = CliRunner().invoke(main, [*words, "--out", str(out)])
    assert run.exit_code == 0, run.output
    found = json.loads(out.read_text())
    (row,) = found["rows"]
    assert row["workload"] == "softmax/16x64" and row["kernels"] == 1
    assert row["error_after"] <= row["error_before"] and row["gain"] > 0
    assert found["adaptive"] == ("--adaptive" in how)
    assert found["summary"]["programs"] == 1 and text(found) in run.output


def test_the_summary() -> None:
    errors = {"error_before": 4.0, "error_after": 1.0}
    rows = [{"gain": g, "lost": None if g == 1 else 0.1, **errors} for g in (1, 4, 0.5)]
    found = summary(rows)
    assert (found["programs"], found["changed"], found["slower"]) == (3, 2, 1)
    assert math.isclose(found["gain"], 2 ** (1 / 3)) and found["error_before"] == 4
