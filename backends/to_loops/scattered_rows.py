"""Rows that are added, or written, to elements that are computed."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import cast

from eqsat.terms import HALF, Op, Shape, Term, scalar

from ..loop_ir import (
    ZERO,
    Index,
    Loops,
    LoopVar,
    Operand,
    Split,
    address,
)
from .nest_loops import (
    Scattering,
)
from .roots import (
    Root,
    RootWriter,
)
from .schedule import (
    schedule,
)
from .values import (
    Conflict,
    Values,
)


def add_at(nests: RootWriter, root: Root) -> None:
    """Zeros, and then what is added to some of them."""
    term = root.term
    if root.out.dtype in HALF:  # which add up in float32
        nests.materialise(term)
        nests.nest([root])
        return
    slices, indices = term.args
    nests.write(
        replace(root, term=nests.filled(scalar(term.graph, 0), term.shape, term))
    )
    _scattered(nests, root, slices, indices, True)


def set_at(nests: RootWriter, root: Root) -> None:
    """What is there, and then what is written over some of it."""
    x, indices, slices = root.term.args
    nests.write(replace(root, term=x))
    _scattered(nests, root, slices, indices, False)


def _scattered(
    nests: RootWriter, root: Root, x: Term, indices: Term, adds: bool
) -> None:
    """The nest that adds or writes slices: each unit of its work takes all indices
    in order, and a part of each slice."""
    if not x.size:
        return
    attrs = cast(Op, root.term.op).attr_dict(root.term)
    axis = root.term.ndim + attrs["axis"]
    behind = axis + indices.ndim
    last, parts = f"i{x.ndim - 1}", _parts(nests, x.shape, axis, behind)
    splits = dict(parts)
    while True:
        values = Values(nests.memory, splits, nests.rounds)
        try:
            index = values.index("i", x.shape)
            number = values.root(x, index)
            if values.reductions.row is not None or values.running is not None:
                raise Conflict(x)
            size, stride = root.term.shape[axis], root.strides[axis]
            by = values.place(indices, index[axis:behind], size, stride)
            break
        except Split as split:
            splits[split.var.name] = split.inner
        except Conflict as conflict:
            splits = dict(parts)
            nests.materialise(conflict.term)
    ordered = _variables(index[axis:behind])
    row = _variables(index[behind:])
    if parts:
        row = tuple(v for v in row if not v.name.startswith(f"{last}a"))
    below = (*index[:axis], ZERO, *index[behind:])
    store = root.out, address(below, root.strides, root.offset), number
    how = Scattering(by, ordered, row, adds)
    nest, operands = schedule(values, [store], nests.target, scattering=how)
    nests.out.pieces.append(Loops(nest, cast("tuple[Operand, ...]", operands)))


def _parts(nests: RootWriter, shape: Shape, axis: int, behind: int) -> dict[str, int]:
    """How the last axis of slices is split, so that threads share what few of them
    there are before ``axis`` leave: by its name, the size of a part."""
    if behind == len(shape):
        return {}
    threads, size = nests.target.threads, shape[-1]
    least = nests.target.tuning.added_elements
    least = max(-(-size * prod(shape[:axis]) // threads), least)
    whole = (n for n in range(least, size) if size % n == 0)
    return {f"i{len(shape) - 1}": n for n in [*whole][:1]}


def _variables(index: Index) -> tuple[LoopVar, ...]:
    return tuple(v for e in index for v in e.variables)
