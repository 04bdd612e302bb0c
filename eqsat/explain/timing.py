"""What the clock said of a function, beside what was estimated."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from eqsat.support import counted

MARK = 2.0
"""Estimates that are further off than so many times are marked."""
WIDE = 2.0
"""Quartiles that are further apart than so many times are told of."""


_WHY_WIDE = (
    "the quartiles are far apart, so other programs took processors meanwhile, and "
    "threads, such as those of NumPy's BLAS, waited for each other; time it again on a "
    "machine that is free"
)


@dataclass(frozen=True)
class Spread:
    """Seconds of one call, over rounds."""

    median_s: float
    low_s: float
    """The first quartile (s)."""
    high_s: float
    """The third quartile (s)."""
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        low, high = np.quantile(seconds, (0.25, 0.75))
        middle = statistics.median(seconds)
        return cls(middle, float(low), float(high), len(seconds))

    @property
    def is_wide(self) -> bool:
        """Whether the quartiles are further apart than :data:`WIDE` times."""
        return self.high_s > WIDE * self.low_s

    def __str__(self) -> str:
        return (
            f"{self.median_s * 1e6:.1f} µs ({self.low_s * 1e6:.1f} to "
            f"{self.high_s * 1e6:.1f})"
        )


@dataclass(frozen=True)
class Measured:
    """What was timed beside its estimate."""

    name: str
    estimate_s: float
    time: Spread

    @property
    def ratio(self) -> float:
        """The estimate over the clock."""
        return self.estimate_s / self.time.median_s

    @property
    def is_off(self) -> bool:
        """Whether the estimate is further off than :data:`MARK` times."""
        return not 1 / MARK <= self.ratio <= MARK


@dataclass(frozen=True)
class Timing:
    """A function as NumPy runs it and as eqsat does, timed in turn, and the kernels of
    the program, each by itself. ``str`` gives a table, :meth:`record` plain values."""

    numpy: Measured
    program: Measured
    kernels: tuple[Measured, ...]
    threads: int
    """Threads that the program may use; estimates are for one."""

    @property
    def speedup(self) -> float:
        """How many times as long NumPy takes: the ratio of the medians."""
        return self.numpy.time.median_s / self.program.time.median_s

    @property
    def rows(self) -> tuple[Measured, ...]:
        """All that was timed."""
        return self.numpy, self.program, *self.kernels

    def record(self) -> dict[str, Any]:
        """Everything as plain values."""
        rows = [
            {
                "name": m.name,
                "estimate_s": m.estimate_s,
                **asdict(m.time),
                "estimate_to_clock": m.ratio,
                "is_off": m.is_off,
            }
            for m in self.rows
        ]
        return {
            "numpy": rows[0],
            "program": rows[1],
            "kernels": rows[2:],
            "speedup": self.speedup,
            "threads": self.threads,
        }

    def _table(self) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = [
            ("timed", "clock, µs", "quartiles", "estimate", "estimate/clock")
        ]
        for m in self.rows:
            low, high = m.time.low_s, m.time.high_s
            mark = "  ← off" if m.is_off else ""
            found.append(
                (
                    m.name,
                    f"{m.time.median_s * 1e6:.1f}",
                    f"{low * 1e6:.1f} to {high * 1e6:.1f}",
                    f"{m.estimate_s * 1e6:.1f}",
                    f"{m.ratio:.2f}{mark}",
                )
            )
        return found

    def __str__(self) -> str:
        rows = self._table()
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
            for r in rows
        ]
        off = sum(m.is_off for m in self.rows)
        lines.append(
            f"NumPy takes {self.speedup:.2f} times as long; "
            f"{counted(self.program.time.rounds, 'round')} in turn, eqsat on "
            f"{counted(self.threads, 'thread')}"
        )
        if off:
            lines.append(
                f"{counted(off, 'estimate')} more than {MARK:g} times off; `eqsat "
                f"calibrate` measures this machine"
            )
        return "\n".join([*lines, *self._why_wide()])

    def _why_wide(self) -> list[str]:
        """One line on clocks that went unevenly, if any did."""
        names = ", ".join(m.name for m in self.rows if m.time.is_wide)
        return [f"{names}: {_WHY_WIDE}"] if names else []

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        cells = "".join(f"<th>{escape(c)}</th>" for c in head)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows
        )
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
        return table + "".join(f"<p>{escape(line)}</p>" for line in self._why_wide())
