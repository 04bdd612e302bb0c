"""The body of a kernel as the backend sees it: primitive nodes over named arguments.

Nodes are not terms, because they need not obey the typing of terms: a broadcast under a
pointwise op is left to NumPy, and halves are computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from eqsat.kernels import Kernel, inner
from eqsat.ops import VIEWS, cast_op, power
from eqsat.terms import CONSTANT, EXACT, HALF, Op, Shape, Term, Weak

from ..interpret import Array, evaluate

WIDE = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class BodyNode:
    """``op(*args)``, or a leaf when there is no op."""

    op: Op | None
    args: tuple[BodyNode | float, ...]
    attrs: Mapping[str, Any]
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """The name of the op; empty for a leaf."""
        return self.op.name if self.op else ""

    @property
    def nodes(self) -> list[BodyNode]:
        """The arguments that are no bare numbers."""
        return [a for a in self.args if isinstance(a, BodyNode)]

    @property
    def is_view(self) -> bool:
        return self.op in VIEWS

    @property
    def is_pointwise(self) -> bool:
        return self.op is not None and self.op.kind == "pointwise"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class NodeBody:
    """What a kernel computes: ``root`` from ``leaves``."""

    root: BodyNode
    nodes: tuple[BodyNode, ...]
    """All nodes but leaves, arguments before users; the last is ``root``."""
    leaves: Mapping[Term, BodyNode]
    constants: Mapping[BodyNode, Array] = field(default_factory=dict)
    """Leaves whose value is part of the body, such as a causal mask."""
    shown: tuple[BodyNode, ...] = ()
    """Views of ``root`` that the result is, the last first."""
    more: tuple[BodyNode, ...] = ()
    """Nodes that are results too."""
    shapes: tuple[Shape, ...] = ()
    """Their shapes as results, which may have other axes of size 1."""

    def users(self) -> dict[BodyNode, list[BodyNode]]:
        """Each node and leaf to the nodes that read it."""
        found: dict[BodyNode, list[BodyNode]] = {}
        for n in self.nodes:
            for a in dict.fromkeys(n.nodes):
                found.setdefault(a, []).append(n)
        return found


def leaf(shape: Shape, dtype: np.dtype[Any]) -> BodyNode:
    """A value from outside."""
    return BodyNode(None, (), {}, shape, dtype)


def body_of(kernel: Kernel, exact: bool = False) -> NodeBody:
    """The body of ``kernel`` in nodes, halves widened where the references do so. With
    ``exact`` they are rounded after each op."""
    return _Opening(kernel, exact).body()


class _Opening:
    def __init__(self, kernel: Kernel, exact: bool) -> None:
        self.kernel, self.exact = kernel, exact
        self.terms = inner(kernel.bodies, kernel.term.args)
        self.widened = _is_widened(self.terms)
        self.leaves: dict[Term, BodyNode] = {}
        self.made: dict[Term, BodyNode | float] = {}
        self.nodes: list[BodyNode] = []
        self.constants: dict[BodyNode, Array] = {}
        for t in kernel.inputs:
            self.leaves[t] = leaf(t.shape, cast("np.dtype[Any]", t.dtype))

    def body(self) -> NodeBody:
        for t, n in self.leaves.items():
            self.made[t] = self._cast(n, self._dtype(t))
        fixed = self._fixed()
        for t in self.terms:
            if t not in fixed:
                self.made[t] = self._node(
                    t, [self._operand(t, a, fixed) for a in t.args]
                )
        roots = [self._value(b, fixed) for b in self.kernel.bodies]
        return self._rooted(roots)

    def _rooted(self, roots: Sequence[BodyNode | float]) -> NodeBody:
        """The body with each result, of its dtype, in a node of its own."""
        more: list[BodyNode] = []
        for value, result in zip(roots[1:], self.kernel.results[1:], strict=True):
            node = self._result(value, result)
            if node in more:
                node = self._add("copy", [node], {}, node.shape, node.dtype)
            more.append(node)
        term, root = self.kernel.results[0], roots[0]
        shape, dtype = term.shape, cast("np.dtype[Any]", term.dtype)
        shown: list[BodyNode] = []
        if isinstance(root, BodyNode):
            root = self._cast(root, dtype)
            shown = _outer_views(root, self.nodes) if not more else []
            root = shown[-1].nodes[0] if shown else root
            shape = root.shape
        bare = not isinstance(root, BodyNode) or root.op is None or root.is_view
        read = more and any(root in n.nodes for n in self.nodes)
        if bare or read or root in more:
            root = self._add("copy", [root], {}, shape, dtype)
        assert isinstance(root, BodyNode)
        used = _below([root, *more])
        nodes = tuple(n for n in self.nodes if n in used and n is not root)
        constants = {n: v for n, v in self.constants.items() if n in used}
        leaves = self.leaves
        shapes = tuple(r.shape for r in self.kernel.results[1:])
        return NodeBody(
            root, (*nodes, root), leaves, constants, tuple(shown), tuple(more), shapes
        )

    def _result(self, value: BodyNode | float, result: Term) -> BodyNode:
        """A node that computes a result, of its dtype."""
        dtype = cast("np.dtype[Any]", result.dtype)
        if isinstance(value, BodyNode):
            value = self._cast(value, dtype)
            while value.name == "reshape":  # undone where it is written
                value = value.nodes[0]
            if value.op is not None and not value.is_view:
                return value
        shape = value.shape if isinstance(value, BodyNode) else result.shape
        return self._add("copy", [value], {}, shape, dtype)

    def _fixed(self) -> set[Term]:
        """Terms of the body that depend on no argument."""
        fixed: set[Term] = set()
        for t in self.terms:
            if all(a in fixed or self._is_bare(a) for a in t.args):
                fixed.add(t)
        return fixed

    def _is_bare(self, term: Term) -> bool:
        """Whether ``term``, no node of the body, is known: a number or a constant."""
        known = isinstance(term.dtype, Weak) or term.op is CONSTANT
        return known and term not in self.leaves

    def _dtype(self, term: Term) -> np.dtype[Any]:
        dtype = cast("np.dtype[Any]", term.dtype)
        return WIDE if self.widened and dtype in HALF else dtype

    def _value(self, term: Term, fixed: set[Term]) -> BodyNode | float:
        if term not in self.made:
            assert term in fixed or self._is_bare(term)
            value = evaluate([term], {})[term]
            if not isinstance(value, np.ndarray):
                self.made[term] = value
            else:
                if not isinstance(term.dtype, Weak):
                    value = value.astype(self._dtype(term), copy=False)
                node = leaf(value.shape, value.dtype)
                self.constants[node] = value
                self.made[term] = node
        return self.made[term]

    def _operand(self, user: Term, term: Term, fixed: set[Term]) -> BodyNode | float:
        """The value of ``term`` for ``user``, rounded where that is asked for."""
        value = self._value(term, fixed)
        if not self.exact or not self.widened:
            return value
        if isinstance(value, BodyNode):
            if term.dtype not in HALF or term in self.leaves:
                return value
            half = self._cast(value, cast("np.dtype[Any]", term.dtype))
            return self._cast(half, WIDE)
        types = (a.dtype for a in user.args if a.dtype in HALF)
        half_of = next(types, None)
        return (
            value
            if half_of is None
            else float(np.asarray(value, cast("np.dtype[Any]", half_of)))
        )

    def _node(self, term: Term, args: Sequence[BodyNode | float]) -> BodyNode:
        op = cast(Op, term.op)
        attrs = op.attr_dict(term)
        dtype = self._dtype(term)
        if op.kind == "pointwise":
            args = [_unbroadcast(a) for a in args]
        if op is cast_op and isinstance(args[0], BodyNode):
            return self._cast(args[0], dtype, term.shape)
        if op.in_own_dtype and self.widened and term.dtype in HALF:
            half = cast("np.dtype[Any]", term.dtype)
            args = [self._cast(a, half) if isinstance(a, BodyNode) else a for a in args]
            made = self._add(op.name, args, attrs, term.shape, half, op)
            return self._cast(made, dtype)
        if op is power and args[1] in (2, 2.0):
            return self._add("square", args[:1], {}, term.shape, dtype)
        return self._add(op.name, args, attrs, term.shape, dtype, op)

    def _cast(
        self, node: BodyNode, dtype: np.dtype[Any], shape: Shape | None = None
    ) -> BodyNode:
        shape = node.shape if shape is None else shape
        if node.dtype == dtype and node.shape == shape:
            return node
        return self._add("cast", [node], {"dtype": dtype.name}, shape, dtype)

    def _add(
        self,
        name: str,
        args: Sequence[BodyNode | float],
        attrs: Mapping[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
        op: Op | None = None,
    ) -> BodyNode:
        node = BodyNode(op or Op.registry[name], tuple(args), attrs, shape, dtype)
        self.nodes.append(node)
        return node


def _outer_views(root: BodyNode, nodes: Sequence[BodyNode]) -> list[BodyNode]:
    """Views at the root that packed memory can undo: reshapes, then transposes.

    A convolution writes packed images only, and may write them into the result, so
    nothing is transposed over one.
    """
    packed = any(n.name == "conv2d" for n in nodes)
    found: list[BodyNode] = []
    while root.name in ("reshape", "transpose"):
        (arg,) = root.nodes
        if root.name == "reshape" and any(v.name == "transpose" for v in found):
            break
        if root.name == "transpose" and packed:
            break
        found.append(root)
        root = arg
    return found


def _below(roots: Sequence[BodyNode]) -> set[BodyNode]:
    """``roots`` and all that they need."""
    found = set(roots)
    stack = list(roots)
    while stack:
        new = [a for a in stack.pop().nodes if a not in found]
        found.update(new)
        stack.extend(new)
    return found


def _unbroadcast(arg: BodyNode | float) -> BodyNode | float:
    """What an explicit broadcast shows, for ops that broadcast by themselves."""
    while isinstance(arg, BodyNode) and arg.name == "broadcast_to":
        arg = arg.args[0]
    return arg


def _is_widened(terms: Sequence[Term]) -> bool:
    """Whether halves are computed in float32: in composites, and where sums are taken.

    One ufunc rounds its own result, and moving elements needs no arithmetic.
    """
    if len(terms) != 1:
        return True
    op = cast(Op, terms[0].op)
    return op.ufunc is None and op.roundings != EXACT and op is not cast_op
