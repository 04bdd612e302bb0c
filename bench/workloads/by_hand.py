"""Values and gradients as users of plain NumPy derive them by hand: what gradients are
compared with, in float64, and timed beside.

Each function takes what its loss in :mod:`bench.workloads.gradients` takes. A name in
``d…`` is the derivative of the loss by what it is named for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import erf, expit

from bench.workloads import plain

Array = Any
Params = dict[str, Array]
Found = tuple[Array, tuple[Any, ...]]
"""The value, and for each argument the gradient, nested as the argument is."""


def mlp(p: dict[str, Params], x: Array, y: Array) -> Found:
    """By the parameters."""
    w = p["out"]["w"]
    h = x @ p["hidden"]["w"] + p["hidden"]["b"]
    below = 0.5 * (1 + erf(h / 2**0.5))
    a = h * below
    value, dz = _mean_square(a @ w + p["out"]["b"] - y)
    dh = dz @ w.T
    dh *= below + h * np.exp(-0.5 * h * h) * (2 * math.pi) ** -0.5
    hidden = {"w": x.T @ dh, "b": dh.sum(0)}
    return value, ({"hidden": hidden, "out": {"w": a.T @ dz, "b": dz.sum(0)}},)


def logistic(w: Array, b: Array, x: Array, y: Array) -> Found:
    """By the weights and the bias."""
    z = -y * (x @ w + b)
    dz = -y * expit(z) / len(y)
    return np.logaddexp(0, z).mean(), (dz @ x, dz.sum())


def layer_norm(x: Array, g: Array, b: Array, y: Array, eps: float = 1e-5) -> Found:
    """By the rows, the gain and the bias."""
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    n = c * r
    value, dz = _mean_square(n * g + b - y)
    dn = dz * g
    dx = dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True)
    return value, (dx * r, (dz * n).sum(0), dz.sum(0))


def attention(q: Array, k: Array, v: Array, y: Array) -> Found:
    """By queries, keys and values."""
    scale = q.shape[-1] ** -0.5
    p = plain.softmax(q @ k.swapaxes(-1, -2) * scale)
    value, dz = _mean_square(p @ v - y)
    ds = dz @ v.swapaxes(-1, -2)
    ds = (ds - (ds * p).sum(-1, keepdims=True)) * p * scale
    return value, (ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dz)


def rosenbrock(x: Array) -> Found:
    """By the point."""
    low = x[:-1]
    d, e = x[1:] - low * low, 1 - low
    dx = np.zeros_like(x)
    dx[:-1] = -400 * low * d - 2 * e
    dx[1:] += 200 * d
    return (100 * d * d + e * e).sum(), (dx,)


def cross_entropy(w: Array, b: Array, x: Array, labels: Array) -> Found:
    """By the weights and the bias."""
    value, dz = _mean_surprise(x @ w + b, labels)
    return value, (x.T @ dz, dz.sum(0))


def embedding(table: Array, w: Array, ids: Array, y: Array) -> Found:
    """By the table and the weights."""
    rows = table[ids]
    value, dz = _mean_square(rows @ w - y)
    dtable = np.zeros_like(table)
    np.add.at(dtable, ids, dz @ w.T)
    return value, (dtable, rows.T @ dz)


def conv(p: Params, x: Array, labels: Array) -> Found:
    """By the parameters of two convolutions, of strides 1 and 2, and a product."""
    seen = _windows(x, 1)
    h = np.maximum(_convolved(seen, p["first"]), 0)
    seen_again = _windows(h, 2)
    a = np.maximum(_convolved(seen_again, p["second"]), 0)
    pooled = a.mean((2, 3))
    value, dz = _mean_surprise(pooled @ p["out"], labels)
    da = (dz @ p["out"].T)[:, :, None, None] / math.prod(a.shape[2:]) * (a > 0)
    dh = _spread(da, p["second"], h.shape, 2) * (h > 0)
    over = [0, 2, 3]
    return value, (
        {
            "first": np.tensordot(dh, seen, (over, over)),
            "second": np.tensordot(da, seen_again, (over, over)),
            "out": pooled.T @ dz,
        },
    )


# -- what they share -------------------------------------------------------------------


def _mean_square(z: Array) -> tuple[Array, Array]:
    return (z * z).mean(), z * (2 / z.size)


def _mean_surprise(z: Array, labels: Array) -> tuple[Array, Array]:
    """Mean of -ln softmax(z) at the labels."""
    each = np.arange(len(labels))
    logs = plain.log_softmax(z)
    dz = np.exp(logs)
    dz[each, labels] -= 1
    return -logs[each, labels].mean(), dz / len(labels)


def _windows(x: Array, stride: int) -> Array:
    """(n c h w) padded by one, as (n c h' w' 3 3)."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(x, (3, 3), (2, 3))[:, :, ::stride, ::stride]


def _convolved(windows: Array, w: Array) -> Array:
    y = np.tensordot(windows, w, ([1, 4, 5], [1, 2, 3]))
    return np.ascontiguousarray(np.moveaxis(y, -1, 1))


def _spread(dy: Array, w: Array, shape: tuple[int, ...], stride: int) -> Array:
    """What a convolution of an image of this shape makes of ``dy`` on its way back."""
    n, c, height, width = shape
    dx = np.zeros((n, c, height + 2, width + 2), dy.dtype)
    down, across = (stride * size for size in dy.shape[2:])
    for i, j in np.ndindex(3, 3):
        part = np.moveaxis(np.tensordot(dy, w[:, :, i, j], ([1], [0])), -1, 1)
        dx[:, :, i : i + down : stride, j : j + across : stride] += part
    return dx[:, :, 1:-1, 1:-1]
