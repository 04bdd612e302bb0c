"""Kernels of a native program that NumPy runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.kernels import Kernel, Program, View
from eqsat.terms import INPUT, Term, TermGraph, Weak
from eqsat.trace import KERNEL, RESULT

from ..interpret import Array

NO_TIME = "the deadline passed before its machine code was written"
"""Why NumPy runs a kernel that could be machine code."""

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


@dataclass(frozen=True)
class ResultCopy:
    """A result of the program that lies elsewhere, or in another order, which NumPy
    brings where it is returned."""

    number: int


class Fallback:
    """Makes NumPy programs of kernels of ``program``."""

    def __init__(self, program: Program) -> None:
        self.bases = {s.term: s.base for s in program.steps if isinstance(s, View)}
        self.users: dict[Term, set[Kernel | None]] = {}
        """Kernels that read a value or views of it, and None for the caller."""
        for r in program.roots:
            self._used(r, None)
        for k in program.kernels:
            for a in k.term.args:
                self._used(a, k)

    def _used(self, term: Term, user: Kernel | None) -> None:
        self.users.setdefault(self.bases.get(term, term), set()).add(user)

    def part(self, excused: Sequence[Excused]) -> Python:
        """Kernels one behind the other as one NumPy program, which makes the views
        between them itself."""
        from ..numpy import lower as lower_to_numpy

        graph = TermGraph(sources=False)
        graph.arrays.update(excused[0][0].term.graph.arrays)
        inputs: dict[Term, Term] = {}
        made: dict[Term, Term] = {}

        def given(a: Term) -> Term:
            if isinstance(a.dtype, Weak):
                return _copied(a, graph)
            if a in made:
                return made[a]
            if self.bases.get(a) in made:
                made[a] = graph.node(a.op, [*map(given, a.args)], a.attrs, a.type)
                return made[a]
            if a not in inputs:
                inputs[a] = graph.node(INPUT, (), (len(inputs),), a.type)
            return inputs[a]

        own = {k for k, _ in excused}
        needed = []
        for kernel, _ in excused:
            t = kernel.term
            term = graph.node(t.op, [*map(given, t.args)], t.attrs, t.type)
            several = t.op is KERNEL and kernel.results[0].op is RESULT
            for r in kernel.results:
                new = graph.node(RESULT, [term], r.attrs, r.type) if several else term
                made[r] = new
                if several or self.users.get(r, set()) - own:
                    needed.append(r)
        part = Program.of([made[r] for r in needed], list(inputs.values()))
        run = lower_to_numpy(part).run
        return Python(tuple(excused), run, tuple(inputs), tuple(needed))


def _copied(term: Term, graph: TermGraph) -> Term:
    """``term``, of bare numbers, in another graph."""
    args = [_copied(a, graph) for a in term.args]
    return graph.node(term.op, args, term.attrs, term.type)
