"""Layers of drawn programs: long programs whose parts repeat, or almost do.

A layer takes a stream of shape ``... n d`` to another one of the same shape. The layers
of a program are the choices of the first one made again, over other weights, now and
then with one choice changed, so that regions of a program are equal, or nearly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eqsat.checking import Pick, one_of
from eqsat.testing.builder import Builder

ACTIVATIONS = (
    "np.maximum({0}, 0)",
    "np.tanh({0})",
    "ops.gelu({0})",
    "ops.silu({0})",
    "0.5 * {0} * (1 + np.tanh({0} * 0.7978845608 + 0.0356774081 * {0} ** 3))",
    "np.where({0} > 0.1, {0}, 0.1 * {0})",
)
PARTS = 3
"""Parts of the largest layer."""


class _Refused(Exception):
    """A value of a layer that cannot be."""


@dataclass
class Recipe:
    """Choices that layers are made by, to be made again."""

    choices: list[int] = field(default_factory=list)

    def made_by(self, pick: Pick) -> Pick:
        """``pick``, whose choices become those of this recipe."""
        self.choices = []

        def first(n: int) -> int:
            self.choices.append(pick(n))
            return self.choices[-1]

        return first

    def again(self, pick: Pick, changed: int = -1) -> Pick:
        """The choices of this recipe, but for the one numbered ``changed``."""
        rest = iter(enumerate(self.choices))

        def same(n: int) -> int:
            at, chosen = next(rest, (changed, 0))
            return pick(n) if at == changed else min(chosen, n - 1)

        return same


@dataclass
class _Layer:
    """A layer while it is made, by the choices of ``pick``."""

    b: Builder
    pick: Pick

    def take(self, code: str) -> str:
        name = self.b.take(code)
        if name is None:
            raise _Refused
        return name

    def weight(self, x: str, *shape: int) -> str:
        """A new leaf of the dtype of ``x`` whose products stay in range."""
        rng = np.random.default_rng(self.b.pick(1 << 16))
        spread = 1 / max(shape[0], 1) ** 0.5 if len(shape) > 1 else 0.5
        array = rng.uniform(-2, 2, shape) * spread
        return self.b.hold(array.astype(self.b.dtype_of(x)), fixed=self.pick(4) > 0)

    def activation(self, x: str) -> str:
        return self.take(one_of(self.pick, ACTIVATIONS).format(x))


Block = Callable[[_Layer, str], str]


@dataclass
class Layers:
    """The layers of one program."""

    b: Builder
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        self.stream = _new(self.b)
        self.alike = not self.b.pick(3)
        """Whether all layers are made by the same choices, with no steps between."""

    def add(self, b: Builder) -> None:
        """One more layer."""
        kind = 0 if self.alike else b.pick(8)
        if not self.recipe.choices or kind == 7:
            pick = self.recipe.made_by(b.pick)
        elif kind > 4:
            pick = self.recipe.again(b.pick, b.pick(len(self.recipe.choices)))
        else:
            pick = self.recipe.again(b.pick)
        made = _Layer(b, pick)
        for _ in range(1 + pick(PARTS)):
            self.stream = _part(made, self.stream)
        if not self.alike and not b.pick(4) and self.stream.startswith("t"):
            b.wanted.append(self.stream)

    def end(self) -> None:
        """The last stream is a result."""
        if self.stream.startswith("t"):
            self.b.wanted.append(self.stream)


def _new(b: Builder) -> str:
    n, d = one_of(b.pick, (4, 3, 5, 7, 1)), 2 * one_of(b.pick, (4, 2, 3, 6))
    batch = one_of(b.pick, ((), (2,), (3,)))
    rng = np.random.default_rng(b.pick(1 << 16))
    array = rng.uniform(-2, 2, (*batch, n, d))
    return b.hold(array.astype(b.dtype), fixed=False)


def _part(made: _Layer, x: str) -> str:
    """A block over ``x``, perhaps normed, perhaps added to an earlier value."""
    b, pick = made.b, made.pick
    block, norm, residual = one_of(pick, BLOCKS), pick(3), pick(5)
    try:
        y = _normed(made, x) if norm else x
        y = block(made, y)
        if residual == 1:
            return made.take(f"{x} + {y}")
        if residual == 2:
            return _normed(made, made.take(f"{x} + {y}"))
        if residual == 3:  # from afar, over some regions
            same = (b.shape(x), b.dtype_of(x))
            far = b.names(lambda n: (b.shape(n), b.dtype_of(n)) == same)
            return made.take(f"{y} + {one_of(pick, far[:40])} * 0.5")
        return y
    except _Refused:
        return x


def _normed(made: _Layer, x: str) -> str:
    d = made.b.shape(x)[-1]
    kind = made.pick(4)
    if kind == 0:
        mean = made.take(f"np.mean({x}, axis=-1, keepdims=True)")
        c = made.take(f"{x} - {mean}")
        var = made.take(f"np.mean({c} * {c}, axis=-1, keepdims=True)")
        y = made.take(f"{c} / np.sqrt({var} + 0.1)")
        return made.take(f"{y} * {made.weight(x, d)} + {made.weight(x, d)}")
    if kind == 1:
        w = made.weight(x, d)
        return made.take(f"ops.layer_norm({x}, {w}, {made.weight(x, d)}, 0.01)")
    if kind == 2:
        ms = made.take(f"np.mean(np.square({x}), axis=-1, keepdims=True)")
        return made.take(f"{x} * ops.rsqrt({ms} + 0.1) * {made.weight(x, d)}")
    return made.take(f"ops.softmax({x}, axis=-1)")


# -- blocks: ... n d to ... n d --------------------------------------------------------


def _mlp(made: _Layer, x: str) -> str:
    d, e = made.b.shape(x)[-1], one_of(made.pick, (6, 8, 4, 12))
    h = made.take(f"{x} @ {made.weight(x, d, e)} + {made.weight(x, e)}")
    h = made.activation(h)
    if made.pick(2):
        g = made.take(f"{x} @ {made.weight(x, d, e)}")
        h = made.take(f"{h} * {g}")
    return made.take(f"{h} @ {made.weight(x, e, d)}")


def _attention(made: _Layer, x: str) -> str:
    *batch, n, d = made.b.shape(x)
    at = len(batch)
    heads = (*range(at), at + 1, at, at + 2)

    def split(w: str) -> str:
        y = made.take(f"({x} @ {w}).reshape({(*batch, n, 2, d // 2)})")
        return made.take(f"np.transpose({y}, {heads})")

    q, k, v = (split(made.weight(x, d, d)) for _ in range(3))
    scores = made.take(f"{q} @ {k}.mT * {one_of(made.pick, (0.5, 0.25))}")
    if made.pick(2):
        shifted = made.take(f"np.exp({scores} - {scores}.max(-1, keepdims=True))")
        p = made.take(f"{shifted} / {shifted}.sum(-1, keepdims=True)")
    else:
        p = made.take(f"ops.softmax({scores}, axis=-1)")
    y = made.take(f"np.transpose({p} @ {v}, {heads})")
    return made.take(f"{y}.reshape({(*batch, n, d)}) @ {made.weight(x, d, d)}")


def _mix(made: _Layer, x: str) -> str:
    """Along the other axis."""
    n = made.b.shape(x)[-2]
    y = made.take(f"({x}.mT @ {made.weight(x, n, n)}).mT")
    return made.activation(y) if made.pick(2) else y


def _halves(made: _Layer, x: str) -> str:
    """Each half of the stream for itself, joined in some order."""
    h = made.b.shape(x)[-1] // 2
    y = made.activation(made.take(f"{x}[..., :{h}] * {made.weight(x, h)}"))
    z = made.take(f"{x}[..., {h}:]")
    z = made.take(f"{z} @ {made.weight(x, h, h)}") if made.pick(2) else z
    if made.pick(2):
        z = made.take(f"{z} + {y}")
    pair = (y, z) if made.pick(2) else (z, y)
    return made.take(f"np.concatenate([{', '.join(pair)}], -1)")


def _gate(made: _Layer, x: str) -> str:
    """Scaled by a reduction of itself."""
    axis = one_of(made.pick, (-2, -1, None))
    name = one_of(made.pick, ("mean", "max", "min", "std"))
    extra = " + 0.1" if name == "std" else ""
    s = made.take(f"np.{name}({x}{extra}, axis={axis}, keepdims=True)")
    return made.take(f"{x} * ops.sigmoid({s})")


def _chain(made: _Layer, x: str) -> str:
    for _ in range(1 + made.pick(4)):
        x = made.activation(x)
        x = made.take(f"{x} * {made.weight(x, made.b.shape(x)[-1])} + 0.1")
    return x


def _flat(made: _Layer, x: str) -> str:
    """Through all rows in one matrix, and back."""
    *batch, n, d = made.b.shape(x)
    y = made.take(f"{x}.reshape({(-1, d)})")
    y = made.take(f"{y} @ {made.weight(x, d, d)}")
    y = made.activation(y) if made.pick(2) else y
    if made.pick(2):
        return made.take(f"{y}.reshape({(d, -1)}).reshape({(*batch, n, d)})")
    return made.take(f"{y}.reshape({(*batch, n, d)})")


def _moved(made: _Layer, x: str) -> str:
    forms = ["np.roll({0}, 1, axis=-1)", "np.cumsum({0}, -2) * 0.25", "{0}[..., ::-1]"]
    forms += ["np.flip({0}, -2)", "np.sort({0}, -1)", "np.clip({0}, -1.0, 1.0)"]
    y = made.take(one_of(made.pick, forms).format(x))
    return made.take(f"{y} * {made.weight(x, made.b.shape(x)[-1])}")


BLOCKS: tuple[Block, ...] = (
    *(_mlp, _attention, _mix, _halves, _gate, _chain, _flat, _moved),
)
