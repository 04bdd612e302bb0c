"""What was measured, as plain values of a file and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any


class MeasuredTable:
    """A dataclass of times and rates, and of tables of them, with a ``name``."""

    def record(self) -> dict[str, Any]:
        """The table as plain values, of three digits."""
        return {k: _short(v) for k, v in vars(self).items()}

    @classmethod
    def fields_of(cls, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What :meth:`record` gave. Raises :class:`ValueError`, :class:`TypeError` or
        :class:`LookupError` for what it does not give."""
        known = {f.name: kept[f.name] for f in fields(cls)}  # type: ignore[arg-type]
        numbers = [*_numbers({k: v for k, v in known.items() if k != "name"})]
        if not all(math.isfinite(x) and x >= 0 for x in numbers):
            raise ValueError("a time or a rate is negative or not finite")
        return known


def _short(x: Any) -> Any:
    if isinstance(x, float):
        return float(f"{x:.3g}")
    if isinstance(x, Mapping):
        return {k: _short(v) for k, v in x.items()}
    return [_short(y) for y in x] if isinstance(x, (tuple, list)) else x


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for x in value:
            yield from _numbers(x)
    else:
        yield float(value)
