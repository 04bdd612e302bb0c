"""What an engine is told before rules and terms: constructors, types, tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.egraph.normal_form import Entry, NormalForms, inner_ops, ops_of
from eqsat.rulelang import egg_schema
from eqsat.terms import INPUT, SCALAR, Op


@dataclass
class Vocabulary:
    """The declarations that one engine has been given so far."""

    signed: bool
    """Keep which rule built each node."""
    constructors: dict[str, tuple[Op, int]] = field(
        default_factory=lambda: {
            "Leaf": (INPUT, 0),
            "Scalar": (SCALAR, 0),
            "ScalarInt": (SCALAR, 0),
        }
    )
    """By name: the op, and how many children."""
    typed: set[str] = field(default_factory=set)
    """Constructors whose nodes are given types."""
    sizes: int = 0
    """Tables of sizes, from the last axis on."""

    def of_ops(self, ops: Mapping[tuple[str, int], Op]) -> list[str]:
        """Forms that begin a graph of ``ops``."""
        forms = [*egg_schema.PRELUDE, *self._size_tables(2)]
        for (_, arity), op in ops.items():
            forms += self._declared(op, arity)
        return forms

    def of_rule(self, entry: Entry, normal: NormalForms) -> list[str]:
        """Forms of a rule: constructors, types, the rule."""
        r, _, right = entry
        forms = [f for op, n in ops_of(right) for f in self._declared(op, n)]
        for op, n in inner_ops(right):
            # A root has the type of the class it joins; only what is inside needs one.
            name = egg_schema.constructor(op, n)
            if name not in self.typed:
                self.typed.add(name)
                forms += egg_schema.analyses(op, n)
        most = max((axes.rank for axes in r.signature.inputs), default=0)
        forms += self._size_tables(most)
        return forms + normal.forms(entry, self.signed)

    def _declared(self, op: Op, arity: int) -> list[str]:
        """Forms that declare a constructor; none when it is known."""
        name = egg_schema.constructor(op, arity)
        if name in self.constructors:
            return []
        self.constructors[name] = (op, arity)
        forms = [egg_schema.declaration(op, arity), *egg_schema.bounds(op, arity)]
        return [*forms, egg_schema.provenance(op, arity)] if self.signed else forms

    def _size_tables(self, k: int) -> list[str]:
        """Tables of sizes up to the ``k``-th from the end, where they are new."""
        new = [
            f for i in range(self.sizes + 1, k + 1) for f in egg_schema.size_table(i)
        ]
        self.sizes = max(self.sizes, k)
        return new
