"""Functions of complex numbers whose types follow from those of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.complex_numbers.complex_op import FUNCTIONS, Function, of_complex
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import Shape, Traced, Type, broadcast


def call(function: str, *args: Any, **settings: Any) -> Any:
    """One of :data:`FUNCTIONS`, by name."""
    if not any(isinstance(a, Traced) for a in args):
        return FUNCTIONS[function].run(*args, **settings)
    return of_complex(*args, function=function, settings=repr(settings))


def real_dtype(dtype: Any) -> Any:
    """float32 of complex64, float64 of complex128, and any other dtype as it is."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def complex_dtype(dtype: Any) -> Any:
    """The complex dtype that numbers of ``dtype`` become."""
    return np.result_type(dtype, np.complex64)


def _real(x: Type) -> Type:
    return real_dtype(x[0]), x[1]


def _same(x: Type) -> Type:
    return x


def _with_parts(real: Any, imag: Any) -> Any:
    found = np.empty(np.shape(real), complex_dtype(real.dtype))
    found.real, found.imag = real, imag
    return found


def _with_parts_type(real: Type, imag: Type) -> Type:
    return complex_dtype(real[0]), real[1]


def _mean(x: Any, *, axis: tuple[int, ...]) -> Any:
    return np.mean(x, axis=axis, keepdims=True)


def _mean_type(x: Type, *, axis: tuple[int, ...]) -> Type:
    n = len(x[1])
    return x[0], tuple(1 if i - n in axis else s for i, s in enumerate(x[1]))


# -- linear algebra --------------------------------------------------------------------


def _lapack_dtype(*dtypes: Any) -> Any:
    """The dtype in which NumPy's linalg computes."""
    return np.result_type(*(np.float64 if d.kind in "biu" else d for d in dtypes))


def _squares(who: str, x: Type) -> Shape:
    """The axes before those of square matrices."""
    shape = x[1]
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"{who}: argument 'a' has shape {shape}, expected square matrices ... n n"
            f"{at(caller_line())}"
        )
    return shape[:-2]


def _square_to(
    who: str, result: Callable[[Shape, int], Shape], as_complex: bool = False
) -> Callable[..., Type]:
    def type_(a: Type, **settings: Any) -> Type:
        lead = _squares(who, a)
        dtype = _lapack_dtype(a[0])
        dtype = complex_dtype(dtype) if as_complex else dtype
        return dtype, result(lead, a[1][-1])

    return type_


def _solve_type(a: Type, b: Type) -> Type:
    lead, n, shape = _squares("solve", a), a[1][-1], b[1]
    is_vector = len(shape) == 1
    joined = broadcast(lead, () if is_vector else shape[:-2])
    if not shape or shape[-1 if is_vector else -2] != n or joined is None:
        raise ShapeError(
            f"solve: argument 'b' has shape {shape}, expected (n) or (... n k) with "
            f"n={n}{at(caller_line())}"
        )
    tail = (n,) if is_vector else (n, shape[-1])
    return _lapack_dtype(a[0], b[0]), (*joined, *tail)


def _slogdet(a: Any) -> Any:
    sign, log = np.linalg.slogdet(a)
    return np.stack([sign, log.astype(sign.dtype)], -1)


def _cofactors(a: Any) -> Any:
    """det a · a⁻ᵀ; of singular matrices by singular values, each times the others."""
    det, n = np.linalg.det(a), a.shape[-1]
    none = det == 0
    regular = np.where(none[..., None, None], np.eye(n, dtype=a.dtype), a)
    found = det[..., None, None] * np.linalg.inv(regular).mT
    u, s, vt = np.linalg.svd(a[none])
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    turned = np.conjugate(np.linalg.det(u) * np.linalg.det(vt))[..., None, None]
    found[none] = np.conjugate(turned * ((u * others[..., None, :]) @ vt))
    return found


def _eig(a: Any) -> Any:
    values, vectors = np.linalg.eig(a)
    flat = vectors.reshape(*vectors.shape[:-2], -1)
    return np.concatenate([values, flat], -1)


def _upper_cholesky(a: Any) -> Any:
    return np.linalg.cholesky(a, upper=True)


def _each(lead: Shape, n: int) -> Shape:
    return lead


FUNCTIONS |= {
    "conjugate": Function(np.conjugate, _same),
    "real": Function(np.real, _real),
    "imag": Function(np.imag, _real),
    "with_parts": Function(_with_parts, _with_parts_type),
    "mean": Function(_mean, _mean_type),
    "product_of_vectors": Function(
        np.matmul, lambda x, y: (np.result_type(x[0], y[0]), ())
    ),
    "solve": Function(np.linalg.solve, _solve_type),
    "inv": Function(np.linalg.inv, _square_to("inv", lambda lead, n: (*lead, n, n))),
    "det": Function(np.linalg.det, _square_to("det", _each)),
    "cofactors": Function(
        _cofactors, _square_to("cofactors", lambda lead, n: (*lead, n, n))
    ),
    "slogdet": Function(_slogdet, _square_to("slogdet", lambda lead, n: (*lead, 2))),
    "upper_cholesky": Function(
        _upper_cholesky, _square_to("cholesky", lambda lead, n: (*lead, n, n))
    ),
    "cholesky": Function(
        np.linalg.cholesky,
        _square_to("cholesky", lambda lead, n: (*lead, n, n)),
    ),
    "eig": Function(_eig, _square_to("eig", lambda lead, n: (*lead, n + n * n), True)),
    "eigvals": Function(
        np.linalg.eigvals, _square_to("eigvals", lambda lead, n: (*lead, n), True)
    ),
}
