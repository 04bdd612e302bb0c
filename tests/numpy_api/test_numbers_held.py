"""Numbers that an array cannot hold, and shapes that a result cannot have, are errors
as in NumPy, whatever writes or makes them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import eqsat as eq

NAMES = {
    **{"x": np.arange(6), "u": np.arange(6, dtype="u1"), "f": np.arange(6.0)},
    **{"m": np.arange(6) > 2, "one": np.array(1.0), "np": np},
}
LINES = """
    x[0] = np.float32('nan')
    x[0] = np.float64('inf')
    x[:2] = float('inf')
    x[0] = 1j
    f[:2] = 1j
    m[0] = 1j
    x[...] = np.float64('nan')
    x[[0, 1]] = np.nan
    x.flat[0] = np.float32('nan')
    x.flat[:2] = np.nan
    u[0] = 300
    u[:2] = -1
    u[[0, 1]] = [1, 300]
    u[0] = np.int64(300)
    u.flat[0] = 300
    u.flat[:2] = 300
    x[...] = np.uint64(2**64 - 1)
    x[0] = np.uint64(2**63)
    x[1:] = np.float32(1e30)
    x.fill(np.uint64(2**63))
    x[[0]] = np.uint64(2**63)
    x[m] = np.uint64(2**64 - 1)
    x.flat[0] = np.uint64(2**63)
    x[0] = np.float64(2.5)
    u[0] = np.float64(300.5)
    u.flat[0] = np.float64(300.5)
    x = np.pad(x, 1, constant_values=np.uint64(2**64 - 1))
    u = np.pad(u, 1, constant_values=300)
    u = np.pad(u, 1, constant_values=(np.int64(300), 0))
    x = np.pad(x, 1, constant_values=np.float32('nan'))
    u = np.pad(u, 1, constant_values=7.5)
    x = np.array([x[0], np.float32(1e30)], int)
    u = np.array([u[0], np.float64(7.5)], 'u1')
    u.flat[0] = 300.7
    u.flat[0] = 1.5
    np.put(u, 0, 300)
    np.put(x, [0, 1], np.nan)
    np.putmask(u, m, 300)
    np.place(u, m, 300)
    np.place(x, m, np.nan)
    np.putmask(x, m, np.float32(1.5))
    np.putmask(x, m, np.array(1.5))
    np.putmask(x[:0], m[:0], np.array(1.5))
    np.putmask(x, m, f)
    np.putmask(f, m, x)
    np.place(x, m, f[:1])
    np.place(x, m, np.float32(1.5))
    np.put(x, m, 1)
    np.put(x, np.array([True, False]), 7)
    np.copyto(u, 300)
    u.fill(300)
    x.fill(np.nan)
    u = np.full_like(u, 300)
    u = np.full_like(f, 2**32, dtype='int8')
    u = np.full_like(f[None], -1, 'uint8')
    u = np.full_like(u, 300.7)
    u = np.full_like(u, np.int64(300))
    u = np.full((3,), -1, 'uint8') + u[:3]
    x = np.max(x, initial=np.float16('inf'))
    x = np.min(x.astype('i1'), (), initial=np.float32(1e10))
    u = np.max(u.astype('i1'), initial=np.int64(300))
    x = np.sum(x, initial=np.float32('nan'))
    x = np.prod(u, initial=np.int64(300))
    u = np.max(u, initial=np.float32(7.5))
    f = np.average(np.zeros((0, 3)) + f[0], 1)
    f = np.average(np.zeros((0, 3)) + f[0], 0)
    m = np.full_like(m, 2**63)
    m = np.full_like(x, -2**63 - 1, bool)
    m = np.full((3,), 2**64, bool) & m[:3]
    m = np.logical_and(m, 2**63)
    m = np.logical_or(2**64, x)
    m = np.logical_xor(f, -2**63 - 1)
    m = np.logical_and(u, 300)
    m = np.where(2**64, m, m)
    u = np.int8(x[1]) + u
    x = np.int64(f) + x
    f = np.float64(x) + f
    f[0] = np.float32(f.sum()) / 3
    f[0] = np.half(x[1]) / 3
    m[0] = np.bool_(f[2])
    m[0] = np.bool(f[0])
    u = np.array([u[0], 300], 'u1')
    u = np.array([[u[0]], [-1]], 'u1')
    u = np.array([u[0], np.int64(300)], 'u1')
    u = np.r_[-1, u]
    u = np.r_[u, 300]
    u = np.r_[300.5, u]
    u = np.c_[u, 300]
    u = np.append(u, 300)
    u = np.concatenate([u, [300]])
    m[m] += -2**31
    m[m] += True
    x[m] += 1.5
    x[m] += 2
    u[m] *= 300
    f[m] -= x[0]
    x[m] //= 2
    x[m] |= 1
    u += 300
    x += 1.5
    np.negative(f[:1], out=one)
    np.negative(f[:1], out=f)
    np.negative(f[None], out=f)
    np.add(f[:1], f[:3], out=f[:1])
    f[:3] += f[None, :3]
    f[0:1] += f
    np.add.at(f[:0], 0, 1.0)
    np.add.at(f, 9, 1.0)
    np.add.at(f.reshape(2, 3), (0, 3), 1.0)
    np.maximum.at(f, [0, 6], 1.0)
    np.take_along_axis(f.reshape(2, 3), np.array([[5], [1]]), 1)
""".strip().splitlines()


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
def test_what_an_array_cannot_hold_is_an_error_as_in_numpy(line: str) -> None:
    source = f"def g(x, u, f, m, one):\n    {line}\n    return x, u, f, m, one\n"
    names: dict[str, Any] = {"np": np}
    exec(source, names)
    want, got = outcome(names["g"]), outcome(eq.jit(names["g"]))
    if isinstance(want, Exception):
        named = type(want) | eq.EqsatError
        assert isinstance(got, named), f"NumPy: {want!r}, eqsat: {got!r}"
        return
    assert not isinstance(got, Exception), got
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def outcome(f: Any) -> Any:
    """What ``f`` gives and its arguments, or the error."""
    given = [v.copy() for v in NAMES.values() if isinstance(v, np.ndarray)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (*f(*given), *given)
    except Exception as error:
        return error


def test_elements_under_a_mask_change_for_each_of_their_names() -> None:
    def f(x: Any) -> Any:
        a = x[x > 2]
        b = a
        a *= 10
        return b, a, x

    x = np.arange(6.0)
    for want, got in zip(f(x.copy()), eq.jit(f)(x.copy()), strict=True):
        np.testing.assert_array_equal(want, got, strict=True)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_halves_joined_before_they_are_widened_are_rounded(backend: str) -> None:
    def joined(x: Any) -> Any:
        return np.concatenate([x[:1], x[1:] + 1]).astype("f8")

    def written(x: Any, y: Any) -> Any:
        x = x * 1
        x[..., 1:] += 1
        return (y / 3 * 3 == x).sum(), np.pad(x * 3, 1).astype("f4")

    x = np.array([-1.339, np.inf, 9.998e-02, 0.3333, 1.549, 1.192e-07], "f2")
    y = np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 0]], bool)
    want, got = joined(x), eq.jit(joined, backend=backend)(x)
    np.testing.assert_array_equal(want, got, strict=True)
    for a, b in zip(written(x, y), eq.jit(written, backend=backend)(x, y), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_the_largest_of_nothing_can_be_written_to() -> None:
    def f(y: Any) -> Any:
        top = np.max(y, 0, initial=2)
        top.T[0] = 7
        least = np.minimum.reduce(y, 0, initial=1)
        least[1] = 5
        return top, least

    y = np.zeros((0, 6), int)
    for want, got in zip(f(y), eq.jit(f)(y), strict=True):
        np.testing.assert_array_equal(want, got, strict=True)


@pytest.mark.parametrize("rcond", [np.nan, np.inf, 0, -1, 0.5])
def test_bounds_of_small_singular_values_are_numpys(rcond: float) -> None:
    def f(a: Any) -> Any:
        inverse = np.linalg.pinv(a, rcond=rcond)
        x, _, rank, _ = np.linalg.lstsq(a, a[0], rcond=rcond)
        return inverse, x, rank

    a = np.eye(3) + 0.1
    for want, got in zip(f(a), eq.jit(f)(a), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("f", [lambda b: np.clip(b, None, None), np.gradient])
def test_bools_are_refused_where_numpy_refuses_them(f: Any) -> None:
    bools = np.arange(6) > 2
    with pytest.raises(TypeError):
        f(bools)
    with pytest.raises(eq.EqsatError):
        eq.jit(f)(bools)


def test_numbers_that_a_dtype_does_not_hold_are_overflow_errors() -> None:
    def written(x: Any) -> None:
        x[0] = 300

    for f in (lambda x: x + 300, lambda x: x - -1, written):
        for g in (f, eq.jit(f)):
            with pytest.raises(OverflowError):
                g(np.zeros(3, np.uint8))
