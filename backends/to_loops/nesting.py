"""Kernels as nests. What one nest cannot hold is computed into memory first: a product,
a reduction over other axes, a reduction that would leave threads without rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from eqsat.kernels import packed, strides_of_view
from eqsat.ops import (
    ASSEMBLIES,
    accumulate_op,
    concatenate_op,
    conv2d_op,
    matmul_op,
    reshape_op,
    take_op,
)
from eqsat.ops import add_at as add_at_op
from eqsat.ops import set_at as set_at_op
from eqsat.terms import HALF, Op, Shape, Term, Weak

from ..interpret import evaluate
from ..loop_ir import (
    Affine,
    DType,
    Index,
    Layout,
    Loops,
    LoopVar,
    Operand,
    Pieces,
    Split,
    Unsupported,
    address,
    covers,
)
from .bordered_rows import with_borders
from .computed_again import (
    Again,
)
from .hoisted_nests import (
    HoistedNests,
    has_parts,
)
from .joined_parts import (
    Wholes,
    by_axis,
    by_parts,
    by_stretches,
    roots_of_parts,
    source_of,
)
from .narrow_products import (
    is_short,
)
from .roots import (
    Root,
)
from .scattered_rows import (
    add_at,
    set_at,
)
from .schedule import (
    LoopTarget,
    schedule,
)
from .sorted_rows import (
    ORDERED,
    order,
)
from .values import (
    Conflict,
    Values,
    computed_dtype,
    matching,
)

PRODUCTS = ("float32", "float64")
CONTRACTIONS = frozenset([matmul_op, conv2d_op])
WRITTEN = CONTRACTIONS | ASSEMBLIES | {add_at_op, set_at_op}
"""Ops that are written where they belong, in several steps."""
DECOMPOSITIONS = ("decompose", "pinv")
ELIMINATIONS = ("lu", "lu_solve", "lu_inv", "cholesky", "solve_triangular")
FACTORS = (*ELIMINATIONS, *DECOMPOSITIONS)
INDEXED = frozenset([take_op, accumulate_op])
"""Ops of a library that nests compute."""


def _no_loops(term: Term) -> Unsupported:
    op = cast(Op, term.op)
    return Unsupported(
        f"{op.name}: {op.opaque}" if op.opaque else f"{op.name} in loops"
    )


def _is_whole(term: Term) -> bool:
    """Whether a term is a product of integer matrices."""
    dtype = cast("DType", term.dtype)
    is_matmul = term.op is matmul_op and dtype.kind in "iu"
    return is_matmul and term.size > 0 and term.args[0].size > 0


def _sum_of_products(term: Term) -> Term:
    """A matrix product as a sum: yᵢⱼ = Σₖ xᵢₖ wₖⱼ."""
    x, w = term.args
    k, n = w.shape[-2:]

    def node(name: str, args: Sequence[Term], attrs: Any, shape: Shape) -> Term:
        return term.graph.node(Op.registry[name], args, attrs, (term.dtype, shape))

    shapes = (*x.shape, 1), (*w.shape[:-2], 1, k, n)
    sides = [
        node("reshape", [a], (shape,), shape)
        for a, shape in zip((x, w), shapes, strict=True)
    ]
    shape = (*term.shape[:-1], k, n)
    products = node("multiply", sides, (), shape)
    total = node("sum", [products], ((-2,),), (*term.shape[:-1], 1, n))
    return node("reshape", [total], (term.shape,), term.shape)


class Nests:
    """The nests of a kernel, and what they need in memory. :meth:`contract` and
    :meth:`factor` say how products and factorisations come to be there."""

    def __init__(self, target: LoopTarget, rounds: bool) -> None:
        self.target, self.rounds = target, rounds
        self.out = Pieces()
        self.memory: dict[Term, tuple[Operand, Layout]] = {}
        """What is in memory before a nest runs."""
        self.again = Again(self.memory, target.tuning)
        self.hoisted = HoistedNests(target, self.memory, self.again, rounds)
        self.wholes = Wholes()
        self.numbers: dict[tuple[Term, DType], Operand] = {}
        """Tables of bare numbers."""

    def contract(self, term: Term, root: Root) -> None:
        """One of :data:`CONTRACTIONS` into ``root``."""
        raise NotImplementedError

    def factor(self, term: Term, root: Root) -> None:
        """One of :data:`FACTORS` into ``root``."""
        raise NotImplementedError

    def table(self, value: np.ndarray[Any, Any]) -> Operand:
        """Memory of elements that are known beforehand."""
        self.out.tables.append(value)
        return Operand("table", len(self.out.tables) - 1, value.dtype)

    def write(self, root: Root) -> None:
        """One term; what joins arrays is written part by part."""
        term = root.term
        op = None if term in self.memory else term.op
        if op is concatenate_op:
            axis = cast(int, term.attrs[0]) + term.ndim
            if self._is_woven(term, root, axis):
                self.nest(
                    [
                        replace(root, term=a, offset=root.offset + i)
                        for i, a in enumerate(term.args)
                    ]
                )
                return
        if op in ASSEMBLIES:
            parts = self.wholes.in_turn(roots_of_parts(term, root, self.filled))
            left = with_borders(root, parts, self.out.pieces, self._write_all)
            self._write_all(left)
        elif op is add_at_op and self.target.scatters:
            add_at(self, root)
        elif op is set_at_op and self.target.scatters:
            set_at(self, root)
        elif op in ORDERED and self.target.orders:
            order(self, root)
        elif op in CONTRACTIONS and root.out.dtype.name in PRODUCTS:
            if is_short(term):
                self.nest([root])
            else:
                self.contract(term, root)
        elif op is not None and op.name in FACTORS and self.target.factors:
            self.factor(term, root)
        elif _is_whole(term) and term not in self.memory:
            self.write(replace(root, term=_sum_of_products(term)))
        elif op is reshape_op and (inside := self._inside(root)) is not None:
            self.write(inside)
        elif parts := by_parts(root, self.memory, self.wholes.users, self.filled):
            self._write_all(parts)
        elif self.target.reads_parts and (
            parts := by_stretches(root, self.memory, self.wholes.users, self.filled)
        ):
            self._write_all(parts)
        elif self.target.reads_parts and (
            parts := by_axis(root, self.memory, self.wholes.users, self.wholes.results)
        ):
            self._write_all(parts)
        else:
            self.nest([root])

    def _write_all(self, roots: Sequence[Root]) -> None:
        """Write all of ``roots``; what is the same in several places, as the zeros on
        both sides of rows, in one nest."""
        alike: dict[Term, list[Root]] = {}
        for root in roots:
            alike.setdefault(root.term, []).append(root)
        for term, same in alike.items():
            if len(same) > 1 and term in self.memory:
                self.nest(same)
                continue
            for root in same:
                self.write(root)
                if self.target.reads_parts:
                    self.wholes.keep(root, self.memory)

    def _is_woven(self, term: Term, root: Root, axis: int) -> bool:
        """Whether the parts of a joined array are its elements in turn, which one nest
        computes and writes together: coordinates, colours, complex parts."""
        (*_, last), stride = term.shape, root.strides[axis]
        thin = all(a.shape[axis] == 1 for a in term.args)
        makes = all(
            cast(Op, source_of(a).op).kind == "pointwise" or source_of(a) in self.memory
            for a in term.args
        )
        return (
            axis == term.ndim - 1
            and 1 < last <= self.target.tuning.woven
            and (thin and makes and stride == 1)
            and len(set(term.args)) == len(term.args)
        )

    def _inside(self, root: Root) -> Root | None:
        """What a reshape is of, to be written in its stead: a product, or what joins
        or pads arrays, which need no memory of their own then."""
        (x,) = root.term.args
        if x in self.memory or x.op not in CONTRACTIONS | ASSEMBLIES:
            return None
        op, shape = cast(Op, root.term.op), root.term.shape
        strides = strides_of_view(op, {"shape": x.shape}, shape, root.strides)
        return None if strides is None else replace(root, term=x, strides=strides)

    def filled(self, value: Term, shape: Shape, like: Term) -> Term:
        """``value``, one number, in ``shape``, of the dtype of ``like``."""
        op, dtype = Op.registry["broadcast_to"], cast("DType", like.dtype)
        found = value.graph.node(op, [value], (shape,), (dtype, shape))
        if isinstance(value.dtype, Weak):
            key = value, dtype
            if key not in self.numbers:
                number = np.asarray(evaluate([value], {})[value], dtype)
                self.numbers[key] = self.table(number)
            self.memory[found] = self.numbers[key], Layout((0,) * len(shape))
        return found

    def nest(self, roots: Sequence[Root]) -> None:
        """A nest that writes ``roots``; what it needs in memory comes before it."""
        while True:
            roots, values, indices = self._values(roots)
            apart = self.hoisted.terms(values, [r.term for r in roots])
            if not apart:
                break
            for term in apart:
                self.materialise(term)
        stores = []
        for r, i in zip(roots, indices, strict=True):
            if i is None:
                self.write(r)
            else:
                stores.append((r, i, values.value(r.term, i)))
        self._emit(values, stores)

    def _values(
        self, roots: Sequence[Root]
    ) -> tuple[Sequence[Root], Values, list[Index | None]]:
        """The values of one nest: the roots that it writes, and the index of each in
        the domain of the first, None where there is none."""
        splits: dict[str, int] = {}
        again = self.again if self.target.remembers else None
        while True:
            values = Values(self.memory, splits, self.rounds, again)
            try:
                index = values.index("i", roots[0].term.shape)
                values.root(roots[0].term, index)
                others = [self._index(values, r, splits) for r in roots[1:]]
                return roots, values, [index, *others]
            except Split as split:
                splits[split.var.name] = split.inner
            except Conflict as conflict:
                splits.clear()
                own = [r.term for r in roots]
                between = [t for t, _ in values.open if t not in own]
                needed = conflict.term
                if needed not in own:
                    needed = self.wholes.above(
                        needed, between, self.memory, self.filled
                    )
                shared = self.hoisted.shared(needed, own) if again else []
                for term in (*shared, needed):
                    roots = self._settle(term, roots)

    def _settle(self, term: Term, roots: Sequence[Root]) -> list[Root]:
        """Compute what a nest of ``roots`` needs in memory; the roots that are left."""
        own = [r for r in roots if r.term is term]
        if own and len(roots) > len(own):
            for r in own:
                self.write(r)
            self.memory[term] = own[0].out, Layout(own[0].strides, own[0].offset)
            return [r for r in roots if r.term is not term]
        is_half = own and own[0].out.dtype in HALF
        apart = term.op is reshape_op or (term.op in CONTRACTIONS and is_half)
        if own and not apart:
            raise _no_loops(term)
        self.materialise(term)
        return list(roots)

    def _index(
        self, values: Values, root: Root, splits: dict[str, int]
    ) -> Index | None:
        """Where a further root runs along the domain of the first; None if nowhere."""
        found = values.known_index(root.term)
        if found is not None and covers(found, root.term.shape):
            return found
        trial = Values(self.memory, splits, self.rounds)
        index = trial.index("o", root.term.shape)
        trial.root(root.term, index)
        met = matching(trial, values)
        moved = tuple(e.substituted(met) for e in index)
        fresh = {v for e in index for v in e.variables}
        if fresh <= met.keys() and covers(moved, root.term.shape):
            values.value(root.term, moved)
            return moved
        return None

    def _part_at(self, term: Term, index: Index, chunk: LoopVar) -> Affine:
        """Where a part of a reduction lies: beside other parts of the same row, or of
        other rows where there are many."""
        at, which = address(index, packed(term.shape)), Affine.of(chunk)
        if self.target.threads == 1:
            return at + which.times(term.size)
        return at.times(self.target.tuning.parts) + which

    def _emit(self, values: Values, stores: Sequence[tuple[Root, Index, int]]) -> None:
        placed = [(r.out, address(i, r.strides, r.offset), n) for r, i, n in stores]
        nest, operands = schedule(values, placed, self.target)
        self.out.pieces.append(Loops(nest, cast("tuple[Operand, ...]", operands)))

    # -- memory in between -------------------------------------------------------------

    def temporary(self, dtype: DType, size: int) -> Operand:
        """New memory of so many elements."""
        self.out.temporaries.append((dtype, size))
        return Operand("temporary", len(self.out.temporaries) - 1, dtype)

    def materialise(self, term: Term) -> None:
        """Compute ``term`` into memory: its own, or a part of what it is joined to."""
        if term.op is reshape_op:
            self._flat(term)
            return
        if self.target.reads_parts and (whole := self.wholes.around(term, self.memory)):
            self.wholes.begun.add(whole)
            self.materialise(whole)
            if term in self.memory:
                return
        dtype = computed_dtype(term)
        is_product = dtype.name in PRODUCTS or _is_whole(term)
        if term.op in CONTRACTIONS and not is_product:
            raise Unsupported(f"{term.op.name} in {dtype}")
        strides = packed(term.shape)
        out = self.temporary(dtype, term.size)
        root = Root(term, out, strides)
        if term.op.kind == "reduce":  # type: ignore[attr-defined]
            self._reduction(root)
        elif term.op in WRITTEN or (term.op in ORDERED and self.target.orders):
            if term.op is concatenate_op:
                self._sources(term)
            self.write(root)
        elif (
            term.op.kind in ("pointwise", "view")  # type: ignore[attr-defined]
            or term.op in INDEXED
        ):
            self.write(root)
        else:
            raise _no_loops(term)
        self.memory[term] = out, Layout(strides)

    def _sources(self, term: Term) -> None:
        """Compute what parts of ``term`` show, and others use as well: a value that is
        rolled along several axes."""
        shown = Counter(source_of(a) for a in term.args)
        for x, parts in shown.items():
            is_computed = cast(Op, x.op).kind == "pointwise" and x not in self.memory
            is_part = self.target.reads_parts and x in term.args
            if is_computed and not is_part and self.wholes.users[x] > parts:
                self.materialise(x)

    def _flat(self, term: Term) -> None:
        """A reshape that no index says: its argument under another layout, packed where
        there is none."""
        (x,) = term.args
        op, attrs = cast(Op, term.op), {"shape": term.shape}
        if x in self.memory:
            source, layout = self.memory[x]
            strides = strides_of_view(op, attrs, x.shape, layout.strides)
            if strides is not None:
                self.memory[term] = source, Layout(strides, layout.offset)
                return
        out = self.temporary(computed_dtype(x), x.size)
        self.write(Root(x, out, packed(x.shape)))
        self.memory[term] = out, Layout(packed(term.shape))

    def _reduction(self, root: Root) -> None:
        """A reduction, in two steps where it has few rows and many elements."""
        term = root.term
        whole = term.args[0].size
        if not self.hoisted.is_parted(term, term.size, whole) or not has_parts(term):
            self.nest([root])
            return
        ends = self.hoisted.ends(term)
        chunk = LoopVar("chunk", 3 if ends else self.target.tuning.parts)
        parts = self.temporary(root.out.dtype, term.size * chunk.size)
        _, values, (index,) = self._values([root])
        assert index is not None
        (number,) = (i for i, v in enumerate(values.values) if v.over)
        at = self._part_at(term, index, chunk)
        nest, operands = schedule(values, [(parts, at, number)], self.target, chunk)
        nest = replace(nest, ends=ends)
        self.out.pieces.append(Loops(nest, cast("tuple[Operand, ...]", operands)))
        values = Values(self.memory, {})
        index = values.index("i", term.shape)
        at = self._part_at(term, index, chunk)
        values.reductions.joins = (parts, at, chunk, whole // term.size)
        self._emit(values, [(root, index, values.root(term, index))])
