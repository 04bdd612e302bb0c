"""Kernels of a program as pieces: nests, and the products between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import cast

import numpy as np

from eqsat.kernels import Kernel, inner, packed
from eqsat.ops import conv2d_op, matmul_op, reshape_op
from eqsat.support import verifying
from eqsat.terms import BF16, HALF, Op, Shape, Term

from ..loop_ir import (
    FAULT,
    WIDE,
    DType,
    Factoring,
    Layout,
    Loops,
    Operand,
    Piece,
    Pieces,
    Product,
    Split,
    Unsupported,
    address,
    verify,
)
from .computed_operands import (
    mapped,
)
from .constant_values import (
    DeferredConstant,
    fixed_terms,
    source_of_pairs,
    sums_of_nothing,
)
from .conv_memory import (
    convolution,
    has_whole_channels,
    is_image,
    is_kernel,
    is_result,
    kernels_are_columns,
    product_of_whole_images,
)
from .joined_parts import (
    Wholes,
)
from .narrow_products import (
    is_short,
)
from .nesting import (
    DECOMPOSITIONS,
    Nests,
)
from .roots import (
    Root,
)
from .schedule import (
    LoopTarget,
    schedule,
)
from .values import (
    Conflict,
    Values,
)

Lies = Callable[[Shape, Shape], bool]
"""Whether something can be read that has these strides, and this shape."""


def pieces_of(
    kernel: Kernel,
    target: LoopTarget,
    layouts: Mapping[Term, Layout] | None = None,
    deferred: Mapping[Term, DeferredConstant] | None = None,
    numbers: Mapping[Term, DType] | None = None,
) -> Pieces:
    """The pieces of ``kernel``, whose inputs lie in memory as ``layouts`` says, packed
    by default. Products compute the ``deferred`` ones, which are their right operands.
    ``numbers`` are bare ones that are read from memory, in a dtype.
    Raises :class:`Unsupported`."""
    layouts = layouts or {}
    made = _Lowering(kernel, target, layouts, deferred or {}, numbers or {}).run()
    if verifying():
        verify(made, kernel, layouts)
    return made


def copy_of(term: Term, layout: Layout, target: LoopTarget) -> Loops:
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


class _Lowering(Nests):
    def __init__(
        self,
        kernel: Kernel,
        target: LoopTarget,
        layouts: Mapping[Term, Layout],
        deferred: Mapping[Term, DeferredConstant],
        numbers: Mapping[Term, DType],
    ) -> None:
        terms = inner(kernel.bodies, kernel.term.args)
        rows = {t.shape[-1] for t in terms if t.op is matmul_op and not is_short(t)}
        rows |= {prod(t.shape[2:]) for t in terms if t.op is conv2d_op}
        super().__init__(
            replace(target, rows=frozenset(rows)), len(terms) == 1 or target.exact
        )
        self.kernel, self.deferred = kernel, deferred
        self.wholes = Wholes.of(terms, kernel.bodies)
        own = (a for of in deferred.values() for a in of.leaves)
        for t in (*(t for t in kernel.inputs if t not in deferred), *own):
            layout = layouts.get(t) or Layout(packed(t.shape))
            self.memory[t] = Operand("array", t, cast("DType", t.dtype)), layout
        for t, dtype in numbers.items():
            self.memory[t] = Operand("array", t, dtype), Layout(())
        for t, value in fixed_terms(terms, kernel.bodies, kernel.term.args).items():
            table = self.table(np.array(value, order="C"))
            self.memory[t] = table, Layout(packed(t.shape))
        for t, value in sums_of_nothing(terms).items():
            self.memory[t] = self.table(value), Layout((0,) * t.ndim)

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

    def contract(self, term: Term, root: Root) -> None:
        if term.op is matmul_op:
            self._product(term, root)
        else:
            self._convolution(term, root)

    def _product(self, term: Term, root: Root) -> None:
        """A matrix product into ``root``."""
        if term.shape[-1] > 1 and root.strides[-1] != 1:
            self.materialise(term)
            self.nest([root])
            return
        x, y = term.args
        batch = term.shape[:-2]
        m, n, k = term.shape[-2], term.shape[-1], x.shape[-1]
        of_x = self._matrix(x, (*batch, m, k), root.out.dtype)
        found = None
        if y in self.deferred and self._is_paired(self.deferred[y], of_x, m, k):
            (source,) = self.deferred[y].leaves
            of_y = self._matrix(source, (*batch, k, n), root.out.dtype)
        elif y in self.deferred:
            found = mapped(self.deferred[y].term, self.memory, self.target.exact)
            if found is None:
                raise Unsupported("a right operand that products cannot compute")
            zero = (0,) * len(batch)
            of_y = Operand("deferred", y, root.out.dtype), Layout((*zero, n, 1))
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
        self, of: DeferredConstant, x: tuple[Operand, Layout], rows: int, size: int
    ) -> bool:
        """Whether a product reads the bfloat16 that a constant is made of."""
        if not self.target.pairs or source_of_pairs(of) is None:
            return False
        lies = x[1].strides[-1] == 1 and x[0].dtype == BF16
        return lies and rows > 1 and size % 2 == 0

    def _convolution(self, term: Term, root: Root) -> None:
        """A convolution into ``root``."""
        if not is_result(root.strides, term.shape):
            self.materialise(term)
            self.nest([root])
            return
        x, w = term.args
        dtype = root.out.dtype
        attrs = cast(Op, term.op).attr_dict(term)
        of_x = self._images(x, attrs["groups"], dtype)
        turned = kernels_are_columns(x.shape, w.shape, term.shape)
        lies = has_whole_channels if turned else is_kernel
        of_w = self._operand(w, w.shape, dtype, lies)
        if of_w[0].dtype != dtype:
            of_w = self._copied(w, dtype), Layout(packed(w.shape))
        operands = of_x[0], of_w[0], root.out
        layouts = of_x[1], of_w[1], Layout(root.strides, root.offset)
        shapes = x.shape, w.shape, term.shape
        piece: Piece | None = None
        if not turned:
            piece = product_of_whole_images(operands, layouts, shapes, attrs)
        self.out.pieces.append(piece or convolution(operands, layouts, shapes, attrs))

    def factor(self, term: Term, root: Root) -> None:
        """A factorisation, or what follows from one, into ``root``."""
        if root.strides != packed(term.shape):
            self.materialise(term)
            self.nest([root])
            return
        op, dtype = cast(Op, term.op), root.out.dtype
        *axes, m, n = term.args[0].shape
        batch, sizes = term.shape[:-2], (n, term.shape[-1])
        if op.name in DECOMPOSITIONS:
            batch, sizes = tuple(axes), (m, n)
        of_args = []
        for i, a in enumerate(term.args):
            lies = _factor_lies(op.name) if i == 0 else _anyhow
            of_args.append(self._operand(a, (*batch, *a.shape[-2:]), dtype, lies))
        types = [a.type for a in term.args]
        attrs = op.attr_dict(term)
        assert op.flops is not None
        flops = op.flops(types, attrs, term.type)
        routine, strides = op.name, root.strides
        if routine == "decompose":
            routine, strides = attrs.pop("routine"), (*strides, 1)
        flags = {k: v if isinstance(v, float) else int(v) for k, v in attrs.items()}
        self.out.pieces.append(
            Factoring(
                routine,
                (*(x for x, _ in of_args), root.out, FAULT),
                dtype,
                sizes,
                batch,
                (*(at for _, at in of_args), Layout(strides, root.offset)),
                tuple(flags.items()),
                flops,
            )
        )

    def _images(self, term: Term, groups: int, dtype: DType) -> tuple[Operand, Layout]:
        """Where images lie, with an axis of groups before that of channels: these may
        be far apart, and their reshape nowhere."""
        n, c, *image = term.shape
        shape = (n, groups, c // groups, *image)
        if term.op is reshape_op and term not in self.memory:
            (x,) = term.args
            if x.shape == shape:
                return self._operand(x, shape, dtype, is_image)
        operand, at = self._operand(term, term.shape, dtype, is_image)
        images, channels, *rest = at.strides
        strides = (images, shape[2] * channels, channels, *rest)
        return operand, Layout(strides, at.offset)

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


def _anyhow(strides: Shape, shape: Shape) -> bool:
    """What is copied may lie in any way."""
    return True


def _is_packed(strides: Shape, shape: Shape) -> bool:
    """Whether the rows of a matrix follow each other."""
    m, n = shape[-2:]
    return (strides[-1] == 1 or n == 1) and (strides[-2] == n or m == 1)


def _factor_lies(name: str) -> Lies:
    """How the matrix must lie that an op of factorisations reads."""
    if name in ("lu", "cholesky", *DECOMPOSITIONS):
        return _anyhow
    return _is_matrix if name == "solve_triangular" else _is_packed


def _is_matrix(strides: Shape, shape: Shape) -> bool:
    """Whether BLAS can read the matrices of an array."""
    rows, columns = strides[-2:]
    m, n = shape[-2:]
    if (columns == 1 or n == 1) and (rows >= n or m == 1):
        return True
    return (rows == 1 or m == 1) and (columns >= m or n == 1)
