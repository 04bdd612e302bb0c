"""Which kernels come out where rules make a program cheaper; the values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

import eqsat as eq
from eqsat.demo import block
from eqsat.demo.minilm import softmax
from eqsat.trace.kernel_body import KERNEL

rng = np.random.default_rng(1)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def kernels(f: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """``op[act]`` or the ops of each kernel, after checking the values against
    NumPy."""
    fast = eq.jit(f, **options)
    want, got = f(*args), fast(*args)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    assert got.dtype == want.dtype
    found = []
    for k in fast.lower(*args).program.kernels:
        if k.op is KERNEL:
            found.append(" ".join(k.op.attr_dict(k.term)["body"].ops))
            continue
        act = k.op.attr_dict(k.term).get("act", "")
        found.append(f"{k.op.name}[{act}]" if act else k.op.name)
    return found


def layer_norm(x: Any, g: Any, c: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + c


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


X, W, B, R = draw(64, 96), draw(96, 80), draw(80), draw(64, 80)
G, C = draw(80), draw(80)
G1, C1 = draw(96), draw(96)
ROOT2 = 2**0.5

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "linear": (lambda x, w, b: x @ w + b, (X, W, B), ["linear"]),
    "linear, relu": (lambda x, w, b: relu(x @ w + b), (X, W, B), ["linear[relu]"]),
    "linear, gelu": (
        lambda x, w, b: 0.5 * (x @ w + b) * (1 + erf((x @ w + b) / ROOT2)),
        (X, W, B),
        ["linear[gelu]"],
    ),
    "product, silu": (
        lambda x, w: (x @ w) / (1 + np.exp(-(x @ w))),
        (X, W),
        ["matmul_act[silu]"],
    ),
    "linear, residual": (
        lambda x, w, b, r: r + (x @ w + b),
        (X, W, B, R),
        ["linear_residual"],
    ),
    "residual before bias": (
        lambda x, w, b, r: r + x @ w + b,
        (X, W, B, R),
        ["linear_residual"],
    ),
    "product, residual": (
        lambda x, w, r: x @ w + r,
        (X, W, R),
        ["matmul_residual"],
    ),
    "norm after linear": (
        lambda x, w, b, g, c: layer_norm(x @ w + b, g, c),
        (X, W, B, G, C),
        ["linear_layer_norm"],
    ),
    "norm after linear and residual": (
        lambda x, w, b, r, g, c: layer_norm(x @ w + b + r, g, c),
        (X, W, B, R, G, C),
        ["linear_residual_layer_norm"],
    ),
    "linear after norm": (
        lambda x, g, c, w, b: relu(layer_norm(x, g, c) @ w + b),
        (X, G1, C1, W, B),
        ["layer_norm_linear[relu]"],
    ),
    "softmax of scaled": (
        lambda x: softmax(x * 0.3),
        (X,),
        ["scaled_softmax"],
    ),
    "add, relu": (lambda x, y: relu(x + y), (X, draw(64, 96)), ["binary_act[relu]"]),
    "scalar, relu": (lambda x: relu(x * 2.5), (X,), ["binary_act[relu]"]),
    "attention, residual": (
        lambda q, k, v, r: softmax(q @ k.mT * 0.25) @ v + r,
        (draw(2, 32, 16), draw(2, 24, 16), draw(2, 24, 20), draw(2, 32, 20)),
        ["attention_residual"],
    ),
    "gate": (
        lambda x, y: x / (1 + np.exp(-x)) * y,
        (R, draw(64, 80)),
        ["gated[silu]"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fusion(name: str) -> None:
    f, args, want = CASES[name]
    assert kernels(f, *args) == want


def images() -> tuple[np.ndarray, ...]:
    mean, scale, shift = draw(6), draw(6), draw(6)
    return draw(2, 3, 9, 10), draw(6, 3, 3, 3), mean, np.abs(draw(6)), scale, shift


@pytest.mark.parametrize("form", ["quotient", "root first", "batch_norm"])
def test_batch_norm_folds_into_a_known_convolution(form: str) -> None:
    x, w, mean, var, scale, shift = images()

    def channels(v: Any) -> Any:
        return v[:, None, None]

    def f(x: Any) -> Any:
        y = eq.conv2d(x, w, padding=1)
        if form == "batch_norm":
            return relu(eq.batch_norm(y, mean, var, scale, shift))
        root = np.sqrt(channels(var) + 1e-5)
        if form == "quotient":
            return relu((y - channels(mean)) / root * channels(scale) + channels(shift))
        return relu((y - channels(mean)) * (channels(scale) / root) + channels(shift))

    assert kernels(f, x) == ["conv2d_act[relu]"]


@pytest.mark.parametrize("lead", [(), (1,)], ids=["c11", "1c11"])
def test_batch_norm_alone(lead: tuple[int, ...]) -> None:
    x, _, mean, var, scale, shift = images()
    x = draw(2, 6, 9, 10)

    def f(x: Any, mean: Any, var: Any, scale: Any, shift: Any) -> Any:
        m, v, s, b = (p.reshape(*lead, 6, 1, 1) for p in (mean, var, scale, shift))
        return (x - m) / np.sqrt(v + 1e-5) * s + b

    apart = eq.Options(fusion=False)
    found = kernels(f, x, mean, var, scale, shift, options=apart)
    assert found == ["batch_norm"]


@pytest.mark.parametrize("five", [False, True], ids=["flat", "five axes"])
def test_group_norm(five: bool) -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        n, c, h, v = x.shape
        shape = (n, 4, c // 4, h, v) if five else (n, 4, -1)
        axes = (2, 3, 4) if five else -1
        y = x.reshape(shape)
        d = y - y.mean(axes, keepdims=True)
        y = d / np.sqrt((d**2).mean(axes, keepdims=True) + 1e-5)
        return y.reshape(x.shape) * w[:, None, None] + b[:, None, None]

    assert kernels(f, draw(2, 12, 5, 7), draw(12), draw(12)) == ["group_norm"]


def test_weights_only_work_is_folded() -> None:
    def f(x: Any) -> Any:
        return x @ (W * 2 + np.exp(W))

    assert kernels(f, X) == ["matmul"]


def test_exact_numerics_leave_rounding_alone() -> None:
    def f(x: Any) -> Any:
        return (x * 0.1) * 0.3

    assert kernels(f, X) == ["multiply"]
    strict = eq.jit(f, options=eq.Options(numerics="exact"))
    (kernel,) = strict.explain(X).kernels
    assert kernel.ops == ("multiply", "multiply")
    assert np.array_equal(strict(X), f(X))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("norm", "each"), [("layer", 5), ("rms", 5)])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_every_block_is_as_cheap_as_one(norm: str, each: int, layers: int) -> None:
    config = block.Config(layers=layers, seq=128, norm=norm)
    model, x, _ = block.draw(config)
    program = eq.jit(model.forward).lower(x).program
    assert len(program.kernels) == each * layers
    assert block.qkv_merged(program, config)
