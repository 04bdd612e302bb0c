"""A graph as programs: segments that are jitted, and nodes between them that NumPy
computes, because their results depend on values or no program holds their types.

Which nodes these are is found by tracing: a node that cannot be traced goes to the
host, and a value that must be known while tracing is computed in an earlier segment.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx

from eqsat.jit import Jit, in_force
from eqsat.onnx.nodes import ModelGraph, Node
from eqsat.onnx.operators import Repeated, UnknownValueError
from eqsat.onnx.run import Values, computed, execute, inline, unheard, within
from eqsat.operator_table import frozen
from eqsat.program_store import keep_trace, recall_trace
from eqsat.support import (
    DTypeError,
    ForkLock,
    OnnxBoundsError,
    OnnxError,
    TraceError,
    at,
    caller_line,
    disk_cache,
    unwatched,
)
from eqsat.terms import Traced, dtype_code

if TYPE_CHECKING:
    from eqsat.lowered import Lowered

CONSTANT, GIVEN = -2, -1
"""Stages of what depends on constants alone, and of inputs; segments have even
numbers, the host has odd ones."""
_FEW = 64
"""Integers of shapes that are known where they were computed are passed on as
numbers."""
_MOST_KEPT = 256
"""Segments for different known values that are kept."""
_REPEATED = frozenset({"Loop", "Scan"})
"""Operators whose graphs see other values in each step."""
_SIZES = frozenset("Shape Size".split())
Compile = Callable[[Callable[..., Any]], Jit]
Run = Callable[[Values], list[Any]]
"""Inputs, and what a graph reads around it, to outputs."""
Called = list[tuple[Jit, list[Any]]]
"""Programs that ran, and what they were given."""


@dataclass(eq=False)
class Stage:
    """Nodes that run together: in one program, or on the host."""

    place: int
    nodes: list[Node]
    reads: list[str]
    writes: list[str]

    @property
    def on_host(self) -> bool:
        """Whether NumPy runs it."""
        return self.place % 2 == 1


class AgainError(Exception):
    """Tracing has found that a node or a value belongs elsewhere."""


class OtherPlanError(Exception):
    """The same, where other calls are served as it was: these want another plan, with
    these nodes on the host and these values demanded."""

    def __init__(self, on_host: dict[Node, str], demanded: set[str]) -> None:
        super().__init__()
        self.on_host, self.demanded = on_host, demanded


class Plan:
    """A graph with what is known of it, as a function of its inputs."""

    def __init__(
        self,
        graph: ModelGraph,
        compile: Compile,
        content: bytes | None,
        is_body: bool,
        body: Callable[[ModelGraph], Run],
    ) -> None:
        """``content`` tells the graph and its constants from all others, in every
        process; None where nothing does. ``is_body``: of a node on the host, which may
        run again and again with sequences that grow. ``body`` makes what runs those of
        its own nodes."""
        self.graph = graph
        self._make_body = body
        self.is_body = is_body
        self.compile = compile
        self.content = content
        self.on_host: dict[Node, str] = {
            n: "its results depend on values"
            for n in graph.nodes
            if n.entry is not None and n.entry.on_host
        }
        """Nodes that NumPy computes, and why."""
        self.demanded: set[str] = set()
        """Values that must be known while what reads them is traced."""
        self.has_traced = False
        """Whether a program was made for new shapes; who has seen it takes it back."""
        self._lock = ForkLock()
        self._has_served = False
        """Whether a call had results: what runs where does not change any more."""
        self._stages: list[Stage] | None = None
        self._jitted: OrderedDict[Any, Jit] = OrderedDict()
        self._inner: dict[int, Run] = {}
        self._repeated = Repeated(compile, graph.constants.values())
        self._sizes = _of_sizes(graph)

    def __call__(self, values: Values, called: Called | None = None) -> list[Any]:
        """The outputs, given inputs and what the graph reads around it. ``called``:
        where the programs that run are put."""
        if any(map(_is_traced, values.values())):
            return self._within_a_trace({**self.graph.constants, **values})
        if not self._has_served:
            with self._lock():
                if not self._has_served:
                    return self._first(values, called)
        return self._outputs(values, called)

    def _first(self, values: Values, called: Called | None) -> list[Any]:
        """The first outputs, by which the plan is made."""
        before = dict(self.on_host), set(self.demanded)
        try:
            while True:
                try:
                    found = self._outputs(values, called)
                except AgainError:
                    self._begin_again()
                    if called is not None:
                        called.clear()
                else:
                    self._has_served = True
                    return found
        except BaseException:  # a call without results decides nothing for others
            self.on_host, self.demanded = before
            self._begin_again()
            raise

    def _begin_again(self) -> None:
        self._stages = None
        self._jitted.clear()

    def _outputs(self, values: Values, called: Called | None) -> list[Any]:
        constants, there = self.graph.constants, dict(values)
        for stage in self.stages:
            with _of_bounds():
                self._run(stage, there, called)
        return [
            there[n] if n in there else constants[n].copy() for n in self.graph.outputs
        ]

    def _within_a_trace(self, values: Values) -> list[Any]:
        """The outputs for traced values: all nodes become part of what is traced."""
        try:
            execute(self.graph.nodes, values, inline)
        except UnknownValueError as error:
            raise TraceError(
                f"{error.node} needs values, so the model cannot be called in a traced "
                f"function\n  call it outside{at(caller_line())}"
            ) from None
        return [values[n] for n in self.graph.outputs]

    @property
    def stages(self) -> list[Stage]:
        """What runs, in order."""
        if self._stages is None:
            self._stages = self._planned()
        return self._stages

    # -- what runs where ---------------------------------------------------------------

    def _planned(self) -> list[Stage]:
        when: dict[str, int] = dict.fromkeys(self.graph.constants, CONSTANT)
        when.update(dict.fromkeys((*self.graph.inputs, *self.graph.captured), GIVEN))
        placed: dict[int, list[Node]] = {}
        places: dict[Node, int] = {}
        for node in self.graph.nodes:
            place = self._place(node, [(n, when[n]) for n in node.reads])
            when.update(dict.fromkeys(filter(None, node.outputs), place))
            places[node] = place
            placed.setdefault(place, []).append(node)
        constants = placed.pop(CONSTANT, [])
        wanted = set(self.graph.outputs)
        if any(when[n] == CONSTANT for n in wanted) and not placed:
            placed[0] = []
        stages = []
        last = max(placed, default=0)
        for place in sorted(placed, reverse=True):
            own = placed[place]
            nodes = _with_constants(own, constants, wanted if place == last else ())
            made = {n for node in nodes for n in node.outputs if n}
            read = {n for node in nodes for n in node.reads}
            reads = sorted(n for n in read - made if when[n] != CONSTANT)
            stages.append(Stage(place, nodes, reads, sorted(made & wanted)))
            wanted |= set(reads)
        return stages[::-1]

    def _place(self, node: Node, reads: Sequence[tuple[str, int]]) -> int:
        on_host = node in self.on_host
        if not on_host and all(place == CONSTANT for _, place in reads):
            return CONSTANT
        least = 1 if on_host else 0
        for name, place in reads:
            if place < 0:
                continue
            if place % 2:
                after = place if on_host else place + 1
            elif on_host:
                after = place + 1
            else:
                after = place + 2 if name in self.demanded else place
            least = max(least, after)
        return least

    # -- running -----------------------------------------------------------------------

    def _run(self, stage: Stage, there: Values, called: Called | None) -> None:
        if stage.on_host:
            values = {**self.graph.constants, **there}
            execute(stage.nodes, values, self._body, self._repeated)
            there.update({n: values[n] for n in stage.writes})
            return
        for name in stage.reads:
            grows = self.is_body and isinstance(there[name], (list, tuple))
            if grows or not _can_be_traced(there[name]):
                nodes = [n for n in stage.nodes if name in n.reads]
                self._again(dict.fromkeys(nodes, "no program holds an input"))
        fixed = {n: there[n] for n in stage.reads if self._is_fixed(n, there[n])}
        key = stage, tuple((n, _key(v)) for n, v in fixed.items())
        names = [n for n in stage.reads if n not in fixed]
        jitted = self._jitted.get(key)
        if jitted is None:
            jitted = self.compile(self._segment(stage, names, fixed, key))
            self._jitted[key] = jitted
            if len(self._jitted) > _MOST_KEPT:
                self._jitted.popitem(last=False)
        self._jitted.move_to_end(key)
        arrays = [there[n] for n in names]
        if called is not None:
            called.append((jitted, arrays))
        try:
            found = jitted(*arrays)
        except IndexError:
            self._by_numpy(stage, there)
            raise
        there.update(zip(stage.writes, map(_as_arrays, found), strict=True))

    def whole(self, values: Values) -> tuple[Stage, Jit] | None:
        """The program of a call that was one program with all outputs; None where some
        values are part of it."""
        if len(self.stages) != 1:
            return None
        (stage,) = self.stages
        jitted = self._jitted.get((stage, ()))
        if jitted is None or not {*self.graph.outputs} <= {*stage.writes}:
            return None
        if any(self._is_fixed(n, values[n]) for n in stage.reads):
            return None
        return stage, jitted

    def program_of(self, stage: Stage, values: Mapping[str, Any]) -> Lowered | None:
        """The program that ran a stage of inputs alone; None where some of their values
        are part of it."""
        jitted = self._jitted.get((stage, ()))
        if jitted is None:
            return None
        return jitted.lower(*(values[n] for n in stage.reads))

    def _by_numpy(self, stage: Stage, there: Values) -> None:
        """Run a stage of which a program has refused an index. Raises
        :class:`OnnxError` with the node's name and the index as it was given."""
        values = {**self.graph.constants, **there}
        execute(stage.nodes, values, self._body)

    def _segment(
        self,
        stage: Stage,
        names: Sequence[str],
        fixed: Mapping[str, Any],
        key: Any,
    ) -> Callable[..., Any]:
        """The function that is jitted for a stage, and then has this key."""
        fixed = {n: _frozen(v) for n, v in fixed.items()}

        @_unseen
        def segment(*arrays: Any) -> list[Any]:
            self.has_traced = True
            values = {**self.graph.constants, **fixed}
            values.update(zip(names, arrays, strict=True))
            kept, jitted = None, self._jitted.get(key)
            is_kept = self.content is not None and jitted is not None
            if is_kept and in_force(jitted).options.cache:  # type: ignore[arg-type]
                kept = self._kept_as(stage, names, fixed, arrays)
            if kept is not None:
                given = functools.partial(_known_in, stage, dict(values))
                found = recall_trace(kept, arrays, given)
                if found is not None:
                    return found
            with unheard():
                for node in stage.nodes:
                    self._traced(node, values)
            found = [values[n] for n in stage.writes]
            if kept is not None:
                keep_trace(kept, arrays, found, values)
            return found

        segment.__name__ = self.graph.name or "model"
        return segment

    def _kept_as(
        self,
        stage: Stage,
        names: Sequence[str],
        fixed: Mapping[str, Any],
        arrays: Sequence[Any],
    ) -> str | None:
        """Where the trace of a stage is kept; None where it is not."""
        if not all(isinstance(x, Traced) for x in arrays):
            return None
        assert self.content is not None
        numbers = {node: i for i, node in enumerate(self.graph.nodes)}
        types = [(np.dtype(x.dtype).name, tuple(x.shape)) for x in arrays]
        of = [numbers[n] for n in stage.nodes], names, stage.writes, types
        given = [(n, _key(v)) for n, v in fixed.items()]
        parts = repr((of, given, sorted(self.graph.constants), onnx.__version__))
        return disk_cache.key("trace", self.content, parts)

    def _traced(self, node: Node, values: Values) -> None:
        """Compute a node while a segment is traced; or find out that it runs
        elsewhere."""
        try:
            found = computed(node, values, inline)
        except UnknownValueError as error:
            if error.value.size > _FEW:
                self._again({node: "it needs the values of a large array"})
            names = [n for n, v in values.items() if v is error.value]
            made = [n for n in names if n in node.reads][:1] or names[:1]
            if not made and node.op not in _REPEATED:  # computed in the node's graph
                made = [n for n in node.reads if _may_be_a_shape(values[n])]
            wanted = [n for n in made if n not in self.demanded]
            if wanted:
                self._again({}, wanted)
            self._again({node: "it needs a value that it computes itself"})
        except OnnxError as error:
            self._again({node: str(error.__cause__ or error)})
        for name, value in zip(node.outputs, found, strict=False):
            if name and not _can_be_traced(value):
                if any(_is_traced(values[n]) for n in node.reads):
                    self._again({node: "no program holds its type"})
                if name in self._needed_later(node):
                    self._again({node: "no program holds its type"})
            if name:
                values[name] = value

    def _needed_later(self, node: Node) -> set[str]:
        """Names that the stage of a node has to hand on."""
        return {n for s in self.stages if node in s.nodes for n in s.writes}

    def _again(
        self, on_host: Mapping[Node, str], demanded: Iterable[str] = ()
    ) -> NoReturn:
        """Plan anew with more nodes on the host, and with more values demanded."""
        if self._has_served:
            more = {**self.on_host, **on_host}, {*self.demanded, *demanded}
            raise OtherPlanError(*more) from None
        self.on_host.update(on_host)
        self.demanded.update(demanded)
        raise AgainError from None

    def _is_fixed(self, name: str, value: Any) -> bool:
        """Whether a value is part of the program of a segment that reads it."""
        if name in self.demanded:
            return True
        few = isinstance(value, np.ndarray) and value.size <= _FEW
        return few and name in self._sizes

    def _body(
        self, graph: ModelGraph, inputs: Sequence[Any], around: Values
    ) -> list[Any]:
        """The outputs of a graph inside of a node on the host: a plan of its own."""
        inner = self._inner.get(id(graph))
        if inner is None:
            inner = self._inner[id(graph)] = self._make_body(graph)
        return inner(within(graph, inputs, around))


@contextmanager
def _of_bounds() -> Iterator[None]:
    """Inside, an error of a node about an index or an axis is an ``IndexError`` too."""
    try:
        yield
    except OnnxBoundsError:
        raise
    except OnnxError as error:
        cause = error.__cause__
        if not isinstance(cause, IndexError):
            raise
        raise OnnxBoundsError(str(error)) from cause


def _unseen(segment: Callable[..., Any]) -> Callable[..., Any]:
    """``segment`` without the watch over a user's code: it runs none."""

    def unseen(*arrays: Any) -> Any:
        with unwatched():
            return segment(*arrays)

    return unseen


def _known_in(stage: Stage, values: Values, names: set[str]) -> Values:
    """``values`` with those of some names that nodes of a stage make of constants."""
    wanted, needed = names - values.keys(), []
    for node in reversed(stage.nodes):
        if wanted.intersection(node.outputs):
            needed.append(node)
            wanted.update(n for n in node.reads if n not in values)
    execute(needed[::-1], values, inline)
    return values


def _with_constants(
    own: Sequence[Node], constants: Sequence[Node], wanted: Iterable[str]
) -> list[Node]:
    """The nodes of a stage behind those of constants that they need."""
    needed = {n for node in own for n in node.reads} | set(wanted)
    before = []
    for node in reversed(constants):
        if needed & set(node.outputs):
            before.append(node)
            needed.update(node.reads)
    return [*before[::-1], *own]


def _of_sizes(graph: ModelGraph) -> set[str]:
    """Names whose values depend on constants and shapes alone, and not on chance."""
    found = set(graph.constants)
    for node in graph.nodes:
        if node.entry is not None and node.entry.drawn:
            continue
        if node.op in _SIZES or all(n in found for n in node.reads):
            found.update(filter(None, node.outputs))
    return found


def _is_traced(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_traced, value))
    return isinstance(value, Traced)


def _may_be_a_shape(value: Any) -> bool:
    """Whether a traced value is a few integers."""
    few = _is_traced(value) and getattr(value, "size", _FEW + 1) <= _FEW
    return few and np.dtype(value.dtype).kind in "iu"


def _can_be_traced(value: Any) -> bool:
    """Whether a program can hold a value."""
    if value is None or isinstance(value, Traced):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(_can_be_traced, value))
    try:
        dtype_code(value.dtype)
    except (DTypeError, AttributeError):
        return False
    return True


def _as_arrays(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [*map(_as_arrays, value)]
    return value if value is None else np.asarray(value)


def _key(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    return value.dtype.str, value.shape, value.tobytes()


def _frozen(value: Any) -> Any:
    """A copy that nobody can write to."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [*map(_frozen, value)]
    return frozen(value)
