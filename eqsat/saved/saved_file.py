"""The file of a saved program: a head, a description as JSON, and sections of bytes.

Each byte counts: the head has the length and the SHA-256 of the description, which has
those of the sections. They follow one another, and the last one ends the file.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eqsat.support import SavedProgramError, counted

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Section = tuple[int, str]
"""The bytes of a section, and their SHA-256 in hexadecimal digits."""
MAGIC = b"\x93EQSAT\r\n"
VERSION = 1
_HEAD = struct.Struct("<8sIIQ32s")
"""Magic, version, zeros, bytes of the description, its SHA-256."""
MOST_DESCRIPTION = 1 << 26
"""Bytes of a description."""
_PIECE = 1 << 20
"""Bytes that are read at once of what is only checked."""
ALIGNMENT = 64


def _by_attribute(array: Any) -> int:
    return int(array.ctypes.data)


def _by_field(array: Any) -> int:
    return _read(id(array) + object.__basicsize__).value


_read, _ONE = ctypes.c_size_t.from_address, np.empty(1)
_has_field = sys.implementation.name == "cpython"
_has_field = _has_field and _by_field(_ONE) == _by_attribute(_ONE)
memory_address = _by_field if _has_field else _by_attribute
"""Where the elements of an array start: CPython's arrays begin with it, and to read it
there takes a quarter of the time."""


def aligned(nbytes: int) -> Bytes:
    """Memory that starts on a cache line and is not initialised."""
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory_address(block) % ALIGNMENT
    return block[start : start + nbytes]


def section_of(data: memoryview) -> Section:
    """Length and digest of a section."""
    return data.nbytes, hashlib.sha256(data).hexdigest()


def write(
    path: str | os.PathLike[str],
    description: bytes,
    sections: Iterable[memoryview],
) -> None:
    """Write a file whole, or leave what was there. Raises :class:`OSError`."""
    digest = hashlib.sha256(description).digest()
    with replaced(Path(path)) as file:
        file.write(_HEAD.pack(MAGIC, VERSION, 0, len(description), digest))
        file.write(description)
        for data in sections:
            file.write(data)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when all is written."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with made.open("xb") as file:
            yield file
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


class SavedFile:
    """A file that is being read."""

    def __init__(self, path: str | os.PathLike[str], file: BinaryIO) -> None:
        self.path, self._file = os.fspath(path), file
        self._left = os.fstat(file.fileno()).st_size

    def refused(self, why: str) -> SavedProgramError:
        """The error that says what is wrong with the file."""
        return SavedProgramError(f"{self.path} is no saved program: {why}")

    def description(self) -> bytes:
        """The description, which comes first. Raises :class:`SavedProgramError`."""
        if self._left < _HEAD.size:
            raise self.refused(
                f"it has {counted(self._left, 'byte')}, expected {_HEAD.size} or more"
            )
        head = self._read(_HEAD.size)
        magic, version, zero, length, digest = _HEAD.unpack(head)
        if magic != MAGIC:
            raise self.refused(f"it starts with {magic!r}, expected {MAGIC!r}")
        if version != VERSION or zero:
            raise self.refused(
                f"it is of version {version}.{zero}, expected {VERSION}.0; save it "
                "again with this version of eqsat"
            )
        if length > min(self._left, MOST_DESCRIPTION):
            raise self.refused(
                f"its description has {counted(length, 'byte')}, expected at most "
                f"{min(self._left, MOST_DESCRIPTION)}"
            )
        text = self._read(length)
        self._check("the description", hashlib.sha256(text), digest.hex())
        return text

    def sections(
        self, sections: Sequence[Section], wanted: Collection[int]
    ) -> dict[int, Bytes]:
        """The ``wanted`` sections, each in memory that starts on a cache line; the
        others are checked, too. Raises :class:`SavedProgramError`."""
        total = sum(nbytes for nbytes, _ in sections)
        if total != self._left or any(nbytes < 0 for nbytes, _ in sections):
            raise self.refused(
                f"its sections have {counted(total, 'byte')} in all, but {self._left} "
                "are there"
            )
        found: dict[int, Bytes] = {}
        for number, (nbytes, digest) in enumerate(sections):
            sha = hashlib.sha256()
            if number in wanted:
                found[number] = aligned(nbytes)
                self._fill(found[number])
                sha.update(found[number].data)
            else:
                for start in range(0, nbytes, _PIECE):
                    sha.update(self._read(min(_PIECE, nbytes - start)))
            self._check(f"section {number}", sha, digest)
        return found

    def _read(self, nbytes: int) -> bytes:
        data = self._file.read(nbytes)
        if len(data) != nbytes:
            raise self.refused("it became shorter while it was read")
        self._left -= nbytes
        return data

    def _fill(self, memory: Bytes) -> None:
        view = memory.data
        while view:
            count = self._file.readinto(view)  # type: ignore[attr-defined]
            if not count:
                raise self.refused("it became shorter while it was read")
            view = view[count:]
        self._left -= len(memory)

    def _check(self, what: str, found: Any, expected: str) -> None:
        if found.hexdigest() != expected:
            raise self.refused(
                f"{what} has changed: its SHA-256 is {found.hexdigest()[:16]}…, "
                f"expected {expected[:16]}…"
            )
