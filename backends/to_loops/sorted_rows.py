"""Sorted rows: by networks where they are short, else put in order one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from eqsat.kernels import packed
from eqsat.ops import argsort_op, sort_op
from eqsat.terms import Op, Shape

from ..loop_ir import (
    FAULT,
    LOOPS,
    DType,
    Layout,
    Network,
    Operand,
    Ordering,
    Unsupported,
)
from .roots import (
    Root,
    RootWriter,
)

ORDERED = frozenset([sort_op, argsort_op])


def order(nests: RootWriter, root: Root) -> None:
    """Rows side by side of what is sorted, then each of them in order."""
    term = root.term
    (x,) = term.args
    attrs = cast(Op, term.op).attr_dict(term)
    dtype = cast("DType", x.dtype)
    if dtype.name not in nests.target.orders:
        raise Unsupported(f"{term.op.name} of {dtype}")
    axis = term.ndim + attrs["axis"][0]
    found = nests.memory.get(x)
    if term.op is sort_op and found is not None and found[0].dtype == dtype:
        network = _network(root, axis, *found)
        if network is not None:
            nests.out.pieces.append(network)
            return
    strides = _with_last(term.shape, axis)
    lies = root.strides == strides and not root.offset
    out = root.out if lies else nests.temporary(root.out.dtype, term.size)
    operands: tuple[Operand, ...] = (out, FAULT)
    if term.op is argsort_op:
        source, layout = nests.memory.get(x, (out, None))
        if layout != Layout(strides):
            source = nests.temporary(dtype, x.size)
            nests.write(replace(root, term=x, out=source, strides=strides, offset=0))
        operands = (source, *operands)
    else:
        nests.write(replace(root, term=x, out=out, strides=strides, offset=0))
    n = term.shape[axis]
    kind = attrs.get("kind", "quicksort")
    nests.out.pieces.append(Ordering(operands, dtype, term.size // n, n, kind))
    if not lies:
        nests.memory[term] = out, Layout(strides)
        nests.nest([root])


def _with_last(shape: Shape, axis: int) -> Shape:
    """Strides of packed memory in which ``axis`` is the last one."""
    others = [i for i in range(len(shape)) if i != axis]
    order = [*others, axis]
    steps = packed(tuple(shape[i] for i in order))
    return tuple(steps[order.index(i)] for i in range(len(shape)))


def _is_short(size: int, along: int, across: int) -> bool:
    """Whether a network reads, or writes, elements of rows that lie so far apart."""
    is_whole = (along, across) == (1, size) and size & size - 1 == 0
    fits_second_cache = across == 1 or is_whole
    return size <= (LOOPS.network_row if fits_second_cache else LOOPS.network_row_apart)


def _network(root: Root, axis: int, x: Operand, at: Layout) -> Network | None:
    """A network for short rows, of which there are enough."""
    shape = root.term.shape
    rows: list[tuple[int, tuple[int, int]]] = []
    for i, count in enumerate(shape):
        if i == axis or count == 1:
            continue
        by = at.strides[i], root.strides[i]
        if rows and rows[-1][1] == (by[0] * count, by[1] * count):
            count *= rows.pop()[0]
        rows.append((count, by))
    rows.sort(key=lambda r: 1 in r[1] and r[0] >= LOOPS.network_rows)
    if not rows or rows[-1][0] < LOOPS.network_rows or root.out.dtype != x.dtype:
        return None
    size, by = shape[axis], rows[-1][1]
    along = at.strides[axis], root.strides[axis]
    if not all(_is_short(size, *s) for s in zip(along, by, strict=True)):
        return None
    return Network(x, root.out, size, along, tuple(rows), (at.offset, root.offset))
