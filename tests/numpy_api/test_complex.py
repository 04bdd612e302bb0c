"""Complex numbers: bit for bit what NumPy gives, on all backends that call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import expressions
import numpy as np
import pytest
from evaluate import assert_same, traced
from sizes import some

import eqsat as eq

DTYPES = [np.dtype("c8"), np.dtype("c16")]
BACKENDS = ["numpy", "native"]

ELEMENTWISE = """
z+w; z-w; z*w; z/w; z**w; z**2; z**3; z**.5; z**-1; z**0; z**1; z**1.5; z**2j; 2**z;
-z; +z; abs(z); z+1; 1+z; z*2.5; 2.5/z; z*2j; 2j-z; z*np.float32(2); z*np.float64(2);
z+x; x*z; x/z; z-i; i*z; x*1j; i*1j; b*1j; x+1j*x; x**1j; z*np.complex64(1j);
z.conj(); z.conjugate(); np.conj(z); np.conj(x); z.real; z.imag; np.real(z); np.imag(z);
np.angle(z); np.angle(z, deg=True); np.angle(x); np.exp(z); np.log(z); np.sqrt(z);
np.sin(z); np.cos(z); np.tan(z); np.sinh(z); np.cosh(z); np.tanh(z); np.arcsin(z);
np.arccos(z); np.arctan(z); np.arcsinh(z); np.arccosh(z); np.arctanh(z); np.log2(z);
np.log10(z); np.log1p(z); np.expm1(z); np.exp2(z); np.square(z); np.reciprocal(z);
np.absolute(z); np.sign(z); np.positive(z); np.negative(z); np.power(z, 2);
np.power(z, w); np.float_power(z, 2); np.rint(z); np.round(z, 2); np.round(z);
z==w; z!=w; z==1; z==z; np.equal(z, x); np.isnan(z); np.isinf(z); np.isfinite(z);
np.iscomplex(z); np.isreal(z); np.iscomplex(x); np.iscomplexobj(z); np.isrealobj(z);
np.where(b, z, w); np.where(b, z, 0); np.where(b, x, 1j); np.where(z, x, 1);
np.logical_and(z, w); np.logical_or(z, b); np.logical_not(z); np.logical_xor(z, w);
z.astype("c8"); z.astype("c16"); x.astype(complex); i.astype("c8"); b.astype("c16");
z.astype(complex)*2; np.maximum(z, w); np.minimum(z, w); np.fmax(z, w); np.fmin(z, w);
z<w; z<=w; z>w; z>=w; np.clip(z, 0, 1); np.nan_to_num(z); np.isclose(z, w);
np.isclose(z, z+1e-9); np.allclose(z, z); np.array_equal(z, z); np.array_equal(z, w);
np.abs(z)**2; (z*z.conj()).real; np.exp(1j*x); np.sinc(z);
np.exp(-2j*np.pi*i/7); np.add(z, w, dtype="c16"); np.multiply(z, x, dtype="c16");
np.interp(x, [0., 1.], [0., 1j]); np.heaviside(x, 1)*1j; np.isneginf(x)*1j;
np.copysign(x, x)*1j; z+True; z*None; z//2; z%2; np.floor(z); divmod(z, 2); z&z; ~z;
np.hypot(z, w); np.arctan2(z, w); np.degrees(z); np.cbrt(z); np.signbit(z); z<<1
"""
PRODUCTS = """
z@z.T; z.T@z; z@w.T; z.conj().T@z; m@m; m@v; v@m; v@v; x@z.T; z@x.T; z@i.T; m@m@m;
np.dot(m, v); np.dot(v, v); np.dot(z, m); np.dot(2j, z); np.vdot(z, w); np.vdot(v, v);
np.vdot(x, z); np.vdot(z, x); np.inner(z, w); np.outer(v, v); np.tensordot(z, w, 2);
np.tensordot(z, m, 1); np.einsum("ij,kj->ik", z, w); np.einsum("ij,ij", z, w);
np.einsum("ij->ji", z); np.einsum("ii->i", m); np.einsum("ii", m); np.kron(v, v);
np.linalg.multi_dot([z, m, m]); np.linalg.matrix_power(m, 3); np.trace(m);
np.linalg.vecdot(z, w); np.vecdot(z, w); np.cross(z[:, :3], w[:, :3]); np.matvec(m, v);
np.vecmat(v, m); np.linalg.outer(v, v); np.convolve(v, v); np.correlate(v, v, "full");
np.linalg.matmul(z, m); np.multiply.outer(v, v); np.linalg.cross(z[:, :3], w[:, :3]);
np.polyval([1j, 2, 3], z); np.cov(z); np.corrcoef(z)
"""
REDUCTIONS = """
z.sum(); z.sum(0); z.sum(-1, keepdims=True); z.sum((0, 1)); z.sum(dtype="c16");
z.prod(); z.prod(1); z.mean(); z.mean(0); z.mean(axis=1, keepdims=True); z.var();
z.var(0); z.std(1); z.var(ddof=1); np.var(z, 1, keepdims=True); np.std(z, ddof=1);
z.cumsum(); z.cumsum(1); z.cumprod(0); np.cumsum(z, dtype="c16"); z.any(); z.all();
np.any(z, 0); np.all(z, 1); np.count_nonzero(z); np.count_nonzero(z, axis=1); z.max();
z.min(0); z.argmax(); z.argmin(1); np.sum(z, initial=1j);
np.add.reduce(z); np.multiply.reduce(z, axis=1);
np.add.accumulate(z, 1); np.nansum(z); np.nanmean(z); np.nanprod(z, 0); np.nanvar(z);
np.diff(z); np.diff(z, axis=0); np.gradient(v); np.trapezoid(v); np.average(z);
np.average(z, 0, weights=[1., 2, 3]); np.median(z); np.sort(z); np.argsort(z);
np.ptp(z); np.nancumsum(z); np.sort(v)[::-1]; np.ediff1d(v); np.nanstd(z);
np.linalg.norm(z); np.linalg.norm(z, axis=1); np.linalg.norm(v); np.linalg.norm(v, 1);
np.linalg.norm(v, np.inf); np.linalg.norm(v, 3); np.linalg.norm(m, 1); np.unique(v);
np.linalg.norm(m, np.inf); np.linalg.norm(m, 2); np.linalg.norm(m, "nuc");
np.linalg.norm(v, 0); np.linalg.vector_norm(z, axis=0); np.linalg.matrix_norm(m);
np.linalg.norm(z, "fro")
"""
VIEWS = """
z[0]; z[1:, ::2]; z[..., None]; z[::-1]; z[b]; z[[0, 2]]; z[:, [3, 0]]; z[1, 2]; z.T;
z[i[0] % 3]; z.reshape(4, 3); z.ravel(); z.flatten(); z.copy(); np.squeeze(z[None]);
np.transpose(z); np.swapaxes(z, 0, 1); np.moveaxis(z, 0, 1); np.expand_dims(z, 0);
np.broadcast_to(z, (2, 3, 4)); np.concatenate([z, w]); np.concatenate([z, x]);
np.stack([z, w], -1); np.vstack([z, x]); np.hstack([z, w]); np.split(z, 2, 1);
np.tile(z, (2, 1)); np.repeat(z, 2, 0); np.roll(z, 1); np.flip(z, 1); np.rot90(z);
np.pad(z, 1); np.pad(z, ((1, 0), (0, 2)), constant_values=1j); np.diag(m); np.diag(v);
np.triu(m); np.tril(m, -1); np.take(z, [1, 0], 0); np.take_along_axis(z, i % 3, 0);
np.choose(i % 2, [z, w]); np.select([b, x > 0], [z, w], 1j); np.diagonal(m);
np.append(z, w); np.delete(v, 1); np.atleast_2d(v); z.nonzero();
np.argwhere(z); np.compress([1, 0, 1], z, 0); np.extract(b, z); np.meshgrid(v, v);
np.trim_zeros(v); np.block([[z, w], [x, z]]); np.array([v[0], v[1], 1j]); z.mT;
np.array([x[0, 0], 2j]); len(z); z.size; z.ndim; z.nbytes; np.pad(z, 1, "edge")
"""
MADE = """
np.zeros((2, 3), complex)+z[0, 0]; np.ones(4, "c8")*v; np.full((3, 4), 1j)+z;
np.full((3, 4), z[0, 0]); np.zeros_like(z); np.ones_like(z); np.full_like(z, 2j);
np.zeros_like(x, dtype=complex); np.empty_like(z)*0==0; np.eye(4, dtype=complex)@v;
np.full_like(x, 2); np.arange(4)*v; np.linspace(0, 1j, 4)*v; np.linspace(v[0], v[1], 5);
np.identity(4, complex)*m; np.array([1j, 2, 3, 4])*v; np.arange(4, dtype="c8")+v;
np.vander(v, 3); np.fft.fftfreq(4)*v; np.geomspace(1, 1000j, 4)*v
"""
LINALG = """
np.linalg.solve(m, v); np.linalg.solve(m, m.T); np.linalg.solve(m, x.T);
np.linalg.solve(r, v); np.linalg.inv(m); np.linalg.det(m); np.linalg.slogdet(m);
np.linalg.eigh(h); np.linalg.eigvalsh(h); np.linalg.svd(z); np.linalg.svd(z, False);
np.linalg.svd(m, compute_uv=False); np.linalg.svdvals(z); np.linalg.qr(z);
np.linalg.qr(z, "complete"); np.linalg.qr(z, "r"); np.linalg.cholesky(h);
np.linalg.eig(m); np.linalg.eigvals(m);
np.linalg.pinv(z); np.linalg.matrix_rank(z); np.linalg.cond(m);
np.linalg.tensorinv(m, 1); np.linalg.tensorsolve(m, v);
np.linalg.cholesky(h, upper=True); np.linalg.pinv(m, hermitian=False)
"""
FFT = """
np.fft.fft(z); np.fft.ifft(z); np.fft.fft(z, axis=0); np.fft.fft(z, 6); np.fft.fft(x);
np.fft.fft(z, 3, 0, "ortho"); np.fft.ifft(z, norm="forward"); np.fft.rfft(x);
np.fft.rfft(x, 7); np.fft.rfft(x, axis=0, norm="ortho"); np.fft.irfft(z);
np.fft.irfft(z, 5); np.fft.irfft(z, 4, 0); np.fft.fft2(z); np.fft.ifft2(z);
np.fft.fftn(z); np.fft.ifftn(z, axes=(0,)); np.fft.fftn(z, (2, 5)); np.fft.rfftn(x);
np.fft.rfft2(x); np.fft.irfft2(z); np.fft.irfftn(z); np.fft.irfftn(z, (3, 5), (0, 1));
np.fft.hfft(v); np.fft.ihfft(x); np.fft.fftshift(z); np.fft.ifftshift(z, 1);
np.fft.fftshift(x, axes=(0,)); np.fft.fft(i); np.fft.fft(b); np.fft.fft(np.fft.ifft(z));
np.fft.irfft(np.fft.rfft(x)).real; np.fft.fft(x.T); np.fft.fft(z, axis=1);
np.fft.fft(z, norm="other"); np.fft.rfft(z); np.fft.fft(z, 0)
"""
ALL = (ELEMENTWISE, PRODUCTS, REDUCTIONS, VIEWS, MADE, LINALG, FFT)
NAMES = "z w x i b m v r h"


def written(text: str) -> list[str]:
    return [e.strip() for e in text.split(";")]


def drawn(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Arrays by name: complex ones, and a real, an integer and a bool one."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> Any:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    m = normal(4, 4)
    return {
        "z": normal(3, 4),
        "w": normal(3, 4),
        "x": rng.normal(size=(3, 4)).astype(dtype.type(0).real.dtype),
        "i": rng.integers(1, 9, (3, 4)),
        "b": rng.random((3, 4)) < 0.5,
        "m": m,
        "v": normal(4),
        "r": m.real.copy(),
        "h": m @ m.conj().T + 4 * np.eye(4, dtype=dtype),
    }


def result(f: Callable[..., Any], given: Any) -> list[tuple[Any, ...]] | str:
    """Types and bytes of what ``f`` gives, or that it refuses."""
    with np.errstate(all="ignore"):
        try:
            found = f(*given)
        except (TypeError, ValueError, OverflowError):
            return "refused"
    several = isinstance(found, (tuple, list))
    arrays = map(np.asarray, found if several else (found,))
    # NumPy says nothing of the sign of NaN.
    return [
        (a.dtype, a.shape, a.tobytes() if a.dtype.kind in "?iuO" else _bytes(a))
        for a in arrays
    ]


def _bytes(a: Any) -> bytes:
    return np.where(np.isnan(a), a.dtype.type(np.nan), a).tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [e for part in ALL for e in written(part)])
def test_as_numpy(text: str) -> None:
    names = NAMES.split()
    f = eval(f"lambda {', '.join(names)}: {text}", {"np": np})
    for dtype in some(DTYPES, 1):
        arrays = drawn(dtype)
        given = [arrays[n] for n in names]
        want = result(f, given)
        for backend in some(BACKENDS, 1, dtype):
            assert result(eq.jit(f, backend), given) == want, (dtype, backend)


# -- what is written for real numbers, of complex ones ---------------------------------

GROUPS = {
    name: written(texts) for name, texts in vars(expressions).items() if name.isupper()
}
REAL = "histogram sp. returned=True".split()
"""Parts of expressions that are refused where NumPy or SciPy takes complex numbers:
histograms, of their real parts, functions of SciPy, and an average with its weights."""


def complex_arrays() -> dict[str, Any]:
    """The arrays of those expressions, complex where they were floats of 32 bits."""
    rng = np.random.default_rng(0)
    found = expressions.arrays()
    for name in "xyvm":
        x = found[name]
        found[name] = (x + 1j * rng.standard_normal(x.shape)).astype(np.complex64)
    s = (rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))).astype("c8")
    found["s"] = s @ s.conj().T + 4 * np.eye(3, dtype=np.complex64)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS)
def test_no_expression_of_real_numbers_is_something_else(group: str) -> None:
    import scipy.special as sp

    arrays = complex_arrays()
    known = {"np": np, "sp": sp, "C": np.ones((3, 4), np.float32) / 3}
    for text in GROUPS[group]:
        f = eval(f"lambda {', '.join(arrays)}: {text}", known)
        try:
            want: Any = f(*(a.copy() for a in arrays.values()))
        except (TypeError, ValueError, OverflowError) as error:
            want = error
        try:
            found = traced(f, *arrays.values())
        except eq.EqsatError as error:
            asked = isinstance(want, Exception) or any(part in text for part in REAL)
            assert asked, (text, error)
            continue
        assert not isinstance(want, Exception), (text, want)
        try:
            assert_same(found, want, 2e-5)
        except AssertionError as error:
            error.add_note(text)
            raise


EXTREMES = np.array(
    [0, -0.0, 1, -2.5, 1e200, -1e200, 1e-200, 5e-324, 1e308, np.inf, -np.inf, np.nan]
)
LARGE_AND_SMALL = (EXTREMES[:, None] + np.empty(12, complex)).ravel()
LARGE_AND_SMALL.real, LARGE_AND_SMALL.imag = (
    np.repeat(EXTREMES, 12),
    np.tile(EXTREMES, 12),
)
FUNCTIONS: dict[str, Any] = {
    "abs": lambda z, w: np.abs(z),
    "z*w": lambda z, w: z * w,
    "z*z": lambda z, w: z * z,
    "z**2": lambda z, w: z**2,
    "z**2.0": lambda z, w: z**2.0,
    "power": lambda z, w: np.power(z, 2),
    "1/z": lambda z, w: 1 / z,
    "z**-1": lambda z, w: z**-1,
    "z**-1.0": lambda z, w: z**-1.0,
    "z**.5": lambda z, w: z**0.5,
    "z/w": lambda z, w: z / w,
    "abs(z)**2": lambda z, w: np.abs(z) ** 2,
    "abs(z/w)": lambda z, w: np.abs(z / w),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_whose_squares_are_out_of_range(name: str, backend: str) -> None:
    f = FUNCTIONS[name]
    for dtype in (complex, np.complex64):
        z = LARGE_AND_SMALL.astype(dtype)
        w = np.roll(z, 31)
        np.testing.assert_array_equal(eq.jit(f, backend=backend)(z, w), f(z, w))
