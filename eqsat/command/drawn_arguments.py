"""Arrays in the place of the arguments that a command line describes."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.trace import Spec


def drawn(spec: Spec) -> Any:
    """An array like ``spec``: floats from the normal distribution, bools, and integers
    of 0 and 1, which are indices of most axes."""
    rng = np.random.default_rng(0)
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    return rng.standard_normal(spec.shape).astype(dtype)
