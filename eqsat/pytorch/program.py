"""A graph of ATen operators as a function of tensors."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from eqsat.explain import Explanation
from eqsat.jit import Jit, jit
from eqsat.lowered import Lowered
from eqsat.numpy_api import tensor_memory, tensor_of
from eqsat.operator_table import frozen, said
from eqsat.pytorch.graph_nodes import (
    Values,
    computed,
    constants_of,
    is_number,
    is_plain,
    is_seen_through,
    is_symbolic,
    name_of,
    value_of,
)
from eqsat.pytorch.plan import (
    Step,
    TorchFallback,
    fallbacks_of,
    root_of,
    steps_of,
)
from eqsat.pytorch.report import TorchReport, note
from eqsat.pytorch.table import OF_MEMORY
from eqsat.support import (
    MISFITS,
    EqsatError,
    ForkLock,
    TraceError,
    TraceValueError,
)

_MOST_SIZES = 64
"""Programs of one graph for other sizes that are kept; the latest ones."""


class ResultLayout(NamedTuple):
    """How a result lies in memory."""

    order: tuple[int, ...] | None
    """Axes from the outermost to the innermost; None where that is their order."""
    strides: tuple[int, ...] | None
    """Strides in elements, where no order of axes without gaps has them."""

    @classmethod
    def of(cls, like: Any) -> ResultLayout:
        """That of a tensor."""
        shape, strides = tuple(like.shape), tuple(like.stride())
        if like.is_contiguous() or 0 in shape:
            return cls(None, None)
        order = sorted(range(len(shape)), key=lambda a: (-strides[a], a))
        step = 1
        for a in reversed(order):
            if shape[a] > 1 and strides[a] != step:
                return cls(None, strides)
            step *= shape[a]
        return cls(tuple(order), None)

    def laid(self, x: Any) -> Any:
        """What a program returns for a result."""
        return x if self.order is None else np.transpose(x, self.order)

    def seen(self, x: Any) -> Any:
        """The tensor of what it returned."""
        if self.order is not None:
            return x.permute(tuple(np.argsort(self.order).tolist()))
        if self.strides is None:
            return x
        return x.new_empty(0).new_empty_strided(x.shape, self.strides).copy_(x)


class ProgramStep:
    """A step that eqsat runs."""

    def __init__(
        self, step: Step, known: Mapping[Node, Any], options: Mapping[str, Any]
    ) -> None:
        self.step = step
        self.layouts = [ResultLayout.of(value_of(n)) for n in step.gives]
        self.function: Jit = jit(self._traced(known), **options)
        self.lowered: Lowered | None = None
        """Its program, once it was called."""
        self.fallbacks: list[TorchFallback] | None = None
        """Its operators, where there is no program and PyTorch runs them."""

    def _traced(self, known: Mapping[Node, Any]) -> Callable[..., Any]:
        step, layouts = self.step, self.layouts

        def torch_graph(*given: Any) -> Any:
            values: Values = {**known, **dict(zip(step.reads, given, strict=True))}

            def value(node: Node) -> Any:
                if is_number(node):
                    return value_of(node)
                if node not in values:
                    values[node] = computed(node, value)
                return values[node]

            for node in step.nodes:
                value(node)
            return tuple(
                layout.laid(value(n))
                for n, layout in zip(step.gives, layouts, strict=True)
            )

        return torch_graph

    def __call__(self, values: Values) -> None:
        if self.fallbacks is not None:
            return _run_in_torch(self.step, values)
        given = [_shown(values[n]) for n in self.step.reads]
        if self.lowered is None:
            try:
                self.lowered = self.function.lower(*given)
            except (TraceError, TraceValueError, *MISFITS) as error:
                # each operator could be traced alone, and not with what is known here
                reasons = dict.fromkeys(self.step.nodes, said(error))
                self.fallbacks = fallbacks_of(reasons)
                note(self.fallbacks)
                return _run_in_torch(self.step, values)
        results = self.function(*given)
        for node, x, layout in zip(self.step.gives, results, self.layouts, strict=True):
            values[node] = layout.seen(tensor_of(np.asarray(x, order="C")))


def _shown(x: Any) -> Any:
    if x.requires_grad:
        x = x.detach()
    return tensor_memory(x.resolve_conj().resolve_neg())


class ConcretePlan:
    """A graph whose sizes are known, ready to run."""

    def __init__(
        self,
        module: GraphModule,
        known: Mapping[Node, Any],
        options: Mapping[str, Any],
    ) -> None:
        nodes = list(module.graph.nodes)
        self.inputs = [n for n in nodes if n.op == "placeholder" and n not in known]
        self.attributes = dict(constants_of(module, nodes))
        known = {
            **known,
            **{n: constant_of(x) for n, x in self.attributes.items() if is_plain(x)},
        }
        steps, reasons = steps_of(module, known)
        self.steps = [
            ProgramStep(s, known, options) if s.in_program else s for s in steps
        ]
        self.outputs = nodes[-1].args[0]
        plain = isinstance(self.outputs, (tuple, list))
        plain = plain and all(
            n is None
            or (isinstance(n, Node) and not is_number(n) and not is_seen_through(n))
            for n in self.outputs
        )
        self._plain_outputs = [*self.outputs] if plain else None
        """The results, where none is a number or a view."""
        outside = {n for s in steps if not s.in_program for n in s.reads}
        outside.update(map(root_of, nodes[-1].all_input_nodes))
        for node in outside & set(known) - set(self.attributes):
            self.attributes[node] = tensor_of(known[node])
        self.fallbacks = fallbacks_of(reasons)
        given_out = set(map(root_of, nodes[-1].all_input_nodes))
        self._lent = [n for n in self.attributes if n in given_out and n in known]
        """Constants that are results, of which the caller has copies."""
        self._ends = self._last_uses(steps)

    def _last_uses(self, steps: Sequence[Step]) -> list[list[Node]]:
        """What is dropped after each step."""
        kept: set[Node] = set()
        torch.fx.node.map_arg(self.outputs, lambda n: kept.add(root_of(n)))
        last: dict[Node, int] = {}
        for i, step in enumerate(steps):
            for node in (*step.gives, *step.reads):
                last[root_of(node)] = i
        ends: list[list[Node]] = [[] for _ in steps]
        for node, i in last.items():
            if node not in kept:
                ends[i].append(node)
        return ends

    def __call__(self, given: list[Any]) -> Any:
        values: Values = dict(zip(self.inputs, given, strict=True))
        values.update(self.attributes)
        given.clear()
        for step, ends in zip(self.steps, self._ends, strict=True):
            if isinstance(step, ProgramStep):
                step(values)
            else:
                _run_in_torch(step, values)
            for node in ends:
                values.pop(node, None)
        for node in self._lent:
            values[node] = values[node].clone()
        if self._plain_outputs is not None:
            outputs = self._plain_outputs
            return tuple([None if n is None else values[n] for n in outputs])
        return torch.fx.node.map_arg(
            self.outputs, functools.partial(_tensor, values=values, seen={})
        )


class TorchPlan:
    """A graph that PyTorch runs."""

    steps = ()

    def __init__(
        self, module: GraphModule, error: Exception, known: Mapping[str, Any]
    ) -> None:
        self.module, self.known = module, known
        self.fallbacks = [TorchFallback("the whole graph", said(error))]

    def __call__(self, given: list[Any]) -> Any:
        others = iter(given)
        args = [
            tensor_of(self.known[n.name]).clone()
            if n.name in self.known
            else next(others)
            for n in self.module.graph.nodes
            if n.op == "placeholder"
        ]
        given.clear()
        with torch.no_grad():
            return self.module(*args)


def constant_of(x: Any) -> Any:
    """The values of a tensor as they are now, in an array that nobody can write to."""
    return frozen(_shown(x))


def _tensor(node: Node, values: Values, seen: Values) -> Any:
    """The tensor of a node; views are made when they are read, and kept in ``seen``."""
    if is_number(node):
        return value_of(node)
    if node in values or not is_seen_through(node):
        return values[node]
    if node not in seen:
        seen[node] = _called(node, values, seen)
    return seen[node]


def _called(node: Node, values: Values, seen: Values) -> Any:
    tensor = functools.partial(_tensor, values=values, seen=seen)
    args, named = torch.fx.node.map_arg((node.args, node.kwargs), tensor)
    assert callable(node.target)
    return node.target(*args, **named)


def _run_in_torch(step: Step, values: Values) -> None:
    given = set(step.gives)
    with torch.no_grad():
        for node in step.nodes:
            values[node] = _called(node, values, {})
    for node in step.nodes:
        if node not in given:
            del values[node]


class TorchProgram:
    """A graph of ATen operators, as a function of a list of tensors and sizes, which
    is emptied.

    Programs are made for the sizes of each call, and for the default dtype of PyTorch
    then. ``known``: what placeholders of the graph are that are constants.
    """

    def __init__(
        self,
        module: GraphModule,
        options: Mapping[str, Any],
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.options = options
        self.known = {} if known is None else known
        self.is_symbolic = is_symbolic(module.graph)
        self._reads_memory = any(name_of(n) in OF_MEMORY for n in module.graph.nodes)
        self._default = torch.get_default_dtype()
        self._plans: OrderedDict[Any, ConcretePlan | TorchPlan] = OrderedDict()
        self._lock = ForkLock()
        for node in module.graph.nodes:
            value = value_of(node)
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise EqsatError(
                    f"node {node.name!r} of the graph is on the device {value.device}, "
                    "expected cpu\n  eqsat computes on the CPU: model.cpu()"
                )

    def __call__(self, given: list[Any]) -> Any:
        varies = self.is_symbolic or self._reads_memory
        sizes = tuple(map(_size_of, given)) if varies else None
        key: Any = (sizes, torch.get_default_dtype())
        if self._reads_memory:
            key = *key, tuple(x.storage_offset() for x in given if is_plain(x))
        plan = self._plans.get(key)
        if plan is None:
            with self._lock():
                plan = self._plans.get(key) or self._planned(key, given)
        return plan(given)

    def _planned(self, key: Any, given: Sequence[Any]) -> Any:
        module = self.module
        is_other = torch.get_default_dtype() != self._default
        if self.is_symbolic or self._reads_memory or is_other:
            module = GraphModule(module, _copied(module))
            fake = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
            inputs = self._all_inputs(given, fake)
            try:
                FakeTensorProp(module, fake).propagate_dont_convert_inputs(*inputs)
            except Exception as error:  # sizes that depend on values, beside others
                return self._kept(key, TorchPlan(self.module, error, self.known))
        nodes = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
        known = {nodes[k]: x for k, x in self.known.items()}
        plan = ConcretePlan(module, known, self.options)
        return self._kept(key, plan)

    def _kept(self, key: Any, plan: ConcretePlan | TorchPlan) -> Any:
        note(plan.fallbacks)
        if len(self._plans) >= _MOST_SIZES:
            self._plans.popitem(last=False)
        self._plans[key] = plan
        return plan

    def _all_inputs(self, given: Sequence[Any], fake: FakeTensorMode) -> list[Any]:
        """What the placeholders of the graph are in a call, without data."""
        others = iter(given)
        found = []
        for node in self.module.graph.nodes:
            if node.op != "placeholder":
                continue
            like = value_of(node) if node.name in self.known else next(others)
            if isinstance(like, torch.Tensor):
                shape, strides, start = like.shape, like.stride(), like.storage_offset()
                last = sum(
                    (n - 1) * step for n, step in zip(shape, strides, strict=True)
                )
                with fake:
                    like = torch.empty(max(start + last + 1, 0), dtype=like.dtype)
                    like = like.as_strided(shape, strides, start)
            found.append(like)
        return found

    def explanations(self) -> list[Explanation]:
        """What the search did for each program made so far."""
        made = [s for p in self._plans.values() for s in p.steps]
        steps = [s.lowered for s in made if isinstance(s, ProgramStep)]
        return [low.explain() for low in steps if low is not None]

    def report(self) -> TorchReport:
        """What runs where, of the plans made so far."""
        fallbacks: list[TorchFallback] = []
        programs = operators = 0
        for plan in self._plans.values():
            fallbacks += plan.fallbacks
            for step in plan.steps:
                if not isinstance(step, ProgramStep):
                    continue
                if step.fallbacks is None:
                    programs += 1
                    operators += len(step.step.nodes)
                else:
                    fallbacks += step.fallbacks
        return TorchReport(programs, operators, tuple(fallbacks))


def _copied(module: GraphModule) -> torch.fx.Graph:
    made = torch.fx.Graph()
    made.output(made.graph_copy(module.graph, {}))
    return made


def _size_of(x: Any) -> Any:
    return (tuple(x.shape), x.stride()) if isinstance(x, torch.Tensor) else x
