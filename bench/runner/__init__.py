"""How workloads are timed: ``bench run`` and ``bench predict``.

It draws the inputs, compares results with float64, and lets the peers take turns. It
does not know how a peer computes. Read ``measure.py`` first.
"""

from __future__ import annotations

from bench.runner.exactness import FACTOR, FLOAT32_ROUNDING, relative, wide
from bench.runner.need import Need, need

__all__ = [
    "FACTOR",
    "FLOAT32_ROUNDING",
    "Need",
    "need",
    "relative",
    "wide",
]
