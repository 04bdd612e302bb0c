"""Special functions of generated kernels against float64: errors of all that both
languages say, with products fused into sums and not; what is special of an argument."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given
from hypothesis import strategies as st
from made import Compiler
from metal import model
from sizes import examples

from bench.mathematics.ulp import sample, ulps
from eqsat.backends.gpu.c_code.arithmetic import expression
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.c_code.helpers import header_of
from eqsat.terms.op import Op

pytestmark = pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
Array = np.ndarray[Any, Any]
F32, INF = np.dtype("f4"), np.inf
COUNT = 1 << 16
BOUNDS = {
    **{"cbrt": 1, "hypot": 2, "logaddexp2": 4, "heaviside": 0, "nextafter": 0},
    **dict.fromkeys("erfc erfcx erfinv gammaln i0 i0e i1 i1e".split(), 4),
    **dict.fromkeys("log_ndtr ndtri digamma gamma".split(), 6),
    **{"trigamma": 8, "j0": 8, "j1": 8, "beta": 12, "betaln": 12},
}
"""The largest errors in units in the last place of the result, or of :func:`size`."""
TWO = [n for n in BOUNDS if len(Op.registry[n].params) == 2]


def compiler(fused: bool) -> Compiler:
    """One that fuses products into sums, or does not."""
    flags = "-std=c++17 -O1 -fPIC -w -fno-strict-aliasing".split()
    fuses = "-O2 -mfma -ffp-contract=fast" if fused else "-ffp-contract=off"
    header = (model.HERE / "model.h").read_text(encoding="utf-8")
    return Compiler(str(model.COMPILER), (*flags, *fuses.split()), header)


@cache
def functions(language: str, fused: bool) -> dict[str, Any]:
    """``f(x, y, out, n)`` for each function; y is not read by those of one number."""
    dialect = DIALECTS[language]
    calls = {
        n: expression(n, ["x[i]", "y[i]"][: 1 + (n in TWO)], F32, F32, dialect)
        for n in BOUNDS
    }
    header = header_of(dialect, "\n".join(calls.values()))
    lines = ["namespace {", header, "}"]
    lines += [
        f'extern "C" void run_{n}(const float* x, const float* y, float* out, '
        f"int64_t n) {{ for (int64_t i = 0; i < n; ++i) out[i] = {text}; }}"
        for n, text in calls.items()
    ]
    loaded = ctypes.CDLL(str(compiler(fused).library("\n".join(lines))))
    return {n: getattr(loaded, f"run_{n}") for n in BOUNDS}


def run(name: str, values: Sequence[Array], language: str, fused: bool) -> Array:
    given = [np.ascontiguousarray(v) for v in values]
    out = np.empty_like(given[0])
    pointers = [ctypes.c_void_p(v.ctypes.data) for v in (given[0], given[-1], out)]
    functions(language, fused)[name](*pointers, ctypes.c_int64(out.size))
    return out


WAYS = [("metal", False), ("metal", True), ("cuda", False)]
every_way = pytest.mark.parametrize(("language", "fused"), WAYS)
every_function = pytest.mark.parametrize("name", BOUNDS)


def wanted(name: str, *values: Array) -> Array:
    """In float64; what depends on the format in float32."""
    with np.errstate(all="ignore"):
        if name == "nextafter":
            return np.nextafter(*values).astype(float)
        reference = Op.registry[name].reference
        return np.asarray(reference(*(v.astype(float) for v in values)))


def size(name: str, found: Array, *values: Array) -> Array | None:
    """The magnitude whose last place counts: that of the largest of what is added, and
    of beta times that of its logarithm."""
    x, *rest = (v.astype(float) for v in values)
    found = np.abs(found)
    if name == "gammaln":  # below 0 by reflection
        return np.where(x < 0, np.maximum(found, sp.gammaln(1 - x)), found)
    if name == "digamma":
        steep = np.abs(np.pi / np.tan(np.pi * (x - np.rint(x))))
        return np.where(x < 0, 1 + steep + np.abs(sp.psi(1 - x)), found)
    if name in ("j0", "j1"):
        return np.maximum(found, np.sqrt(2 / (np.pi * np.maximum(np.abs(x), 1))))
    if name == "logaddexp2":
        return np.maximum(np.abs(np.maximum(x, *rest)), 1)
    if name in ("beta", "betaln"):
        most = np.maximum(1, np.abs(sp.betaln(x, *rest)))
        for v in (x, *rest, x + rest[0]):
            part = np.where(np.abs(v) < 16, np.abs(sp.gammaln(v)), 0)
            most = np.fmax(most, part)
        return most if name == "betaln" else found * most
    return None


def assert_close(
    name: str,
    values: Sequence[Array],
    language: str,
    fused: bool,
    bound: float | None = None,
) -> None:
    with np.errstate(all="ignore"):
        want = wanted(name, *values)
        got = run(name, values, language, fused)
        counts = size(name, want, *values)
        if name == "beta":  # whose large units are beyond all numbers of float32
            large = (np.abs(want) > 1e20) & np.isfinite(got)
            small = np.where(large, 2.0**-60, 1)
            got, want, counts = got * small.astype(F32), want * small, counts * small
        errors = ulps(got, want, counts)
    at = int(errors.argmax())
    assert errors[at] <= (BOUNDS[name] if bound is None else bound), (
        [v[at] for v in values],
        f"got {got[at]!r}, expected {want[at]!r}: {errors[at]} units",
    )


def known(name: str, *values: Array) -> list[Array]:
    """Where SciPy in float64 is a reference: its Bessel functions lose the angle of
    large numbers, its beta functions overflow inside of large negative ones."""
    with np.errstate(all="ignore"):
        if name in ("j0", "j1"):
            return [x[~(np.abs(x) > 1e6) | np.isinf(x)] for x in values]
        if name in ("beta", "betaln"):
            least = np.minimum(*values)
            return [v[~(least < -30) | (least == -INF)] for v in values]
    return [*values]


def pairs(seed: int) -> list[Array]:
    """Of all kinds, and moderate ones."""
    rng, x = np.random.default_rng(seed), sample("float32", COUNT // 2, seed)
    with np.errstate(over="ignore"):
        moderate = np.exp(rng.normal(0, 4, (2, COUNT))).astype(F32)
    both = rng.uniform(-30, 30, (2, COUNT)).astype(F32)
    some = zip((x, rng.permutation(x)), moderate, both, strict=True)
    return [np.concatenate(part) for part in some]


@every_way
@every_function
def test_errors_of_samples(name: str, language: str, fused: bool) -> None:
    values = pairs(0) if name in TWO else [sample("float32", COUNT)]
    assert_close(name, known(name, *values), language, fused)


@pytest.mark.sampled(6)
@every_way
@every_function
@examples(25)
@given(st.lists(st.tuples(*[st.floats(width=32)] * 2), min_size=1, max_size=64))
def test_drawn_numbers(
    name: str, language: str, fused: bool, drawn: list[tuple[float, float]]
) -> None:
    values = [np.array(v, F32) for v in zip(*drawn, strict=True)]
    values = known(name, *values[: 1 + (name in TWO)])
    if values[0].size:
        assert_close(name, values, language, fused)


SPECIAL = [0, -0.0, 0.5, -0.5, 1, -1, 2, -2, 3, -3, 8, -8, 36, 1e30, INF, -INF, np.nan]
SPECIAL += [float(np.finfo(F32).tiny), float(np.finfo(F32).smallest_subnormal)]
SPECIAL += [6.6864e-41, -3e-39]


@every_way
@every_function
def test_what_is_special(name: str, language: str, fused: bool) -> None:
    x = np.array(SPECIAL, F32)
    some = [v.ravel() for v in np.meshgrid(x, x)] if name in TWO else [x]
    some = known(name, *some)
    with np.errstate(all="ignore"):
        want = wanted(name, *some).astype(F32)
    got = run(name, some, language, fused)
    rtol = 1e-5 if name == "beta" else 1e-6
    np.testing.assert_allclose(got, want, rtol, atol=1e-37)


@every_way
@pytest.mark.parametrize("name", ["beta", "betaln"])
def test_beta_functions_of_positive_numbers(
    name: str, language: str, fused: bool
) -> None:
    values = [np.abs(v) for v in pairs(1)]
    assert_close(name, values, language, fused, 6)


@every_way
@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_of_large_numbers(
    order: int, language: str, fused: bool
) -> None:
    mp = pytest.importorskip("mpmath")
    x = np.array([1e7, 3.3e9, 1.6e15, 7.7e22, 3e38], F32)
    with mp.workdps(80):
        want = np.array([float(mp.besselj(order, mp.mpf(float(v)))) for v in x])
    got = run(f"j{order}", [x], language, fused)
    assert (ulps(got, want, np.sqrt(2 / (np.pi * x.astype(float)))) <= 8).all()


@every_way
def test_a_sum_and_a_product_are_exact(language: str, fused: bool) -> None:
    """Which all of the others rest on: an optimiser may not take them apart."""
    x = np.array([1e-20, -1e-20, 3e-39], F32)
    assert_close("log_ndtr", [x], language, fused)
    assert_close("erfc", [np.linspace(8, 10.05, 4096, dtype=F32)], language, fused)
