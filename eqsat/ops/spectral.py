"""Decompositions with several results: eigenvalues, singular values, Q and R.

One op gives all results of a decomposition, each flattened and one behind the other;
:func:`decomposed` takes them apart. LAPACK computes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.complex_numbers import real
from eqsat.ops.factor import Wide, by_axes, solve_triangular_op
from eqsat.ops.pointwise import (
    equal,
    logical_and,
    logical_not,
    logical_or,
    negative,
    not_equal,
    where,
)
from eqsat.ops.position import iota, tril, triu
from eqsat.ops.reduce import any as reduce_any
from eqsat.ops.support import known_sizes
from eqsat.ops.view import expand_dims, matrix_transpose, reshape, window
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import Custom, Shape, Type, op

ROUTINES: dict[str, Callable[[Any], Any]] = {
    "eigh": np.linalg.eigh,
    "eigvalsh": lambda a: (np.linalg.eigvalsh(a),),
    "svd": lambda a: np.linalg.svd(a, full_matrices=False),
    "svd_full": np.linalg.svd,
    "svdvals": lambda a: (np.linalg.svd(a, compute_uv=False),),
    "qr": np.linalg.qr,
    "qr_complete": lambda a: np.linalg.qr(a, "complete"),
}
SQUARE = ("eigh", "eigvalsh")


def _shapes(routine: str, m: int, n: int) -> list[Shape]:
    """Shapes of the results for one matrix."""
    k = min(m, n)
    shapes: dict[str, list[Shape]] = {
        "eigh": [(n,), (n, n)],
        "eigvalsh": [(n,)],
        "svd": [(m, k), (k,), (k, n)],
        "svd_full": [(m, m), (k,), (n, n)],
        "svdvals": [(k,)],
        "qr": [(m, k), (k, n)],
        "qr_complete": [(m, m), (m, n)],
    }
    return shapes[routine]


def _type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    ((dtype, shape),) = types
    routine = attrs["routine"]
    square = routine in SQUARE
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        wanted = "square matrices ... n n" if square else "matrices ... m n"
        raise ShapeError(
            f"{routine}: argument 'a' has shape {shape}, expected {wanted}"
            f"{at(caller_line())}"
        )
    total = sum(math.prod(s) for s in _shapes(routine, *shape[-2:]))
    return dtype, (*shape[:-2], total)


def _flops(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
    """About 10 m n min(m, n), half of it without vectors. Golub & Van Loan 2013."""
    *lead, m, n = types[0][1]
    vectors = attrs["routine"] not in ("svdvals", "eigvalsh")
    return (10.0 if vectors else 5.0) * math.prod(lead) * m * n * min(m, n)


def _parts(x: Any, routine: str, m: int, n: int) -> list[Any]:
    """What is one behind the other in ``x``, taken apart."""
    found, start = [], 0
    lead = known_sizes("decompose", x)[:-1]
    for shape in _shapes(routine, m, n):
        size = math.prod(shape)
        found.append(reshape(window(x, (start,), (size,)), (*lead, *shape)))
        start += size
    return found


# -- derivatives -----------------------------------------------------------------------


def _gaps(x: Any, *vectors: Any) -> Any:
    """1 / (xⱼ - xᵢ), 0 on the diagonal; ``vectors`` are derivatives by the vectors of
    x, in columns. Between equal ones vectors may turn freely, so that no derivative
    says how: NaN if one of both counts, else 0."""
    gap = expand_dims(x, -2) - expand_dims(x, -1)
    counts = functools.reduce(logical_or, map(_counts, vectors))
    either = logical_or(counts, matrix_transpose(counts))
    free = logical_and(either, logical_not(_is_diagonal(x)))
    same = equal(gap, 0.0)
    found = where(same, 0.0, 1.0 / where(same, 1.0, gap))
    return where(logical_and(same, free), math.nan, found)


def _counts(columns: Any) -> Any:
    """Whether a derivative by vectors is not 0, for each."""
    return reduce_any(not_equal(columns, 0.0), -2, keepdims=True)


def _by_eigh(g: Sequence[Any], a: Any, y: Sequence[Any]) -> Any:
    """Giles 2008, §3.1, by the lower triangle, which alone is read."""
    (gw, gv), (w, v) = g, y
    vt = matrix_transpose(v)
    inner = _gaps(w, gv) * (vt @ gv) + _on_diagonal(gw)
    return _lower(v @ inner @ vt)


def _by_eigvalsh(g: Sequence[Any], a: Any, y: Sequence[Any]) -> Any:
    _, v = decomposed(a, "eigh")
    return _lower((v * expand_dims(g[0], -2)) @ matrix_transpose(v))


def _lower(full: Any) -> Any:
    """A derivative by symmetric matrices as one by their lower triangles."""
    return tril(full + matrix_transpose(full)) - tril(triu(full))


def _on_diagonal(x: Any) -> Any:
    return where(_is_diagonal(x), expand_dims(x, -1), 0.0)


def _is_diagonal(x: Any) -> Any:
    n = x.shape[-1]
    return equal(reshape(iota(n, x), (n, 1)), iota(n, x))


def _by_svd(g: Sequence[Any], a: Any, y: Sequence[Any]) -> Any:
    """Townsend 2016, Differentiating the singular value decomposition."""
    (gu, gs, gvt), (u, s, vt) = g, y
    ut, v, gv = matrix_transpose(u), matrix_transpose(vt), matrix_transpose(gvt)
    gaps = _gaps(s * s, gu, gv)
    columns = expand_dims(s, -2)
    left, right = ut @ gu, vt @ gv
    inner = (gaps * (left - matrix_transpose(left))) * columns
    inner = inner + expand_dims(s, -1) * (gaps * (right - matrix_transpose(right)))
    whole = u @ (inner + _on_diagonal(gs)) @ vt
    m, n = a.shape[-2:]
    if m > n:
        whole = whole + _over(gu, gu - u @ left, columns) @ vt
    if n > m:
        rest = _over(gv, gv - v @ right, columns)
        whole = whole + u @ matrix_transpose(rest)
    return whole


def _over(g: Any, rest: Any, s: Any) -> Any:
    """rest / s, and 0 for vectors that do not count."""
    return rest / where(_counts(g), s, 1.0)


def _by_svdvals(g: Sequence[Any], a: Any, y: Sequence[Any]) -> Any:
    """0 by singular values of 0, which are least there, as |x| is at 0."""
    u, _, vt = decomposed(a, "svd")
    counts = where(equal(y[0], 0.0), 0.0, g[0])
    return (u * expand_dims(counts, -2)) @ vt


def _by_qr(g: Sequence[Any], a: Any, y: Sequence[Any]) -> Any:
    """Walter & Lehmann 2010, arXiv:1001.1654, for matrices that are not wide."""
    (gq, gr), (q, r) = g, y
    if a.shape[-2] < a.shape[-1]:
        return "of matrices with fewer rows than columns; decompose a.mT"
    m = r @ matrix_transpose(triu(gr)) - matrix_transpose(gq) @ q
    right = gq + q @ (tril(m) + matrix_transpose(tril(m, -1)))
    solved = solve_triangular_op(r, matrix_transpose(right), lower=False)
    return matrix_transpose(solved)


_DERIVATIVES = {
    "eigh": _by_eigh,
    "eigvalsh": _by_eigvalsh,
    "svd": _by_svd,
    "svdvals": _by_svdvals,
    "qr": _by_qr,
}


def _by_parts(g: Any, a: Any, y: Any, routine: str) -> Any:
    rule = _DERIVATIVES.get(routine)
    if rule is None:
        return "with full bases; write full_matrices=False, or mode='reduced'"
    if 0 in a.shape:
        return None
    m, n = a.shape[-2:]
    return rule(_parts(g, routine, m, n), a, _parts(y, routine, m, n))


def _by_pinv(g: Any, a: Any, y: Any, rcond: float) -> Any:
    """Golub & Pereyra 1973, (4.12), where the rank stays."""
    if 0 in a.shape:
        return None
    yt, gt = matrix_transpose(y), matrix_transpose(g)
    outside = gt - a @ (y @ gt)  # (I - a a⁺) gᵀ
    beside = gt - (gt @ y) @ a  # gᵀ (I - a⁺ a)
    return negative(yt @ g @ yt) + outside @ (y @ yt) + (yt @ y) @ beside


# -- ops -------------------------------------------------------------------------------


@op(
    Wide(Custom(_type)),
    promotion="float",
    flops=_flops,
    choices={"routine": tuple(ROUTINES)},
    vjp=_by_parts,
)
def decompose(a: Any, *, routine: str) -> Any:
    """The results of one of :data:`ROUTINES`, each flattened but for leading axes, one
    behind the other. Raises NumPy's LinAlgError where an iteration does not converge.
    """
    a = np.asarray(a)
    lead, dtype = a.shape[:-2], a.dtype
    found = ROUTINES[routine](a)
    sizes = [math.prod(s) for s in _shapes(routine, *a.shape[-2:])]
    flat = [x.reshape(*lead, n) for x, n in zip(found, sizes, strict=True)]
    return np.concatenate(flat, -1).astype(dtype, copy=False)


def _pinv_flops(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
    return 1.2 * _flops(types, {"routine": "svd"}, out)


@op(
    by_axes("... m n -> ... n m", ("a",)),
    promotion="float",
    flops=_pinv_flops,
    vjp=_by_pinv,
)
def pinv(a: Any, *, rcond: float = 1e-15) -> Any:
    """The pseudo-inverse of Moore and Penrose; singular values up to ``rcond`` times
    the largest count as 0."""
    a = np.asarray(a)
    return np.linalg.pinv(a, rcond).astype(a.dtype, copy=False)


def decomposed(a: Any, routine: str) -> list[Any]:
    """The results of one of :data:`ROUTINES` of matrices ``a`` (... m n); eigenvalues
    and singular values are real also where ``a`` is complex."""
    found = decompose(a, routine=routine)
    m, n = known_sizes(routine, a)[-2:]
    which = {"eigh": 0, "eigvalsh": 0, "svd": 1, "svd_full": 1, "svdvals": 0}
    parts = _parts(found, routine, m, n)
    return [real(p) if which.get(routine) == i else p for i, p in enumerate(parts)]
