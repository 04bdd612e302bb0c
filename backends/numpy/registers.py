"""Arrays for the intermediates of a kernel, reused when their value is dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .block_slices import BlockSlices, Spot
from .kernel_nodes import BodyNode


@dataclass(frozen=True)
class BlockLoop:
    """A loop over an axis of the result, ``rows`` indices a turn."""

    axis: int
    size: int
    rows: int

    @property
    def is_even(self) -> bool:
        """Whether every turn has ``rows`` indices."""
        return self.size % self.rows == 0


@dataclass(frozen=True)
class Form:
    """What two values must share to share an array: their loops, block and dtype."""

    level: int
    spot: Spot
    shape: tuple[int, ...]
    """The largest block: ``rows`` indices along each loop."""
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Register:
    """An array for intermediates, allocated once a call."""

    form: Form


@dataclass(frozen=True)
class More:
    """A result beside the first, which holds its value alone."""

    index: int


OUT = None
"""The place of values that are kept in the result."""
Place = Register | More | None


def allocate(
    layout: BlockSlices, loops: Sequence[BlockLoop], order: Sequence[BodyNode]
) -> dict[BodyNode, Place]:
    """A place for each node of ``order`` that computes; nothing alive is lost.

    A value goes into the result where it fits and nothing else is there, over an
    argument that dies with it where it is pointwise, into an array whose value is dead,
    or into a new one.
    """
    return _Allocation(layout, loops, order).run()


class _Allocation:
    def __init__(
        self, layout: BlockSlices, loops: Sequence[BlockLoop], order: Sequence[BodyNode]
    ) -> None:
        self.layout = layout
        self.loops = loops
        self.root = layout.body.root
        self.position = {n: i for i, n in enumerate(order)}
        self.last = self._last_uses()
        self.store: dict[BodyNode, Place] = {}
        self.free: list[Register] = []
        self.in_out: BodyNode | None = layout.over
        """The value that the result holds, if any."""

    def run(self) -> dict[BodyNode, Place]:
        for n in self.position:
            if not n.is_view:
                self.store[n] = self._place(n)
                if self.store[n] is OUT:
                    self.in_out = n
            self._release(n)
        return self.store

    def _last_uses(self) -> dict[BodyNode, int]:
        """The position after which nothing reads a value, through views or not.

        A value read in deeper loops than its own is read again in their next turn.
        """
        last: dict[BodyNode, int] = {}
        for n, at in self.position.items():
            for a in n.nodes:
                owner = _owner(a)
                deeper = self.layout.level(n) > self.layout.level(owner)
                cut = owner is self.layout.whole or owner.op is None
                end = len(self.position) if deeper and not cut else at
                last[owner] = max(last.get(owner, -1), end)
        return last

    def _place(self, n: BodyNode) -> Place:
        if n in (self.root, self.layout.whole):
            return OUT
        if n not in self.layout.body.more and self._fits_out(n):
            return OUT
        if n in self.layout.body.more:
            return More(self.layout.body.more.index(n))
        form = self._form(n)
        for a in dict.fromkeys(n.nodes):
            place = self.store.get(a)
            held = isinstance(place, Register) and place.form == form
            if isinstance(place, Register) and held and self._dies_into(a, n):
                del self.last[a]
                return place
        for r in self.free:
            if r.form == form:
                self.free.remove(r)
                return r
        return Register(form)

    def _dies_into(self, a: BodyNode, n: BodyNode) -> bool:
        """Whether a pointwise ``n`` may replace ``a`` element by element."""
        if not n.is_pointwise or self.last.get(a) != self.position[n]:
            return False
        return a in n.nodes and all(x is a for x in n.nodes if _owner(x) is a)

    def _fits_out(self, n: BodyNode) -> bool:
        root, held = self.root, self.in_out
        if (n.shape, n.dtype) != (root.shape, root.dtype):
            return False
        if self.layout.spots[n] != self.layout.axes:
            return False
        if held is not None and self.last.get(held, -1) >= self.position[n]:
            if not self._dies_into(held, n):
                return False
        return self.last[n] < self.position[root] or self._dies_into(n, root)

    def _form(self, n: BodyNode) -> Form:
        spot = self.layout.spots[n]
        shape = list(n.shape)
        for loop, axis in zip(self.loops, spot, strict=True):
            if axis is not None:
                shape[axis] = loop.rows
        return Form(self.layout.level(n), spot, tuple(shape), n.dtype)

    def _release(self, n: BodyNode) -> None:
        """Free the arrays of values that ``n`` was the last to read."""
        for a in dict.fromkeys(map(_owner, n.nodes)):
            place = self.store.get(a)
            if isinstance(place, Register) and self.last.get(a) == self.position[n]:
                self.free.append(place)


def _owner(node: BodyNode) -> BodyNode:
    """The value that a view shows."""
    while node.is_view:
        (node,) = node.nodes
    return node
