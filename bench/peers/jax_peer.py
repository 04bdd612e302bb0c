"""JAX on the CPU: jax.jit over jax.numpy and jax.nn."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bench.peers import Candidate
from bench.peers.net import Net
from bench.workloads import Workload, by_part, mapped

Array = Any


class JaxNet(Net):
    """``jax.numpy`` and ``jax.nn``."""

    def __init__(self) -> None:
        import jax
        from jax import numpy as jnp

        self.jax, self.jnp = jax, jnp
        self.relu, self.sigmoid = jax.nn.relu, jax.nn.sigmoid
        self.softmax, self.log_softmax = jax.nn.softmax, jax.nn.log_softmax
        self.silu = jax.nn.silu  # type: ignore[method-assign]
        self.exp, self.sqrt = jnp.exp, jnp.sqrt
        self.softplus = jax.nn.softplus
        self.total = jnp.sum
        self.maximum, self.minimum = jnp.maximum, jnp.minimum
        self.concat, self.roll, self.pad = jnp.concatenate, jnp.roll, jnp.pad
        self.tanh, self.diagonal = jnp.tanh, jnp.diag

    def whole(self, x: Array) -> Array:
        return self.jnp.floor(x).astype("int32")

    def gelu(self, x: Array) -> Array:
        return self.jax.nn.gelu(x, approximate=False)

    def cross_entropy(self, x: Array, labels: Array) -> Array:
        logs = self.jax.nn.log_softmax(x)
        return -self.jnp.take_along_axis(logs, labels[:, None], -1).mean()

    def column_max(self, x: Array) -> Array:
        return x.max(0)

    def conv2d(
        self, x: Array, w: Array, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Array:
        return self.jax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            ((padding, padding), (padding, padding)),
            feature_group_count=groups,
        )

    def attention(
        self, q: Array, k: Array, v: Array, causal: bool = False, bias: Array = None
    ) -> Array:
        q, k, v = (self.swap(a, -2, -3) for a in (q, k, v))  # tokens before heads
        y = self.jax.nn.dot_product_attention(q, k, v, bias, is_causal=causal)
        return self.swap(y, -2, -3)

    def stack(self, xs: list[Array], axis: int) -> Array:
        return self.jnp.stack(xs, axis)

    def cast(self, x: Array, like: Array) -> Array:
        return x.astype(like.dtype)


class Jax:
    """jax.jit; XLA takes its threads from its flags, and from the CPUs it may use."""

    def __init__(self, threads: int) -> None:
        many = "true" if threads > 1 else "false"
        os.environ["XLA_FLAGS"] = (
            f"--xla_cpu_multi_thread_eigen={many} "
            f"intra_op_parallelism_threads={threads}"
        )
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        self.jax = jax
        self.net = JaxNet()
        self.versions = {"jax": jax.__version__}

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` compiled, its weights closed over."""
        jax, net, fn = self.jax, self.net, w.fn
        jax.config.update("jax_enable_x64", w.dtype == "float64")
        args, held = mapped([inputs, weights], by_part(jax.numpy.asarray))

        def whole(*xs: Any) -> Any:
            return fn(net, *xs, *held)

        if w.argnums:
            both = jax.jit(jax.value_and_grad(whole, w.argnums))
            return Candidate(lambda: jax.block_until_ready(both(*args)), np.asarray)
        compiled = jax.jit(whole)
        return Candidate(lambda: compiled(*args).block_until_ready(), np.asarray)
