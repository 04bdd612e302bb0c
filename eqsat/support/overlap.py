"""Arrays whose elements lie over each other in memory."""

from __future__ import annotations

from typing import Any

import numpy as np


def may_overlap(x: np.ndarray[Any, Any]) -> bool:
    """Whether two elements of an array may lie in one place, as those of
    ``Tensor.expand`` and of windows do. False where each axis steps over all that the
    axes of smaller steps reach."""
    reach = x.itemsize
    steps = zip(map(abs, x.strides), x.shape, strict=True)
    for step, n in sorted((step, n) for step, n in steps if n > 1):
        if step < reach:
            return bool(x.size)
        reach += step * (n - 1)
    return False
