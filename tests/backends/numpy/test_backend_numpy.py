"""The NumPy backend against the references of the ops, with caches of every size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import bodies
import numpy as np
import pytest
from agreement import DTYPES, FLOATS, drawn
from hypothesis import example, given
from hypothesis import strategies as st
from networks import (
    GROUPS,
    NETWORKS,
    NUMPY_ARGUMENTS,
    POINTWISE,
    pointwise_case,
    written,
)
from programs import assert_lowered, assert_near, program_of, small_cache, terms_of
from sizes import examples, seeds

from eqsat import ops
from eqsat.backends.numpy import interpret, lower
from eqsat.backends.numpy.conv import conv2d
from eqsat.kernels.program import Program
from eqsat.ops.contract import conv2d_op
from eqsat.ops.pointwise import cast, where
from eqsat.ops.transcendental import exp, rsqrt, sigmoid, tanh
from eqsat.ops.view import broadcast_to, concatenate, flip, reshape
from eqsat.support.errors import BackendError
from eqsat.terms.make_term import apply
from eqsat.terms.op import Op

rooms = st.sampled_from([1, 64, 256, 1024, 4096, 1 << 20])
quick = examples(20)
rng = np.random.default_rng(0)


def draw(*shape: int, dtype: str = "f4") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


# -- every op --------------------------------------------------------------------------


@pytest.mark.parametrize("name", POINTWISE)
@quick
@given(seeds, st.sampled_from(DTYPES), st.booleans())
def test_pointwise_ops(name: str, seed: int, dtype: Any, strided: bool) -> None:
    case = pointwise_case(name, seed, dtype, strided)
    if case is not None:
        f, arrays = case
        with np.errstate(all="ignore"):
            assert_lowered(f, *arrays)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_numpy_users_write(group: str) -> None:
    arrays, closed_over = [*NUMPY_ARGUMENTS.values()], draw(3, 4)
    for text, done in written(group, closed_over):
        low = lower(Program.of(done.outputs, done.inputs, done.names))
        want = interpret(done.outputs, arrays)
        for g, w in zip(low(*arrays), want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape), text
            assert_near(g, w, 1)
            assert not any(np.may_share_memory(g, a) for a in [*arrays, closed_over])


@pytest.mark.parametrize("name", NETWORKS)
@quick
@given(seeds, st.sampled_from(FLOATS), rooms, st.booleans())
def test_networks(name: str, seed: int, dtype: Any, room: int, special: bool) -> None:
    f, shapes = NETWORKS[name]
    arrays = [drawn(seed + i, s, dtype, special) for i, s in enumerate(shapes)]
    with small_cache(room), np.errstate(all="ignore"):
        assert_lowered(f, *arrays, tol=4)


def test_dequantize_takes_integers_and_halves() -> None:
    q = rng.integers(-8, 8, (6, 12)).astype("i1")
    scale, zero = draw(6, 3, dtype="f2"), rng.integers(-2, 2, (6, 3)).astype("i1")
    with small_cache(64):
        assert_lowered(ops.dequantize, q, scale, zero)


@examples(100)
@given(seeds, st.integers(1, 16), rooms, st.sampled_from(["f4", "f8"]), st.booleans())
@example(30568131, 8, 1, "f4", False)  # memory reused after a reshape in place
def test_kernels_that_nobody_wrote(
    seed: int, count: int, room: int, dtype: str, fused: bool
) -> None:
    """A random body, as one kernel and as a kernel an op."""
    draws = Random(seed)
    shapes = bodies.shapes(draws, 7)
    arrays = [drawn(seed + i, s, np.dtype(dtype), False) for i, s in enumerate(shapes)]
    run: Any = bodies.body(seed, count)
    f = bodies.fused_op("nobodys_body", run, len(arrays)) if fused else run
    with small_cache(room, draws.choice([1, 3, 8])):
        assert_lowered(f, *arrays, tol=10)


@quick
@given(seeds, st.sampled_from([(1, 1), (2, 3)]), st.sampled_from([(0, 0), (2, 1)]))
def test_convolution_is_its_reference(seed: int, stride: Any, padding: Any) -> None:
    x = drawn(seed, (2, 4, 7, 6), np.dtype("f8"), False)
    for groups, size in ((1, (3, 2)), (2, (1, 1)), (4, (2, 3))):
        w = drawn(seed, (4, 4 // groups, *size), np.dtype("f8"), False)
        for dilation in ((1, 1), (2, 1)):
            attrs = {"stride": stride, "padding": padding, "dilation": dilation}
            want = conv2d_op.reference(x, w, groups=groups, **attrs)
            out = np.empty_like(want)
            conv2d(x, w, out, groups=groups, **attrs)
            np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-12)


# -- what is asked of results ----------------------------------------------------------


def test_results_never_share_memory() -> None:
    w = draw(4)

    def f(x: Any, w: Any) -> Any:
        y = tanh(x)
        many = x, x.mT, x[::2], y, y, y.mT, y[1:], flip(y, 0), w, exp(w), x + w
        return *many, broadcast_to(exp(x), (2, 3, 4)), reshape(exp(x).mT, (12,))

    assert_lowered(f, draw(3, 4), constants=[w])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: x[::-1, ::-1],
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["fortran", "strided", "reversed", "broadcast"],
)
def test_inputs_in_any_memory(make: Callable[[np.ndarray], np.ndarray]) -> None:
    x = make(draw(6, 4))
    x.flags.writeable = False

    def f(x: Any) -> Any:
        y = reshape(x, (24,))
        return tanh(y), ops.softmax(x), x @ x.mT, -x, sigmoid(reshape(x, (2, 3, 4)))

    with small_cache(64):
        assert_lowered(f, x)


def test_arrays_without_axes() -> None:
    x = np.array(0.5, np.float32)
    with small_cache(1):
        assert_lowered(lambda x: (tanh(x) * 2.0, x, where(x > 0, x, 1.0)), x)
        assert_lowered(lambda x: ops.sum(x), draw(3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, "bfloat16"])
def test_numbers_have_no_dtype(dtype: Any) -> None:
    """Arithmetic of bare numbers alone must not widen what it meets."""
    import ml_dtypes

    x = draw(3, 4).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def f(x: Any) -> Any:
        graph = x.term.graph
        two = apply(Op.registry["multiply"], graph, [0.5, 4.0], {})
        return type(x)(apply(Op.registry["add"], graph, [x.term, two], {})) * 0.1 + 3

    assert_lowered(f, x)
    assert_lowered(lambda x: cast(rsqrt(abs(x) + 1.0), "f8"), x)


def test_results_in_place_of_dead_values() -> None:
    def f(x: Any, m: Any) -> Any:
        y = where(m, tanh(x), exp(x))
        z = where(x > 0, 1.0, -tanh(y))
        return where(tanh(z) > exp(z), z, sigmoid(z)), concatenate([y, y], 0)

    assert_lowered(f, draw(5, 4), rng.random((5, 4)) > 0.5)


def test_calls_from_many_threads() -> None:
    f = lambda q, k, v: ops.attention(ops.gelu(q), tanh(k), v)  # noqa: E731
    arrays = [[draw(3, 40, 8) for _ in range(3)] for _ in range(8)]
    with small_cache(2000):
        low = lower(program_of(f, *arrays[0]))
    want = [low(*a)[0] for a in arrays]
    start = threading.Barrier(4)

    def run(k: int) -> bool:
        start.wait()
        many = range(k, k + 40)
        return all(
            np.array_equal(low(*arrays[i % 8])[0], want[i % 8], equal_nan=True)
            for i in many
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_no_warnings_where_numpy_would_give_some() -> None:
    x = np.array([0.0, -1.0, 1e30], np.float32)
    assert_lowered(lambda x: (exp(x), 1.0 / x, sigmoid(-x), ops.softmax(x * 1e20)), x)


@pytest.mark.parametrize(
    "x",
    [
        np.float32([-92, -100, -103, -120, -30, 5, 200, np.nan, -np.inf, np.inf]),
        np.float64([-720, -740, -750, -30, 5, 800, np.nan, -np.inf, np.inf]),
    ],
    ids=["f4", "f8"],
)
def test_the_logistic_function_keeps_denormal_results(x: np.ndarray) -> None:
    """1 / (1 + e⁻ˣ) alone gives 0 where e⁻ˣ overflows, below -88 in float32."""
    low = lower(program_of(lambda x: sigmoid(x), x))
    (y,) = low(x)
    np.testing.assert_array_equal(y, sigmoid(x))
    assert 0 < y[1] < np.finfo(x.dtype).smallest_normal


# -- the record and the oracle ---------------------------------------------------------


def test_the_oracle_holds_references_to_their_type() -> None:
    def wrong(x: Any) -> Any:
        return np.asarray(x, np.float64)

    op = Op.registry["tanh"]
    bad = Op("wrong_tanh", "pointwise", op.type_rule, wrong, ("x",))
    roots, _ = terms_of(lambda x: bad(x), [draw(3)])
    with pytest.raises(BackendError, match="wrong_tanh: the reference gave float64"):
        interpret(roots, [draw(3)])
    short = Op("short_tanh", "pointwise", op.type_rule, lambda x: x[:1], ("x",))
    roots, _ = terms_of(lambda x: short(x), [draw(3)])
    with pytest.raises(BackendError, match=r"gave shape \(1,\), not \(3,\)"):
        interpret(roots, [draw(3)])
