"""How nests are cut for a processor: vectors, steps of several, and units of work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from eqsat.support import kept_by_first

from ...loop_ir import (
    Accumulate,
    Affine,
    Compute,
    DType,
    Gather,
    Keep,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Unsupported,
    is_function,
    over,
)
from ..machine import COMMON, Host, aligned, memory_type
from . import elementwise
from .accumulators import reducer

CAREFUL = 8
"""Additions in a row, after which a partial sum is carried over."""


@dataclass(frozen=True)
class Shape:
    """How a nest is cut for one host."""

    lanes: int
    unroll: int
    units: int
    """What a call's ``start`` and ``stop`` count."""
    keep_bytes: int
    """Memory of one thread for what passes keep."""


@kept_by_first
def shape_of(nest: Nest, host: Host) -> Shape:
    """How ``nest`` is cut."""
    width = _no_longer_than_a_row(nest, lanes(nest, host), host)
    most = max((len(p.body) for p in nest.passes), default=0)
    heavy, vectors = most > host.tuning.light_statements, host.tuning.unroll
    unroll = 1 if heavy else vectors
    if is_wide(nest):
        last = nest.grid[-1].size
        panel = panel_of(nest)
        units = nest.rows // last * -(-last // panel)
        states = sum(
            reducer(s, s.dtype, host).parts * aligned(s.dtype.itemsize * panel)
            for s in sums(nest)
        )
        return Shape(width, vectors, units, states)
    if nest.vertical:  # whole cache lines of each row, whatever the work
        unroll = vectors if heavy or waits(nest) else 2 * vectors
        last = nest.grid[-1].size
        units = nest.rows // last * sum(split(last, width, unroll))
    else:
        units = nest.rows * blocks(nest) // prod(v.size for v in nest.ordered)
        if (ahead := stretch(nest, host)) is not None:
            units //= prod(v.size for v in ahead.inner[:-1])
    apart = width * unroll if nest.vertical else 1
    keeps = sum(aligned(d.itemsize * n * apart) for d, n in nest.keeps)
    return Shape(width, unroll, units, keeps)


def _no_longer_than_a_row(nest: Nest, width: int, host: Host) -> int:
    """``width``, or for a map of shorter rows through which vectors do not run on the
    power of 2 that fits in a row: two such vectors that overlap fill it."""
    if nest.vertical or not is_map(nest) or stretch(nest, host) is not None:
        return width
    (p,) = nest.passes
    row = p.loops[-1].size if p.loops else width
    return min(width, 1 << max(row.bit_length() - 1, 0))


def is_wide(nest: Nest) -> bool:
    """Whether the rows of a nest that lie side by side are reduced in panels: blocks of
    elements of all rows of the panel in turn, so that memory is read in order."""
    bodies = [p for p in nest.passes if p.body]
    if not nest.vertical or len(bodies) != 1 or nest.keeps:
        return False
    (p,) = bodies
    plain = all(s.position < 0 for s in sums(nest))
    stores = any(isinstance(s, (Store, Position)) for s in p.body)
    enough = nest.grid[-1].size >= COMMON.least_panel_width
    enough &= p.loops[-1].size >= CAREFUL
    beside = all(
        s.at.coefficient(nest.grid[-1]) in (0, 1) for s in p.body if isinstance(s, Load)
    )
    return bool(sums(nest)) and plain and not stores and enough and beside


def with_lane_axis(nest: Nest, host: Host) -> Nest:
    """The nest with lanes along its rows, where these are reduced, many, and shorter
    than a vector: distances of points in a plane, norms of quaternions. Also where
    functions of much work would run for single elements at the end of a short row, and
    where each element of a row waits for the one before it: then several rows are
    computed at once, an element of each in turn (running products of 1000 rows of 252
    float32 in 0.46 of the time)."""
    long = host.tuning.long_waiting_row
    if waits(nest) and nest.grid and nest.passes[0].loops[-1].size >= long:
        return replace(nest, vertical=True)
    several = nest.vertical or nest.chunk is not None or bool(nest.ordered)
    looks = any(isinstance(s, (Running, Gather, Scatter)) for s in nest.statements())
    if several or looks or is_map(nest):
        return nest
    side = replace(nest, vertical=True)
    row = max((prod(v.size for v in p.loops) for p in nest.passes), default=1)
    width = lanes(side, host)
    stores = [s.at for s in nest.statements() if isinstance(s, Store)]
    steps = {v: abs(stores[0].coefficient(v)) for v in nest.grid if v.size >= width}
    along = [v for v, step in steps.items() if step and step == min(steps.values())]
    writes = any(isinstance(s, Store) for p in nest.passes for s in p.body)
    most = host.tuning.short_row_vectors[not writes] * width
    ends = row < most and row % width > 1 and calls_functions(nest)
    if (row >= width and not ends) or not along:
        return nest
    rest = (v for v in nest.grid if v != along[-1])
    return replace(side, grid=(*rest, along[-1]))


def waits(nest: Nest) -> bool:
    """Whether elements of rows that do not lie side by side are made one from the
    other."""
    if not any(isinstance(s, Running) and s.is_ordered for s in nest.statements()):
        return False
    return not nest.vertical or not any(
        s.at.coefficient(nest.grid[-1]) == 1
        for s in nest.statements()
        if isinstance(s, (Load, Store))
    )


def calls_functions(nest: Nest) -> bool:
    """Whether a nest computes exponentials and their like."""
    return any(isinstance(s, Compute) and is_function(s.op) for s in nest.statements())


@dataclass(frozen=True)
class VectorRun:
    """What vectors of a map run on through, whose rows are shorter than they."""

    across: LoopVar
    """What follows each other from end to end."""
    inner: tuple[LoopVar, ...]
    """The variables of the grid inside of it, and that of the loop."""

    @property
    def variables(self) -> tuple[LoopVar, ...]:
        return self.across, *self.inner

    @property
    def size(self) -> int:
        """Elements of one value of ``across``."""
        return prod(v.size for v in self.inner)

    def cell(self, i: int) -> tuple[int, ...]:
        """What the variables are at element ``i`` from the first."""
        found = []
        for v in reversed(self.inner):
            i, at = divmod(i, v.size)
            found.append(at)
        return (i, *reversed(found))


@kept_by_first
def stretch(nest: Nest, host: Host) -> VectorRun | None:
    """What vectors of a map run on through: from row to row where rows are shorter than
    they, and from one small matrix to the next where it has too few rows for that."""
    if nest.vertical or nest.chunk is not None or nest.ranged or not is_map(nest):
        return None
    (p,) = nest.passes
    width = lanes(nest, host)
    if len(p.loops) != 1 or not 1 < p.loops[0].size < width:
        return None
    grid = list(nest.grid)
    inner: tuple[LoopVar, ...] = p.loops
    while grid:
        across = grid.pop()
        run = VectorRun(across, inner)
        vectors = run.size // gcd(run.size, width)
        few = vectors <= host.tuning.most_scattered or _writes_in_order(p, run)
        if vectors > host.tuning.most_written_out or not few:
            return None
        if across.size >= rows_of(run.size, width):
            return run
        inner = (across, *inner)
    return None


def _writes_in_order(p: Pass, run: VectorRun) -> bool:
    """Whether what is stored lies one step apart from end to end of a run."""
    for at in (s.at for s in p.body if isinstance(s, Store)):
        step = at.coefficient(run.inner[-1])
        for v in reversed(run.variables):
            if at.coefficient(v) != step:
                return False
            step *= v.size
    return True


ANY = 1 << 40
"""Rows, or elements, of a nest of which calls say how many there are."""


@kept_by_first
def alike(nest: Nest, host: Host) -> Nest:
    """What nests with the same code have in common: of a map, the rows, which its calls
    count, may be more or fewer; and the elements of one that :func:`runs`."""
    special = nest.vertical or nest.chunk is not None or nest.ordered or nest.streamed
    by_place = any(isinstance(s, Gather | Position) for s in nest.statements())
    if special or by_place or not is_map(nest) or stretch(nest, host) is not None:
        return nest
    (p,) = nest.passes
    told = (*nest.grid, *(p.loops if nest.ranged else ()))[:1]
    if not told or told[0].size < 2:
        return nest
    (var,), any_turns = told, LoopVar(told[0].name, ANY)
    grid, loops = (
        tuple(any_turns if v == var else v for v in of) for of in (nest.grid, p.loops)
    )
    nest = replace(nest, grid=grid, passes=(replace(p, loops=loops),))
    return nest.changed(lambda s: over(s, {var: Affine.of(any_turns)}))


def runs(nest: Nest, host: Host) -> bool:
    """Whether a nest is a long loop of which threads take some elements, by the code of
    any such loop, longer or shorter."""
    if nest.grid or nest.ranged or blocks(nest) == 1:
        return False
    return alike(replace(nest, ranged=True), host).passes[0].loops[0].size == ANY


def rows_of(size: int, width: int) -> int:
    """The rows of ``size`` elements that fill whole vectors."""
    return width // gcd(size, width)


def overlaps(nest: Nest, size: int, width: int) -> bool:
    """Whether the last vector of a row may compute some elements of the one before it
    again, in the place of single elements."""
    if nest.aliased or nest.streamed or nest.ranged or nest.chunk is not None:
        return False
    once = is_map(nest) and blocks(nest) == 1
    return once and size > width and size % width > 1


def panel_of(nest: Nest) -> int:
    """Rows of a panel: as many as let each thread have one."""
    share = -(-nest.grid[-1].size // nest.threads)
    return min(aligned(share), COMMON.panel_width)


def at_once(nest: Nest, host: Host) -> int:
    """Elements of each row of a panel that are read before the next rows."""
    (first, *others), few = sums(nest), host.tuning.rows_at_once
    if others:
        return few
    if first.op in ("max", "min") and not fits_second_cache(nest):
        return host.tuning.far_extremes_at_once[nest.threads > 1]
    if exceeds_caches(nest):
        several = host.tuning.far_sums_at_once if nest.threads > 1 else few
        return 1 if host.tuning.foresees_reads else several
    in_order = nest.grid[
        -1
    ].size % host.tuning.in_order_width == 0 and fits_second_cache(nest)
    return 1 if first.op == "sum" and in_order else few


def fits_second_cache(nest: Nest) -> bool:
    """Whether what is read fits the second cache."""
    return read_bytes(nest) <= COMMON.second_cache_bytes


def exceeds_caches(nest: Nest) -> bool:
    """Whether no cache holds what is read."""
    return read_bytes(nest) > COMMON.far_bytes


def read_bytes(nest: Nest) -> int:
    """Bytes of memory that are read."""
    loads = (s for s in nest.statements() if isinstance(s, Load))
    return sum(bytes_of(s, nest) for s in loads)


def bytes_of(s: Load | Store, nest: Nest) -> int:
    """Bytes of memory that ``s`` reads or writes."""
    return prod(v.size for v in s.at.variables) * nest.buffers[s.buffer].dtype.itemsize


def sums(nest: Nest) -> list[Accumulate]:
    return [s for s in nest.statements() if isinstance(s, Accumulate)]


@kept_by_first
def lanes(nest: Nest, host: Host) -> int:
    """Elements in a vector: as many of the widest number as a register holds."""
    sizes = [1]
    for s in nest.statements() if nest.vertical else _of_elements(nest):
        if isinstance(s, (Gather, Load, Store)):
            sizes.append(nest.buffers[s.buffer].dtype.itemsize)
        if isinstance(s, (Gather, Load, Compute)) and s.dtype != np.dtype(bool):
            sizes.append(s.dtype.itemsize)
    widest = max(sizes)
    positions = any(isinstance(s, Position) for s in nest.statements())
    if (
        positions
        and widest == 8
        and all(b.dtype.itemsize <= 4 or b.written for b in nest.buffers)
    ):
        widest = 4
    found = max(host.vector_bits // (8 * widest), 1)
    for s in nest.statements():
        if isinstance(s, Running) and not nest.vertical:
            row = nest.passes[0].loops[0].size  # no longer than a row, of a power of 2
            found = min(found, 1 << row.bit_length() - 1)
    return 1 if waits(nest) or _only_scatters(nest) else found


def _only_scatters(nest: Nest) -> bool:
    """Whether elements are moved to places apart, as into the columns of a border: each
    is stored alone, and vectors of them are only more code."""
    bodies = [p for p in nest.passes if p.body]
    if nest.vertical or len(bodies) != 1 or not bodies[0].loops:
        return False
    (p,) = bodies
    stores = [s for s in p.body if isinstance(s, Store)]
    moves = all(isinstance(s, (Load, Store)) for s in p.body)
    # As many as lie apart may be woven into vectors.
    apart = [abs(s.at.coefficient(p.loops[-1])) for s in stores]
    return moves and bool(stores) and min(apart) > len(stores)


def _of_elements(nest: Nest) -> Iterator[Statement]:
    for p in nest.passes:
        yield from p.body


def split(size: int, lanes: int, unroll: int) -> tuple[int, int, int]:
    """Steps of several vectors, of one, and of one element."""
    many, rest = divmod(size, lanes * unroll)
    return many, *divmod(rest, lanes)


def is_map(nest: Nest) -> bool:
    """Whether the elements of all rows are independent, and may be computed twice."""
    others = (Accumulate, Running, Scatter)
    return len(nest.passes) == 1 and not any(
        isinstance(s, others) for s in nest.statements()
    )


def blocks(nest: Nest) -> int:
    """Units of one row."""
    loops = nest.passes[0].loops
    block = COMMON.map_block
    if nest.ranged or not is_map(nest) or len(loops) != 1 or loops[0].size < 2 * block:
        return 1
    return -(-loops[0].size // block)


def check(nest: Nest, host: Host) -> None:
    """Raise :class:`Unsupported` for a statement that has no code here."""
    dtypes: dict[int, DType] = {}
    for b in nest.buffers:
        memory_type(b.dtype)
    for s in nest.statements():
        if isinstance(s, Compute):
            _check_compute(s, dtypes)
        if isinstance(s, Running) and not elementwise.is_supported(
            s.op, s.dtype, s.dtype
        ):
            raise Unsupported(f"running {s.op} of {s.dtype}")
        if isinstance(s, Accumulate):
            of = dtypes[s.value]
            reducer(s, of, host)
            _check_joining(s, of)
        if not isinstance(s, (Keep, Store)):
            dtypes[s.target] = s.dtype


def _check_compute(s: Compute, dtypes: dict[int, DType]) -> None:
    of = dtypes[s.args[-1]]
    if not elementwise.is_supported(s.op, of, s.dtype):
        raise Unsupported(f"{s.op} of {of}")


def _check_joining(s: Accumulate, of: DType) -> None:
    dtypes = {0: of, 1: of}
    for inner in s.joining.body if s.joining is not None else ():
        if isinstance(inner, Compute):
            _check_compute(inner, dtypes)
        dtypes[inner.target] = inner.dtype
