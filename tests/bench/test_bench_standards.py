"""What is read of the standard's test suite, and estimators of scikit-learn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes.pool import ROOT
from bench.standards.array_api import counted, departures, read_report

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
    assert counted(found["tests"]) == {
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
