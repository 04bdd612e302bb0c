"""Kernels as cuts of the e-graph: what is fused, what cannot be, and at what price."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pricing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat import ops
from eqsat.demo import block
from eqsat.demo.minilm import softmax
from eqsat.egraph.snapshot import Budget

line = import_module("eqsat.search.optimise")  # also the name of its function

Array = np.ndarray[Any, Any]


def draw(*shape: int, seed: int = 0, dtype: str = "f4") -> Array:
    rng = np.random.default_rng((seed, *shape))
    return rng.uniform(0.5, 1.5, shape).astype(dtype)


def lowered(f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The program of ``f``, whose values are NumPy's and whose prices add up."""
    fast = eq.jit(f, options=eq.Options(**options))
    got, want = fast(*args), f(*args)
    pairs = (
        [(got, want)] if not isinstance(want, tuple) else zip(got, want, strict=True)
    )
    for a, b in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5)
    low = fast.lower(*args)
    assert not pricing.disagreements(
        low.program.kernels,
        low.optimised.prices_s,
        low.model.device,
        low.model.target,
    )
    return low


def count(f: Callable[..., Any], *args: Any, **options: Any) -> int:
    return len(lowered(f, *args, **options).program.kernels)


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: np.tanh(x),
    lambda x, y: x * y,
    lambda x, y: x + 0.25,
    lambda x, y: np.maximum(x, y),
    lambda x, y: y - x,
    lambda x, y: np.sqrt(x * x + 1),
    lambda x, y: np.where(x > y, x, -y),
    lambda x, y: np.exp(-x),
]


@pytest.mark.parametrize("length", [2, 3, 5, 8, 16, 32, 48])
def test_a_chain_of_pointwise_ops_is_one_kernel(length: int) -> None:
    rng = np.random.default_rng(length)
    picks = rng.integers(0, len(STEPS), length)

    def f(x: Any, y: Any) -> Any:
        for i in picks:
            x = STEPS[i](x, y)
        return x

    assert count(f, draw(33, 65), draw(65)) == 1


def test_sixty_four_ops_in_a_chain_are_one_kernel() -> None:
    def f(x: Any) -> Any:
        for _ in range(32):
            x = np.tanh(x) + 0.5
        return x

    (kernel,) = lowered(f, draw(7, 9)).explain().kernels
    assert kernel.kind == "map" and kernel.ops == ("tanh", "add") * 32


X, Y, ROW, SQUARE = draw(24, 40), draw(24, 40, seed=1), draw(40), draw(24, 24)
W, B = draw(40, 56) / 40, draw(56)


ONE: list[tuple[str, str, Callable[..., Any], tuple[Array, ...]]] = [
    ("diamond", "map", lambda x: np.sin(x) * np.cos(x) + x, (X,)),
    ("broadcast rows", "map", lambda x, r: np.exp(x + r) * r, (X, ROW)),
    ("transposed", "map", lambda x: np.exp(np.tanh(x).T + 1), (X,)),
    ("sliced", "map", lambda x: np.tanh(x)[2:9, ::3] * 2, (X,)),
    ("reshaped", "map", lambda x: np.exp((x * 2).reshape(12, 80)) + 1, (X,)),
    ("joined", "map", lambda x, y: np.concatenate([x * 2, y + 1], 1) * 3, (X, Y)),
    ("softmax by hand", "row", lambda x: softmax(x * 0.5 + 1), (X,)),
    ("over rows", "row", lambda x: (x - x.mean(0)) / x.std(0), (X,)),
    ("over all", "row", lambda x, y: ((x - y) ** 2).mean(), (X, Y)),
    ("several axes", "row", lambda x: x / np.abs(x).max((0, 1), keepdims=True), (X,)),
    ("epilogue", "contract", lambda x, w, b: np.tanh(x @ w + b) * 2, (X, W, B)),
    ("row epilogue", "contract", lambda x, w, b: softmax(x @ w + b), (X, W, B)),
    ("two uses", "contract", lambda x, w: (x @ w) / (1 + np.exp(-(x @ w))), (X, W)),
    ("prologue", "contract", lambda x, w: softmax(x) @ w, (X, W)),
    ("attention", "attention", lambda q, k, v: softmax(q @ k.T) @ v, (X, Y, X)),
]


@pytest.mark.parametrize(
    ("kind", "f", "args"), [c[1:] for c in ONE], ids=[c[0] for c in ONE]
)
def test_one_kernel(kind: str, f: Callable[..., Any], args: tuple[Array, ...]) -> None:
    (kernel,) = lowered(f, *args).program.kernels
    assert kernel.kind == kind


def of_two(f: Callable[..., Any], *args: Array) -> list[str]:
    low = lowered(f, *args)
    assert len(low.program.kernels) > 1
    return [k.kind for k in low.program.kernels]


def test_what_no_kernel_holds_is_two() -> None:
    of_two(lambda x: softmax(x) + softmax(x).T, SQUARE)
    of_two(lambda x: softmax(softmax(x).T), SQUARE)
    of_two(lambda x, w: (x @ w).sum(0), X, W)
    of_two(lambda x: x / x.sum(-1, keepdims=True) / x.sum(0, keepdims=True), X)
    of_two(lambda x, w: (x @ w) @ w.T, X, W)
    of_two(lambda x, w: np.tanh(x @ w) @ w.T, X, W)


SEVERAL: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
    ("siblings", lambda x: (np.sin(x), np.cos(x)), (X,)),
    ("four siblings", lambda x: (x + 1, x * 2, np.exp(x), np.tanh(x)), (X,)),
    ("a value needed twice", lambda x, y: (x + y, softmax(x + y)), (X, Y)),
    ("statistics too", lambda x: (x - x.mean(-1, keepdims=True), x.std(-1)), (X,)),
    ("before the epilogue", lambda x, w: (x @ w, np.maximum(x @ w, 0)), (X, W)),
]


@pytest.mark.parametrize(("f", "args"), [c[1:] for c in SEVERAL], ids=lambda c: "")
def test_one_kernel_of_several_results(
    f: Callable[..., Any], args: tuple[Array, ...]
) -> None:
    (kernel,) = lowered(f, *args).program.kernels
    assert len(kernel.results) == len(f(*args))


def test_several_results_of_every_layout_and_size() -> None:
    def f(x: Any, y: Any) -> Any:
        h = x * 2 + y
        return h, np.exp(h - h.max(-1, keepdims=True)), h.mean(-1, keepdims=True)

    fast = eq.jit(f)
    big = draw(300, 500)
    for x in (big, big[::-1, ::2], big.T, big[:1], big[:, :1], big[:0], big[0]):
        for got, want in zip(fast(x, x), f(x, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
            assert got.flags.owndata or got.base is None or got.flags.writeable


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_several_results_of_every_dtype(dtype: str) -> None:
    def f(x: Any) -> Any:
        h = x + 1
        return h, h / h.sum(-1, keepdims=True)

    x = draw(20, 30, dtype=dtype)
    tol = {"f2": 2e-3, "f4": 1e-5, "f8": 1e-12}[dtype]
    for got, want in zip(eq.jit(f)(x), f(x), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tol)


# -- options ---------------------------------------------------------------------------


def test_fusion_can_be_off_for_everything_a_kind_or_small_sizes() -> None:
    def f(x: Any, w: Any) -> Any:
        return np.tanh(np.exp(x) @ w + 1) * 2

    assert count(f, X, W) == 1
    assert count(f, X, W, fusion=False) == 5
    kinds = [k.kind for k in lowered(f, X, W, kinds={"map", "row"}).program.kernels]
    assert sorted(kinds) == ["contract", "map", "map"]
    assert count(f, X, W, least_elements=24 * 56 + 1) == 5
    assert count(f, X, W, least_elements=24 * 56) == 1
    assert count(f, X, W, backends={"native": {"fusion": False}}) == 5
    assert count(f, X, W, backends={"mlx": {"fusion": False}}) == 1


def test_a_rule_file_can_be_off() -> None:
    f = eq.jit(lambda x: x * 2 * 3, options=eq.Options(disable={"scalars.py"}))
    assert not set(f.explain(X).rules) & {
        r.name for r in eq.default_rules() if r.file.endswith("scalars.py")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": {"rows"}}, "kinds='rows': expected one of 'map', 'row'"),
        ({"kinds": "row"}, "kinds='row': expected a set of kinds of kernels"),
        ({"least_elements": -1}, "least_elements=-1: expected a whole number"),
        ({"backends": {"native": {"fuse": 1}}}, "backends['native']: no option 'fuse'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(eq.OptionError) as caught:
        eq.jit(lambda x: x + 1, options=eq.Options(**options))(X)
    assert message in str(caught.value)


def test_exact_numerics_fuse_what_rounds_the_same() -> None:
    options = eq.Options(numerics="exact")

    def f(x: Any) -> Any:
        return (x * 0.1) * 0.3 + np.sqrt(x)

    fast = eq.jit(f, options=options)
    assert len(fast.lower(X).program.kernels) == 1
    assert np.array_equal(fast(X), f(X))
    half = X.astype("f2")
    assert len(fast.lower(half).program.kernels) == 4
    assert np.array_equal(fast(half), f(half))


# -- cost ------------------------------------------------------------------------------

RECOGNITION = frozenset(
    r.name for r in eq.default_rules() if r.phase in ("recognise", "fuse")
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("layers", [1, 2])
def test_blocks_cost_the_same_without_recognition(norm: str, layers: int) -> None:
    """The cuts find norm, softmax, attention and epilogue kernels by themselves."""
    model, x, _ = block.draw(block.Config(layers=layers, norm=norm, seq=64, dim=192))
    costs = []
    for disable in (frozenset[str](), RECOGNITION):
        options = eq.Options(disable=disable)
        costs.append(eq.jit(model.forward, options=options).lower(x).optimised.cost_s)
    assert costs[1] == pytest.approx(costs[0], rel=0.05)


@examples(15)
@given(st.integers(0, 2**32 - 1))
def test_random_graphs_are_right_and_cost_what_their_bodies_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = [(int(rng.integers(6)), rng.integers(0, 1 << 30, 2)) for _ in range(14)]

    def f(x: Any, y: Any, w: Any) -> Any:
        values = [x, y]
        for kind, (i, j) in plan:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(
                [
                    lambda a=a, b=b: np.tanh(a) + b,
                    lambda a=a, b=b: a * b * 0.5,
                    lambda a=a, b=b: softmax(a) + b,
                    lambda a=a, b=b: a - b.mean(-1, keepdims=True),
                    lambda a=a, b=b: np.tanh(a @ w) + b,
                    lambda a=a, b=b: (a.T + b.T).T * 0.5,
                ][kind]()
            )
        return values[-1], values[-3]

    x, y, w = draw(12, 16, dtype="f8"), draw(12, 16, seed=1, dtype="f8"), None
    w = draw(16, 16, dtype="f8") / 16
    lowered(f, x, y, w)


def test_a_convolution_under_a_transposed_result_writes_where_it_should() -> None:
    """Found by the fuzz: images were written into the transposed result as if it were
    packed."""
    x, w, c = draw(2, 3, 6, 7), draw(4, 3, 3, 2), draw(4, 1, 1)

    def f(x: Any, w: Any, c: Any) -> Any:
        return np.tanh(eq.conv2d(x, w, padding=(1, 0)) * c).transpose(0, 3, 1, 2)

    got = eq.jit(f)(x, w, c)
    images = np.asarray(eq.conv2d(x, w, padding=(1, 0)))
    want = np.tanh(images * c).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(got, want, rtol=2e-5)


def test_a_fused_op_of_the_users_own_call_runs_with_fusion_off() -> None:
    """Found by the fuzz: times 1.0 looked like another way to compute it."""
    x, g, w, b = draw(6, 7), draw(7), draw(7, 5), draw(5)

    def f(x: Any, g: Any, w: Any, b: Any) -> Any:
        return ops.rms_norm_linear(x, g, 0.125, w, b, act="sigmoid") * 1.0

    got = eq.jit(f, options=eq.Options(fusion=False))(x, g, w, b)
    np.testing.assert_allclose(got, f(x, g, w, b), rtol=1e-5)


# -- when time is up -------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time for any cover."""
    real = line.cover

    def cover(*args: Any, **options: Any) -> Any:
        graph, model, roots, budget = args
        over = Budget.of(-1, budget.max_nodes)
        return real(graph, model, roots, over, **options)

    monkeypatch.setattr(line, "cover", cover)


def norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(np.square(x).mean(-1)[:, None])


HURRIED: list[tuple[Callable[..., Any], int]] = [
    (lambda x, w: np.tanh(x * 2 + 1) * x, 1),
    (lambda x, w: np.exp(x) / np.exp(x).sum(-1, keepdims=True), 1),
    (lambda x, w: norm(x + 1), 1),
    (lambda x, w: np.maximum(x @ w + 1, 0) * 0.5, 1),
    (lambda x, w: (np.tanh(x @ w) @ w, x @ w), 3),
    (lambda x, w: (np.exp(x), np.exp(x).sum(-1)), 2),
]


@pytest.mark.parametrize(("f", "most"), HURRIED)
def test_without_time_what_nothing_else_reads_is_fused(
    f: Callable[..., Any], most: int, hurried: None
) -> None:
    assert count(f, draw(40, 40), draw(40, 40)) <= most


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_without_time_a_block_is_within_a_tenth(
    name: str, request: pytest.FixtureRequest
) -> None:
    model, x, _ = block.draw(block.Config(layers=1, norm=name))
    patient = eq.jit(model.forward).lower(x)
    request.getfixturevalue("hurried")
    quick = eq.jit(model.forward).lower(x)
    assert len(quick.program.kernels) < len(quick.trace.graph.terms) / 2
    assert quick.optimised.cost_s < 1.1 * patient.optimised.cost_s


@pytest.mark.parametrize("n", [14, 24])
def test_joins_of_many_arrays(n: int) -> None:
    """14 computed operands had 3¹⁴ choices, and no kernel read more than 15 arrays."""
    arrays = [draw(5, seed=i) for i in range(n)]
    for f in (
        lambda *xs: np.stack(xs),
        lambda *xs: np.concatenate([x + 1 for x in xs]),
        lambda *xs: np.stack([x * 2 for x in xs]).sum(0),
    ):
        fast = eq.jit(f)
        np.testing.assert_allclose(fast(*arrays), f(*arrays), rtol=1e-6)
        assert len(fast.lower(*arrays).program.kernels) <= n + 2


def test_what_overlapping_views_show_is_computed_once() -> None:
    """In one kernel the powers would be computed for each window that they are in."""

    def normed(x: Any) -> Any:
        return x / (1 + x * x) ** 0.7

    x = draw(1, 8, 40, 40)
    for size, stride in ((3, 1), (3, 2), (2, 1)):
        low = lowered(lambda x, n=size, s=stride: ops.max_pool2d(normed(x), n, s), x)
        first, last = [k.name for k in low.program.kernels]
        assert "power" in first and "power" not in last
    assert count(lambda x: ops.max_pool2d(x + 1, 3), x) == 1, "what loads hide"
    together = lowered(lambda x: normed(x[..., 1:]) + x[..., :-1], x)
    assert len(together.program.kernels) == 1
