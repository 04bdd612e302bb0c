"""Derivatives of convolutions, as other convolutions.

Of y[r] = Σᵢ x[r s + i d - p] w[i], along each of two axes: by w, a convolution of x
with the derivative g by y. By x, element u has g[r] w[i] of all r s + i d = u + p. A
stride s > 1 divides the elements into s *phases*, each of which only some elements of w
reach: one convolution of g for each of them, or one for all, with kernels for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.ops.position import pad, zeros_like
from eqsat.ops.support import node
from eqsat.ops.view import flip, reshape, spread, stack, swapaxes, transpose, window
from eqsat.terms import Ints

MOST_PHASES = 16
"""Convolutions that are worth the zeros they save."""
FEW_CHANNELS = 4
"""Those of an image up to which a convolution takes as long with kernels for four
phases as for one: gathering what is under them takes longer."""
WASTE = 1.4
"""How many times as many products make one convolution as fast as several."""


def by_kernels(
    g: Any,
    x: Any,
    w: Any,
    y: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    """A convolution of x with g, images as channels and channels as images."""
    if 0 in (*g.shape, *x.shape, *w.shape):
        return None
    each, *kernel = w.shape[1:]
    x, around = _under(x, kernel, g.shape[2:], (stride, padding, dilation))
    n, image = x.shape[0], x.shape[2:]
    parts = transpose(reshape(x, (n, groups, each, *image)), (2, 1, 0, 3, 4))
    parts = reshape(parts, (each, groups * n, *image))
    g = swapaxes(g, 0, 1)
    return swapaxes(_convolved(parts, g, groups, around, stride, dilation), 0, 1)


def _under(
    x: Any, kernel: Sequence[int], places: Sequence[int], attrs: Sequence[Ints]
) -> tuple[Any, Ints]:
    """What of x lies under kernels somewhere, and the padding around it. Where steps
    leave out rows or columns behind the last kernel, zeros are part of it."""
    rows = zip(x.shape[2:], kernel, places, *attrs, strict=True)
    behind = [n + 2 * p - d * (k - 1) - s * (m - 1) - 1 for n, k, m, s, p, d in rows]
    padding = attrs[1]
    if not any(behind):
        return x, padding
    ends = [p - b for p, b in zip(padding, behind, strict=True)]
    sizes = [n + min(e, 0) for n, e in zip(x.shape[2:], ends, strict=True)]
    widths = [(p, max(e, 0)) for p, e in zip(padding, ends, strict=True)]
    return pad(window(x, (0, 0), sizes), [(0, 0), (0, 0), *widths]), (0, 0)


def by_images(
    g: Any,
    x: Any,
    w: Any,
    y: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    """Convolutions of g with w, turned around, its channels exchanged."""
    if 0 in (*g.shape, *x.shape, *w.shape):
        return None
    o, each, *kernel = w.shape
    w = swapaxes(reshape(w, (groups, o // groups, each, *kernel)), 1, 2)
    rows = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    axes = [Axis(*row) for row in rows]
    if math.prod(stride) == 1:
        return _of_all(g, w, axes)
    waste = math.prod(a.waste for a in axes)
    few = each <= FEW_CHANNELS and waste < 4
    if all(a.d == 1 for a in axes) and (waste <= WASTE or few):
        return _merged(g, w, axes)
    count = math.prod(sum(map(bool, map(a.taps, range(a.s)))) for a in axes)
    if count <= MOST_PHASES:
        return _joined(g, w, axes)
    return _of_all(g, w, axes)


@dataclass(frozen=True)
class Axis:
    """How a convolution goes along an axis of an image."""

    n: int
    """Elements of the image."""
    k: int
    """Of the kernel."""
    s: int
    """Stride."""
    p: int
    """Padding."""
    d: int
    """Dilation."""

    @property
    def places(self) -> int:
        """Of each phase, up to some behind the image."""
        return -(-self.n // self.s)

    @property
    def front(self) -> int:
        """Zeros before a kernel with which phase 0 begins in element 0, where they do
        not make it longer."""
        zeros = -self.p % self.s
        return zeros if -(-(self.k + zeros) // self.s) == -(-self.k // self.s) else 0

    @property
    def reach(self) -> int:
        """Elements of a kernel of each phase, where all have as many."""
        return -(-(self.k + self.front) // self.s)

    @property
    def waste(self) -> float:
        """How many times as many elements these are."""
        return self.reach * self.s / self.k

    def taps(self, phase: int) -> range:
        """Elements of the kernel that reach elements of a phase."""
        apart = self.s // math.gcd(self.s, self.d)
        first = (i for i in range(apart) if (i * self.d - phase - self.p) % self.s == 0)
        return range(next(first, self.k), self.k, apart)


def _of_all(g: Any, w: Any, axes: Sequence[Axis]) -> Any:
    """All elements at once, from g with zeros between its elements."""
    apart = spread(g, [a.s for a in axes])
    parts = [(a.p, a.n, a.d) for a in axes]
    return _turned(apart, w, parts)


def _merged(g: Any, w: Any, axes: Sequence[Axis]) -> Any:
    """All phases at once, with kernels of one size."""
    groups, each, o, *_ = w.shape
    h, v = axes
    none = [(0, 0)] * 3
    w = pad(w, [*none, *((a.front, a.reach * a.s - a.k - a.front) for a in axes)])
    w = reshape(w, (groups, each, o, h.reach, h.s, v.reach, v.s))
    w = transpose(w, (0, 4, 6, 1, 2, 3, 5))
    w = reshape(w, (groups, h.s * v.s * each, o, h.reach, v.reach))
    # The first place of phase 0 lies at or before element 0.
    starts = [(a.p + a.front) // a.s for a in axes]
    rest = [(a.p + a.front) % a.s for a in axes]
    places = [-(-(a.n + r) // a.s) for a, r in zip(axes, rest, strict=True)]
    z = _turned(g, w, [(b, m, 1) for b, m in zip(starts, places, strict=True)])
    z = reshape(z, (len(g), groups, h.s, v.s, each, *places))
    z = _apart(z, h.s, v.s)
    wide = [m * a.s for m, a in zip(places, axes, strict=True)]
    z = reshape(z, (len(g), groups * each, *wide))
    return window(z, rest, [a.n for a in axes])


def _apart(z: Any, rows: int, columns: int) -> Any:
    """Phases, axes 2 and 3, interleaved along the last two."""
    n, groups, _, _, each, *places = z.shape
    if rows * columns > MOST_PHASES:
        return transpose(z, (0, 1, 4, 5, 2, 6, 3))
    one = (n, groups * each, *places)
    lines = []
    for i in range(rows):
        parts = [
            window(z, (i, j, 0, 0, 0), (1, 1, *z.shape[4:])) for j in range(columns)
        ]
        lines.append(_interleaved([reshape(p, one) for p in parts], -1))
    return _interleaved(lines, -2)


def _joined(g: Any, w: Any, axes: Sequence[Axis]) -> Any:
    """Phase by phase; those that no element of a kernel reaches are zeros."""
    h, v = axes
    lines = []
    for i in range(h.s):
        phases = [_phase(g, w, axes, (i, j)) for j in range(v.s)]
        lines.append(_interleaved(phases, -1))
    z = _interleaved(lines, -2)
    return window(z, (0, 0), [a.n for a in axes])


def _phase(g: Any, w: Any, axes: Sequence[Axis], at: Sequence[int]) -> Any:
    """One phase; None where it is zeros."""
    taps = [a.taps(i) for a, i in zip(axes, at, strict=True)]
    if not all(taps):
        return None
    starts, sizes, steps = zip(*((t.start, len(t), t.step) for t in taps), strict=True)
    parts = []
    for a, i, t in zip(axes, at, taps, strict=True):
        first = (i + a.p - t.start * a.d) // a.s
        parts.append((first, a.places, t.step * a.d // a.s))
    return _turned(g, window(w, starts, sizes, steps), parts)


def _interleaved(phases: Sequence[Any], axis: int) -> Any:
    """Elements of each of ``phases`` in turn along an axis; None for nothing."""
    found = [p for p in phases if p is not None]
    if not found:
        return None
    s, one = len(phases), found[0]
    whole = [*one.shape]
    whole[axis] *= s
    if len(found) > 1:
        parts = [zeros_like(one) if p is None else p for p in phases]
        return reshape(stack(parts, one.ndim + axis + 1), whole)
    at = one.ndim + axis + 1
    apart = reshape(one, (*one.shape[:at], 1, *one.shape[at:]))
    first = next(i for i, p in enumerate(phases) if p is not None)
    widths = [(0, 0)] * apart.ndim
    widths[at] = first, s - 1 - first
    return reshape(pad(apart, widths), whole)


def _turned(g: Any, w: Any, parts: Sequence[tuple[int, int, int]]) -> Any:
    """z[v] = Σⱼ g[v - j d] w[j] along each axis, for ``parts``: the first v, how many,
    and d. Kernels have axes groups, c/groups, o/groups, i, j."""
    groups, each, o, *kernel = w.shape
    w = flip(reshape(w, (groups * each, o, *kernel)), (-2, -1))
    firsts, sizes, dilation = zip(*parts, strict=True)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    rows = list(zip(g.shape[2:], firsts, sizes, reach, strict=True))
    around = tuple(max(0, r - a, a + m - n) for n, a, m, r in rows)
    z = _convolved(g, w, groups, around, dilation, (1, 1))
    starts = [b + a - r for (_, a, _, r), b in zip(rows, around, strict=True)]
    return window(z, starts, sizes)


def _convolved(
    x: Any, w: Any, groups: int, padding: Ints, dilation: Ints, stride: Ints
) -> Any:
    attrs = {"padding": padding, "dilation": dilation, "stride": stride}
    return node("conv2d", x, w, groups=groups, **attrs)
