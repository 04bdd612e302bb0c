"""Shared libraries of ELF that are bytes, in memory."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import struct
import sys
import weakref
from collections.abc import Callable, Sequence

from eqsat.saved.saved_file import Bytes
from eqsat.support import BackendError, counted

IMPORTS, SEAL = "eqsat_imports", "eqsat_seal"
"""Data of each library: the table of addresses of what it calls, and 32 bytes that say
what it was made for."""
_MACHINES = {"x86_64": 62, "aarch64": 183}
_FILE = struct.Struct("<4sBBBBQHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOADED = 1
"""``PT_LOAD``."""


def is_possible() -> bool:
    """Whether this system loads such libraries."""
    return sys.platform == "linux" and platform.machine().lower() in _MACHINES


def check(code: Bytes) -> None:
    """Raise :class:`ValueError` where ``code`` is no whole library for this processor:
    the loader of the system trusts what it is given."""
    if len(code) < _FILE.size:
        raise ValueError(f"a library of {counted(len(code), 'byte')}")
    head = _FILE.unpack_from(code.data)
    magic, bits, order, kind, machine = *head[:3], head[6], head[7]
    segments, sections = head[10], head[11]
    segment_bytes, segment_count, section_bytes, section_count = head[14:18]
    wanted = _MACHINES.get(platform.machine().lower())
    if (magic, bits, order, kind, machine) != (b"\x7fELF", 2, 1, 3, wanted):
        raise ValueError("a library that is not of ELF for this processor")
    ends = [
        segments + segment_bytes * segment_count,
        sections + section_bytes * section_count,
    ]
    if segment_bytes != _SEGMENT.size or max(ends) > len(code):
        raise ValueError(
            f"a library of {counted(len(code), 'byte')}, expected {max(ends)}"
        )
    for i in range(segment_count):
        what, _, offset, *_, filled, _, _ = _SEGMENT.unpack_from(
            code.data, segments + i * segment_bytes
        )
        if what == _LOADED and offset + filled > len(code):
            raise ValueError(
                f"a library of {counted(len(code), 'byte')}, expected {offset + filled}"
            )


_loads = itertools.count()


def _path(fd: int) -> str:
    """A name of an open file that no library of this process has had: the loader of the
    system gives a library again by its name, and numbers of files that somebody closed
    are used again."""
    bits = f"{next(_loads):b}"
    return "/proc/self/fd" + "".join("/." if b == "1" else "/" for b in bits) + f"/{fd}"


class SharedObject:
    """A library in memory, for as long as this object is alive."""

    def __init__(self, code: Bytes, seal: bytes) -> None:
        """Raises :class:`ValueError` for a library with another ``seal``, and
        :class:`BackendError` where the system does not load it."""
        check(code)
        fd = os.memfd_create("eqsat", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(code.data)
            self._library = ctypes.CDLL(_path(fd))
        except OSError as error:
            os.close(fd)
            raise BackendError(f"a saved program does not load: {error}") from None
        weakref.finalize(self, _unload, self._library._handle, fd).atexit = False
        try:
            found = bytes((ctypes.c_ubyte * 32).in_dll(self._library, SEAL))
        except ValueError:
            found = b""
        if found != seal:
            raise ValueError("a library that was made for something else")

    def address(self, name: str) -> int:
        """Where a function starts. Raises :class:`ValueError` for one that is not
        there."""
        found = _address(self._library, name)
        if not found:
            raise ValueError(f"a library without {name!r}")
        return found

    def fill(self, names: Sequence[str], address_of: Callable[[str], int]) -> None:
        """Give the library what it calls."""
        if names:
            kind = ctypes.c_void_p * len(names)
            kind.in_dll(self._library, IMPORTS)[:] = [*map(address_of, names)]


def _unload(handle: int, fd: int) -> None:
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))
    os.close(fd)


def process_address(name: str) -> int:
    """Where a function of the C library starts; 0 for one that it has not."""
    return _address(ctypes.CDLL(None), name)


def _address(library: ctypes.CDLL, name: str) -> int:
    found = getattr(library, name, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0
