"""The guide of rules/README.md runs: its files are written, its commands are run, and
what it shows is what they print, but for figures and what ``…`` leaves out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import prints

from eqsat import ops
from eqsat.explain.why_not import KINDS
from eqsat.rulelang import condition
from eqsat.rulelang.rule import PHASES
from eqsat.rulelang.ruleset import load_rules
from eqsat.support.options import NUMERICS
from eqsat.terms import op_factories

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "rules" / "README.md").read_text(encoding="utf-8")
TUTORIAL, REFERENCE = GUIDE.split("\n# Reference\n")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(command: str, folder: Path) -> str:
    """What a command of the guide prints."""
    program, *words = shlex.split(command)
    start = {"python": [sys.executable], "eqsat": [sys.executable, "-m", "eqsat"]}
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [*start[program], *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.stdout


# Its commands are tested one by one every time, and what the reference names.
@pytest.mark.slow
def test_the_guide_runs_from_top_to_bottom(tmp_path: Path) -> None:
    files = commands = 0
    for language, text in BLOCK.findall(TUTORIAL):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            assert name, f"a block of Python is a file: {text[:40]}"
            (tmp_path / name[1]).write_text(text, encoding="utf-8")
            files += 1
        elif language == "console":
            for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = entry.partition("\n")
                said = run(command, tmp_path)
                assert prints(said, shown), f"$ {command}\n{said}"
                commands += 1
    assert files >= 5 and commands >= 5


@pytest.mark.parametrize(
    "name", [*condition.__all__, *PHASES, *NUMERICS, *KINDS, "composite", "pointwise"]
)
def test_the_reference_names_everything(name: str) -> None:
    if name not in ("Fact", "Held"):
        assert f"`{name}" in GUIDE or f'`"{name}' in GUIDE or f", `{name}" in GUIDE


def test_the_reference_names_nothing_else() -> None:
    table = TUTORIAL.partition("### Conditions")[2]
    for name in re.findall(r"`(\w+)\(", table):
        assert hasattr(condition, name)
    assert hasattr(op_factories, "composite") and hasattr(ops, "sqrt")


def test_what_is_shown_must_be_printed() -> None:
    assert prints("a 12.5 µs\nb  7", "a 3 µs\nb 1")
    assert prints("x\ny\nz\n", "x\n…\nz")
    assert not prints("x\ny", "x") and not prints("x", "x\ny")


def test_the_examples_of_the_reference_are_code(tmp_path: Path) -> None:
    """Python compiles, and the egglog text loads."""
    blocks = BLOCK.findall(REFERENCE)
    for language, text in blocks:
        if language == "python":
            compile(text, "rules/README.md", "exec")
        elif language == "lisp":
            (tmp_path / "mine.egg").write_text(text, encoding="utf-8")
            assert len(load_rules(tmp_path / "mine.egg")) == 2
    assert {"python", "lisp"} <= {language for language, _ in blocks}
