"""Rows with a number before or behind them, as windows at the ends of rows want it: the
nest that writes a row writes what is beside it as well. By a nest of its own each
number is a store to a line that no near cache holds; beside a row it is one to a line
that the row is written to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from eqsat.ops import pad_op
from eqsat.terms import SCALAR, Shape

from ..loop_ir import Affine, Const, Keep, Loops, Operand, Piece, Store
from .joined_parts import SHORT
from .roots import Root

MOST_BESIDE = 4
"""Numbers beside a row."""


@dataclass(frozen=True)
class _Beside:
    """What lies beside the rows of a padded array."""

    width: int
    """Elements of a row."""
    places: tuple[int, ...]
    """Where the others lie, from the first element of the row on."""
    value: float

    @classmethod
    def of(cls, root: Root) -> _Beside | None:
        """That of an array that is padded along its last axis alone, by a few numbers;
        None where rows are short, or written elsewhere than one behind the other."""
        term = root.term
        if term.op is not pad_op or root.strides[-1] != 1:
            return None
        if root.out.dtype.kind != "f" or term.dtype != root.out.dtype:
            return None
        (x, value), (lows, highs) = term.args, cast("tuple[Shape, Shape]", term.attrs)
        low, high, width = lows[-1], highs[-1], x.shape[-1]
        alone = not any((*lows[:-1], *highs[:-1]))
        few = 0 < low + high <= MOST_BESIDE and width >= SHORT
        if not (alone and few) or value.op is not SCALAR:
            return None
        places = *range(-low, 0), *range(width, width + high)
        return cls(width, places, float(cast(float, value.attrs[0])))


def with_borders(
    root: Root,
    parts: Sequence[Root],
    pieces: list[Piece],
    write: Callable[[Sequence[Root]], None],
) -> Sequence[Root]:
    """Have the rows of ``root`` written to the end of ``pieces`` where that can be with
    what lies beside them; those of its ``parts`` that are left to be written."""
    beside = _Beside.of(root)
    rows = [r for r in parts if r.term is root.term.args[0]]
    if beside is None or len(rows) != 1:
        return parts
    begun = len(pieces)
    write(rows)
    found = [
        _with_border(p, root.out, beside) if root.out in p.operands else p
        for p in pieces[begun:]
    ]
    made = [p for p in found if p is not None]
    if len(made) < len(found):  # some piece does not write rows, one after the other
        return [r for r in parts if r not in rows]
    pieces[begun:] = made
    return []


def _with_border(piece: Piece, out: Operand, beside: _Beside) -> Piece | None:
    """A nest that writes rows to ``out``, with what lies beside them; None where it
    does not."""
    if not isinstance(piece, Loops):
        return None
    nest = piece.nest
    own = [i for i, o in enumerate(piece.operands) if o == out]
    stores = [s for s in nest.statements() if isinstance(s, Store) and s.buffer in own]
    touched = [s for s in nest.statements() if getattr(s, "buffer", None) in own]
    if len(nest.passes) != 1 or len(stores) != 1 or touched != stores:
        return None
    (p,), (store,) = nest.passes, stores
    plain = type(store) is Store and store in p.body and len(p.loops) == 1
    if not plain or p.loops[0].size != beside.width:
        return None
    (var,) = p.loops
    if store.at.coefficient(var) != 1 or nest.vertical or nest.chunk or nest.ordered:
        return None
    start = store.at.substituted({var: Affine()})
    free = 1 + max(
        (s.target for s in nest.statements() if not isinstance(s, (Keep, Store))),
        default=-1,
    )
    dtype = nest.buffers[store.buffer].dtype
    const = Const(free, dtype, beside.value)
    ends = [Store(store.buffer, start + Affine(i), free) for i in beside.places]
    passes = (replace(p, before=(*p.before, const, *ends)),)
    return replace(piece, nest=replace(nest, passes=passes))
