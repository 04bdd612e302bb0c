"""Pooling over windows of images n c h w, written as strided views of the image."""

from __future__ import annotations

import functools
from collections.abc import Iterator
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
    return functools.reduce(maximum, _windows(x, size, stride, padding, low))


def avg_pool2d(x: Any, size: Any, stride: Any = None, padding: Any = 0) -> Any:
    """The mean of every window of ``size`` (h, w), with zeros in the padding.

    Arguments as of :func:`max_pool2d`.
    """
    h, w = _pair(size)
    return divide(functools.reduce(add, _windows(x, size, stride, padding, 0)), h * w)


def _windows(x: Any, size: Any, stride: Any, padding: Any, fill: Any) -> Iterator[Any]:
    """For every place in a window, the elements that windows have there."""
    (h, w), (sh, sw), (ph, pw) = map(_pair, (size, stride or size, padding))
    rank = len(known_sizes("pool", x))
    widths = [(0, 0)] * (rank - 2) + [(ph, ph), (pw, pw)]
    padded = pad(x, widths, constant_values=fill)
    height, width = known_sizes("pool", padded)[-2:]
    if h > height or w > width:
        raise ShapeError(
            f"pool: windows of {(h, w)} do not fit in images of {(height, width)}"
            f"{at(caller_line())}"
        )
    extents = (height - h) // sh + 1, (width - w) // sw + 1
    for i in range(h):
        for j in range(w):
            yield window(padded, (i, j), extents, (sh, sw))


def _pair(value: Any) -> tuple[int, int]:
    a, b = (value, value) if isinstance(value, int) else value
    return a, b
