"""Convolutions in machine code, judged in wider numbers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from hypothesis import strategies as st
from natives import Array, near

from eqsat.backends.native.machine.processor import host
from eqsat.ops.contract import conv2d_op

F16, F32, F64 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
UNIT = {F32: 2.0**-24, F64: 2.0**-53}
WIDE = {F32: np.float64, F64: np.longdouble}
ORDERS = "packed fortran reversed strided window broadcast".split()
CPUS = [None, "generic", "x86-64-v3"] if host().triple.startswith("x86_64") else [None]
ONE = (1, 1)
threads = st.sampled_from([1, 3])
cpus = st.sampled_from(CPUS)


def draw(seed: int, *shape: int, dtype: Any = F32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def exact(x: Array, w: Array, dtype: Any, **attrs: Any) -> Array:
    with np.errstate(invalid="ignore"):
        found = conv2d_op.reference(x.astype(dtype), w.astype(dtype), **attrs)
    return cast(Array, found)


def right(got: Array, x: Array, w: Array, **attrs: Any) -> None:
    """``got`` is the convolution within the roundings of its sums."""
    sums = got.dtype if got.dtype in UNIT else F32
    wide = WIDE[sums]
    size = exact(np.abs(x), np.abs(w), wide, **attrs)
    bound = (w[0].size + 1) * UNIT[sums] * size
    near(got, exact(x, w, wide, **attrs), bound)
