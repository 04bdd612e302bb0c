"""The namespace of a peer, as far as peers agree: what they lack is put together from
what they have, as their users would."""

from __future__ import annotations

import math
from typing import Any

Array = Any


class Net:
    """Parts of networks over arrays with operators, ``reshape``, ``shape`` and ``.T``.

    A peer overrides what its library has under a name of its own.
    """

    def relu(self, x: Array) -> Array:
        raise NotImplementedError

    def sigmoid(self, x: Array) -> Array:
        raise NotImplementedError

    def gelu(self, x: Array) -> Array:
        raise NotImplementedError

    def exp(self, x: Array) -> Array:
        raise NotImplementedError

    def sqrt(self, x: Array) -> Array:
        raise NotImplementedError

    def maximum(self, x: Array, y: Any) -> Array:
        """The greater one; ``y`` may be an integer."""
        raise NotImplementedError

    def minimum(self, x: Array, y: Any) -> Array:
        """The lesser one; ``y`` may be an integer."""
        raise NotImplementedError

    def whole(self, x: Array) -> Array:
        """⌊x⌋ as int32."""
        raise NotImplementedError

    def mean(self, x: Array) -> Array:
        """Over the last axis, which is kept."""
        raise NotImplementedError

    def softmax(self, x: Array) -> Array:
        raise NotImplementedError

    def softplus(self, x: Array) -> Array:
        """ln(1 + eˣ)."""
        raise NotImplementedError

    def cross_entropy(self, x: Array, labels: Array) -> Array:
        """Mean of -ln softmax(x) at the labels, over the rows of ``x``."""
        raise NotImplementedError

    def cast(self, x: Array, like: Array) -> Array:
        """``x`` in the dtype of ``like``."""
        raise NotImplementedError

    def swap(self, x: Array, i: int, j: int) -> Array:
        """``x`` with two axes exchanged."""
        return x.swapaxes(i, j)

    def stack(self, xs: list[Array], axis: int) -> Array:
        raise NotImplementedError

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

    def banded(self, x: Array) -> Array:
        """Scores with -∞ where a key comes after its query."""
        raise NotImplementedError

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
