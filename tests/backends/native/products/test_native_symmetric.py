"""Products of a matrix by its own transpose, of which half is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from natives import Array, laid, natively
from programs import program_of
from sizes import examples, seeds

import eqsat as eq
from eqsat.backends.native.lower import CompiledProgram, _layout
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.plan import Group, Layered
from eqsat.backends.native.products import Mirroring
from eqsat.kernels.backend import backend_named

SIZES = (1, 2, 15, 16, 17, 47, 48, 49, 70, 95, 96, 97, 144, 150, 176, 193, 200, 243)
LAYOUTS = "packed fortran reversed strided window".split()
EPS = {"float32": 2.0**-22, "float64": 2.0**-51, "float16": 2.0**-10}


def gram(x: Any) -> Any:
    return x.swapaxes(-1, -2) @ x


def outer(x: Any) -> Any:
    return x @ x.swapaxes(-1, -2)


def drawn(seed: int, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def plan(f: Callable[..., Any], *arrays: Array, threads: int = 1) -> Layered:
    compiled = CompiledProgram(
        program_of(f, *arrays), [*map(_layout, arrays)], host(None, "own"), threads
    )
    return compiled._layered(compiled.places)


def is_halved(f: Callable[..., Any], *arrays: Array) -> bool:
    groups = [g for g in plan(f, *arrays).parts if isinstance(g, Group)]
    steps = [s for g in groups for s in g.steps]
    half = any(s.plan is not None and s.plan.is_half for s in steps)
    assert half == any(isinstance(s.piece, Mirroring) for s in steps)
    return half


def right(got: Array, x: Array, want: Array, k: int) -> None:
    """``got`` is ``want`` within the roundings of ``k`` products, and symmetric to the
    last bit."""
    np.testing.assert_array_equal(got, got.swapaxes(-1, -2))
    scale = np.abs(want).max(initial=0)
    tol = EPS[str(x.dtype)] * max(k, 4) ** 0.5
    np.testing.assert_allclose(got, want, rtol=tol, atol=4 * tol * max(scale, 1))


@examples(60)
@given(
    seeds,
    st.sampled_from(SIZES),
    st.sampled_from([1, 31, 90, 300, 1100]),
    st.sampled_from([(), (3,), (2, 2)]),
    st.sampled_from(["float32", "float64", "float16"]),
    st.sampled_from(LAYOUTS),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([gram, outer]),
)
@example(0, 70, 90, (3,), "float32", "packed", 1, gram)
@example(0, 200, 300, (), "float64", "fortran", 2, outer)
@example(0, 243, 1100, (2, 2), "float32", "packed", 5, gram)
@example(0, 150, 300, (), "float16", "packed", 2, gram)
def test_both_halves_are_those_of_the_product(
    seed: int,
    n: int,
    k: int,
    batch: tuple[int, ...],
    dtype: str,
    layout: str,
    threads: int,
    f: Callable[[Any], Any],
) -> None:
    shape = (*batch, k, n) if f is gram else (*batch, n, k)
    x = laid(drawn(seed, shape, dtype), layout)
    (got,) = natively(f, x, threads=threads, products="own")
    right(got, x, f(x.astype(np.float64)), k)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v2"])
@pytest.mark.skipif(host().is_arm, reason="levels of x86-64")
def test_lesser_machines(cpu: str) -> None:
    if cpu == "x86-64-v3" and not host().flags.issuperset(("avx2", "fma")):
        pytest.skip("no AVX2")
    for f, shape in ((gram, (300, 200)), (outer, (131, 300))):
        x = drawn(0, shape)
        (got,) = natively(f, x, cpu=cpu, products="own")
        right(got, x, f(x.astype(np.float64)), 300)


def test_half_is_computed_where_that_takes_less_time() -> None:
    wide, tall, small = (drawn(0, s) for s in ((200, 300), (900, 200), (40, 20)))
    assert is_halved(outer, wide) and is_halved(gram, tall)
    assert not is_halved(outer, small)
    assert not is_halved(outer, drawn(0, (900, 4)))
    assert not is_halved(lambda x, y: x @ y.T, wide, wide)
    assert not is_halved(lambda x: x[:100] @ x[100:].T, wide)
    assert not is_halved(lambda x: x @ x[::-1].T, wide)
    assert is_halved(lambda x: x[:150] @ x[:150].T, wide)


def test_operands_that_are_another_part_of_one_array() -> None:
    x = drawn(0, (300, 300))
    for f in (
        lambda x: x[:150] @ x[150:].T,
        lambda x: x[:, :150].T @ x[:, 150:],
        lambda x: x @ x,
        lambda x: x[:150] @ x[:150, ::-1].T,
    ):
        (got,) = natively(f, x, products="own")
        np.testing.assert_allclose(got, f(x.astype(float)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_follows_reads_both_halves(threads: int) -> None:
    def kernel(x: Any, y: Any) -> Any:
        squares = (x * x).sum(1)
        return np.exp(-(squares[:, None] + squares - 2 * (x @ x.T)) / 40) @ y

    def softmax(x: Any, y: Any) -> Any:
        return eq.softmax(x @ x.T) @ y

    x, y = drawn(0, (210, 330)), drawn(1, (210, 33))
    for f in (kernel, softmax):
        options = eq.Options(threads=threads)
        got = eq.jit(f, "native", options=options)(x, y)
        want = f(x.astype(np.float64), y)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_numbers_that_are_not_finite_stay_in_their_row_and_column() -> None:
    x = drawn(0, (160, 200))
    x[37, 5], x[140, 7] = np.inf, np.nan
    (got,) = natively(outer, x, products="own")
    with np.errstate(all="ignore"):
        want = outer(x.astype(np.float64))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x @ x.T * 0.5,
        lambda x: x.T @ x / 7.0,
        lambda x: x @ x.T * 0.5 + np.eye(len(x), dtype=np.float32),
    ],
)
def test_no_factor_comes_between_a_matrix_and_its_transpose(
    f: Callable[[Any], Any],
) -> None:
    """A factor of one operand would take less than one of the result, if it did not
    make them differ."""
    x = drawn(0, (350, 120))
    (kernel,) = eq.jit(f, "native").explain(x).kernels
    assert kernel.kind == "contract"
    np.testing.assert_allclose(
        eq.jit(f, "native")(x), f(x.astype(float)), rtol=1e-4, atol=1e-3
    )


def test_other_products_count_whole() -> None:
    def price(f: Callable[..., Any], *arrays: Array) -> float:
        model = backend_named("native").model
        return sum(model.term(k.term) for k in program_of(f, *arrays).kernels)

    x, y = drawn(0, (300, 300)), drawn(1, (300, 300))
    gram_s = price(lambda x: x @ x.T, x)
    assert price(lambda x, y: x @ y.T, x, y) > 1.4 * gram_s
    assert price(lambda x: x @ x, x) > 1.4 * gram_s
