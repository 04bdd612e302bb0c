"""The disk cache: whole entries or none, whoever writes and whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from waiting import until

import eqsat as eq
from eqsat.command.cli import main
from eqsat.support import disk_cache, trusted_files
from eqsat.support.errors import CacheWarning

DATA = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EQSAT_CACHE", raising=False)
    return tmp_path / "compiled"


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def python(code: str, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def test_what_is_kept_is_found() -> None:
    name = disk_cache.key("kind", "a", b"b")
    assert disk_cache.get(name) is None
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) == DATA
    disk_cache.put(name, b"")
    assert disk_cache.get(name) == b""
    disk_cache.drop(name)
    assert disk_cache.get(name) is None
    disk_cache.drop(name)


def test_keys_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [("k", "ab", "c"), ("k", "a", "bc"), ("k", "abc"), ("j", "abc"), ("k",)]
    names = [disk_cache.key(kind, *rest) for kind, *rest in parts]
    assert len({*names, disk_cache.key("k", "", "abc")}) == 6
    assert disk_cache.key("k", "abc") == disk_cache.key("k", b"abc")
    monkeypatch.setattr(disk_cache, "_versions", lambda: b"another")
    assert disk_cache.key("k", "abc") not in names


def test_versions_follow_the_sources(tmp_path: Path) -> None:
    before = list(disk_cache._states(str(tmp_path), "x"))
    (tmp_path / "rule.egg").write_text("(rewrite)")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "code.py").write_text("pass")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "code.pyc").write_text("pass")
    states = list(disk_cache._states(str(tmp_path), "x"))
    assert len(states) == len(before) + 2
    (tmp_path / "deep" / "code.py").write_text("None")
    assert list(disk_cache._states(str(tmp_path), "x")) != states
    kept = "\n".join(disk_cache._sources())
    for file in ("eqsat/jit.py", "eqsat.rules/algebra.py", "eqsat.backends/native/"):
        assert file in kept


def test_a_release_has_entries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all files have one time, as some builds give them."""
    before = disk_cache._versions.__wrapped__()
    monkeypatch.setattr(eq, "__version__", "9.9")
    assert disk_cache._versions.__wrapped__() != before


MUTATIONS: list[Callable[[bytes], bytes]] = [
    lambda b: b"",
    lambda b: b[:7],
    lambda b: b[:40],
    lambda b: b[:-1],
    lambda b: b[: len(b) // 2],
    lambda b: b + b"x",
    lambda b: bytes(len(b)),
    lambda b: bytes([b[0] ^ 1]) + b[1:],
    lambda b: b[:20] + bytes([b[20] ^ 128]) + b[21:],
    lambda b: b[:-9] + bytes([b[-9] ^ 4]) + b[-8:],
]


@pytest.mark.parametrize("change", MUTATIONS)
def test_a_damaged_entry_is_missing(
    change: Callable[[bytes], bytes], folder: Path
) -> None:
    name = disk_cache.key("kind", "a")
    disk_cache.put(name, DATA)
    path = only(folder)
    path.write_bytes(change(path.read_bytes()))
    assert disk_cache.get(name) is None and not path.exists()
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) == DATA


def test_no_other_user_can_read_or_write(folder: Path) -> None:
    disk_cache.put(disk_cache.key("kind"), DATA)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_folders_are_made_for_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "a" / "b"))
    mask = os.umask(0)
    try:
        disk_cache.put(disk_cache.key("kind"), DATA)
    finally:
        os.umask(mask)
    assert disk_cache.get(disk_cache.key("kind")) == DATA
    for made in ("a", "a/b", "a/b/compiled"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700


def refused(named: Path, name: str = disk_cache.key("kind", "refused")) -> None:
    """The cache is not used, and one warning says that others can change ``named``."""
    with pytest.warns(CacheWarning, match="is not used: others can change") as told:
        assert disk_cache.get(name) is None
    assert len(told) == 1 and str(named) + ": it" in str(told[0].message)
    disk_cache.put(name, DATA)  # says nothing again: warnings are errors here
    assert disk_cache.get(name) is None and disk_cache.clear() == 0


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    refused(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o720, 0o702])
def test_modes_that_a_folder_of_entries_may_not_have(
    mode: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted_files, "_is_private", lambda group: False)
    folder.mkdir()
    folder.chmod(mode)
    refused(folder)


def test_the_users_own_group_may_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = os.getegid()
    monkeypatch.setattr(trusted_files, "_is_private", lambda g: g == group)
    folder.mkdir()
    folder.chmod(0o775)
    disk_cache.put(disk_cache.key("kind"), DATA)
    assert disk_cache.get(disk_cache.key("kind")) == DATA


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_can_rename_is_not_used(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted_files, "_is_private", lambda group: False)
    shared = tmp_path / "shared"
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(shared / "mine"))
    disk_cache.put(disk_cache.key("kind"), DATA)
    assert (shared / "mine" / "compiled").stat().st_mode & 0o777 == 0o700
    shared.chmod(mode)
    refused(shared)
    shared.chmod(mode | stat.S_ISVTX)  # owners alone rename what is theirs
    assert disk_cache.get(disk_cache.key("kind")) == DATA


def belongs(monkeypatch: pytest.MonkeyPatch, place: Path, user: int) -> None:
    """Let ``place`` and no other belong to ``user``."""

    def changed(ask: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def told(*args: Any, **more: Any) -> os.stat_result:
            found = ask(*args, **more)
            if found.st_ino != number:
                return found
            return os.stat_result([*found[:4], user, *found[5:]])

        return told

    number = os.lstat(place).st_ino
    for name in ("lstat", "fstat"):
        monkeypatch.setattr(trusted_files.os, name, changed(getattr(os, name)))


@pytest.mark.parametrize("other", ["compiled", ".", "link", "entry"])
def test_what_belongs_to_another_user_is_not_used(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "target").mkdir(mode=0o700)
    name = disk_cache.key("kind", "refused")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "link"))
    disk_cache.put(name, DATA)
    (entry,) = (tmp_path / "target").glob("compiled/*")
    place = {"compiled": entry.parent, "entry": entry}.get(other, tmp_path / other)
    with monkeypatch.context() as patched:
        belongs(patched, place, os.getuid() + 1)
        with pytest.warns(CacheWarning, match=f"{place.name}: it belongs to user"):
            assert disk_cache.get(name) is None
        assert disk_cache.get(name) is None
    assert disk_cache.get(name) == DATA
    belongs(monkeypatch, place, 0)
    assert disk_cache.get(name) == DATA


def test_an_entry_that_others_can_write_to_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted_files, "_is_private", lambda group: False)
    name = disk_cache.key("kind", "open")
    disk_cache.put(name, DATA)
    (folder / name).chmod(0o620)
    with pytest.warns(CacheWarning, match=f"{name}: it has mode 0620"):
        assert disk_cache.get(name) is None
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) == DATA
    assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_links_are_followed_on_the_way_but_not_as_entries(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = disk_cache.key("kind")
    disk_cache.put(name, DATA)
    (folder / name).rename(tmp_path / "moved")
    (folder / name).symlink_to(tmp_path / "moved")
    assert disk_cache.get(name) is None and disk_cache.info().bytes == 0
    disk_cache.put(name, DATA)
    assert not (folder / name).is_symlink()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to("../a/.././.")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "a" / "up"))
    assert disk_cache.get(name) == DATA
    (tmp_path / "a" / "round").symlink_to("round")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "a" / "round"))
    without(name)


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing"])
def test_an_entry_that_is_no_file(kind: str, folder: Path) -> None:
    name = disk_cache.key("kind")
    disk_cache.put(name, DATA)
    (folder / name).unlink()
    if kind == "folder":
        (folder / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(folder / name)
    assert disk_cache.get(name) is None and disk_cache.info().bytes == 0
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) == (None if kind == "folder" else DATA)
    assert disk_cache.clear() == (kind != "folder")


def test_files_of_others_are_neither_listed_nor_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o700)
    hexes = "0123456789abcdef" * 4
    strange = [
        *("notes.txt", ".hidden", "part-1-0-x", "part-of-it", f"kind-{hexes[1:]}"),
        *(f"Kind-{hexes}", f"kind-{hexes.upper()}", f"kind-{hexes}.bak", hexes),
        *(f"kind-{hexes}\n", f"part-{hexes}".upper(), f"part-{hexes[:20]}"),
    ]
    for name in strange:
        (folder / name).write_bytes(DATA)
        os.utime(folder / name, (0, 0))
    (folder / f"kind-{hexes}").mkdir()
    (folder / f"link-{hexes}").symlink_to("notes.txt")
    before = {p.name for p in folder.iterdir()}
    assert disk_cache.info().kinds == {}
    disk_cache.put(disk_cache.key("kind"), DATA)
    assert disk_cache.info().kinds.keys() == {"kind"}
    disk_cache.trim(0)
    assert {p.name for p in folder.iterdir()} == before
    disk_cache.put(disk_cache.key("kind"), DATA)
    assert disk_cache.clear() == 1
    assert {p.name for p in folder.iterdir()} == before


@pytest.mark.parametrize("what", ["program", "CPU", "version", "kind"])
def test_an_entry_of_another_name_is_missing(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = disk_cache.key("kind", "program", "znver3")
    if what == "version":
        with monkeypatch.context() as patched:
            patched.setattr(disk_cache, "_versions", lambda: b"another")
            other = disk_cache.key("kind", "program", "skylake")
    name = disk_cache.key(
        "other" if what == "kind" else "kind",
        "another" if what == "program" else "program",
        "skylake",
    )
    assert name != other
    disk_cache.put(other, DATA)
    (folder / name).write_bytes((folder / other).read_bytes())
    assert disk_cache.get(name) is None and not (folder / name).exists()
    assert disk_cache.get(other) == DATA


def without(name: str) -> None:
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) is None
    disk_cache.drop(name)
    assert disk_cache.clear() == 0 and disk_cache.info().bytes == 0


def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "file"))
    without(disk_cache.key("kind"))


def test_a_folder_that_cannot_be_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = disk_cache.key("kind", "kept")
    disk_cache.put(name, DATA)
    folder.chmod(0o500)
    if os.geteuid() == 0:  # whom no mode stops

        def refuse(*args: object, **more: object) -> None:
            raise PermissionError

        monkeypatch.setattr(trusted_files.os, "replace", refuse)
    try:
        disk_cache.put(disk_cache.key("kind", "new"), DATA)
        assert disk_cache.get(disk_cache.key("kind", "new")) is None
        assert disk_cache.get(name) == DATA
        assert only(folder).name == name
    finally:
        folder.chmod(0o700)


def test_a_folder_that_goes_away_is_made_again(folder: Path) -> None:
    name = disk_cache.key("kind")
    disk_cache.put(name, DATA)
    disk_cache.clear()
    folder.rmdir()
    assert disk_cache.get(name) is None and disk_cache.info().bytes == 0
    disk_cache.put(name, DATA)
    assert disk_cache.get(name) == DATA


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "0")
    without(disk_cache.key("kind"))
    assert not folder.exists()


def test_the_oldest_entries_go_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [disk_cache.key("kind", str(i)) for i in range(20)]
    for i, name in enumerate(names):
        disk_cache.put(name, DATA)
        os.utime(folder / name, (0, 1e9 + i))
    assert disk_cache.get(names[3]) == DATA  # a use of it: it is the latest one now
    size = (folder / names[0]).stat().st_size
    disk_cache.trim(20 * size)
    assert len(list(folder.iterdir())) == 20
    disk_cache.trim(10 * size)
    kept = {p.name for p in folder.iterdir()}
    assert kept == {names[3], *names[-8:]}
    monkeypatch.setenv("EQSAT_CACHE_BYTES", str(5 * size))
    for i in range(200):
        disk_cache.put(disk_cache.key("more", str(i)), DATA)
    assert disk_cache.info().bytes <= (5 + disk_cache._OFTEN) * size


def test_what_dead_writers_left_is_removed(folder: Path) -> None:
    disk_cache.put(disk_cache.key("kind"), DATA)
    old, new = folder / f"part-{'0a' * 12}", folder / f"part-{'1b' * 12}"
    for part in (old, new):
        part.write_bytes(DATA)
    os.utime(old, (0, time.time() - 7200))
    disk_cache.trim()
    assert not old.exists() and new.exists()
    assert disk_cache.info().kinds.keys() == {"kind"}


_WRITER = """
import sys
from eqsat.support import disk_cache as cache
for i in range(10**6):
    cache.put(sys.argv[1 + i % 50], str(i % 50).encode() * 100_000)
"""


def test_a_killed_writer_leaves_whole_entries(folder: Path) -> None:
    # Its names, not the writer's: they follow from the sources, which may be edited.
    names = [disk_cache.key("kind", str(i)) for i in range(50)]
    for _ in range(3):
        writer = python(_WRITER, *names)
        until(lambda: folder.exists() and len(list(folder.iterdir())) > 5, 0.01)
        assert writer.poll() is None
        time.sleep(0.05)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        found = [disk_cache.get(name) for name in names]
        whole = [f for i, f in enumerate(found) if f == str(i).encode() * 100_000]
        assert len(whole) > 5
        assert all(f is None for f in found if f not in whole)
        disk_cache.clear()


_MANY = """
from eqsat.support import disk_cache as cache
import random
for i in range(400):
    k = random.randrange(20)
    name, data = cache.key("kind", str(k)), str(k).encode() * 5000
    found = cache.get(name)
    assert found in (None, data)
    cache.put(name, data) if random.random() < 0.7 else cache.drop(name)
    if i % 50 == 0:
        cache.trim(300_000)
"""


def test_processes_share_it() -> None:
    running = [python(_MANY) for _ in range(2)]
    for process in running:
        _, said = process.communicate()
        assert (process.returncode, said) == (0, b"")


def test_the_command_shows_and_clears() -> None:
    def told(*words: str) -> str:
        done = CliRunner().invoke(main, ["cache", *words])
        assert done.exit_code == 0
        return done.stdout

    assert "nothing is kept" in told("info")
    disk_cache.put(disk_cache.key("object"), DATA)
    disk_cache.put(disk_cache.key("program"), DATA)
    assert "object        1" in told("info") and "4096.0 MiB" in told("info")
    record = json.loads(told("info", "--json"))
    assert record["entries"]["object"] == {"count": 1, "bytes": len(DATA) + 40}
    assert record["most_bytes"] == 2**32
    assert told("clear") == "removed 2 entries\n"
    assert told("clear") == "removed 0 entries\n"
    assert json.loads(told("info", "--json"))["bytes"] == 0
