"""Factorisations of matrices, and what follows from them.

``lu`` is an op of its own, so that all that is asked of one matrix (solutions, its
inverse, its determinant) shares one factorisation. float32 and float64 alone, as in
NumPy; the arrays are row-major, and LAPACK counts by columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.ops.pointwise import (
    absolute,
    cast,
    equal,
    logical_and,
    negative,
    sign,
    where,
)
from eqsat.ops.position import iota, pad, tril, triu
from eqsat.ops.reduce import max as amax
from eqsat.ops.reduce import prod, sum
from eqsat.ops.support import dtype_of, known_sizes
from eqsat.ops.transcendental import exp, log
from eqsat.ops.view import expand_dims, matrix_transpose, reshape, window
from eqsat.support import DTypeError, ShapeError, at, caller_line
from eqsat.terms import (
    FLAT,
    HALF,
    Bindings,
    BySignature,
    Type,
    TypeRule,
    composite,
    op,
    parse,
    typing,
)

Flops = Callable[[Sequence[Type], dict[str, Any], Type], float]
Array = np.ndarray[Any, Any]
LAPACK = (np.dtype("f4"), np.dtype("f8"))
"""Dtypes of LAPACK's routines; others are computed by the formulas."""


# -- types -----------------------------------------------------------------------------


def refuse_halves(who: str, dtype: Any) -> None:
    """Raise :class:`DTypeError` for float16 and bfloat16."""
    if dtype in HALF:
        raise DTypeError(
            f"{who}: dtype {dtype}, expected float32 or float64; NumPy's linalg "
            f"has no other floats\n  write x.astype(np.float32){at(caller_line())}"
        )


@dataclass(frozen=True)
class Wide:
    """``rule`` for float32 and float64: NumPy factors no halves either."""

    rule: TypeRule

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        found = self.rule.infer(who, types, attrs)
        refuse_halves(who, found[0])
        return found

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        return self.rule.egg(call, args, attrs)


def by_axes(
    signature: str,
    names: tuple[str, ...],
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None,
) -> Wide:
    """Shapes by an axis signature."""
    return Wide(BySignature(parse(signature), None, names, check=check))


@dataclass(frozen=True)
class _Factor:
    """``... n n`` to the ``... n+1 n`` of a factorisation."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        ((dtype, shape),) = types
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(
                f"{who}: argument 'a' has shape {shape}, expected square matrices "
                f"... n n{at(caller_line())}"
            )
        return dtype, (*shape[:-2], shape[-1] + 1, shape[-1])

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        facts = (
            f"(= t (type {args[0]})) (= r (vec-length t)) (> r 2) "
            "(= n (vec-get t (- r 1))) (= n (vec-get t (- r 2)))"
        )
        return [typing(call, facts, "(vec-set t (- r 2) (+ n 1))")]


def _factored(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    p, n = bound["p"], bound["n"]
    whole = isinstance(p, int) and isinstance(n, int) and p == n + 1
    return None if whole else f"axis p is {p}, expected n + 1 with n={n}, as lu has it"


def cubic(factor: float) -> Flops:
    """``factor`` n³ flop for each matrix ``... n n``."""

    def cost(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
        shape = types[0][1]
        return factor * shape[-1] ** 2 * float(np.prod(shape[:-1], dtype=float))

    return cost


def by_columns(factor: float) -> Flops:
    """``factor`` n² flop for each column of the result ``... n k``."""

    def cost(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
        return factor * out[1][-2] * float(np.prod(out[1], dtype=float))

    return cost


# -- references ------------------------------------------------------------------------


def _matrices(x: Any) -> Array:
    """``x`` with one leading axis."""
    array = np.asarray(x)
    size = math.prod(array.shape[:-2])
    return array.reshape(size, *array.shape[-2:])


def _routine(name: str, dtype: Any) -> Callable[..., Any]:
    from scipy.linalg import lapack

    found: Callable[..., Any] = getattr(lapack, ("s" if dtype == "f4" else "d") + name)
    return found


def _lu(a: Any) -> Array:
    a = np.asarray(a)
    n = a.shape[-1]
    out = np.empty((*a.shape[:-2], n + 1, n), a.dtype)
    for x, y in zip(_matrices(a), _matrices(out), strict=True) if n else ():
        if a.dtype in LAPACK:
            factor, swaps, _ = _routine("getrf", a.dtype)(x)
            y[:n], y[n] = factor.T, swaps
        else:
            y[:n], y[n] = _eliminated(x)
    return out


def _eliminated(x: Array) -> tuple[Array, Array]:
    """L and U of one matrix, transposed, and the swaps of its rows."""
    u, n = x.copy(), len(x)
    swaps = np.arange(n)
    for k in range(n):
        p = swaps[k] = k + int(np.argmax(np.abs(u[k:, k])))
        u[[k, p]] = u[[p, k]]
        if u[k, k] != 0:
            u[k + 1 :, k] /= u[k, k]
        u[k + 1 :, k + 1 :] -= np.outer(u[k + 1 :, k], u[k, k + 1 :])
    return u.T, swaps


def _order(swaps: Any) -> list[int]:
    """Where each row comes from after all swaps."""
    order = list(range(len(swaps)))
    for i, p in enumerate(swaps):
        order[i], order[int(p)] = order[int(p)], order[i]
    return order


def refuse_singular(who: str, pivots: Any) -> None:
    """Raise NumPy's error where one of the ``pivots`` (... n) is 0."""
    *batch, k = np.argwhere(np.asarray(pivots) == 0)[0]
    which = f" {tuple(map(int, batch))}" if batch else ""
    raise np.linalg.LinAlgError(
        f"Singular matrix: {who}: pivot {int(k)} of matrix{which} is 0"
    )


def _pivots(f: Any) -> Any:
    return np.diagonal(np.asarray(f)[..., :-1, :], axis1=-2, axis2=-1)


def _check_exchanges(who: str, f: Array) -> None:
    """The last row of each factorisation says which rows are exchanged: LAPACK would
    write outside of its arrays for others."""
    rows, n = f[..., -1, :], f.shape[-1]
    right = (rows >= 0) & (rows < n) & (rows == np.floor(rows))
    if not right.all():
        raise np.linalg.LinAlgError(
            f"{who}: the factors are not those of lu: a row is exchanged with row "
            f"{rows[~right][0]}, expected 0 to {n - 1}"
        )


def _lu_solve(f: Any, b: Any, transposed: bool, who: str = "solve") -> Array:
    f, b = np.asarray(f), np.asarray(b)
    if (_pivots(f) == 0).any():
        refuse_singular(who, _pivots(f))
    _check_exchanges(who, f)
    batch = np.broadcast_shapes(f.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, *b.shape[-2:]), b.dtype)
    f, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (f, b))
    for x, y, z in zip(_matrices(f), _matrices(b), _matrices(out), strict=True):
        if not z.size:
            continue
        lu, swaps = x[:-1].T, x[-1]
        if b.dtype in LAPACK:
            whole = swaps.astype(np.int32)
            z[...], _ = _routine("getrs", b.dtype)(lu, whole, y, trans=int(transposed))
        elif transposed:
            y = _substituted(lu, y, False, True, False)
            z[_order(swaps)] = _substituted(lu, y, True, True, True)
        else:
            y = _substituted(lu, y[_order(swaps)], True, False, True)
            z[...] = _substituted(lu, y, False, False, False)
    return out


def _substituted(a: Any, b: Any, lower: bool, transposed: bool, unit: bool) -> Array:
    """The solution of a triangular system, row by row."""
    a = np.asarray(a).mT if transposed else np.asarray(a)
    n, lower = a.shape[-1], lower != transposed
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        x[..., i, :] -= (a[..., i : i + 1, done] @ x[..., done, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= a[..., i, i, None]
    return x


def _cholesky(a: Any) -> Array:
    a = np.asarray(a)
    if a.dtype in LAPACK:
        return np.asarray(np.linalg.cholesky(a))
    out: Array = np.zeros_like(a)
    for j in range(a.shape[-1]):
        row = out[..., j, :j]
        pivot = a[..., j, j] - (row * row).sum(-1)
        if (pivot <= 0).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        out[..., j, j] = np.sqrt(pivot)
        below = a[..., j + 1 :, j] - (out[..., j + 1 :, :j] @ row[..., None])[..., 0]
        out[..., j + 1 :, j] = below / out[..., j, j, None]
    return out


def _triangular(a: Any, b: Any, lower: bool, transposed: bool, unit: bool) -> Array:
    a, b = np.asarray(a), np.asarray(b)
    pivots = np.diagonal(a, axis1=-2, axis2=-1)
    if not unit and (pivots == 0).any():
        refuse_singular("solve_triangular", pivots)
    if b.dtype not in LAPACK:
        return _substituted(a, b, bool(lower), bool(transposed), bool(unit))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, *b.shape[-2:]), b.dtype)
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    solve = _routine("trtrs", b.dtype)
    for x, y, z in zip(_matrices(a), _matrices(b), _matrices(out), strict=True):
        if z.size:  # LAPACK sees the transposed matrix, without a copy
            z[...], _ = solve(
                x.T, y, lower=not lower, trans=not transposed, unitdiag=bool(unit)
            )
    return out


# -- derivatives -----------------------------------------------------------------------


def _by_matrix(g: Any, a: Any, f: Any) -> Any:
    return window(g, (0, 0), a.shape[-2:])


def _to_factor(by: Any) -> Any:
    """A derivative by a matrix as that by its factorisation."""
    return pad(by, [(0, 0)] * (by.ndim - 2) + [(0, 1), (0, 0)])


def _solved_by_factor(g: Any, f: Any, b: Any, x: Any, transposed: bool) -> Any:
    back = lu_solve(f, g, transposed=not transposed)
    left, right = (x, back) if transposed else (back, x)
    return _to_factor(negative(left @ matrix_transpose(right)))


def _solved_by_right(g: Any, f: Any, b: Any, x: Any, transposed: bool) -> Any:
    return lu_solve(f, g, transposed=not transposed)


def _inverse(g: Any, f: Any, y: Any) -> Any:
    t = matrix_transpose(y)
    return _to_factor(negative(t @ g @ t))


def _by_logarithm(g: Any, f: Any, y: Any) -> Any:
    return _to_factor(_times(g, matrix_transpose(lu_inv(f))))


def _by_determinant(g: Any, f: Any, y: Any) -> Any:
    if 0 in f.shape:
        return None
    return _to_factor(_times(g, lu_cofactors(f)))


def _by_cofactors(g: Any, f: Any, y: Any) -> Any:
    """⟨g, y⟩ a⁻ᵀ - y gᵀ a⁻ᵀ."""
    t = matrix_transpose(lu_inv(f))
    return _to_factor(_times(sum(g * y, (-2, -1)), t) - y @ matrix_transpose(g) @ t)


def _times(g: Any, matrices: Any) -> Any:
    """A number for each matrix times that matrix."""
    return expand_dims(expand_dims(g, -1), -1) * matrices


def _by_cholesky(g: Any, a: Any, y: Any) -> Any:
    """By the lower triangle, which alone is read.

    Murray 2016, arXiv:1602.07527, (9).
    """
    p = tril(matrix_transpose(y) @ tril(g))
    p = p - _diagonal_part(p) * 0.5
    s = solve_triangular_op(y, p, lower=True, transposed=True)
    s = solve_triangular_op(y, matrix_transpose(s), lower=True, transposed=True)
    return tril(s + matrix_transpose(s)) - _diagonal_part(s)


def _diagonal_part(x: Any) -> Any:
    return tril(triu(x))


def _triangular_by_matrix(
    g: Any, a: Any, b: Any, x: Any, lower: bool, transposed: bool, unit: bool
) -> Any:
    back = solve_triangular_op(a, g, lower=lower, transposed=not transposed, unit=unit)
    left, right = (x, back) if transposed else (back, x)
    full = negative(left @ matrix_transpose(right))
    return tril(full, -unit) if lower else triu(full, int(unit))


def _triangular_by_right(
    g: Any, a: Any, b: Any, x: Any, lower: bool, transposed: bool, unit: bool
) -> Any:
    return solve_triangular_op(a, g, lower=lower, transposed=not transposed, unit=unit)


# -- ops -------------------------------------------------------------------------------


@op(Wide(_Factor()), promotion="float", flops=cubic(2 / 3), vjp=_by_matrix)
def lu(a: Any) -> Any:
    """``... n n`` to ``... n+1 n``: L and U, transposed, in the first n rows, as
    LAPACK's getrf leaves them by columns, and in the last the row that each was swapped
    with: the rows of ``a``, swapped in order, are L U.

    It stands for its matrix: a derivative by it has that by the matrix in its first n
    rows, and what reads it has such rules. A matrix may be singular.
    """
    return _lu(a)


@op(
    by_axes("... p n, ... n k -> ... n k", ("f", "b"), _factored),
    promotion="float",
    flops=by_columns(2),
    vjp=(_solved_by_factor, _solved_by_right),
)
def lu_solve(f: Any, b: Any, *, transposed: bool) -> Any:
    """The x of a x = b, or of aᵀ x = b, by the factorisation of ``a``.

    Raises NumPy's LinAlgError where a pivot is 0.
    """
    return _lu_solve(f, b, bool(transposed))


@op(
    by_axes("... p n -> ... n n", ("f",), _factored),
    promotion="float",
    flops=cubic(2),
    vjp=_inverse,
)
def lu_inv(f: Any) -> Any:
    """a⁻¹ by the factorisation of ``a``. Raises as :data:`lu_solve`."""
    f = np.asarray(f)
    return _lu_solve(f, np.eye(f.shape[-1], dtype=f.dtype), False, "inv")


def pivots_of(f: Any) -> Any:
    """The diagonal of U, whose product is that of the eigenvalues up to its sign."""
    *lead, p, n = known_sizes("lu", f)
    return window(reshape(f, (*lead, p * n)), (0,), (n,), (n + 1,))


@composite(
    by_axes("... p n -> ...", ("f",), _factored), recognised=False, vjp=_by_logarithm
)
def lu_logabsdet(f: Any) -> Any:
    """ln |det a| by the factorisation of ``a``; -∞ of a singular one."""
    return sum(log(absolute(pivots_of(f))), -1)


@composite(by_axes("... p n -> ...", ("f",), _factored), recognised=False, vjp=FLAT)
def lu_sign(f: Any) -> Any:
    """The sign of det a by the factorisation of ``a``; 0 of a singular one."""
    *lead, _, n = known_sizes("lu", f)
    swaps = reshape(window(f, (n, 0), (1, n)), (*lead, n))
    signs = sign(pivots_of(f))
    # Beside integers float32 would be compared as float64, which no GPU has.
    kept = equal(swaps, cast(iota(n, f), dtype_of(f)))
    return prod(where(kept, signs, negative(signs)), -1)


@composite(
    by_axes("... p n -> ...", ("f",), _factored), recognised=False, vjp=_by_determinant
)
def lu_det(f: Any) -> Any:
    """det a by the factorisation of ``a``, as NumPy computes it: by its logarithm, so
    that nothing overflows that the result can hold."""
    return lu_sign(f) * exp(lu_logabsdet(f))


@composite(
    by_axes("... p n -> ... n n", ("f",), _factored),
    recognised=False,
    vjp=_by_cofactors,
)
def lu_cofactors(f: Any) -> Any:
    """∂ det a / ∂a, which is det a · a⁻ᵀ, by the factorisation of ``a``.

    Pivots of 0 count as roundings of the largest number in U: the result, a polynomial
    in ``a``, is that of a matrix which is so near. Its derivative raises as
    :data:`lu_solve`.
    """
    n = known_sizes("lu", f)[-1]
    square = window(f, (0, 0), (n, n))
    pivots = expand_dims(pivots_of(f), -1)
    size = amax(absolute(tril(square)), (-2, -1), keepdims=True)
    least = where(equal(size, 0.0), 1.0, size) * float(np.finfo(dtype_of(f)).eps)
    rows = reshape(iota(n, f), (n, 1))
    zero = logical_and(equal(rows, iota(n, f)), equal(pivots, 0.0))
    f = f + _to_factor(where(zero, least, 0.0))
    return _times(lu_det(f), matrix_transpose(lu_inv(f)))


@op(
    by_axes("... n n -> ... n n", ("a",)),
    promotion="float",
    flops=cubic(1 / 3),
    vjp=_by_cholesky,
)
def cholesky(a: Any) -> Any:
    """The lower L, 0 above its diagonal, of a = L Lᵀ; of ``a`` the lower triangle is
    read. Raises NumPy's LinAlgError where ``a`` is not positive definite."""
    return _cholesky(a)


@op(
    by_axes("... n n, ... n k -> ... n k", ("a", "b")),
    name="solve_triangular",
    promotion="float",
    flops=by_columns(1),
    vjp=(_triangular_by_matrix, _triangular_by_right),
)
def solve_triangular_op(
    a: Any, b: Any, *, lower: bool, transposed: bool = False, unit: bool = False
) -> Any:
    """The x of t x = b, or of tᵀ x = b, where t is the lower or the upper triangle of
    ``a``, with ones on its diagonal if ``unit``; the rest is not read.

    Raises NumPy's LinAlgError where an element of the diagonal is 0.
    """
    return _triangular(a, b, lower, transposed, unit)
