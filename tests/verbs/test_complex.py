"""Complex numbers in programs: writes, lazy arrays, rules, files, promotion, errors."""

from __future__ import annotations

import itertools
import operator
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat.ops import exp

rng = np.random.default_rng(2)
Z = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
X = rng.normal(size=(3, 4))
BACKENDS = ["numpy", "native"]


def same(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


# -- promotion -------------------------------------------------------------------------

DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
NUMBERS = (True, 3, 2.5, 2j)


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "power", "equal"])
def test_dtypes_meet_as_numpy_says(name: str) -> None:
    f = getattr(np, name)
    for a, b in some([*itertools.product(DTYPES, ["c8", "c16"])], 8):
        x, z = np.ones(2, a), np.ones(2, b)
        for pair in ((x, z), (z, x)):
            low = eq.jit(f, "numpy").lower(*pair)
            assert low.program.roots[0].dtype == f(*pair).dtype, (a, b)
    for a, number in itertools.product(DTYPES[5:], NUMBERS):
        x = np.ones(2, a)
        if type(number) is not complex and x.dtype.kind != "c":
            continue
        for g in (lambda x: f(x, number), lambda x: f(number, x)):  # noqa: B023
            assert eq.jit(g, "numpy")(x).dtype == g(x).dtype, (a, number)


def test_numbers_of_numpy_are_strong() -> None:
    z, x = Z.astype(np.complex64), X.astype(np.float32)
    for number in (np.complex128(1j), np.float64(2), np.int64(2), np.complex64(1j)):
        same(eq.jit(lambda z: z * number)(z), z * number)  # noqa: B023
        same(eq.jit(lambda x: (x + 0j) * number)(x), (x + 0j) * number)  # noqa: B023


def test_python_numbers_as_arguments() -> None:
    f = eq.jit(lambda z, c: z * c + c)
    for c in (2j, 3.0, 1, 1 + 1j):
        same(f(Z, c), Z * c + c)


# -- writes ----------------------------------------------------------------------------


def written(z: Any, x: Any) -> Any:
    y = z.copy()
    y.real = x
    y.imag[0] = 2
    y[1, 2] = 5j
    y[2] += x[0] * 1j
    y.real[2, :2] *= 3
    part = y[1:].imag
    part += 1
    y[x > 1] = 1j
    y *= 2
    return y, part, y.T.real


def made(x: Any) -> Any:
    y = np.zeros(x.shape, complex)
    y[:] = x
    y.imag = x * 2
    np.multiply(y, 1j, out=y)
    return y


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes(backend: str) -> None:
    for got, want in zip(eq.jit(written, backend)(Z, X), written(Z, X), strict=True):
        same(got, want)
    same(eq.jit(made, backend)(X), made(X))


def test_a_caller_sees_what_is_written() -> None:
    def change(y: Any) -> None:
        y.imag[:] = 1
        y *= 2j

    got, want = Z.copy(), Z.copy()
    eq.jit(change)(got)
    change(want)
    same(got, want)


def test_a_real_array_takes_no_complex_numbers() -> None:
    def f(x: Any, z: Any) -> Any:
        y = x.copy()
        y += z
        return y

    with pytest.raises(TypeError):
        f(X, Z)
    with pytest.raises(eq.DTypeError, match="complex128"):
        eq.jit(f)(X, Z)


# -- rules -----------------------------------------------------------------------------


def test_no_rule_of_real_numbers_sees_complex_ones() -> None:
    wrong = eq.rule("...", dtypes="any")(lambda x: (exp(x), x * 0.5))
    f = eq.jit(lambda x: np.exp(x), "numpy", rules=[wrong])
    same(f(X), X * 0.5)
    same(f(Z), np.exp(Z))


def test_what_is_real_is_still_fused() -> None:
    def f(x: Any, z: Any) -> Any:
        return np.exp(np.tanh(x) * x + 1) * z

    found = eq.jit(f).explain(X, Z)
    assert len(found.kernels) == 2
    assert "NumPy computes complex numbers" in str(found)


# -- lazy arrays and files -------------------------------------------------------------


def test_lazy_arrays() -> None:
    z, x = eq.array(Z), eq.array(X)
    same(np.exp(z * 2j).sum(0), np.exp(Z * 2j).sum(0))
    same(np.fft.fft(x).imag, np.fft.fft(X).imag)
    same(z.real + abs(z), Z.real + abs(Z))
    assert complex(z[0, 0]) == Z[0, 0]
    assert repr(z[0, 0] * 1) and "j" in repr(z)
    with pytest.raises(TypeError):
        float(z[0, 0])
    same(eq.array([1j, 2]), np.array([1j, 2]))


PROGRAM = """
import sys
import numpy as np
import eqsat as eq
z = np.arange(6).reshape(2, 3) * (1 + 2j)
f = eq.jit(lambda z: np.fft.fft(z[:, ::2] * {number}) + np.linalg.norm(z))
found = f(z)
assert (found == np.fft.fft(z[:, ::2] * {number}) + np.linalg.norm(z)).all()
print("rules" in str(f.explain(z)).partition("compiled in")[2].partition("\\n")[0])
"""


# Programs of real numbers are found by new processes every time.
@pytest.mark.slow
def test_programs_are_kept_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))

    def searched(number: str) -> bool:
        code = PROGRAM.format(number=number)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return "True" in done.stdout

    assert searched("2j")
    assert not searched("2j")
    searched("3j")  # whose values are checked


def test_graphs_and_their_files() -> None:
    g = eq.Graph()
    z = g.input("z", (3, 4), "complex128")
    x = g.input("x", (3, 4), "float64")
    y = g.add("exp", g.add("multiply", [z, x]))
    g.output(g.add("add", [y, g.constant(np.array([1j, 2, 3, 4]))], name="y"))
    again = eq.Graph.from_json(g.to_json())
    assert again.to_json() == g.to_json()
    same(again.run(z=Z, x=X), np.exp(Z * X) + np.array([1j, 2, 3, 4]))
    traced = eq.Graph.from_function(lambda z: np.fft.fft(z.T * 2j, 5), Z)
    text = traced.to_json()
    same(eq.Graph.from_json(text).run(z=Z), np.fft.fft(Z.T * 2j, 5))
    for a, b in (("np.fft.fft", "np.load"), ("'args'", "'file'"), ("': 5", "': -5")):
        with pytest.raises(eq.EqsatError):
            eq.Graph.from_json(text.replace(a, b) if a in text else a)


# -- what is refused -------------------------------------------------------------------

REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda z: eq.softmax(z), "softmax of complex numbers is not supported"),
    (lambda z: eq.rms_norm(z, z), "rms_norm of complex numbers is not supported"),
    (lambda z: np.floor(z), "floor: no loop for dtypes"),
    (lambda z: z // 2, "floor_divide: no loop"),
    (lambda z: np.arctan2(z, 1), "arctan2: no loop"),
    (lambda z: z & z, "bitwise_and: no loop"),
    (lambda z: z[z], "complex128"),
    (lambda z: float(z[0, 0]), "the float value"),
    (lambda z: complex(z[0, 0]), "the complex value"),
    (lambda z: z.view(float), "as another dtype"),
    (lambda z: np.linalg.eig(z.real @ z.real.T), r"np.linalg.eig\(a.astype\(complex\)"),
    (lambda z: z @ z, "matmul"),
    (lambda z: np.linalg.inv(z), "expected square matrices"),
    (lambda z: np.fft.fft(z, norm="other"), "np.fft.fft"),
    (lambda z: np.fft.fft(z, 0), "np.fft.fft"),
    (lambda z: z + np.ones(3), "broadcast"),
    (lambda z: np.histogram(z), "takes no complex numbers"),
    (lambda z: np.isposinf(z), "takes no complex numbers"),
]


@pytest.mark.parametrize(("f", "said"), REFUSED)
def test_refusals(f: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(eq.EqsatError, match=said):
        eq.jit(f)(Z)


@pytest.mark.parametrize("symbol", ["lt", "ge"])
def test_order_is_that_of_numpy(symbol: str) -> None:
    f = getattr(operator, symbol)
    same(eq.jit(f)(Z, Z[::-1]), f(Z, Z[::-1]))


def test_a_cast_to_real_warns_as_numpy_does() -> None:
    f = eq.jit(lambda z: z.astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(f(Z), Z.real)


def test_mlx_has_one_complex_dtype() -> None:
    pytest.importorskip("mlx.core")
    z = Z.astype(np.complex64)
    got = np.asarray(eq.jit(lambda z: np.exp(z) * 2j, "mlx")(z))
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, np.exp(z) * 2j, rtol=1e-6)
    with pytest.raises(eq.BackendError, match="complex64 only"):
        eq.jit(lambda z: z * 2, "mlx")(Z)


# -- memory ----------------------------------------------------------------------------


def layouts(z: Any) -> dict[str, Any]:
    """The elements of ``z`` as they may lie in memory."""
    found = {"packed": z}
    if z.ndim:
        found["reversed"] = z[::-1]
        found["columns"] = np.ascontiguousarray(z.T).T
        found["every other"] = np.repeat(z, 2, -1)[..., ::2]
        found["repeated"] = np.broadcast_to(z, (2, *z.shape))
    for start in (1, 8):  # which is no multiple of the size of an element
        room = np.empty(z.nbytes + start, np.uint8)
        found[f"behind {start}"] = room[start:].view(z.dtype).reshape(z.shape)
        found[f"behind {start}"][...] = z
    return found


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (65,), (33, 65), (3, 1, 5)])
def test_arrays_however_they_lie(shape: tuple[int, ...], dtype: Any) -> None:
    z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    def f(z: Any) -> Any:
        return z, z.copy(), z * 2j, z.imag, np.where(abs(z) > 1, z, 0)

    for threads in (1, 4):
        g = eq.jit(f, options=eq.Options(threads=threads))
        for x in layouts(z).values():
            for got, want in zip(g(x), f(x), strict=True):
                same(got, want)


def test_a_sum_into_a_complex_array() -> None:
    def f(x: Any) -> Any:
        found = np.zeros(4, complex)
        np.sum(x, 0, out=found)
        return found

    same(eq.jit(f)(X.astype(np.float32)), f(X.astype(np.float32)))
