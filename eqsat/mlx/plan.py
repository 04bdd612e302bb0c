"""A graph as steps: programs of eqsat, and primitives between them that MLX runs.

What runs where is found by tracing each primitive once. Programs and primitives then
alternate as seldom as their dependencies allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.explain import Explanation
from eqsat.jit import Jit, jit
from eqsat.lowered import Lowered
from eqsat.mlx import (  # enter the table
    arrange,
    elementwise,
    in_mlx,
    indexing,
    learned,
    random_bits,
    reductions,
)
from eqsat.mlx.primitive_graph import ArraySpec, Primitive, PrimitiveGraph
from eqsat.mlx.table import computed, whole
from eqsat.operator_table import frozen, said
from eqsat.support import (
    MISFITS,
    BackendError,
    EqsatError,
    TraceError,
    TraceValueError,
)
from eqsat.trace import Spec, is_immutable, to_mlx, to_numpy, trace

FAMILIES = (arrange, elementwise, indexing, learned, random_bits, reductions)
"""The files of the table."""
Values = dict[str, Any]


class NoProgramError(EqsatError):
    """A graph cannot be run in parts, so MLX runs the function."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(reason)
        self.op = op


@dataclass(eq=False)
class PrimitiveStep:
    """Primitives that run together, in a program of eqsat or in MLX."""

    in_program: bool
    nodes: list[Primitive] = field(default_factory=list)
    reads: list[ArraySpec] = field(default_factory=list)
    gives: list[ArraySpec] = field(default_factory=list)
    """What later steps or the caller read."""


class GraphPlan:
    """A graph, ready to run. ``known``: arrays of NumPy by name that do not change;
    what depends on them alone is computed now.

    Raises :class:`NoProgramError` where a primitive is in no program, and there is no
    call of MLX for it.
    """

    def __init__(
        self,
        name: str,
        graph: PrimitiveGraph,
        known: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        constants = {n: to_numpy(x) for n, x in graph.constants.items()}
        known = {**known, **{n: frozen(x) for n, x in constants.items()}}
        self.inputs = [i.name for i in graph.inputs if i.name not in known]
        self.outputs = graph.outputs
        nodes = _not_known(graph.primitives, known)
        self.reasons = _unsupported(nodes, known)
        for node, reason in self.reasons.items():
            if not in_mlx.can_run(node):
                raise NoProgramError(node.op, reason)
        self._fixed = {
            o.name: frozen(whole(known[o.name], o.shape))
            for o in graph.outputs
            if o.name in known
        }
        self._steps: list[StepProgram | StepInMLX] = [
            (
                StepProgram(name, s, known, options)
                if s.in_program
                else StepInMLX(s, known)
            )
            for s in _steps(nodes, self.reasons, graph.outputs, known)
        ]
        self.programs = [s for s in self._steps if isinstance(s, StepProgram)]

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs, as arrays of MLX. Raises :class:`NoProgramError` where a
        program cannot be made."""
        values = {**self._fixed, **dict(zip(self.inputs, arrays, strict=True))}
        for step in self._steps:
            step(values)
        return [_as_mlx(values[o.name]) for o in self.outputs]

    def explanations(self) -> list[Explanation]:
        """What the search did for each program that was called."""
        made = (p.lowered for p in self.programs)
        return [low.explain() for low in made if low is not None]


def _as_mlx(x: Any) -> Any:
    """A value as an array of MLX; of a constant a new one, which may be written to."""
    return to_mlx(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _not_known(nodes: Sequence[Primitive], known: Values) -> list[Primitive]:
    """Primitives that depend on inputs. The results of the others are added to what is
    known."""
    left = []
    for node in nodes:
        if not all(i.name in known for i in node.inputs):
            left.append(node)
            continue
        try:
            found = computed(node, known)
        except Exception:
            if not in_mlx.can_run(node):
                left.append(node)
                continue
            given = [to_mlx(whole(known[i.name], i.shape)) for i in node.inputs]
            found = tuple(map(to_numpy, in_mlx.run(node, given)))
        names = (o.name for o in node.outputs)
        known.update(zip(names, map(np.asarray, found), strict=True))
    return left


def _unsupported(nodes: Sequence[Primitive], known: Values) -> dict[Primitive, str]:
    """Primitives that no program can compute, and why."""
    reasons: dict[Primitive, str] = {}
    specs = {i.name: i for n in nodes for i in (*n.inputs, *n.outputs)}
    stand_ins = [i for i in specs.values() if i.name not in known]

    def attempt(*given: Any) -> None:
        names = (i.name for i in stand_ins)
        values = {**known, **dict(zip(names, given, strict=True))}
        for node in nodes:
            try:
                found = computed(node, values)
            except Exception as error:  # whatever NumPy or eqsat says against it
                reasons[node] = said(error)
                continue
            names = (o.name for o in node.outputs)
            values.update(zip(names, found, strict=True))

    trace(attempt, [Spec(i.shape, i.dtype) for i in stand_ins])
    return reasons


def _steps(
    nodes: Sequence[Primitive],
    reasons: Mapping[Primitive, str],
    outputs: Sequence[ArraySpec],
    known: Values,
) -> list[PrimitiveStep]:
    """Steps in order. Their places are even for programs, odd for MLX."""
    places: dict[str, int] = {}
    placed: dict[int, PrimitiveStep] = {}
    for node in nodes:
        in_program = node not in reasons
        before = (places.get(i.name, -1) for i in node.inputs)
        place = max((p + (p % 2 == in_program) for p in before), default=-1)
        place = max(place, 0 if in_program else -1)
        places.update({o.name: place for o in node.outputs})
        placed.setdefault(place, PrimitiveStep(in_program)).nodes.append(node)
    steps = [placed[p] for p in sorted(placed)]
    wanted = {o.name for o in outputs}
    for step in reversed(steps):
        made = {o.name: o for n in step.nodes for o in n.outputs}
        read = {i.name: i for n in step.nodes for i in n.inputs}
        step.gives = [o for o in made.values() if o.name in wanted]
        step.reads = [i for i in read.values() if i.name not in {**made, **known}]
        wanted.update(i.name for i in step.reads)
    return steps


class StepInMLX:
    """A step that MLX runs."""

    def __init__(self, step: PrimitiveStep, known: Mapping[str, Any]) -> None:
        self.step = step
        read = {i.name: i for n in step.nodes for i in n.inputs}
        self._constants = {
            n: to_mlx(whole(known[n], i.shape)) for n, i in read.items() if n in known
        }

    def __call__(self, values: Values) -> None:
        there = {**values, **self._constants}
        for node in self.step.nodes:
            found = in_mlx.run(node, [_as_mlx(there[i.name]) for i in node.inputs])
            there.update(zip((o.name for o in node.outputs), found, strict=True))
        values.update({o.name: there[o.name] for o in self.step.gives})


class StepProgram:
    """A step that eqsat runs."""

    def __init__(
        self,
        name: str,
        step: PrimitiveStep,
        known: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.step = step
        read = {i.name for n in step.nodes for i in n.inputs} & set(known)
        constants = {n: _unchangeable(known[n]) for n in read}

        def mlx_function(*given: Any) -> Any:
            names = (i.name for i in step.reads)
            values = {**constants, **dict(zip(names, given, strict=True))}
            for node in step.nodes:
                found = computed(node, values)
                values.update(zip((o.name for o in node.outputs), found, strict=True))
            return tuple(whole(values[o.name], o.shape) for o in step.gives)

        mlx_function.__name__ = name
        self.function: Jit = jit(mlx_function, **options)
        self.lowered: Lowered | None = None
        """Its program, once it was called."""
        self._shows = False
        """Whether the program is given arrays of NumPy, as it gives them."""

    def __call__(self, values: Values) -> None:
        given = [values[i.name] for i in self.step.reads]
        if self.lowered is None:
            try:
                self.lowered = self.function.lower(*given)
            except (BackendError, TraceError, TraceValueError, *MISFITS) as error:
                # each primitive could be traced alone, and not with what is known here
                raise NoProgramError("the whole function", said(error)) from None
        if self._shows:
            given = [*map(to_numpy, given)]
        found = self.function(*given)
        self._shows = isinstance(found[0], np.ndarray)
        values.update(zip((o.name for o in self.step.gives), found, strict=True))


def _unchangeable(x: Any) -> Any:
    return x if is_immutable(x) else frozen(x)
