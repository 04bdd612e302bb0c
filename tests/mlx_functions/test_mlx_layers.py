"""Every layer of ``mlx.nn`` computes what it computes in MLX, as far as possible in one
program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import eqsat as eq

mx = pytest.importorskip("mlx.core")
nn = pytest.importorskip("mlx.nn")

X = (2, 6, 8)
IMAGE = (2, 9, 9, 4)
VOLUME = (1, 5, 5, 5, 4)


class Layer(NamedTuple):
    """How a layer is made and called, and what of it stays in MLX."""

    make: Callable[[], Any]
    shapes: tuple[Any, ...] = (X,)
    """Of normal numbers; an argument that is no shape is given as it is."""
    stays: tuple[str, ...] = ()


def tokens() -> Any:
    return mx.array([[1, 0, 9], [3, 3, 2]])


ONE_PROGRAM = {
    "ALiBi": Layer(lambda: nn.ALiBi(), ((2, 4, 6, 6),)),
    "AvgPool1d": Layer(lambda: nn.AvgPool1d(3, 1, 1)),
    "AvgPool2d": Layer(lambda: nn.AvgPool2d(3, 2, 1), (IMAGE,)),
    "AvgPool3d": Layer(lambda: nn.AvgPool3d(2, 2), (VOLUME,)),
    "BatchNorm": Layer(lambda: nn.BatchNorm(8)),
    "Bilinear": Layer(lambda: nn.Bilinear(8, 8, 3), (X, X)),
    "CELU": Layer(lambda: nn.CELU()),
    "Conv1d": Layer(lambda: nn.Conv1d(8, 4, 3, stride=2, padding=1)),
    "Conv2d": Layer(lambda: nn.Conv2d(4, 6, 3, dilation=2, groups=2), (IMAGE,)),
    "ConvTranspose1d": Layer(
        lambda: nn.ConvTranspose1d(8, 5, 3, stride=2, padding=1, output_padding=1)
    ),
    "ConvTranspose2d": Layer(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=2), (IMAGE,)
    ),
    "Dropout": Layer(lambda: nn.Dropout(0.5)),
    "Dropout2d": Layer(lambda: nn.Dropout2d(0.5), (IMAGE,)),
    "Dropout3d": Layer(lambda: nn.Dropout3d(0.5), (VOLUME,)),
    "ELU": Layer(lambda: nn.ELU()),
    "Embedding": Layer(lambda: nn.Embedding(10, 8), (tokens,)),
    "GELU": Layer(lambda: nn.GELU()),
    "GLU": Layer(lambda: nn.GLU()),
    "GRU": Layer(lambda: nn.GRU(8, 4)),
    "GroupNorm": Layer(lambda: nn.GroupNorm(2, 8, pytorch_compatible=True)),
    "HardShrink": Layer(lambda: nn.HardShrink()),
    "HardTanh": Layer(lambda: nn.HardTanh()),
    "Hardswish": Layer(lambda: nn.Hardswish()),
    "Identity": Layer(lambda: nn.Identity()),
    "InstanceNorm": Layer(lambda: nn.InstanceNorm(8, affine=True)),
    "LSTM": Layer(lambda: nn.LSTM(8, 4)),
    "LayerNorm": Layer(lambda: nn.LayerNorm(8)),
    "LeakyReLU": Layer(lambda: nn.LeakyReLU()),
    "Linear": Layer(lambda: nn.Linear(8, 5)),
    "LogSigmoid": Layer(lambda: nn.LogSigmoid()),
    "LogSoftmax": Layer(lambda: nn.LogSoftmax()),
    "MaxPool1d": Layer(lambda: nn.MaxPool1d(2, 2)),
    "MaxPool2d": Layer(lambda: nn.MaxPool2d(3, 2, 1), (IMAGE,)),
    "MaxPool3d": Layer(lambda: nn.MaxPool3d(2, 2), (VOLUME,)),
    "Mish": Layer(lambda: nn.Mish()),
    "MultiHeadAttention": Layer(lambda: nn.MultiHeadAttention(8, 2), (X, X, X)),
    "PReLU": Layer(lambda: nn.PReLU()),
    "QuantizedEmbedding": Layer(lambda: nn.QuantizedEmbedding(10, 64), (tokens,)),
    "RMSNorm": Layer(lambda: nn.RMSNorm(8)),
    "RNN": Layer(lambda: nn.RNN(8, 4)),
    "ReLU": Layer(lambda: nn.ReLU()),
    "ReLU2": Layer(lambda: nn.ReLU2()),
    "ReLU6": Layer(lambda: nn.ReLU6()),
    "RoPE": Layer(lambda: nn.RoPE(8), ((2, 3, 6, 8),)),
    "SELU": Layer(lambda: nn.SELU()),
    "Sequential": Layer(lambda: nn.Sequential(nn.Linear(8, 4), nn.Tanh())),
    "SiLU": Layer(lambda: nn.SiLU()),
    "Sigmoid": Layer(lambda: nn.Sigmoid()),
    "SinusoidalPositionalEncoding": Layer(
        lambda: nn.SinusoidalPositionalEncoding(8), ((2, 6),)
    ),
    "Softmax": Layer(lambda: nn.Softmax()),
    "Softmin": Layer(lambda: nn.Softmin()),
    "Softplus": Layer(lambda: nn.Softplus()),
    "Softshrink": Layer(lambda: nn.Softshrink()),
    "Softsign": Layer(lambda: nn.Softsign()),
    "Step": Layer(lambda: nn.Step()),
    "Tanh": Layer(lambda: nn.Tanh()),
    "Transformer": Layer(lambda: nn.Transformer(8, 2, 1, 1), (X, X, None, None, None)),
    "TransformerDecoder": Layer(
        lambda: nn.TransformerDecoder(1, 8, 2), (X, X, None, None)
    ),
    "TransformerDecoderLayer": Layer(
        lambda: nn.TransformerDecoderLayer(8, 2, norm_first=False), (X, X, None, None)
    ),
    "TransformerEncoder": Layer(lambda: nn.TransformerEncoder(1, 8, 2), (X, None)),
    "TransformerEncoderLayer": Layer(
        lambda: nn.TransformerEncoderLayer(8, 2), (X, None)
    ),
    "Upsample": Layer(lambda: nn.Upsample(2, "cubic"), (IMAGE,)),
}
IN_PARTS = {
    "Conv3d": Layer(lambda: nn.Conv3d(4, 6, 3), (VOLUME,), ("Convolution",)),
    "ConvTranspose3d": Layer(
        lambda: nn.ConvTranspose3d(4, 6, 3), (VOLUME,), ("Convolution",)
    ),
    "QuantizedLinear": Layer(
        lambda: nn.QuantizedLinear(64, 32), ((2, 64),), ("QuantizedMatmul",)
    ),
}
LAYERS = {**ONE_PROGRAM, **IN_PARTS}
NOT_CALLED = {
    "Module",  # of which the others are made
    "QQLinear",  # which MLX's CPU does not have
    # what several processes compute together
    "AllToShardedLinear",
    "FullyShardedModule",
    "QuantizedAllToShardedLinear",
    "QuantizedShardedToAllLinear",
    "ShardedToAllLinear",
}
WHOLE = {"Dropout", "Dropout2d", "Dropout3d", "QuantizedEmbedding", "Embedding"}
"""Layers without a rounding in which results could differ."""


def test_the_table_has_every_layer() -> None:
    found = {
        name
        for name, value in vars(nn).items()
        if inspect.isclass(value) and issubclass(value, nn.Module)
    }
    assert found - set(LAYERS) <= NOT_CALLED


def flat(x: Any) -> list[Any]:
    return [x] if isinstance(x, mx.array) else [y for part in x for y in flat(part)]


def numbers(x: Any) -> Any:
    with mx.stream(mx.cpu):  # which alone has float64
        return np.array(x.astype(mx.float64))


def arguments(layer: Layer) -> list[Any]:
    mx.random.seed(1)
    return [
        s() if callable(s) else mx.random.normal(s) if isinstance(s, tuple) else s
        for s in layer.shapes
    ]


def in_float64(module: Any, args: list[Any]) -> list[Any]:
    """What the layer gives in float64."""

    def wide(x: Any) -> Any:
        is_float = isinstance(x, mx.array) and x.dtype == mx.float32
        return x.astype(mx.float64) if is_float else x

    with mx.stream(mx.cpu):
        module.apply(wide)
        return flat(module(*map(wide, args)))


EPS = float(np.finfo(np.float32).eps)


def bounds_of(
    name: str, module: Any, args: list[Any], want: list[Any]
) -> list[tuple[Any, Any]]:
    """For each result what it should be, and how far from that it may be."""
    if name == "QuantizedLinear":  # MLX computes it
        return [(numbers(x), 0) for x in want]
    if name.startswith("Conv"):
        # two sums of n products, each as far from the true one as n roundings
        module.apply(mx.abs)
        n = module.weight[0].size + 1
        size = numbers(module(*map(mx.abs, args)))
        return [(numbers(want[0]), 2 * n * EPS * size)]
    found = []
    for x, exact in zip(want, in_float64(module, args), strict=True):
        true = numbers(exact)
        # a few times MLX's own error, and a few units in the last place
        allowed = 4 * np.abs(numbers(x) - true).max() + 8 * EPS * np.abs(true).max()
        found.append((true, allowed))
    return found


def check(name: str, backend: str | None) -> None:
    layer = LAYERS[name]
    args = arguments(layer)
    module = layer.make()
    function = eq.from_mlx(module, backend=backend)
    mx.random.seed(2)
    want = flat(module(*args))
    state = mx.random.state[0].tolist()
    mx.random.seed(2)
    found = flat(function(*args))
    assert mx.random.state[0].tolist() == state
    report = function.report()
    assert {f.op for f in report.fallbacks} == set(layer.stays)
    if not layer.stays:
        assert report.programs == (name != "Identity")
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in want]
    if name in WHOLE:
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_array_equal(numbers(got), numbers(expected))
        return
    bounds = bounds_of(name, module, args, want)
    for got, (true, allowed) in zip(found, bounds, strict=True):
        assert (np.abs(numbers(got) - true) <= allowed).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_layer_in_mlx(name: str) -> None:
    check(name, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_layer_in_machine_code(name: str) -> None:
    check(name, "native")
