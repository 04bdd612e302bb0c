"""Blocks: the loops of a kernel, and the arrays that a turn of them needs.

A kernel with intermediates runs over blocks of its result, so that they stay in cache.
Axes are taken from the left: a loop runs over single indices until what remains of one
fits :data:`CACHE_BYTES`, and the innermost loop over as many indices at once as fit. A
node that does not depend on a loop is computed before it.

Measured on a Xeon, 2 cores with 2 MiB of L2 each (float32, median of 9, ms), by room:

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

Small blocks lose to the cost of calls, large ones to cache misses; one block does well
here because the third-level cache has 260 MiB. A product by weights is not cut where
its epilogue can run in place: 512×768×3072 takes 30.9, 17.4 and 12.7 ms in blocks of
16, 64 and 256 rows, and 12.3 ms whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from .block_slices import BlockSlices, Spot, wanted_spots
from .kernel_nodes import BodyNode, NodeBody
from .registers import BlockLoop, Place, Register, allocate

CACHE_BYTES = 1 << 20
"""Room for the arrays of a block: intermediates, slices of arguments and result."""
GEMM_ROWS = 256
"""Rows from which a product by a large matrix is fast: it is packed each time."""


@dataclass(frozen=True)
class Schedule:
    """How a body runs."""

    layout: BlockSlices
    loops: tuple[BlockLoop, ...]
    levels: tuple[tuple[BodyNode, ...], ...]
    """Nodes computed before all loops, in the first loop, and so on."""
    store: dict[BodyNode, Place]
    """Where a computed node is kept."""

    @property
    def registers(self) -> tuple[Register, ...]:
        """The arrays to allocate, in the order of their first use."""
        places = (p for p in self.store.values() if isinstance(p, Register))
        return tuple(dict.fromkeys(places))

    @property
    def scratch_bytes(self) -> int:
        """Memory of all registers (bytes)."""
        return sum(r.form.nbytes for r in self.registers)


def schedule(body: NodeBody, over: BodyNode | None = None) -> Schedule:
    """Loops and places for ``body``; ``over`` is a leaf that the result overwrites."""
    best = _scheduled(BlockSlices(body, (), over), 1)
    computed = [n for n in body.nodes if not n.is_view]
    if len(computed) < 2 or not all(n.size for n in body.nodes):
        return best
    if _working_set(best) <= CACHE_BYTES:
        return best
    axes: tuple[int, ...] = ()
    for axis, size in enumerate(body.root.shape):
        layout = BlockSlices(body, (*axes, axis), over)
        if layout.whole is not None and layout.inner_cost()[0] < 2:
            return best
        if size == 1 or not _pays(layout):
            continue
        axes, outer = layout.axes, best
        best = _scheduled(layout, 1)
        one = max(1, _working_set(best))
        room = max(CACHE_BYTES, one * _least_rows(layout))
        if room // one >= size and outer.loops:
            return outer
        if 2 * one <= room:
            return _scheduled(layout, _even(size, room // one))
    return best


def _scheduled(layout: BlockSlices, rows: int) -> Schedule:
    """The schedule with ``rows`` indices a turn in the innermost loop, else 1."""
    shape, inner = layout.body.root.shape, len(layout.axes) - 1
    loops = tuple(
        BlockLoop(a, shape[a], rows if i == inner else 1)
        for i, a in enumerate(layout.axes)
    )
    levels = tuple(
        tuple(n for n in layout.body.nodes if layout.level(n) == i)
        for i in range(len(loops) + 1)
    )
    order = [n for level in levels for n in level]
    return Schedule(layout, loops, levels, allocate(layout, loops, order))


def _pays(layout: BlockSlices) -> bool:
    """Whether the innermost loop cuts most of what the loops around it compute."""
    if layout.spots[layout.body.root] != layout.axes:
        return False
    count, cut, kept = layout.inner_cost()
    return count > 1 and kept <= max(CACHE_BYTES, cut // 3)


def _least_rows(layout: BlockSlices) -> int:
    """Indices a turn that keep products by large matrices fast."""
    least = 1
    for n in layout.body.nodes:
        if n.name == "matmul" and n is not layout.whole:
            _, right = wanted_spots(n, layout.spots[n])
            fixed = set(right) == {None} and layout.spots[n][-1] is not None
            if fixed and n.nodes[1].nbytes >= CACHE_BYTES:
                least = max(least, -(-GEMM_ROWS // layout.rows_each(n)))
    return least


def _even(size: int, most: int) -> int:
    """Rows of a block, at most ``most``: a divisor of ``size`` where one is near."""
    most = min(size, most)
    for rows in range(most, most // 2, -1):
        if size % rows == 0:
            return rows
    return -(-size // -(-size // most))


def _working_set(plan: Schedule) -> int:
    """Bytes touched by one turn of the innermost loop."""
    spots, level = plan.layout.spots, len(plan.loops)
    root = plan.layout.body.root
    read: dict[tuple[BodyNode, Spot], None] = {(root, spots[root]): None}
    for n in plan.levels[-1]:
        for a, wanted in zip(n.args, wanted_spots(n, spots[n]), strict=True):
            if isinstance(a, BodyNode) and a.op is None:
                if not level or wanted[-1] is not None:
                    read[a, wanted] = None
    total = sum(r.form.nbytes for r in plan.registers if r.form.level == level)
    return total + sum(_slice_bytes(n, spot, plan.loops) for n, spot in read)


def _slice_bytes(node: BodyNode, spot: Spot, loops: tuple[BlockLoop, ...]) -> int:
    size = node.nbytes
    for loop, axis in zip(loops, spot, strict=True):
        if axis is not None:
            size = size // loop.size * loop.rows
    return size
