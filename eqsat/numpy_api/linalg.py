"""NumPy's linear algebra on traced values."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from eqsat import ops
from eqsat.complex_numbers import call, conjugate, holds_complex, real
from eqsat.numpy_api.arrange import shape
from eqsat.numpy_api.compute import largest, norm
from eqsat.numpy_api.operands import array, refuse_argument
from eqsat.numpy_api.table import covers
from eqsat.ops import decomposed, linalg, spectral
from eqsat.support import (
    MatrixError,
    ShapeError,
    TraceError,
    TraceValueError,
    at,
    caller_line,
    counted,
)


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
    if not isinstance(n, (int, np.integer)):
        raise TraceError(
            f"np.linalg.matrix_power: n={n!r}, expected a whole number"
            f"{at(caller_line())}"
        )
    rows, columns = _sizes("matrix_power", a)
    if rows != columns:
        raise ShapeError(
            f"np.linalg.matrix_power: a has shape {shape(a)}, expected square matrices "
            f"... n n{at(caller_line())}"
        )
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
    if len(arrays) < 2:
        raise ShapeError(
            f"np.linalg.multi_dot: {counted(len(arrays), 'array')}, expected two or "
            f"more{at(caller_line())}"
        )
    result, *rest = map(array, arrays)
    for a in rest:
        result = ops.matmul(result, a)
    return result


# -- decompositions --------------------------------------------------------------------


def _sizes(name: str, a: Any) -> tuple[int, int]:
    """Rows and columns of matrices."""
    if len(shape(a)) < 2:
        raise ShapeError(
            f"np.linalg.{name}: a has shape {shape(a)}, expected two axes or more"
            f"{at(caller_line())}"
        )
    m, n = shape(a)[-2:]
    return m, n


def _named(like: str, parts: Any) -> Any:
    """``parts`` as NumPy names them, a tuple of the class of that name."""
    return getattr(np.linalg._linalg, like)(*parts)


def _triangle(a: Any, uplo: str) -> Any:
    if uplo.upper() not in ("L", "U"):
        raise TraceValueError(f"UPLO={uplo!r}, expected 'L' or 'U'{at(caller_line())}")
    return conjugate(ops.matrix_transpose(a)) if uplo.upper() == "U" else a


@covers("linalg.eigh")
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues from the least on, and eigenvectors, of symmetric matrices."""
    return _named("EighResult", decomposed(_triangle(a, UPLO), "eigh"))


@covers("linalg.eigvalsh")
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of symmetric matrices, from the least on."""
    return decomposed(_triangle(a, UPLO), "eigvalsh")[0]


@covers("linalg.eig")
def eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors of complex matrices."""
    both, n = call("eig", _complex("eig", a)), shape(a)[-1]
    vectors = ops.reshape(both[..., n:], shape(a))
    return _named("EigResult", (both[..., :n], vectors))


@covers("linalg.eigvals")
def eigvals(a: Any) -> Any:
    """Eigenvalues of complex matrices."""
    return call("eigvals", _complex("eigvals", a))


def _complex(name: str, a: Any) -> Any:
    """``a``, which is complex. NumPy gives real numbers where those of a real matrix
    are, which depends on data."""
    if not holds_complex(a):
        raise TraceError(
            f"np.linalg.{name} of real matrices: NumPy gives real or complex numbers, "
            f"as the values are\n  write np.linalg.{name}(a.astype(complex)), or "
            f"np.linalg.{name}h if they are symmetric{at(caller_line())}"
        )
    return a


@covers("linalg.svd")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """u, s and vᵀ with a = u s vᵀ; thin ones have a derivative."""
    if not compute_uv:
        return svdvals(a)
    m, n = _sizes("svd", a)
    square = m == n
    routine = "svd_full" if full_matrices and not square else "svd"
    return _named("SVDResult", decomposed(a, routine))


@covers("linalg.svdvals")
def svdvals(x: Any, /) -> Any:
    """Singular values, from the largest on."""
    return decomposed(x, "svdvals")[0]


@covers("linalg.qr")
def qr(a: Any, mode: str = "reduced") -> Any:
    """q and r with a = q r, r upper."""
    if mode not in ("reduced", "complete", "r"):
        raise TraceError(
            f"np.linalg.qr: mode={mode!r} is not supported in a traced function; "
            f"'reduced', 'complete' and 'r' are{at(caller_line())}"
        )
    m, n = _sizes("qr", a)
    tall = m > n
    routine = "qr_complete" if mode == "complete" and tall else "qr"
    parts = decomposed(a, routine)
    return parts[1] if mode == "r" else _named("QRResult", parts)


@covers("linalg.pinv")
def pinv(a: Any, rcond: Any = None, *, rtol: Any = np._NoValue) -> Any:
    """The pseudo-inverse."""
    if rcond is not None and rtol is not np._NoValue:
        _refuse_both("np.linalg.pinv", "rcond", "rtol")
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
    if rcond is None:
        rcond = max(shape(a)[-2:]) * _eps(a)
    if shape(rcond):
        refuse_argument("np.linalg.pinv", "rtol")
    return spectral.pinv(a, rcond=rcond)


def _refuse_both(name: str, one: str, other: str) -> NoReturn:
    raise TraceValueError(f"{name}: both {one} and {other}{at(caller_line())}")


def _eps(a: Any) -> float:
    """The rounding of the dtype that ``a`` is decomposed in."""
    return float(np.finfo(np.result_type(a.dtype, np.float32)).eps)


@covers("linalg.matrix_rank")
def matrix_rank(A: Any, tol: Any = None, *, rtol: Any = None) -> Any:
    """How many singular values are larger than ``tol``, by default than the largest
    times its rounding and the longer side."""
    if tol is not None and rtol is not None:
        _refuse_both("np.linalg.matrix_rank", "tol", "rtol")
    if len(shape(A)) < 2:
        return ops.cast(ops.any(A != 0), np.int64)
    s = svdvals(A)
    if tol is None:
        share = max(shape(A)[-2:]) * _eps(s) if rtol is None else rtol
        tol = largest(s, -1, keepdims=True) * share
    elif len(shape(tol)):
        tol = ops.expand_dims(tol, -1)
    return ops.sum(ops.cast(s > tol, np.int64), -1)


@covers("linalg.cond")
def cond(x: Any, p: Any = None) -> Any:
    """‖x‖ ‖x⁻¹‖. A singular matrix is an error but for p=2 and p=-2, where NumPy has
    ∞."""
    if len(shape(x)) < 2 or 0 in shape(x)[-2:]:
        raise MatrixError(
            f"np.linalg.cond: x has shape {shape(x)}, expected a matrix with elements"
            f"{at(caller_line())}"
        )
    if p in (None, 2, -2):
        s = svdvals(x)
        first, last = s[..., 0], s[..., -1]
        found = last / first if p == -2 else first / last
        nan = ops.any(ops.isnan(x), axis=(-2, -1))
        hides = ops.logical_and(ops.isnan(found), ops.logical_not(nan))
        return ops.where(hides, math.inf, found)  # 0 by 0
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


@covers("linalg.lstsq")
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """x with the least ‖b - a x‖, and of several the shortest; the sums of squares that
    are left; the rank; the singular values.

    The sums are there for every matrix with more rows than columns: NumPy has none
    where the rank is lower, which the shape cannot tell here.
    """
    a, b = array(a), array(b)
    ndims = len(shape(a)), len(shape(b))
    if ndims[0] != 2 or ndims[1] not in (1, 2):
        raise ShapeError(
            f"np.linalg.lstsq: a has shape {shape(a)} and b {shape(b)}, expected (m n) "
            f"and (m) or (m k){at(caller_line())}"
        )
    a = linalg.wide_enough("lstsq", a, b)
    m, n = shape(a)
    if rcond is None:
        rcond = max(m, n) * _eps(a)
    elif isinstance(rcond, (int, float)) and not 0 < rcond < 1:
        rcond = _eps(a)  # as LAPACK takes it
    x = spectral.pinv(a, rcond=rcond) @ b
    rest = b - a @ x
    squares = ops.reshape(ops.sum(real(rest * conjugate(rest)), 0), (-1,))
    left = squares if m > n else squares[:0]
    s = svdvals(a)
    rank = ops.cast(ops.sum(ops.cast(s > rcond * s[:1], np.int64)), np.int32)
    return x, left, rank, s
