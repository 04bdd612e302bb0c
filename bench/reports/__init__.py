"""Result files: how they are written, and what is read out of them.

It knows no workload and times nothing. Read ``record.py`` first, then ``table.py``.
``estimates.py`` is of ``bench predict``.
"""

from __future__ import annotations

from bench.reports.compare import geometric_mean, ratio, tags
from bench.reports.record import Record, machine, spread, timed, write
from bench.reports.table import duration, laid_out, read, text

__all__ = [
    "Record",
    "duration",
    "geometric_mean",
    "laid_out",
    "machine",
    "ratio",
    "read",
    "spread",
    "tags",
    "text",
    "timed",
    "write",
]
