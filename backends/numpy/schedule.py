"""Blocks: the loops of a kernel, the level of each node in them, and the arrays it needs.

A kernel with intermediates runs over blocks of its result, so that they stay in cache. Axes
are taken from the left: a loop runs over single indices until what remains of one fits
:data:`CACHE_BYTES`, and the innermost loop over as many indices at once as fit. A node that
does not depend on a loop is computed before it.

Measured on a Xeon with 2 MiB of L2 a core and 2 cores (float32, median of 9, ms), by room:

=====================  =====  =======  =======  =======  =====  =====  =========
workload               NumPy  128 KiB  256 KiB  512 KiB  1 MiB  2 MiB  one block
=====================  =====  =======  =======  =======  =====  =====  =========
softmax 4096×1024       20.9     20.3     17.0     14.6   13.6   15.1       12.0
layer_norm 4096×1024    34.3     25.8     20.5     19.4   16.0   15.4       18.0
gelu (tanh) 4 Mi        29.7     12.1     14.0     11.8   10.7   11.1       15.8
gelu (erf) 4 Mi         92.9     76.0     69.2     70.0   80.5  114.1       90.7
attention 12×512×64     37.4     28.3     22.0     19.1   16.6   16.4       17.3
linear+gelu 512×3072    23.8     20.2     19.0     17.7   17.6   18.0       21.1
=====================  =====  =======  =======  =======  =====  =====  =========

Small blocks lose to the cost of calls, large ones to cache misses; one block does well here
because the third-level cache has 260 MiB. A product over whole weights is not cut: in
blocks of 16, 64 and 256 rows, 512×768×3072 takes 30.9, 17.4 and 12.7 ms, whole 12.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .axes import argument_axes
from .body import Body, Node

CACHE_BYTES = 1 << 20
"""Room for the arrays of one block: intermediates and slices of arguments and result."""
GEMM_ROWS = 256
"""Rows from which a matrix product runs at full speed; it packs the right side each time."""

Spot = tuple[int | None, ...]
"""For each loop the axis of a value that runs along it; None when the value is whole."""


@dataclass(frozen=True)
class Loop:
    """A loop over an axis of the result, ``rows`` indices a turn."""

    axis: int
    size: int
    rows: int

    @property
    def is_even(self) -> bool:
        """Whether every turn has ``rows`` indices."""
        return self.size % self.rows == 0


@dataclass(frozen=True, eq=False)
class Register:
    """An array for intermediates, allocated once a call."""

    level: int
    spot: Spot
    shape: tuple[int, ...]
    """Of a block: 1 along all loops but the innermost, whose number of rows comes later."""
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


OUT = None
"""The place of values that are kept in the result."""


@dataclass(frozen=True)
class Schedule:
    """How a body runs."""

    loops: tuple[Loop, ...]
    spots: dict[Node, Spot]
    """What a node is a slice along; leaves are whole."""
    levels: tuple[tuple[Node, ...], ...]
    """Nodes computed before all loops, in the first loop, and so on."""
    store: dict[Node, Register | None]
    """Where a computed node is kept; :data:`OUT` is the result."""
    registers: tuple[Register, ...]
    whole: Node | None = None
    """A product computed whole into the result, which the loops then read and replace."""

    @property
    def scratch_bytes(self) -> int:
        return sum(r.nbytes for r in self.registers)


def schedule(body: Body, over: Node | None = None) -> Schedule:
    """Loops and places for ``body``; ``over`` is a leaf that the result overwrites."""
    plain = _Layout(body, (), over).schedule(1)
    computed = [n for n in body.nodes if not n.is_view]
    if len(computed) < 2 or not all(n.size for n in body.nodes):
        return plain
    if _working_set(body, plain) <= CACHE_BYTES:
        return plain
    best = plain
    axes: tuple[int, ...] = ()
    for axis, size in enumerate(body.root.shape):
        layout = _Layout(body, (*axes, axis), over)
        if size == 1 or not layout.pays():
            continue
        axes, outer = layout.axes, best
        best = layout.schedule(1)
        one = max(1, _working_set(body, best))
        room = max(CACHE_BYTES, one * layout.least_rows())
        if room // one >= size and len(axes) > 1:
            return outer
        if 2 * one <= room:
            return layout.schedule(_even(size, room // one))
    return best


def _even(size: int, most: int) -> int:
    """Rows of a block, at most ``most``: a divisor of ``size`` where one is near."""
    most = min(size, most)
    for rows in range(most, most // 2, -1):
        if size % rows == 0:
            return rows
    return -(-size // -(-size // most))


def _working_set(body: Body, schedule: Schedule) -> int:
    """Bytes touched by one turn of the innermost loop."""
    level = len(schedule.loops)
    total = sum(r.nbytes for r in schedule.registers if r.level == level)
    total += _slice_bytes(body.root, schedule.spots[body.root], schedule)
    seen: set[tuple[Node, Spot]] = set()
    for n in schedule.levels[-1]:
        for a, wanted in zip(n.args, wanted_spots(n, schedule.spots[n]), strict=True):
            if isinstance(a, Node) and a.op is None and (a, wanted) not in seen:
                if not level or wanted[-1] is not None:
                    seen.add((a, wanted))
                    total += _slice_bytes(a, wanted, schedule)
    return total


def _slice_bytes(node: Node, spot: Spot, schedule: Schedule) -> int:
    n = node.nbytes
    for loop, axis in zip(schedule.loops, spot, strict=True):
        if axis is not None:
            n = n // loop.size * loop.rows
    return n


def level_of(spot: Spot) -> int:
    """The number of loops around a value that runs along ``spot``."""
    return max((i + 1 for i, a in enumerate(spot) if a is not None), default=0)


def wanted_spots(node: Node, spot: Spot) -> list[Spot]:
    """For each argument of ``node`` the slice that the slice ``spot`` of it reads."""
    columns = []
    for axis in spot:
        found = None if axis is None else argument_axes(node, axis)
        columns.append(found if found is not None else [None] * len(node.args))
    return [tuple(c[i] for c in columns) for i in range(len(node.args))]


@dataclass
class _Layout:
    """Spots and levels of a body for loops over ``axes`` of its result."""

    body: Body
    axes: tuple[int, ...]
    over: Node | None
    spots: dict[Node, Spot] = field(default_factory=dict)
    whole: Node | None = None

    def __post_init__(self) -> None:
        self._place()
        self.whole = next((n for n in self.body.nodes if self._can_be_whole(n)), None)
        if self.whole is not None:
            self._place()

    def _place(self) -> None:
        """Spots from the result down. What two users want differently is needed whole."""
        asked: dict[Node, set[Spot]] = {self.body.root: {self.axes}}
        self.spots = {}
        for n in reversed(self.body.nodes):
            spot = self._meet(asked[n])
            if n is self.whole:
                spot = (None,) * len(self.axes)
            spot = tuple(
                a if a is not None and argument_axes(n, a) is not None else None
                for a in spot
            )
            self.spots[n] = spot
            for a, wanted in zip(n.args, wanted_spots(n, spot), strict=True):
                if isinstance(a, Node):
                    asked.setdefault(a, set()).add(wanted)
        for n in asked:
            if n.op is None:
                self.spots[n] = (None,) * len(self.axes)

    def _meet(self, asked: set[Spot]) -> Spot:
        first, *rest = asked
        return tuple(
            a if all(r[i] == a for r in rest) else None for i, a in enumerate(first)
        )

    def _can_be_whole(self, n: Node) -> bool:
        """A product with an unsliced right side, whose epilogue can replace it in place."""
        root = self.body.root
        if n.name != "matmul" or n is root or not self.axes:
            return False
        if (n.shape, n.dtype) != (root.shape, root.dtype) or self.spots[n] != self.axes:
            return False
        if any(a is not None for a in wanted_spots(n, self.axes)[1]):
            return False
        users = self.body.users()[n]
        alone = all(self._reads(u, n) == {self.axes} for u in users)
        direct = root.is_pointwise and not any(u.is_view for u in users)
        return alone and direct and all(_is_given(a) for a in n.nodes)

    def _reads(self, user: Node, n: Node) -> set[Spot]:
        wanted = wanted_spots(user, self.spots[user])
        return {w for a, w in zip(user.args, wanted, strict=True) if a is n}

    def pays(self) -> bool:
        """Whether the innermost loop cuts most of what the loops around it compute."""
        if self.spots[self.body.root] != self.axes:
            return False
        inside = outside = 0
        for n in self.body.nodes:
            *before, last = self.spots[n]
            if n.is_view or n is self.whole or (before and set(before) == {None}):
                continue
            each = n.nbytes
            for axis in before:
                each //= 1 if axis is None else n.shape[axis]
            inside, outside = (
                (inside, outside + each) if last is None else (inside + each, outside)
            )
        return outside <= max(CACHE_BYTES, inside // 3)

    def least_rows(self) -> int:
        """Indices of the innermost loop that give a product its full speed."""
        least = 1
        for n in self.body.nodes:
            if n.name == "matmul" and n is not self.whole:
                spot, right = self.spots[n], n.nodes[1]
                sliced = spot[-1] is not None and spot[-1] < len(n.shape) - 1
                if sliced and wanted_spots(n, spot)[1] == (None,) * len(spot):
                    if right.nbytes >= CACHE_BYTES:
                        least = max(least, self._rows_for(n, GEMM_ROWS))
        return least

    def _rows_for(self, n: Node, rows: int) -> int:
        spot = self.spots[n]
        each = n.size // n.shape[-1]
        for axis in spot:
            if axis is not None:
                each //= n.shape[axis]
        return -(-rows // max(each, 1))

    def level(self, n: Node) -> int:
        """The number of loops around ``n``."""
        return level_of(self.spots[n])

    def schedule(self, rows: int) -> Schedule:
        """The schedule with blocks of ``rows`` indices in the innermost loop."""
        shape = self.body.root.shape
        inner = len(self.axes) - 1
        loops = tuple(
            Loop(a, shape[a], rows if i == inner else 1) for i, a in enumerate(self.axes)
        )
        levels = tuple(
            tuple(n for n in self.body.nodes if self.level(n) == i)
            for i in range(len(loops) + 1)
        )
        store, registers = allocate(self, loops, levels)
        return Schedule(loops, self.spots, levels, store, registers, self.whole)


def _is_given(node: Node) -> bool:
    """Whether a value is a leaf or only views of one."""
    while node.is_view:
        (node,) = node.nodes
    return node.op is None


def allocate(
    layout: _Layout, loops: Sequence[Loop], levels: Sequence[Sequence[Node]]
) -> tuple[dict[Node, Register | None], tuple[Register, ...]]:
    """A place for each computed node, taken over when its value is read for the last time."""
    return _Allocation(layout, loops, levels).run()


class _Allocation:
    def __init__(
        self, layout: _Layout, loops: Sequence[Loop], levels: Sequence[Sequence[Node]]
    ) -> None:
        self.layout = layout
        self.loops = loops
        self.root = layout.body.root
        self.order = [n for level in levels for n in level]
        self.position = {n: i for i, n in enumerate(self.order)}
        self.last = self._last_uses()
        self.store: dict[Node, Register | None] = {}
        self.registers: list[Register] = []
        self.free: list[Register] = []
        self.in_out: Node | None = layout.over
        """The value that the result holds, if any."""

    def run(self) -> tuple[dict[Node, Register | None], tuple[Register, ...]]:
        for n in self.order:
            if n is self.layout.whole:
                self.store[n] = OUT
                self.in_out = n
            elif not n.is_view:
                self._put(n)
            self._release(n)
        return self.store, tuple(self.registers)

    def _last_uses(self) -> dict[Node, int]:
        """The position after which nothing reads a value, through views or not."""
        last: dict[Node, int] = {}
        end = len(self.order)
        for n in self.order:
            for a in n.nodes:
                owner = self._owner(a)
                deeper = self.layout.level(n) > self.layout.level(owner)
                kept = owner is self.layout.whole or owner.op is None
                at = end if deeper and not kept else self.position[n]
                last[owner] = max(last.get(owner, -1), at)
        return last

    def _owner(self, node: Node) -> Node:
        while node.is_view:
            (node,) = node.nodes
        return node

    def _put(self, n: Node) -> None:
        dying = [a for a in dict.fromkeys(n.nodes) if self._dies_into(a, n)]
        if n is self.root or self._can_use_out(n):
            self.store[n] = OUT
            self.in_out = n
            return
        for a in dying:
            place = self.store.get(a)
            if place is not None and self._same(place, self._register(n)):
                self.store[n] = place
                del self.last[a]
                return
        mine = self._register(n)
        for r in self.free:
            if self._same(r, mine):
                self.free.remove(r)
                self.store[n] = r
                return
        self.registers.append(mine)
        self.store[n] = mine

    def _dies_into(self, a: Node, n: Node) -> bool:
        """Whether a pointwise ``n`` may replace ``a`` element by element."""
        readers = [x for x in n.nodes if self._owner(x) is a]
        return (
            n.is_pointwise
            and self.last.get(a) == self.position[n]
            and all(x is a for x in readers)
            and bool(readers)
        )

    def _can_use_out(self, n: Node) -> bool:
        root, layout = self.root, self.layout
        if (n.shape, n.dtype) != (root.shape, root.dtype):
            return False
        if layout.spots[n] != layout.axes:
            return False
        held = self.in_out
        if held is not None and self.last.get(held, -1) >= self.position[n]:
            if not self._dies_into(held, n):
                return False
        end = self.position[root]
        if self.last[n] < end:
            return True
        readers = [x for x in root.nodes if self._owner(x) is n]
        return root.is_pointwise and all(x is n for x in readers)

    def _register(self, n: Node) -> Register:
        spot = self.layout.spots[n]
        shape = list(n.shape)
        for loop, axis in zip(self.loops, spot, strict=True):
            if axis is not None:
                shape[axis] = loop.rows
        return Register(self.layout.level(n), spot, tuple(shape), n.dtype)

    def _same(self, a: Register, b: Register) -> bool:
        return (a.level, a.spot, a.shape, a.dtype) == (b.level, b.spot, b.shape, b.dtype)

    def _release(self, n: Node) -> None:
        for a in dict.fromkeys(self._owner(x) for x in n.nodes):
            place = self.store.get(a)
            if place is not None and self.last.get(a) == self.position[n]:
                if place is not self.store.get(n):
                    self.free.append(place)
