"""Which slice of every node a turn of the loops over a result computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from .axes import argument_axes
from .kernel_nodes import BodyNode, NodeBody

Spot = tuple[int | None, ...]
"""For each loop the axis of a value that runs along it; None: the value is whole."""


def level_of(spot: Spot) -> int:
    """The number of loops around a value that runs along ``spot``."""
    return max((i + 1 for i, a in enumerate(spot) if a is not None), default=0)


def wanted_spots(node: BodyNode, spot: Spot) -> list[Spot]:
    """For each argument of ``node`` the slice that the slice ``spot`` of it reads."""
    columns = []
    for axis in spot:
        found = None if axis is None else argument_axes(node, axis)
        columns.append(found if found is not None else [None] * len(node.args))
    return [tuple(c[i] for c in columns) for i in range(len(node.args))]


@dataclass
class BlockSlices:
    """The spots of a body for loops over ``axes`` of its result, outermost first."""

    body: NodeBody
    axes: tuple[int, ...]
    over: BodyNode | None = None
    """A leaf whose memory the result overwrites."""
    spots: dict[BodyNode, Spot] = field(default_factory=dict)
    """What a node is a slice along; leaves are whole."""
    whole: BodyNode | None = None
    """A product computed whole into the result, which the loops read and replace."""

    def __post_init__(self) -> None:
        self._place()
        self.whole = next((n for n in self.body.nodes if self._can_be_whole(n)), None)
        if self.whole is not None:
            self._place()

    def _place(self) -> None:
        """Spots from the result down. What users want differently is computed whole."""
        asked: dict[BodyNode, set[Spot]] = {self.body.root: {self.axes}}
        for n in self.body.more:
            asked.setdefault(n, set()).add(self._along(n))
        everything = (None,) * len(self.axes)
        self.spots = {}
        for n in reversed(self.body.nodes):
            spot = everything if n is self.whole else _common(asked[n])
            spot = tuple(
                a if a is not None and argument_axes(n, a) is not None else None
                for a in spot
            )
            self.spots[n] = spot
            for a, wanted in zip(n.args, wanted_spots(n, spot), strict=True):
                if isinstance(a, BodyNode):
                    asked.setdefault(a, set()).add(wanted)
        self.spots |= {n: everything for n in asked if n.op is None}

    def _along(self, n: BodyNode) -> Spot:
        """The slice of another result that a turn can write: where its axes are those
        of the root."""
        shape = self.body.root.shape
        if len(n.shape) != len(shape):
            return (None,) * len(self.axes)
        return tuple(a if n.shape[a] == shape[a] else None for a in self.axes)

    def _can_be_whole(self, n: BodyNode) -> bool:
        """A product by an uncut matrix, whose epilogue can replace it where it is."""
        root = self.body.root
        if n.name != "matmul" or n is root or n in self.body.more or not self.axes:
            return False
        if (n.shape, n.dtype) != (root.shape, root.dtype) or self.spots[n] != self.axes:
            return False
        if level_of(wanted_spots(n, self.axes)[1]):
            return False
        users = self.body.users()[n]
        alone = all(self._reads(u, n) == {self.axes} for u in users)
        direct = root.is_pointwise and not any(u.is_view for u in users)
        return alone and direct and all(_is_given(a) for a in n.nodes)

    def _reads(self, user: BodyNode, n: BodyNode) -> set[Spot]:
        wanted = wanted_spots(user, self.spots[user])
        return {w for a, w in zip(user.args, wanted, strict=True) if a is n}

    def level(self, n: BodyNode) -> int:
        """The number of loops around ``n``."""
        return level_of(self.spots[n])

    def inner_cost(self) -> tuple[int, int, int]:
        """What the innermost loop does, for one turn of the loops around it.

        The number of nodes that it cuts, their bytes, and the bytes of those that it
        does not: of a node its own or those of the leaves that it reads, if more.
        """
        count = cut = kept = 0
        for n in self.body.nodes:
            *around, last = self.spots[n]
            outside = bool(around) and not level_of(tuple(around))
            if n.is_view or n is self.whole or outside:
                continue
            if last is None:
                read = sum(a.nbytes for a in n.nodes if a.op is None)
                kept += max(n.nbytes, read) // self._turns(around, n)
            else:
                count += 1
                cut += n.nbytes // self._turns(around, n)
        return count, cut, kept

    def _turns(self, around: list[int | None], n: BodyNode) -> int:
        return prod(n.shape[a] for a in around if a is not None)

    def rows_each(self, n: BodyNode) -> int:
        """Rows of a product that one index of every loop computes."""
        rows = n.size // max(n.shape[-1], 1)
        for axis in self.spots[n]:
            if axis is not None and axis < len(n.shape) - 1:
                rows //= n.shape[axis]
        return max(rows, 1)


def _common(asked: set[Spot]) -> Spot:
    """What all of ``asked`` agree on; None for a loop where they do not."""
    first, *rest = asked
    return tuple(
        a if all(r[i] == a for r in rest) else None for i, a in enumerate(first)
    )


def _is_given(node: BodyNode) -> bool:
    """Whether a value is a leaf or only views of one."""
    while node.is_view:
        (node,) = node.nodes
    return node.op is None
