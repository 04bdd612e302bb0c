"""eqsat with one of its backends, over the plain NumPy function or loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import Candidate
from bench.workloads import Workload


class Eqsat:
    """eqsat; its threads come from ``EQSAT_THREADS`` and, in NumPy's BLAS, from the
    environment. Nothing is taken from a cache on disk, so that compiling is seen,
    unless the environment asks for it."""

    def __init__(self, threads: int, backend: str) -> None:
        os.environ["EQSAT_THREADS"] = str(threads)
        os.environ.setdefault("EQSAT_CACHE", "0")
        import eqsat as eq
        from eqsat.kernels.backend import backend_named

        self.backend = backend
        device = backend_named(backend).model.device.name
        self.versions = {"eqsat": eq.__version__, "device": device}

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` compiled, its weights given as constants."""
        args = [*inputs, *weights]
        fixed = range(len(inputs), len(args))
        compiled = w.jitted(backend=self.backend, constants=fixed)
        low = compiled.lower(*args)
        program = low.program
        facts = {
            "kernels": [k.kind for k in program.kernels],
            "planned_peak_bytes": program.peak_bytes,
            "cut_short": low.optimised.cut_short,
        }
        call = partial(compiled, *args)
        return Candidate(call, np.asarray, facts, lambda: estimate(compiled, args))

    def model(self, path: Path) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """A model of ONNX as a function of inputs by name."""
        import eqsat as eq

        return eq.from_onnx(path, backend=self.backend).run


def estimate(compiled: Any, args: Sequence[Any]) -> dict[str, Any]:
    """What the explanation of a function says that a call takes (s), and NumPy for the
    function as written, and its kernels."""
    found = compiled.explain(*args)
    return {
        "predicted_s": found.estimate_s,
        "numpy_predicted_s": found.numpy_s,
        "kernels": [
            {"kind": k.kind, "bound": k.bound, "estimate_s": k.estimate_s}
            for k in found.kernels
        ],
        "by_numpy": len(found.by_numpy),
    }
