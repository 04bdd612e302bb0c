"""Products, convolutions and networks that every backend is tested with, and products
by integers of few bits, with arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from families import Case, Shape
from hypothesis import strategies as st
from natives import Array

from eqsat import ops
from eqsat.ops import gelu, layer_norm, softmax
from eqsat.ops.transcendental import tanh

Sizes = tuple[int, int, int, int]
PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))

# -- products and networks -------------------------------------------------------------

BATCHES: list[tuple[Shape, Shape]] = [
    ((), ()),
    ((3,), ()),
    ((), (2,)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 3), (2, 1)),
    ((2, 1), (1, 5)),
]


def ffn(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    """Two products with what follows them."""
    return x + (gelu(x @ w + b) @ v + c)


FFN: list[Callable[..., Any]] = [ffn, lambda *a: layer_norm(ffn(*a), a[4], a[4])]
FFN_WEIGHTS: list[Shape] = [(48, 200), (200,), (200, 48), (48,)]


def attention(q: Any, k: Any, v: Any) -> Any:
    """softmax(q kᵀ / 5) v, written out."""
    lead = range(q.ndim - 2)
    return softmax(q @ ops.transpose(k, (*lead, -1, -2)) * 0.2) @ v


def shared_out(rng: np.random.Generator) -> list[Case]:
    """Rows, columns and products, of more elements than one thread takes."""

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    x, w, b = draw(300, 129), draw(129, 200), draw(200)
    return [
        (lambda x, w, b: ops.linear(x, w, b, act="gelu"), [x, w, b]),
        (lambda x, w, b: ops.linear_layer_norm(x, w, b, b, b, 1e-5), [x, w, b]),
        (lambda x: ops.softmax(x, axis=0), [x]),
        (lambda x: (ops.sum(x), ops.max(x, 0), ops.argmax(x), ops.argmin(x, 1)), [x]),
        (lambda x, w: tanh(w.mT @ x.mT), [x, w]),
        (lambda x: x.transpose(2, 0, 1) * 2.0, [draw(33, 65, 17)]),
        (lambda x, w: x @ w, [draw(3, 65, 20), draw(20, 1)]),
    ]


@st.composite
def drawn_convolutions(draw: Any) -> tuple[Sizes, Sizes, dict[str, Any]]:
    """Shapes of images and kernels, and attributes."""
    number: Callable[..., Any] = lambda *of: draw(st.sampled_from(of))  # noqa: E731
    groups = number(1, 1, 2, 5)
    each, m = number(1, 2, 3, 7), number(1, 2, 3, 4, 9, 17)
    kernel = number((1, 1), (3, 3), (1, 4), (5, 2), (2, 3))
    stride, dilation = draw(PAIRS), draw(PAIRS)
    padding = number((0, 0), (1, 1), (0, 2), (4, 1), (2, 6))
    least = [
        max((k - 1) * d + 1 - 2 * p, 1)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    h = least[0] + number(0, 1, 2, 4, 11, 20)
    w = least[1] + number(0, 1, 3, 6, 16, 30, 50, 97)
    x = (number(1, 2, 3), groups * each, h, w)
    return x, (groups * m, each, *kernel), attributes(stride, padding, dilation, groups)


def attributes(
    stride: Any = (1, 1), padding: Any = (0, 0), dilation: Any = (1, 1), groups: int = 1
) -> dict[str, Any]:
    """Of a convolution."""
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


# -- products by integers of few bits --------------------------------------------------


GROUPS = ((1, 32), (3, 16), (2, 10), (5, 6), (4, 128), (9, 130))
"""How many, and rows of each."""


def by_groups(x: Any, q: Any, zero: Any, scale: Any) -> Any:
    """Rows of a group share a zero and a scale."""
    groups, n = scale.shape
    wide = q.astype(np.float32).reshape(groups, -1, n)
    wide = (wide - zero.astype(np.float32)[:, None]) * scale[:, None]
    return x @ wide.reshape(-1, n)


def nibbles(x: Any, q: Any, zero: Any, scale: Any) -> Any:
    """Two rows to a byte."""
    both = np.stack([q & 15, q >> 4], 1).reshape(-1, q.shape[-1])
    return by_groups(x, both, zero, scale)


def whole(x: Any, q: Any, zero: Any, scale: Any) -> Any:
    """The zero an integer, one scale for all."""
    return x @ (scale[0, 0] * (q.astype(np.int32) - 3).astype(np.float32))


def quantised(
    rng: np.random.Generator, bits: int, groups: int, each: int, n: int
) -> list[Array]:
    """Integers of ``groups`` groups of ``each`` rows, their zeros and scales."""
    k = groups * each
    if bits == 4:
        q = rng.integers(0, 256, (k // 2, n), np.uint8)
        zero = rng.integers(6, 10, (groups, n), np.int8)
    else:
        q = rng.integers(-128, 128, (k, n), np.int8)
        zero = rng.integers(-4, 5, (groups, n), np.int8)
    return [q, zero, rng.uniform(0.5, 2, (groups, n)).astype(np.float32)]


SLID = [
    *((3, 3), (5, 7), (9, 9), (2, 20), (40, 1), (31, 3)),
    *((1, 9), (1, 33), (1, 70), (1, 97), (1, 130), (1, 260)),
]


@st.composite
def slid_convolutions(draw: Any) -> tuple[Sizes, Sizes, dict[str, Any]]:
    """Those by few and long kernels, which slide along lines."""
    number: Callable[..., Any] = lambda *of: draw(st.sampled_from(of))  # noqa: E731
    groups, each, m = number(1, 1, 2), number(1, 1, 2, 5), number(1, 1, 2, 3, 6)
    kernel = draw(st.sampled_from(SLID))
    stride = number((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (3, 5))
    dilation = number((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (2, 2))
    padding = number((0, 0), (1, 1), (2, 30), (kernel[0] // 2, kernel[1] // 2))
    least = [
        max((k - 1) * d + 1 - 2 * p, 1)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    h = least[0] + number(0, 0, 1, 2, 5, 11)
    w = least[1] + stride[1] * number(15, 16, 31, 40, 130, 300, 517)
    shape = number(1, 2), groups * each, h, w
    attrs = attributes(stride, padding, dilation, groups)
    return shape, (groups * m, each, *kernel), attrs
