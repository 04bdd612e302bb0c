"""Kernels of a program as what a GPU runs: generated kernels, and calls of a library
between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernels import (
    Kernel,
    Program,
    View,
    body_over,
    inner,
    packed,
    strides_of_view,
)
from eqsat.ops import ASSEMBLIES, VIEWS, slice_op
from eqsat.support import verifying
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, TermGraph, Weak
from eqsat.trace import KERNEL, RESULT

from ..loop_ir import (
    Layout,
    Load,
    Loops,
    Nest,
    Operand,
    Pass,
    Pieces,
    Statement,
    Store,
    Unsupported,
)
from ..to_loops import (
    LoopTarget,
    pieces_of,
)
from .c_code import Dialect
from .generated import Generated, KernelOperand, LibraryCall, Part
from .printing import source_of
from .split_reductions import in_steps
from .verify import verify

MANY = 1 << 16
"""Elements from which few long rows of several reductions are split."""


def parts_of(
    kernel: Kernel,
    dialect: Dialect,
    layouts: Mapping[Term, Layout],
    bodies: Sequence[Term] | None = None,
    exact: bool = False,
) -> list[Part]:
    """What computes ``kernel``, whose inputs lie as ``layouts`` says, or packed.

    ``bodies``: its results, in which composites that the library has are closed; in
    primitives by default. With ``exact`` each operation rounds as it is written.
    Raises :class:`Unsupported` where none of it would be generated.
    """
    if any(t.size == 0 for t in (*kernel.inputs, *kernel.results)):
        raise Unsupported("an array without elements")
    bodies = kernel.bodies if bodies is None else bodies
    found = list(_Parting(kernel, dialect, layouts, bodies, exact).run())
    if not any(isinstance(p, Generated) for p in found):
        raise Unsupported("calls of a library")
    if verifying():
        verify(found, kernel, layouts)
    return found


_LOOPS = ("pointwise", "reduce", "view")


class _Parting:
    def __init__(
        self,
        kernel: Kernel,
        dialect: Dialect,
        layouts: Mapping[Term, Layout],
        bodies: Sequence[Term],
        exact: bool,
    ) -> None:
        self.kernel, self.dialect, self.bodies = kernel, dialect, bodies
        self.exact = exact
        self.layouts = dict(layouts)
        self.leaves = [t for t in kernel.term.args if not isinstance(t.dtype, Weak)]
        self.temporaries = 0

    def run(self) -> Iterator[Part]:
        kernel = self.kernel
        nodes = inner(self.bodies, kernel.term.args)
        known = _known(nodes, set(self.leaves))
        anchors = [t for t in nodes if t not in known and not in_loops(t)]
        if not anchors:
            yield from self._nests(kernel, {r: r for r in kernel.results}, {})
            return
        for t in anchors:
            for a in t.args:
                if not self._is_at_hand(a):
                    yield from self._made([a], [a])
                    self.leaves.append(a)
            yield LibraryCall(t)
            self.leaves.append(t)
        left = [
            (b, r)
            for b, r in zip(self.bodies, kernel.results, strict=True)
            if b not in self.leaves
        ]
        if left:
            yield from self._made([b for b, _ in left], [r for _, r in left])

    def _is_at_hand(self, term: Term) -> bool:
        """Whether a term is in memory, a number, or a view of what is in memory."""
        while term not in self.leaves and term.op in VIEWS:
            term = term.args[0]
        bare = isinstance(term.dtype, Weak) or term.op is CONSTANT
        return term in self.leaves or bare

    def _made(self, bodies: Sequence[Term], results: Sequence[Term]) -> Iterator[Part]:
        """Nests that compute ``bodies`` from what is in memory."""
        kernel, back = _as_kernel(bodies, results, self.leaves)
        layouts = {
            inside: self.layouts[t] for inside, t in back.items() if t in self.layouts
        }
        own = dict(zip(kernel.results, results, strict=True))
        yield from self._nests(kernel, back | own, layouts)

    def _nests(
        self,
        kernel: Kernel,
        back: Mapping[Term, Term],
        layouts: Mapping[Term, Layout],
    ) -> Iterator[Generated]:
        layouts = layouts or self.layouts
        target = LoopTarget(exact=self.exact)
        pieces = pieces_of(kernel, target, layouts)
        if _has_long_rows(pieces):
            pieces = pieces_of(kernel, replace(target, threads=8), layouts)
        first = self.temporaries
        self.temporaries += len(pieces.temporaries)
        written: set[KernelOperand] = set()
        for piece in pieces.pieces:
            if not isinstance(piece, Loops):
                raise Unsupported("a product in loops")
            memory = [
                self._memory(o, kernel, back, pieces, first) for o in piece.operands
            ]
            for made in self._steps(piece.nest, memory):
                if written & set(made.outputs):
                    raise Unsupported("a result in several parts")
                written |= set(made.outputs)
                yield made

    def _memory(
        self,
        o: Operand,
        kernel: Kernel,
        back: Mapping[Term, Term],
        pieces: Pieces,
        first: int,
    ) -> KernelOperand:
        if o.kind == "temporary":
            dtype, size = pieces.temporaries[o.key]
            return KernelOperand("temporary", first + o.key, dtype, (size,))
        if o.kind == "table":
            table = pieces.tables[o.key]
            return KernelOperand("table", _Table(table), table.dtype, table.shape)
        if o.kind == "fault":
            raise Unsupported("a check of values on a GPU")
        term = kernel.results[o.key] if o.kind == "result" else o.key
        term = back.get(term, term)
        return KernelOperand("term", term, o.dtype, term.shape)

    def _steps(
        self, nest: Nest, memory: Sequence[KernelOperand]
    ) -> Iterator[Generated]:
        steps = in_steps(nest)
        if steps is None:
            yield self._generated(nest, memory)
            return
        more: list[KernelOperand] = []
        for step in steps:
            size = prod(v.size for v in step.grid)
            for i in range(len(memory) + len(more), len(step.buffers)):
                if step.buffers[i].written:
                    dtype = step.buffers[i].dtype
                    more.append(
                        KernelOperand("temporary", self.temporaries, dtype, (size,))
                    )
                    self.temporaries += 1
            yield self._generated(step, [*memory, *more])

    def _generated(self, nest: Nest, memory: Sequence[KernelOperand]) -> Generated:
        nest, memory = _without_unused(nest, memory)
        source = source_of(nest, [prod(m.shape) for m in memory], self.dialect)
        return Generated(
            source,
            nest,
            tuple(memory[i] for i in source.inputs),
            tuple(memory[i] for i in source.outputs),
        )


class _Table:
    """An array as a key."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


def in_loops(term: Term) -> bool:
    """Whether nests compute ``term``; what joins arrays they do not."""
    op = cast(Op, term.op)
    return op.kind in _LOOPS and op not in ASSEMBLIES


def _known(nodes: Sequence[Term], leaves: set[Term]) -> set[Term]:
    """The nodes that depend on no argument."""
    known: set[Term] = set()
    for t in nodes:
        if t not in leaves and all(
            a in known or (a not in leaves and a.op in (SCALAR, CONSTANT))
            for a in t.args
        ):
            known.add(t)
    return known


def _has_long_rows(pieces: Pieces) -> bool:
    """Whether one of the nests leaves most of a GPU idle, reducing rows one by one."""
    for p in pieces.pieces:
        if isinstance(p, Loops):
            reducing = sum(1 for q in p.nest.passes if q.body)
            few = p.nest.rows < 8 and p.nest.elements >= MANY
            if few and reducing > 1 and in_steps(p.nest) is None:
                return True
    return False


def _without_unused(
    nest: Nest, memory: Sequence[KernelOperand]
) -> tuple[Nest, Sequence[KernelOperand]]:
    """The nest with the buffers that it uses only."""
    used = sorted({s.buffer for s in nest.statements() if isinstance(s, (Load, Store))})
    if len(used) == len(nest.buffers):
        return nest, memory
    number = {b: i for i, b in enumerate(used)}

    def moved(s: Statement) -> Statement:
        if isinstance(s, (Load, Store)):
            return replace(s, buffer=number[s.buffer])
        return s

    passes = tuple(
        Pass(tuple(map(moved, p.before)), p.loops, tuple(map(moved, p.body)))
        for p in nest.passes
    )
    buffers = tuple(nest.buffers[i] for i in used)
    return replace(nest, buffers=buffers, passes=passes), [memory[i] for i in used]


def _as_kernel(
    bodies: Sequence[Term], results: Sequence[Term], leaves: Sequence[Term]
) -> tuple[Kernel, dict[Term, Term]]:
    """A kernel of a graph of its own that computes ``bodies``, and what its inputs
    stand for."""
    body, given = body_over(bodies, leaves, [r.type for r in results])
    graph = TermGraph(sources=False)
    inputs = [graph.node(INPUT, (), (i,), t.type) for i, t in enumerate(given)]
    term = graph.node(KERNEL, inputs, (body,), body.types[0])
    roots = [term]
    if len(bodies) > 1:
        roots = [graph.node(RESULT, [term], (i,), t) for i, t in enumerate(body.types)]
    (kernel,) = Program.of(roots, inputs).kernels
    return kernel, dict(zip(inputs, given, strict=True))


def view_layout(term: Term, source: Layout) -> Layout:
    """The layout of a view of memory that has layout ``source``, in elements."""
    op = cast(Op, term.op)
    attrs, (arg,) = op.attr_dict(term), term.args
    strides = strides_of_view(op, attrs, arg.shape, source.strides)
    assert strides is not None
    offset = source.offset
    if op is slice_op:
        lead = arg.ndim - len(attrs["starts"])
        for start, stride in zip(attrs["starts"], source.strides[lead:], strict=True):
            offset += start * stride
    return Layout(tuple(strides), offset)


def layouts_of(program: Program) -> dict[Term, tuple[Term, Layout]]:
    """The views of a program: what each shows, and where its elements lie there."""
    found: dict[Term, tuple[Term, Layout]] = {}
    for step in program.steps:
        if isinstance(step, View):
            (arg,) = step.term.args
            base, layout = found.get(arg, (arg, Layout(packed(arg.shape))))
            found[step.term] = base, view_layout(step.term, layout)
    return found
