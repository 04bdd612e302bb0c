"""A saturated e-graph, read back: plain lists that the rest of the line works on."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eqsat.support import cached_property
from eqsat.terms import INPUT, SCALAR, Op, Term, Type, Weak, dtype_code, dtype_of_code

CHUNK = 64
"""Terms inserted by one rule of the engine."""


class ENode(NamedTuple):
    """One e-node: ``op(*children, **attrs)`` in the class ``cls``."""

    cls: int
    op: Op
    attrs: tuple[Any, ...]
    children: tuple[int, ...]
    rule: str
    """The rule that built it first, where the engine kept it; empty for a node of the
    input."""


@dataclass
class EGraph:
    """A saturated e-graph, read back: plain lists, indexed by class."""

    types: list[Type | None]
    classes: list[list[int]]
    """Indices into ``nodes`` for each class."""
    nodes: list[ENode]
    constant: list[bool]
    """Whether the value of a class is known when the program is compiled."""
    written: dict[int, int] = field(default_factory=dict)
    """The node of each class that the input wrote, its first in evaluation order."""
    tables: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    """Where the engine kept provenance: what conditions of rules ask of a class
    (``lower``, ``order``, and relations, whose value is True)."""

    def add(self, node: ENode) -> None:
        """Add a node to its class."""
        self.classes[node.cls].append(len(self.nodes))
        self.nodes.append(node)

    def number(self, value: float) -> int:
        """The class of a bare number, new where there is none."""
        for node in self.nodes:
            if node.op is SCALAR and node.attrs == (value,) and _is_float(node.attrs):
                return node.cls
        self.types.append((Weak.FLOAT, ()))
        self.classes.append([])
        self.constant.append(True)
        self.add(ENode(len(self.types) - 1, SCALAR, (value,), (), ""))
        return len(self.types) - 1

    def classes_of(self, *parts: Inserted) -> list[list[int]]:
        """The class of each inserted term of each part, found again by congruence.

        Their nodes are nobody's but the user's: a rule that turns a product round and
        back builds what was there.
        """
        table = {_key(n.op, n.attrs, n.children): i for i, n in enumerate(self.nodes)}
        return [self._classes_of(what, table) for what in parts]

    def _classes_of(
        self, what: Inserted, table: Mapping[tuple[Any, ...], int]
    ) -> list[int]:
        found: dict[Term, int] = {}
        for t in what.terms:
            leaf = what.leaves.get(t)
            if leaf is not None:
                i = table[_key(INPUT, (leaf,), ())]
            else:
                op = t.op
                assert isinstance(op, Op)
                attrs = t.attrs if op is SCALAR else engine_attrs(op, t.attrs)
                i = table[_key(op, attrs, tuple(found[a] for a in t.args))]
            if self.nodes[i].rule:
                self.nodes[i] = self.nodes[i]._replace(rule="")
            found[t] = self.nodes[i].cls
            self.written.setdefault(found[t], i)
        return [found[t] for t in what.terms]

    def append(self, what: Inserted) -> list[int]:
        """Add terms, each as a class of its own, which no rule has seen; their
        classes."""
        found: dict[Term, int] = {}
        for t in what.terms:
            c = found[t] = len(self.classes)
            self.types.append(t.type)
            self.classes.append([])
            leaf, op = what.leaves.get(t), t.op
            assert isinstance(op, Op)
            self.constant.append(leaf in what.constants or op is SCALAR)
            if leaf is not None:
                node = ENode(c, INPUT, (leaf,), (), "")
            else:
                attrs = t.attrs if op is SCALAR else engine_attrs(op, t.attrs)
                node = ENode(c, op, attrs, tuple(found[a] for a in t.args), "")
            self.written[c] = len(self.nodes)
            self.add(node)
        return list(found.values())

    def complete(self) -> None:
        """Fill ``classes``, and what follows from children: missing types and
        constants."""
        for i, node in enumerate(self.nodes):
            self.classes[node.cls].append(i)
            if node.op is SCALAR:
                self.constant[node.cls] = True
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                if node.op.kind == "leaf":
                    continue
                if not self.constant[node.cls] and all(
                    self.constant[c] for c in node.children
                ):
                    self.constant[node.cls] = changed = bool(node.children)
                if self.types[node.cls] is None:
                    self.types[node.cls] = self._infer(node)
                    changed |= self.types[node.cls] is not None

    def _infer(self, node: ENode) -> Type | None:
        types = [t for c in node.children if (t := self.types[c]) is not None]
        if len(types) < len(node.children):
            return None
        attrs = dict(zip(node.op.attrs, attr_values(node), strict=True))
        return node.op.type_rule.infer(node.op.name, types, attrs)


def _key(op: Op, attrs: tuple[Any, ...], children: tuple[int, ...]) -> tuple[Any, ...]:
    """What makes a node; the bare numbers 2 and 2.0 are two."""
    return op, _with_one_nan(attrs), children, op is SCALAR and _is_float(attrs)


def _with_one_nan(attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """``attrs`` with the NaN that equals itself, in place of those that do not."""
    if all(a == a for a in attrs):
        return attrs
    return tuple(a if a == a else math.nan for a in attrs)


def _is_float(attrs: tuple[Any, ...]) -> bool:
    return isinstance(attrs[0], float)


def engine_attrs(op: Op, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        dtype_code(np.dtype(v)) if kind == "DTypeName" else v
        for kind, v in zip(op.attrs.values(), attrs, strict=True)
    )


def attr_values(node: ENode) -> tuple[Any, ...]:
    """The attributes of an e-node as those of a term."""
    attrs = _with_one_nan(node.attrs)
    return tuple(
        str(dtype_of_code(v)) if kind == "DTypeName" else v
        for kind, v in zip(node.op.attrs.values(), attrs, strict=True)
    )


now = time.thread_time
"""The clock of budgets: processor time of this thread (s), so that what else the
machine does changes neither the program found nor the warnings."""


@dataclass
class Budget:
    """Time and size that may be spent; ``spent`` names what ran out."""

    deadline: float
    """Moment of :func:`now` after which no more work starts."""
    max_nodes: int
    spent: str = ""

    @classmethod
    def of(cls, seconds: float, max_nodes: int) -> Budget:
        """A budget of so many seconds from now on, in this thread."""
        return cls(now() + seconds, max_nodes)

    @property
    def seconds(self) -> float:
        """Seconds that are left; not positive when time is up."""
        return self.deadline - now()

    def part(self, share: float) -> Budget:
        """A budget of its own that ends after this part of the time that is left."""
        return Budget.of(share * self.seconds, self.max_nodes)

    def left(self) -> bool:
        """Whether there is time left. Size bounds the search for rewrites alone."""
        if now() <= self.deadline:
            return True
        self.spent = self.spent or "time"
        return False


@dataclass
class Inserted:
    """A term graph to insert: terms in order, and what stands for its leaves."""

    terms: Sequence[Term]
    leaves: Mapping[Term, int]
    """Terms that are opaque, with their number."""
    constants: frozenset[int]
    """Numbers of leaves that are known when the program is compiled."""
    facts: Mapping[int, tuple[str, ...]]
    """Relations that hold for constant leaves."""
    base: int
    """First key for the terms; a term's key is ``base`` plus its place."""

    @cached_property
    def place(self) -> dict[Term, int]:
        """Where each term stands."""
        return {t: i for i, t in enumerate(self.terms)}

    @cached_property
    def used_in_later_chunks(self) -> set[int]:
        """Places of terms that a later chunk refers to."""
        place = self.place
        return {
            place[a]
            for i, t in enumerate(self.terms)
            if t not in self.leaves
            for a in t.args
            if place[a] // CHUNK != i // CHUNK
        }
