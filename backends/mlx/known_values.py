"""Values of a kernel that depend on no argument: tables, computed once."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, cast

from eqsat.terms import CONSTANT, Op, Term, Weak

from ..interpret import evaluate
from ..numpy import Names
from .arrays import to_mlx


@dataclass
class KnownValues:
    """The tables of one kernel, in the namespace of its program."""

    leaves: Set[Term]
    """Arguments of the kernel."""
    names: Names
    namespace: dict[str, Any]
    known: dict[Term, bool] = field(default_factory=dict)

    def holds(self, term: Term) -> bool:
        """Whether ``term`` depends on no argument."""
        if term not in self.known:
            inner = bool(term.args) and all(self.holds(a) for a in term.args)
            made = not term.args and cast(Op, term.op).kind != "leaf"
            known = term.op is CONSTANT or inner or made
            bare = isinstance(term.dtype, Weak)  # which an argument may be, too
            self.known[term] = bare or (term not in self.leaves and known)
        return self.known[term]

    def of(self, term: Term) -> str:
        """A name for the value of a term that is known beforehand."""
        return self.table(evaluate([term], {})[term])

    def table(self, value: Any) -> str:
        """A name for an array that is known beforehand."""
        name = self.names.fresh("table")
        self.namespace[name] = to_mlx(value)
        return name
