"""What must hold of a kernel's pieces: together they write its results, and each stays
inside of its memory. Nests have rules of their own, in :mod:`.verify_nest`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import cast

import numpy as np

from eqsat.kernels import Kernel, packed
from eqsat.support import Broken, refuse
from eqsat.terms import Shape, Term

from .index_maps import (
    Affine,
    Extent,
    Layout,
    LoopVar,
    address,
    bounds,
)
from .nest import (
    FAULT,
    DType,
    Gather,
    Load,
    Operand,
    Scatter,
    Store,
    Within,
)
from .pieces import (
    Contraction,
    Convolution,
    Factoring,
    Loops,
    Network,
    Ordering,
    Piece,
    Pieces,
    Product,
)
from .verify_nest import (
    broken_nest,
    inside,
    is_widened,
)

EXACT = 1 << 14
"""Elements up to which memory that several pieces write is looked at one by one."""


def verify(
    made: Pieces,
    kernel: Kernel,
    layouts: Mapping[Term, Layout],
) -> None:
    """Raise :class:`VerifyError` where the pieces of ``kernel``, whose inputs lie as
    ``layouts`` says, break a rule."""
    extent = _Memory(made, kernel, layouts).extent
    rules = [
        _order(made, kernel.name),
        _writes(made, kernel, extent),
    ]
    for i, p in enumerate(made.pieces):
        name = f"{kernel.name}, piece {i}"
        rules.append(broken_piece(p, [extent(o) for o in p.operands], name))
    refuse("loops", chain.from_iterable(rules))


# -- pieces ----------------------------------------------------------------------------


class _Memory:
    """What the operands of pieces hold."""

    def __init__(
        self, made: Pieces, kernel: Kernel, layouts: Mapping[Term, Layout]
    ) -> None:
        self.made, self.kernel, self.layouts = made, kernel, layouts

    def extent(self, o: Operand) -> Extent | None:
        """None for what is in no memory, or does not exist."""
        if o.kind == "array":
            term: Term = o.key
            return extent_of(self.layouts.get(term), term.shape)
        size = self.size(o)
        return None if size is None else (0, size - 1)

    def size(self, o: Operand) -> int | None:
        """Elements of what is not an argument."""
        held: dict[str, Sequence[int]] = {
            "result": [r.size for r in self.kernel.results],
            "temporary": [n for _, n in self.made.temporaries],
            "table": [t.size for t in self.made.tables],
            "fault": [1],
        }
        sizes = held.get(o.kind, ())
        return sizes[o.key] if o.key in range(len(sizes)) else None


def extent_of(layout: Layout | None, shape: Shape) -> Extent:
    """What an array of ``shape`` holds, packed where it has no layout."""
    layout = layout or Layout(packed(shape))
    ends = [s * (n - 1) for s, n in zip(layout.strides, shape, strict=True)]
    low, high = (sum(f(e, 0) for e in ends) for f in (min, max))
    return layout.offset + low, layout.offset + high


def _reads(p: Piece) -> Sequence[Operand]:
    """What a piece reads."""
    if isinstance(p, Loops):
        return [
            p.operands[s.buffer]
            for s in p.nest.statements()
            if isinstance(s, (Load, Gather, Scatter))
        ]
    if isinstance(p, Ordering):
        return p.operands[:1]
    return p.operands[: -2 if isinstance(p, Factoring) else -1]


def _written(p: Piece) -> Iterator[tuple[Operand, Affine | None]]:
    """What a piece writes, and where; None for all of it. What is sorted in place, or
    added to, was written before."""
    if isinstance(p, Loops):
        for s in p.nest.statements():
            if type(s) is Store:
                yield p.operands[s.buffer], s.at
    elif isinstance(p, Contraction):
        yield p.out, _places(p.at[2], (*p.batch, *p.sizes[:2]))
    elif isinstance(p, Network):
        rows = (*(n for n, _ in p.rows), p.size)
        strides = (*(by[1] for _, by in p.rows), p.along[1])
        yield p.out, _places(Layout(strides, p.offset[1]), rows)
    elif isinstance(p, Factoring) or p.is_positions:
        yield p.operands[-2], None


def _places(layout: Layout, shape: Shape) -> Affine:
    """Where elements of ``shape`` lie, over variables of their own."""
    index = tuple(Affine.of(LoopVar(f"o{i}", n)) for i, n in enumerate(shape))
    return address(index, layout.strides, layout.offset)


def _order(made: Pieces, name: str) -> Iterator[Broken]:
    """What a piece reads of a result or a temporary was written before."""
    written: set[Operand] = set()
    for i, p in enumerate(made.pieces):
        mine = {o for o, _ in _written(p)}
        for o in _reads(p):
            if o.kind in ("result", "temporary") and o not in written:
                rule = "what it reads was written by an earlier piece"
                yield Broken(f"{name}, piece {i}", rule, _called(o), "written")
        written |= mine


def _called(o: Operand) -> str:
    return f"{o.kind} {o.key}"


def _writes(
    made: Pieces, kernel: Kernel, extent: Callable[[Operand], Extent | None]
) -> Iterator[Broken]:
    """Each element of each result and temporary is written exactly once."""
    parts: dict[Operand, list[Affine | None]] = {}
    for p in made.pieces:
        for o, at in _written(p):
            parts.setdefault(o, []).append(at)
    for i, r in enumerate(kernel.results):
        out = Operand("result", i, cast("DType", r.dtype))
        if r.size and out not in parts:
            yield Broken(f"{kernel.name}, result {i}", "it is written", 0, r.size)
    for o, places in parts.items():
        size = (extent(o) or (0, -1))[1] + 1
        found = sum(size if at is None else _count(at) for at in places)
        rule = "each element is written exactly once"
        if found != size:
            yield Broken(f"{kernel.name}, {_called(o)}", rule, found, size)
        elif len(places) > 1 and size <= EXACT and None not in places:
            counts = Counter(chain.from_iterable(_addresses(a) for a in places if a))
            if max(counts.values()) > 1:
                twice = max(counts, key=counts.__getitem__)
                actual = f"element {twice}: {counts[twice]} times"
                yield Broken(f"{kernel.name}, {_called(o)}", rule, actual, "once")


def _count(at: Affine) -> int:
    return prod(v.size for v in at.variables)


def _addresses(at: Affine) -> list[int]:
    found = np.array([at.offset])
    for v, c in at.terms:
        found = np.add.outer(found, np.arange(v.size) * c).reshape(-1)
    return cast("list[int]", found.tolist())


def broken_piece(
    p: Piece, extent: Sequence[Extent | None], name: str
) -> Iterator[Broken]:
    """The rules that one piece breaks; ``extent`` is that of its operands."""
    if isinstance(p, Loops):
        dtypes = [b.dtype for b in p.nest.buffers]
        if dtypes != [o.dtype for o in p.operands]:
            rule = "buffers have the dtypes of their operands"
            yield Broken(name, rule, dtypes, [o.dtype for o in p.operands])
            return
        for s in p.nest.statements():
            if isinstance(s, Within) and p.operands[s.buffer] != FAULT:
                found = _called(p.operands[s.buffer])
                yield Broken(name, "a check marks the fault", found, _called(FAULT))
        yield from broken_nest(p.nest, extent, name)
    elif isinstance(p, Contraction):
        yield from _contraction(p, extent, name)


def _contraction(
    p: Contraction, extent: Sequence[Extent | None], name: str
) -> Iterator[Broken]:
    """Sizes are positive, dtypes are read, matrices lie inside of their memory."""
    m, n, k = p.sizes
    if min(m, n, *p.batch) < 1 or k < 0:
        yield Broken(name, "sizes are positive", (p.batch, p.sizes), "1 or more")
    if p.out.dtype != p.dtype:
        yield Broken(name, "its result has its dtype", p.out.dtype, p.dtype)
    for o in (p.x, p.y):
        if not (o.dtype == p.dtype or is_widened(o.dtype, p.dtype)):
            yield Broken(name, f"it reads the dtype of {_called(o)}", o.dtype, p.dtype)
    for which, layout, shape, limits in _matrices(p, extent):
        if prod(shape):
            found = extent_of(layout, (*p.batch, *shape))
            yield from inside(f"{name}, {which}", found, limits)
    if isinstance(p, Product) and p.mapped is not None:
        for s in p.mapped.body:
            if isinstance(s, Load):
                limits = extent[1 + s.buffer]
                yield from inside(f"{name}, v{s.target}", bounds(s.at), limits)


def _matrices(
    p: Contraction, extent: Sequence[Extent | None]
) -> Iterator[tuple[str, Layout, Shape, Extent | None]]:
    """What a product reads and writes of memory: how it lies, and its axes behind those
    of the batch."""
    (x, y, out), (m, n, k) = p.at, p.sizes
    yield "result", out, (m, n), extent[-1]
    if isinstance(p, Convolution):
        window = p.window
        images = Layout((*y.strides, 1), y.offset)
        yield "images", images, (p.channels, *window.image), extent[1]
        if p.turned:
            kernels = Layout((*x.strides, 1), x.offset)
            yield "kernels", kernels, (m, p.channels, window.area), extent[0]
            return
    yield "left operand", x, (m, k), extent[0]
    if isinstance(p, Product) and p.mapped is None:
        yield "right operand", y, (k, n), extent[1]
