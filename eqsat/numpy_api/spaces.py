"""NumPy's functions of numbers that are equally far apart between traced ends."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.operands import array, axes_of
from eqsat.numpy_api.statistics import cast
from eqsat.numpy_api.table import covers
from eqsat.ops import dtype_of
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import Traced


@covers("linspace")
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """``num`` numbers from ``start`` to ``stop``, equally far apart, along a new axis;
    with ``retstep`` also how far."""
    if not isinstance(start, Traced) and not isinstance(stop, Traced):
        known: Any = np.linspace
        return known(start, stop, num, endpoint, retstep, dtype, axis)
    n = operator.index(num)
    if n < 0:
        raise ShapeError(
            f"np.linspace: num={num}, expected an int from 0 on{at(caller_line())}"
        )
    own = np.linspace(_like(start), _like(stop), 1).dtype
    start, stop = (cast(array(v), own) for v in (start, stop))
    start, stop = ops.broadcast_to(start, _common(start, stop)), stop
    apart = stop - start
    turns = n - 1 if endpoint else n
    step = apart / turns if turns > 0 else ops.full_like(apart, np.nan)
    places = np.arange(n).astype(own).reshape(-1, *(1 for _ in shape(apart)))
    y = places * (step if turns > 0 else apart)
    if turns > 0:  # a step may be too small for its dtype
        y = ops.where(ops.equal(step, 0), places / turns * apart, y)
    y = y + start
    if endpoint and n > 1:
        y = ops.where(places == n - 1, stop, y)
    if dtype is not None:
        kind = np.dtype(dtype).kind
        y = cast(ops.floor(y) if kind in "iu" else y, dtype)
    to = axes_of("np.linspace", lambda v, k: np.moveaxis(v, 0, k), y, axis)
    y = ops.moveaxis(y, 0, to)
    return (y, step) if retstep else y


def _like(x: Any) -> Any:
    """A number of the dtype of ``x``."""
    return np.zeros((), dtype_of(x))[()] if isinstance(x, Traced) else x


def _common(*arrays: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*map(shape, arrays))


@covers("logspace")
def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """``base`` to the power of each number of :func:`linspace`."""
    y = ops.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return y if dtype is None else cast(y, dtype)
