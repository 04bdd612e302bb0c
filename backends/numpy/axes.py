"""Which axis of its arguments an axis of a node runs along.

A kernel can be cut into blocks along an axis of its result when a slice of every node
follows from the same slice of what it reads, or from all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from .kernel_nodes import BodyNode

Axis = int | None
"""An axis, counted from 0, or None: the argument is needed whole."""


def argument_axes(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    """The axis of each argument to slice for a slice of ``node`` along ``axis``.

    None when no slices of the arguments give a slice of the node.
    """
    rule = _RULES.get(node.name)
    if rule is not None:
        return rule(node, axis)
    if node.is_pointwise:
        return [_aligned(node, a, axis) for a in node.args]
    if node.op is not None and node.op.kind == "reduce":
        return [axis]
    return None


def _aligned(node: BodyNode, arg: BodyNode | float, axis: int) -> Axis:
    """The axis that broadcasting puts at ``axis`` of ``node``."""
    if not isinstance(arg, BodyNode):
        return None
    mine = axis - (len(node.shape) - len(arg.shape))
    return mine if mine >= 0 and arg.shape[mine] == node.shape[axis] else None


def _matmul(node: BodyNode, axis: int) -> Sequence[Axis]:
    x, y = node.args
    assert isinstance(x, BodyNode) and isinstance(y, BodyNode)
    if axis == len(node.shape) - 2:
        return [len(x.shape) - 2, None]
    if axis == len(node.shape) - 1:
        return [None, len(y.shape) - 1]
    return [_aligned(node, x, axis), _aligned(node, y, axis)]


def _transpose(node: BodyNode, axis: int) -> Sequence[Axis]:
    perm = node.attrs["perm"]
    lead = len(node.shape) - len(perm)
    return [axis if axis < lead else len(node.shape) + int(perm[axis - lead])]


def _reshape(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    """The axis of the same size with as many elements before it."""
    (arg,) = node.nodes
    before = prod(node.shape[:axis])
    for a, size in enumerate(arg.shape):
        if prod(arg.shape[:a]) == before and size == node.shape[axis]:
            return [a]
    return None


def _slice(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    (arg,) = node.nodes
    lead = len(node.shape) - len(node.attrs["sizes"])
    i = axis - lead
    if i >= 0 and (node.attrs["starts"][i], node.attrs["steps"][i]) != (0, 1):
        return None
    return [axis] if arg.shape[axis] == node.shape[axis] else None


def _broadcast_to(node: BodyNode, axis: int) -> Sequence[Axis]:
    return [_aligned(node, node.args[0], axis)]


def _concatenate(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    joined = len(node.shape) + int(node.attrs["axis"])
    return None if axis == joined else [axis] * len(node.args)


def _pad(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    i = axis - (len(node.shape) - len(node.attrs["low"]))
    if i >= 0 and node.attrs["low"][i] + node.attrs["high"][i]:
        return None
    return [axis, None]


def _take(node: BodyNode, axis: int) -> Sequence[Axis]:
    x, indices = node.args
    assert isinstance(x, BodyNode)
    count = len(indices.shape) if isinstance(indices, BodyNode) else 0
    at = len(x.shape) + int(node.attrs["axis"])
    if axis < at:
        return [axis, None]
    return [None, axis - at] if axis < at + count else [axis - count + 1, None]


def _conv2d(node: BodyNode, axis: int) -> Sequence[Axis] | None:
    """Images are independent of one another."""
    return [0, *(None for _ in node.args[1:])] if axis == 0 else None


_RULES: dict[str, Callable[[BodyNode, int], Sequence[Axis] | None]] = {
    "matmul": _matmul,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "broadcast_to": _broadcast_to,
    "concatenate": _concatenate,
    "pad": _pad,
    "take": _take,
    "conv2d": _conv2d,
}
