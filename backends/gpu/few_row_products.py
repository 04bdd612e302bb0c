"""Products of few rows by matrices that are made of smaller ones, such as weights in
few bits, as sums over what they are made of.

A product of few rows ends when its matrix has been read. One row by 4096×4096 int8 with
scales takes an H200 6 µs so, 17 by the float32 that they stand for, and 48 where these
are computed in each call.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np

from eqsat import ops
from eqsat.kernels import CONTRACT, MAP, Kernel, Program, View, body_over, inner
from eqsat.ops import concatenate_op, matmul_op
from eqsat.terms import CONSTANT, HALF, INPUT, SCALAR, Op, Term, constant, postorder
from eqsat.trace import RESULT, KernelBody, Tracer, kernel_terms, primitives

from .gpu_program import in_loops

FEW_ROWS = 4
"""Rows up to which a product becomes a sum, which reads the matrix once for each."""
SMALLER = 1.5
"""How many times smaller the memory must be that a matrix is made of."""
DEPTH = 8
"""Kernels in a row, at most, that make a matrix."""


def with_sums(program: Program) -> Program:
    """``program``, in which products of few rows compute their matrix as they read it,
    where that moves less memory; the program itself where there is none."""
    finder = _Finder(program)
    found = {k.term: of for k in program.kernels if (of := finder.summed(k))}
    if not found:
        return program
    new: dict[Term, Term] = {}
    made: dict[Term, list[Term]] = {}
    for t in postorder(program.roots):
        of = found.get(t)
        if of is not None:
            body, leaves = of
            made[t] = kernel_terms(body, [new.get(a, a) for a in leaves], t.graph)
            new[t] = made[t][0]
        elif t.op is RESULT and t.args[0] in made:
            new[t] = made[t.args[0]][cast(int, t.attrs[0])]
        else:
            args = [new[a] for a in t.args]
            new[t] = t.graph.node(t.op, args, t.attrs, t.type) if args else t
    names = [program.names[t] for t in program.inputs]
    return Program.of([new[r] for r in program.roots], program.inputs, names)


Summed = tuple[KernelBody, tuple[Term, ...]]
"""The body of a kernel that sums, and the terms in memory that it reads."""


class _Finder:
    def __init__(self, program: Program) -> None:
        self.known = {*program.constants, *program.folded}
        self.makers: dict[Term, Kernel] = {}
        self.bases: dict[Term, Term] = {}
        for step in program.steps:
            if isinstance(step, View):
                self.bases[step.term] = step.base
            else:
                self.makers |= dict.fromkeys(step.results, step)

    def summed(self, kernel: Kernel) -> Summed | None:
        """What computes ``kernel`` as a sum; None where it stays a product."""
        if kernel.kind != CONTRACT:
            return None
        leaves = list(kernel.term.args)
        nodes = inner(kernel.bodies, leaves)
        product, *others = [t for t in nodes if cast(Op, t.op).kind == "contract"]
        x, w = product.args[:2]
        few = 0 < prod(x.shape[:-1]) <= FEW_ROWS
        if others or product.op is not matmul_op or not few or w.ndim != 2:
            return None
        met = {w, *(a for t in inner([w], leaves) for a in t.args)}
        read = met.intersection(leaves)
        if not all(self._is_made_of_inputs(a, DEPTH) for a in read):
            return None
        whole = primitives(_without_stacks(primitives(w)))
        parts = _made_of(whole)
        if whole in parts or SMALLER * sum(a.nbytes for a in parts) > w.nbytes:
            return None
        if any(a.op not in (INPUT, CONSTANT) for a in parts) and not read <= self.known:
            return None
        total = _as_sum(product, x, whole)
        memory = dict.fromkeys((*(a for a in leaves if a not in read), *parts))
        same = {a: a for a in memory}
        bodies = [primitives(b, same | {product: total}) for b in kernel.bodies]
        return body_over(bodies, memory, [r.type for r in kernel.results])

    def _is_made_of_inputs(self, term: Term, depth: int) -> bool:
        """Whether maps alone lie between ``term`` and what a program is given."""
        term = self.bases.get(term, term)
        if term in self.known or term.op is INPUT:
            return True
        maker = self.makers.get(term)
        if depth == 0 or maker is None or maker.kind != MAP:
            return False
        return all(self._is_made_of_inputs(a, depth - 1) for a in maker.inputs)


def _without_stacks(whole: Term) -> Term:
    """``whole``, in which of two things stacked one is chosen: nibbles of bytes."""
    chosen: dict[Term, Term] = {}
    for t in inner([whole], _made_of(whole, stacks=True)):
        op = cast(Op, t.op)
        if op is concatenate_op:
            axis = op.attr_dict(t)["axis"]
            first, second = (primitives(a, chosen) for a in t.args)
            is_first = constant(t.graph, _is_first(t.ndim, axis))
            of = (Tracer(a) for a in (is_first, first, second))
            chosen[t] = cast(Tracer, ops.where(*of)).term
    return primitives(whole, chosen)


@lru_cache
def _is_first(ndim: int, axis: int) -> np.ndarray[Any, Any]:
    """Of two things stacked on ``axis``: one array, as graphs know arrays by
    identity."""
    shape = np.ones(ndim, int)
    shape[axis] = 2
    return np.reshape([True, False], shape)


def _is_stack(t: Term) -> bool:
    """Whether ``t`` is two arrays beside each other on an axis of their own."""
    op = cast(Op, t.op)
    if op is not concatenate_op or len(t.args) != 2:
        return False
    axis: int = op.attr_dict(t)["axis"]
    return t.shape[axis] == 2


def _made_of(whole: Term, stacks: bool = False) -> list[Term]:
    """The arrays below pointwise ops, views, and ``stacks`` of two."""
    found: dict[Term, None] = {}
    seen, stack = {whole}, [whole]
    while stack:
        t = stack.pop()
        plain = in_loops(t) and cast(Op, t.op).kind != "reduce"
        if plain or (stacks and _is_stack(t)):
            new = [a for a in t.args if a not in seen]
            seen.update(new)
            stack += new
        elif t.op is not SCALAR:
            found[t] = None
    return list(found)


def _as_sum(product: Term, x: Term, w: Term) -> Term:
    """``product`` as a sum of products, of halves in float32."""
    dtype = cast("np.dtype[np.generic]", product.dtype)
    wide = np.dtype(np.float32) if dtype in HALF else dtype
    rows = ops.expand_dims(ops.cast(Tracer(x), wide), -1)
    total = ops.sum(rows * ops.cast(Tracer(w), wide), -2)
    return cast(Tracer, ops.cast(total, dtype)).term
