"""The guide of eqsat/README.md: its examples run, and its files are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "eqsat" / "README.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", GUIDE, re.M | re.S))
POINTS = re.findall(r"^```toml\n\[project\.entry-points\.(.*?)^```", GUIDE, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All files of the guide, and the entry point of its backend as installed."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (points,) = POINTS
    group, _, lines = points.partition("]")
    info = tmp_path / "oracle_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: oracle_backend\nVersion: 1\n")
    name = group.strip('"')
    lines = lines.replace('"', "")
    (info / "entry_points.txt").write_text(f"[{name}]\n{lines}")
    return tmp_path


def test_the_examples_run(folder: Path) -> None:
    """One after the other, in a process that has imported eqsat once."""
    names = [n for n in FILES if n.startswith(("add", "use"))]
    assert len(names) >= 7
    run = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path)"
    done = subprocess.run(
        [sys.executable, "-c", run, *(str(folder / n) for n in names)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_files_that_the_guide_names_are_there() -> None:
    prose = re.sub(r"^```.*?^```", "", GUIDE, flags=re.M | re.S)
    names = {n for n in re.findall(r"`([\w./]+\.py)`", prose) if n not in FILES}
    tops = [ROOT / "eqsat", ROOT / "backends"]
    everywhere = {p.name for top in tops for p in top.rglob("*.py")}
    assert len(names) > 30
    for name in names:
        found = any((p / name).exists() for p in (ROOT, *tops))
        assert found or ("/" not in name and name in everywhere), name
