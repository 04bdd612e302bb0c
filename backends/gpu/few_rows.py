"""Products of few rows by matrices that are made of smaller ones, such as weights in
few bits, as sums over what they are made of.

A product of few rows ends when its matrix has been read. One row by 4096×4096 int8 with
scales takes an H200 6 µs so, 17 by the float32 that they stand for, and 48 where these
are computed in each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np

from eqsat import ops
from eqsat.body import RESULT, Body, body_above, kernel_terms
from eqsat.build import constant
from eqsat.domain import CONTRACT, MAP
from eqsat.expand import primitives
from eqsat.kernel import Kernel, View, inner
from eqsat.op import CONSTANT, HALF, INPUT, SCALAR, Op
from eqsat.program import Program
from eqsat.term import Term, postorder
from eqsat.trace import Tracer

FEW_ROWS = 4
"""Rows up to which a product becomes a sum, which reads the matrix once for each."""
SMALLER = 1.5
"""How many times smaller the memory must be that a matrix is made of."""
JOINED = ("concatenate", "pad")
"""Views that are no other reading of one array."""
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
            args = [new.get(a, a) for a in of.leaves]
            made[t] = kernel_terms(of.body, args, t.graph)
            new[t] = made[t][0]
        elif t.op is RESULT and t.args[0] in made:
            new[t] = made[t.args[0]][cast(int, t.attrs[0])]
        else:
            args = [new[a] for a in t.args]
            new[t] = t.graph.node(t.op, args, t.attrs, t.type) if args else t
    names = [program.names[t] for t in program.inputs]
    return Program.of([new[r] for r in program.roots], program.inputs, names)


@dataclass(frozen=True)
class _Summed:
    """A kernel that sums, and the terms in memory that it reads."""

    body: Body
    leaves: tuple[Term, ...]


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

    def summed(self, kernel: Kernel) -> _Summed | None:
        """What computes ``kernel`` as a sum; None where it stays a product."""
        if kernel.kind != CONTRACT:
            return None
        leaves = list(kernel.term.args)
        nodes = inner(kernel.bodies, leaves)
        product, *others = [t for t in nodes if cast(Op, t.op).kind == "contract"]
        x, w = product.args[:2]
        few = 0 < prod(x.shape[:-1]) <= FEW_ROWS
        if others or product.op.name != "matmul" or not few or w.ndim != 2:
            return None
        within = [w] if w in leaves else inner([w], leaves)
        read = {a for t in (w, *within) for a in (t, *t.args) if a in leaves}
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
        return _kernel_of(bodies, list(memory), kernel)

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
        if op.name == "concatenate":
            axis = op.attr_dict(t)["axis"]
            first, second = (primitives(a, chosen) for a in t.args)
            shape = [1] * t.ndim
            shape[axis] = 2
            is_first = constant(t.graph, np.reshape([True, False], shape))
            of = (Tracer(a) for a in (is_first, first, second))
            chosen[t] = cast(Tracer, ops.where(*of)).term
    return primitives(whole, chosen)


def _is_stack(t: Term) -> bool:
    """Whether ``t`` is two arrays beside each other on an axis of their own."""
    op = cast(Op, t.op)
    if op.name != "concatenate" or len(t.args) != 2:
        return False
    axis: int = op.attr_dict(t)["axis"]
    return t.shape[axis] == 2


def _made_of(whole: Term, stacks: bool = False) -> list[Term]:
    """The arrays below pointwise ops, views, and ``stacks`` of two."""
    found: dict[Term, None] = {}
    seen, stack = {whole}, [whole]
    while stack:
        t = stack.pop()
        op = cast(Op, t.op)
        plain = op.kind in ("pointwise", "view") and op.name not in JOINED
        if plain or (stacks and _is_stack(t)):
            new = [a for a in t.args if a not in seen]
            seen.update(new)
            stack += new
        elif op is not SCALAR:
            found[t] = None
    return list(found)


def _as_sum(product: Term, x: Term, w: Term) -> Term:
    """``product`` as a sum of products, of halves in float32."""
    dtype = cast("np.dtype[np.generic]", product.dtype)
    wide = np.dtype(np.float32) if dtype in HALF else dtype
    rows = ops.expand_dims(ops.cast(Tracer(x), wide), -1)
    total = ops.sum(rows * ops.cast(Tracer(w), wide), -2)
    return cast(Tracer, ops.cast(total, dtype)).term


def _kernel_of(
    bodies: Sequence[Term], memory: Sequence[Term], kernel: Kernel
) -> _Summed:
    """The body of a kernel that computes ``bodies`` from what is in ``memory``."""
    nodes = inner(bodies, memory)
    met = dict.fromkeys([*(a for t in nodes for a in t.args), *bodies])
    held = {t for t in met if t.op is CONSTANT or (t in memory and t.op is not SCALAR)}
    leaves = tuple(t for t in met if t in held)
    numbers = [t for t in met if t.op is SCALAR]
    chosen: Mapping[int, tuple[Op, tuple[object, ...], tuple[int, ...]]] = {
        t.id: (cast(Op, t.op), t.attrs, tuple(a.id for a in t.args))
        for t in (*numbers, *nodes)
    }
    types = {b.id: r.type for b, r in zip(bodies, kernel.results, strict=True)}
    body = body_above([b.id for b in bodies], chosen, [t.id for t in leaves], types)
    return _Summed(body, leaves)
