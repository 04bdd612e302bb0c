"""What the table, the plot and the tests read out of results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from bench.peers import is_eqsat
from bench.reports.record import Record

NORMAL = 1.4826
"""From the median absolute deviation to the standard deviation, of normal numbers."""


def median_s(row: Record, peer: str) -> float | None:
    """Seconds of one call; None where it was not timed."""
    found: float | None = row["results"].get(peer, {}).get("median_s")
    return found


def is_peer(name: str) -> bool:
    """Whether a candidate counts as a peer of eqsat: plain NumPy does."""
    return not is_eqsat(name)


def best_peer(row: Record) -> tuple[str, float] | None:
    """The fastest peer whose result is right, and its seconds."""
    timed = [(s, p) for p in row["results"] if is_peer(p) and (s := median_s(row, p))]
    return (min(timed)[1], min(timed)[0]) if timed else None


def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """How many times as long the rounds of ``a`` take as those of ``b``, and the noise.

    The median over rounds, in which both ran shortly after each other, and a factor:
    the ratio would be 1 for equals within [1/noise, noise] in about 95 of 100 cases.
    """
    logs = [math.log(x / y) for x, y in zip(a, b, strict=False)]
    middle = statistics.median(logs)
    spread = NORMAL * statistics.median(abs(x - middle) for x in logs)
    # The median of n normal numbers spreads √(π/2n) as far as one of them.
    error = 2 * spread * math.sqrt(math.pi / 2 / len(logs))
    return math.exp(middle), math.exp(error)


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of no values."""
    logs = [math.log(v) for v in values]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def speedups(rows: Sequence[Record], ours: str, theirs: str | None) -> list[float]:
    """For each row that both timed: seconds of ``theirs`` (None: the best peer) over
    seconds of ``ours``."""
    found = []
    for row in rows:
        mine = median_s(row, ours)
        if theirs is None:
            best = best_peer(row)
            other = best[1] if best else None
        else:
            other = median_s(row, theirs)
        if mine and other:
            found.append(other / mine)
    return found


def candidates(found: Record) -> list[str]:
    """eqsat's backends that were run."""
    return [p for p in found["peers"] if is_eqsat(p)]


def tags(rows: Sequence[Record]) -> list[str]:
    """The first tags of the rows, in order."""
    return list(dict.fromkeys(row["tags"][0] for row in rows))
