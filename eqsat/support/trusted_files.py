"""Folders and files that nobody but the user and root can change: what lies in them may
be run.

Each folder on the way and each file must belong to the user or to root, and its mode
must let no other user write to it; a group that is the user's alone may. A folder on
the way may be one that all can write to where only owners rename (``/tmp``). Names are
looked up in the open folder, and files are opened without following links. Where files
have no such owners (Windows) nothing is asked.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from eqsat.support.errors import CacheWarning, warn

MOST_LINKS = 40
"""Symbolic links on the way to a folder, as Linux follows them."""
PARTS = re.compile("part-[0-9a-f]{24}")
"""Names of files that are being written."""
_HAS_OWNERS = hasattr(os, "geteuid")
_HAS_PLACES = os.open in os.supports_dir_fd
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


_maps: WeakValueDictionary[tuple[int, ...], mmap.mmap] = WeakValueDictionary()
"""Files that are mapped: each has a descriptor, of which a process has few."""


class UntrustedError(PermissionError):
    """Another user can change the file or folder ``filename``."""


class TrustedFolder:
    """An open folder. All methods raise :class:`OSError`."""

    def __init__(self, path: str, place: int | None) -> None:
        self.path = path
        self._place = place
        """Its descriptor; None where names cannot be looked up in one."""

    def read(self, name: str) -> tuple[bytes, os.stat_result]:
        """What a file holds, and its state. Raises :class:`UntrustedError`."""
        with self._opened(name) as (place, state):
            with open(place, "rb", closefd=False) as file:
                return file.read(), state

    def mapped(self, name: str) -> tuple[mmap.mmap, os.stat_result]:
        """A file as memory that nobody can write to, and its state. Raises
        :class:`UntrustedError`, and ``ValueError`` for a file without bytes."""
        with self._opened(name) as (place, state):
            what = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
            found = _maps.get(what)
            if found is None:
                found = _maps[what] = mmap.mmap(place, 0, access=mmap.ACCESS_READ)
            return found, state

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor of a file that is open to be read, and its state."""
        place = os.open(self._at(name), _READ | _NO_LINK, dir_fd=self._place)
        try:
            state = os.fstat(place)
            _refuse(os.path.join(self.path, name), state)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "not a file", name)
            yield place, state
        finally:
            os.close(place)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        try:
            os.stat(self._at(name), dir_fd=self._place, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def write(self, name: str, data: Iterable[Any]) -> None:
        """Make or replace a file of these bytes: all of it, or nothing. It is not
        forced to the disk: after a loss of power it may be cut short."""
        part = f"part-{os.urandom(12).hex()}"
        place = os.open(self._at(part), _WRITE | _NO_LINK, 0o600, dir_fd=self._place)
        try:
            with open(place, "wb") as file:
                file.writelines(data)
            os.replace(
                self._at(part),
                self._at(name),
                src_dir_fd=self._place,
                dst_dir_fd=self._place,
            )
        except BaseException:
            with suppress(OSError):
                self.remove(part)
            raise

    def remove(self, name: str) -> None:
        """Remove a file or a link."""
        os.unlink(self._at(name), dir_fd=self._place)

    def touch(self, name: str) -> None:
        """Let a file count as changed now."""
        os.utime(self._at(name), dir_fd=self._place)

    def own_files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Names and states of the user's files; none of links and folders."""
        with os.scandir(self.path if self._place is None else self._place) as found:
            for entry in found:
                with suppress(OSError):
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode) and _is_own(state):
                        yield entry.name, state

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self._place is None else name


@contextmanager
def trusted_folder(path: str | Path, make: bool = False) -> Iterator[TrustedFolder]:
    """The folder ``path``, open; with ``make`` it is made, for the user alone.

    Raises :class:`UntrustedError` where another user can change it or what leads to it,
    and :class:`OSError` where there is none.
    """
    if not _HAS_OWNERS or not _HAS_PLACES:
        if make:
            os.makedirs(path, mode=0o700, exist_ok=True)
        yield TrustedFolder(os.fspath(path), None)
        return
    way = _way(os.fspath(path), make)
    place = os.open(way, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    try:
        _refuse(way, os.fstat(place))
        yield TrustedFolder(way, place)
    finally:
        os.close(place)


def _way(path: str, make: bool) -> str:
    """``path`` from the root and without links. Each step is looked at where nobody
    else can change the steps before it, so that it stays what it was."""
    root = os.path.abspath(os.sep)
    steps = _steps(os.path.join(os.getcwd(), path))
    at, links = root, 0
    _refuse(at, os.lstat(at), stat.S_ISVTX)
    while steps:
        step = steps.pop()
        if step == os.pardir:
            at = os.path.dirname(at)
            continue
        there = os.path.join(at, step)
        state = _state(there, make)
        if not stat.S_ISLNK(state.st_mode) and not stat.S_ISDIR(state.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), there)
        _refuse(there, state, stat.S_ISVTX)
        if stat.S_ISDIR(state.st_mode):
            at = there
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(there)
        at = root if os.path.isabs(target) else at
        steps += _steps(target)
    return at


def _steps(path: str) -> list[str]:
    """The names in a path, the last one first."""
    return [s for s in reversed(path.split(os.sep)) if s not in ("", os.curdir)]


def _state(path: str, make: bool) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    return os.lstat(path)


def _refuse(path: str, state: os.stat_result, unless: int = 0) -> None:
    """Raise :class:`UntrustedError` where others can write, ``unless`` a bit of the
    mode is set. (The mode of a link says nothing.)"""
    if not _HAS_OWNERS:
        return
    mode = state.st_mode
    if state.st_uid not in (0, os.geteuid()):
        raise UntrustedError(errno.EPERM, f"it belongs to user {state.st_uid}", path)
    others = mode & 0o002 or (mode & 0o020 and not _is_private(state.st_gid))
    if others and not mode & unless and not stat.S_ISLNK(mode):
        raise UntrustedError(errno.EPERM, f"it has mode {mode & 0o7777:04o}", path)


@cache
def _is_private(group: int) -> bool:
    """Whether a group is the user's alone, as systems make one for each user, whose
    files are then writable for it."""
    try:
        import grp
        import pwd

        user = pwd.getpwuid(os.geteuid()).pw_name
        found = grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return found.gr_name == user and set(found.gr_mem) <= {user}


def _is_own(state: os.stat_result) -> bool:
    return not _HAS_OWNERS or state.st_uid == os.geteuid()


_warned: set[str] = set()


def warn_untrusted(what: str, error: UntrustedError, chosen: str) -> None:
    """Say once of a file or folder that ``what`` is not used because of it. ``chosen``
    is the variable that names another place."""
    at = str(error.filename)
    if at in _warned:
        return
    _warned.add(at)
    warn(
        f"eqsat: {what} is not used: others can change {at}: {error.strerror}; give it "
        f"to yourself without write permission for others, or set {chosen}",
        CacheWarning,
    )
