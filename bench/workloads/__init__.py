"""What is measured: NumPy functions with their shapes, and nothing of the runner.

A workload is a function of a namespace and of arrays. Over :mod:`bench.workloads.plain`
it is the plain NumPy that a user would write, and what eqsat optimises; over the
namespace of a peer it is that peer's natural spelling (``torch.nn.functional``, …).
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from eqsat.support.errors import EqsatError

DRAWN = 1_000_003
"""Numbers that are drawn at most for one array: drawing 8 million takes longer than
measuring them. A prime, so that rows differ."""
LINE = 64
"""Bytes of memory that a processor moves at once."""
START = 16
"""Where arrays start in a line (bytes): where NumPy's large ones do on Linux. What
reads vectors from a second cache takes up to 1.8 times as long there as at the start of
a line, and each process of a comparison would have arrays where its own luck puts them.
"""
SHORT = {"float32": "", "float64": "/f64", "float16": "/f16", "bfloat16": "/bf16"}
"""How names of workloads say a dtype."""
Array = Any
"""An array of NumPy or of a peer."""
Drawn = tuple[list[Any], list[Any]]
"""Arrays that change between calls, and weights: trees of arrays that never do."""

TAGS = (
    "small",
    "map",
    "row",
    "reduce",
    "contract",
    "attention",
    "conv",
    "quantised",
    "block",
    "model",
    "gradient",
    "science",
    "part",
    "sibling",
    "half",
)
FAMILIES = (
    "maps",
    "rows",
    "products",
    "heads",
    "convolutions",
    "quantised",
    "networks",
    "small",
    "gradients",
    "science",
    "parts",
)
"""Modules that hold the workloads."""


class Quantised(NamedTuple):
    """A matrix k n in few bits: (q - zero) scale, one scale for k/g rows of a column.

    ``q`` int8 (k n), or uint8 (k/2 n) whose low and high halves are rows 2i and 2i+1;
    ``scale`` float32 (g n); ``zero`` int8 (g n).
    """

    q: Array
    scale: Array
    zero: Array


class Draw:
    """Draws arrays of one dtype; the same for the same seed and name."""

    def __init__(self, seed: int, name: str, dtype: str) -> None:
        self.rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.dtype = np.dtype(dtype)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        """Normal numbers around 0; more than :data:`DRAWN` repeat themselves."""
        size = math.prod(shape)
        x = self.rng.standard_normal(min(size, DRAWN), np.float32)
        x = (x * np.float32(scale)).astype(self.dtype)
        return np.resize(x, shape)

    def weight(self, k: int, n: int) -> Array:
        """A matrix k n that keeps the variance of what it is multiplied with."""
        return self.normal(k, n, scale=k**-0.5)

    def gain(self, *shape: int) -> Array:
        """Positive numbers around 1."""
        x = 1 + 0.1 * self.normal(*shape).astype(np.float32)
        return np.abs(x).astype(self.dtype)

    def bias(self, *shape: int) -> Array:
        """Small numbers around 0."""
        return self.normal(*shape, scale=0.1)


@dataclass(frozen=True)
class Workload:
    """One function at one size."""

    name: str
    fn: Callable[..., Array]
    """``fn(F, *inputs, *weights)`` over a namespace ``F``; one array. A loss, where
    there are :attr:`argnums`."""
    make: Callable[[Draw], Drawn]
    tags: tuple[str, ...]
    dtype: str = "float32"
    quick: bool = False
    """Whether ``--quick`` runs it."""
    flops_share: float = 1.0
    """Share of the products' flops as written that any program needs."""
    unread: Callable[[Drawn], int] = lambda drawn: 0
    """Bytes of the arguments that no program needs to read."""
    numpy: Callable[..., Array] | None = None
    """The plain NumPy function, where it is not ``fn`` over ``plain``. Of gradients, it
    is written by hand."""
    decides: bool = False
    """Whether small errors change what is decided. Its results are then compared with
    those of plain NumPy in the same dtype, roughly."""
    argnums: tuple[int, ...] = ()
    """The inputs by which ``fn`` is differentiated, if any: the result is then the pair
    of its value and a tuple of gradients, nested as the inputs are."""

    @property
    def plain(self) -> Callable[..., Any]:
        """The workload as a plain NumPy function of its inputs and weights."""
        return self.numpy or self.over_plain

    @property
    def over_plain(self) -> Callable[..., Array]:
        """``fn`` over ``plain``."""
        from bench.workloads import plain

        return partial(self.fn, plain)

    def jitted(self, **how: Any) -> Any:
        """The workload as eqsat has it, with these keywords of :func:`eqsat.jit`: the
        plain NumPy function, or what eqsat derives from the loss."""
        import eqsat as eq

        if self.argnums:
            return eq.value_and_grad(self.over_plain, self.argnums, **how)
        return eq.jit(self.plain, **how)

    def draw(self, seed: int) -> Drawn:
        """Inputs and weights, each :func:`placed`; nobody can change the weights."""
        drawn = self.make(Draw(seed, self.name, self.dtype))
        inputs, weights = drawn
        return mapped(inputs, by_part(placed)), mapped(weights, by_part(fixed))


def placed(a: Any) -> Any:
    """``a`` with its first element :data:`START` bytes behind the start of a line, if
    it is an array without gaps."""
    if not (isinstance(a, np.ndarray) and a.flags.c_contiguous):
        return a
    memory = np.empty(a.nbytes + LINE, np.uint8)
    start = (START - memory.ctypes.data) % LINE
    found = memory[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    found[...] = a
    return found


def fixed(a: Any) -> Any:
    """:func:`placed` in ``bytes``, which never change, so that eqsat compares nothing
    of it in each call."""
    if not (isinstance(a, np.ndarray) and a.flags.c_contiguous):
        return a
    memory = np.frombuffer(bytes(a.nbytes + LINE), np.uint8)
    start = (START - memory.ctypes.data) % LINE
    ctypes.memmove(memory.ctypes.data + start, a.ctypes.data, a.nbytes)
    return memory[start : start + a.nbytes].view(a.dtype).reshape(a.shape)


def mapped(tree: Any, f: Callable[[Any], Any]) -> Any:
    """``tree`` with ``f`` of its leaves; :class:`Quantised` counts as a leaf if ``f``
    takes it (returns other than NotImplemented)."""
    if isinstance(tree, Quantised):
        whole = f(tree)
        if whole is not NotImplemented:
            return whole
        return Quantised(*(mapped(t, f) for t in tree))
    if isinstance(tree, dict):
        return {k: mapped(t, f) for k, t in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(t, f) for t in tree)
    return f(tree)


def by_part(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``f`` for :func:`mapped`, of the parts of :class:`Quantised` too."""
    return lambda a: NotImplemented if isinstance(a, Quantised) else f(a)


def leaves(tree: Any) -> Iterator[Any]:
    """The arrays of ``tree``, in order; those of dicts in that of the keys, since some
    libraries sort them."""
    if isinstance(tree, dict):
        tree = [tree[k] for k in sorted(tree)]
    elif not isinstance(tree, (list, tuple)):
        yield tree
        return
    for t in tree:
        yield from leaves(t)


def sizes(
    name: str,
    fn: Callable[..., Array],
    tag: str,
    make: Callable[..., Drawn],
    shapes: Iterable[Sequence[int]],
    *,
    quick: int | None = 0,
    dtypes: Sequence[str] = ("float32",),
    **more: Any,
) -> list[Workload]:
    """``fn`` at several shapes; ``make(draw, *shape)``. ``quick``: which of them
    ``--quick`` runs."""
    found = []
    for dtype in dtypes:
        short = SHORT[dtype]
        tags = (tag, "half") if np.dtype(dtype).itemsize == 2 else (tag,)
        for i, shape in enumerate(shapes):
            label = f"{name}/{'x'.join(map(str, shape))}{short}"
            made = partial(_drawn, make, tuple(shape))
            found.append(
                Workload(label, fn, made, tags, dtype, quick=i == quick, **more)
            )
    return found


def _drawn(make: Callable[..., Drawn], shape: tuple[int, ...], draw: Draw) -> Drawn:
    return make(draw, *shape)


def named(name: str) -> Workload:
    """The workload of a name, or the drawn program: :mod:`bench.workloads.unseen`."""
    if name in workloads():
        return workloads()[name]
    from bench.workloads import unseen

    return unseen.named(name)


@cache
def workloads() -> dict[str, Workload]:
    """All workloads by name."""
    found: dict[str, Workload] = {}
    for family in FAMILIES:
        for w in import_module(f"bench.workloads.{family}").WORKLOADS:
            if w.name in found:
                raise EqsatError(f"two workloads are called {w.name!r}")
            found[w.name] = w
    return found


def select(globs: Sequence[str] = (), quick: bool = False) -> list[Workload]:
    """The workloads that match one of ``globs`` by name or tag, all without globs.

    Raises :class:`EqsatError` for a glob that matches none.
    """
    found = matching(list(workloads().values()), globs)
    return [w for w in found if w.quick or not quick]


def matching(every: Sequence[Workload], globs: Sequence[str]) -> list[Workload]:
    """Those of ``every`` that match one of ``globs`` by name or tag, all without globs.

    Raises :class:`EqsatError` for a glob that matches none.
    """
    for glob in globs:
        if not any(_matches(w, glob) for w in every):
            raise EqsatError(
                f"no workload matches {glob!r}; there are tags {', '.join(TAGS)} and "
                f"names such as {', '.join(w.name for w in every[:3])}"
            )
    return [w for w in every if not globs or any(_matches(w, g) for g in globs)]


def _matches(w: Workload, glob: str) -> bool:
    return any(fnmatchcase(word, glob) for word in (w.name, *w.tags))
