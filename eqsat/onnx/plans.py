"""Plans of one graph: most calls have one, and what does not fit it has another.

Which nodes run on the host follows from shapes and types too. A call of unusual ones
does not change how others run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from eqsat.jit import Jit
from eqsat.onnx.kept_calls import in_order
from eqsat.onnx.nodes import ModelGraph
from eqsat.onnx.plan import AgainError, Called, Compile, OtherPlanError, Plan, Run
from eqsat.onnx.run import Values

_MOST_PLANS = 16
_MOST_CALLS = 1024
"""Types and shapes of calls of which is known how they are made."""


class DirectCall(NamedTuple):
    """A call that is one program, with all outputs among its results."""

    jitted: Jit
    reads: Sequence[int]
    """Numbers of inputs."""
    gives: Sequence[int]
    """Numbers of results."""


class Plans:
    """A graph as a function of its inputs."""

    def __init__(
        self,
        graph: ModelGraph,
        compile: Compile,
        content: bytes | None = None,
        is_body: bool = False,
    ) -> None:
        self.graph = graph

        def body(graph: ModelGraph) -> Run:
            return Plans(graph, compile, is_body=True).outputs

        self._make = functools.partial(Plan, graph, compile, content, is_body, body)
        self._plans = [self._make()]
        self._others: dict[Any, Plan] = {}
        """Plans of calls that the first one does not fit."""
        self._direct: dict[Any, DirectCall] = {}

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans)

    def outputs(self, values: Values) -> list[Any]:
        """The outputs, given inputs and what the graph reads around it."""
        return self.run(values)[1]

    def run(
        self, values: Values, called: Called | None = None
    ) -> tuple[Plan, list[Any]]:
        """The same, and the plan that gave them. ``called``: where it puts the programs
        that ran."""
        key = _key(values) if self._others else None
        plan = self._others.get(key, self._plans[0])
        while True:
            try:
                found = plan(values, called)
            except OtherPlanError as wanted:
                plan = self._other(wanted)
                if called is not None:
                    called.clear()
            else:
                break
        if plan is not self._plans[0]:
            self._note(values, plan)
        return plan, found

    def _other(self, wanted: OtherPlanError) -> Plan:
        for plan in self._plans[1:]:
            is_on_host = plan.on_host.keys() >= wanted.on_host.keys()
            if is_on_host and plan.demanded >= wanted.demanded:
                return plan
        plan = self._make()
        plan.on_host, plan.demanded = wanted.on_host, wanted.demanded
        return plan

    def _note(self, values: Values, plan: Plan) -> None:
        if plan not in self._plans:
            if len(self._plans) > _MOST_PLANS:
                last = self._plans.pop(1)
                of = self._others.items()
                self._others = {k: p for k, p in of if p is not last}
            self._plans.append(plan)
        if len(self._others) >= _MOST_CALLS:
            self._others.pop(next(iter(self._others)))
        self._others[_key(values)] = plan

    # -- calls that were made before ---------------------------------------------------

    def directly(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Any] | None:
        """The outputs, where the same call of other arrays was one program: a small
        model takes a quarter of the time. None elsewhere, and where an argument has no
        result."""
        arrays = in_order(self.graph.inputs, args, named)
        if arrays is None:
            return None
        key: list[Any] = []
        for a in arrays:
            if type(a) is not np.ndarray:
                return None
            key += (a.dtype, a.shape)
        call = self._direct.get(tuple(key))
        if call is None:
            return None
        try:
            found = call.jitted(*[arrays[i] for i in call.reads])
        except (IndexError, AgainError):
            return None
        return [np.asarray(found[i]) for i in call.gives]

    def note_direct(self, values: Values, plan: Plan, outputs: Sequence[Any]) -> None:
        """Note a call that gave ``outputs``, if it was one program."""
        whole = plan.whole(values)
        if whole is None or len(self._direct) >= _MOST_CALLS:
            return
        (stage, jitted), names = whole, self.graph.inputs
        arrays = [values[n] for n in names]
        if all(type(x) is np.ndarray for x in (*arrays, *outputs)):
            reads = [names.index(n) for n in stage.reads]
            gives = [stage.writes.index(n) for n in self.graph.outputs]
            key = tuple(chain.from_iterable((x.dtype, x.shape) for x in arrays))
            self._direct[key] = DirectCall(jitted, reads, gives)


def _key(values: Values) -> Any:
    """Types and shapes of inputs."""
    return tuple((n, _type_of(v)) for n, v in values.items())


def _type_of(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_type_of, value))
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)
