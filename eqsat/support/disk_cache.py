"""What was found out before, on disk: bytes by key, kept between processes.

An entry is one file, written beside its place and then moved there, so that a reader
finds a whole one or none, whoever else writes and whenever a writer is killed. What
does not match its own checksum counts as missing and is removed. ``EQSAT_CACHE=0``
turns the cache off, ``EQSAT_CACHE_DIR`` names another folder, ``EQSAT_CACHE_BYTES``
bounds its size.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from eqsat.support.errors import CacheWarning
from eqsat.support.user_dirs import user_folder

MOST_BYTES = 1 << 29
"""Size of the cache (bytes) unless ``EQSAT_CACHE_BYTES`` says otherwise."""
_MAGIC = b"eqsat\x00\x01\n"
_DIGEST = 32
_PART = "part-"
"""How the names of files begin that are being written."""
_STALE_S = 3600.0
"""Age of such a file (s) after which its writer must have died."""
_TOUCH_S = 600.0
"""Age of an entry (s) after which a use of it counts as a new one."""
_OFTEN = 64
"""Entries that a process writes between two looks at the size of the cache."""


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


def get(name: str) -> bytes | None:
    """The entry that :func:`key` names, or None."""
    folder = _folder()
    if folder is None:
        return None
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            data = file.read()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST
    payload = data[start:]
    if data[:start] != _MAGIC + hashlib.sha256(payload).digest():
        drop(name)
        return None
    if age > _TOUCH_S:
        with suppress(OSError):
            os.utime(path)
    return payload


def put(name: str, payload: bytes) -> None:
    """Keep an entry. Where the folder cannot be written to, nothing is kept."""
    folder = _folder(make=True)
    if folder is None:
        return
    part = os.path.join(folder, f"{_PART}{os.getpid()}-{next(_writes)}-{name[-16:]}")
    try:
        with open(part, "xb") as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(part, os.path.join(folder, name))
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        return
    if next(_kept) % _OFTEN == 0:
        trim(folder)


def drop(name: str) -> None:
    """Forget an entry, whose content turned out to be of no use."""
    folder = _folder()
    if folder is not None:
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))


_writes = itertools.count()
_kept = itertools.count()


def trim(folder: str, most: int | None = None) -> None:
    """Remove the entries that were not used for longest until a tenth less than
    ``most`` bytes are left, and what dead writers left."""
    most = most_bytes() if most is None else most
    found = []
    for entry in _files(folder):
        with suppress(OSError):
            state = entry.stat()
            if entry.name.startswith(_PART):
                if time.time() - state.st_mtime > _STALE_S:
                    os.unlink(entry.path)
            else:
                found.append((state.st_mtime, entry.path, state.st_size))
    total = sum(size for *_, size in found)
    if total <= most:
        return
    for _, path, size in sorted(found):
        if total <= most - most // 10:
            break
        with suppress(OSError):
            os.unlink(path)
        total -= size


def info() -> Info:
    """What is kept, and where."""
    folder = _folder()
    kinds: dict[str, tuple[int, int]] = {}
    for entry in _files(folder) if folder else ():
        if entry.name.startswith(_PART):
            continue
        with suppress(OSError):
            kind = entry.name.partition("-")[0]
            count, size = kinds.get(kind, (0, 0))
            kinds[kind] = count + 1, size + entry.stat().st_size
    ordered = dict(sorted(kinds.items()))
    return Info(Path(folder) if folder else None, ordered, most_bytes())


def clear() -> int:
    """Remove all entries; how many there were."""
    folder = _folder()
    count = 0
    for entry in _files(folder) if folder else ():
        with suppress(OSError):
            os.unlink(entry.path)
            count += 1
    return count


def most_bytes() -> int:
    """How large the cache may grow (bytes)."""
    try:
        return int(os.environ["EQSAT_CACHE_BYTES"])
    except (KeyError, ValueError):
        return MOST_BYTES


def base_folder() -> Path:
    """Where what can be had again is kept: ``EQSAT_CACHE_DIR``, or the user's
    cache."""
    return user_folder("cache", "EQSAT_CACHE_DIR")


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return


# -- the folder ------------------------------------------------------------------------


def is_on() -> bool:
    """Whether ``EQSAT_CACHE`` lets the cache be used."""
    return os.environ.get("EQSAT_CACHE") != "0"


def _folder(make: bool = False) -> str | None:
    """The folder of entries, if there is one that can be trusted."""
    if not is_on():
        return None
    return _trusted(os.environ.get("EQSAT_CACHE_DIR"), make)


_known: dict[str | None, str] = {}
_refused: set[str] = set()


def _trusted(chosen: str | None, make: bool) -> str | None:
    known = _known.get(chosen)
    if known is not None:
        return known
    try:
        folder = os.path.join(base_folder(), "compiled")
        if make:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        state = os.stat(folder)
    except (OSError, RuntimeError):
        return None
    if not _is_own(state):
        if folder not in _refused:
            _refused.add(folder)
            warnings.warn(
                f"eqsat: the cache {folder} is not used: others can write to it; give "
                f"it to yourself with mode 0700, or set EQSAT_CACHE_DIR",
                CacheWarning,
                stacklevel=2,
            )
        return None
    _known[chosen] = folder
    return folder


def _is_own(state: os.stat_result) -> bool:
    """Whether a folder is this user's and nobody else can write to it: what lies there
    is run."""
    if not stat.S_ISDIR(state.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


# -- versions --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _versions() -> bytes:
    """What differs wherever other code or other rules would be found."""
    numpy = sys.modules.get("numpy")
    words = [
        sys.version,
        sys.platform,
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
    for entry in _files(folder):
        if entry.name.startswith((".", "__pycache__")):
            continue
        inside = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _states(entry.path, inside)
        else:
            state = entry.stat()
            yield f"{inside} {state.st_size} {state.st_mtime_ns}"
