"""Values that are refused while a program runs, where NumPy raises an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.ops.reduce import any as any_of
from eqsat.ops.support import is_traced
from eqsat.ops.view import reshape
from eqsat.terms import EXACT, op

ERRORS: dict[str, tuple[type[Exception], str]] = {
    "all_nan": (ValueError, "All-NaN slice encountered"),
    "range": (ValueError, "autodetected range is not finite: a holds NaN or infinity"),
    "edges": (ValueError, "`bins` must increase monotonically"),
    "bins": (ValueError, "bins must be monotonically increasing or decreasing"),
}
"""NumPy's errors for values, by a name."""


@op(
    "..., 1 -> ...",
    name="unless",
    promotion="first",
    flops=0,
    roundings=EXACT,
    choices={"error": tuple(ERRORS)},
    vjp=(lambda g, x, wrong, y, error: g, None),
)
def unless_op(x: Any, wrong: bool, *, error: str = "all_nan") -> Any:
    """``x``, unless ``wrong``: then an error of that name."""
    if np.any(wrong):
        kind, text = ERRORS[error]
        raise kind(text)
    return np.array(x)


def unless(x: Any, wrong: Any, error: str) -> Any:
    """``x``. Raises the error of that name, of :data:`ERRORS`, where an element of
    ``wrong`` is true, when a result that needs ``x`` is computed."""
    if is_traced(wrong):
        return unless_op(x, reshape(any_of(wrong), (1,)), error=error)
    return unless_op.reference(x, wrong, error=error)
