"""Whether a result is right: compared with float64, within a stated bound.

The error is ‖got - exact‖ / ‖exact‖, where ``exact`` is the plain NumPy function over
the same arrays in float64. The bound is :data:`FACTOR` times the largest of

- the error of plain NumPy in the workload's own dtype,
- half a unit in the last place of that dtype,
- u √n for the longest sum, of n terms, with u the rounding of float32: what the
  errors of a sum in any order stay near (Higham & Mary 2019, doi:10.1137/18M1226312).

So other orders of summation, fused multiply-adds and polynomials for exp and erf pass;
a wrong formula does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bench.need import Need, need
from bench.workloads import Drawn, Workload, by_part, mapped

FACTOR = 8.0
"""Three bits: erf and exp of a few units in the last place, at several steps."""
FLOAT32_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Reference:
    """The exact result of a workload, and how near to it a result has to be."""

    exact: np.ndarray[Any, Any]
    bound: float
    plain_error: float
    """The error of plain NumPy in the workload's dtype."""
    need: Need

    def error(self, got: np.ndarray[Any, Any]) -> float:
        """The error of ``got``; infinite for another shape and for NaN."""
        return relative(got, self.exact)


def relative(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    """‖got - exact‖ / ‖exact‖, in float64; infinity for another shape and for NaN."""
    if got.shape != exact.shape:
        return math.inf
    difference = float(np.linalg.norm((got.astype(np.float64) - exact).ravel()))
    norm = float(np.linalg.norm(exact.ravel())) or 1.0
    return difference / norm if math.isfinite(difference) else math.inf


def reference(w: Workload, drawn: Drawn) -> Reference:
    """The exact result of ``w`` over these arrays, and the bound."""
    inputs, weights = drawn
    plain = np.asarray(w.plain(*inputs, *weights))
    exact = np.asarray(w.plain(*mapped([*inputs, *weights], by_part(wide))))
    error = relative(plain, exact)
    needed = need(w, drawn, plain)
    is_float = plain.dtype.kind not in "iub"  # those of bfloat16 are of kind V
    half_unit = float(_finfo(plain.dtype).eps) / 2 if is_float else 0.0
    longest = FLOAT32_ROUNDING * math.sqrt(needed.longest_sum)
    return Reference(exact, FACTOR * max(error, half_unit, longest), error, needed)


_finfo: Any = ml_dtypes.finfo
"""numpy.finfo that knows bfloat16."""


def wide(a: Any) -> Any:
    """Floats as float64; integers as they are."""
    return a if a.dtype.kind in "iub" else a.astype(np.float64)
