"""NumPy's linear algebra on traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.operands import array
from eqsat.numpy_api.table import covers
from eqsat.ops import linalg


@covers("linalg.solve")
def solve(a: Any, b: Any) -> Any:
    """The x of a x = b."""
    return linalg.solve(array(a), array(b))


@covers("linalg.inv")
def inv(a: Any) -> Any:
    """a⁻¹."""
    return linalg.inv(a)


@covers("linalg.det")
def det(a: Any) -> Any:
    """The determinant."""
    return linalg.det(a)


@covers("linalg.slogdet")
def slogdet(a: Any) -> Any:
    """The sign of the determinant, and the logarithm of its absolute value."""
    return type(np.linalg.slogdet(np.eye(1)))(*linalg.slogdet(a))


@covers("linalg.cholesky")
def cholesky(a: Any, *, upper: bool = False) -> Any:
    """The lower L of a = L Lᵀ, or the upper U of a = Uᵀ U."""
    return linalg.upper_cholesky(a) if upper else ops.cholesky(a)


@covers("linalg.tensorsolve")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x of a x = b, over several axes."""
    return linalg.tensorsolve(array(a), array(b), axes)


@covers("linalg.tensorinv")
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse over several axes."""
    return linalg.tensorinv(a, ind)


@covers("linalg.matrix_power")
def matrix_power(a: Any, n: int) -> Any:
    """The product of ``n`` factors ``a``, or of -n inverses, by squaring."""
    if n == 0:
        size = shape(a)[-1]
        one = np.eye(size, dtype=a.dtype)
        return ops.broadcast_to(ops.add(ops.zeros_like(a), one), shape(a))
    base = inv(a) if n < 0 else a
    result, left = None, abs(n)
    while left:
        if left % 2:
            result = base if result is None else result @ base
        left //= 2
        base = base @ base if left else base
    return result


@covers("linalg.multi_dot")
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """The product of several matrices; the first and the last may be vectors. Rules
    find its cheapest order."""
    result, *rest = map(array, arrays)
    for a in rest:
        result = ops.matmul(result, a)
    return result
