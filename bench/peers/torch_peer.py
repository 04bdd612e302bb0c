"""PyTorch on the CPU: eager, and torch.compile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.peers import Candidate
from bench.peers.net import Net
from bench.workloads import Workload, by_part, leaves, mapped

Array = Any


class TorchNet(Net):
    """``torch`` and ``torch.nn.functional``."""

    def __init__(self) -> None:
        import torch
        from torch.nn import functional

        self.torch, self.f = torch, functional
        self.relu, self.sigmoid = torch.relu, torch.sigmoid
        self.gelu, self.softplus = functional.gelu, functional.softplus
        self.silu = functional.silu  # type: ignore[method-assign]
        self.exp, self.sqrt, self.total = torch.exp, torch.sqrt, torch.sum
        self.cross_entropy = functional.cross_entropy
        self.concat, self.roll, self.tanh = torch.cat, torch.roll, torch.tanh
        self.diagonal = torch.diag

    def maximum(self, x: Array, y: Any) -> Array:
        return x.clamp(min=y) if isinstance(y, int) else self.torch.maximum(x, y)

    def minimum(self, x: Array, y: Any) -> Array:
        return x.clamp(max=y) if isinstance(y, int) else self.torch.minimum(x, y)

    def whole(self, x: Array) -> Array:
        return self.torch.floor(x).to(self.torch.int32)

    def take(self, table: Array, ids: Array) -> Array:
        return self.f.embedding(ids, table)

    def column_max(self, x: Array) -> Array:
        return x.amax(0)

    def softmax(self, x: Array) -> Array:
        return self.torch.softmax(x, -1)

    def log_softmax(self, x: Array) -> Array:
        return self.torch.log_softmax(x, -1)

    def logsumexp(self, x: Array) -> Array:
        return self.torch.logsumexp(x, -1, keepdim=True)

    def layer_norm(self, x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
        return self.f.layer_norm(x, g.shape, g, b, eps)

    def rms_norm(self, x: Array, g: Array, eps: float = 1e-5) -> Array:
        return self.f.rms_norm(x, g.shape, g, eps)

    def group_norm(
        self, x: Array, g: Array, b: Array, groups: int, eps: float = 1e-5
    ) -> Array:
        return self.f.group_norm(x, groups, g, b, eps)

    def batch_norm(
        self, x: Array, mean: Array, var: Array, g: Array, b: Array, eps: float = 1e-5
    ) -> Array:
        return self.f.batch_norm(x, mean, var, g, b, eps=eps)

    def conv2d(
        self, x: Array, w: Array, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Array:
        return self.f.conv2d(x, w, stride=stride, padding=padding, groups=groups)

    def linear(self, x: Array, w: Array, b: Array) -> Array:
        return self.f.linear(x, w.T, b)

    def attention(
        self, q: Array, k: Array, v: Array, causal: bool = False, bias: Array = None
    ) -> Array:
        lone = q.ndim == 3
        if lone:  # the fast kernels take batches
            q, k, v = q[None], k[None], v[None]
        y = self.f.scaled_dot_product_attention(
            q, k, v, bias, is_causal=causal, enable_gqa=q.shape[-3] != k.shape[-3]
        )
        return y[0] if lone else y

    def stack(self, xs: list[Array], axis: int) -> Array:
        return self.torch.stack(xs, axis)

    def pad(self, x: Array, by: int) -> Array:
        return self.f.pad(x, (by,) * 4)

    def cast(self, x: Array, like: Array) -> Array:
        return x.to(like.dtype)


def tensor(a: Any) -> Any:
    """A NumPy array as a tensor with memory of its own."""
    import torch

    if str(a.dtype) == "bfloat16":
        bits = torch.from_numpy(np.array(a).view(np.int16))
        return bits.view(torch.bfloat16)
    return torch.from_numpy(np.array(a))


class Eager:
    """PyTorch as it is called."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        self.torch = torch
        self.net = TorchNet()
        self.versions = {"torch": torch.__version__}

    def array(self, t: Any) -> Any:
        """A tensor as an array; bfloat16 becomes float32, which holds it exactly."""
        wide = t.float() if t.dtype is self.torch.bfloat16 else t
        return wide.numpy()

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` over tensors."""
        fn = partial(w.fn, self.net)
        args = mapped([*inputs, *weights], by_part(tensor))
        call = self.differentiated(fn, args, w.argnums) if w.argnums else fn
        return Candidate(partial(call, *args), self.array)

    def differentiated(
        self, loss: Callable[..., Any], args: list[Any], argnums: Sequence[int]
    ) -> Callable[..., Any]:
        """Value and gradients of ``loss`` by some of ``args``, which it must be called
        with."""
        torch = self.torch
        by = list(leaves([args[n] for n in argnums]))
        for t in by:
            t.requires_grad_(True)

        def call(*args: Any) -> Any:
            with torch.enable_grad():
                value = loss(*args)
            return value.detach(), torch.autograd.grad(value, by)

        return call


class TorchCompiled(Eager):
    """torch.compile with frozen weights, and without its caches on disk."""

    def __init__(self, threads: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self._folder.name
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        super().__init__(threads)
        import torch._inductor.config

        torch._inductor.config.freezing = True

    def differentiated(
        self, loss: Callable[..., Any], args: list[Any], argnums: Sequence[int]
    ) -> Callable[..., Any]:
        """One graph of both ways: up to three times as fast as the graphs that
        autograd makes of a compiled loss."""
        both = self.torch.func.grad_and_value(loss, tuple(argnums))

        def call(*args: Any) -> Any:
            gradients, value = both(*args)
            return value, gradients

        return call

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` as a module with parameters, or the gradient of it by torch.func,
        compiled at the first call."""
        torch, net, fn = self.torch, self.net, w.fn
        torch._dynamo.reset()
        if w.argnums:
            args = mapped([*inputs, *weights], by_part(tensor))
            call = torch.compile(self.differentiated(partial(fn, net), args, w.argnums))
            return Candidate(partial(call, *args), self.array)

        def parameter(a: Any) -> Any:
            return torch.nn.Parameter(tensor(a), requires_grad=False)

        held = mapped(weights, by_part(parameter))

        class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                for i, p in enumerate(leaves(held)):
                    self.register_parameter(f"p{i}", p)

            def forward(self, *xs: Any) -> Any:
                return fn(net, *xs, *held)

        compiled = torch.compile(Module().eval())
        args = [tensor(a) for a in inputs]
        return Candidate(partial(compiled, *args), self.array)
