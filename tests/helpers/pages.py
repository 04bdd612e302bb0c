"""Pages of Markdown: their blocks, what these print, their links.

A page is the README or a file of ``eqsat/documentation``. What its blocks mean:

``python``    runs; all blocks of a page share one module. One whose first line is
              ``# name.py`` is that file, for the blocks and commands after it.
``printed``   what the block before printed, to the letter.
``measured``  the same, but for figures: they differ from machine to machine.
              ``…`` stands for whatever is left out.
``console``   lines ``$ command`` run, and what follows is compared as ``measured``.
``sh``        commands that install or download: their words are checked.
``text``      a diagram.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "eqsat" / "documentation"
PAGES = ["README.md"]
PAGES += sorted(p.relative_to(ROOT).as_posix() for p in FOLDER.rglob("*.md"))

LANGUAGES = {"python", "printed", "measured", "console", "sh", "text"}
SITE = {"{made}", "{toctree}", "{eval-rst}"}
"""What Sphinx makes."""

BLOCK = re.compile(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?|\b(?:arithmetic|memory|start)\b")
"""Figures, and what a kernel waits for on one machine or another."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    start: int
    """Where the text starts in the page (characters)."""
    end: int

    @property
    def file(self) -> str:
        """The name of the file that the block is; empty where it is run."""
        name = re.match(r"# (\w+\.py)\n", self.text)
        return name[1] if name and self.language == "python" else ""


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(m[1], m[2], *m.span(2)) for m in BLOCK.finditer(text)]


def as_pattern(shown: str) -> str:
    """A regular expression of what a page shows."""
    parts = NUMBER.sub("0", shown).split("…")
    escaped = [r"\s+".join(map(re.escape, re.split(r"\s+", p))) for p in parts]
    return r"(?s:.*?)".join(escaped)


def prints(said: str, shown: str) -> bool:
    """Whether what is shown is what was said, but for figures and ``…``."""
    found = NUMBER.sub("0", said).strip()
    return re.fullmatch(as_pattern(shown.strip()), found) is not None


def is_shown(language: str, said: str, shown: str) -> bool:
    said = "".join(f"{line.rstrip()}\n" for line in said.splitlines())
    return said == shown if language == "printed" else prints(said, shown)


@dataclass(frozen=True)
class Difference:
    """What a page shows, and what was printed instead."""

    block: Block
    said: str


def run_page(page: str, folder: Path) -> tuple[dict[str, object], list[Difference]]:
    """Runs a page in ``folder``: the names that it leaves, and where it is wrong.

    The blocks of Python are one file, since an explanation shows lines of the source.
    """
    found = blocks(page)
    stem = re.sub(r"\W", "_", Path(page).stem)
    module = types.ModuleType(f"page_{stem}")
    path = folder / f"{stem}.py"
    code = [b.text for b in found if b.language == "python" and not b.file]
    path.write_text("\n\n".join(code), encoding="utf-8")
    sys.modules[module.__name__] = module
    differences: list[Difference] = []
    line, said = 0, ""
    with contextlib.chdir(folder):
        for block in found:
            if block.file:
                Path(block.file).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                compiled = compile("\n" * line + block.text, str(path), "exec")
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compiled, vars(module))
                line += block.text.count("\n") + 2
                said = out.getvalue()
            elif block.language in ("printed", "measured"):
                if not is_shown(block.language, said, block.text):
                    differences.append(Difference(block, said))
            elif block.language == "console":
                parts = re.split(r"^(\$ .*\n)", block.text, flags=re.MULTILINE)[1:]
                pairs = zip(parts[::2], parts[1::2], strict=True)
                told = [(start, run(start[2:]), shown) for start, shown in pairs]
                if not all(prints(s, shown) for _, s, shown in told):
                    text = "".join(start + s for start, s, _ in told)
                    differences.append(Difference(block, text))
    del sys.modules[module.__name__]
    return vars(module), differences


def run(command: str) -> str:
    """What a command of a page prints; ``eqsat`` runs in this process."""
    program, *words = shlex.split(command)
    if program == "eqsat":
        from click.testing import CliRunner

        from eqsat.command.cli import main

        done = CliRunner(env={"COLUMNS": "100"}).invoke(main, words)
        assert done.exit_code in (0, 1) and not (done.exit_code and done.stderr)
        return done.stdout
    assert program == "python", command
    finished = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=dict(os.environ)
    )
    assert finished.returncode == 0 and not finished.stderr, finished.stderr
    return finished.stdout


def write_anew(page: str, differences: list[Difference]) -> None:
    """Puts what was printed into the page."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    for d in reversed(differences):
        said = "".join(f"{line.rstrip()}\n" for line in d.said.strip("\n").splitlines())
        said = re.sub(r"^compiled in .*$", "…", said, flags=re.MULTILINE)
        said = re.sub(r"(?<![\w.])/[\w./-]*/(?=[\w.]+:\d)", "…", said)
        text = text[: d.block.start] + said + text[d.block.end :]
    path.write_text(text, encoding="utf-8")


def prose(page: str) -> str:
    """A page without its blocks and without code between backticks."""
    text = re.sub(
        r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S
    )
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: str) -> Iterator[str]:
    """The targets of the links and pictures of a page."""
    yield from re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(path: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site name them."""
    text = path.read_text(encoding="utf-8")
    if borrowed := re.search(r"^```\{made\} file (\S+)", text, re.MULTILINE):
        return anchors(ROOT / borrowed[1])
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        again, number = plain, 0
        while again in found:
            number += 1
            again = f"{plain}-{number}"
        found.add(again)
    return found
