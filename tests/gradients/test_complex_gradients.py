"""Gradients through complex numbers, by finite differences in both parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp

import eqsat as eq

LOSSES = """
np.abs(z*w).sum(); (z*w).real.sum(); (z/w).imag.sum(); (z-w*2j).real.var();
np.abs(z**2).sum(); np.abs(z**3).sum(); np.abs(z**-1).sum(); np.abs(z**.5).sum();
np.abs(z**w).sum(); np.abs(2**z).sum(); np.abs(np.exp(z)).sum(); np.log(z).real.sum();
np.sqrt(z).imag.sum(); np.sin(z).real.sum(); np.cos(z).imag.sum(); np.tan(z).real.sum();
np.arcsin(z).real.sum(); np.arccos(z).real.sum(); np.arctan(z).imag.sum();
np.sinh(z).real.sum(); np.cosh(z).imag.sum(); np.tanh(z).real.sum();
np.arcsinh(z).real.sum(); np.arccosh(z).real.sum(); np.arctanh(z).imag.sum();
np.exp2(z).real.sum(); np.expm1(z).imag.sum(); np.log1p(z).real.sum();
np.log2(z).imag.sum(); np.log10(z).real.sum(); np.reciprocal(z).imag.sum();
np.square(z).imag.sum(); z.conj().imag.sum(); np.angle(z).sum();
np.angle(z, True).sum(); (z*z.conj()).real.sum(); np.where(b, z, w*z).real.sum();
(z.real*x + z.imag**2).sum(); (x*1j*z).real.sum(); np.abs(x + 1j*z).sum();
np.exp(1j*x).imag.sum(); (-z).imag.sum(); np.abs(z.astype("c16")).sum();
z.astype(float).sum(); np.abs(x.astype(complex)).sum(); np.abs(z @ w.T).sum();
np.abs(z.T @ z).sum(); np.abs(z @ v).sum(); np.abs(v @ v); np.abs(m @ m @ v).sum();
(x @ z.T).imag.sum(); np.abs(np.vdot(z, w)); np.vdot(v, v).real;
np.abs(np.einsum("ij,kj->ik", z, w)).sum(); np.abs(np.tensordot(z, w, 2));
np.abs(np.vecdot(z, w)).sum(); np.abs(np.outer(v, v)).sum(); np.abs(np.dot(z, m)).sum();
np.abs(np.vecmat(v, m)).sum(); np.abs(np.matvec(m, v)).sum();
np.abs(np.kron(v, v)).sum(); np.abs(z.sum()); np.abs(z.sum(0)).sum();
np.abs(z.mean(1)).sum(); np.abs(z.prod(1)).sum(); z.var(); z.std(0).sum();
z.var(1, ddof=1).sum(); np.abs(z.cumsum(1)).sum(); np.linalg.norm(z);
np.linalg.norm(z, axis=1).sum(); np.linalg.norm(v); np.abs(z[1:, ::2]).sum();
np.abs(z[0] * z[1]).sum(); np.abs(z.T.reshape(2, 6) ** 2).sum();
np.abs(np.concatenate([z, x, w])).sum(); np.abs(np.pad(z, 1)).sum();
np.abs(z[[0, 0]]).sum(); np.abs(np.stack([z, w]) * z).sum();
np.abs(np.broadcast_to(v, (3, 4)) * z).sum(); np.abs(np.roll(z, 1) * z).sum();
np.abs(v[:, None] * v).sum(); np.abs(np.tril(m) @ v).sum();
np.abs(np.linalg.solve(m, v)).sum(); np.abs(np.linalg.solve(m, z.T)).sum();
np.abs(np.linalg.inv(m)).sum(); np.abs(np.linalg.det(m));
np.linalg.solve(m, x[0]).imag.sum(); np.abs(np.fft.fft(z)).sum();
np.abs(np.fft.fft(z, 6, 0)).sum(); np.abs(np.fft.fft(z, 3)).sum();
np.abs(np.fft.ifft(z, norm="ortho")).sum(); np.abs(np.fft.fft(x) * w).sum();
np.abs(np.fft.rfft(x)).sum(); np.abs(np.fft.rfft(x, 7, norm="forward")).sum();
(np.fft.irfft(z)**2).sum(); (np.fft.irfft(z, 5)**3).sum();
(np.fft.irfft(z, 4, 0)**3).sum(); np.abs(np.fft.fft2(z)).sum();
np.abs(np.fft.ifftn(z)).sum(); np.abs(np.fft.rfft2(x)).sum();
(np.fft.irfftn(z)**2).sum(); (np.fft.irfft(np.fft.rfft(x)*v[:3])**2).sum();
np.abs(np.fft.fftshift(z) * w).sum(); np.tanh(np.abs(z) * x).sum();
np.abs(np.fft.rfftn(x, (4, 6))).sum(); np.abs(np.trapezoid(z)).sum();
np.abs(z.imag).sum(); (np.real(z) / np.imag(w)).sum(); (np.sign(z) * w).real.sum();
z[1:].sum().real; z[:, ::-1].sum().imag; np.trace(m).real; z[0].sum().real;
np.abs(z[:, 1:3].sum(1)).sum(); z[::2].sum(0).imag.sum(); z.reshape(-1).sum().real;
z[:, None].sum().imag; np.diagonal(m).sum().real; np.einsum("ii", m).imag;
np.broadcast_to(v, (3, 4)).sum().real; np.fft.fft(x)[1:].sum().real;
np.abs(z[1:].sum(keepdims=True)).sum(); z.T.sum().real; z[1:].mean().real
"""
NAMES = "z w x b m v".split()


def drawn() -> dict[str, Any]:
    rng = np.random.default_rng(11)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    return {
        "z": normal(3, 4),
        "w": normal(3, 4),
        "x": rng.normal(size=(3, 4)),
        "b": rng.random((3, 4)) < 0.5,
        "m": normal(4, 4) + 3 * np.eye(4),
        "v": normal(4),
    }


def difference(f: Callable[..., Any], given: list[Any], i: int, d: Any) -> float:
    """The slope of ``f`` along ``d`` of argument ``i``, by central differences."""
    h = 1e-6
    up, down = ([*given[:i], given[i] + s * h * d, *given[i + 1 :]] for s in (1, -1))
    return float((f(*up) - f(*down)) / (2 * h))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [e.strip() for e in LOSSES.split(";")])
def test_as_differences(text: str) -> None:
    f = eval(f"lambda {', '.join(NAMES)}: {text}", {"np": np})
    given = [drawn()[n] for n in NAMES]
    used = [i for i, n in enumerate(NAMES) if n != "b"]
    found = eq.grad(f, argnums=used, backend="numpy")(*given)
    rng = np.random.default_rng(3)
    for i, g in zip(used, found, strict=True):
        assert (g.dtype, g.shape) == (given[i].dtype, given[i].shape)
        for unit in (1, 1j) if g.dtype.kind == "c" else (1,):
            d = rng.normal(size=g.shape) * unit
            want = difference(f, given, i, d)
            got = float(np.real(np.vdot(g, d)))
            assert got == pytest.approx(want, rel=2e-5, abs=2e-6), (NAMES[i], unit)


REFUSED = """
np.linalg.svdvals(z).sum(); np.linalg.eigvalsh(m).sum(); np.abs(np.sort(v)).sum();
np.abs(z.max()); np.abs(z.cumprod(0)).sum(); np.abs(np.linalg.eigvals(m)).sum();
np.linalg.slogdet(m)[1]; np.linalg.norm(v, 3); np.fft.hfft(v).sum();
np.abs(np.linalg.pinv(z)).sum(); np.abs(np.round(z, 2)).sum()
"""


@pytest.mark.parametrize("text", [e.strip() for e in REFUSED.split(";")])
def test_what_has_no_derivative_is_refused_by_name(text: str) -> None:
    f = eval(f"lambda {', '.join(NAMES)}: {text}", {"np": np})
    given = [drawn()[n] for n in NAMES]
    assert np.isreal(f(*given))
    with pytest.raises(
        eq.TraceError, match=r"grad: .* of complex numbers has no deriv"
    ):
        eq.grad(f, argnums=["z", "m", "v"])(*given)


def test_a_complex_loss_is_refused() -> None:
    with pytest.raises(eq.DTypeError, match="dtype complex128, expected a floating"):
        eq.grad(lambda z: z.sum())(np.ones(3, complex))


def test_a_step_against_the_gradient_lowers_the_loss() -> None:
    z, target = np.array([1 + 2j, -1j]), np.array([0.5j, 2.0])

    def loss(z: Any) -> Any:
        return (np.abs(z - target) ** 2).sum()

    step = eq.value_and_grad(loss)
    before, g = step(z)
    np.testing.assert_allclose(g, 2 * (z - target), rtol=1e-14)
    assert step(z - 0.1 * g)[0] < before


def test_second_derivatives_and_single_precision() -> None:
    z = np.array([1 + 2j, 3 - 1j], np.complex64)

    def loss(x: Any, z: Any) -> Any:
        return np.abs(x * z * z).sum()

    x = np.array([2, -3], np.float32)
    g = eq.grad(loss)(x, z)
    assert g.dtype == np.float32
    np.testing.assert_allclose(g, np.sign(x) * np.abs(z) ** 2, rtol=1e-6)
    twice = eq.grad(lambda x, z: (eq.grad(loss)(x, z) * x**2).sum())(x, z)
    np.testing.assert_allclose(twice, 2 * np.abs(x) * np.abs(z) ** 2, rtol=1e-5)


# -- behind a select -------------------------------------------------------------------

RISKY = """
np.log(z); np.sqrt(z); z**0.3; z**z; 1/z; w/z; np.reciprocal(z); np.arctanh(z+1);
np.arccosh(z+1); np.arcsin(z+1); np.sqrt(np.abs(z)); np.angle(z); np.log(z.real);
np.log(z.imag); z/np.abs(z); np.conj(np.log(z)); np.log(np.abs(z))*z; np.log(-z)*w;
np.log(z*np.ones((2,1,1))).sum(0); np.log(z.T).T; np.log(z)[::-1][::-1];
np.log(z.reshape(-1)).reshape(3, 4); np.log(z)[:, [0, 1, 2, 3]];
np.concatenate([np.log(z)[:1], np.log(z)[1:]]); np.stack([np.log(z), z]).sum(0);
np.pad(np.log(z), 1)[1:-1, 1:-1]; np.roll(np.log(z), 2, 1).take([2, 3, 0, 1], 1);
(np.log(z) + 1j*np.sqrt(z)) / z; np.log(np.log(z) / z); np.log(z).astype("c16")
"""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("text", [e.strip() for e in RISKY.split(";")])
def test_what_a_select_does_not_choose_has_slope_0(text: str, backend: str) -> None:
    """As where the argument is made harmless before the function too."""
    f = eval(f"lambda z, w: {text}", {"np": np})
    z, w = drawn()["z"], drawn()["w"]
    z[0, 1:3] = z[2, 3] = 0
    shown = z != 0

    def loss(z: Any, w: Any, twice: bool) -> Any:
        y = np.where(shown, f(np.where(shown, z, 1 + 2j) if twice else z, w), 2)
        return (np.abs(y) ** 2).sum() + (np.real(y) * np.imag(w)).sum()

    slope = eq.grad(loss, argnums=[0, 1], backend=backend)
    for got, want in zip(slope(z, w, False), slope(z, w, True), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    steep = eq.grad(lambda *a: (np.abs(slope.fn(*a)[0]) ** 2).sum(), backend=backend)
    want = steep(z, w, True)
    np.testing.assert_allclose(steep(z, w, False), want, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_real_numbers_behind_complex_ones() -> None:
    x = np.array([-2.0, 0.0, 0.25, 3.0])
    inverse = np.array([0, 0, 4, 1 / 3])

    def chosen(x: Any, f: Callable[..., Any]) -> Any:
        return np.where(x > 0, f(x + 0j), 0)

    for f, want in (
        (lambda x: np.real(chosen(x, np.log)).sum(), inverse),
        (lambda x: np.where(x > 0, np.real(np.log(x + 0j)), 0).sum(), inverse),
        (lambda x: np.sum(np.log(x + 0j), where=x > 0).real, inverse),
        (lambda x: chosen(x[1:], np.log).real.sum(), inverse),
        (lambda x: chosen(x, np.sqrt).real.sum(), inverse**0.5 / 2),
        (lambda x: chosen(x, np.reciprocal).real.mean(), -(inverse**2) / 4),
        (lambda x: np.where(x.max() < 0, np.log(x @ x + 0j), 0).real, 0 * x),
    ):
        np.testing.assert_allclose(eq.grad(f)(x), want, rtol=1e-14)


def test_what_is_chosen_keeps_its_infinite_slope() -> None:
    x = np.zeros(2)
    with np.errstate(all="ignore"):
        g = eq.grad(lambda x: np.where(x >= 0, np.log(x + 0j), 0).real.sum())(x)
    assert not np.isfinite(g).any()


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_slopes_of_determinants_are_cofactors(backend: str) -> None:
    rng = np.random.default_rng(4)
    full = rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))
    line = np.array([1, 2j, 1 + 1j])
    low = np.stack([line, 2 * line, full[0, 0]])
    several = np.stack([full[0], low, np.outer(line, line), np.zeros((3, 3))])

    def f(a: Any) -> Any:
        return np.linalg.det(a).real.sum()

    for a in (full[1], low, several, np.zeros((1, 1), complex)):
        value, got = eq.value_and_grad(f, backend=backend)(a)
        np.testing.assert_allclose(value, f(a), rtol=1e-14)
        for i in np.ndindex(*a.shape):
            for unit in (1, 1j):  # a determinant is linear in each number
                d = np.zeros_like(a)
                d[i] = unit
                slope = (f(a + d) - f(a - d)) / 2
                assert np.real(np.vdot(d, got)) == pytest.approx(slope, abs=1e-13)


def test_slopes_of_cofactors() -> None:
    m, w = drawn()["m"], drawn()["z"][0]
    first = eq.grad(lambda m: (np.linalg.det(m) * (1 + 2j)).imag).fn

    def loss(m: Any) -> Any:
        return (first(m)[0] * w).real.sum()

    got, plain = eq.grad(loss)(m), eq.jit(loss)
    for unit in (1, 1j):
        d = w[:, None] * w * unit
        want = difference(plain, [m], 0, d)
        assert np.real(np.vdot(got, d)) == pytest.approx(want, rel=1e-7)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        eq.grad(loss)(0 * m)


# -- numbers whose squares are out of range, and branch cuts ---------------------------

FAR = np.array(
    [
        m * a
        for m in (1e-200, 1e-160, 3.0, 1e160, 1e200)
        for a in (1 + 1j, -1 + 0.5j, 1 - 2j)
    ]
)
DERIVATIVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "arcsin": (np.arcsin, lambda z: 1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z))),
    "arccos": (np.arccos, lambda z: -1 / (mp.sqrt(1 - z) * mp.sqrt(1 + z))),
    "arctan": (np.arctan, lambda z: 1 / (1 + z * z)),
    "arcsinh": (np.arcsinh, lambda z: 1 / (mp.sqrt(1 - 1j * z) * mp.sqrt(1 + 1j * z))),
    "arccosh": (np.arccosh, lambda z: 1 / (mp.sqrt(z - 1) * mp.sqrt(z + 1))),
    "arctanh": (np.arctanh, lambda z: 1 / (1 - z * z)),
    "log": (np.log, lambda z: 1 / z),
    "sqrt": (np.sqrt, lambda z: 1 / (2 * mp.sqrt(z))),
    "z/w": (lambda z: z / (3e199 - 4e199j), lambda z: 1 / mp.mpc(3e199, -4e199)),
    "w/z**.5": (lambda z: z**-0.5, lambda z: -(z**-1.5) / 2),
    "abs": (np.abs, lambda z: mp.conj(z) / abs(z)),
    "angle": (np.angle, lambda z: mp.conj(1j * z) / abs(z) ** 2),
}
"""Functions and what their gradient is the conjugate of."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_gradients_of_numbers_far_from_1(name: str, backend: str) -> None:
    f, exact = DERIVATIVES[name]
    got = eq.grad(lambda z: np.real(f(z)).sum(), backend=backend)(FAR)
    with mp.workdps(60):
        want = np.array([complex(mp.conj(exact(mp.mpc(z)))) for z in FAR])
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-307)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_of_minus_one_far_from_1() -> None:
    got = eq.grad(lambda z: (z**-1.0).real.sum())(FAR[-6:])
    np.testing.assert_allclose(got, 0, atol=1e-307)


@pytest.mark.parametrize("function", [np.arcsin, np.arccos, np.arccosh])
def test_gradients_keep_to_the_side_of_a_branch_cut(function: Any) -> None:
    above = np.array([2 + 0j, -2 + 0j])
    for z in (above, above.conj()):
        h = np.where(np.signbit(z.imag), complex(1e-6, -0.0), 1e-6 + 0j)
        want = (function(z + h) - function(z - h.conj())) / 2e-6
        got = eq.grad(lambda z: function(z).real.sum())(z)
        np.testing.assert_allclose(got, want.conj(), atol=1e-8)
