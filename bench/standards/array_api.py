"""``python -m bench array_api PATH``: the test suite of the array API standard, a
checkout of data-apis/array-api-tests with its submodule, against eqsat and NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import click
from rich.console import Console
from rich.table import Table

from bench.processes.pool import ROOT
from bench.reports import Record, machine, write
from eqsat.support import counted

MODULES = ("eqsat.array_api", "numpy")
OUTCOMES = ("passed", "failed", "skipped")
Outcomes = dict[str, tuple[str, str]]
"""``passed``, ``failed`` or ``skipped``, and why, by the name of a test."""


MORE = 20
"""More runs for NumPy of a test that eqsat alone fails: which examples are drawn is
chance, and NumPy may fail on those that it did not see. Some tests draw one example
whatever the seed and the number of examples."""


def outcomes(
    module: str,
    path: Path,
    examples: int,
    seed: int,
    limit_s: int,
    names: Sequence[str] = ("",),
) -> Record:
    """What each test of the suite at ``path``, or each of ``names``, says of a module,
    and the seconds of all.

    A suite that does not end within ``limit_s``, or whose process dies, is an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore"]
        command += [f"array_api_tests/{name}" for name in names]
        command += ["-p", "no:cacheprovider", "--disable-deadline"]
        command += [f"--max-examples={examples}", f"--hypothesis-seed={seed}"]
        command += ["--tb=line", f"--junitxml={report}"]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        given = {**os.environ, "ARRAY_API_TESTS_MODULE": module, "PYTHONPATH": paths}
        done = subprocess.run(command, cwd=path, env=given, timeout=limit_s)
        if done.returncode not in (0, 1):  # 1: tests failed
            raise click.ClickException(f"pytest ended with {done.returncode}")
        return read_report(report)


def read_report(report: Path) -> Record:
    """Outcomes of tests, from a report of pytest in the format of JUnit."""
    suite = ElementTree.parse(report).getroot()[0]
    found: Outcomes = {}
    for case in suite.iter("testcase"):
        _, module, *classes = case.get("classname", "").split(".")
        name = "::".join([f"{module}.py", *classes, case.get("name", "")])
        found[name] = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                found[name] = "failed", child.get("message", "").partition("\n")[0]
            elif child.tag == "skipped":
                found[name] = "skipped", child.get("message", "")
    return {"seconds_s": float(suite.get("time", "nan")), "tests": found}


def by_module(tests: Mapping[str, tuple[str, str]]) -> dict[str, Counter[str]]:
    """How many tests of each module of the suite passed, failed and were skipped."""
    found: dict[str, Counter[str]] = {}
    for name, (outcome, _) in tests.items():
        module = name.partition(".py::")[0].removeprefix("test_")
        found.setdefault(module, Counter())[outcome] += 1
    return found


def departures(ours: Outcomes, numpys: Outcomes) -> dict[str, str]:
    """Tests that NumPy passes and eqsat does not, and why."""
    missing = ("missing", "not collected")
    return {
        name: ours.get(name, missing)[1]
        for name, (outcome, _) in numpys.items()
        if outcome == "passed" and ours.get(name, missing)[0] != "passed"
    }


def by_chance(
    path: Path, apart: Mapping[str, str], examples: int, seed: int, limit_s: int
) -> dict[str, str]:
    """Those of the tests that eqsat alone fails that NumPy fails in another run."""
    found: dict[str, str] = {}
    for i in range(1, MORE + 1):
        left = [name for name in apart if name not in found]
        if not left:
            break
        again = outcomes("numpy", path, examples, seed + i, limit_s, left)["tests"]
        failed = (name for name, (outcome, _) in again.items() if outcome == "failed")
        found |= {name: apart[name] for name in failed if name in apart}
    return found


@click.command("array_api")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--examples", default=20, help="Examples that a test draws.")
@click.option("--seed", default=0, help="Of the examples.")
@click.option("--seconds", default=3600, help="Most of a run of the suite.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Results as JSON."
)
def array_api(
    path: Path, examples: int, seed: int, seconds: int, out: Path | None
) -> None:
    """Run the checkout of array-api-tests at PATH against eqsat and against NumPy."""
    found = {m: outcomes(m, path, examples, seed, seconds) for m in MODULES}
    ours, numpys = (found[m]["tests"] for m in MODULES)
    tables = {m: by_module(found[m]["tests"]) for m in MODULES}
    apart = departures(ours, numpys)
    chance = by_chance(path, apart, examples, seed, seconds)
    apart = {name: why for name, why in apart.items() if name not in chance}
    if out is not None:
        seen = {m: found[m]["seconds_s"] for m in MODULES}
        head = {**machine(), "examples": examples, "seed": seed, "seconds_s": seen}
        write(out, {**head, "modules": tables, "departures": apart, "chance": chance})
    Console(width=140).print(_table(tables))
    for name, why in apart.items():
        click.echo(f"{name}\n  {why}")
    for name in chance:
        click.echo(f"{name}: NumPy fails it with other examples")
    click.echo(f"{counted(len(apart), 'failure')} of tests that NumPy passes")


def _table(tables: Mapping[str, Mapping[str, Counter[str]]]) -> Table:
    table = Table("module")
    for module in ("eqsat", "NumPy"):
        for outcome in OUTCOMES:
            table.add_column(f"{module} {outcome}", justify="right")
    rows = {
        name: [tables[m].get(name, Counter()) for m in MODULES]
        for name in sorted({*tables[MODULES[0]], *tables[MODULES[1]]})
    }
    rows["all"] = [sum(tables[m].values(), Counter()) for m in MODULES]
    for name, counts in rows.items():
        table.add_row(name, *(str(c[o]) for c in counts for o in OUTCOMES))
    return table
