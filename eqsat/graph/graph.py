"""Graphs: programs that are built node by node, kept in files, and compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.graph.document import document_of, fill, json_of, parsed_json, text_in
from eqsat.graph.dot import dot_of, parsed_dot
from eqsat.graph.meaning import (
    checked_size,
    function_of,
    ordered,
    validated,
)
from eqsat.graph.nodes import (
    CONSTANT,
    INPUT,
    GraphNode,
    NodeTable,
    checked_attributes,
    checked_name,
    op_named,
    with_defaults,
)
from eqsat.graph.of_terms import add_terms, constants_in, frozen, opened
from eqsat.jit import Jit, jit
from eqsat.lazy import LOCK, LazyArray, array
from eqsat.rulelang import Rule, RuleSet
from eqsat.support import DTypeError, GraphError, Options, at, caller_line, nearest
from eqsat.terms import Op, Term, Type
from eqsat.trace import Spec, to_numpy, trace

PathLike = str | os.PathLike[str]


class Graph:
    """A program as nodes: inputs, constants, and ops applied to nodes.

    Nodes are named; where a node is wanted, its name will do, also before the node is
    added. What one node tells is checked when it is added, the rest by
    :meth:`validate`, which all that uses the graph calls. Errors name the node and the
    line that added it.

    >>> g = Graph()
    >>> x = g.input("x", (2, 3), "float32")
    >>> y = g.add("softmax", [g.add("multiply", [x, 2.0])], name="y", axis=-1)
    >>> g.output(y)
    >>> g.run(np.zeros((2, 3), np.float32)).sum(-1)
    array([1., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        self._table = NodeTable()
        self._compiled: tuple[int, Jit] | None = None
        self.nodes: Mapping[str, GraphNode] = MappingProxyType(self._table.by_name)
        """The nodes by name, in the order in which they were added."""

    # -- building ----------------------------------------------------------------------

    def input(self, name: str, shape: int | Iterable[int], dtype: Any) -> GraphNode:
        """Add an array that is given in each call, of this shape and dtype.

        Raises :class:`GraphError` for a name that is taken and :class:`DTypeError` for
        a dtype that is not supported.
        """
        spec = Spec(shape, dtype)
        type_ = checked_size((spec.dtype, spec.shape), f"node {checked_name(name)!r}")
        return self._table.put(INPUT, name, type_=type_)

    def constant(self, value: Any, name: str | None = None) -> GraphNode:
        """Add an array, which is copied, or a Python number, which takes on the dtype
        of what it meets.

        Raises :class:`DTypeError` for a dtype that is not supported.
        """
        return self._table.put(CONSTANT, name, value=_constant(value))

    def add(
        self,
        op: Op | str,
        /,
        inputs: Any = (),
        name: str | None = None,
        **attributes: Any,
    ) -> GraphNode:
        """Add an op, by itself or by name, applied to ``inputs``.

        These are one or a list of nodes, names of nodes that may be added later, and
        numbers and arrays, which become constants. The last ones may be given by their
        parameters' names, as ``eps=1e-6``, and what has a default may be left out.
        Raises :class:`GraphError` for an unknown op, a wrong number of inputs, nodes of
        another graph, names that are taken, and unknown, missing or wrong attributes.
        """
        who = f"node {checked_name(name)!r}" if name is not None else "add"
        known = op_named(op, who)
        who = who if name is not None else f"add({known.name!r})"
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        values = with_defaults(known, given, attributes, who)
        settled = checked_attributes(known, attributes, who)
        table = self._table
        if name is not None:
            table.check_free(name)
        read = [
            table.name_of(v, who) if isinstance(v, (GraphNode, str)) else _constant(v)
            for v in values
        ]
        names = (
            v if isinstance(v, str) else table.put(CONSTANT, None, value=v).name
            for v in read
        )
        return table.put(known.name, name, tuple(names), settled)

    def output(self, *nodes: GraphNode | str) -> None:
        """Make nodes results, behind those that are results already. One result is
        given as an array, several as a tuple."""
        self._table.outputs += [self._table.name_of(n, "output") for n in nodes]
        self._table.changes += 1

    # -- looking at it -----------------------------------------------------------------

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(self._table.outputs)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Pairs of names: a node, and one that reads it. Once for each input."""
        return [(i, n.name) for n in self.nodes.values() for i in n.inputs]

    def dependencies(self, node: GraphNode | str) -> tuple[GraphNode, ...]:
        """All nodes that ``node`` is computed from, in topological order.

        Raises :class:`GraphError` as :meth:`order` does, and for an unknown name.
        """
        name = self._table.name_of(node, "dependencies")
        if name not in self.nodes:
            raise GraphError(f"there is no node {name!r}{nearest(name, self.nodes)}")
        order = self.order()
        needed = {name}
        for n in reversed(order):
            if n.name in needed:
                needed.update(n.inputs)
        return tuple(n for n in order if n.name in needed - {name})

    def order(self) -> list[GraphNode]:
        """The nodes in topological order: each after those that it reads, else as they
        were added.

        Raises :class:`GraphError` for an input that is no node, and for a cycle.
        """
        return ordered(self._table)

    def validate(self) -> dict[str, Type]:
        """The dtype and shape of each node, if nothing is wrong with the graph.

        Raises :class:`GraphError` for inputs and outputs that are no nodes, cycles, a
        graph without outputs, a bare number as an output, and nodes that no output
        needs (inputs may be unused); :class:`ShapeError` and :class:`DTypeError` for
        what does not fit an op. The error names the node and its line.
        """
        return validated(self._table)

    # -- running -----------------------------------------------------------------------

    def function(self) -> Callable[..., Any]:
        """A Python function of the inputs, in the order in which they were added.

        It takes arrays, traced and lazy arrays, so that :func:`jit`, :func:`grad` and
        lazy arrays can use it; they must have the dtypes and shapes of the inputs. It
        does not change with the graph. Raises what :meth:`validate` raises.
        """
        self.validate()
        return function_of(self._table)

    def compile(
        self,
        backend: str | None = None,
        rules: RuleSet | Iterable[Rule] | None = None,
        options: Options | None = None,
    ) -> Jit:
        """The optimised program, as a function of the inputs. Arguments as of
        :func:`jit`; the program is that of the traced function that does the same."""
        made = jit(self.function(), backend, rules, options)
        made.lower(*_specs(self.nodes)).compile()
        return made

    def run(self, /, *arrays: Any, **named: Any) -> Any:
        """Compute the outputs of arrays for the inputs, by position or by name. The
        program is compiled once, until something is added.

        Raises :class:`GraphError` for missing and unknown inputs, and
        :class:`ShapeError` and :class:`DTypeError` for arrays that do not fit.
        """
        names = [n for n, node in self.nodes.items() if node.op == INPUT]
        for name in named:
            if name not in names[len(arrays) :]:
                hint = "is given twice" if name in names else "is no input"
                raise GraphError(f"run: {name!r} {hint}{at(caller_line())}")
        missing = [n for n in names[len(arrays) :] if n not in named]
        if missing:
            raise GraphError(f"run: input {missing[0]!r} is missing{at(caller_line())}")
        given = [*arrays, *(named[n] for n in names[len(arrays) :])]
        if self._compiled is None or self._compiled[0] != self._table.changes:
            self._compiled = self._table.changes, self.compile()
        plain = [g if hasattr(g, "dtype") else np.asarray(g) for g in given]
        return self._compiled[1](*plain)

    def optimize(
        self,
        backend: str | None = None,
        rules: RuleSet | Iterable[Rule] | None = None,
        options: Options | None = None,
    ) -> Graph:
        """The graph of the program that :meth:`compile` chooses.

        Ops that rules have found, such as ``layer_norm_linear``, are nodes. What one
        generated kernel computes is written as the ops in it.
        """
        found = jit(self.function(), backend, rules, options)
        low = found.lower(*_specs(self.nodes))
        names = [n for n, node in self.nodes.items() if node.op == INPUT]
        inputs = dict(zip(low.trace.inputs, names, strict=True))
        made = Graph()
        arrays = constants_in(low.trace.graph.arrays)
        add_terms(made._table, opened(low.term), inputs, arrays)
        return made

    # -- from functions and lazy arrays ------------------------------------------------

    @classmethod
    def from_function(cls, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
        """The graph of what ``fn`` does for these arguments, traced as by :func:`jit`;
        a :class:`Spec` can stand for an array.

        Arrays become inputs named by their paths, such as ``params['w']``, and
        read-only ones constants. The outputs are the arrays of the result, in order.
        Raises :class:`GraphError` for a function that writes to its arguments, or
        whose result has a shape that depends on data.
        """
        fixed = fn.constants if isinstance(fn, Jit) else ()
        plain = fn.fn if isinstance(fn, Jit) else fn
        done = trace(plain, args, kwargs, constants=fixed)
        if done.writes or done.ends:
            why = "writes to its arguments" if done.writes else "has results whose "
            why += "" if done.writes else "shapes depend on data"
            raise GraphError(
                f"the function {why}, which no graph can{at(caller_line())}"
            )
        inputs = dict(zip(done.inputs, done.names, strict=True))
        made = cls()
        arrays = constants_in(done.graph.arrays)
        add_terms(made._table, done.outputs, inputs, arrays)
        return made

    @classmethod
    def from_arrays(
        cls, *arrays: LazyArray, inputs: Mapping[str, LazyArray] | None = None
    ) -> Graph:
        """The graph of what lazy arrays have recorded, with them as outputs.

        ``inputs`` names lazy arrays whose values are known, as :func:`eqsat.array`
        makes them: they become inputs, and all other values constants.
        """
        wanted = inputs or {}
        for x in (*arrays, *wanted.values()):
            if not isinstance(x, LazyArray):
                raise GraphError(
                    f"from_arrays: expected lazy arrays, got {type(x).__name__!r}"
                    f"{at(caller_line())}"
                )
        made = cls()
        with LOCK():
            named: dict[Term, str] = {}
            for name, x in wanted.items():
                if x.term.value is None or x.term in named:
                    why = "is computed" if x.term.value is None else "is there twice"
                    raise GraphError(f"from_arrays: input {name!r} {why}")
                named[x.term] = name
            roots = [x.term for x in arrays]
            add_terms(made._table, roots, named, _value_of)
        return made

    # -- files -------------------------------------------------------------------------

    def to_json(self, path: PathLike | None = None) -> str:
        """The graph as JSON, also written to a file at ``path``.

        Constants are base64, at most 32 MiB in all. Raises what :meth:`validate` does,
        and :class:`GraphError` for what is too large for a file.
        """
        return _written(json_of(document_of(self._table)), path)

    @classmethod
    def from_json(cls, source: PathLike) -> Graph:
        """The graph of a JSON text, which starts with ``{``, or of a file.

        Nothing in it is run. At most 64 MiB, 50 000 nodes and 32 MiB of constants are
        read. Raises :class:`GraphError` for another version, unknown ops, attributes
        and keys, and whatever :meth:`validate` refuses.
        """
        return _read(cls(), source, "{", parsed_json)

    def to_dot(self, path: PathLike | None = None) -> str:
        """The graph as DOT, for Graphviz, also written to a file at ``path``."""
        return _written(dot_of(document_of(self._table)), path)

    @classmethod
    def from_dot(cls, source: PathLike) -> Graph:
        """The graph of a DOT text or file that :meth:`to_dot` wrote; what edges it has
        may have been changed. Bounds and errors as of :meth:`from_json`."""
        return _read(cls(), source, "digraph", parsed_dot)


def _constant(value: Any) -> Any:
    """What a constant holds: a Python number, or a copy of an array."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise DTypeError(f"constant {value} has more than 64 bits{at(caller_line())}")
    if type(value) in (int, float):
        return value
    held = array(value)
    if not isinstance(held, LazyArray):
        raise GraphError(
            f"constant: the values of a traced array are not known{at(caller_line())}"
        )
    return frozen(to_numpy(held.eval()))


def _specs(nodes: Mapping[str, GraphNode]) -> list[Spec]:
    """What stands for the inputs."""
    types = [n.type for n in nodes.values() if n.type is not None]
    return [Spec(shape, dtype) for dtype, shape in types]


def _value_of(t: Any) -> Any:
    return None if t.value is None else to_numpy(t.value)


def _written(text: str, path: PathLike | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    return text


def _read(
    graph: Graph, source: PathLike, start: str, parse: Callable[[str], Any]
) -> Graph:
    if isinstance(source, str) and source.lstrip().startswith(start):
        text = source
    else:
        try:
            text = text_in(source)
        except (OSError, ValueError) as error:
            if isinstance(error, GraphError) or not isinstance(source, str):
                raise
            raise GraphError(
                f"{source!r:.80} is no file, and no text that starts with {start!r}"
            ) from error
    fill(graph._table, parse(text))
    return graph
