"""all-MiniLM-L6-v2 in plain NumPy: sentences to embeddings, as written and optimised.

A BERT (Devlin et al. 2018, arXiv:1810.04805) of 6 layers and 384 features, distilled
by Wang et al. 2020 (arXiv:2002.10957), with mean pooling to unit length (Reimers and
Gurevych 2019, arXiv:1908.10084). Weights are named and laid out as published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import erf

import eqsat as eq
from eqsat.demo.report import (
    Record,
    duration,
    interleaved,
    kernel_table,
    phases_line,
    program_record,
    program_table,
    relative_error,
)
from eqsat.support import EqsatError, counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Array = Any
"""A NumPy array, or the value that stands for one while the function is traced."""
Weights = Mapping[str, Array]
HEADS = 12
MAX_TOKENS = 256

SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "The player scored in the last minute of the match.",
    "Matrix multiplication dominates the running time.",
    "Most of the time is spent multiplying matrices.",
    "The cat sleeps on the windowsill.",
    "A kitten is napping by the window.",
)
"""Some are neighbours in meaning; the first three are from the model's own pages."""


# -- the model -------------------------------------------------------------------------


def linear(x: Array, w: Weights, name: str) -> Array:
    """x Wᵀ + b."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-12) -> Array:
    """(x - E x) / √(Var x + ε) · weight + bias, over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def softmax(x: Array) -> Array:
    """exp x / Σ exp x over the last axis, the largest taken off first."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x: Array) -> Array:
    """x Φ(x), by the error function."""
    return 0.5 * x * (1 + erf(x / 2**0.5))


def attention(x: Array, bias: Array, w: Weights, name: str, heads: int) -> Array:
    """Multi-head self-attention; ``bias`` is added to the scores."""
    batch, tokens, features = x.shape
    size = features // heads

    def split(part: str) -> Array:
        y = linear(x, w, f"{name}.self.{part}")
        return y.reshape(batch, tokens, heads, size).transpose(0, 2, 1, 3)

    q, k, v = split("query"), split("key"), split("value")
    mixed = softmax(q @ k.swapaxes(-1, -2) / size**0.5 + bias) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, features)


def embed(w: Weights, ids: Array, mask: Array, heads: int = HEADS) -> Array:
    """Embeddings (sentences, features) of length 1, one for each row of ``ids``.

    ``ids`` (sentences, tokens) integers; ``mask`` of that shape and the weights' dtype,
    1 for a token and 0 for padding.
    """

    def norm(x: Array, name: str) -> Array:
        name += ".LayerNorm"
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    bias = (1 - mask[:, None, None, :]) * -1e9
    for i in range(layers(w)):
        at = f"encoder.layer.{i}"
        y = attention(x, bias, w, f"{at}.attention", heads)
        y = linear(y, w, f"{at}.attention.output.dense")
        x = norm(x + y, f"{at}.attention.output")
        y = gelu(linear(x, w, f"{at}.intermediate.dense"))
        x = norm(x + linear(y, w, f"{at}.output.dense"), f"{at}.output")
    pooled = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    return pooled / np.sqrt((pooled * pooled).sum(-1, keepdims=True))


def layers(w: Weights) -> int:
    """How many layers ``w`` holds."""
    return sum(name.endswith(".intermediate.dense.weight") for name in w)


# -- the demonstration -----------------------------------------------------------------


def load(folder: Path, dtype: str) -> dict[str, Array]:
    """The weights in ``folder`` as ``dtype``, or :class:`EqsatError` for a bad file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EqsatError(f"{path} is not a safetensors file: {error}") from error
    return {
        name: array.astype(dtype, copy=False)
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }


def tokenise(folder: Path, sentences: Sequence[str], dtype: str) -> tuple[Array, Array]:
    """``ids`` and ``mask``, padded to the longest sentence, of at most 256 tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    coded = tokenizer.encode_batch(list(sentences))
    mask = np.array([c.attention_mask for c in coded], dtype)
    return np.array([c.ids for c in coded]), mask


def run(
    folder: Path,
    sentences: Sequence[str] = SENTENCES,
    dtype: str = "float32",
    rounds: int = 11,
) -> Record:
    """Embed ``sentences`` with the model in ``folder``: plain NumPy and optimised."""
    w = load(folder, dtype)
    ids, mask = tokenise(folder, sentences, dtype)
    plain = embed(w, ids, mask)
    compiled = eq.jit(embed, constants=("w",))
    explanation = compiled.explain(w, ids, mask)
    optimised = compiled(w, ids, mask)
    return {
        "model": "all-MiniLM-L6-v2",
        "dtype": dtype,
        "sentences": list(sentences),
        "tokens": list(ids.shape),
        "similarity": (optimised @ optimised.T).tolist(),
        **program_record(explanation),
        "max_relative_difference": relative_error(optimised, plain),
        "rounds": rounds,
        "run": interleaved(
            {
                "numpy": lambda: embed(w, ids, mask),
                "eqsat": lambda: compiled(w, ids, mask),
            },
            rounds,
        ),
    }


def show(record: Record, console: Console) -> None:
    """Print what :func:`run` found."""
    from rich.table import Table

    console.print(similarity_table(record))
    console.print(program_table(record))
    console.print(kernel_table(record))
    times = Table("", "median", "least", "most", title="Time of one call")
    for name, seconds in record["run"].items():
        cells = (duration(seconds[k]) for k in ("median_s", "min_s", "max_s"))
        times.add_row(name, *cells)
    console.print(times)
    console.print(phases_line(record))
    console.print(
        f"{counted(record['rounds'], 'interleaved round')}, {record['dtype']}, "
        f"{' × '.join(map(str, record['tokens']))} tokens; "
        "largest relative difference of the embeddings "
        f"{record['max_relative_difference']:.1e}"
    )


def similarity_table(record: Record) -> Table:
    """All pairs of a few sentences; of many, the nearest other to each."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    sentences = [escape(s) for s in record["sentences"]]
    similarity = np.array(record["similarity"])
    table = Table(box=SIMPLE_HEAD, padding=0, expand=True, title="Cosine similarity")
    table.add_column("", width=4)
    table.add_column("sentence", ratio=1, no_wrap=True, overflow="ellipsis")
    if len(sentences) <= 10:
        for i in range(len(sentences)):
            table.add_column(str(i + 1), justify="right", width=6)
        for i, row in enumerate(similarity):
            cells = (f"[bold]{s:.2f}[/]" if s > 0.4 else f"{s:.2f}" for s in row)
            table.add_row(str(i + 1), sentences[i], *cells)
        return table
    table.add_column("nearest other", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("", justify="right", width=6)
    np.fill_diagonal(similarity, -np.inf)
    for i, row in enumerate(similarity):
        near = int(row.argmax())
        table.add_row(str(i + 1), sentences[i], sentences[near], f"{row[near]:.2f}")
    return table
