"""How exact the functions of vectors are."""

from __future__ import annotations

import numpy as np

from bench.mathematics.ulp import SCIPY

EXACT = frozenset(
    {"sqrt", "floor", "ceil", "trunc", "rint", "copysign", "maximum", "minimum"}
    | {"fmax", "fmin", "nextafter", "fmod", "remainder", "floor_divide"}
)
"""Correctly rounded, or bit for bit as NumPy's."""
CLOSE = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt"})
LONG = np.finfo(np.longdouble).nmant >= 63
"""Long double can judge float64."""


def bound(name: str) -> float:
    """The largest error in units in the last place."""
    if name in EXACT:
        return 0.5
    if name == "normal_cdf":  # of 1, which is twice as much as just below
        return 1
    if name in ("log_ndtr", "digamma"):
        return 6
    return 2 if name in CLOSE else 4 if name in ("power", *SCIPY) else 3
