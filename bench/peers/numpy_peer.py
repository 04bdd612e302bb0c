"""Plain NumPy: each workload as it is written."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy

from bench.peers import Candidate
from bench.workloads import Workload


class Plain:
    """NumPy, whose BLAS takes its threads from the environment."""

    def __init__(self, threads: int) -> None:
        blas: Any = np.show_config(mode="dicts")
        library = blas["Build Dependencies"]["blas"]
        self.versions = {
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "blas": f"{library['name']} {library['version']}",
        }

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` called on its arrays."""
        return Candidate(partial(w.plain, *inputs, *weights), np.asarray)
