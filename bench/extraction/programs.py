"""Random NumPy programs: maps, reductions, products, views and shared values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import eqsat as eq

MAPS: tuple[Callable[[Any], Any], ...] = (
    np.tanh,
    np.exp,
    np.abs,
    np.square,
    lambda x: np.maximum(x, 0),
    lambda x: x * 0.5,
    lambda x: x + 1.0,
    lambda x: 1 / (1 + np.exp(-x)),
    lambda x: x / np.sqrt(2.0 + x * x),
)
PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    np.add,
    np.multiply,
    np.subtract,
    np.maximum,
)
REDUCTIONS: tuple[Callable[..., Any], ...] = (np.sum, np.mean, np.max, np.min)
LARGEST = 1 << 22
"""Elements of the largest value."""


@dataclass(frozen=True)
class RandomProgram:
    """A function, and what to lower it for."""

    function: Callable[..., tuple[Any, ...]]
    arguments: tuple[eq.Spec, ...]


def drawn(seed: int, ops: int) -> RandomProgram:
    """The program of a seed, of about ``ops`` ops over a few arguments. Its results are
    the values that nothing uses."""
    rng = random.Random(seed)
    rows, cols, batch = rng.sample([32, 64, 96, 128, 256, 512, 1024], 3)
    shapes = [(rows, cols), (rows, cols), (cols,), (rows, 1), (rng.choice([4, 8]), 1)]
    shapes = shapes[: rng.randint(1, 4)]
    if rng.random() < 0.3:
        shapes = [(batch // 32, *s) if len(s) > 1 else s for s in shapes]
    arguments = tuple(eq.Spec(s, np.float32) for s in shapes)

    def program(*inputs: Any) -> tuple[Any, ...]:
        return _Drawing(random.Random(seed), list(inputs)).values(ops)

    return RandomProgram(program, arguments)


@dataclass
class _Drawing:
    """Ops over values that are used one to three times, the latest of them first."""

    rng: random.Random
    made: list[Any]
    free: dict[int, int] = field(default_factory=dict)
    """Uses that are left to each value."""

    def __post_init__(self) -> None:
        self.given = len(self.made)
        self.free = {i: self.rng.randint(1, 3) for i in range(self.given)}

    def values(self, ops: int) -> tuple[Any, ...]:
        """The values that nothing uses, after so many ops."""
        steps = (self._map, self._pair, self._reduce, self._product, self._view)
        used: set[int] = set()
        for _ in range(ops):
            if not self.free:
                self.free[self.rng.randrange(len(self.made))] = 1
            at = self.rng.choice(sorted(self.free)[-8:])
            step = self.rng.choices(steps, [5, 5, 3, 2, 3])[0]
            made, others = step(self.made[at])
            for i in (at, *others):
                used.add(i)
                if i in self.free:
                    self.free[i] -= 1
                    if not self.free[i]:
                        del self.free[i]
            self.free[len(self.made)] = self.rng.randint(1, 3)
            self.made.append(made)
        ends = [i for i in range(self.given, len(self.made)) if i not in used]
        return tuple(self.made[i] for i in ends)

    def _map(self, x: Any) -> tuple[Any, list[int]]:
        return self.rng.choice(MAPS)(x), []

    def _pair(self, x: Any) -> tuple[Any, list[int]]:
        fits = [i for i in sorted(self.free) if _broadcasts(x, self.made[i])][-6:]
        if not fits:
            return self._map(x)
        i = self.rng.choice(fits)
        return self.rng.choice(PAIRS)(x, self.made[i]), [i]

    def _reduce(self, x: Any) -> tuple[Any, list[int]]:
        """A reduction, or what takes it back to its operand."""
        if not x.ndim:
            return self._map(x)
        axes = tuple(self.rng.sample(range(x.ndim), self.rng.choice([1, 1, 1, x.ndim])))
        r = self.rng.choice(REDUCTIONS)(x, axis=axes, keepdims=True)
        if self.rng.random() < 0.5:
            return self.rng.choice(PAIRS)(x, r), []
        return (r, []) if self.rng.random() < 0.7 else (np.squeeze(r, axes), [])

    def _product(self, x: Any) -> tuple[Any, list[int]]:
        """With a constant matrix, or with another value."""
        if x.ndim < 2:
            return self._map(x)
        for i in sorted(self.free)[::-1]:
            y = self.made[i]
            if y.ndim == 2 and x.shape[-1] in y.shape and self.rng.random() < 0.4:
                return x @ (y if y.shape[0] == x.shape[-1] else y.mT), [i]
        n = self.rng.choice([32, 64, 128, x.shape[-1]])
        weight = np.random.default_rng(self.rng.randrange(1 << 30))
        made = weight.standard_normal((x.shape[-1], n), np.float32)
        made.flags.writeable = False
        return x @ made, []

    def _view(self, x: Any) -> tuple[Any, list[int]]:
        if x.ndim < 2:
            return self._map(x)
        kind = self.rng.randrange(5)
        n = x.shape[-1]
        if kind == 0:
            return x.mT, []
        if kind == 1 and n > 1:
            return x[..., : n // 2], []
        if kind == 2:
            return x.reshape(-1, n), []
        if kind == 3 and n % 4 == 0:
            return np.swapaxes(x.reshape(*x.shape[:-1], 4, n // 4), -3, -2), []
        if x.size > LARGEST:
            return self._map(x)
        same = [i for i in sorted(self.free) if self.made[i].shape == x.shape]
        i = self.rng.choice(same) if same else None
        y = x if i is None else self.made[i]
        return np.concatenate([x, y], -1), [] if i is None else [i]


def _broadcasts(x: Any, y: Any) -> bool:
    """Whether ``y`` broadcasts with ``x`` and the result is not too large."""
    try:
        shape: Sequence[int] = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return int(np.prod(shape)) <= LARGEST
