"""Linear algebra as NumPy and SciPy spell it, over factorisations that are shared."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.complex_numbers import call, holds_complex, real
from eqsat.ops.factor import (
    cholesky,
    lu,
    lu_det,
    lu_inv,
    lu_logabsdet,
    lu_sign,
    lu_solve,
    refuse_halves,
    solve_triangular_op,
)
from eqsat.ops.pointwise import cast
from eqsat.ops.support import dtype_of, known_sizes
from eqsat.ops.view import expand_dims, matrix_transpose, moveaxis, reshape, squeeze
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import common_dtype


def _factored(who: str, a: Any) -> Any:
    """The factorisation of square matrices."""
    shape = known_sizes(who, a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"{who}: argument 'a' has shape {shape}, expected square matrices ... n n"
            f"{at(caller_line())}"
        )
    return lu(a)


def wide_enough(who: str, a: Any, b: Any) -> Any:
    """``a`` in the dtype in which it meets ``b``: before it is factored, as what is
    rounded there stays so."""
    met = [d for d in (dtype_of(a), dtype_of(b)) if d is not None]
    if len(met) < 2:
        return a
    for d in met:
        refuse_halves(who, d)
    return cast(a, common_dtype(who, "float", [_in_lapack(d) for d in met]))


def _in_lapack(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which NumPy's linalg takes ``dtype``: integers, also small ones
    beside float32, are float64."""
    return np.dtype(float) if dtype.kind in "biu" else dtype


def _by_columns(solve: Any, b: Any, is_vector: bool) -> Any:
    """``solve`` for the columns of ``b``, or for one that is a vector."""
    return squeeze(solve(expand_dims(b, -1)), -1) if is_vector else solve(b)


def solve(a: Any, b: Any) -> Any:
    """The x of a x = b: ``a`` (... n n), ``b`` (n) or (... n k); float32 or float64.

    Raises NumPy's LinAlgError, when it runs, for a singular matrix, and
    :class:`ShapeError` and :class:`DTypeError` for what does not fit.
    """
    if holds_complex(a) or holds_complex(b):
        return call("solve", a, b)
    f, shape = _factored("solve", wide_enough("solve", a, b)), known_sizes("solve", b)
    is_vector, n = len(shape) == 1, known_sizes("solve", a)[-1]
    if not shape or shape[-1 if is_vector else -2] != n:
        raise ShapeError(
            f"solve: argument 'b' has shape {shape}, expected (n) or (... n k) with "
            f"n={n}{at(caller_line())}"
        )
    return _by_columns(lambda c: lu_solve(f, c, transposed=False), b, is_vector)


def inv(a: Any) -> Any:
    """The inverse of square matrices (... n n). Raises as :func:`solve`."""
    if holds_complex(a):
        return call("inv", a)
    return lu_inv(_factored("inv", a))


def det(a: Any) -> Any:
    """The determinants of square matrices (... n n); 0 of singular ones. The gradient
    needs the inverse."""
    if holds_complex(a):
        return call("det", a)
    return lu_det(_factored("det", a))


def slogdet(a: Any) -> tuple[Any, Any]:
    """The signs and the logarithms of the absolute determinants of matrices (... n n);
    0 and -∞ of singular ones."""
    if holds_complex(a):
        both = call("slogdet", a)
        return both[..., 0], real(both[..., 1])
    f = _factored("slogdet", a)
    return lu_sign(f), lu_logabsdet(f)


def solve_triangular(
    a: Any,
    b: Any,
    *,
    lower: bool = False,
    transposed: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """The x of t x = b, or of tᵀ x = b if ``transposed``; t is the ``lower`` or the
    upper triangle of ``a`` (... n n), with ones on the diagonal if ``unit_diagonal``,
    and ``b`` is (n) or (... n k).

    What ``scipy.linalg.solve_triangular`` computes, which cannot be traced. Raises
    NumPy's LinAlgError, when it runs, where the diagonal has a 0.
    """

    def columns(c: Any) -> Any:
        return solve_triangular_op(
            a, c, lower=lower, transposed=transposed, unit=unit_diagonal
        )

    return _by_columns(columns, b, len(known_sizes("solve_triangular", b)) == 1)


def cho_solve(l: Any, b: Any, *, lower: bool = True) -> Any:  # noqa: E741
    """The x of l lᵀ x = b for a factor ``l`` (... n n) of Cholesky, or of lᵀ l x = b
    for an upper one (not ``lower``); ``b`` is (n) or (... n k).

    What ``scipy.linalg.cho_solve`` computes, which cannot be traced.
    """
    y = solve_triangular(l, b, lower=lower, transposed=not lower)
    return solve_triangular(l, y, lower=lower, transposed=lower)


def upper_cholesky(a: Any) -> Any:
    """The upper U of a = Uᵀ U; of ``a`` the upper triangle is read."""
    if holds_complex(a):
        return call("upper_cholesky", a)
    return matrix_transpose(cholesky(matrix_transpose(a)))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x of which the sum over its axes with the last ones of ``a`` is ``b``."""
    if axes is not None:
        ndim = len(known_sizes("tensorsolve", a))
        last = range(ndim - len(axes), ndim)
        a = moveaxis(a, tuple(axes), tuple(last))
    shape = known_sizes("tensorsolve", a)
    rest = shape[len(known_sizes("tensorsolve", b)) :]
    n = int(np.prod(rest, dtype=int))
    if int(np.prod(shape, dtype=int)) != n * n:
        raise ShapeError(
            f"tensorsolve: argument 'a' of shape {shape} is not square over the axes "
            f"{rest}{at(caller_line())}"
        )
    if int(np.prod(known_sizes("tensorsolve", b), dtype=int)) != n:
        raise ShapeError(
            f"tensorsolve: argument 'b' of shape {known_sizes('tensorsolve', b)} does "
            f"not fit 'a' of shape {shape}{at(caller_line())}"
        )
    return reshape(solve(reshape(a, (n, n)), reshape(b, (n,))), rest)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of ``a`` as a map from its axes from ``ind`` on to those before."""
    shape = known_sizes("tensorinv", a)
    n = int(np.prod(shape[ind:], dtype=int))
    if ind <= 0 or int(np.prod(shape, dtype=int)) != n * n:
        raise ShapeError(
            f"tensorinv: argument 'a' of shape {shape} is not square when its axes "
            f"are split at {ind}{at(caller_line())}"
        )
    return reshape(inv(reshape(a, (n, n))), (*shape[ind:], *shape[:ind]))
