"""Programs that ``torch.export`` has written down, as functions of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec
from torch.utils import _pytree as torch_pytree

from eqsat.explain import Explanation
from eqsat.jit import jit
from eqsat.numpy_api import TORCH, tensor_memory, tensor_of
from eqsat.pytorch.dynamo import PARAMETERS, decompositions
from eqsat.pytorch.program import TorchProgram, constant_of
from eqsat.pytorch.report import TorchReport
from eqsat.support import DTypeError, EqsatError, ForkLock, ShapeError, refuse_unknown

_KEPT = frozenset(
    k for k in OutputKind if k.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")
)
"""Results that are written back to what the model holds."""
_MOST_RIGHT = 256
"""Types and shapes of arguments that are kept as right."""
_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def read(program: Any, options: Mapping[str, Any]) -> ExportedFunction:
    """An exported program as a function. Raises :class:`EqsatError` for others."""
    if not isinstance(program, ExportedProgram):
        raise EqsatError(
            f"eq.from_torch: expected a torch.export.ExportedProgram, got "
            f"{type(program).__name__}\n  torch.export.export(model, args) makes one"
        )
    refuse_unknown(options, PARAMETERS, "eq.from_torch: ")
    values = {k: v for k, v in options.items() if k != "constants"}
    jit(lambda x: x, **values)  # raises for values that are none
    return ExportedFunction(program, options)


def _written_in_place(graph: torch.fx.Graph) -> Iterator[str]:
    """The names of what operators in a graph write to."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for given, taken in zip(
            node.args, getattr(schema, "arguments", ()), strict=False
        ):
            alias = taken.alias_info
            if (
                alias is not None
                and alias.is_write
                and isinstance(given, torch.fx.Node)
            ):
                yield given.name


def _without_views(module: torch.fx.GraphModule) -> None:
    """Write ``reshape`` for ``view``, which PyTorch has made of it: arguments may lie
    in memory in another way than those of the export."""
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    module.recompile()


def _in_order(x: Any, spec: torch_pytree.TreeSpec) -> Any:
    """``x`` with the keys of its dicts in the order of ``spec``."""
    parts = spec.children()
    if type(x) is not spec.type or len(x) != len(parts):
        return x
    if isinstance(x, dict) and set(x) == set(spec.context):
        keyed = zip(spec.context, parts, strict=True)
        return {k: _in_order(x[k], part) for k, part in keyed}
    if type(x) in (list, tuple):
        return type(x)(map(_in_order, x, parts))
    return x


def _start(x: torch.Tensor) -> int:
    """Where the memory of a tensor starts."""
    return int(x.untyped_storage().data_ptr())


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """A program in operators of the table, where PyTorch can write it so, with what it
    chooses by the default dtype."""
    plain = program.run_decompositions(dict(decompositions()))
    _without_views(plain.graph_module)
    return plain


def _stored(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and constants of a program, by name."""
    for spec in program.graph_signature.input_specs:
        if spec.kind in _STORED:
            name = str(spec.target)
            held = program.state_dict
            yield name, held[name] if name in held else program.constants[name]


def _without_values(program: ExportedProgram) -> ExportedProgram:
    """A program to decompose again, without the memory of its parameters and buffers:
    what stands for them is never read or written."""
    made: dict[int, torch.Tensor] = {}

    def empty(x: torch.Tensor) -> torch.Tensor:
        if type(x) not in (torch.Tensor, nn.Parameter) or not x.is_cpu:
            return x
        if x.layout is not torch.strided:
            return x
        if id(x) not in made:
            like = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
            is_parameter = isinstance(x, nn.Parameter)
            made[id(x)] = nn.Parameter(like, x.requires_grad) if is_parameter else like
        return made[id(x)]

    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=program.graph_signature,
        state_dict={name: empty(x) for name, x in program.state_dict.items()},
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        constants=program.constants,
        verifiers=program.verifiers,
    )


class _OfDefault(NamedTuple):
    """An exported program, decomposed with one default dtype."""

    program: TorchProgram
    outputs: Sequence[OutputSpec]


class ExportedFunction:
    """What :func:`eqsat.from_torch` makes: call it as the model was exported."""

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any]) -> None:
        plain = _decomposed(program)
        signature = plain.graph_signature
        self._inputs = signature.input_specs
        self._spec, self._out_spec = plain.call_spec.in_spec, plain.call_spec.out_spec
        self._ranges = plain.range_constraints
        outputs = signature.output_specs
        written = {s.target for s in outputs if s.kind in _KEPT}
        in_place = set(_written_in_place(plain.graph_module.graph))
        written |= {s.target for s in self._inputs if s.arg.name in in_place}
        self.state: dict[str, Any] = {}
        """Buffers and parameters that the program writes to, by name, as tensors."""
        self._known: dict[str, Any] = {}
        """What is constant with every default dtype, by name."""
        for name, value in _stored(plain):
            if name in written:
                self.state[name] = value.detach().clone()
            elif name in program.state_dict or name in program.constants:
                self._known[name] = constant_of(value.detach())
        self._options = options
        self._source = _without_values(program)
        self._programs = {torch.get_default_dtype(): self._made(plain)}
        self._lock = ForkLock()
        nodes = plain.graph_module.graph.nodes
        self._values = {n.name: n.meta.get("val") for n in nodes}
        positional, by_name = self._spec.children()
        leaves = positional.children()
        self._is_flat = not by_name.children() and all(s.is_leaf() for s in leaves)
        takes = [s.kind for s in self._inputs if s.kind not in _STORED]
        gives = {s.kind for s in outputs}
        self._is_pure = not self.state and gives <= {OutputKind.USER_OUTPUT}
        self._is_pure &= takes == [InputKind.USER_INPUT] * len(takes)
        """Whether it does nothing but map arguments to results."""
        self._right: set[Any] = set()
        """Types and shapes of arguments that were found right, where it is pure."""

    def _made(self, plain: ExportedProgram) -> _OfDefault:
        known = {}
        values = dict(_stored(plain))
        for spec in plain.graph_signature.input_specs:
            name = str(spec.target)
            if name in self._known:
                known[spec.arg.name] = self._known[name]
            elif name in values and name not in self.state:
                known[spec.arg.name] = constant_of(values[name].detach())
        program = TorchProgram(plain.graph_module, self._options, known)
        return _OfDefault(program, plain.graph_signature.output_specs)

    def _now(self) -> _OfDefault:
        """What runs with the default dtype of PyTorch as it is."""
        default = torch.get_default_dtype()
        found = self._programs.get(default)
        if found is None:
            with self._lock():
                found = self._programs.get(default)
                if found is None:
                    found = self._made(_decomposed(self._source))
                    self._programs[default] = found
        return found

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The model's results for arrays of NumPy or tensors, or both."""
        leaves = self._flat(args, named)
        gives_arrays = any(isinstance(x, np.ndarray) for x in leaves) and not any(
            isinstance(x, torch.Tensor) for x in leaves
        )
        key = None
        if self._is_pure and all(map(_is_plain, leaves)):
            key = tuple([(x.dtype, x.shape) for x in leaves])
        tensors = [*map(_as_tensor, leaves)]
        program, outputs = self._now()
        if key in self._right:
            return self._results(program(tensors), gives_arrays)
        for i, x in enumerate(leaves):
            if isinstance(x, torch.Tensor):
                TORCH.view(f"argument {i}", x)  # refuses what eqsat does not take
        given: list[Any] = []
        by_name: dict[str, tuple[Any, Any]] = {}
        others = iter(zip(leaves, tensors, strict=True))
        for spec in self._inputs:
            if spec.kind is InputKind.USER_INPUT:
                by_name[spec.arg.name] = pair = next(others)
                given.append(pair[1])
            elif spec.kind is InputKind.TOKEN:  # says what was done before
                given.append(torch.empty(0))
            elif spec.target in self.state:
                given.append(self.state[str(spec.target)])
        self._check({k: t for k, (_, t) in by_name.items()})
        found = program(given)
        if key is not None and len(self._right) < _MOST_RIGHT:
            self._right.add(key)
        found = self._apart(found, outputs, by_name)
        results = []
        written: dict[str, Any] = {}  # what is a result as well is that itself
        for spec, x in zip(outputs, found, strict=True):
            if spec.kind in _KEPT:
                state = self.state[str(spec.target)]
                state.copy_(x)
                written[spec.arg.name] = state
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                _write(*by_name[str(spec.target)], x)
                written[spec.arg.name] = by_name[str(spec.target)][0]
            elif spec.arg.name in written:
                results.append(written[spec.arg.name])
            elif spec.kind is not OutputKind.TOKEN:
                results.append(x)
        return self._results(results, gives_arrays)

    def _apart(
        self,
        found: Sequence[Any],
        outputs: Sequence[OutputSpec],
        by_name: Mapping[str, tuple[Any, Any]],
    ) -> list[Any]:
        """Results of the program, as copies where they lie in what is written to: as a
        buffer that moves on into another one."""
        targets = [*self.state.values()]
        for spec in outputs:
            if spec.kind is OutputKind.USER_INPUT_MUTATION:
                targets.append(by_name[str(spec.target)][1])
        held = {_start(t) for t in targets}

        def apart(x: Any) -> Any:
            is_held = isinstance(x, torch.Tensor) and x.numel()
            return x.clone() if is_held and _start(x) in held else x

        return [*map(apart, found)] if held else [*found]

    def _results(self, found: Sequence[Any], gives_arrays: bool) -> Any:
        """The results as the model nests them, arrays where these were given."""
        results = [
            tensor_memory(x) if gives_arrays and isinstance(x, torch.Tensor) else x
            for x in found
        ]
        return torch_pytree.tree_unflatten(results, self._out_spec)

    def report(self) -> TorchReport:
        """What runs where, once it was called."""
        reports = [of.program.report() for of in [*self._programs.values()]]
        return TorchReport(
            sum(r.programs for r in reports),
            sum(r.operators for r in reports),
            tuple(f for r in reports for f in r.fallbacks),
        )

    def explain(self) -> list[Explanation]:
        """What the search did for each of its programs, once it was called."""
        made = [of.program.explanations() for of in [*self._programs.values()]]
        return [e for explanations in made for e in explanations]

    def _flat(self, args: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        """Arguments as the program takes them. Raises :class:`EqsatError` where they
        are nested in another way than the ones that it was exported with."""
        if self._is_flat and not named and len(args) == self._spec.num_leaves:
            if all(isinstance(x, (torch.Tensor, np.ndarray)) for x in args):
                return list(args)
        nested = _in_order((tuple(args), named), self._spec)
        leaves, spec = torch_pytree.tree_flatten(nested)
        if spec != self._spec:
            raise EqsatError(f"the exported program takes {self._spec}, got {spec}")
        return list(leaves)

    def _check(self, tensors: Mapping[str, Any]) -> None:
        """Raise :class:`ShapeError`, :class:`DTypeError` and :class:`EqsatError` for
        arguments that the program was not exported for."""
        sizes: dict[Any, int] = {}
        derived = []
        for name, x in tensors.items():
            like = self._values[name]
            if not isinstance(like, torch.Tensor):
                if not isinstance(like, torch.SymInt) and x != like:
                    raise EqsatError(f"argument {name!r} is {x!r}, expected {like!r}")
                continue
            if not isinstance(x, torch.Tensor):
                raise EqsatError(
                    f"argument {name!r} is {type(x).__name__}, expected an array"
                )
            if x.dtype != like.dtype:
                raise DTypeError(
                    f"argument {name!r} has dtype {x.dtype}, expected {like.dtype}"
                )
            if x.ndim != like.ndim:
                raise _shape_error(name, x, like)
            for n, wanted in zip(x.shape, like.shape, strict=True):
                if isinstance(wanted, int):
                    if n != wanted:
                        raise _shape_error(name, x, like)
                elif wanted.node.expr.is_Symbol:
                    if sizes.setdefault(wanted.node.expr, n) != n:
                        raise _shape_error(name, x, like)
                else:
                    derived.append((name, x, like, n, wanted.node.expr))
        for name, x, like, n, expression in derived:
            if expression.free_symbols <= set(sizes) and expression.subs(sizes) != n:
                raise _shape_error(name, x, like)
        for symbol, n in sizes.items():
            bounds = self._ranges.get(symbol)
            if bounds is not None and not bounds.lower <= n <= bounds.upper:
                raise ShapeError(
                    f"axis {symbol} has size {n}, expected {bounds.lower} to "
                    f"{bounds.upper}"
                )


def _shape_error(name: str, x: Any, like: Any) -> ShapeError:
    wanted = "(" + ", ".join(map(str, like.shape)) + ")"
    return ShapeError(
        f"argument {name!r} has shape {tuple(x.shape)}, expected {wanted}"
    )


def _is_plain(x: Any) -> bool:
    """Whether an array is one that eqsat takes."""
    if type(x) is torch.Tensor:
        return x.is_cpu and x.layout is torch.strided and not x.requires_grad
    return type(x) is np.ndarray


def _as_tensor(x: Any) -> Any:
    if isinstance(x, np.generic):
        return tensor_of(np.asarray(x))
    if isinstance(x, np.ndarray):
        is_forward = all(s >= 0 for s in x.strides)
        return tensor_of(x if is_forward else np.ascontiguousarray(x))
    return x


def _write(given: Any, tensor: Any, result: Any) -> None:
    """Write a result to an argument of the caller's."""
    if given is not tensor and not np.shares_memory(given, tensor_memory(tensor)):
        raise EqsatError(
            "the program writes to an argument that is read-only or has negative "
            "strides\n  pass a copy: x.copy()"
        )
    tensor.copy_(result)
