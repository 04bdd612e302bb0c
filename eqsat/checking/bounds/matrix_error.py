"""How the errors of a matrix show in its factorisations and in solutions, for
:mod:`eqsat.checking.bounds.error_rules`.

All is to first order and by norms: a change E of the matrix A moves the solution x of
A x = b by up to ‖A⁻¹‖ ‖E‖ ‖x‖, and rounding is a change of about n u ‖L‖ ‖U‖. Where
‖A⁻¹‖ ‖E‖ comes near to 1 there is no bound.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, §§7.1, 9.3, 9.11.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.support import WIDE, Array, Ball, Precision, Range

FAR = 0.1
"""‖A⁻¹‖ ‖E‖ from which on the first order is not enough."""


def _norm(x: Any) -> Array:
    """The largest sum of a row, for each matrix."""
    return np.asarray(np.max(np.sum(np.abs(x), -1), -1, initial=0))


def _inverse_norm(a: Array) -> Array:
    """‖A⁻¹‖; ∞ of what is singular or not finite."""
    known = np.asarray(a, float)
    usable = np.isfinite(known).all((-2, -1)) & (np.linalg.det(known) != 0)
    safe = np.where(usable[..., None, None], known, np.eye(known.shape[-1]))
    return np.where(usable, _norm(np.linalg.inv(safe)), np.inf)


def _parts(f: Array) -> tuple[Array, Array]:
    """|L| and |U| of a factorisation, L with the ones of its diagonal."""
    packed = np.abs(f[..., :-1, :].mT)
    return np.tril(packed, -1) + np.eye(f.shape[-1], dtype=f.dtype), np.triu(packed)


def _moved(inverse: Array, change: Array) -> Array:
    """‖A⁻¹‖ ‖E‖, or ∞ where that is too much."""
    with np.errstate(all="ignore"):
        ratio = 2 * inverse * change
    return np.where(ratio < FAR, ratio, np.inf)


def _scaled(ratio: Array, size: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(size == 0, 0, ratio * size)


def _factor(
    args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
) -> Any:
    """L and U move by as much as the matrix does, by its condition."""
    a = args[0]
    n = a.value.shape[-1]
    low, high = _parts(value)
    change = _norm(a.error) + n * p.unit * _norm(low @ high)
    ratio = n * _moved(_inverse_norm(a.value), change)
    largest = np.max(np.abs(value[..., :-1, :]), (-2, -1), initial=0)
    error = np.zeros(value.shape, WIDE)
    error[..., :-1, :] = _scaled(ratio, largest)[..., None, None]
    return error


def _solved(
    matrix: Array, change: Array, b_error: Array, x: Array, tiny: float
) -> Array:
    """The error of each column of a solution. Each of its n terms a row may lose
    ``tiny``, where it is no normal number."""
    inverse = _inverse_norm(matrix)
    ratio = _moved(inverse, change)[..., None]
    size = np.max(np.abs(x), -2, initial=0)
    lost = 2 * matrix.shape[-1] * tiny * (1 + _norm(matrix))
    off = np.max(b_error, -2, initial=0) + lost[..., None]
    columns = _scaled(ratio, size) + _scaled(2 * inverse[..., None], off)
    return np.broadcast_to(columns[..., None, :], x.shape)


def _solution(
    args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
) -> Any:
    f = args[0]
    n = value.shape[-2]
    low, high = _parts(f.value)
    packed, error = (v[..., :-1, :].mT for v in (f.value, f.error))
    low_error, high_error = np.tril(error, -1), np.triu(error)
    matrix = (np.tril(packed, -1) + np.eye(n, dtype=WIDE)) @ np.triu(packed)
    with np.errstate(all="ignore"):
        moved = low_error @ high + low @ high_error + n * p.unit * (low @ high)
    if attrs.get("transposed"):
        matrix, moved = matrix.mT, moved.mT
    b_error = args[1].error if len(args) > 1 else np.zeros((1, 1))
    change = np.where(np.isnan(_norm(moved)), np.inf, _norm(moved))
    return _solved(matrix, change, b_error, value, p.tiny)


def _cholesky(
    args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
) -> Any:
    a = args[0]
    n = a.value.shape[-1]
    whole = np.tril(a.value) + np.tril(a.value, -1).mT
    change = _norm(a.error) + n * p.unit * _norm(whole)
    ratio = n * _moved(_inverse_norm(whole), change)
    largest = np.max(np.abs(value), (-2, -1), initial=0)
    return np.tril(
        np.broadcast_to(_scaled(ratio, largest)[..., None, None], value.shape)
    )


def _triangular(
    args: list[Ball], value: Array, span: Range, attrs: Any, p: Precision
) -> Any:
    a, b = args
    n = value.shape[-2]
    part = np.tril if attrs["lower"] else np.triu
    matrix, error = part(a.value), part(a.error)
    if attrs["unit"]:
        own = np.eye(n, dtype=bool)
        matrix, error = np.where(own, 1, matrix), np.where(own, 0, error)
    if attrs["transposed"]:
        matrix, error = matrix.mT, error.mT
    change = _norm(error) + n * p.unit * _norm(matrix)
    return _solved(matrix, change, b.error, value, p.tiny)


BOUNDS = {
    "lu": _factor,
    "lu_solve": _solution,
    "lu_inv": _solution,
    "cholesky": _cholesky,
    "solve_triangular": _triangular,
}
"""As the entries of :data:`eqsat.checking.error_rules.PROPAGATE`."""
