"""The logistic function, in place where it cannot overflow."""

from __future__ import annotations

import numpy as np

from eqsat.ops import sigmoid as op

from ..interpret import Array

reference = op.reference
LEAST = {np.dtype(t): -float(np.log(np.finfo(t).max)) for t in ("f4", "f8")}
"""Below, e⁻ˣ is infinite while σ(x) = eˣ is still a denormal number."""


def sigmoid(x: Array, out: Array) -> None:
    """``out`` = 1 / (1 + e⁻ˣ), float32 or float64; ``x`` may be in the same memory."""
    if np.fmin.reduce(x, axis=None, initial=0) < LEAST[out.dtype]:
        out[...] = reference(x)
        return
    np.multiply(x, -1, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.divide(1, out, out=out)
