"""Whether a result is right: compared with float64, within a stated bound.

The error is ‖got - exact‖ / ‖exact‖, where ``exact`` is the plain NumPy function over
the same arrays in float64. The bound is :data:`FACTOR` times the largest of

- the error of plain NumPy in the workload's own dtype,
- half a unit in the last place of that dtype,
- u √n for the longest sum, of n terms, with u the rounding of float32: what the
  errors of a sum in any order stay near (Higham & Mary 2019, doi:10.1137/18M1226312).

Of a result of several arrays, such as a value with gradients, each is compared and has
a bound of its own: the norm of all would hide the small ones. Gradients are compared
with those that :mod:`bench.workloads.by_hand` has, in float64.

So other orders of summation, fused multiply-adds and polynomials for exp and erf pass;
a wrong formula does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bench.runner.need import Need, need
from bench.workloads import Drawn, Workload, by_part, leaves, mapped

FACTOR = 8.0
"""Three bits: erf and exp of a few units in the last place, at several steps."""
FLOAT32_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Reference:
    """The exact result of a workload, and how near to it a result has to be."""

    exact: Sequence[np.ndarray[Any, Any]]
    """One array, or each of a result of several."""
    bounds: Sequence[float]
    plain_errors: Sequence[float]
    """The errors of plain NumPy in the workload's dtype."""
    need: Need

    def worst(self, got: Sequence[np.ndarray[Any, Any]]) -> tuple[float, float]:
        """The error of the array that is nearest to its bound or furthest beyond it,
        and that bound; infinite for other numbers of arrays, other shapes and NaN."""
        if len(got) != len(self.exact):
            return math.inf, self.bounds[0]
        errors = map(relative, got, self.exact)
        return max(zip(errors, self.bounds, strict=True), key=lambda e: e[0] / e[1])


def relative(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    """‖got - exact‖ / ‖exact‖, in float64; infinity for another shape and for NaN."""
    if got.shape != exact.shape:
        return math.inf
    difference = float(np.linalg.norm((got.astype(np.float64) - exact).ravel()))
    norm = float(np.linalg.norm(exact.ravel())) or 1.0
    return difference / norm if math.isfinite(difference) else math.inf


def reference(w: Workload, drawn: Drawn) -> Reference:
    """The exact result of ``w`` over these arrays, and the bounds."""
    args = [*drawn[0], *drawn[1]]
    result = w.plain(*args)
    plain = [np.asarray(a) for a in leaves(result)]
    exact = [np.asarray(a) for a in leaves(w.plain(*mapped(args, by_part(wide))))]
    errors = list(map(relative, plain, exact))
    needed = need(w, drawn, result)
    bounds = [
        FACTOR * max(error, _half_unit(a.dtype), FLOAT32_ROUNDING * math.sqrt(terms))
        for a, error, terms in zip(plain, errors, needed.longest_sums, strict=True)
    ]
    return Reference(exact, bounds, errors, needed)


def _half_unit(dtype: Any) -> float:
    """Half a unit in the last place of 1; 0 for integers."""
    is_float = dtype.kind not in "iub"  # those of bfloat16 are of kind V
    return float(_finfo(dtype).eps) / 2 if is_float else 0.0


_finfo: Any = ml_dtypes.finfo
"""numpy.finfo that knows bfloat16."""


def wide(a: Any) -> Any:
    """Floats as float64; integers as they are."""
    return a if a.dtype.kind in "iub" else a.astype(np.float64)
