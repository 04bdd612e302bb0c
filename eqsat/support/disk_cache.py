"""What was found out before, on disk: bytes by key, kept between processes.

An entry is one file, written beside its place and then moved there, so that a reader
finds a whole one or none, whoever else writes and whenever a writer is killed. It is
not forced to the disk: what a loss of power cuts short does not match its checksum. The
checksum is over the name, too, and the name follows from the program, the CPU and the
versions: an entry under the name of another does not match, either. What does not match
counts as missing and is removed. Files that another user can change are not used
(:mod:`.trusted_files`). What is not named as an entry is never touched.

Large arrays are entries of another form: their bytes alone, under a name that follows
from them, so that the same ones are kept once. They are not read but mapped: memory
that other processes see as well, and that no process fills.

``EQSAT_CACHE=0`` turns the cache off, ``EQSAT_CACHE_DIR`` names another folder,
``EQSAT_CACHE_BYTES`` bounds its size.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from eqsat.support.option_table import TABLE, setting
from eqsat.support.trusted_files import (
    PARTS,
    TrustedFolder,
    UntrustedError,
    trusted_folder,
    warn_untrusted,
)
from eqsat.support.user_dirs import user_folder

Found = TypeVar("Found")
_MAGIC = b"eqsat\x00\x02\n"
_DIGEST = 32
_ENTRY = re.compile("[a-z]+-[0-9a-f]{64}")
"""Names of entries. No other files are listed or removed."""
_STALE_S = 3600.0
"""Age of a file that is being written (s) after which its writer must have died."""
_TOUCH_S = 600.0
"""Age of an entry (s) after which a use of it counts as a new one."""
_OFTEN = 64
"""Entries that a process writes between two looks at the size of the cache."""
_LINE, _PAGE = 64, 4096
"""Where arrays start in memory that is mapped: short ones on a line, others on a page
(bytes)."""


@dataclass(frozen=True)
class Info:
    """What lies in the cache."""

    folder: Path | None
    """None when it is turned off, or when nobody may trust it."""
    kinds: dict[str, tuple[int, int]]
    """Kinds of entries: how many, and their bytes."""
    most_bytes: int

    @property
    def bytes(self) -> int:
        """Size of all entries (bytes)."""
        return sum(size for _, size in self.kinds.values())

    def __str__(self) -> str:
        if self.folder is None:
            return "nothing is kept: the cache is off, or has no folder"
        rows = [(kind, str(n), size) for kind, (n, size) in self.kinds.items()]
        rows += [("all", "", self.bytes), ("at most", "", self.most_bytes)]
        lines = [f"  {a:8} {n:>6} {size / 2**20:9.1f} MiB" for a, n, size in rows]
        return "\n".join([str(self.folder), *lines])


def key(kind: str, *parts: bytes | str) -> str:
    """The name of an entry of ``kind`` that follows from ``parts`` and from this
    version of eqsat, Python and NumPy."""
    found = hashlib.sha256(_versions())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(b"%d:" % len(data))
        found.update(data)
    return f"{kind}-{found.hexdigest()}"


def get(name: str, asked: bool = False) -> bytes | None:
    """The entry that :func:`key` names, or None. ``asked``: whether the options of a
    function turn the cache on, whatever ``EQSAT_CACHE`` says."""
    return _in_folder(lambda folder: _read(folder, name), asked=asked)


def put(name: str, payload: bytes, asked: bool = False) -> None:
    """Keep an entry. Where the folder cannot be written to, nothing is kept."""
    parts = _head(name, payload), payload
    _in_folder(lambda folder: _write(folder, name, parts), make=True, asked=asked)


def drop(name: str, asked: bool = False) -> None:
    """Forget an entry, whose content turned out to be of no use."""
    _in_folder(lambda folder: folder.remove(name), asked=asked)


def has(name: str, asked: bool = False) -> bool:
    """Whether there is an entry of this name."""
    return bool(_in_folder(lambda folder: folder.has(name), asked=asked))


def digest(found: bytes | None) -> bytes:
    """What tells what :func:`get` found from what else it may find, or nothing."""
    return hashlib.sha256(found or b"").digest()


def put_arrays(kind: str, arrays: Sequence[Any], asked: bool = False) -> str:
    """Keep arrays of bytes as an entry of ``kind``; its name. Nothing is written where
    it is there, or where a quarter of the cache does not hold it."""
    stream = [*_stream(arrays)]
    name = _name_of(kind, stream)
    size = sum(map(len, stream))
    if 0 < size <= most_bytes() // 4 and not has(name, asked):
        _in_folder(lambda f: _write(f, name, stream, 1), make=True, asked=asked)
    return name


def mapped(name: str, sizes: Sequence[int], asked: bool = False) -> list[Any] | None:
    """The arrays that :func:`put_arrays` has kept, of these sizes (bytes), as memory
    that nobody can write to; None where they are not there."""
    *starts, end = _starts(sizes)
    whole: memoryview | None = memoryview(b"")  # no file without bytes can be mapped
    if end:
        whole = _in_folder(lambda folder: _mapped(folder, name), asked=asked)
    if whole is None or len(whole) != end:
        return None
    return [whole[a : a + n] for a, n in zip(starts, sizes, strict=True)]


def trim(most: int | None = None) -> None:
    """Remove the entries that were not used for longest until a tenth less than
    ``most`` bytes are left, and what dead writers left."""
    _in_folder(lambda folder: _trim(folder, most_bytes() if most is None else most))


def info() -> Info:
    """What is kept, and where."""
    path, kinds = _in_folder(lambda f: (Path(f.path), _kinds(f))) or (None, {})
    return Info(path, kinds, most_bytes())


def clear() -> int:
    """Remove all entries; how many there were. Other files in the folder stay."""
    return _in_folder(_clear) or 0


def _read(folder: TrustedFolder, name: str) -> bytes | None:
    data, state = folder.read(name)
    start = len(_MAGIC) + _DIGEST
    payload = data[start:]
    if data[:start] != _head(name, payload):
        folder.remove(name)
        return None
    _used(folder, name, state)
    return payload


def _mapped(folder: TrustedFolder, name: str) -> memoryview | None:
    try:
        data, state = folder.mapped(name)
    except ValueError:
        folder.remove(name)
        return None
    whole = memoryview(data)
    if _name_of(name.partition("-")[0], [whole]) != name:
        folder.remove(name)
        return None
    _used(folder, name, state)
    return whole


def _used(folder: TrustedFolder, name: str, state: os.stat_result) -> None:
    if time.time() - state.st_mtime > _TOUCH_S:
        with suppress(OSError):
            folder.touch(name)


def _write(
    folder: TrustedFolder, name: str, parts: Iterable[Any], often: int = _OFTEN
) -> None:
    folder.write(name, parts)
    if next(_kept) % often == 0:
        _trim(folder, most_bytes())


def _stream(arrays: Iterable[Any]) -> Iterator[Any]:
    """Bytes of arrays and what lies between them."""
    end = 0
    for array in arrays:
        start = _start(end, len(array))
        yield bytes(start - end)
        yield array
        end = start + len(array)


def _starts(sizes: Iterable[int]) -> Iterator[int]:
    """Where arrays of these sizes start, and the end of the last one."""
    end = 0
    for size in sizes:
        start = _start(end, size)
        yield start
        end = start + size
    yield end


def _start(end: int, size: int) -> int:
    step = _LINE if size < _PAGE else _PAGE
    return end + -end % step


def _name_of(kind: str, stream: Iterable[Any]) -> str:
    import xxhash  # few entries have names of their content

    digest = xxhash.xxh3_128()
    for part in stream:
        digest.update(part)
    return key(kind, digest.digest())


_kept = itertools.count()


def _head(name: str, payload: bytes) -> bytes:
    """What an entry begins with: it holds the payload, and under this name alone."""
    return _MAGIC + hashlib.sha256(b"%s\0%s" % (name.encode(), payload)).digest()


def _trim(folder: TrustedFolder, most: int) -> None:
    found = []
    for name, state in folder.own_files():
        if _ENTRY.fullmatch(name):
            found.append((state.st_mtime, name, state.st_size))
        elif PARTS.fullmatch(name) and time.time() - state.st_mtime > _STALE_S:
            with suppress(OSError):
                folder.remove(name)
    total = sum(size for *_, size in found)
    if total <= most:
        return
    for _, name, size in sorted(found):
        if total <= most - most // 10:
            break
        with suppress(OSError):
            folder.remove(name)
        total -= size


def _kinds(folder: TrustedFolder) -> dict[str, tuple[int, int]]:
    kinds: dict[str, tuple[int, int]] = {}
    for name, state in folder.own_files():
        if _ENTRY.fullmatch(name):
            kind = name.partition("-")[0]
            count, size = kinds.get(kind, (0, 0))
            kinds[kind] = count + 1, size + state.st_size
    return dict(sorted(kinds.items()))


def _clear(folder: TrustedFolder) -> int:
    count = 0
    for name, _ in list(folder.own_files()):
        is_entry = _ENTRY.fullmatch(name) is not None
        if is_entry or PARTS.fullmatch(name):
            with suppress(OSError):
                folder.remove(name)
                count += is_entry
    return count


def most_bytes() -> int:
    """How large the cache may grow (bytes)."""
    return int(setting("cache_bytes"))


def base_folder() -> Path:
    """Where what can be had again is kept: ``EQSAT_CACHE_DIR``, or the user's
    cache."""
    return user_folder("cache")


# -- the folder ------------------------------------------------------------------------


def is_on() -> bool:
    """Whether ``EQSAT_CACHE`` lets the cache be used."""
    return bool(TABLE["cache"].from_environment())


def _in_folder(
    work: Callable[[TrustedFolder], Found], make: bool = False, asked: bool = False
) -> Found | None:
    """What ``work`` finds in the folder of entries; None where there is none or the
    system refuses. What others can change is not used, and named once."""
    if not asked and not is_on():
        return None
    try:
        path = base_folder() / "compiled"
    except RuntimeError:  # a user without a home folder
        return None
    try:
        with trusted_folder(path, make) as folder:
            return work(folder)
    except UntrustedError as error:
        warn_untrusted(f"the cache {path}", error, "EQSAT_CACHE_DIR")
    except OSError:
        pass
    return None


# -- versions --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _versions() -> bytes:
    """What differs wherever other code or other rules would be found."""
    ours, numpy = sys.modules.get("eqsat"), sys.modules.get("numpy")
    words = [
        sys.version,
        sys.platform,
        platform.machine(),
        str(getattr(ours, "__version__", "")),
        sys.byteorder,
        str(getattr(numpy, "__version__", "")),
        *_sources(),
    ]
    return hashlib.sha256("\n".join(words).encode()).digest()


def _sources() -> Iterable[str]:
    """The files of eqsat, its rules and backends, by size and time of change: reading
    them would take longer."""
    for package in ("eqsat", "eqsat.rules", "eqsat.backends"):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from sorted(_states(folder, package))


def _states(folder: str, name: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.name.startswith((".", "__pycache__")):
            continue
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _states(entry.path, inside)
        else:
            state = entry.stat()
            yield f"{inside} {state.st_size} {state.st_mtime_ns}"
