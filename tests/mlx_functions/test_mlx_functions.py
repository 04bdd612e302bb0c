"""Functions and models of MLX, converted: what they compute, hold and refuse."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest

import eqsat as eq

mx = pytest.importorskip("mlx.core")
nn = pytest.importorskip("mlx.nn")
optimizers = pytest.importorskip("mlx.optimizers")

EPS = 2.0**-23
WITHOUT_CROSS_ENTROPY = pytest.mark.skipif(
    mx.default_device().type == mx.gpu, reason="MLX exports no CrossEntropy of GPUs"
)


def near(found: Any, want: Any, exact: Any) -> None:
    """Check that a result is as near to the true one as some times MLX's own."""
    with mx.stream(mx.cpu):  # which alone has float64
        found, want, exact = (
            np.array(x.astype(mx.float64)) for x in (found, want, exact)
        )
    allowed = 4 * np.abs(want - exact).max() + 8 * EPS * np.abs(exact).max()
    assert np.abs(found - exact).max() <= allowed


def in_float64(module: Any, *args: Any) -> Any:
    """What a module gives in float64, in which it then is."""
    with mx.stream(mx.cpu):
        module.apply(lambda x: x.astype(mx.float64))
        return module(*(a if a is None else a.astype(mx.float64) for a in args))


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    """Grouped queries with rotary embedding."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, size = heads, shared, width // heads
        self.scale = size**-0.5
        self.q = nn.Linear(width, heads * size, bias=False)
        self.k = nn.Linear(width, shared * size, bias=False)
        self.v = nn.Linear(width, shared * size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.rope = nn.RoPE(size)

    def __call__(self, x: Any) -> Any:
        b, n, _ = x.shape
        q = self.q(x).reshape(b, n, self.heads, -1).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(b, n, self.shared, -1).transpose(0, 2, 1, 3)
        v = self.v(x).reshape(b, n, self.shared, -1).transpose(0, 2, 1, 3)
        y = mx.fast.scaled_dot_product_attention(
            self.rope(q), self.rope(k), v, scale=self.scale, mask="causal"
        )
        return self.o(y.transpose(0, 2, 1, 3).reshape(b, n, -1))


class Decoder(nn.Module):  # type: ignore[misc, name-defined]
    """A block of Llama."""

    def __init__(self, width: int = 32, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, shared)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(nn.silu(self.gate(y)) * self.up(y))


# -- models ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [None, "native"])
@pytest.mark.parametrize("model", ["encoder", "decoder"])
def test_a_transformer_is_one_program(model: str, backend: str | None) -> None:
    mx.random.seed(0)
    module = Decoder() if model == "decoder" else nn.TransformerEncoder(2, 32, 4)
    rest = () if model == "decoder" else (None,)
    function = eq.from_mlx(module, backend=backend)
    given = [mx.random.normal(shape) for shape in ((2, 5, 32), (1, 8, 32))]
    found = [function(x, *rest) for x in given]
    want = [module(x, *rest) for x in given]
    for x, one, other in zip(given, found, want, strict=True):
        assert isinstance(one, mx.array)
        near(one, other, in_float64(module, x, *rest))
    report = function.report()
    assert report.programs == 2 and report.fallbacks == ()
    first, _ = function.explain()
    assert "attention" in str(first)


@pytest.mark.parametrize("backend", [None, "native", "numpy"])
def test_bfloat16(backend: str | None) -> None:
    mx.random.seed(0)
    module = Decoder()
    module.set_dtype(mx.bfloat16)
    x = mx.random.normal((2, 5, 32)).astype(mx.bfloat16)
    found, want = eq.from_mlx(module, backend=backend)(x), module(x)
    exact = in_float64(module, x)
    assert found.dtype == mx.bfloat16
    with mx.stream(mx.cpu):
        error = mx.abs(found.astype(mx.float64) - exact).max()
        assert error <= 2 * mx.abs(want.astype(mx.float64) - exact).max()


def test_a_function_with_branches_and_slices() -> None:
    @functools.partial(mx.compile, shapeless=True)
    def bent(x: Any) -> Any:
        return mx.where(x > 0, x, mx.exp(x) - 1)

    def function(tree: Any, *, scale: Any, power: int = 2) -> Any:
        x, (y, z) = tree["x"], tree["more"]
        x = bent(x[:, 1:] - x[:, :-1]) ** power
        return {"a": [x * scale, y[::-1]], "b": (z, None, power)}

    fast = eq.from_mlx(function, backend="native")
    mx.random.seed(0)
    x, y = mx.random.normal((3, 6)), np.arange(4.0)
    for power in (2, 3):
        given = {"x": x, "more": (y, mx.array(3))}
        found = fast(given, scale=mx.array(2.0), power=power)
        want = function({**given, "more": (mx.array(y), mx.array(3))}, scale=2.0)
        want["a"][0] = 2 * bent(x[:, 1:] - x[:, :-1]) ** power
        np.testing.assert_allclose(found["a"][0], want["a"][0], rtol=8 * EPS)
        np.testing.assert_array_equal(found["a"][1], want["a"][1])
        assert found["b"][0].item() == 3 and found["b"][1:] == (None, power)
    assert fast.report().programs == 2 and fast.report().fallbacks == ()


def test_gradients_go_in_and_out() -> None:
    mx.random.seed(0)
    x, w = mx.random.normal((5, 4)), mx.random.normal((4, 3))

    def loss(w: Any, x: Any) -> Any:
        y = mx.fast.layer_norm(x @ w, None, None, 1e-5)
        best = mx.stop_gradient(mx.argmax(y, axis=1, keepdims=True))
        picked = mx.take_along_axis(y, best, axis=1)
        return (mx.logsumexp(y, axis=1) - picked[:, 0] + mx.max(y)).sum()

    with mx.stream(mx.cpu):
        exact = mx.grad(loss)(w.astype(mx.float64), x.astype(mx.float64))
    exported = eq.from_mlx(mx.grad(loss))
    near(exported(w, x), mx.grad(loss)(w, x), exact)
    assert exported.report().programs == 1 and exported.report().fallbacks == ()
    near(mx.grad(eq.from_mlx(loss))(w, x), mx.grad(loss)(w, x), exact)

    def stopped(x: Any) -> Any:
        return (mx.stop_gradient(x) * mx.tanh(x)).sum()

    def function(x: Any) -> Any:
        return (x * mx.tanh(x)).sum()

    for one in (stopped, function):
        fast = eq.from_mlx(one, x)
        np.testing.assert_array_equal(mx.grad(fast)(x), mx.grad(one)(x))
        exported = eq.from_mlx(mx.grad(one))
        found, want = exported(x), mx.grad(one)(x)
        np.testing.assert_allclose(found, want, rtol=64 * EPS, atol=8 * EPS)

    rows = mx.vmap(eq.from_mlx(lambda x: mx.softmax(x) * 2))(x)
    np.testing.assert_allclose(rows, mx.softmax(x, axis=-1) * 2, rtol=8 * EPS)


# -- what modules hold -----------------------------------------------------------------


def test_weights_that_are_replaced_become_arguments() -> None:
    layer, x = nn.Linear(4, 3), mx.ones((2, 4))
    function = eq.from_mlx(lambda x: layer(x) * 2)
    function(x)
    for _ in range(3):
        layer.weight = layer.weight * 2
        np.testing.assert_allclose(function(x), layer(x) * 2, rtol=8 * EPS)
        (explanation,) = function.explain()  # made anew once
    layer.bias = mx.ones((1, 3))
    np.testing.assert_allclose(function(x), layer(x) * 2, rtol=8 * EPS)
    del explanation


@WITHOUT_CROSS_ENTROPY
def test_training_goes_on_in_one_program() -> None:
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    other = copy.deepcopy(model)
    x, y = mx.random.normal((16, 4)), mx.array([0, 1] * 8)

    def step_of(model: Any) -> Any:
        def loss(x: Any, y: Any) -> Any:
            return nn.losses.cross_entropy(model(x), y, reduction="mean")

        return nn.value_and_grad(model, loss)

    fast, slow = eq.from_mlx(step_of(model)), step_of(other)
    one, two = optimizers.SGD(0.1), optimizers.SGD(0.1)
    losses = []
    for _ in range(4):
        (found, gradient), (want, expected) = fast(x, y), slow(x, y)
        one.update(model, gradient)
        two.update(other, expected)
        losses.append(found.item())
        assert abs(found.item() - want.item()) <= 64 * EPS
    assert losses == sorted(losses, reverse=True)
    assert fast.report().programs == 1 and fast.report().fallbacks == ()


@WITHOUT_CROSS_ENTROPY
def test_a_step_of_training_writes_to_model_and_optimizer() -> None:
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    other = copy.deepcopy(model)
    x, y = mx.random.normal((16, 4)), mx.array([0, 1] * 8)

    def step_of(model: Any) -> Any:
        optimizer = optimizers.Adam(optimizers.cosine_decay(0.1, 9))

        def loss(x: Any, y: Any) -> Any:
            return nn.losses.cross_entropy(model(x), y, reduction="mean")

        gradient = nn.value_and_grad(model, loss)

        def step(x: Any, y: Any) -> Any:
            found, by_weights = gradient(x, y)
            optimizer.update(model, by_weights)
            return found

        return step

    fast, slow = eq.from_mlx(step_of(model)), step_of(other)
    for _ in range(4):
        assert abs(fast(x, y).item() - slow(x, y).item()) <= 256 * EPS
    # the first step makes the optimizer's arrays, in MLX; the others are one program
    assert fast.report().programs == 1 and fast.report().fallbacks == ()
    for name in ("weight", "bias"):
        found, want = model.layers[0][name], other.layers[0][name]
        # Adam's steps are as large for small gradients, whose last bits are roundings
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)


def test_what_a_call_writes_to_modules_is_there_after_it() -> None:
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), nn.Dropout(0.3))
    other = copy.deepcopy(model)
    function = eq.from_mlx(model)
    x = mx.random.normal((16, 4))
    for _ in range(3):
        mx.random.seed(7)
        found = function(x)
        mx.random.seed(7)
        np.testing.assert_allclose(found, other(x), rtol=64 * EPS, atol=64 * EPS)
        for name in ("running_mean", "running_var"):
            mean, want = model.layers[1][name], other.layers[1][name]
            np.testing.assert_allclose(mean, want, rtol=8 * EPS, atol=8 * EPS)
    assert function.report().programs == 1 and function.report().fallbacks == ()
    model.eval(), other.eval()
    np.testing.assert_allclose(function(x), other(x), rtol=64 * EPS, atol=64 * EPS)


class Total(nn.Module):  # type: ignore[misc, name-defined]
    """A module that some calls write to."""

    def __init__(self) -> None:
        super().__init__()
        self.total = mx.zeros(())

    def __call__(self, x: Any, *, adds: bool) -> Any:
        if adds:
            self.total = self.total + x
        return x * 0 + self.total


class Owner:
    """An object that is no module, and has one."""

    def __init__(self) -> None:
        self.parts = [Total()]

    def step(self, x: Any, adds: bool) -> Any:
        return self.parts[0](x, adds=adds)


def test_what_one_signature_writes_another_reads() -> None:
    module, owner = Total(), Owner()
    for function in (eq.from_mlx(module), eq.from_mlx(owner.step)):
        found = [function(mx.array(2.0), adds=k % 2 == 1) for k in range(6)]
        assert [x.item() for x in found] == [0, 2, 2, 4, 4, 6]
        assert function.report().fallbacks == ()
    assert module.total.item() == owner.parts[0].total.item() == 6


class Counting(nn.Module):  # type: ignore[misc, name-defined]
    """Modules whose calls change what they hold in ways that no program has."""

    def __init__(self, grows: bool) -> None:
        super().__init__()
        if grows:
            self.seen = mx.zeros((0, 3))

    def __call__(self, x: Any) -> Any:
        if "seen" in self:
            self.seen = mx.concatenate([self.seen, x])
        else:
            self.first = x * 1
        return x + 1


@pytest.mark.parametrize("grows", [False, True])
def test_modules_that_grow_stay_in_mlx(grows: bool) -> None:
    module = Counting(grows)
    function = eq.from_mlx(module)
    for n in range(1, 4):
        function(mx.full((1, 3), n))
        fallbacks = {f.op for f in function.report().fallbacks}
        assert fallbacks == ({"the whole function"} if grows or n == 1 else set())
    held = module.seen if grows else module.first
    np.testing.assert_array_equal(held[-1], np.full(3, 3.0))
    assert held.shape == ((3, 3) if grows else (1, 3))


# -- random numbers --------------------------------------------------------------------


def test_random_numbers_are_those_of_mlx() -> None:
    def function(x: Any, key: Any) -> Any:
        y = x + mx.random.uniform(shape=x.shape)
        return y + mx.random.normal((3, 5), key=key), mx.random.randint(0, 9, (7,))

    fast = eq.from_mlx(function)
    x, key = mx.zeros((3, 5)), mx.random.key(11)
    function(x, key)
    for _ in range(2):
        mx.random.seed(5)
        want = [function(x, key), function(x, key)]
        mx.random.seed(5)
        found = [fast(x, key), fast(x, key)]
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one[0], other[0], rtol=8 * EPS)
            np.testing.assert_array_equal(one[1], other[1])
    assert fast.report().programs == 1 and fast.report().fallbacks == ()


def test_a_function_that_sets_the_seed_stays_in_mlx() -> None:
    def function(x: Any) -> Any:
        mx.random.seed(3)
        return x + mx.random.uniform(shape=x.shape)

    fast = eq.from_mlx(function)
    np.testing.assert_array_equal(fast(mx.ones(3)), function(mx.ones(3)))
    (fallback,) = fast.report().fallbacks
    assert fallback.op == "random.seed"


# -- what is refused -------------------------------------------------------------------


class Cache:
    """What holds an array outside of modules."""

    def __init__(self) -> None:
        self.k = mx.zeros(2)


def test_objects_that_hold_arrays_are_left_to_mlx() -> None:
    def function(x: Any, cache: Cache) -> Any:
        cache.k = cache.k + x
        return cache.k * 2

    cache = Cache()
    fast = eq.from_mlx(function)
    fast(mx.ones(2), cache), fast(mx.ones(2), cache)
    np.testing.assert_array_equal(cache.k, [2, 2])
    assert "an argument is Cache" in fast.report().fallbacks[0].reason


def call(module: Any, x: Any) -> Any:
    """A function that is given its module."""
    return module(x)


def test_errors_say_what_is_wrong() -> None:
    layer = nn.Linear(4, 3)
    function = eq.from_mlx(layer, mx.ones((2, 4)))
    for x in (mx.ones((2, 5)), mx.ones((2, 5))):
        with pytest.raises(ValueError, match=r"\(2,5\)"):
            function(x)
    with pytest.raises(TypeError, match="positional argument"):
        function(mx.ones((2, 4)), mx.ones((2, 4)))
    assert function.report().fallbacks == ()
    with pytest.raises(eq.DTypeError, match="an argument has dtype object"):
        function(np.ones((2, 4), object))
    with pytest.raises(eq.EqsatError, match="an argument of call is Linear, a module"):
        eq.from_mlx(call)(layer, mx.ones((2, 4)))
    with pytest.raises(eq.TraceError, match="cannot be called in a traced function"):
        eq.jit(lambda x: function(x))(np.ones((2, 4)))
    with pytest.raises(eq.EqsatError, match=r"expected a function .*, got int"):
        eq.from_mlx(3)  # type: ignore[arg-type]
    with pytest.raises(eq.OptionError, match="no option 'bakend'; did you mean"):
        eq.from_mlx(layer, bakend="numpy")
    with pytest.raises(eq.BackendError, match="no backend 'nope'"):
        eq.from_mlx(layer, backend="nope")


def test_results_are_arrays_of_their_own() -> None:
    weight = mx.arange(3)
    fast = eq.from_mlx(lambda x: (x, weight, x * 0 + weight))
    x = mx.ones(3)
    for _ in range(2):
        same, constant, total = fast(x)
        np.testing.assert_array_equal(constant, [0, 1, 2])
        np.testing.assert_array_equal(total, [0, 1, 2])
        assert same is x
        constant[0], total[0] = 9, 9


def test_float64_of_numpy_is_float32_as_in_mlx() -> None:
    fast = eq.from_mlx(lambda x: x + 1)
    assert fast(np.ones(2)).dtype == mx.array(np.ones(2)).dtype == mx.float32
    assert fast(np.ones(2, np.int8)).dtype == mx.int8
