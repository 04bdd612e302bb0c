"""Transformer blocks as NumPy users write them, and what the optimiser makes of them.

Pre-norm blocks (Xiong et al. 2020, arXiv:2002.04745): layer norm and gelu as in GPT-2,
or RMS norm (arXiv:1910.07467) and SwiGLU (arXiv:2002.05202) as in LLaMA. With ``lora``
each block has a low-rank adapter (Hu et al. 2021, arXiv:2106.09685) on its output
projection, multiplied in the dear order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import eqsat as eq
from eqsat.demo.minilm import Array, gelu, layer_norm, softmax
from eqsat.demo.report import (
    Record,
    kernel_table,
    phases_line,
    program_record,
    program_table,
    relative_error,
)
from eqsat.kernels import Program
from eqsat.support import OptionError, counted
from eqsat.terms import INPUT, Term, postorder
from eqsat.trace import primitives

if TYPE_CHECKING:
    from rich.console import Console

Params = dict[str, Array]
Adapter = tuple[Array, Array]
EPS = 1e-5


@dataclass(frozen=True)
class Config:
    """Sizes of the model. Raises :class:`OptionError` for sizes that do not fit."""

    layers: int = 12
    seq: int = 128
    """Tokens."""
    dim: int = 768
    """Features."""
    heads: int = 12
    lora: int = 0
    """Rank of the adapters; 0 for none."""
    norm: str = "layer"
    """``layer`` (layer norm and gelu) or ``rms`` (RMS norm and SwiGLU)."""

    def __post_init__(self) -> None:
        for name in ("layers", "seq", "dim", "heads"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.lora < 0:
            raise OptionError(f"lora={self.lora}: expected a rank, or 0 for no adapter")
        if self.dim % self.heads:
            raise OptionError(f"dim={self.dim} is not a multiple of heads={self.heads}")
        if self.norm not in ("layer", "rms"):
            raise OptionError(f"norm={self.norm!r}: expected 'layer' or 'rms'")

    @property
    def hidden(self) -> int:
        """Features between the two products of the feed-forward part."""
        return 4 * self.dim if self.norm == "layer" else 8 * self.dim // 3


# -- the model -------------------------------------------------------------------------


def rms_norm(x: Array, weight: Array) -> Array:
    """x / √(E x² + ε) · weight, over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def silu(x: Array) -> Array:
    """x σ(x)."""
    return x / (1 + np.exp(-x))


def normalise(x: Array, p: Params, name: str) -> Array:
    """Layer norm where there is a bias, else RMS norm."""
    if f"{name}.b" in p:
        return layer_norm(x, p[f"{name}.w"], p[f"{name}.b"], EPS)
    return rms_norm(x, p[f"{name}.w"])


def linear(x: Array, p: Params, name: str) -> Array:
    """x W, plus b where there is one."""
    y = x @ p[f"{name}.w"]
    return y + p[f"{name}.b"] if f"{name}.b" in p else y


def attention(x: Array, p: Params, heads: int, adapter: Adapter | None) -> Array:
    """Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762), projected."""
    batch, seq, dim = x.shape

    def split(y: Array) -> Array:
        return y.reshape(batch, seq, heads, dim // heads).transpose(0, 2, 1, 3)

    q, k, v = (split(linear(x, p, name)) for name in "qkv")
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(dim // heads))
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, seq, dim)
    out = linear(mixed, p, "out")
    if adapter is None:
        return out
    a, b = adapter
    return out + mixed @ (a @ b)


def feed_forward(x: Array, p: Params) -> Array:
    """W₂ gelu(W₁ x), or W₂ (silu(W₁ x) ∘ W₃ x) where there is a gate."""
    if "gate.w" in p:
        return linear(silu(linear(x, p, "gate")) * linear(x, p, "up"), p, "down")
    return linear(gelu(linear(x, p, "up")), p, "down")


def block(x: Array, p: Params, heads: int, adapter: Adapter | None = None) -> Array:
    """One block: x + attention(norm x), and that plus feed_forward(norm of it)."""
    x = x + attention(normalise(x, p, "norm1"), p, heads, adapter)
    return x + feed_forward(normalise(x, p, "norm2"), p)


# -- the demonstration -----------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Blocks with their weights; ``config`` says how they were drawn."""

    config: Config
    params: Sequence[Params]

    def forward(self, x: Array, adapters: Sequence[Adapter] = ()) -> Array:
        """``x`` (batch, tokens, features) through all blocks."""
        for i, p in enumerate(self.params):
            x = block(x, p, self.config.heads, adapters[i] if adapters else None)
        return x

    def in_float64(self, x: Array, adapters: Sequence[Adapter] = ()) -> Array:
        """The same in float64, where the weights of one block at a time are copied."""
        x = x.astype(np.float64)
        pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in adapters]
        for i, p in enumerate(self.params):
            wide = {name: w.astype(np.float64) for name, w in p.items()}
            x = block(x, wide, self.config.heads, pairs[i] if pairs else None)
        return x


def draw(config: Config, seed: int = 0) -> tuple[Model, Array, list[Adapter]]:
    """A model, an input and adapters in float32, the same for the same ``seed``."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> Array:
        return rng.standard_normal(shape, np.float32) * np.float32(scale)

    d, h, bias = config.dim, config.hidden, config.norm == "layer"
    products = {"q": (d, d), "k": (d, d), "v": (d, d), "out": (d, d)}
    products |= {"up": (d, h), "down": (h, d)} | ({} if bias else {"gate": (d, h)})

    def one_block() -> Iterator[tuple[str, Array]]:
        for name, (m, n) in products.items():
            yield f"{name}.w", normal(m, n, scale=1 / math.sqrt(m))
            if bias:
                yield f"{name}.b", normal(n, scale=0.1)
        for name in ("norm1", "norm2"):
            yield f"{name}.w", 1 + normal(d, scale=0.1)
            if bias:
                yield f"{name}.b", normal(d, scale=0.1)

    model = Model(config, [dict(one_block()) for _ in range(config.layers)])
    r = config.lora
    adapters = [
        (normal(d, r, scale=1 / math.sqrt(d)), normal(r, d, scale=0.1))
        for _ in range(config.layers if r else 0)
    ]
    return model, normal(1, config.seq, d, scale=1.0), adapters


def run(config: Config, seed: int = 0) -> Record:
    """Optimise the model of ``config``; compare with plain NumPy and with float64."""
    model, x, adapters = draw(config, seed)
    args: tuple[Any, ...] = (x, adapters) if adapters else (x,)
    compiled = eq.jit(model.forward)
    explanation = compiled.explain(*args)
    program = compiled.lower(*args).program
    got, plain, wide = compiled(*args), model.forward(*args), model.in_float64(*args)
    rank, order = config.lora, lora_order(program)
    return {
        **asdict(config),
        **program_record(explanation),
        "kernels_per_block": len(explanation.kernels) / config.layers,
        "max_relative_error": relative_error(got, plain),
        "max_relative_error_float64": {
            "optimised": relative_error(got, wide),
            "plain": relative_error(plain, wide),
        },
        "qkv_merged": qkv_merged(program, config),
        "lora": {"rank": rank, "order": order} if rank else None,
    }


def qkv_merged(program: Program, config: Config) -> bool:
    """Whether each block has a weight of 3 d² elements: Q, K, V as one product."""
    weights = {*program.constants, *program.folded}
    read = [a for kernel in program.kernels for a in kernel.inputs if a in weights]
    return sum(a.size == 3 * config.dim**2 for a in read) >= config.layers


def lora_order(program: Program) -> str:
    """``"x (A B)"`` where a product of adapters alone is computed, else ``"(x A) B"``.

    Fused ops are opened first. Input 0 of the program is x, the others are adapters.
    """
    needs: dict[Term, frozenset[int]] = {}
    for term in postorder(primitives(root) for root in program.roots):
        if term.op is INPUT:
            needs[term] = frozenset({program.inputs.index(term)})
        else:
            needs[term] = frozenset().union(*(needs[a] for a in term.args))
        if len(needs[term]) > 1 and 0 not in needs[term]:
            return "x (A B)"
    return "(x A) B"


def show(record: Record, console: Console) -> None:
    """Print what :func:`run` found."""
    from rich.table import Table

    console.print(program_table(record))
    console.print(kernel_table(record))
    facts = Table(show_header=False)
    facts.add_row("kernels a block", f"{record['kernels_per_block']:g}")
    facts.add_row("Q, K, V merged", "yes" if record["qkv_merged"] else "no")
    if record["lora"]:
        facts.add_row("order of the adapter's product", record["lora"]["order"])
    graph = record["egraph"]
    facts.add_row(
        "e-graph",
        f"{counted(graph['classes'], 'class')}, {counted(graph['nodes'], 'node')}",
    )
    regions = f"{graph['regions']} ({graph['distinct_regions']} distinct)"
    facts.add_row("regions", regions)
    facts.add_row(
        "largest relative error to plain NumPy", f"{record['max_relative_error']:.1e}"
    )
    for name, error in record["max_relative_error_float64"].items():
        facts.add_row(f"… to float64, {name}", f"{error:.1e}")
    console.print(facts)
    console.print(phases_line(record))
