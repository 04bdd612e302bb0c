"""The namespace of a peer, as far as peers agree: what they lack is put together from
what they have, as their users would."""

from __future__ import annotations

import math
from typing import Any

from bench.peers import UnsupportedWorkload

Array = Any


class MissingFunction(UnsupportedWorkload, AttributeError):
    """A peer lacks a function that a workload calls."""


class Net:
    """Parts of networks over arrays with operators, ``reshape``, ``shape`` and ``.T``.

    A peer has what its library has under a name of its own: ``relu``, ``sigmoid``,
    ``gelu``, ``exp``, ``sqrt``, ``softmax``, ``softplus`` and ``total`` of an array;
    ``maximum`` and ``minimum`` of an array and an array or an integer; ``whole``, ⌊x⌋
    as int32; ``cross_entropy``, the mean of -ln softmax(x) at the labels, over rows;
    ``cast`` to the dtype of another array; ``stack``; ``concat``; ``banded``, scores
    with -∞ where a key comes after its query. What is here it may override.
    """

    def __getattr__(self, name: str) -> Any:
        raise MissingFunction(f"{type(self).__name__} has no {name}")

    def mean(self, x: Array) -> Array:
        """Over the last axis, which is kept."""
        return x.mean(-1, keepdims=True)

    def column_sum(self, x: Array) -> Array:
        return x.sum(0)

    def argmax(self, x: Array) -> Array:
        return x.argmax(-1)

    def cumsum(self, x: Array) -> Array:
        return x.cumsum(-1)

    def swap(self, x: Array, i: int, j: int) -> Array:
        """``x`` with two axes exchanged."""
        return x.swapaxes(i, j)

    def take(self, table: Array, ids: Array) -> Array:
        return table[ids]

    # -- put together ------------------------------------------------------------------

    def silu(self, x: Array) -> Array:
        return x * self.sigmoid(x)

    def layer_norm(self, x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
        centred = x - self.mean(x)
        return centred / self.sqrt(self.mean(centred * centred) + eps) * g + b

    def rms_norm(self, x: Array, g: Array, eps: float = 1e-5) -> Array:
        return x / self.sqrt(self.mean(x * x) + eps) * g

    def group_norm(
        self, x: Array, g: Array, b: Array, groups: int, eps: float = 1e-5
    ) -> Array:
        n, c, h, w = x.shape
        y = x.reshape(n, groups, c // groups * h * w)
        centred = y - self.mean(y)
        y = centred / self.sqrt(self.mean(centred * centred) + eps)
        return y.reshape(n, c, h, w) * g.reshape(c, 1, 1) + b.reshape(c, 1, 1)

    def batch_norm(
        self, x: Array, mean: Array, var: Array, g: Array, b: Array, eps: float = 1e-5
    ) -> Array:
        c = mean.shape[0]
        mean, var, g, b = (a.reshape(c, 1, 1) for a in (mean, var, g, b))
        return (x - mean) / self.sqrt(var + eps) * g + b

    def linear(self, x: Array, w: Array, b: Array) -> Array:
        return x @ w + b

    def split_heads(self, x: Array, heads: int) -> Array:
        *lead, tokens, features = x.shape
        return self.swap(x.reshape(*lead, tokens, heads, features // heads), -2, -3)

    def merge_heads(self, x: Array) -> Array:
        *lead, heads, tokens, size = x.shape
        return self.swap(x, -2, -3).reshape(*lead, tokens, heads * size)

    def attention(
        self, q: Array, k: Array, v: Array, causal: bool = False, bias: Array = None
    ) -> Array:
        *lead, heads, m, d = q.shape
        few, n = k.shape[-3], k.shape[-2]
        if few != heads:
            q = q.reshape(*lead, few, heads // few, m, d)
            k = k.reshape(*lead, few, 1, n, d)
            v = v.reshape(*lead, few, 1, n, v.shape[-1])
        scores = self.scores(q @ self.swap(k, -1, -2) * (1 / math.sqrt(d)), bias)
        y = self.softmax(self.banded(scores) if causal else scores) @ v
        return y.reshape(*lead, heads, m, v.shape[-1])

    def scores(self, x: Array, bias: Array) -> Array:
        return x if bias is None else x + bias

    def quantised_matmul(self, x: Array, w: Any) -> Array:
        q = self.rows(w.q, 2 * w.q.shape[0] if self.is_packed(w.q) else 0)
        groups, n = w.scale.shape
        wide = self.cast(q, w.scale).reshape(groups, -1, n)
        wide = wide - self.cast(w.zero, w.scale).reshape(groups, 1, n)
        wide = wide * w.scale.reshape(groups, 1, n)
        return x @ wide.reshape(-1, n)

    def is_packed(self, q: Array) -> bool:
        """Whether two rows share a byte."""
        return str(q.dtype).endswith("uint8")

    def rows(self, q: Array, rows: int) -> Array:
        """``q``, with the two rows of each byte apart if there are ``rows``."""
        if not rows:
            return q
        return self.stack([q & 15, q >> 4], 1).reshape(rows, q.shape[-1])
