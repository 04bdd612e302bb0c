"""The figures beside the examples of README.md, measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIGURES = re.compile(
    r"arrays of ([\d,]+) float32 numbers NumPy takes ([\d.]+) µs and `(\w+)`\s+takes"
    r" ([\d.]+) µs"
)
KEPT = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""Makes the C library of Linux reuse memory. By itself it decides in each process, by
what was freed before, whether NumPy's arrays are made of new pages in each call."""
MOST = 0.5
"""How far a ratio may be from the stated one, as a share of it."""


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def figures() -> list[tuple[int, str, float]]:
    """Elements of each array, the function, and how many times as fast it is said to
    be as NumPy."""
    found = FIGURES.findall(re.sub(r"\s+", " ", readme()))
    return [
        (int(size.replace(",", "")), name, float(plain) / float(ours))
        for size, plain, name, ours in found
    ]


def measured(size: int, name: str, folder: Path) -> float:
    """How many times as fast a function of README.md is as NumPy."""
    text = "\n\n".join(PYTHON.findall(readme()))
    (arguments,) = re.findall(rf"def {name}\((.*)\):", text)
    path = folder / "example.py"
    path.write_text(text, encoding="utf-8")
    given = ["--arg", f"{size}:f32"] * len(arguments.split(","))
    words = ["bench", f"{path}:{name}", *given, "--threads", "1", "--budget", "3s"]
    done = subprocess.run(
        [sys.executable, "-m", "eqsat", *words, "--json"],
        capture_output=True,
        text=True,
        env=os.environ | KEPT | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["sides"]["NumPy"]["of_eqsat"])


def test_the_readme_states_figures() -> None:
    assert [name for _, name, _ in figures()] == ["gate"]


@pytest.mark.parametrize(("size", "name", "stated"), figures())
def test_the_figures_of_the_readme_are_measured(
    size: int, name: str, stated: float, tmp_path: Path
) -> None:
    found = measured(size, name, tmp_path)
    assert abs(found / stated - 1) <= MOST, (
        f"README.md says that {name} is {stated:.1f} times as fast as NumPy; here it "
        f"is {found:.1f}"
    )
