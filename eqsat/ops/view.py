"""Views: the same elements in another arrangement. Inside a kernel they are index maps.

Views have one normal form, so that equal views are equal terms: attributes tell of
trailing axes only, counted from the end, and a view that changes nothing makes no node.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eqsat.ops.support import (
    as_int,
    is_traced,
    known_rank,
    known_sizes,
    negative_axis,
    node,
    rank,
    sizes,
)
from eqsat.support import ShapeError, TraceError, at, caller_line, counted
from eqsat.terms import (
    AttrVar,
    Ints,
    Joined,
    Op,
    Permuted,
    Sliced,
    ToShape,
    Traced,
    broadcast,
    normal_axes,
    op,
)

# -- derivatives -----------------------------------------------------------------------


def _by_reshape(g: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    return g if isinstance(g, float) else reshape(g, x.shape)


def _by_broadcast(g: Any, x: Any, y: Any, shape: tuple[int, ...]) -> Any:
    return g


def _by_transpose(g: Any, x: Any, y: Any, perm: tuple[int, ...]) -> Any:
    return permute(g, [perm.index(a) - len(perm) for a in range(-len(perm), 0)])


def _by_slice(
    g: Any, x: Any, y: Any, starts: Sequence[int], sizes: Any, steps: Sequence[int]
) -> Any:
    back = [s < 0 for s in steps]
    g = flip(g, [a for a, b in enumerate(back, -len(back)) if b])
    g = spread(g, [abs(s) for s in steps])
    ends = zip(starts, sizes, steps, back, strict=True)
    low = [start + (n - 1) * step if b and n else start for start, n, step, b in ends]
    rows = zip(low, g.shape[-len(low) :], x.shape[-len(low) :], strict=True)
    return node("pad", g, 0, low=low, high=[n - a - m for a, m, n in rows])


def spread(x: Any, steps: Sequence[int]) -> Any:
    """``x`` with zeros between its elements, which are then ``steps`` apart along the
    trailing axes."""
    for a, step in enumerate(steps, -len(steps)):
        if step > 1 and x.shape[a] > 1:
            tail = x.shape[a + 1 :] if a + 1 else ()
            head, n = x.shape[:a], x.shape[a]
            pairs = reshape(x, (*head, n, 1, *tail))
            none = (0,) * len(tail)
            pairs = node("pad", pairs, 0, low=(0, *none), high=(step - 1, *none))
            whole = reshape(pairs, (*head, n * step, *tail))
            x = window(whole, (0, *none), ((n - 1) * step + 1, *tail))
    return x


def _by_concatenate(g: Any, *arrays: Any, axis: int, which: int) -> Any:
    parts = arrays[:-1]
    start = sum(p.shape[axis] for p in parts[:which])
    return _part(g, axis, start, start + parts[which].shape[axis])


# -- nodes -----------------------------------------------------------------------------


def _same_size(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return math.prod(old) == math.prod(new)


def _broadcasts(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return broadcast(old, new) == new


@op(ToShape(check=_same_size), kind="view", name="reshape", flops=0, vjp=_by_reshape)
def reshape_op(x: Any, *, shape: Ints) -> Any:
    """The elements of x in C order, in another shape of as many elements."""
    return np.reshape(x, shape)


@op(
    ToShape(check=_broadcasts),
    kind="view",
    name="broadcast_to",
    flops=0,
    vjp=_by_broadcast,
)
def broadcast_to_op(x: Any, *, shape: Ints) -> Any:
    """x repeated along axes that it lacks or where its size is 1."""
    return np.broadcast_to(x, shape)


@op(Permuted(), kind="view", name="transpose", flops=0, vjp=_by_transpose)
def transpose_op(x: Any, *, perm: Ints) -> Any:
    """The trailing axes in the order of perm: y.shape[-n + i] = x.shape[perm[i]]."""
    lead = np.ndim(x) - len(perm)
    return np.transpose(x, (*range(lead), *(p + np.ndim(x) for p in perm)))


@op(Sliced(), kind="view", name="slice", flops=0, vjp=_by_slice)
def slice_op(x: Any, *, starts: Ints, sizes: Ints, steps: Ints) -> Any:
    """Elements start, start + step, … of the trailing axes; a step may be negative."""
    return x[(..., *map(_slice, starts, sizes, steps))]


@op(
    Joined(),
    kind="view",
    name="concatenate",
    flops=0,
    variadic=True,
    vjp=_by_concatenate,
)
def concatenate_op(*arrays: Any, axis: int) -> Any:
    """The arrays one after the other along a negative axis."""
    return np.concatenate(arrays, axis=axis)


VIEWS: frozenset[Op] = frozenset([reshape_op, broadcast_to_op, transpose_op, slice_op])
"""Ops that map indices. A reshape is a view where strides allow it, else a kernel."""


def _slice(start: int, size: int, step: int) -> slice:
    stop = start + size * step
    return slice(start, None if stop < 0 else stop, step)


# -- shape -----------------------------------------------------------------------------


def reshape(x: Any, shape: Any) -> Any:
    """``x`` in another shape, in C order; one size may be -1."""
    new = _shape(shape)
    if not is_traced(x):
        return np.reshape(x, new)
    if isinstance(new, AttrVar):
        return reshape_op(x, shape=new)
    old = sizes(x)
    if any(not isinstance(s, AttrVar) and s < 0 for s in new):
        new = _inferred(known_sizes("reshape", x), new)
    return x if old == new else reshape_op(x, shape=new)


def _shape(shape: Any) -> Any:
    """A shape given as one size or several; a pattern's symbols stay as they are, also
    one that is a whole shape."""
    if isinstance(shape, AttrVar) and shape.is_tuple:
        return shape
    given = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(s if isinstance(s, AttrVar) else operator.index(s) for s in given)


def _inferred(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """``new`` with the size that is -1 filled in."""
    rest = math.prod(s for s in new if s != -1)
    whole = math.prod(old)
    symbol = next((s for s in (*old, *new) if isinstance(s, AttrVar)), None)
    if symbol is not None and new.count(-1) == 1:
        return tuple(symbol.quotient(whole, rest) if s == -1 else s for s in new)
    if new.count(-1) > 1 or rest <= 0 or whole % rest:
        raise ShapeError(
            f"reshape: shape {old} of {counted(whole, 'element')} cannot become {new}"
            f"{at(caller_line())}"
        )
    return tuple(whole // rest if s == -1 else s for s in new)


def broadcast_to(x: Any, shape: Any) -> Any:
    """``x`` repeated along axes that it lacks or that have size 1, up to ``shape``."""
    new = _shape(shape)
    if not is_traced(x):
        return np.broadcast_to(x, new)
    return x if sizes(x) == new else broadcast_to_op(x, shape=new)


def expand_dims(x: Any, axis: int | Sequence[int]) -> Any:
    """``x`` with axes of size 1 at the places ``axis`` of the result."""
    if not is_traced(x):
        return np.expand_dims(x, axis)
    old = list(known_sizes("expand_dims", x))
    added = axis if isinstance(axis, Sequence) else (axis,)
    ndim = len(old) + len(added)
    new = normal_axes("expand_dims", added, ndim)
    return reshape(x, [1 if a in new else old.pop(0) for a in range(-ndim, 0)])


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """``x`` without axes of size 1: those of ``axis``, or all."""
    if not is_traced(x):
        return np.squeeze(x, axis if isinstance(axis, int | None) else tuple(axis))
    old = known_sizes("squeeze", x)
    ndim = len(old)
    if axis is None:
        return reshape(x, [s for s in old if s != 1])
    if ndim == 0 and axis in (0, -1):
        return x
    gone = normal_axes("squeeze", axis, ndim)
    for a in gone:
        if old[a] != 1:
            raise ShapeError(
                f"squeeze: axis {a} of shape {old} has size {old[a]}, not 1"
                f"{at(caller_line())}"
            )
    return reshape(x, [s for a, s in enumerate(old, -ndim) if a not in gone])


def ravel(x: Any) -> Any:
    """``x`` with one axis, in C order."""
    return reshape(x, (-1,)) if is_traced(x) else np.ravel(x)


# -- order of the axes -----------------------------------------------------------------


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """``x`` with its axes in the order ``axes``; reversed by default."""
    if not is_traced(x):
        return np.transpose(x, axes)
    ndim = rank(x)
    if isinstance(axes, AttrVar):
        return transpose_op(x, perm=axes)
    if axes is None:
        axes = range(known_rank("transpose", x) - 1, -1, -1)
    axes = axes if isinstance(axes, Sequence) else (axes,)
    if ndim is not None and len(axes) != ndim:
        raise ShapeError(
            f"transpose: axes {tuple(axes)} for {counted(ndim, 'dimension')}"
            f"{at(caller_line())}"
        )
    return permute(x, [negative_axis("transpose", a, ndim) for a in axes])


def permute(x: Any, perm: Sequence[int]) -> Any:
    """``x`` with its trailing axes in the order of ``perm``, negative numbers."""
    perm = tuple(perm)
    while perm and perm[0] == -len(perm):
        perm = perm[1:]
    return transpose_op(x, perm=perm) if perm else x


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """``x`` with two axes exchanged."""
    if not is_traced(x):
        return np.swapaxes(x, axis1, axis2)
    ndim = rank(x)
    a, b = (negative_axis("swapaxes", i, ndim) for i in (axis1, axis2))
    swap = {a: b, b: a}
    return permute(x, [swap.get(i, i) for i in range(min(a, b), 0)])


def matrix_transpose(x: Any) -> Any:
    """xᵀ over the last two axes, as ``x.mT``."""
    ndim = rank(x)
    if ndim is not None and ndim < 2:
        raise ShapeError(
            f"matrix_transpose: {counted(ndim, 'dimension')}, needs 2"
            f"{at(caller_line())}"
        )
    return swapaxes(x, -1, -2)


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """``x`` with the axes ``source`` at the places ``destination``."""
    if not is_traced(x):
        return np.moveaxis(x, source, destination)
    ndim = known_rank("moveaxis", x)
    from_, to = (
        [
            negative_axis("moveaxis", a, ndim)
            for a in (s if isinstance(s, Sequence) else [s])
        ]
        for s in (source, destination)
    )
    if len(from_) != len(to) or len({*from_}) != len(from_) or len({*to}) != len(to):
        raise ShapeError(
            f"moveaxis: {source} to {destination}: needs as many axes, each once"
            f"{at(caller_line())}"
        )
    place = dict(zip(to, from_, strict=True))
    rest = iter([a for a in range(-ndim, 0) if a not in from_])
    return permute(x, [place[a] if a in place else next(rest) for a in range(-ndim, 0)])


# -- parts and joins -------------------------------------------------------------------


def window(
    x: Any,
    starts: Sequence[Any],
    extents: Sequence[Any],
    steps: Sequence[int] | None = None,
) -> Any:
    """``extents`` elements of the trailing axes from ``starts`` on, ``steps`` apart.

    An empty window starts at 0 and one of a single element has step 1, so that equal
    windows are equal terms.
    """
    steps = steps or (1,) * len(starts)
    rows: list[tuple[Any, Any, int]] = [
        (0 if size == 0 else start, size, 1 if size in (0, 1) else step)
        for start, size, step in zip(starts, extents, steps, strict=True)
    ]
    shape = sizes(x)
    while shape is not None and rows and rows[0] == (0, shape[-len(rows)], 1):
        del rows[0]
    if not rows:
        return x
    first, extent, step = zip(*rows, strict=True)
    return slice_op(x, starts=first, sizes=extent, steps=step)


def flip(x: Any, axis: Any = None) -> Any:
    """``x`` in reverse order along ``axis``, all axes by default."""
    if not is_traced(x):
        return np.flip(x, axis)
    shape = known_sizes("flip", x)
    axes = normal_axes("flip", axis, len(shape))
    back = [a in axes for a in range(-len(shape), 0)]
    starts = [s - 1 if b else 0 for s, b in zip(shape, back, strict=True)]
    return window(x, starts, shape, [-1 if b else 1 for b in back])


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """``x`` moved by ``shift`` places along ``axis``, cyclically."""
    if not is_traced(x):
        return np.roll(x, shift, axis)
    shape = known_sizes("roll", x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), shape)
    moves = np.broadcast(shift, axis)
    if moves.ndim > 1:
        raise ShapeError(
            f"roll: shift and axis of {moves.ndim} axes, expected numbers or lists of "
            f"them{at(caller_line())}"
        )
    for by, a in moves:
        k = negative_axis("roll", a, len(shape))
        n = shape[k]
        cut = n - int(by) % n if n else 0
        if cut not in (0, n):
            x = concatenate([_part(x, k, cut, n), _part(x, k, 0, cut)], k)
    return x


def _part(x: Any, axis: int, start: Any, stop: Any) -> Any:
    """``x[start:stop]`` along a negative axis."""
    shape = known_sizes("slice", x)[axis:]
    return window(
        x,
        (start, *(0 for _ in shape[1:])),
        (stop - start, *shape[1:]),
        (1,) * len(shape),
    )


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    """The arrays one after the other along ``axis``; ravelled when it is None."""
    if not is_traced(*arrays):
        return np.concatenate(arrays, axis)
    if axis is None:
        return concatenate([ravel(a) for a in arrays])
    ndim = rank(next(a for a in arrays if isinstance(a, Traced)))
    k = negative_axis("concatenate", axis, ndim)
    return arrays[0] if len(arrays) == 1 else concatenate_op(*arrays, axis=k)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """The arrays along a new axis at the place ``axis`` of the result."""
    if not is_traced(*arrays):
        return np.stack(arrays, axis)
    shapes = {known_sizes("stack", a) for a in arrays}
    if len(shapes) > 1:
        raise ShapeError(f"stack: shapes {sorted(shapes)} differ{at(caller_line())}")
    k = negative_axis("stack", axis, len(shapes.pop()) + 1)
    return concatenate([expand_dims(a, k) for a in arrays], k)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """``x`` in equal parts, or cut before the given indices, along ``axis``."""
    if not is_traced(x):
        return np.split(x, indices_or_sections, axis)
    n = known_sizes("split", x)[negative_axis("split", axis, rank(x))]
    count = as_int(indices_or_sections)
    if isinstance(n, AttrVar) and count is not None:
        each = n.quotient(n, count)
        return _cut(x, axis, [*(i * each for i in range(count)), n])
    if count is not None and n % max(count, 1):
        raise ShapeError(
            f"split: array split of {n} in {count} does not result in an "
            f"equal division{at(caller_line())}"
        )
    return array_split(x, indices_or_sections, axis)


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """``x`` in parts that differ by at most 1, or cut before the given indices."""
    if not is_traced(x):
        return np.array_split(x, indices_or_sections, axis)
    k = negative_axis("split", axis, rank(x))
    n = known_sizes("split", x)[k]
    count = as_int(indices_or_sections)
    if isinstance(n, AttrVar) and count is None:
        return _cut(x, axis, [0, *indices_or_sections, n])
    if count is not None:
        if count < 1:
            raise ShapeError(
                f"split: number sections must be larger than 0{at(caller_line())}"
            )
        each, more = divmod(n, count)
        cuts = [i * each + min(i, more) for i in range(count + 1)]
    else:
        cuts = [0, *(int(i) for i in indices_or_sections), n]
    ranges = [range(n)[a:b] for a, b in itertools.pairwise(cuts)]
    return [_part(x, k, r.start, r.start + len(r)) for r in ranges]


def _cut(x: Any, axis: int, cuts: Sequence[Any]) -> list[Any]:
    """``x`` cut at places of which some are symbols."""
    k = negative_axis("split", axis, rank(x))
    for a, b in itertools.pairwise(cuts):
        cuts[-1].grant("<=", a, b)
    return [_part(x, k, a, b) for a, b in itertools.pairwise(cuts)]


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Every element ``repeats`` times along ``axis``, one int; ravelled by default."""
    if not is_traced(x):
        return np.repeat(x, repeats, axis)
    known = not is_traced(repeats) or getattr(repeats, "has_value", False)
    if not known or np.size(repeats) != 1:
        raise TraceError(
            f"repeat: repeats must be one int, got {repeats!r}{at(caller_line())}"
        )
    repeats = operator.index(np.asarray(repeats).item())
    if repeats < 0:
        raise ShapeError(f"repeat: repeats={repeats} is negative{at(caller_line())}")
    shape = known_sizes("repeat", x)
    if axis is None or (not shape and axis in (0, -1)):
        return repeat(ravel(x), repeats, 0)
    k = len(shape) + negative_axis("repeat", axis, len(shape))
    y = broadcast_to(expand_dims(x, k + 1), (*shape[: k + 1], repeats, *shape[k + 1 :]))
    return reshape(y, (*shape[:k], shape[k] * repeats, *shape[k + 1 :]))


def tile(x: Any, reps: int | Sequence[int]) -> Any:
    """``x`` as a whole repeated ``reps`` times along each trailing axis."""
    if not is_traced(x):
        return np.tile(x, reps)
    times = tuple(reps) if isinstance(reps, Sequence) else (reps,)
    shape = known_sizes("tile", x)
    n = max(len(shape), len(times))
    shape = (1,) * (n - len(shape)) + shape
    times = (1,) * (n - len(times)) + times
    apart = [s for size in shape for s in (1, size)]
    full = [s for pair in zip(times, shape, strict=True) for s in pair]
    y = broadcast_to(reshape(x, apart), full)
    return reshape(y, [t * s for t, s in zip(times, shape, strict=True)])
