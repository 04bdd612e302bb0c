"""``eq.grad`` and ``eq.value_and_grad``: what they take and give, on all backends."""

from __future__ import annotations

import copy
import doctest
import pickle
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from agreement import BF16

import eqsat as eq
from eqsat import ops
from eqsat.terms.op import Op
from eqsat.terms.op_factories import pointwise

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
V = RNG.normal(size=5)


def same(got: Any, want: Any, tol: float = 1e-12) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got.astype(float), want.astype(float), tol, tol)


def sines(x: Any) -> Any:
    return np.sin(x).sum()


@dataclass
class Layer:
    w: Any
    b: Any
    name: str = "layer"


class Pair(NamedTuple):
    first: Any
    second: Any


# -- what it takes and gives -----------------------------------------------------------


def test_the_docstrings_run() -> None:
    assert doctest.testmod(sys.modules["eqsat.grad"]) == (0, 6)


def test_a_gradient_is_nested_as_its_argument() -> None:
    def loss(p: Any, x: Any) -> Any:
        first, (scale, [shift]) = p["layer"], p["rest"]
        return ((np.tanh(x @ first.w + first.b) * scale) ** 2).sum() + shift * p[
            "pair"
        ][1]

    w, b = RNG.normal(size=(4, 2)), RNG.normal(size=2)
    one, two = np.float64(0.5), np.float32(3)
    p = {
        "layer": Layer(w, b),
        "rest": (one, [two]),
        "pair": Pair(None, two),
    }
    g = eq.grad(loss)(p, X)
    h = np.tanh(X @ w + b)
    back = 2 * h * one**2 * (1 - h * h)
    assert type(g["layer"]) is Layer and g["layer"].name == "layer"
    same(g["layer"].w, X.T @ back)
    same(g["layer"].b, back.sum(0))
    same(g["rest"][0], np.float64(2 * one * (h * h).sum()))
    same(g["rest"][1][0], two)
    assert type(g["pair"]) is Pair and g["pair"].first is None
    same(g["pair"].second, two)


def test_arguments_by_position_and_by_name() -> None:
    def f(x: Any, y: Any, *, z: Any) -> Any:
        return (x * y**2 * z**3).sum()

    x, y, z = V, V + 2, V - 2
    want = [y**2 * z**3, 2 * x * y * z**3, 3 * x * y**2 * z**2]
    same(eq.grad(f)(x, y, z=z), want[0])
    same(eq.grad(f, 1)(x, y, z=z), want[1])
    same(eq.grad(f, 1)(x, y=y, z=z), want[1])
    same(eq.grad(f, "z")(x, y, z=z), want[2])
    same(eq.grad(f, "x")(x, y, z=z), want[0])
    for got, n in zip(eq.grad(f, ("z", 0))(x, y, z=z), (2, 0), strict=True):
        same(got, want[n])
    (only,) = eq.grad(f, [1])(x, y, z=z)
    same(only, want[1])


def test_the_value_comes_with_the_gradient() -> None:
    value, (dx, dy) = eq.value_and_grad(lambda x, y: (x * y).sum(), (0, 1))(V, V + 1)
    same(value, (V * (V + 1)).sum())
    same(dx, V + 1)
    same(dy, V)


def test_decorators() -> None:
    @eq.grad
    def f(x: Any) -> Any:
        """The squares."""
        return (x * x).sum()

    @eq.value_and_grad(argnums=1, backend="numpy")
    def g(x: Any, y: Any) -> Any:
        return (x * y).sum()

    same(f(V), 2 * V)
    same(g(V, V + 1)[1], V)
    assert f.__doc__ == "The squares." and g.backend.name == "numpy"
    assert repr(f) == "<eqsat.jit of grad of f>"


def test_a_jitted_function_it_is() -> None:
    f = eq.grad(sines, constants=["x"])
    assert isinstance(f, eq.Jit)
    low = f.lower(V)
    assert "np.cos" in eq.grad(sines, backend="numpy").lower(V).source("numpy")
    assert low.program.kernels == [] or low.explain().kernels == ()
    again = pickle.loads(pickle.dumps(eq.grad(sines)))
    same(again(V), np.cos(V))
    same(copy.deepcopy(again)(V), np.cos(V))


def test_attributes_of_objects_may_change() -> None:
    class Model:
        scale = 2.0

        def loss(self, x: Any) -> Any:
            return (x * self.scale).sum()

    model = Model()
    f = eq.grad(model.loss)
    same(f(V), np.full(5, 2.0))
    model.scale = 3.0
    same(f(V), np.full(5, 3.0))


def test_arguments_that_do_not_count_have_gradient_zero() -> None:
    dx, dy = eq.grad(lambda x, y: y.sum() * 2, (0, 1))(X.astype("f4"), V)
    same(dx, np.zeros((3, 4), "f4"))
    same(dy, np.full(5, 2.0))
    same(eq.grad(lambda x: np.float64(3))(V), np.zeros(5))
    same(eq.grad(lambda x: x)(np.float32(3)), np.float32(1))
    same(eq.grad(lambda x: x.astype(int).sum() * 1.0)(V), np.zeros(5))


def test_empty_arrays() -> None:
    same(
        eq.grad(lambda x, b: (x + b).sum(), 1)(np.ones((0, 3)), np.ones(3)), np.zeros(3)
    )
    same(eq.grad(lambda x: (x * 2).mean())(np.ones((0, 3))), np.ones((0, 3)))


def test_read_only_arrays_are_constants_and_have_gradients() -> None:
    x = V.copy()
    x.flags.writeable = False
    same(eq.grad(lambda x, y: (x * y).sum(), (0, 1))(x, x)[0], V)


# -- it composes -----------------------------------------------------------------------


def test_gradients_of_gradients() -> None:
    x = np.float64(0.7)
    want = [np.sin, np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v)]
    f: Any = np.sin
    for w in want:
        same(f(x), w(x))
        f = eq.grad(f)


def test_within_traced_functions_and_around_them() -> None:
    inner = eq.jit(sines)
    same(eq.grad(inner)(X), np.cos(X))
    same(eq.jit(eq.grad(inner))(X), np.cos(X))

    @eq.jit
    def step(x: Any, rate: Any) -> Any:
        value, g = eq.value_and_grad(inner)(x)
        return value, x - rate * g

    value, moved = step(X, np.float64(0.1))
    same(value, np.sin(X).sum())
    same(moved, X - 0.1 * np.cos(X))


def test_equal_terms_that_are_closed_over_are_constants() -> None:
    @eq.jit
    def f(x: Any) -> Any:
        y = 2 * x
        return eq.grad(lambda a: (a * y).sum())(y), eq.grad(lambda a: (a * x).sum())(x)

    for got, want in zip(f(V), (2 * V, V), strict=True):
        same(got, want)


def test_perturbations_are_not_confused() -> None:
    x = np.float64(3)
    outer = eq.grad(lambda x: x * eq.grad(lambda y: x + y)(np.float64(1) * x))
    same(outer(x), np.float64(1))
    twice = eq.grad(lambda x: x * eq.grad(lambda y: x * y * y)(x))
    same(twice(x), 6 * x**2)  # x · 2 x · x
    both = eq.grad(lambda x: eq.grad(lambda y: x * y)(x) * eq.grad(lambda y: y * y)(x))
    same(both(x), 4 * x)


def test_an_array_beside_traced_ones() -> None:
    @eq.jit
    def f(y: Any) -> Any:
        return eq.grad(lambda x, y: (x**2 * y).sum())(V, y)

    same(f(V + 1), 2 * V * (V + 1))


# -- dtypes, backends ------------------------------------------------------------------


def network(p: Any, x: Any, t: Any) -> Any:
    h = eq.gelu(eq.layer_norm(x, p["g"], p["b"]) @ p["w"])
    q, k, v = h[..., :8], h[..., 8:16], h[..., 16:]
    y = eq.attention(q, k, v, causal=True) + h[..., :8]
    picked = np.take_along_axis(eq.log_softmax(y), t[..., None], -1)
    return -picked.astype("f4").mean()


def weights(dtype: Any) -> tuple[Any, Array, Array]:
    rng = np.random.default_rng(1)
    p = {"g": 1 + rng.normal(size=6) / 9, "b": rng.normal(size=6) / 9}
    p["w"] = rng.normal(size=(6, 24))
    x, t = rng.normal(size=(2, 5, 6)), rng.integers(0, 8, (2, 5))
    return {n: a.astype(dtype) for n, a in p.items()}, x.astype(dtype), t


ROUNDING = {"f8": 1e-12, "f4": 1e-4, "f2": 3e-2, BF16: 0.2}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_backends_and_dtypes_agree(backend: str, dtype: Any) -> None:
    want_value, want = eq.value_and_grad(network, backend="numpy")(*weights("f8"))
    p, x, t = weights(dtype)
    value, got = eq.value_and_grad(network, backend=backend)(p, x, t)
    same(value, np.asarray(want_value, value.dtype), ROUNDING[dtype])
    for n, g in got.items():
        scale = np.abs(want[n]).max()
        same(
            g / scale.astype(g.dtype), (want[n] / scale).astype(dtype), ROUNDING[dtype]
        )


def test_on_arrays_of_mlx() -> None:
    mx = pytest.importorskip("mlx.core")
    p, x, t = weights("f4")
    value, want = eq.value_and_grad(network)(p, x, t)
    given = {n: mx.array(a) for n, a in p.items()}, mx.array(x), mx.array(t)
    got_value, got = eq.value_and_grad(network)(*given)
    assert isinstance(got_value, mx.array)
    same(got_value, value, 1e-5)
    for n, g in got.items():
        assert isinstance(g, mx.array)
        same(np.array(g), want[n], 1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f2", BF16, "f8"], ids=str)
@pytest.mark.parametrize("backend", ["numpy", "native", "mlx"])
def test_add_at(backend: str, dtype: Any) -> None:
    if backend == "mlx":
        mx = pytest.importorskip("mlx.core")
        if dtype == "f8" and mx.default_device().type == mx.gpu:
            pytest.skip("no GPU of MLX has float64")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 2, 50, 4)).astype(dtype)
    indices = rng.integers(-3, 3, (2, 50))
    want = np.zeros((3, 3, 4))
    for i in np.ndindex(2, 50):
        want[:, indices[i]] += x[:, i[0], i[1]].astype(float)
    f = eq.jit(lambda x, i: ops.add_at(x, i, axis=-2, size=3), backend=backend)
    unit = {"f4": 1e-5, "f8": 1e-13, "f2": 2e-3}.get(dtype, 1e-2)
    same(f(x, indices), want.astype(dtype), unit)
    assert f(x[:, :, :0], indices[:, :0]).shape == (3, 3, 4)


def test_adding_at_indices_out_of_bounds_is_an_error() -> None:
    f = eq.jit(lambda x, i: ops.add_at(x, i, axis=-1, size=3))
    with pytest.raises(IndexError):
        f(np.ones(2), np.array([0, 3]))


# -- what a program computes -----------------------------------------------------------


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def mlp(p: Any, x: Any, t: Any) -> Any:
    return ((eq.gelu(x @ p["w"] + p["b"]) @ p["v"] - t) ** 2).mean()


def cross_entropy(w: Any, x: Any, t: Any) -> Any:
    return -np.take_along_axis(eq.log_softmax(x @ w), t[:, None], 1).mean()


def normed(p: Any, x: Any, t: Any) -> Any:
    return ((eq.layer_norm(x, p["g"], p["b"]) @ p["w"] - t) ** 2).mean()


def block(p: Any, x: Any, t: Any) -> Any:
    batch, seq, dim = x.shape

    def heads(y: Any) -> Any:
        return y.reshape(batch, seq, 4, dim // 4).transpose(0, 2, 1, 3)

    h = eq.layer_norm(x, p["g"], p["c"])
    q, k, v = (heads(h @ p[n]) for n in "qkv")
    y = eq.attention(q, k, v, causal=True).transpose(0, 2, 1, 3)
    x = x + y.reshape(x.shape) @ p["o"]
    h = eq.layer_norm(x, p["e"], p["f"])
    return ((x + eq.gelu(h @ p["w"] + p["b"]) @ p["u"] - t) ** 2).mean()


N, D = 128, 64
VECTORS = {n: normal(i, D) for i, n in enumerate("gcef")}
MLP = {"w": normal(0, D, 4 * D), "b": normal(1, 4 * D), "v": normal(2, 4 * D, D)}
BLOCK = VECTORS | {n: normal(ord(n), D, D) for n in "qkvo"}
BLOCK |= {"w": MLP["w"], "b": MLP["b"], "u": MLP["v"]}
NORMED = {"g": normal(0, D), "b": normal(1, D), "w": normal(2, D, D)}
CLASSES = np.random.default_rng(0).integers(0, 100, N)
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], int, int]] = {
    "mlp": (mlp, (MLP, normal(3, N, D), normal(4, N, D)), 5, 9),
    "cross-entropy": (
        cross_entropy,
        (normal(3, D, 100), normal(4, N, D), CLASSES),
        *(2, 5),
    ),
    "layer norm": (normed, (NORMED, normal(3, N, D), normal(4, N, D)), 3, 7),
    "block": (block, (BLOCK, normal(3, 2, N, D), normal(4, 2, N, D)), 24, 36),
}
"""Losses with arguments; how many products of matrices forward and backward passes by
hand have together; kernels at most."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_computed_twice(name: str) -> None:
    f, args, products, most = PROGRAMS[name]
    explained = eq.value_and_grad(f).explain(*args)
    kinds = [k for k in explained.kernels if k.kind == "contract"]
    assert len(kinds) <= products
    assert len(explained.kernels) <= most


def test_lines_of_a_gradient_are_those_of_the_loss() -> None:
    def loss(x: Any) -> Any:
        return np.tanh(x).sum()

    lines = eq.grad(loss).explain(V).kernels[0].lines
    assert [line.line for line in lines] == [loss.__code__.co_firstlineno + 1]


# -- errors ----------------------------------------------------------------------------


def error_of(kind: type[Exception], f: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        f(*args, **kwargs)
    return str(caught.value).partition("\n  at ")[0]


def vectors(x: Any) -> Any:
    return x * 2


def test_the_loss_is_one_floating_number() -> None:
    says = "grad: 'vectors' returns the loss, which"
    assert error_of(eq.ShapeError, eq.grad(vectors), V) == (
        f"{says} has shape (5,), expected (); return its .sum() or .mean()"
    )

    def counts(x: Any) -> Any:
        return (x > 0).sum()

    says = "grad: 'counts' returns the loss, which"
    assert error_of(eq.DTypeError, eq.grad(counts), V) == (
        f"{says} has dtype int64, expected a floating one"
    )

    def pairs(x: Any) -> Any:
        return x.sum(), x

    says = "grad: 'pairs' returns the loss, which"
    assert error_of(eq.TraceError, eq.grad(pairs), V) == (
        f"{says} is a 'tuple', expected an array of one number"
    )


def test_arguments_are_floats() -> None:
    def loss(p: Any, n: Any = 0) -> Any:
        return p["w"].sum()

    given = {"w": V, "steps": [np.arange(3)]}
    assert error_of(eq.DTypeError, eq.grad(loss), given) == (
        "grad: argument p['steps'][0] has dtype int64, expected a floating one\n"
        "  pass it in an argument that is not in argnums, or as floats: x.astype(float)"
    )
    assert error_of(eq.DTypeError, eq.grad(loss), {"w": V, "rate": 0.5}) == (
        "grad: argument p['rate'] is the Python number 0.5, a part of the program, "
        "expected an array\n"
        "  pass np.float64(0.5) or another dtype, or leave it out of argnums"
    )
    assert error_of(eq.DTypeError, eq.grad(loss, 1), {"w": V}, 3) == (
        "grad: argument n is the Python number 3, a part of the program, expected an "
        "array\n  pass np.float64(3) or another dtype, or leave it out of argnums"
    )
    assert error_of(eq.DTypeError, eq.grad(loss, 1), {"w": V}, ["a", None]) == (
        "grad: argument n holds no array, expected one of floats"
    )

    class Net:
        def __init__(self) -> None:
            self.w = V

    assert error_of(eq.DTypeError, eq.grad(loss), Net()) == (
        "grad: argument p is a 'Net', whose arrays are parts of the program, expected "
        "arrays\n  pass a dict, list, tuple or dataclass of them, or leave it out of "
        "argnums"
    )


def test_argnums_are_arguments() -> None:
    assert error_of(eq.OptionError, eq.grad, sines, argnums=-1) == (
        "grad: argnums=-1, expected a position from 0 on, the name of an argument, or "
        "several of these"
    )
    assert error_of(eq.OptionError, eq.grad, 3) == (
        "grad: expected a function, got 'int'"
    )
    assert error_of(eq.OptionError, eq.grad(sines, "y"), V) == (
        "grad: argnums=('y',): 'y' is not given in the call sines(x)"
    )
    assert error_of(eq.OptionError, eq.grad(sines, 2), V) == (
        "grad: argnums=(2,): 2 is not given in the call sines(x)"
    )
    assert error_of(eq.OptionError, eq.grad(sines, (0, "x")), V) == (
        "grad: argnums=(0, 'x'): 'x' is there twice in the call sines(x)"
    )


def test_an_op_without_a_derivative_is_named_with_the_users_line() -> None:
    def loss(x: Any) -> Any:
        return np.nextafter(x, 3.0).sum()

    with pytest.raises(eq.TraceError) as caught:
        eq.grad(loss)(V)
    line = loss.__code__.co_firstlineno + 1
    assert str(caught.value) == (
        "grad: nextafter has no derivative\n"
        "  write x, from which it differs by one rounding\n"
        f"  at {__file__}:{line}\n     return np.nextafter(x, 3.0).sum()"
    )
    assert error_of(
        eq.TraceError, eq.grad(lambda x: np.maximum.accumulate(x).sum()), V
    ) == (
        "grad: accumulate has no derivative\n"
        "  np.add.accumulate and np.multiply.accumulate have one, not np.maximum"
    )


def test_ops_of_ones_own() -> None:
    try:
        cube = pointwise(
            "test_grad_cube", lambda x: x**3, vjp=lambda g, x, y: g * 3 * x * x
        )
        plain = pointwise("test_grad_plain", lambda x: x**3)
        same(eq.grad(lambda x: cube(x).sum())(V), 3 * V * V)
        assert error_of(eq.TraceError, eq.grad(lambda x: plain(x).sum()), V) == (
            "grad: test_grad_plain has no derivative\n"
            "  define it with vjp=, or as a composite of other ops"
        )
    finally:
        for name in ("test_grad_cube", "test_grad_plain"):
            Op.registry.pop(name, None)
