"""What runs in processes of its own: a worker for each peer, and the machine's limits.

It does not know what is asked of the workers, nor how often. Read ``pool.py`` first.
"""

from __future__ import annotations

from bench.processes.limits import SIZES, bytes_per_s, in_fresh_process
from bench.processes.pool import Gone, Missing, Worker

__all__ = [
    "SIZES",
    "Gone",
    "Missing",
    "Worker",
    "bytes_per_s",
    "in_fresh_process",
]
