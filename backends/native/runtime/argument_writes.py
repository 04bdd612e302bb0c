"""Calls that write to their arguments: what :mod:`.write_code` goes through."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from eqsat.trace import Arguments, Leaf, Trace

from ..machine import ALIGNED, C_CONTIGUOUS, WRITEABLE, words
from .guard_tables import NoVariantError, Records

WRITTEN = ALIGNED | C_CONTIGUOUS | WRITEABLE
"""Flags of an array that machine code writes to."""


def write_fields(
    call: Arguments, trace: Trace, outputs: int, records: Records
) -> dict[str, int]:
    """The fields of a Variant with ``outputs`` for what calls like ``call`` write to.
    Raises :class:`NoVariantError`."""
    writes = trace.writes
    if writes and trace.ends:  # these read what is not written to yet
        raise NoVariantError
    first = outputs - len(writes.places)
    leaves = [leaf for leaf in call.leaves if not leaf.constant]
    write = [
        word
        for k, i in enumerate(writes.places)
        for word in words("Write", leaf=i, output=first + k, nbytes=_nbytes(leaves[i]))
    ]
    apart = [w for i in writes.places for w in _apart(i, leaves, call, trace)]
    handed = [
        word
        for output, leaf in writes.returned.items()
        for word in words("Handed", output=output, leaf=leaf)
    ]
    return {
        "results": first,
        "writes": len(writes.places),
        "write": records.at(write),
        "aparts": len(apart) // len(words("Apart")),
        "apart": records.at(apart),
        "handed": len(writes.returned),
        "hand": records.at(handed),
    }


def _nbytes(leaf: Leaf) -> int:
    return leaf.dtype.itemsize * prod(leaf.shape)


def _apart(i: int, leaves: list[Leaf], call: Arguments, trace: Trace) -> Iterator[int]:
    """What argument ``i`` must not share memory with: other arguments, and arrays that
    the program was made of, from their first byte to behind their last."""
    nbytes = _nbytes(leaves[i])
    for j, other in enumerate(leaves):
        value = other.value
        if j != i and isinstance(value, np.ndarray):
            start, end = (b - value.ctypes.data for b in _bounds(value))
            yield from words(
                "Apart", leaf=i, nbytes=nbytes, other=j, start=start, end=end
            )
    fixed = [leaf.value for leaf in call.leaves if leaf.constant]
    for array in (*fixed, *trace.arrays_outside):
        if not isinstance(array, np.ndarray):
            raise NoVariantError
        start, end = _bounds(array)
        yield from words("Apart", leaf=i, nbytes=nbytes, other=-1, start=start, end=end)


def _bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    start, end = np.lib.array_utils.byte_bounds(array)
    return int(start), int(end)
