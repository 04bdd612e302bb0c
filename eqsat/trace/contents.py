"""What arrays held when a program was made of them, and whether they still do."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

Held = bytes | int
"""The bytes of an array, or a checksum of them."""
Seen = dict[Hashable, Held]
"""What memory held, by how arrays show it."""
WHOLE = 1 << 16
"""Bytes of an array that are kept to compare; of a larger one a checksum is."""


class Contents:
    """An array and what it held. All of it counts: no element is left out."""

    __slots__ = ("array", "held")

    def __init__(self, array: np.ndarray[Any, Any], seen: Seen | None = None) -> None:
        """``seen``: what memory held that was read a moment ago; it is not read again
        for another array that shows it."""
        self.array = array
        self.held = _held(array, {} if seen is None else seen)

    def is_current(self, seen: Seen | None = None) -> bool:
        """Whether the array holds the same bits; ``seen`` as above."""
        return _held(self.array, {} if seen is None else seen) == self.held

    def is_private(self, holders: int) -> bool:
        """Whether nobody can reach the array but this object and so many holders: it
        was made in a function that has returned."""
        array: Any = self.array
        known = holders + 3  # this object, the name above, the argument below
        while isinstance(array, np.ndarray):
            if sys.getrefcount(array) > known:
                return False
            array, known = array.base, 3  # the array that shows it, and as above
        return array is None


class AssignedForm(NamedTuple):
    """What can be assigned to an array: its shape, and how its bytes are read."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Formed:
    """An array, its form, and what it held unless nobody can write to it."""

    __slots__ = ("array", "contents", "form")

    def __init__(self, array: np.ndarray[Any, Any], seen: Seen) -> None:
        self.array = array
        self.form = AssignedForm(array.shape, array.strides, array.dtype)
        self.contents = None if is_immutable(array) else Contents(array, seen)

    def is_current(self, seen: Seen) -> bool:
        """Whether the array has this form, and holds the same bits."""
        array = self.array
        return (array.shape, array.strides, array.dtype) == self.form and (
            self.contents is None or self.contents.is_current(seen)
        )


class ArrayFlags:
    """An array, and whether it can be written to."""

    __slots__ = ("array", "writeable")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.writeable = array, array.flags.writeable

    def is_current(self, seen: Seen) -> bool:
        """Whether that has not changed."""
        return self.array.flags.writeable == self.writeable


class LazyNow:
    """A lazy array, and what it stood for: writing to it makes it stand for another."""

    __slots__ = ("array", "then")

    def __init__(self, array: Any) -> None:
        self.array, self.then = array, getattr(array, "now", array)

    def is_current(self, seen: Seen) -> bool:
        """Whether nobody has written to the array."""
        return getattr(self.array, "now", self.array) is self.then


class ShownMemory:
    """An object that shows memory and is no array, such as ``array.array``, and what it
    held. Its memory is let go in between: while it is held, nothing can be appended."""

    __slots__ = ("held", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.held = _shown(value)

    def is_current(self, seen: Seen) -> bool:
        """Whether its memory holds the same bits."""
        return _shown(self.value) == self.held


def is_buffer(value: Any) -> bool:
    """Whether ``value`` shows memory that somebody can change, and is no array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return isinstance(value, np.void)
    if callable(value):  # of ctypes: shows where the code lies
        return False
    try:
        with memoryview(value) as shown:
            owner = shown.obj
    except (TypeError, ValueError, BufferError):
        return False
    if isinstance(owner, np.ndarray):
        return not is_immutable(owner)
    return not isinstance(owner, bytes)


def has_pointer(kind: type) -> bool:
    """Whether objects of a type of ctypes show other memory than their own."""
    if issubclass(kind, ctypes._Pointer):
        return True
    inside = [f[1] for f in getattr(kind, "_fields_", ())]
    if issubclass(kind, ctypes.Array):
        inside.append(kind._type_)
    return any(map(has_pointer, inside))


def _shown(value: Any) -> Held | None:
    """The bytes that an object shows, or a checksum; None where it is closed."""
    if isinstance(value, np.void):
        return value.tobytes()
    try:
        with memoryview(value) as shown:
            if shown.nbytes <= WHOLE or not shown.c_contiguous:
                return shown.tobytes()
            import xxhash

            return xxhash.xxh3_128_intdigest(shown)
    except (ValueError, BufferError):
        return None


def _held(array: np.ndarray[Any, Any], seen: Seen) -> Held:
    shown = array.ctypes.data, array.shape, array.strides, array.itemsize
    if shown not in seen:
        seen[shown] = _read(array)
    return seen[shown]


def _read(array: np.ndarray[Any, Any]) -> Held:
    if array.nbytes <= WHOLE:
        return array.tobytes()
    import xxhash  # most programs hold no array of this size

    return xxhash.xxh3_128_intdigest(array.ravel(order="K").view(np.uint8).data)


def is_immutable(array: Any) -> bool:
    """Whether nobody can change ``array``: it shows ``bytes``, read-only."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    while isinstance(array, memoryview):
        array = array.obj
    return type(array) is bytes
