"""The states of values over operands in given states, worked out once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.kernels import LIBRARY, STORED, State, Target, join
from eqsat.search.extraction.dense_node import DenseNode
from eqsat.terms import Type


@dataclass
class NodeStates:
    """What :func:`eqsat.kernels.join` makes of the e-nodes of a graph."""

    nodes: list[DenseNode]
    types: list[Type | None]
    """Of each class."""
    target: Target
    _states: dict[tuple[int, ...], State | None] = field(default_factory=dict)
    """By a node and the numbers of its operands' states."""
    _asked: dict[tuple[int, ...], State | None] = field(default_factory=dict)
    """The same by the identities of the states."""
    _numbers: dict[int, int] = field(default_factory=dict)
    _named: dict[State, int] = field(default_factory=dict)
    _alive: list[State] = field(default_factory=list)
    """Keeps the identities those of these states."""

    def of(self, n: int, states: Sequence[State]) -> State | None:
        """The state of node ``n`` over operands in ``states``."""
        asked = (n, *map(id, states))
        if asked not in self._asked:
            key = (n, *[self.number_of(s) for s in states])
            if key not in self._states:
                self._states[key] = self._joined(self.nodes[n], states)
            self._asked[asked] = self._states[key]
        return self._asked[asked]

    def _joined(self, node: DenseNode, states: Sequence[State]) -> State | None:
        if node.apart:
            alone = all(s.kind in STORED for s in states)
            return State(LIBRARY) if alone else None
        out = self.types[node.cls]
        assert out is not None
        target = self.target
        return join(node.op, node.attrs, node.types, out, states, target, node.cls)

    def number_of(self, state: State) -> int:
        """A number for a state; hashing one costs more than the rest of a look-up."""
        known = self._numbers.get(id(state))
        if known is None:
            self._alive.append(state)
            known = self._numbers[id(state)] = self._named.setdefault(
                state, len(self._named)
            )
        return known
