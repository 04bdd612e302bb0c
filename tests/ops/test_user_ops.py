"""Ops of every kind that a user defines in one file: on every backend, in every dtype,
in gradients, in rules, fused with what is around them, and by NumPy where they must
be."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sizes import is_whole, some

import eqsat as eq
from eqsat.define import Axis, composite, op, pointwise, reduction
from eqsat.support import DTypeError, EqsatError, ShapeError, TraceError
from eqsat.terms import Op, ReducedAxes

BEFORE = dict(Op.registry)

# -- ops -------------------------------------------------------------------------------

softsign = pointwise("softsign", lambda x: x / (1 + np.abs(x)))
"""An expression, whose derivative follows."""
cubed = pointwise(
    "cubed", lambda x: x * x * x, vjp=lambda g, x, y: g * 3 * x * x, doc="x³."
)
inside = pointwise("inside", lambda x: (x > -0.5) & (x < 0.5), dtype=bool)
blend = pointwise("blend", lambda x, y: x * y + 0.5 * x, nin=2)


@composite("... -> ...")
def mish(x: Any) -> Any:
    """x tanh(log(1 + eˣ))."""
    return x * np.tanh(np.log1p(np.exp(x)))


def _one_by_one(x: Any) -> Any:
    found = [math.floor(8 * float(v)) for v in np.ravel(x)]
    return np.array(found, x.dtype).reshape(np.shape(x))


stepped = pointwise("stepped", _one_by_one, vjp=(None,))
"""Opaque: numbers of Python, one by one."""


@reduction(combine=np.add, identity=0)
def sum_of_squares(x: Any) -> Any:
    """Σ x²."""
    return x * x


@reduction(combine=np.multiply, identity=1)
def product_of_all(x: Any) -> Any:
    """Π x."""
    return x


@reduction(combine=np.logical_or, identity=False)
def any_below(x: Any) -> Any:
    """Whether an element is less than -½."""
    return x < -0.5


@reduction(combine=np.maximum)
def largest_size(x: Any) -> Any:
    """max |x|."""
    return np.abs(x)


@reduction(combine=np.logaddexp, identity=-np.inf)
def log_add_exp(x: Any) -> Any:
    """log Σ eˣ."""
    return x


@reduction(combine=np.add, identity=0, finish=lambda s, n: np.sqrt(s / n))
def root_mean_square(x: Any) -> Any:
    """√(Σ x² / n)."""
    return x * x


@reduction(combine=lambda x, y: x + y - x * y, identity=0)
def at_least_one(x: Any) -> Any:
    """1 - Π (1 - x²)."""
    return x * x


@reduction(combine=lambda x, y: np.where(x > y, x, y), identity=0, commutative=True)
def largest_positive(x: Any) -> Any:
    """The largest of x and 0, by a choice that no expression shows to commute."""
    return np.maximum(x, 0)


@reduction(combine=lambda x, y: np.where(y != 0, y, x), identity=0)
def last_positive(x: Any) -> Any:
    """The last element above 0, in the order of memory."""
    return np.maximum(x, 0)


@reduction(combine=np.fmax, identity=np.nan)
def largest_number(x: Any) -> Any:
    """The largest element that is a number."""
    return x


@op("... n -> ... 1", kind="reduce")
def opaque_squares(x: Any) -> Any:
    """Σ x², which only NumPy says."""
    return np.sum(x * x, axis=-1, keepdims=True, dtype=x.dtype)


@op(ReducedAxes(np.dtype(np.int64)), kind="reduce")
def first_largest(x: Any, *, axis: Axis) -> Any:
    """Where the first largest element is: two values, so no reduction of one."""
    return np.argmax(x, axis=axis[0], keepdims=True)


@composite("... m n -> ... n m", promotion="common")
def turned_back(x: Any) -> Any:
    """A view: rows as columns, the last first."""
    return x[..., ::-1].mT


@op("... m n -> ... n m", kind="view", vjp=lambda g, x, y: opaque_turned(g))
def opaque_turned(x: Any) -> Any:
    """Rows as columns, which only NumPy says."""
    return np.swapaxes(x, -1, -2)


@composite("... -> ...")
def calm_softmax(x: Any, *, axis: Axis = (-1,)) -> Any:
    """eˣ / (1 + Σ eˣ): of a row."""
    top = np.maximum(np.max(x, axis=axis, keepdims=True), 0)
    e = np.exp(x - top)
    return e / (np.exp(-top) + np.sum(e, axis=axis, keepdims=True))


@op("... n -> ... n", vjp=lambda g, x, y: g * np.arange(x.shape[-1], 0, -1))
def weighted(x: Any) -> Any:
    """An opaque op with a derivative."""
    return (x * np.arange(x.shape[-1], 0, -1)).astype(x.dtype)


@op("..., ... -> ...", vjp=(lambda g, x, y, z: 2 * g, lambda g, x, y, z: g))
def opaque_sum(x: Any, y: Any) -> Any:
    """2 x + y, of bools an integer, which is not what the signature says."""
    return 2 * x + y


@op("... n, ... -> ... n", vjp=(lambda g, x, y, z: g * y, None))
def scaled_rows(x: Any, y: Any) -> Any:
    """A number for each row; a bare one makes float64 of float32."""
    return x * np.asarray(y)[..., None]


OWN = {n: o for n, o in Op.registry.items() if n not in BEFORE}
for _name in OWN:
    del Op.registry[_name]


@pytest.fixture(autouse=True)
def own_ops() -> Iterator[None]:
    """The ops of this file are known while its tests run."""
    before = dict(Op.registry)
    Op.registry.update(OWN)
    yield
    Op.registry.clear()
    Op.registry.update(before)


# -- what they should give -------------------------------------------------------------

Function = Callable[..., Any]
DTYPES = [np.dtype(d) for d in ("f2", ml_dtypes.bfloat16, "f4", "f8")]
BACKENDS = ["native", "numpy", "mlx"]
SHAPE = (3, 5, 7)
OPAQUE = {"stepped", "opaque_squares", "first_largest", "opaque_turned", "weighted"}


def _last(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    axes = sorted(a % x.ndim for a in axes)
    rest = [a for a in range(x.ndim) if a not in axes]
    rows = np.transpose(x, [*rest, *axes]).reshape([x.shape[a] for a in rest] + [-1])
    lines = rows.reshape(-1, rows.shape[-1])
    flat = [[0.0, *(v for v in line if v > 0)][-1] for line in lines]
    kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
    shape = kept if keepdims else [x.shape[a] for a in rest]
    return np.array(flat).reshape(shape)


REDUCTIONS: dict[str, Function] = {
    "sum_of_squares": lambda x, **a: np.sum(x * x, **a),
    "product_of_all": lambda x, **a: np.prod(x, **a),
    "any_below": lambda x, **a: np.any(x < -0.5, **a),
    "largest_size": lambda x, **a: np.max(np.abs(x), **a),
    "log_add_exp": lambda x, **a: np.log(np.sum(np.exp(x), **a)),
    "root_mean_square": lambda x, **a: np.sqrt(np.mean(x * x, **a)),
    "at_least_one": lambda x, **a: 1 - np.prod(1 - x * x, **a),
    "largest_positive": lambda x, **a: np.max(np.maximum(x, 0), **a),
    "last_positive": lambda x, **a: _last(x, a.get("axis"), a.get("keepdims", False)),
    "largest_number": lambda x, **a: np.nanmax(x, **a),
}
ELEMENTWISE: dict[str, Function] = {
    "softsign": lambda x: x / (1 + np.abs(x)),
    "cubed": lambda x: x**3,
    "inside": lambda x: np.abs(x) < 0.5,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "stepped": lambda x: np.floor(8 * x),
}
OTHERS: dict[str, Function] = {
    "opaque_squares": lambda x: np.sum(x * x, axis=-1, keepdims=True),
    "turned_back": lambda x: x[..., ::-1].swapaxes(-1, -2),
    "opaque_turned": lambda x: x.swapaxes(-1, -2),
    "calm_softmax": lambda x: np.exp(x) / (1 + np.exp(x).sum(-1, keepdims=True)),
    "weighted": lambda x: x * np.arange(x.shape[-1], 0, -1),
}
EVERY: dict[str, Function] = {
    **{n: lambda x, f=f: f(x, axis=(-2, -1)) for n, f in REDUCTIONS.items()},
    **ELEMENTWISE,
    **OTHERS,
}


def called(name: str) -> Function:
    """The op as the tests of all kinds call it."""
    own: Any = OWN[name]
    return (lambda x: own(x, axis=(-2, -1))) if name in REDUCTIONS else own


def values(dtype: np.dtype[Any], shape: tuple[int, ...] = SHAPE) -> Any:
    """Numbers of distinct sizes that every dtype holds exactly."""
    rng = np.random.default_rng(7)
    n = math.prod(shape)
    sizes = rng.permutation(n) % 120 + 1
    return (sizes / 128 * rng.choice([-1, 1], n)).astype(dtype).reshape(shape)


def eps(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def assert_near(y: Any, want: Any, dtype: np.dtype[Any], terms: int = 35) -> None:
    """Rounded once to ``dtype``, after so many steps in float32 or float64."""
    want = np.asarray(want)
    assert y.shape == want.shape
    if want.dtype == bool or y.dtype.kind in "bi":
        np.testing.assert_array_equal(y, want)
        return
    assert y.dtype == dtype
    inside_ = eps(dtype) if dtype == np.float64 else eps(np.dtype(np.float32))
    scale = np.maximum(np.abs(want), 1)
    allowed = terms * inside_ * scale + eps(dtype) * np.abs(want)
    found = np.asarray(y).astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(want))
    assert np.all((np.abs(found - want) <= allowed) | np.isnan(want) | (found == want))


@pytest.fixture(autouse=True)
def on_the_cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """MLX runs on the CPU, where alone it has float64."""
    if "mlx" not in request.node.name:
        yield
        return
    mx = pytest.importorskip("mlx.core")
    with mx.stream(mx.cpu):
        yield


def backend_or_skip(backend: str) -> str:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    return backend


# -- kind × backend × dtype ------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EVERY)
def test_an_op_is_its_definition(name: str, backend: str, dtype: np.dtype[Any]) -> None:
    x, f = values(dtype), called(name)
    want = EVERY[name](x.astype(np.float64))
    assert_near(np.asarray(f(x)), want, dtype)
    assert_near(eq.jit(f, backend=backend_or_skip(backend))(x), want, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["sum_of_squares", "product_of_all", "largest_size"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u2"])
def test_integers_stay_integers(name: str, backend: str, dtype: str) -> None:
    x = (np.arange(24).reshape(4, 6) % 5 + 1).astype(dtype)
    f = eq.jit(lambda x: OWN[name](x, axis=-1), backend=backend_or_skip(backend))
    want = REDUCTIONS[name](x.astype(np.int64), axis=-1).astype(dtype)
    assert f(x).dtype == x.dtype
    np.testing.assert_array_equal(f(x), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_arguments_and_numbers_meet(backend: str) -> None:
    x, y = values(np.dtype(np.float32)), values(np.dtype(np.float32), (5, 1))
    f = eq.jit(
        lambda x, y: blend(x, y) + blend(x, 2.0), backend=backend_or_skip(backend)
    )
    assert_near(f(x, y), x * y.astype(float) + 3.0 * x, np.dtype(np.float32))


NUMBERS = (2.5, 3, True, np.float32(2.5), np.int32(3), np.True_, np.array(3), 10**12)
TWO = {"blend": 1, "opaque_sum": 1, "scaled_rows": 0}
"""Ops of two arguments, and whether the first may be a number."""


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
@pytest.mark.parametrize("name", TWO)
def test_numbers_of_any_kind_meet_arrays_alike_on_every_backend(
    name: str, dtype: str
) -> None:
    own: Any = OWN[name]
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for number in NUMBERS[:-1] if dtype in "i4?" else NUMBERS:
        for first in range(1 + TWO[name]):

            def f(x: Any, how: Any = (number, first)) -> Any:
                return own(how[0], x) if how[1] else own(x, how[0])

            want, *others = (
                np.asarray(eq.jit(f, backend=backend_or_skip(b))(x)) for b in BACKENDS
            )
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(want, f(x).astype(want.dtype), rtol=1e-6)
            for y in others:
                assert y.dtype == want.dtype
                np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [2.5, 3, True, np.float32(2.5)])
def test_a_gradient_beside_a_number(backend: str, number: Any) -> None:
    x, n = values(np.dtype(np.float32), (2, 3)), float(number)
    wanted = {"blend": (n + 0.5, n), "opaque_sum": (2, 1)}
    for name, want in wanted.items():
        for first, slope in enumerate(want):

            def f(x: Any, own: Any = OWN[name], first: Any = first) -> Any:
                return (own(number, x) if first else own(x, number)).sum()

            g = eq.grad(f, backend=backend_or_skip(backend))(x)
            assert g.dtype == x.dtype
            np.testing.assert_allclose(g, np.full_like(x, slope), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_op_of_numbers_alone_is_one(backend: str) -> None:
    x = values(np.dtype(np.float32), (2, 3))
    f = eq.jit(lambda x: blend(2.5, 3) * x, backend=backend_or_skip(backend))
    assert_near(f(x), 8.75 * x.astype(float), f.fn(x).dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2"])
def test_a_body_of_another_dtype_is_cast_to_that_of_the_op(
    backend: str, dtype: str
) -> None:
    @composite("..., ... -> ...", promotion="common", recognised=False)
    def one_more(x: Any, y: Any) -> Any:
        """x y + 1: of bools an integer."""
        return x * y + np.ones((), x.dtype) * 1 + np.int64(0)

    x, y = (np.array(v).astype(dtype) for v in ([1, 0, 1], [1, 1, 0]))
    for f in (one_more, lambda x, y: one_more(x + x, y) == one_more(x, y)):
        found = np.asarray(eq.jit(f, backend=backend_or_skip(backend))(x, y))
        want = np.asarray(f(x, y))
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)


# -- gradients -------------------------------------------------------------------------

STEPS = {"inside", "any_below", "first_largest", "opaque_squares"}
"""Those without a derivative."""


def derivative(f: Function, x: Any) -> Any:
    """Of Σ w f(x), by differences."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        found[i] = (loss(f, x + step) - loss(f, x - step)) / 2e-6
    return found


def loss(f: Function, x: Any) -> Any:
    y = f(x)
    w = np.linspace(0.5, 1, math.prod(y.shape)).reshape(y.shape)
    return np.sum(y * w.astype(y.dtype))


@pytest.mark.sampled(32)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [n for n in EVERY if n not in STEPS])
def test_a_gradient_is_that_of_the_definition(
    name: str, backend: str, dtype: np.dtype[Any]
) -> None:
    f, x = called(name), values(dtype)
    g = eq.grad(lambda x: loss(f, x), backend=backend_or_skip(backend))(x)
    wide = x.astype(np.float64)
    want = np.zeros_like(wide)
    if name != "stepped":
        want = derivative(EVERY[name], wide)
    assert g.dtype == dtype
    scale = np.maximum(np.abs(want), 1)
    assert np.all(np.abs(g.astype(np.float64) - want) <= 8 * eps(dtype) * scale + 1e-7)


@pytest.mark.parametrize(
    "rule",
    [
        *(lambda g, x, y: 2, lambda g, x, y: np.float32(2), lambda g, x, y: 2.0),
        *(lambda g, x, y: np.full((2, 3), 2.0), lambda g, x, y: np.int8(2) * (x == x)),
        lambda g, x, y: np.array(2),
    ],
)
def test_a_rule_may_give_any_number_or_array(rule: Function) -> None:
    x = values(np.dtype(np.float32), (2, 3))
    own = op("... -> ...", vjp=rule, name="twice_each")(lambda x: 2 * x)
    try:
        g = eq.grad(lambda x: own(x).sum())(x)
    finally:
        del Op.registry["twice_each"]
    assert g.dtype == x.dtype
    np.testing.assert_array_equal(g, np.full_like(x, 2))


@pytest.mark.parametrize("found", [(1.0,), [1.0, 2.0], 1j, {}], ids=str)
def test_another_result_of_a_rule_is_an_error_that_names_it(found: Any) -> None:
    own = op("... -> ...", vjp=lambda g, x, y: found, name="twice_ill")(lambda x: 2 * x)
    message = rf"twice_ill: vjp gives a '?{type(found).__name__}'? for argument 'x', "
    with pytest.raises(TraceError, match=message):
        eq.grad(lambda x: own(x).sum())(np.ones(3))


@pytest.mark.parametrize("rules", [lambda g, x, y, z: g, (None,), (None, None, None)])
def test_as_many_rules_as_arguments(rules: Any) -> None:
    count = len(rules) if isinstance(rules, tuple) else 1
    message = rf"ill_ruled: vjp has {count} rules?, expected 2, for x and y"
    with pytest.raises(EqsatError, match=message):
        op("..., ... -> ...", vjp=rules, name="ill_ruled")(lambda x, y: x + y)
    with pytest.raises(EqsatError, match=message):
        pointwise("ill_ruled", lambda x, y: x + y, nin=2, vjp=rules)
    assert "ill_ruled" not in Op.registry


def test_no_derivative_is_an_error_that_names_the_op() -> None:
    with pytest.raises(TraceError, match="opaque_squares has no derivative"):
        eq.grad(lambda x: np.sum(opaque_squares(x)))(np.ones(3))


# -- axes ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_are_numpys(name: str, backend: str) -> None:
    x, dtype = values(np.dtype(np.float64)), np.dtype(np.float64)
    for axis in some((-1, 0, 1, (0, 2), (1, 2), None), 2):
        for keepdims in some((False, True), 1, axis):

            def f(x: Any, how: Any = (axis, keepdims)) -> Any:
                return OWN[name](x, axis=how[0], keepdims=how[1])

            want = REDUCTIONS[name](x, axis=axis, keepdims=keepdims)
            found = eq.jit(f, backend=backend_or_skip(backend))(x)
            assert_near(np.asarray(found), want, dtype, 105)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_axes_and_no_elements(backend: str) -> None:
    backend_or_skip(backend)
    x = values(np.dtype(np.float32))
    none = eq.jit(lambda x: sum_of_squares(x, axis=()), backend=backend)
    np.testing.assert_array_equal(none(x), x * x)
    empty = np.zeros((3, 0, 4), np.float32)
    wanted = {"sum_of_squares": 0, "product_of_all": 1, "any_below": False}
    wanted |= {"log_add_exp": -np.inf, "root_mean_square": np.nan}
    wanted |= {"at_least_one": 0, "last_positive": 0, "largest_number": np.nan}
    for name, want in wanted.items():
        f = eq.jit(lambda x, own=OWN[name]: own(x, axis=1), backend=backend)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(f(empty), np.full((3, 4), want))
        assert OWN[name](empty, axis=0).shape == (0, 4)
        assert f(np.zeros((0, 3), np.float32)).shape == (0,)
    with pytest.raises(ShapeError, match=r"largest_size.*no identity"):
        eq.jit(lambda x: largest_size(x, axis=1), backend=backend)(empty)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_one_element_is_reduced_too(name: str, backend: str) -> None:
    x, dtype = values(np.dtype(np.float32), (6, 1)), np.dtype(np.float32)
    f = eq.jit(lambda x: OWN[name](x, axis=1), backend=backend_or_skip(backend))
    assert_near(f(x), REDUCTIONS[name](x.astype(float), axis=1), dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["log_add_exp", "at_least_one", "last_positive"])
def test_memory_may_lie_in_any_way(name: str, backend: str) -> None:
    dtype = np.dtype(np.float32)
    whole = values(dtype, (12, 14))
    f = eq.jit(lambda x: OWN[name](x, axis=-1), backend=backend_or_skip(backend))
    for x in (whole[::2, ::-1], whole.T, whole[:, 3:9], whole[::-3].T):
        want = REDUCTIONS[name](x.astype(np.float64), axis=-1)
        assert_near(f(x), want, dtype)


# -- values that are no numbers --------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [5, 64, 1001])
def test_nan_goes_where_combine_takes_it(backend: str, size: int) -> None:
    backend_or_skip(backend)
    x = np.random.default_rng(3).uniform(-1, 1, (4, size)).astype(np.float32)
    x[1, size // 2], x[2, -1], x[3, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        for name in ("log_add_exp", "sum_of_squares", "largest_size", "largest_number"):
            f = eq.jit(lambda x, own=OWN[name]: own(x, axis=1), backend=backend)
            joined: Any = {
                "log_add_exp": np.logaddexp.reduce,
                "sum_of_squares": lambda x, axis: np.sum(x * x, axis=axis),
                "largest_size": lambda x, axis: np.max(np.abs(x), axis=axis),
                "largest_number": np.fmax.reduce,
            }[name]
            want = joined(x.astype(np.float64), axis=1)
            assert np.array_equal(np.isnan(f(x)), np.isnan(want)), name
            finite = np.isfinite(want)
            np.testing.assert_allclose(f(x)[finite], want[finite], rtol=size * 6e-8)
            np.testing.assert_array_equal(f(x)[~finite], want[~finite])


# -- in larger kernels -----------------------------------------------------------------

FUSING = [n for n in REDUCTIONS if n != "last_positive"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FUSING)
def test_a_reduction_fuses_with_what_is_around_it(name: str, threads: int) -> None:
    own, dtype = OWN[name], np.dtype(np.float32)

    def f(x: Any) -> Any:
        h = np.tanh(x) * 0.75
        return h * own(h, axis=-1, keepdims=True) + 1.0

    def wanted(x: Any) -> Any:
        h = np.tanh(x) * 0.75
        return h * REDUCTIONS[name](h, axis=-1, keepdims=True) + 1.0

    fast = eq.jit(f, options=eq.Options(threads=threads))
    for shape in ((4, 9), (64, 200), (3, 5000)):
        x = values(dtype, shape)
        want = wanted(x.astype(np.float64))
        assert_near(fast(x), want, dtype, 8 * shape[-1])
        low = fast.lower(x)
        assert len(low.program.kernels) == 1
        assert not low.executable.reasons  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    "shape,axis", [((1 << 18,), 0), ((4096, 96), 0), ((2048, 33), -1)]
)
def test_many_elements_are_shared(
    name: str, threads: int, shape: tuple[int, ...], axis: int
) -> None:
    dtype = np.dtype(np.float64)
    x = np.random.default_rng(5).uniform(-0.9, 0.9, shape) / shape[axis] ** 0.5
    fast = eq.jit(
        lambda x: OWN[name](x, axis=axis), options=eq.Options(threads=threads)
    )
    want = REDUCTIONS[name](x, axis=axis)
    assert_near(np.asarray(fast(x)), want, dtype, 4 * shape[axis])


@pytest.mark.parametrize("name", ["softsign", "cubed", "mish"])
def test_an_expression_makes_no_calls_of_numpy(name: str) -> None:
    x = values(np.dtype(np.float32), (64, 48))
    low = eq.jit(lambda x: np.exp(OWN[name](x * 2)) + 1).lower(x)
    assert len(low.program.kernels) == 1
    assert not low.executable.reasons  # type: ignore[attr-defined]
    assert "_reference" not in low.source("numpy")


@pytest.mark.parametrize("language", ["cuda", "metal"])
def test_what_a_gpu_does_not_know_is_said(language: str) -> None:
    for shape in ((64, 48), (8, 1 << 16), (1 << 16, 8)):
        x = values(np.dtype(np.float32), shape)
        for axis in (0, 1):
            low = eq.jit(lambda x, a=axis: log_add_exp(x, axis=a)).lower(x)
            text = low.source(language)
            assert "reduction 'log_add_exp_fold' on a GPU" in text


def test_a_view_and_a_row_op_fuse() -> None:
    x = values(np.dtype(np.float32), (64, 48))
    low = eq.jit(lambda x: turned_back(np.exp(x)) * 2).lower(x)
    assert len(low.program.kernels) == 1 and not low.executable.reasons  # type: ignore[attr-defined]
    low = eq.jit(lambda x: calm_softmax(x * 2, axis=-1) + 1).lower(x)
    assert len(low.program.kernels) == 1 and not low.executable.reasons  # type: ignore[attr-defined]


# -- by NumPy --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(OPAQUE))
def test_what_cannot_fuse_is_said(
    name: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = values(np.dtype(np.float32), (40, 30)) / 8
    own: Any = OWN[name]
    how = {"axis": -1} if name == "first_largest" else {}

    def f(x: Any) -> Any:
        return np.exp(own(np.tanh(x), **how) * 0.5)

    fast = eq.jit(f, backend=backend_or_skip(backend))
    caplog.set_level(logging.INFO, "eqsat")
    found = fast(x)
    want = np.exp(own(np.tanh(x), **how) * 0.5)
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=64 * eps(np.dtype(np.float32)))
    text = str(fast.explain(x))
    assert f"apart: {name}: only a NumPy function says what it computes" in text
    if backend != "numpy":
        assert f"runs as NumPy: {name}: only a NumPy function" in text
        said = [r.getMessage() for r in caplog.records]
        assert any(t.startswith(f"{backend}: {name}") for t in said), said
        assert any("only a NumPy function says" in t for t in said), said
    assert len(fast.lower(x).program.kernels) == 3


@pytest.mark.parametrize("backend", ["native", "mlx"])
def test_what_a_backend_does_not_know_falls_back(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A primitive of each kind that claims to be one of the catalogue's."""
    planted: list[Any] = [
        Op(
            name="planted_reduce",
            kind="reduce",
            type_rule=ReducedAxes(),
            reference=lambda x, axis: np.sum(x * x, axis=axis, keepdims=True),
            params=("x",),
            attrs={"axis": "Axis"},
        ),
        eq.terms.pointwise("planted_map", lambda x: np.floor(x * 3)),
    ]
    backend_or_skip(backend)
    caplog.set_level(logging.INFO, "eqsat")
    x = np.array([[1.0, 2, 3], [4, 5, 6]], np.float32)
    for own, how in zip(planted, ({"axis": -1}, {}), strict=True):
        fast = eq.jit(
            lambda x, own=own, how=how: own(x + 1, **how) * 2, backend=backend
        )
        np.testing.assert_array_equal(fast(x), own(x + 1, **how) * 2)
        assert any(own.name in r.getMessage() for r in caplog.records), own.name
        assert own.name in str(fast.explain(x))


# -- rules -----------------------------------------------------------------------------


def rules() -> dict[str, Any]:
    @eq.rule("...")
    def odd_softsign(x: Any) -> Any:
        """softsign(-x) = -softsign(x)."""
        return softsign(-x), -softsign(x)

    @eq.rule("... n")
    def scaled_squares(x: Any) -> Any:
        """Σ (2x)² = 4 Σ x²."""
        return (
            sum_of_squares(x * 2.0, axis=-1, keepdims=True),
            sum_of_squares(x, axis=-1, keepdims=True) * 4.0,
        )

    @eq.rule("... n")
    def shifted_logarithm(x: Any) -> Any:
        """log Σ e^(x + 1) = 1 + log Σ eˣ."""
        return (
            log_add_exp(x + 1.0, axis=-1, keepdims=True),
            log_add_exp(x, axis=-1, keepdims=True) + 1.0,
        )

    @eq.rule("... m n")
    def turned_twice(x: Any) -> Any:
        """Turned twice is not turned."""
        return opaque_turned(opaque_turned(x)), x

    @eq.rule("... m n")
    def weighted_twice(x: Any) -> Any:
        """w (x + x) = 2 w x."""
        return weighted(x + x), weighted(x) * 2.0

    @eq.rule("... n")
    def doubled_softmax(x: Any) -> Any:
        """A row op: of ½ (x + x) it is that of x."""
        return calm_softmax((x + x) * 0.5, axis=-1), calm_softmax(x, axis=-1)

    made = (odd_softsign, scaled_squares, shifted_logarithm)
    made += (turned_twice, weighted_twice, doubled_softmax)
    return {r.name: r for r in made}


RULES: dict[str, Function] = {
    "odd_softsign": lambda x: softsign(-x),
    "scaled_squares": lambda x: sum_of_squares(x * 2.0, axis=-1, keepdims=True),
    "shifted_logarithm": lambda x: log_add_exp(x + 1.0, axis=-1, keepdims=True),
    "turned_twice": lambda x: opaque_turned(opaque_turned(x)),
    "weighted_twice": lambda x: weighted(x + x),
    "doubled_softmax": lambda x: calm_softmax((x + x) * 0.5, axis=-1),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_speaks_of_it(name: str) -> None:
    rule = rules()[name]
    whole = is_whole()
    assert eq.check([rule], examples=100 if whole else 10, lints=whole).ok
    x = values(np.dtype(np.float64), (6, 5))
    fast = eq.jit(RULES[name], rules=eq.RuleSet((rule,)))
    np.testing.assert_allclose(fast(x), RULES[name](x), rtol=1e-12)
    assert fast.explain(x).rules[name].fired > 0


def test_a_wrong_rule_about_it_is_refuted() -> None:
    @eq.rule("... n")
    def wrong(x: Any) -> Any:
        """Σ (2x)² is not 2 Σ x²."""
        return (
            sum_of_squares(x * 2.0, axis=-1, keepdims=True),
            sum_of_squares(x, axis=-1, keepdims=True) * 2.0,
        )

    assert not eq.check([wrong]).ok


# -- definitions that cannot be right --------------------------------------------------


def test_numbers_refute_a_wrong_definition() -> None:
    def of(**how: Any) -> Any:
        def own(x: Any) -> Any:
            return x

        return reduction(**how)(own)

    with pytest.raises(EqsatError, match="not associative"):
        of(combine=np.subtract, identity=0)
    with pytest.raises(EqsatError, match="not left as it is by 0"):
        of(combine=np.logaddexp, identity=0.0)
    with pytest.raises(EqsatError, match="not commutative"):
        of(combine=lambda x, y: np.where(y != 0, y, x), identity=0, commutative=True)
    with pytest.raises(EqsatError, match="takes neither"):
        of(combine=lambda x, y: x.no_such_thing(y), identity=0)


@pytest.mark.parametrize(
    "combine, identity",
    [
        (np.maximum, -5),
        (np.maximum, -1e30),
        (np.minimum, 1e9),
        (np.fmax, -1e9),
        (np.logaddexp, -80.0),
        (np.maximum, lambda d: np.finfo(d).min),
        (np.maximum, lambda d: -1 if d.kind == "i" else -np.inf),
        (lambda x, y: np.where(x > y, x, y), -1e6),
    ],
)
def test_an_identity_that_is_none_at_the_ends_of_a_dtype_is_refuted(
    combine: Any, identity: Any
) -> None:
    with pytest.raises(EqsatError, match=r"own: combine does not leave .* as it is by"):

        @reduction(combine=combine, identity=identity)
        def own(x: Any) -> Any:
            return x


@pytest.mark.parametrize(
    "combine, identity",
    [
        (np.hypot, 0),
        (lambda x, y: x + y - x * y, 0),
        (lambda x, y: np.log(np.exp(x) + np.exp(y)), -np.inf),
        (np.maximum, lambda d: np.iinfo(d).min if d.kind == "i" else -np.inf),
        (np.maximum, 0),
        (np.bitwise_or, 0),
    ],
)
def test_an_identity_is_one_but_for_overflow_on_the_way(
    combine: Any, identity: Any
) -> None:
    @reduction(combine=combine, identity=identity)
    def own(x: Any) -> Any:
        return np.abs(x) if combine is np.hypot or identity == 0 else x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::-1],
        lambda x: np.roll(x, 1),
        lambda x: x - x.max(),
        lambda x: x / x.sum(),
        lambda x: np.cumsum(x),
        lambda x: np.sort(x),
        lambda x: x + x[0],
        lambda x: x * x.shape[0],
        lambda x: x * np.array([1.0, 2.0], np.float32),
        lambda x: np.where((x != 0).any(), x, x + 1),
        lambda x, y: x * y[::-1],
        lambda x, y: (x @ y) * x,
    ],
)
def test_what_reads_other_elements_is_not_pointwise(function: Any) -> None:
    with pytest.raises(EqsatError, match=r"pointwise own: .* than of each alone"):
        pointwise("own", function)


def test_an_identity_that_the_dtype_lacks_is_an_error() -> None:
    x = np.arange(6).reshape(2, 3)
    with pytest.raises(DTypeError, match="log_add_exp: combine of two int64 gives"):
        eq.jit(lambda x: log_add_exp(x, axis=-1))(x)
    with pytest.raises(
        DTypeError, match="largest_number: its identity nan is no int64"
    ):
        eq.jit(lambda x: largest_number(x, axis=-1))(x)


def test_a_dtype_that_is_not_said_is_an_error() -> None:
    with pytest.raises(EqsatError, match="of float32 elements it gives bool"):
        pointwise("unsaid", lambda x: x > 0)
    with pytest.raises(EqsatError, match="kind='kernel', expected library"):
        op("... -> ...", kind="kernel")


def test_an_identity_may_follow_the_dtype() -> None:
    @reduction(
        combine=lambda x, y: np.where(x < y, x, y),
        identity=lambda d: np.inf if d.kind == "f" else np.iinfo(d).max,
        commutative=True,
    )
    def smallest(x: Any) -> Any:
        """min x."""
        return x

    for x in (
        values(np.dtype(np.float32)),
        np.arange(-9, 9, dtype=np.int16).reshape(3, 6),
    ):
        fast = eq.jit(lambda x: smallest(x, axis=-1))
        np.testing.assert_array_equal(fast(x), x.min(-1))
        assert not fast.lower(x).executable.reasons


# checking/test_op_checks.py checks ops of files every time, and rules speak of ops
# above.
@pytest.mark.slow
def test_one_file_is_enough(tmp_path: Path) -> None:
    """A file of rules that defines its own op, as a user would write it."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from eqsat import rule\n"
        "from eqsat.define import reduction\n\n\n"
        "@reduction(combine=np.add, identity=0, finish=lambda s, n: s / n)\n"
        "def mean_square(x):\n"
        '    """Σ x² / n."""\n'
        "    return x * x\n\n\n"
        '@rule("... n")\n'
        "def scaled(x):\n"
        '    """Σ (3x)² / n = 9 Σ x² / n."""\n'
        "    y = mean_square(x * 3.0, axis=-1, keepdims=True)\n"
        "    return y, mean_square(x, axis=-1, keepdims=True) * 9.0\n",
        encoding="utf-8",
    )
    found = eq.load_rules(tmp_path / "mine.py")
    whole = is_whole()
    assert eq.check(found, examples=100 if whole else 10, lints=whole).ok


def test_an_op_of_eqsat_is_not_replaced_by_one_of_numpys_functions() -> None:
    """Nor that of another module; a module may define its own anew."""
    stock = Op.registry["exp"]
    with pytest.raises(EqsatError, match="op 'exp' is already defined in eqsat"):
        pointwise("exp", np.cbrt)
    assert Op.registry["exp"] is stock
    pointwise("defined_twice", np.cbrt)
    later = pointwise("defined_twice", np.exp2)
    assert eq.jit(lambda x: later(x))(np.array([3.0])) == [8.0]
    other: dict[str, Any] = {"__name__": "another"}
    text = "def define(pointwise, f): pointwise('defined_twice', f)"
    exec(compile(text, "another.py", "exec"), other)
    with pytest.raises(EqsatError, match="'defined_twice' is already defined in"):
        other["define"](pointwise, np.cbrt)
