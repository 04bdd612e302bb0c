"""The order in which rules run: phases in rounds, the stock rules first, a user's own
after them in what room there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from eqsat.egraph.egraph import Engine
from eqsat.egraph.insertion import Iteration
from eqsat.egraph.snapshot import Budget
from eqsat.rulelang import egg_schema

Phases = Sequence[tuple[str, int]]
"""Phases, and how often each runs in a round."""
SCHEDULE: Sequence[tuple[int, Phases]] = (
    (3, (("canonicalise", 3), ("recognise", 1))),
    (3, (("algebra", 1), ("user", 1), ("canonicalise", 2), ("recognise", 2))),
    (1, (("merge", 1),)),
)
"""Numbers of rounds, and what each consists of."""
ROOM = 1 / 800
"""Part of the most e-nodes that a user's own rules may add to any graph."""

Step = Callable[[str, bool], bool]
"""One iteration of a phase, of the stock rules or a user's own (True): whether anything
changed."""


def saturate(engine: Engine, budget: Budget, own: bool = True) -> None:
    """All phases but fusion, each bounded in iterations, the whole in time and size.
    ``own``: a user's rules run too; else they wait for :func:`extend`."""
    engine.most = max(100, budget.max_nodes // 8)
    kinds = (False, True) if own else (False,)
    for rounds, phases in SCHEDULE:
        _run(engine, budget, rounds, phases, kinds, partial(_free, engine))


def extend(engine: Engine, budget: Budget) -> bool:
    """The same again with a user's own rules; whether they changed anything.

    They may add a third of the e-nodes that there are, or the part :data:`ROOM` of the
    most; what follows from them may take as much again. A rule that matches everywhere,
    as do those that commute, associate and distribute, so takes no more time than the
    stock rules did: it sits out when there is no room for what it would make, and
    others go on.
    """
    start = engine.size()
    nodes = max(start // 3, int(ROOM * budget.max_nodes))
    room = _Room(engine, start, nodes)
    for rounds, phases in SCHEDULE:
        _run(engine, budget, rounds, phases, (True, False), room.step)
    return room.is_used


def canonicalise(engine: Engine, budget: Budget) -> None:
    """The phase of normal forms alone."""
    phases = (("canonicalise", 3),)
    _run(engine, budget, 3, phases, (False,), partial(_free, engine))


def _run(
    engine: Engine,
    budget: Budget,
    rounds: int,
    phases: Phases,
    kinds: Sequence[bool],
    step: Step,
) -> None:
    """Some rounds of ``phases`` with rules of some kinds: a user's own (True), stock
    ones."""
    for _ in range(rounds):
        changed = False
        for phase, times in phases:
            for _ in range(times):
                if budget.spent or not budget.left():
                    return
                again = False
                for own in kinds:
                    again |= engine.wake(phase, own) and step(phase, own)
                if not again:
                    break
                changed = True
                if engine.size() > budget.max_nodes:
                    budget.spent = "nodes"
                    return
        if not changed:
            return


def _free(engine: Engine, phase: str, own: bool) -> bool:
    """A step that may match as often as a graph of this size can hold."""
    risky = engine.is_risky(egg_schema.ruleset(phase, own))
    return engine.step(Iteration(phase, engine.most if risky else None, own))


@dataclass
class _Room:
    """How much a graph may grow by a user's own rules."""

    engine: Engine
    start: int
    """E-nodes that there were."""
    nodes: int
    """E-nodes that they may add, and what follows from these."""
    is_used: bool = False
    """Whether they changed anything."""
    limits: dict[str, int] = field(default_factory=dict)
    """By phase, once its rules made too much: matches up to which each still runs."""

    def step(self, phase: str, own: bool) -> bool:
        """A step of a user's rules, or of the stock rules once those did anything."""
        added = self.engine.size() - self.start
        if added >= 2 * self.nodes:
            return False
        if own:
            changed = self._own(phase, 2 * self.nodes - added)
        elif self.is_used:
            risky = self.engine.is_risky(egg_schema.ruleset(phase, own))
            limit = 2 * self.nodes - added if risky else None
            changed = self.engine.step(Iteration(phase, limit))
        else:
            return False
        self.is_used |= changed
        return changed

    def _own(self, phase: str, left: int) -> bool:
        """What would make more than there is room for is undone. From then on rules of
        the phase sit out that match more often than an eighth of what was left, then
        than an eighth of that, and so on."""
        engine, most = self.engine, self.start + self.nodes
        before = engine.size(), engine.classes()
        limit = self.limits.get(phase)
        if limit is not None:
            engine.step(Iteration(phase, min(limit, left), True))
        else:
            risky = engine.is_risky(egg_schema.ruleset(phase, True))
            if not risky:
                changed = engine.attempt(Iteration(phase, None, True), most)
                if changed is not None:
                    return changed
            limit, most = left // 8, most + self.nodes
            while engine.attempt(Iteration(phase, limit, True), most) is None:
                limit //= 8
            self.limits[phase] = limit
        # A bounded iteration matches all again, and says that it changes the graph.
        return (engine.size(), engine.classes()) != before
