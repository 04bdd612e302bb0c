"""Kernels of a native program that NumPy runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.kernels import Kernel, Program, View
from eqsat.terms import INPUT, Term, TermGraph, Weak
from eqsat.trace import KERNEL, RESULT

from ..interpret import Array

Excused = tuple[Kernel, str]
"""A kernel that NumPy runs, and why."""


@dataclass(frozen=True, eq=False)
class Python:
    """Kernels one behind the other that NumPy runs as one program."""

    kernels: tuple[Excused, ...]
    run: Callable[..., Sequence[Array]]
    arguments: tuple[Term, ...]
    results: tuple[Term, ...]
    """What others need of them."""


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


def python_parts(program: Program, excused: Sequence[Excused]) -> list[Python]:
    """Kernels of ``program``, one behind the other, as few NumPy programs."""
    groups: list[list[Excused]] = []
    bases = {s.term: s.base for s in program.steps if isinstance(s, View)}
    inside: set[Term] = set()
    for one in excused:
        kernel = one[0]
        apart = kernel.term.op is KERNEL or any(
            bases.get(a) in inside for a in kernel.term.args
        )
        if apart or not groups or groups[-1][0][0].term.op is KERNEL:
            groups.append([])
            inside = set()
        groups[-1].append(one)
        inside.update(kernel.results)
    users: dict[Term, set[Kernel | None]] = {r: {None} for r in program.roots}
    for base in bases.values():
        users.setdefault(base, set()).add(None)
    for k in program.kernels:
        for a in k.term.args:
            users.setdefault(a, set()).add(k)
    return [_part(group, users) for group in groups]


def _part(
    excused: Sequence[Excused], users: Mapping[Term, set[Kernel | None]]
) -> Python:
    from ..numpy import lower as lower_to_numpy

    graph = TermGraph(sources=False)
    inputs: dict[Term, Term] = {}
    made: dict[Term, Term] = {}
    own = {k for k, _ in excused}
    graph.arrays.update(excused[0][0].term.graph.arrays)

    def given(a: Term) -> Term:
        if isinstance(a.dtype, Weak):
            return _copied(a, graph)
        if a in made:
            return made[a]
        if a not in inputs:
            inputs[a] = graph.node(INPUT, (), (len(inputs),), a.type)
        return inputs[a]

    for kernel, _ in excused:
        t = kernel.term
        term = graph.node(t.op, [*map(given, t.args)], t.attrs, t.type)
        for r in kernel.results:
            several = t.op is KERNEL and r.op is RESULT
            made[r] = graph.node(RESULT, [term], r.attrs, r.type) if several else term
    needed = [r for r in made if users.get(r, set()) - own or len(own) == 1]
    program = Program.of([made[r] for r in needed], list(inputs.values()))
    run = lower_to_numpy(program).run
    return Python(tuple(excused), run, tuple(inputs), tuple(needed))


def _copied(term: Term, graph: TermGraph) -> Term:
    """``term``, of bare numbers, in another graph."""
    args = [_copied(a, graph) for a in term.args]
    return graph.node(term.op, args, term.attrs, term.type)
