"""Kernels of a native program that NumPy runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.kernels import Kernel, Program
from eqsat.terms import INPUT, Term, TermGraph, Weak
from eqsat.trace import KERNEL, RESULT

from ..interpret import Array


@dataclass(frozen=True, eq=False)
class Python:
    """A kernel that NumPy runs, and why."""

    kernel: Kernel
    run: Callable[..., Sequence[Array]]
    arguments: tuple[Term, ...]
    reason: str


class ByNumpy:
    """A whole program that NumPy runs, since there was no time for machine code."""

    def __init__(self, program: Program, reason: str) -> None:
        from ..numpy import lower as lower_to_numpy

        self.cut_short = reason
        self.reasons = {k.name: reason for k in program.kernels}
        self._run = lower_to_numpy(program)
        self.source = f"# {reason}\n{self._run.source}"

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, in fresh arrays."""
        return self._run(*map(np.asarray, arrays))

    def code_for(self, arrays: Sequence[Any]) -> None:
        """There is no native function."""


def python_part(kernel: Kernel, reason: str) -> Python:
    """A kernel as a NumPy program of its own."""
    from ..numpy import lower as lower_to_numpy

    graph = TermGraph(sources=False)
    args: list[Term] = []
    inputs: dict[Term, Term] = {}
    graph.arrays.update(kernel.term.graph.arrays)
    for a in kernel.term.args:
        if isinstance(a.dtype, Weak):
            args.append(_copied(a, graph))
            continue
        if a not in inputs:
            inputs[a] = graph.node(INPUT, (), (len(inputs),), a.type)
        args.append(inputs[a])
    term = graph.node(kernel.term.op, args, kernel.term.attrs, kernel.term.type)
    roots = [term]
    if kernel.term.op is KERNEL and kernel.results[0].op is RESULT:
        roots = [graph.node(RESULT, [term], r.attrs, r.type) for r in kernel.results]
    run = lower_to_numpy(Program.of(roots, list(inputs.values())))
    return Python(kernel, run, tuple(inputs), reason)


def _copied(term: Term, graph: TermGraph) -> Term:
    """``term``, of bare numbers, in another graph."""
    args = [_copied(a, graph) for a in term.args]
    return graph.node(term.op, args, term.attrs, term.type)
