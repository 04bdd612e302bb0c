"""Whether a result is right: compared with float64, within a stated bound.

The error is ‖got - exact‖ / ‖exact‖, where ``exact`` is the plain NumPy function over
the same arrays in float64. The bound is that of :mod:`eqsat.checking.exactness`, made
of the error of plain NumPy in the workload's own dtype.

Of a result of several arrays, such as a value with gradients, each is compared and has
a bound of its own: the norm of all would hide the small ones. Gradients are compared
with those that :mod:`bench.workloads.by_hand` has, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.runner.need import Need, need
from bench.workloads import Drawn, Workload, by_part, leaves, mapped
from eqsat.checking import FACTOR as FACTOR
from eqsat.checking import FLOAT32_ROUNDING as FLOAT32_ROUNDING
from eqsat.checking import bound
from eqsat.checking import relative as relative
from eqsat.checking import wide as wide

ROUGH = 0.05
"""The bound where small errors change what is decided: a sort of nearly equal numbers
may give other places. It finds wrong programs, not inexact ones."""


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
        return max(zip(errors, self.bounds, strict=True), key=_share)


def _share(of: tuple[float, float]) -> float:
    """An error as a share of its bound, which is 0 for integers."""
    error, bound = of
    return error / bound if bound else math.inf * error if error else 0.0


def reference(w: Workload, drawn: Drawn) -> Reference:
    """The exact result of ``w`` over these arrays, and the bounds."""
    args = [*drawn[0], *drawn[1]]
    result = w.plain(*args)
    plain = [np.asarray(a) for a in leaves(result)]
    if w.decides:
        moved = Need(0.0, 0.0, (), sum(a.nbytes for a in leaves([*args, plain])))
        rough, none = [ROUGH] * len(plain), [0.0] * len(plain)
        return Reference([wide(a) for a in plain], rough, none, moved)
    exact = [np.asarray(a) for a in leaves(w.plain(*mapped(args, by_part(wide))))]
    errors = list(map(relative, plain, exact))
    needed = need(w, drawn, result)
    bounds = [
        bound(error, a.dtype, terms)
        for a, error, terms in zip(plain, errors, needed.longest_sums, strict=True)
    ]
    return Reference(exact, bounds, errors, needed)
