"""Models to compile: what their functions are, and what to lower them for.

Weights are drawn small and shared between layers where their values do not matter: no
model is run here. Layers hold views of them, so every layer has arrays of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import eqsat as eq
from eqsat.demo import block
from eqsat.trace.trace import trace

Array = Any
HEADS = 4
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels, blocks and stride of the stages of ResNet-50."""


@dataclass(frozen=True)
class BenchModel:
    function: Callable[..., Any]
    arguments: tuple[eq.Spec, ...]


# -- transformer blocks ----------------------------------------------------------------


def blocks(layers: int) -> BenchModel:
    """GPT-2 blocks of 128 tokens and 768 features (:mod:`eqsat.demo.block`)."""
    config = block.Config(layers=1)
    one, x, _ = block.draw(config)
    params = [{n: w.view() for n, w in one.params[0].items()} for _ in range(layers)]
    return BenchModel(block.Model(config, params).forward, (eq.Spec(x.shape, x.dtype),))


# -- ResNet-50: He et al. 2015, arXiv:1512.03385 ---------------------------------------


class _Weights:
    """The weights of a network in the order in which it first asks for them: the same
    arrays whenever it is run again."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.drawn: list[Array] = []
        self.asked = 0

    def next(self, *shape: int) -> Array:
        self.asked += 1
        if self.asked > len(self.drawn):
            array = self.rng.standard_normal(shape, np.float32)
            array.flags.writeable = False
            self.drawn.append(array)
        return self.drawn[self.asked - 1]

    def normed(self, x: Array, out: int, size: int, stride: int, pad: int) -> Array:
        """A convolution and its batch norm, as in inference."""
        y = eq.ops.conv2d(
            x, self.next(out, x.shape[1], size, size), stride=stride, padding=pad
        )
        mean, scale, shift, root = (self.next(out, 1, 1) for _ in range(4))
        return (y - mean) / np.sqrt(root * root + 1e-5) * scale + shift


def resnet50() -> BenchModel:
    """One image of 64 × 64: 53 convolutions, bottleneck blocks, 1000 classes."""
    weights = _Weights()

    def bottleneck(x: Array, width: int, stride: int) -> Array:
        y = np.maximum(weights.normed(x, width, 1, 1, 0), 0)
        y = np.maximum(weights.normed(y, width, 3, stride, 1), 0)
        y = weights.normed(y, 4 * width, 1, 1, 0)
        if x.shape != y.shape:
            x = weights.normed(x, 4 * width, 1, stride, 0)
        return np.maximum(x + y, 0)

    def forward(x: Array) -> Array:
        weights.asked = 0
        y = np.maximum(weights.normed(x, 64, 7, 2, 3), 0)
        y = eq.ops.max_pool2d(y, 3, stride=2, padding=1)
        for width, count, stride in STAGES:
            for i in range(count):
                y = bottleneck(y, width, stride if i == 0 else 1)
        y = y.mean((2, 3))
        return y @ weights.next(y.shape[1], 1000) + weights.next(1000)

    model = BenchModel(forward, (eq.Spec((1, 3, 64, 64), np.float32),))
    trace(forward, model.arguments)  # draws the weights
    return model


# -- two towers ------------------------------------------------------------------------


def towers(layers: int = 12) -> BenchModel:
    """Two encoders whose layers all have other widths, joined by a dot product."""
    rng = np.random.default_rng(0)

    def widths(first: int) -> list[int]:
        return [HEADS * (first + 2 * i) for i in range(layers)]

    def tower(first: int) -> list[tuple[block.Params, Array]]:
        drawn = []
        for d, after in zip(widths(first), [*widths(first)[1:], 64], strict=True):
            config = block.Config(layers=1, seq=1, dim=d, heads=HEADS)
            model, _, _ = block.draw(config)
            last = rng.standard_normal((d, after), np.float32)
            drawn.append((model.params[0], last))
        return drawn

    left, right = tower(16), tower(17)

    def encoded(x: Array, layers: Sequence[tuple[block.Params, Array]]) -> Array:
        for params, last in layers:
            x = np.tanh(block.block(x, params, HEADS) @ last)
        return x.mean(1)

    def forward(x: Array, y: Array) -> Array:
        return (encoded(x, left) * encoded(y, right)).sum(-1)

    dims = widths(16)[0], widths(17)[0]
    specs = tuple(eq.Spec((8, 32, d), np.float32) for d in dims)
    return BenchModel(forward, specs)


# -- ops that do not repeat ------------------------------------------------------------


def distinct(layers: int = 272) -> BenchModel:
    """About 10 ops a layer, of which no two have the same widths and forms."""

    def forward(x: Array) -> Array:
        rng = random.Random(0)
        earlier = [x]
        for i in range(layers):
            width = 16 + (37 * i) % 499
            weight = np.full((x.shape[-1], width), 0.01, np.float32)
            x = x @ weight
            for _ in range(rng.randint(4, 6)):
                x = rng.choice(MAPS)(x, rng.uniform(0.1, 0.9))
            x = x + rng.choice(earlier[-4:]).mean(-1, keepdims=True)
            x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + rng.random())
            earlier.append(x)
        return x

    return BenchModel(forward, (eq.Spec((64, 32), np.float32),))


MAPS: tuple[Callable[[Array, float], Array], ...] = (
    lambda x, a: np.tanh(x * a),
    lambda x, a: np.maximum(x, a),
    lambda x, a: x + a,
    lambda x, a: x / (a + np.abs(x)),
    lambda x, a: np.exp(-a * x * x),
    lambda x, a: np.where(x > a, x, a * x),
    lambda x, a: a * np.square(x),
)

# -- loops that Python unrolls ---------------------------------------------------------


def lstm(steps: int = 250) -> BenchModel:
    """32 sequences of 64 features through one layer of 64."""

    def forward(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Array:
        for t in range(steps):
            i, f, o, z = np.split(x[t] @ w + h @ u + b, 4, axis=-1)
            c = c / (1 + np.exp(-f)) + np.tanh(z) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
        return h

    shapes = (steps, 32, 64), (32, 64), (32, 64), (64, 256), (64, 256), (256,)
    return BenchModel(forward, tuple(eq.Spec(s, np.float32) for s in shapes))


def runge_kutta(steps: int = 250) -> BenchModel:
    """1,000 populations of prey and hunters (Lotka 1920), the classical method."""

    def change(x: Array, y: Array) -> tuple[Array, Array]:
        return 1.5 * x - x * y, x * y - 3.0 * y

    def forward(x: Array, y: Array) -> tuple[Array, Array]:
        h = 0.01
        for _ in range(steps):
            a, b = change(x, y)
            c, d = change(x + h / 2 * a, y + h / 2 * b)
            e, f = change(x + h / 2 * c, y + h / 2 * d)
            p, q = change(x + h * e, y + h * f)
            x = x + h / 6 * (a + 2 * c + 2 * e + p)
            y = y + h / 6 * (b + 2 * d + 2 * f + q)
        return x, y

    return BenchModel(forward, (eq.Spec((1000,), np.float32),) * 2)


def heat(steps: int = 250) -> BenchModel:
    """Steps of the heat equation on a grid of 128 × 128, written in place."""

    def forward(u: Array) -> Array:
        u = u.copy()
        for _ in range(steps):
            m = u[1:-1, 1:-1]
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            u[1:-1, 1:-1] = m + 0.1 * (around - 4 * m)
        return u

    return BenchModel(forward, (eq.Spec((128, 128), np.float32),))


def adam(steps: int = 250) -> BenchModel:
    """Steps of Adam (Kingma and Ba 2015) on the loss of one neuron, by its gradient."""
    gradient = eq.grad(lambda w, x, y: ((np.tanh(x @ w) - y) ** 2).mean())

    def forward(w: Array, x: Array, y: Array) -> Array:
        m = v = np.zeros(16, np.float32)
        for t in range(1, steps + 1):
            g = gradient(w, x, y)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return w

    return BenchModel(
        forward, tuple(eq.Spec(s, np.float32) for s in ((16,), (256, 16), (256,)))
    )


MODELS: dict[str, Callable[[], BenchModel]] = {
    "add_relu": lambda: BenchModel(
        lambda a, b: np.maximum(a + b, 0), (eq.Spec((1000,), np.float32),) * 2
    ),
    **{f"blocks_{n}": partial(blocks, n) for n in (1, 12, 48, 96)},
    "resnet50": resnet50,
    "towers": towers,
    "distinct_5000": distinct,
    "lstm_250": lstm,
    "runge_kutta_250": runge_kutta,
    "heat_250": heat,
    "adam_250": adam,
}
"""What is compiled, by name."""
