"""Nodes for terms: of traced functions, of lazy arrays, of chosen programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from eqsat.graph.nodes import CONSTANT, INPUT, NodeTable
from eqsat.support import GraphError, at
from eqsat.terms import CONSTANT as CONSTANT_LEAF
from eqsat.terms import INPUT as INPUT_LEAF
from eqsat.terms import SCALAR, Op, Term, postorder
from eqsat.trace import KERNEL, RESULT, KernelBody

ArrayOf = Callable[[Term], Any]
"""The array that a leaf stands for; None for a term that is none."""


def add_terms(
    table: NodeTable, roots: Sequence[Term], inputs: Mapping[Term, str], of: ArrayOf
) -> None:
    """Add a node for each term of ``inputs``, and below ``roots``, which become the
    outputs.

    Raises :class:`GraphError` for an op that the catalogue has under no name.
    """
    for t, name in inputs.items():
        table.put(INPUT, name, type_=t.type)
    names = dict(inputs)
    for t in postorder(roots):
        if t in names:
            continue
        array = of(t)
        if t.op is SCALAR:
            made = table.put(CONSTANT, None, value=t.attrs[0], source=t.source)
        elif array is not None:
            held = frozen(array)
            made = table.put(CONSTANT, None, value=held, source=t.source)
        else:
            op = cast(Op, t.op)
            if Op.registry.get(op.name) is not op or op is INPUT_LEAF:
                raise GraphError(
                    f"op {op.name!r} is not in the catalogue, so that no node can name "
                    f"it{at(t.source)}"
                )
            args = tuple(names[a] for a in t.args)
            made = table.put(op.name, None, args, op.attr_dict(t), source=t.source)
        names[t] = made.name
    table.outputs += [names[r] for r in roots]


def frozen(array: Any) -> np.ndarray[Any, Any]:
    """A copy of an array that nobody can write to, in the order of C."""
    held = np.array(array, order="C")
    held.flags.writeable = False
    return held


def constants_in(arrays: Mapping[int, Any]) -> ArrayOf:
    """What CONSTANT terms stand for, of the arrays of their graph."""

    def of(t: Term) -> Any:
        return arrays[cast(int, t.attrs[0])] if t.op is CONSTANT_LEAF else None

    return of


def opened(roots: Sequence[Term]) -> list[Term]:
    """``roots`` with the ops of generated kernels in place of the kernels."""
    made: dict[Term, Term] = {}
    inside: dict[Term, list[Term]] = {}
    for t in postorder(roots):
        args = [made[a] for a in t.args]
        if t.op is KERNEL:
            body = cast(KernelBody, t.attrs[0])
            inside[t] = body.apply(t.graph, args)
            made[t] = inside[t][body.results[0]]
        elif t.op is RESULT:
            kernel = t.args[0]
            body = cast(KernelBody, kernel.attrs[0])
            made[t] = inside[kernel][body.results[cast(int, t.attrs[0])]]
        else:
            made[t] = t.graph.node(t.op, args, t.attrs, t.type) if args else t
    return [made[r] for r in roots]
