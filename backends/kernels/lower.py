"""Kernels of a program as pieces: nests, and the products between them.

What one nest cannot hold is computed into memory first: the product of a kernel, a
reduction over other axes, a reduction that would leave threads without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernel import Kernel, inner, packed
from eqsat.op import HALF, Op
from eqsat.term import Shape, Term, Weak
from eqsat.typerule import BF16

from ..interpret import evaluate
from .affine import (
    Affine,
    Index,
    Layout,
    Split,
    Unsupported,
    Var,
    address,
    covers,
)
from .images import Convolution, convolution, is_image, is_kernel, is_result
from .known import fixed_terms
from .language import DType, Nest, Operand
from .late import Late, source_of_pairs
from .mapped import Mapped, mapped
from .schedule import Target, schedule
from .values import WIDE, Conflict, Values, matching


@dataclass(frozen=True)
class Loops:
    """A nest over operands."""

    nest: Nest
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Product:
    """``out[b] = x[b] y[b]``, matrices of ``m`` rows, ``n`` columns and inner ``k``.

    Strides and offsets are in elements; one stride of each matrix is 1. Operands may
    be halves of a product in float32.
    """

    x: Operand
    y: Operand
    out: Operand
    dtype: DType
    sizes: tuple[int, int, int]
    """m, n, k."""
    batch: Shape
    at: tuple[Layout, Layout, Layout]
    """Strides of the batch axes, then those of the matrix."""
    mapped: Mapped | None = None
    """How ``y`` is computed where it is not in memory."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The left one, the right one or what it is made of, and the result."""
        right = (self.y,) if self.mapped is None else self.mapped.operands
        return self.x, *right, self.out


Piece = Loops | Product | Convolution


@dataclass
class Pieces:
    """What a kernel is made of, in order."""

    pieces: list[Piece] = field(default_factory=list)
    temporaries: list[tuple[DType, int]] = field(default_factory=list)
    """Dtype and number of elements of each."""
    tables: list[np.ndarray[Any, Any]] = field(default_factory=list)


MANY = 1 << 16
"""Elements from which a reduction of few rows is split."""
CHUNKS = 32
"""Parts of a reduction of few rows."""
PRODUCTS = ("float32", "float64")
CONTRACTIONS = ("matmul", "conv2d")


Lies = Callable[[Shape, Shape], bool]
"""Whether something can be read that has these strides, and this shape."""


@dataclass(frozen=True)
class Root:
    """A term to be written: at ``strides`` of ``out`` from ``offset``."""

    term: Term
    out: Operand
    strides: Shape
    offset: int = 0


def pieces_of(
    kernel: Kernel,
    target: Target,
    layouts: Mapping[Term, Layout] | None = None,
    late: Mapping[Term, Late] | None = None,
) -> Pieces:
    """The pieces of ``kernel``, whose inputs lie in memory as ``layouts`` says, packed
    by default; ``late`` ones are right operands of products, which compute them.
    Raises :class:`Unsupported`."""
    return _Lowering(kernel, target, layouts or {}, late or {}).run()


def copy_of(term: Term, layout: Layout, target: Target) -> Loops:
    """A nest that copies ``term``, which lies as ``layout`` says, into packed
    memory."""
    dtype = cast("DType", term.dtype)
    values = Values({term: (Operand("array", term, dtype), layout)}, {})
    index = values.index("i", term.shape)
    number = values.root(term, index)
    at = address(index, packed(term.shape))
    stores = [(Operand("result", 0, dtype), at, number)]
    nest, operands = schedule(values, stores, target)
    return Loops(nest, cast("tuple[Operand, ...]", operands))


INDEXED = ("take", "accumulate")
"""Ops of a library that nests compute."""
OF_NOTHING = frozenset("sum prod mean any all matmul conv2d".split())
"""Ops that make elements of arrays without any."""


def of_nothing(term: Term) -> np.ndarray[Any, Any]:
    """The number that all elements of ``term`` are, whose argument has none."""
    op = cast(Op, term.op)
    args = [np.empty(a.shape, cast("DType", a.dtype)) for a in term.args]
    with np.errstate(invalid="ignore"):
        value = np.asarray(op.reference(*args, **op.attr_dict(term)))
    return value.reshape(-1)[:1].copy()


def _has_parts(term: Term) -> bool:
    """Whether a reduction can reduce the results of its parts."""
    return term.op.name not in ("argmax", "argmin")


class _Lowering:
    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        layouts: Mapping[Term, Layout],
        late: Mapping[Term, Late],
    ) -> None:
        self.kernel, self.late = kernel, late
        self.out = Pieces()
        self.memory: dict[Term, tuple[Operand, Layout]] = {}
        self.numbers: dict[tuple[Term, DType], Operand] = {}
        """Tables of bare numbers."""
        own = (a for of in late.values() for a in of.leaves)
        for t in (*(t for t in kernel.inputs if t not in late), *own):
            layout = layouts.get(t) or Layout(packed(t.shape))
            self.memory[t] = Operand("array", t, cast("DType", t.dtype)), layout
        terms = inner(kernel.bodies, kernel.term.args)
        rows = {t.shape[-1] for t in terms if t.op.name == "matmul"}
        rows |= {prod(t.shape[2:]) for t in terms if t.op.name == "conv2d"}
        self.target = replace(target, rows=frozenset(rows))
        self.rounds = len(terms) == 1
        for t, value in fixed_terms(terms, kernel.bodies, kernel.term.args).items():
            table = self.table(np.array(value, order="C"))
            self.memory[t] = table, Layout(packed(t.shape))
        for t in terms:
            if t.op.name in OF_NOTHING and t.size and any(a.size == 0 for a in t.args):
                self.memory[t] = self.table(of_nothing(t)), Layout((0,) * t.ndim)

    def table(self, value: np.ndarray[Any, Any]) -> Operand:
        """Memory of elements that are known beforehand."""
        self.out.tables.append(value)
        return Operand("table", len(self.out.tables) - 1, value.dtype)

    def run(self) -> Pieces:
        roots = []
        for i, (body, r) in enumerate(
            zip(self.kernel.bodies, self.kernel.results, strict=True)
        ):
            operand = Operand("result", i, cast("DType", r.dtype))
            if r.size:
                roots.append(Root(body, operand, packed(body.shape)))
        if len(roots) == 1:
            self.write(roots[0])
        else:
            self.nest(sorted(roots, key=lambda r: -r.term.size))
        return self.out

    # -- nests -------------------------------------------------------------------------

    def write(self, root: Root) -> None:
        """One term; what joins arrays is written part by part."""
        term = root.term
        name = "" if term in self.memory else term.op.name
        if name == "concatenate":
            axis = cast(int, term.attrs[0]) + term.ndim
            offset = root.offset
            for a in term.args:
                if a.size:
                    self.write(Root(a, root.out, root.strides, offset))
                offset += a.shape[axis] * root.strides[axis]
        elif name == "pad":
            self.pad(term, root)
        elif name == "matmul" and root.out.dtype.name in PRODUCTS:
            self.product(term, root)
        elif name == "conv2d" and root.out.dtype.name in PRODUCTS:
            self.convolution(term, root)
        else:
            self.nest([root])

    def pad(self, term: Term, root: Root) -> None:
        """A term with a value around it: inside, and two slabs along each axis, as long
        as the axes before it have inside and as the others have in all."""
        x, value = term.args
        shape, offset = list(term.shape), root.offset
        lows = cast(Shape, term.attrs[0])
        for axis, low in enumerate(lows, term.ndim - len(lows)):
            size, stride = x.shape[axis], root.strides[axis]
            high = shape[axis] - size - low
            for start, width in ((0, low), (low + size, high)):
                shape[axis] = width
                if prod(shape):
                    slab = self.filled(value, tuple(shape), term)
                    at = offset + start * stride
                    self.write(Root(slab, root.out, root.strides, at))
            shape[axis] = size
            offset += low * stride
        if x.size:
            self.write(Root(x, root.out, root.strides, offset))

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
            apart = self._apart(values)
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
        while True:
            values = Values(self.memory, splits, self.rounds)
            try:
                index = values.index("i", roots[0].term.shape)
                values.root(roots[0].term, index)
                others = [self._index(values, r, splits) for r in roots[1:]]
                return roots, values, [index, *others]
            except Split as split:
                splits[split.var.name] = split.inner
            except Conflict as conflict:
                splits.clear()
                roots = self._settle(conflict.term, roots)

    def _settle(self, term: Term, roots: Sequence[Root]) -> list[Root]:
        """Compute what a nest of ``roots`` needs in memory; the roots that are left."""
        own = [r for r in roots if r.term is term]
        if own and len(roots) > len(own):
            for r in own:
                self.write(r)
            self.memory[term] = own[0].out, Layout(own[0].strides, own[0].offset)
            return [r for r in roots if r.term is not term]
        is_half = own and own[0].out.dtype in HALF
        is_product = term.op.name in CONTRACTIONS and is_half
        if own and not is_product and term.op.name != "reshape":
            raise Unsupported(f"{term.op.name} in loops")
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

    def _apart(self, values: Values) -> list[Term]:
        """Reductions that would leave threads idle: few rows of many elements."""
        if values.row is None or self.target.threads == 1:
            return []
        rows = prod(v.size for v in values.grid)
        if rows >= self.target.threads:
            return []
        if rows * prod(v.size for v in values.row) < MANY:
            return []
        return [t for t in values.reduced if t not in self.memory and _has_parts(t)]

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
        """Compute ``term`` into memory of its own."""
        if term.op.name == "reshape":
            self._flat(term)
            return
        dtype = Values(self.memory, {}).dtype(term)
        if term.op.name in CONTRACTIONS and dtype.name not in PRODUCTS:
            raise Unsupported(f"{term.op.name} in {dtype}")
        strides = packed(term.shape)
        out = self.temporary(dtype, term.size)
        root = Root(term, out, strides)
        if term.op.kind == "reduce":  # type: ignore[attr-defined]
            self._reduction(root)
        elif term.op.name in (*CONTRACTIONS, "concatenate", "pad"):
            self.write(root)
        elif term.op.kind in ("pointwise", "view"):  # type: ignore[attr-defined]
            self.nest([root])
        elif term.op.name in INDEXED:
            self.nest([root])
        else:
            raise Unsupported(f"{term.op.name} in loops")
        self.memory[term] = out, Layout(strides)

    def _flat(self, term: Term) -> None:
        """A reshape that no index says: its argument packed, under another layout."""
        (x,) = term.args
        found = self.memory.get(x)
        if found is None or found[1] != Layout(packed(x.shape)):
            out = self.temporary(Values(self.memory, {}).dtype(x), x.size)
            self.write(Root(x, out, packed(x.shape)))
            found = out, Layout(packed(x.shape))
        self.memory[term] = found[0], Layout(packed(term.shape))

    def _reduction(self, root: Root) -> None:
        """A reduction, in two steps where it has few rows and many elements."""
        term = root.term
        whole = term.args[0].size
        few = term.size < self.target.threads and whole >= MANY
        if not few or not _has_parts(term):
            self.nest([root])
            return
        dtype = np.dtype(bool) if term.op.name in ("any", "all") else root.out.dtype
        parts = self.temporary(dtype, term.size * CHUNKS)
        chunk = Var("chunk", CHUNKS)
        _, values, (index,) = self._values([root])
        assert index is not None
        (number,) = (i for i, v in enumerate(values.values) if v.over)
        at = address(index, packed(term.shape)).times(CHUNKS) + Affine.of(chunk)
        nest, operands = schedule(values, [(parts, at, number)], self.target, chunk)
        self.out.pieces.append(Loops(nest, cast("tuple[Operand, ...]", operands)))
        values = Values(self.memory, {})
        index = values.index("i", term.shape)
        at = address(index, packed(term.shape)).times(CHUNKS) + Affine.of(chunk)
        values.joins = (parts, at, chunk, whole // term.size)
        self._emit(values, [(root, index, values.root(term, index))])

    # -- products ----------------------------------------------------------------------

    def product(self, term: Term, root: Root) -> None:
        """A matrix product into ``root``."""
        x, y = term.args
        batch = term.shape[:-2]
        m, n, k = term.shape[-2], term.shape[-1], x.shape[-1]
        of_x = self._matrix(x, (*batch, m, k), root.out.dtype)
        found = None
        if y in self.late and self._is_paired(self.late[y], of_x, m, k):
            (source,) = self.late[y].leaves
            of_y = self._matrix(source, (*batch, k, n), root.out.dtype)
        elif y in self.late:
            found = mapped(self.late[y].term, self.memory, self.target.exact)
            if found is None:
                raise Unsupported("a right operand that products cannot compute")
            zero = (0,) * len(batch)
            of_y = Operand("late", y, root.out.dtype), Layout((*zero, n, 1))
        else:
            of_y = self._matrix(y, (*batch, k, n), root.out.dtype)
        self.out.pieces.append(
            Product(
                of_x[0],
                of_y[0],
                root.out,
                root.out.dtype,
                (m, n, k),
                batch,
                (of_x[1], of_y[1], Layout(root.strides, root.offset)),
                found,
            )
        )

    def _is_paired(
        self, of: Late, x: tuple[Operand, Layout], rows: int, size: int
    ) -> bool:
        """Whether a product reads the bfloat16 that a constant is made of."""
        if not self.target.pairs or source_of_pairs(of) is None:
            return False
        lies = x[1].strides[-1] == 1 and x[0].dtype == BF16
        return lies and rows > 1 and size % 2 == 0

    def convolution(self, term: Term, root: Root) -> None:
        """A convolution into ``root``."""
        if not is_result(root.strides, term.shape):
            self.materialise(term)
            self.nest([root])
            return
        x, w = term.args
        dtype = root.out.dtype
        of_x = self._operand(x, x.shape, dtype, is_image)
        of_w = self._operand(w, w.shape, dtype, is_kernel)
        if of_w[0].dtype != dtype:
            of_w = self._copied(w, dtype), Layout(packed(w.shape))
        piece = convolution(
            (of_x[0], of_w[0], root.out),
            (of_x[1], of_w[1], Layout(root.strides, root.offset)),
            (x.shape, w.shape, term.shape),
            cast(Op, term.op).attr_dict(term),
        )
        self.out.pieces.append(piece)

    def _matrix(self, term: Term, shape: Shape, dtype: DType) -> tuple[Operand, Layout]:
        """Where an operand of a product lies; it is computed or copied if need be."""
        return self._operand(term, shape, dtype, _is_matrix)

    def _operand(
        self, term: Term, shape: Shape, dtype: DType, lies: Lies
    ) -> tuple[Operand, Layout]:
        """Where ``term``, broadcast to ``shape``, lies; it is computed or copied if
        need be, until ``lies`` holds of its strides and shape."""
        found = self._seen(term, shape, dtype, self.memory, lies)
        if found is None and term in self.memory:
            out = self._copied(term, dtype)
            copied = {term: (out, Layout(packed(term.shape)))}
            found = self._seen(term, shape, dtype, copied, lies)
        elif found is None:
            self.materialise(term)
            return self._operand(term, shape, dtype, lies)
        assert found is not None
        return found

    def _copied(self, term: Term, dtype: DType) -> Operand:
        """What is in memory, once more: packed, and in ``dtype``."""
        out = self.temporary(dtype, term.size)
        self.nest([Root(term, out, packed(term.shape))])
        return out

    def _is_read(self, dtype: DType, wide: DType) -> bool:
        """Whether a product in ``wide`` reads ``dtype``."""
        is_half = dtype in HALF and wide == WIDE and self.target.halves
        return dtype == wide or is_half

    def _seen(
        self,
        term: Term,
        shape: Shape,
        dtype: DType,
        memory: Mapping[Term, tuple[Operand, Layout]],
        lies: Lies,
    ) -> tuple[Operand, Layout] | None:
        """The layout of ``term`` broadcast to ``shape``, where ``lies`` holds of it."""
        values = Values(memory, {})
        index = values.index("i", term.shape)
        try:
            value = values.values[values.value(term, index)]
        except (Split, Conflict, Unsupported):
            return None
        if value.op != "load" or not self._is_read(value.source.dtype, dtype):
            return None
        own = [
            sum(value.at.coefficient(v) for v in e.variables) if e.variables else 0
            for e in index
        ]
        if sum(len(e.variables) for e in index) < len(value.at.terms):
            return None
        lead = len(shape) - len(own)
        strides = [0] * lead + [
            s if n > 1 else 0 for s, n in zip(own, term.shape, strict=True)
        ]
        if not lies(tuple(strides), shape):
            return None
        return value.source, Layout(tuple(strides), value.at.offset)


def _is_matrix(strides: Shape, shape: Shape) -> bool:
    """Whether BLAS can read the matrices of an array."""
    rows, columns = strides[-2:]
    m, n = shape[-2:]
    if (columns == 1 or n == 1) and (rows >= n or m == 1):
        return True
    return (rows == 1 or m == 1) and (columns >= m or n == 1)
