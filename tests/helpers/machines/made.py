"""What compilers made, kept by the text that they made it of, and programs that the
search found, kept by eqsat itself: for other tests, and for other runs of them. What is
kept is no verdict: each test still runs its code."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eqsat.backends.native.machine import processor
from eqsat.support import disk_cache
from eqsat.support.trusted_files import trusted_folder

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("TESTS_CACHE") or ROOT / ".test_cache")
MOST_BYTES = 1 << 30


def made(of: Sequence[str], make: Callable[[Path], None], end: str = "") -> Path:
    """The file that ``make`` writes, which follows from the texts ``of``."""
    name = hashlib.sha256("\0".join(of).encode()).hexdigest()
    path = FOLDER / (name[:40] + end)
    with suppress(OSError):
        os.utime(path)  # as the last that is removed
        return path
    FOLDER.mkdir(exist_ok=True)
    part = path.with_name(f"part-{os.getpid()}-{threading.get_ident()}-{path.name}")
    try:
        make(part)
        part.replace(path)  # whole or not there, whoever else writes it
    finally:
        part.unlink(missing_ok=True)
    return path


def trim() -> None:
    """Remove what was not used for longest."""
    found = sorted((f.stat().st_mtime, f) for f in FOLDER.glob("*"))
    over = sum(f.stat().st_size for _, f in found) - MOST_BYTES
    for _, file in found:
        if over <= 0:
            break
        with suppress(OSError):
            over -= file.stat().st_size
            file.unlink()


def keep_machine_code() -> None:
    """Of LLVM IR that was compiled before, by the same code and for the same machine,
    take the machine code from disk."""
    compiled = processor.optimised_object
    compiler = Path(processor.__file__).read_text(encoding="utf-8")

    def kept(text: str, machine: processor.Host, passes: str) -> bytes:
        def make(path: Path) -> None:
            path.write_bytes(compiled(text, machine, passes))

        return made([compiler, machine.key, passes, text], make, ".o").read_bytes()

    processor.optimised_object = kept


class Programs:
    """The folders where eqsat keeps programs and their machine code, by all that they
    follow from: its sources, the terms, rules, options and the machine. A test that
    replaces anything keeps nothing between runs from there on, nor do processes that it
    starts: what it replaces is no part of the key."""

    keeps = False
    """Whether programs are kept between runs from now on."""

    def __init__(self, for_one_run: str) -> None:
        engines = "-".join(version(name) for name in ("egglog", "llvmlite", "scipy"))
        self._between_runs = FOLDER / f"programs-{engines}"
        try:
            with trusted_folder(self._between_runs, make=True):
                self._is_trusted = True
        except OSError:  # nothing is taken from where other users can write
            self._is_trusted = False
        self._for_one_run, self._usual = Path(for_one_run), disk_cache.base_folder
        disk_cache.base_folder = self._folder
        for name in ("setattr", "delattr", "setitem", "delitem"):
            self._ends_keeping(pytest.MonkeyPatch, name)
        for kind in (type(mock.patch.object(mock, "patch")), type(mock.patch.dict({}))):
            self._ends_keeping(kind, "__enter__")
        self._ends_keeping(disk_cache, "clear")  # which would empty what is kept

    def start(self) -> None:
        """A test begins, which has replaced nothing."""
        Programs.keeps = self._is_trusted

    def _folder(self) -> Path:
        usual = self._usual()
        kept = Programs.keeps and usual == self._for_one_run
        return self._between_runs if kept else usual

    def _ends_keeping(
        self, owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True
    ) -> None:
        replace: Callable[..., Any] = getattr(owner, name)

        @wraps(replace)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            if when(*args, **kwargs):
                Programs.keeps = False
            return replace(*args, **kwargs)

        setattr(owner, name, replaced)


class CompilerError(AssertionError):
    """What the C++ compiler says."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler with its flags."""

    path: str
    flags: tuple[str, ...]
    header: str = ""
    """What each text begins with, read by the compiler once."""

    def library(self, text: str) -> Path:
        """A shared library. Raises :class:`CompilerError` for what is no C++."""
        words = [*self.flags, "-shared", "-include", str(self._prepared)]
        words += ["-x", "c++", "-"]
        return made([*self._key, text], lambda to: self._run(words, to, text), ".so")

    @cached_property
    def _key(self) -> list[str]:
        version = subprocess.check_output([self.path, "--version"], text=True)
        return [version, *self.flags, self.header]

    @cached_property
    def _prepared(self) -> Path:
        """The header, with what the compiler has read in a file beside it."""
        header = made(self._key, lambda to: _write(to, self.header), ".hpp")
        ready = header.with_name(f"{header.name}.gch")
        if not ready.exists():
            part = header.with_name(f"part-{os.getpid()}-{ready.name}")
            self._run([*self.flags, "-x", "c++-header", str(header)], part)
            part.replace(ready)
        return header

    def _run(self, words: Sequence[str], to: Path, text: str = "") -> None:
        command = [self.path, *words, "-o", str(to)]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            raise CompilerError(done.stderr[:4000])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
