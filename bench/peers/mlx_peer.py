"""MLX: mx.compile. On a CPU its products come from a reference BLAS."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.peers import Candidate, UnsupportedWorkload
from bench.peers.net import Net
from bench.workloads import Quantised, Workload, mapped

Array = Any


class PlainNet(Net):
    """``mlx.core``'s arithmetic and reductions: what mx.compile may fuse."""

    def __init__(self) -> None:
        import mlx.core as mx
        import mlx.nn as nn

        self.mx = mx
        self.relu, self.gelu, self.softplus = nn.relu, nn.gelu, nn.softplus
        self.silu = nn.silu  # type: ignore[method-assign]
        self.sigmoid, self.exp, self.sqrt = mx.sigmoid, mx.exp, mx.sqrt
        self.cross_entropy = partial(nn.losses.cross_entropy, reduction="mean")
        self.total = mx.sum
        self.concat, self.roll, self.pad = mx.concatenate, mx.roll, mx.pad
        self.tanh, self.diagonal = mx.tanh, mx.diag

    def cast(self, x: Array, like: Array) -> Array:
        return x.astype(like.dtype)

    def column_max(self, x: Array) -> Array:
        return x.max(0)

    def softmax(self, x: Array) -> Array:
        e = self.mx.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def logsumexp(self, x: Array) -> Array:
        top = x.max(-1, keepdims=True)
        return self.mx.log(self.mx.exp(x - top).sum(-1, keepdims=True)) + top

    def banded(self, x: Array) -> Array:
        m, n = x.shape[-2:]
        keep = self.mx.tril(self.mx.ones((m, n), dtype=self.mx.bool_), n - m)
        return self.mx.where(keep, x, -float("inf"))


class MlxNet(PlainNet):
    """With the calls that ``mlx.core`` and ``mlx.core.fast`` have for whole layers."""

    def softmax(self, x: Array) -> Array:
        return self.mx.softmax(x, axis=-1, precise=x.dtype != self.mx.float32)

    def log_softmax(self, x: Array) -> Array:
        return x - self.mx.logsumexp(x, axis=-1, keepdims=True)

    def logsumexp(self, x: Array) -> Array:
        return self.mx.logsumexp(x, axis=-1, keepdims=True)

    def layer_norm(self, x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
        return self.mx.fast.layer_norm(x, g, b, eps)

    def rms_norm(self, x: Array, g: Array, eps: float = 1e-5) -> Array:
        return self.mx.fast.rms_norm(x, g, eps)

    def linear(self, x: Array, w: Array, b: Array) -> Array:
        return self.mx.addmm(b, x, w)

    def conv2d(
        self, x: Array, w: Array, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Array:
        # MLX keeps channels last; the transpositions are part of the call.
        y = self.mx.conv2d(
            x.transpose(0, 2, 3, 1), w.transpose(0, 2, 3, 1), stride, padding, 1, groups
        )
        return y.transpose(0, 3, 1, 2)

    def attention(
        self, q: Array, k: Array, v: Array, causal: bool = False, bias: Array = None
    ) -> Array:
        lone = q.ndim == 3
        if lone:
            q, k, v = q[None], k[None], v[None]
        y = self.mx.fast.scaled_dot_product_attention(
            q, k, v, scale=q.shape[-1] ** -0.5, mask="causal" if causal else bias
        )
        return y[0] if lone else y

    def quantised_matmul(self, x: Array, w: Any) -> Array:
        packed, scales, biases, rows, bits = w
        return self.mx.quantized_matmul(
            x, packed, scales, biases, transpose=True, group_size=rows, bits=bits
        )


class Mlx:
    """mx.compile on MLX's default device; on a CPU it has no setting for threads but
    that of its BLAS."""

    def __init__(self, threads: int) -> None:
        import mlx.core as mx

        self.mx = mx
        self.net = MlxNet()
        self.versions = {"mlx": mx.__version__, "device": str(mx.default_device())}
        if mx.default_device().type == mx.DeviceType.cpu:
            self.versions["note"] = "reference BLAS"

    def put(self, a: Any) -> Any:
        """A NumPy array as MLX's; a quantised matrix as its kernels read it."""
        mx = self.mx
        if isinstance(a, Quantised):
            return self._packed(a)
        if a.dtype == np.float64:
            raise UnsupportedWorkload("MLX has no float64 on all devices")
        if str(a.dtype) == "bfloat16":
            return mx.array(np.asarray(a).view(np.uint16)).view(mx.bfloat16)
        return mx.array(a)

    def _packed(self, w: Quantised) -> Any:
        """MLX's form: n rows in words of 32 bits, unsigned: q scale + bias."""
        q, bits = np.asarray(w.q), 8
        shift = 128
        if q.dtype == np.uint8:
            bits, shift = 4, 0
            q = np.stack([q & 15, q >> 4], 1).reshape(-1, q.shape[-1])
        rows = len(q) // len(w.scale)
        wide = (q.astype(np.int16) + shift).astype(np.uint32).T
        each = 32 // bits
        lanes = wide.reshape(len(wide), -1, each) << (np.arange(each) * bits)
        words = lanes.sum(-1, dtype=np.uint32)
        biases = -(w.zero.astype(np.float32) + shift) * w.scale
        parts = (np.ascontiguousarray(a) for a in (words, w.scale.T, biases.T))
        return (*(self.mx.array(a) for a in parts), rows, bits)

    def array(self, a: Any) -> Any:
        """MLX's array as NumPy's; bfloat16 becomes float32, which holds it exactly."""
        wide = a.astype(self.mx.float32) if a.dtype == self.mx.bfloat16 else a
        return np.array(wide)

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` compiled, its weights closed over, evaluated in each call."""
        mx, net, fn = self.mx, self.net, w.fn
        args, held = mapped([inputs, weights], self.put)
        mx.eval(args, [a for a in _arrays(held, mx)])

        def whole(*xs: Any) -> Any:
            return fn(net, *xs, *held)

        if w.argnums:
            whole = mx.value_and_grad(whole, argnums=list(w.argnums))
        compiled = mx.compile(whole)

        def call() -> Any:
            y = compiled(*args)
            mx.eval(y)
            return y

        return Candidate(call, self.array)


def _arrays(tree: Any, mx: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [a for t in tree for a in _arrays(t, mx)]
    return [tree] if isinstance(tree, mx.array) else []
