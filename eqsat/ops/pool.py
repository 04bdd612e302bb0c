"""Pooling over windows of images n c h w, written as strided views of the image."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from eqsat.ops.pointwise import add, divide, maximum
from eqsat.ops.position import pad
from eqsat.ops.support import dtype_of, known_sizes
from eqsat.ops.view import window
from eqsat.support import ShapeError, at, caller_line


def max_pool2d(x: Any, size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """The largest element of every window of ``size`` (h, w).

    Windows are ``stride`` apart, by default their size; ``padding`` lies on both sides
    and never counts. Raises :class:`ShapeError` when a window exceeds its image.
    """
    dtype = dtype_of(x) or np.dtype(float)
    low = np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
    return _joined(maximum, x, size, stride, padding, low)


def avg_pool2d(x: Any, size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """The mean of every window of ``size`` (h, w), with zeros in the padding.

    Arguments as of :func:`max_pool2d`.
    """
    h, w = _pair(size)
    return divide(_joined(add, x, size, stride, padding, 0), h * w)


def _joined(join: Any, x: Any, size: Any, stride: Any, padding: Any, fill: Any) -> Any:
    """All elements of every window, joined by what is associative: along one axis after
    the other, h + w of them for a window of h × w."""
    (h, w), (sh, sw), (ph, pw) = map(_pair, (size, stride or size, padding))
    *lead, height, width = known_sizes("pool", x)
    height, width = height + 2 * ph, width + 2 * pw
    if h > height or w > width:
        raise ShapeError(
            f"pool: windows of {(h, w)} do not fit in images of {(height, width)}"
            f"{at(caller_line())}"
        )
    extents = (height - h) // sh + 1, (width - w) // sw + 1
    none = [(0, 0)] * len(lead)
    high = pad(x, [*none, (ph, ph), (0, 0)], constant_values=fill)
    rows = (extents[0], width - 2 * pw)
    x = functools.reduce(join, (window(high, (i, 0), rows, (sh, 1)) for i in range(h)))
    wide = pad(x, [*none, (0, 0), (pw, pw)], constant_values=fill)
    parts = (window(wide, (0, j), extents, (1, sw)) for j in range(w))
    return functools.reduce(join, parts)


def _pair(value: Any) -> tuple[int, int]:
    a, b = (value, value) if isinstance(value, int) else value
    return a, b
