"""What arrays held when a program was made of them, and whether they still do."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

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
