"""A language model that writes: a prompt at once, then token after token.

A decoder as in Llama (Touvron et al. 2023, arXiv:2302.13971) with random weights, in
plain NumPy: RMS norm, rotary embedding, heads that share keys and values, SiLU as a
gate. Keys and values of the tokens so far lie in arrays with room for more, into which
a step writes. Attention sees all of the room and hides what is not written yet, so that
a step is one program until the room doubles.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import eqsat as eq
from eqsat.demo.block import Params, rms_norm, silu
from eqsat.demo.minilm import Array, softmax
from eqsat.demo.report import Record
from eqsat.support import OptionError, counted

if TYPE_CHECKING:
    from rich.console import Console

LEAST_ROOM = 64
"""Tokens that the caches hold at first."""
Caches = list[tuple[Array, Array]]
"""Keys and values of each layer: key heads, room, features of a head."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model. Raises :class:`OptionError` for sizes that do not fit."""

    layers: int = 6
    dim: int = 384
    """Features."""
    heads: int = 6
    key_heads: int = 2
    """Heads of keys and values, each of which serves some of the others."""
    words: int = 4096

    def __post_init__(self) -> None:
        for name, n in asdict(self).items():
            if n < 1:
                raise OptionError(f"{name}={n}: expected at least 1")
        if self.dim % (2 * self.heads):
            raise OptionError(
                f"dim={self.dim} is not a multiple of 2 times heads={self.heads}"
            )
        if self.heads % self.key_heads:
            raise OptionError(
                f"heads={self.heads} is not a multiple of key_heads={self.key_heads}"
            )

    @property
    def size(self) -> int:
        """Features of a head."""
        return self.dim // self.heads


@dataclass(frozen=True)
class Decoder:
    """The weights, which never change."""

    sizes: Sizes
    table: Array
    """A row for each word; words are scored by them, too."""
    layers: Sequence[Params]

    def caches(self, room: int) -> Caches:
        """Keys and values of no tokens yet."""
        shape = self.sizes.key_heads, room, self.sizes.size
        zeros = [np.zeros(shape, self.table.dtype) for _ in range(2 * len(self.layers))]
        return [*zip(zeros[::2], zeros[1::2], strict=True)]

    def step(self, table: Array, words: Array, start: Array, caches: Caches) -> Array:
        """The scores of the word after ``words``, which stand from place ``start`` on.
        ``table``: that of the model, from which words are taken by number. Writes their
        keys and values into ``caches``."""
        x = table[words]
        places = start + np.arange(len(words))
        room = caches[0][0].shape[1]
        hidden = np.arange(room) > places[:, None]
        for p, (keys, values) in zip(self.layers, caches, strict=True):
            x = x + self._attended(x, places, hidden, p, keys, values)
            h = rms_norm(x, p["norm2.w"])
            x = x + (silu(h @ p["gate.w"]) * (h @ p["up.w"])) @ p["down.w"]
        return rms_norm(x[-1], p["norm.w"]) @ table.T

    def _attended(
        self,
        x: Array,
        places: Array,
        hidden: Array,
        p: Params,
        keys: Array,
        values: Array,
    ) -> Array:
        heads, few, size = self.sizes.heads, self.sizes.key_heads, self.sizes.size
        h = rms_norm(x, p["norm1.w"])
        q, k, v = (
            (h @ p[f"{name}.w"]).reshape(len(x), n, size).swapaxes(0, 1)
            for name, n in (("q", heads), ("k", few), ("v", few))
        )
        keys[:, places] = rotary(k, places)
        values[:, places] = v
        q = rotary(q, places).reshape(few, heads // few, len(x), size)
        scores = q @ keys[:, None].swapaxes(-1, -2) / np.float32(math.sqrt(size))
        weights = softmax(np.where(hidden, np.float32(-np.inf), scores))
        mixed = (weights @ values[:, None]).reshape(heads, len(x), size)
        return mixed.swapaxes(0, 1).reshape(len(x), -1) @ p["out.w"]


def rotary(x: Array, places: Array) -> Array:
    """``x`` (heads, tokens, features), halves of features turned together by angles
    that grow with the places. Su et al. 2021, arXiv:2104.09864."""
    half = x.shape[-1] // 2
    rates = 1e4 ** (-np.arange(half) / half)
    angles = (places[:, None] * rates).astype(x.dtype)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def draw(sizes: Sizes, seed: int = 0) -> Decoder:
    """A model of float32, the same for the same ``seed``.

    Weights show ``bytes``, which nobody can change: of other arrays each call looks
    whether they are as they were, which takes as long as a step.
    """
    rng = np.random.default_rng(seed)
    d, hidden, few = sizes.dim, 8 * sizes.dim // 3, sizes.key_heads * sizes.size

    def weight(m: int, n: int) -> Array:
        w = rng.standard_normal((m, n), np.float32) / np.float32(math.sqrt(m))
        return np.frombuffer(w.tobytes(), w.dtype).reshape(w.shape)

    shapes = {"q": (d, d), "k": (d, few), "v": (d, few), "out": (d, d)}
    shapes |= {"gate": (d, hidden), "up": (d, hidden), "down": (hidden, d)}

    def layer() -> Params:
        norms = {f"{name}.w": weight(1, d)[0] for name in ("norm1", "norm2", "norm")}
        return norms | {f"{name}.w": weight(*shape) for name, shape in shapes.items()}

    layers = [layer() for _ in range(sizes.layers)]
    return Decoder(sizes, weight(sizes.words, d), layers)


Step = Callable[[Array, Array, Any, Caches], Array]


def written(
    step: Step, model: Decoder, prompt: Array, tokens: int
) -> tuple[list[int], list[float], int]:
    """The likeliest words after ``prompt``, one after the other, the seconds that each
    took, of which the first took the whole prompt, and for how many shapes ``step`` was
    called: each is a program."""
    words, seconds, shapes = list[int](), list[float](), set[tuple[int, int]]()
    room = max(LEAST_ROOM, 1 << (len(prompt) - 1).bit_length())
    caches, given, place = model.caches(room), prompt, 0
    for _ in range(tokens):
        start = time.perf_counter()
        if place + len(given) > room:
            room, old = 2 * room, caches
            caches = model.caches(room)
            for new, known in zip(caches, old, strict=True):
                for to, of in zip(new, known, strict=True):
                    to[:, : of.shape[1]] = of
        shapes.add((len(given), room))
        scores = step(model.table, given, np.int64(place), caches)
        place += len(given)
        given = np.array([np.argmax(scores)])
        words.append(int(given[0]))
        seconds.append(time.perf_counter() - start)
    return words, seconds, len(shapes)


def run(sizes: Sizes, prompt: int = 32, tokens: int = 128, seed: int = 0) -> Record:
    """Write ``tokens`` words after a drawn prompt of so many, by eqsat and by plain
    NumPy, in turn. Seconds of a word are medians of a second time, which compiles
    nothing."""
    if prompt < 1 or tokens < 2:
        raise OptionError(
            f"prompt={prompt} and tokens={tokens}: expected at least 1 and 2"
        )
    model = draw(sizes, seed)
    words = np.random.default_rng(seed).integers(0, sizes.words, prompt)
    compiled = eq.jit(model.step)
    start = time.perf_counter()
    found, _, programs = written(compiled, model, words, tokens)
    first_s = time.perf_counter() - start
    plain, plain_s, _ = written(model.step, model, words, tokens)
    again, again_s, _ = written(compiled, model, words, tokens)
    same = [a == b == c for a, b, c in zip(found, plain, again, strict=True)]
    return {
        **asdict(sizes),
        "prompt": prompt,
        "tokens": tokens,
        "programs": programs,
        "first_s": first_s,
        "prompt_s": again_s[0],
        "word_s": statistics.median(again_s[1:]),
        "numpy": {"prompt_s": plain_s[0], "word_s": statistics.median(plain_s[1:])},
        "same_words": all(same),
    }


def show(record: Record, console: Console) -> None:
    """The record for people."""
    plain = record["numpy"]
    console.print(
        f"{counted(record['layers'], 'layer')} of "
        f"{counted(record['dim'], 'feature')}, random weights: "
        f"{record['tokens']} words after a prompt of {record['prompt']}, by "
        f"{counted(record['programs'], 'program')}, compiled and run first in "
        f"{record['first_s']:.1f} s"
    )
    for name, row in (("eqsat", record), ("NumPy", plain)):
        console.print(
            f"{name:6} {1 / row['word_s']:8.0f} words a second, "
            f"prompt {row['prompt_s'] * 1e3:.1f} ms"
        )
    same = "the same words" if record["same_words"] else "OTHER WORDS than NumPy"
    console.print(f"eqsat wrote {same}")
