"""One kernel as a program of its own, to run or to measure it apart from the others."""

from __future__ import annotations

from collections.abc import Collection

from eqsat.kernels.kernel import Kernel
from eqsat.kernels.program import Program
from eqsat.terms import INPUT, Term, TermGraph, Weak
from eqsat.trace import KERNEL, RESULT


def kernel_alone(
    kernel: Kernel, constants: Collection[Term] = ()
) -> tuple[Program, tuple[Term, ...]]:
    """The program of one kernel, and the terms whose values it takes, in order. Those
    of ``constants`` are part of it, as they are in the program that has them."""
    graph = TermGraph(sources=False)
    graph.arrays.update(kernel.term.graph.arrays)
    args: list[Term] = []
    inputs: dict[Term, Term] = {}
    for a in kernel.term.args:
        if isinstance(a.dtype, Weak) or a in constants:
            args.append(_copied(a, graph))
            continue
        if a not in inputs:
            inputs[a] = graph.node(INPUT, (), (len(inputs),), a.type)
        args.append(inputs[a])
    term = graph.node(kernel.term.op, args, kernel.term.attrs, kernel.term.type)
    roots = [term]
    if kernel.term.op is KERNEL and kernel.results[0].op is RESULT:
        roots = [graph.node(RESULT, [term], r.attrs, r.type) for r in kernel.results]
    return Program.of(roots, list(inputs.values())), tuple(inputs)


def _copied(term: Term, graph: TermGraph) -> Term:
    """``term``, over numbers and constants, in another graph."""
    args = [_copied(a, graph) for a in term.args]
    return graph.node(term.op, args, term.attrs, term.type)
