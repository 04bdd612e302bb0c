"""Faults: kills, interrupts, damaged and exchanged entries, threads, full disks. Every
result is compared with NumPy's; nothing may be lost, wrong, or hang.

``TESTS_FAULTS`` is the share of the full counts that is run; 1 takes half an hour.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fault_worker
import pytest

from eqsat.support import disk_cache

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="children are forked"),
]
SHARE = float(os.environ.get("TESTS_FAULTS", "0.05"))
NEVER_S = fault_worker.LONGEST_S + 20


def times(full: int) -> range:
    """As many rounds as the share of ``full``, and one at least."""
    return range(max(1, round(full * SHARE)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EQSAT_CACHE", raising=False)
    return tmp_path / "compiled"


class Worker:
    """A process that runs jobs in children. ``said`` is what they write as errors."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, fault_worker.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(
        self, job: str, seed: int, after_s: float = NEVER_S, level: str = "native"
    ) -> int:
        """The exit status of a child that is killed after ``after_s`` seconds."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{job} {seed} {after_s} {level}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def well(self, job: str, seed: int, level: str = "native") -> None:
        """Run a job to its end; all its results are right."""
        status = self.run(job, seed, level=level)
        assert (status, self.said) == (0, ""), f"{job} {seed}"

    @property
    def said(self) -> str:
        """What all children have written."""
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextmanager
def started(log: Path) -> Iterator[Worker]:
    worker = Worker(log)
    try:
        yield worker
    finally:
        worker.close()


@pytest.fixture
def worker(tmp_path: Path, folder: Path) -> Iterator[Worker]:
    with started(tmp_path / "log") as found:
        yield found


def entries(folder: Path) -> set[str]:
    """Names of the entries; no file is neither one nor being written."""
    names = {p.name for p in folder.iterdir()}
    kinds = ("program-", "code-", "object-", "written-", "part-")
    assert all(name.startswith(kinds) for name in names)
    return {name for name in names if not name.startswith("part-")}


def all_whole(names: set[str]) -> None:
    """All entries hold what was written under their names."""
    assert [name for name in names if disk_cache.get(name) is None] == []


def test_kills_while_programs_are_compiled_and_written(
    worker: Worker, folder: Path
) -> None:
    rng = random.Random(0)
    worker.well("use", 10**6)
    start = time.monotonic()
    worker.well("use", 10**6 + 1)
    takes_s = time.monotonic() - start
    known = entries(folder)
    kills = seed = 0
    while kills < len(times(1000)):
        seed += 1
        assert seed < 10 * len(times(1000))
        job = "write" if seed % 4 == 3 else "use"
        status = worker.run(job, seed, rng.uniform(0, takes_s))
        assert status == -9 or (job, status) == ("use", 0), worker.said
        kills += status == -9
        found = entries(folder)
        assert known <= found  # nothing is lost
        all_whole(found - known)
        known = found
        if job == "use":
            worker.well("use", seed)
    all_whole(entries(folder))
    for number in range(fault_worker.WRITTEN):
        kept = disk_cache.get(disk_cache.key("written", str(number)))
        assert kept in (None, fault_worker.content(number))
    for part in folder.glob("part-*"):
        os.utime(part, (0, 0))
    disk_cache.trim()
    assert list(folder.glob("part-*")) == []


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    lambda b, rng: b"",
    lambda b, rng: b[: rng.randrange(len(b))],
    lambda b, rng: b + rng.randbytes(rng.randrange(1, 5000)),
    lambda b, rng: rng.randbytes(len(b)),
    lambda b, rng: bytes(len(b)),
    lambda b, rng: _flipped(b, rng.randrange(8 * len(b))),
    lambda b, rng: _flipped(b, rng.randrange(8 * 48)),
    lambda b, rng: _paged(b, rng.randrange(0, len(b), 512), bytes(512)),
    lambda b, rng: _paged(b, rng.randrange(len(b)), rng.randbytes(4)),
    lambda b, rng: b[:40] + b[41:] + b[40:41],
]


def _flipped(data: bytes, bit: int) -> bytes:
    return _paged(data, bit // 8, bytes([data[bit // 8] ^ (1 << bit % 8)]))


def _paged(data: bytes, start: int, by: bytes) -> bytes:
    return (data[:start] + by + data[start + len(by) :])[: len(data)]


def test_damaged_entries(worker: Worker, folder: Path) -> None:
    rng = random.Random(1)
    worker.well("use", 1)
    names = entries(folder)
    damaged = 0
    for number in times(300):
        path = folder / rng.choice(sorted(names))
        before = path.read_bytes()
        after = DAMAGES[number % len(DAMAGES)](before, rng)
        path.write_bytes(after)
        damaged += after != before
        worker.well("use", 1)
        for name in entries(folder) - {path.name}:
            assert disk_cache.get(name) is not None
        assert (disk_cache.get(path.name) is None) == (
            not path.exists()
        )  # read and made again, or not asked for and found out now
        if not path.exists():
            path.write_bytes(before)
        all_whole(names)
    assert damaged > 0.8 * len(times(300))


def test_exchanged_entries(worker: Worker, folder: Path) -> None:
    """Of other functions, of other kinds, and of other levels of the CPU."""
    rng = random.Random(2)
    levels = ["native", "x86-64-v2"]
    for level in levels:
        for seed in (1, 2):
            worker.well("use", seed, level)
    for _ in times(100):
        a, b = (folder / name for name in rng.sample(sorted(entries(folder)), 2))
        if rng.random() < 0.5:
            a.write_bytes(b.read_bytes())
        else:
            a.rename(folder / "aside")
            b.rename(a)
            (folder / "aside").rename(b)
        for level in levels:
            for seed in (1, 2):
                worker.well("use", seed, level)
        for name in entries(folder):
            disk_cache.get(name)  # what nobody asked for goes
        all_whole(entries(folder))


def test_interrupts_while_programs_are_compiled_and_called(
    worker: Worker, folder: Path
) -> None:
    count = -(-len(times(500)) // fault_worker.INTERRUPTS)
    for seed in range(count):
        worker.well("interrupt", seed)
    all_whole(entries(folder))


def test_threads_while_entries_are_damaged(worker: Worker, folder: Path) -> None:
    for seed in times(20):
        worker.well("threads", 3 * seed)
    for name in entries(folder):
        disk_cache.get(name)
    worker.well("use", 0)
    all_whole(entries(folder))


def test_files_that_may_not_grow(worker: Worker, folder: Path) -> None:
    for seed in times(200):
        worker.well("short", seed)
        if folder.exists():
            all_whole(entries(folder))
            assert list(folder.glob("part-*")) == []


@contextmanager
def mounted(at: Path, size: int) -> Iterator[Path]:
    """A disk of ``size`` bytes. Skips where none may be mounted."""
    at.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "eqsat-test"]
    try:
        done = subprocess.run([*words, str(at)], capture_output=True)
    except OSError:
        pytest.skip("nothing can be mounted here")
    if done.returncode:
        pytest.skip("this user may mount nothing")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    with mounted(tmp_path / "disk", 1 << 19) as disk:
        monkeypatch.setenv("EQSAT_CACHE_DIR", str(disk))
        folder = disk / "compiled"
        with started(tmp_path / "log") as worker:
            for seed in times(200):
                _fill(disk / "filler", rng.choice([0, 0, 4096, 9000, 40_000, 200_000]))
                worker.well("use", seed)
                if folder.exists():
                    all_whole(entries(folder))
                    assert list(folder.glob("part-*")) == []
                if seed % 20 == 19:
                    disk_cache.clear()
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            for seed in times(20):
                worker.well("use", seed)


def _fill(path: Path, left: int) -> None:
    """Leave ``left`` bytes of a disk."""
    path.unlink(missing_ok=True)
    state = os.statvfs(path.parent)
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        file.write(bytes(max(0, state.f_bavail * state.f_frsize - left)))
