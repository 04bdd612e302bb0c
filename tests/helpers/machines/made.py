"""What compilers made, kept by the text that they made it of: for other tests, and for
other runs of them. What is kept is no verdict: each test still runs its code."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eqsat.backends.native.machine import processor

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("EQSAT_TEST_CACHE") or ROOT / ".test_cache")
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
