"""Kernels of a program as what a GPU runs: generated kernels, and calls of a library
between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernels import (
    MAP,
    ROW,
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
    Buffer,
    Layout,
    Load,
    Loops,
    Nest,
    Operand,
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
from .printing import Source, joined_source, source_of
from .shared_reads import rows_then_map, with_shared_reads
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
    found = _found(kernel, dialect, layouts, bodies, exact)
    if not any(isinstance(p, Generated) for p in found):
        raise Unsupported("calls of a library")
    if verifying():
        verify(found, kernel, layouts)
    return found


GivenNest = tuple[Nest, Sequence[KernelOperand]]
"""A nest and what its buffers are."""


def maps_of_rows(program: Program) -> dict[Kernel, Kernel]:
    """Kernels that reduce rows, and the map that reads their results, which nothing
    else does, and an array that they read."""
    readers: dict[Term, list[Any]] = {}
    for step in program.steps:
        for t in (step.base,) if isinstance(step, View) else step.inputs:
            readers.setdefault(t, []).append(step)
    found: dict[Kernel, Kernel] = {}
    for rows in program.kernels if len(program.kernels) > 1 else ():
        of = [r for t in rows.results for r in readers.get(t, ())]
        alone = rows.kind == ROW and not {*rows.results} & {*program.roots}
        if not alone or len({*of}) != 1 or isinstance(of[0], View):
            continue
        (then,) = {*of}
        shared = {*rows.inputs} & {*then.inputs}
        if then.kind == MAP and shared and then not in found.values():
            found[rows] = then
    return found


def one_kernel(
    rows: Sequence[Part],
    then: Sequence[Part],
    dialect: Dialect,
    kernel: Kernel,
    layouts: Mapping[Term, Layout],
    exact: bool,
) -> Generated | None:
    """One kernel for the parts of one that reduces rows and of ``kernel``, the map that
    reads its results; None where two are as good. ``layouts``: those of all that they
    read. ``exact``: whether one of them rounds each operation as it is written."""
    first, second = _one_nest(rows), _one_nest(then)
    if first is None or second is None:
        return None
    nests, memory = _over_same([first, second])
    nest = rows_then_map(nests[0], nests[1], exact)
    if nest is None:
        return None
    nest, memory = _without_unused(nest, memory)
    try:
        source = source_of(nest, [prod(m.shape) for m in memory], dialect)
    except Unsupported:  # of a grid that is too large
        return None
    found = _with_memory(source, [nest], memory)
    if verifying():
        verify([found], kernel, layouts)
    return found


def _one_nest(parts: Sequence[Part]) -> GivenNest | None:
    """The nest of a kernel that is one."""
    part = parts[0] if len(parts) == 1 else None
    if not isinstance(part, Generated) or len(part.nests) != 1:
        return None
    return part.nests[0], part.memory


def _over_same(
    given: Sequence[GivenNest],
) -> tuple[list[Nest], Sequence[KernelOperand]]:
    """Nests over the same buffers, and what these are."""
    memory = [*dict.fromkeys(m for _, own in given for m in own)]
    place = {m: i for i, m in enumerate(memory)}
    out = {m for one in given for m in _written(*one)}
    buffers = tuple(Buffer(f"b{i}", m.dtype, m in out) for i, m in enumerate(memory))
    nests = [
        _moved(nest, {i: place[m] for i, m in enumerate(own)}, buffers)
        for nest, own in given
    ]
    return nests, memory


def _found(
    kernel: Kernel,
    dialect: Dialect,
    layouts: Mapping[Term, Layout],
    bodies: Sequence[Term],
    exact: bool,
) -> list[Part]:
    """The parts; what joins arrays is a call of the library only where it has to be."""
    joins = any(t.op in ASSEMBLIES for t in inner(bodies, kernel.term.args))
    try:
        return [*_Parting(kernel, dialect, layouts, bodies, exact, joins).run()]
    except Unsupported:
        if not joins:
            raise
    return [*_Parting(kernel, dialect, layouts, bodies, exact).run()]


_LOOPS = ("pointwise", "reduce", "view")


class _Parting:
    def __init__(
        self,
        kernel: Kernel,
        dialect: Dialect,
        layouts: Mapping[Term, Layout],
        bodies: Sequence[Term],
        exact: bool,
        joins: bool = False,
    ) -> None:
        self.kernel, self.dialect, self.bodies = kernel, dialect, bodies
        self.exact, self.joins = exact, joins
        self.layouts = dict(layouts)
        self.leaves = [t for t in kernel.term.args if not isinstance(t.dtype, Weak)]
        self.temporaries = 0

    def run(self) -> Iterator[Part]:
        kernel = self.kernel
        nodes = inner(self.bodies, kernel.term.args)
        known = _known(nodes, set(self.leaves))
        anchors = [t for t in nodes if t not in known and not self._is_in_loops(t)]
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

    def _is_in_loops(self, term: Term) -> bool:
        return in_loops(term) or (self.joins and term.op in ASSEMBLIES)

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
        given = []
        for piece in pieces.pieces:
            if not isinstance(piece, Loops):
                raise Unsupported("a product in loops")
            memory = [
                self._memory(o, kernel, back, pieces, first) for o in piece.operands
            ]
            given.append((piece.nest, memory))
        for group in _joined(given):
            if len(group) > 1:
                yield self._in_one(group)
            else:
                yield from self._steps(*group[0])

    def _in_one(self, group: Sequence[GivenNest]) -> Generated:
        """Nests that write one result as one kernel."""
        nests, memory = _over_same(group)
        nests = with_shared_reads(nests)
        sizes = [prod(m.shape) for m in memory]
        if len(nests) == 1:
            source = source_of(nests[0], sizes, self.dialect)
        else:
            source = joined_source(nests, sizes, self.dialect)
        return _with_memory(source, nests, memory)

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
        memory = [*memory]
        for b in range(len(memory), len(steps[-1].buffers)):
            writes = next(
                s for s in steps if len(s.buffers) > b and s.buffers[b].written
            )
            size, dtype = prod(v.size for v in writes.grid), writes.buffers[b].dtype
            key = self.temporaries
            memory.append(KernelOperand("temporary", key, dtype, (size,)))
            self.temporaries += 1
        for step in steps:
            yield self._generated(step, memory[: len(step.buffers)])

    def _generated(self, nest: Nest, memory: Sequence[KernelOperand]) -> Generated:
        nest, memory = _without_unused(nest, memory)
        source = source_of(nest, [prod(m.shape) for m in memory], self.dialect)
        return _with_memory(source, [nest], memory)


def _with_memory(
    source: Source, nests: Sequence[Nest], memory: Sequence[KernelOperand]
) -> Generated:
    inputs, outputs = (
        tuple(memory[i] for i in places) for places in (source.inputs, source.outputs)
    )
    return Generated(source, tuple(nests), inputs, outputs)


def _written(nest: Nest, memory: Sequence[KernelOperand]) -> Iterator[KernelOperand]:
    return (m for b, m in zip(nest.buffers, memory, strict=True) if b.written)


def _joined(given: Sequence[GivenNest]) -> list[list[GivenNest]]:
    """Nests in order, those together that write parts of one result. Raises
    :class:`Unsupported` where one between them reads it."""
    groups: list[list[GivenNest]] = []
    writes: list[set[KernelOperand]] = []
    for one in given:
        out = {*_written(*one)}
        read = {*one[1]} - out
        group = [one]
        for i in reversed(range(len(groups))):
            if writes[i] & out:
                later = (m for g in groups[i + 1 :] for _, memory in g for m in memory)
                if writes[i] & read or writes[i].intersection(later):
                    raise Unsupported("a result in several parts, read between them")
                group, out = [*groups.pop(i), *group], out | writes.pop(i)
        groups.append(group)
        writes.append(out)
    return groups


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
    buffers = tuple(nest.buffers[i] for i in used)
    return _moved(nest, number, buffers), [memory[i] for i in used]


def _moved(nest: Nest, number: Mapping[int, int], buffers: tuple[Buffer, ...]) -> Nest:
    """``nest`` over ``buffers``, ``number`` of each of its own among them."""

    def moved(s: Statement) -> Statement:
        if isinstance(s, (Load, Store)):
            return replace(s, buffer=number[s.buffer])
        return s

    return replace(nest.changed(moved), buffers=buffers)


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


def view_layout(term: Term, source: Layout) -> Layout | None:
    """The layout of a view of memory that has layout ``source``, in elements; None
    where a reshape of it is none."""
    op = cast(Op, term.op)
    attrs, (arg,) = op.attr_dict(term), term.args
    strides = strides_of_view(op, attrs, arg.shape, source.strides)
    if strides is None:
        return None
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
            shown = view_layout(step.term, layout)
            assert shown is not None
            found[step.term] = base, shown
    return found
