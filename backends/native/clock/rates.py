"""What a core takes for the parts of machine code, as measured or as shipped."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eqsat.kernels import MeasuredTable

Sizes = Sequence[tuple[float, float]]
"""Sizes, and the seconds of a byte or of an element of what is so large."""
ANY = "any"
"""What stands for a dtype or a routine that was not measured."""


@dataclass(frozen=True)
class ClockRates(MeasuredTable):
    """Seconds of what machine code is made of, on one core.

    Keys are like ``exp float32``; ``remainder number int64`` is by a number that is
    known beforehand.
    """

    name: str
    vector_bits: int
    """Of the processor; one whose vectors are half as wide takes twice as long."""
    entry_s: float
    """Seconds of a call beside its kernels."""
    argument_s: float
    """Seconds of a call for each argument."""
    result_s: float
    """Seconds of a call for each result after the first one."""
    start_s: float
    """Seconds to start a kernel within a program."""
    row_s: float
    """Seconds to start a loop over the elements of a row."""
    reduced_s: float
    """Seconds to end the reduction of a row."""
    vectors: Mapping[str, float]
    """Seconds of an addition of two vectors of a dtype."""
    functions: Mapping[str, float]
    """Seconds of an element, beside those to read and to write it."""
    running: Mapping[str, float]
    """Seconds of an element of running results."""
    reads: Sizes
    """To read a byte, where a kernel moves so many in all."""
    writes: Sizes
    """To write one."""
    apart: Sizes
    """To read an element of an array of so many bytes whose rows are read across, tile
    by tile."""
    far_s: float
    """Seconds to read an element of those that lie in pages of their own."""
    gathers: Sizes
    """To read an element by its index, in an array of so many bytes."""
    scatters: Sizes
    """To add to an element by its index."""
    products: Mapping[str, float]
    """Multiply-adds a second of large products, counted as two."""
    orders: Mapping[str, Sizes]
    """To put an element in order, in rows of so many elements."""
    networks: Sizes
    """How many times as long as planned sorting networks take, for rows of so many
    elements."""
    factors: Mapping[str, Sizes]
    """How many times as long as planned a factorisation takes of matrices with so many
    rows."""

    @classmethod
    def of_record(cls, kept: Mapping[str, Any]) -> ClockRates:
        """Raises :class:`ValueError`, :class:`TypeError` or :class:`LookupError` for
        what :meth:`record` does not give."""
        found = cls(**cls.fields_of(kept))
        tables: list[Mapping[str, Any]] = [found.vectors, found.running, found.products]
        tables += found.orders, found.factors
        if not all(ANY in t for t in tables) or not all(found.products.values()):
            raise ValueError("a table lacks what stands for all others")
        return found

    def __str__(self) -> str:
        lines = [f"machine code, {self.name}"]
        lines.append(f"  vectors: {self.vectors[ANY] * 1e9:.2f} ns an addition")
        for key in ("exp float32", "tanh float32", "sin float64"):
            lines.append(f"  {key}: {self.functions[key] * 1e9:.2f} ns")
        lines.append(f"  matmul float32: {self.products['float32'] / 1e9:.1f} Gflop/s")
        return "\n".join(lines)


def stands_for_all(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with what stands for others: the largest, of lists that of the end."""
    largest = max(table.values(), key=lambda v: v if isinstance(v, float) else v[-1][1])
    return {**table, ANY: largest}


def entry(table: Mapping[str, Any], key: str) -> Any:
    """The entry of ``key``, or what stands for it."""
    return table[key] if key in table else table[ANY]


@functools.cache
def shipped() -> ClockRates:
    """The rates of one core of a server with AVX-512 (AMD EPYC, Zen 4)."""
    text = (files(__package__) / "rates.json").read_text(encoding="utf-8")
    return ClockRates.of_record(json.loads(text))
