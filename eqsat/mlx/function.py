"""Functions of MLX that run in programs of eqsat."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from eqsat.explain import Explanation
from eqsat.jit import jit
from eqsat.kernels import backend_named
from eqsat.mlx.modules import ModuleState, WeightSlot, modules_of
from eqsat.mlx.plan import GraphPlan, NoProgramError
from eqsat.mlx.primitive_graph import PrimitiveGraph, read
from eqsat.mlx.report import MLXReport, grouped, log
from eqsat.operator_table import frozen, said
from eqsat.support import (
    DTypeError,
    EqsatError,
    ForkLock,
    TraceError,
    at,
    caller_line,
    pytree,
    refuse_unknown,
)
from eqsat.terms import Traced
from eqsat.trace import to_mlx, to_numpy

PARAMETERS = ("backend", "options", "rules")
"""Parameters of ``eqsat.jit`` that may be given."""
_MOST_SIGNATURES = 64
"""Signatures of one function that are kept; the latest ones."""


def convert(fn: Any, args: Sequence[Any], options: Mapping[str, Any]) -> MLXFunction:
    """What :func:`eqsat.from_mlx` gives."""
    if not callable(fn):
        raise EqsatError(
            f"eq.from_mlx: expected a function or an mlx.nn.Module, got "
            f"{type(fn).__name__}"
        )
    more = "\n  arguments of the function by name are given to what it returns"
    refuse_unknown(options, PARAMETERS, "eq.from_mlx: ", more)
    made = MLXFunction(fn, options)
    if args:
        made(*args)
    return made


class Conversion(NamedTuple):
    """A function for one signature."""

    plan: GraphPlan
    structure: pytree.Structure
    """Of its result."""
    results: int
    """How many arrays that has; new values of slots follow."""
    reads: tuple[WeightSlot, ...]
    """Slots whose arrays are arguments."""
    writes: tuple[WeightSlot, ...]
    """Slots that hold other arrays after a call."""
    draws: int
    """How often MLX's random numbers are drawn from; their state is the last input
    where they are."""

    @property
    def stayed(self) -> list[tuple[str, str]]:
        """Primitives that MLX runs, and why."""
        return [(n.op, why) for n, why in self.plan.reasons.items()]


class InMLX(NamedTuple):
    """A function that MLX runs, for one signature, and why."""

    op: str
    reason: str

    @property
    def stayed(self) -> list[tuple[str, str]]:
        """What MLX runs, and why."""
        return [(self.op, self.reason)]


class MLXFunction:
    """What :func:`eqsat.from_mlx` makes: call it as the function of MLX."""

    def __init__(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.fn = fn
        """The function of MLX."""
        self.name = str(getattr(fn, "__name__", type(fn).__name__))
        self._options = options
        jit(_is_array, **options)  # raises for options that are none
        self._modules = modules_of(fn)
        self._state = ModuleState(self._modules)
        self._moving: set[str] = set()
        """Paths of slots whose arrays are arguments: others stood there before."""
        self._weights: dict[str, Any] = {}
        """Copies of the arrays that are constants, by their paths."""
        self._made: dict[Any, Conversion | InMLX] = {}
        self._lock = ForkLock()

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The function's result, for arrays of MLX or NumPy."""
        leaves, structure = pytree.flatten((args, named), _is_array, self.name)
        if any(isinstance(leaf.value, Traced) for leaf in leaves):
            raise TraceError(
                f"{self.name} of eq.from_mlx cannot be called in a traced function\n"
                f"  call it outside, or convert what calls it{at(caller_line())}"
            )
        arrays = [_as_mlx(leaf.value) for leaf in leaves]
        if _is_transformed():
            args, named = pytree.unflatten(structure, arrays)
            return self.fn(*args, **named)
        self._look_at_modules()
        key = structure, tuple((*a.shape, str(a.dtype)) for a in arrays)
        made = self._made.get(key)
        if made is None:
            with self._lock():
                made = self._made.get(key) or self._converted(structure, arrays)
        if isinstance(made, Conversion):
            try:
                found = self._run(made, arrays)
                self._keep(key, made)
                return found
            except NoProgramError as error:
                made = InMLX(error.op, str(error))
        args, named = pytree.unflatten(structure, arrays)
        found = self.fn(*args, **named)
        self._keep(key, made)
        return found

    def report(self) -> MLXReport:
        """What runs where, for the signatures that it was called with."""
        all_made = list(self._made.values())
        plans = (m.plan for m in all_made if isinstance(m, Conversion))
        steps = [p.step for plan in plans for p in plan.programs]
        stayed = grouped(s for m in all_made for s in m.stayed)
        return MLXReport(len(steps), sum(len(s.nodes) for s in steps), stayed)

    def explain(self) -> list[Explanation]:
        """What the search did for each of its programs."""
        made = (m for m in self._made.values() if isinstance(m, Conversion))
        return [e for m in made for e in m.plan.explanations()]

    # -- modules -----------------------------------------------------------------------

    def _look_at_modules(self) -> None:
        """Forget programs whose constants stand in their modules no longer."""
        if not self._modules:
            return
        moved = self._state.moved()
        if moved is not None and not moved:
            return
        self._state = ModuleState(self._modules)
        if moved is None or not moved <= self._moving:
            self._moving |= moved or set()
            self._weights.clear()
            kept = InMLX if moved is not None else ()
            self._made = {k: m for k, m in self._made.items() if isinstance(m, kept)}

    def _run(self, made: Conversion, arrays: Sequence[Any]) -> Any:
        given = [*arrays, *(slot.array for slot in made.reads)]
        if made.draws:
            given.append(_random_state())
        found = made.plan(given)
        for _ in range(made.draws):  # nobody reads these, so nobody computes them
            mx.random.uniform()
        for slot, array in zip(made.writes, found[made.results :], strict=True):
            slot.put(array)
        if made.writes:
            self._state = ModuleState(self._modules)
        return pytree.unflatten(made.structure, found[: made.results])

    def _keep(self, key: Any, made: Conversion | InMLX) -> None:
        if self._made.get(key) is made:
            return
        log(grouped(made.stayed))
        self._made[key] = made
        if len(self._made) > _MOST_SIGNATURES:
            del self._made[next(iter(self._made))]

    # -- conversion --------------------------------------------------------------------

    def _converted(
        self, structure: pytree.Structure, arrays: Sequence[Any]
    ) -> Conversion | InMLX:
        """The function for one signature. What hinders it is a reason for MLX to run
        it: it then raises what it raises."""
        _refuse_modules(structure, self.name)
        for static in pytree.statics(structure, self.name):
            if not isinstance(static.value, _PLAIN):
                kind = type(static.value).__name__
                reason = f"an argument is {kind}, no array and no plain value"
                return InMLX("the whole function", reason)
        if _is_transformed() is None:
            reason = "this MLX does not tell whether mx.grad or its like is going on"
            return InMLX("the whole function", reason)
        try:
            graph, result = self._exported(structure, arrays)
            return self._planned(graph, result, len(arrays))
        except NoProgramError as error:
            return InMLX(error.op, str(error))
        except Exception as error:
            return InMLX("the whole function", said(error))

    def _exported(
        self, structure: pytree.Structure, arrays: Sequence[Any]
    ) -> tuple[PrimitiveGraph, pytree.Structure]:
        """The graph of the function, and the structure of its result. Arrays of modules
        are its last inputs and outputs, and then the state of random numbers."""
        state = self._state
        mx.eval(state.arrays)
        found: list[pytree.Structure] = []
        before = _number_of(_random_state())

        def flat(*given: Any) -> Any:
            for slot, array in zip(state.slots, given[len(arrays) :], strict=True):
                slot.put(array)
            args, named = pytree.unflatten(structure, given[: len(arrays)])
            result = self.fn(*args, **named)
            leaves, tree = pytree.flatten(result, _is_mlx, "the result")
            found.append(tree)
            if state.has_new_names():
                raise EqsatError("it adds to what its modules hold")
            after = (slot.array for slot in state.slots)
            return (*(leaf.value for leaf in leaves), *after, _random_state())

        try:
            mx.random.seed(_MARK)
            graph = read(flat, [*arrays, *state.arrays])
        finally:
            state.restore()
            mx.random.seed(before)
        return graph, found[-1]

    def _planned(
        self, graph: PrimitiveGraph, structure: pytree.Structure, count: int
    ) -> Conversion:
        slots, arrays = self._state.slots, self._state.arrays
        inputs = graph.inputs[count:]
        *outputs, after = graph.outputs
        start = len(outputs) - len(slots)
        rows = list(zip(slots, arrays, inputs, outputs[start:], strict=True))
        writes = [(s, o) for s, _, i, o in rows if o.name != i.name]
        if any(o.name != i.name and o[1:] != i[1:] for _, _, i, o in rows):
            raise NoProgramError(
                "the whole function", "an array of a module changes its shape or dtype"
            )
        written = {s.path for s, _ in writes}
        if not written <= self._moving:  # others have them as constants
            self._moving |= written
            self._made.clear()
        reads = [(s, i) for s, _, i, _ in rows if s.path in self._moving]
        known = {}
        for slot, array, spec, _ in rows:
            if slot.path not in self._moving:
                if slot.path not in self._weights:
                    self._weights[slot.path] = frozen(to_numpy(array))
                known[spec.name] = self._weights[slot.path]
        mark, draws = _draws(graph, after.name)
        graph.inputs = (*graph.inputs[:count], *(i for _, i in reads))
        if draws:
            key = next(o for o in _all_specs(graph) if o.name == mark)
            graph.inputs = (*graph.inputs, key)
            del graph.constants[mark]
        graph.outputs = (*outputs[:start], *(o for _, o in writes))
        return Conversion(
            GraphPlan(self.name, graph, known, self._options),
            structure,
            start,
            tuple(s for s, _ in reads),
            tuple(s for s, _ in writes),
            draws,
        )


def _is_transformed() -> bool | None:
    """Whether a transformation of MLX is going on, None where nobody can tell. It sees
    what an exported graph tells nothing of: where gradients stop."""
    backend: Any = backend_named("mlx")
    found: bool | None = backend.is_transforming()
    return found


# -- random numbers --------------------------------------------------------------------

_MARK = secrets.randbits(63)
"""The state of random numbers while functions are converted: no other constant of a
function is equal to it."""


def _random_state() -> Any:
    state: Any = mx.random.state
    return state[0]


def _number_of(key: Any) -> int:
    """The seed whose state is ``key``."""
    high, low = (int(n) for n in key.tolist())
    return high << 32 | low


def _draws(graph: PrimitiveGraph, after: str) -> tuple[str, int]:
    """The name of the state of random numbers before, and how often it was drawn from
    until it was ``after``: it is split each time. Raises :class:`NoProgramError` where
    the function sets it."""
    makers = {o.name: n for n in graph.primitives for o in n.outputs}
    name, count = after, 0
    while name in makers:
        node = makers[name]
        count += node.op == "RandomBits"
        name = node.inputs[0].name
    key = graph.constants.get(name)
    if key is None or key.shape != (2,) or _number_of(key) != _MARK:
        raise NoProgramError("random.seed", "it sets the state of random numbers")
    return name, count


def _all_specs(graph: PrimitiveGraph) -> Any:
    return (i for n in graph.primitives for i in n.inputs)


# -- arrays ----------------------------------------------------------------------------


_PLAIN = (bool, int, float, complex, str, bytes, type(None), Enum, mx.Dtype)
"""Arguments that are no arrays, and in which nothing can change."""


def _refuse_modules(structure: pytree.Structure, name: str) -> None:
    if not isinstance(structure, pytree.TreeNode):
        return
    if issubclass(structure.type, nn.Module):
        raise EqsatError(
            f"an argument of {name} is {structure.type.__name__}, a module of MLX\n"
            f"  convert a function that names it: lambda x: {name}(module, x)"
        )
    for child in structure.children:
        _refuse_modules(child, name)


def _is_mlx(x: Any) -> bool:
    return isinstance(x, mx.array)


def _is_array(x: Any) -> bool:
    return isinstance(x, (mx.array, np.ndarray, np.generic, Traced))


def _as_mlx(x: Any) -> Any:
    """An array as MLX takes it: ``mx.array`` makes float32 of float64."""
    if isinstance(x, mx.array):
        return x
    array = np.asarray(x)
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    name = "bool_" if array.dtype == bool else array.dtype.name
    if not isinstance(getattr(mx, name, None), mx.Dtype):
        raise DTypeError(f"an argument has dtype {array.dtype}, which MLX has not")
    return to_mlx(array)
