"""Convolutions of each channel by itself, a channel in each lane: images and kernels
are brought into vectors of as many channels as a vector has lanes, and sums back into
the order of the result. No lane is empty because an image has few places, such as 7×7,
and none because places are two apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ...loop_ir import (
    Convolution,
    Layout,
)
from ..machine import Host
from ..products import LINE, GemmPlan, padded, tile
from . import kernel_lanes
from .lanes_code import LanesBlock

_PLACED, _BORDERED, _APART = 2.2, 8.3, 10.0
"""What vectors of places cost beside the products, each of which costs 1, and twice
that two places apart: to place a vector, to copy one with the zeros around the image,
and what else a channel takes. The numbers are the best for 54 convolutions of 3×3 to
112×112 places on a Zen 4; the faster way was chosen for all but one."""
_MULTIPLIED, _TURNED = 1.1, 7.3
"""What vectors of channels cost: a product, and a vector brought into their order or
back. Planes whose starts share a set of the first cache take twice that."""


def are_worth_it(p: Convolution, host: Host) -> bool:
    """Whether ``p`` is computed so and not with vectors of places."""
    w, lanes = p.window, tile(host, p.dtype).lanes
    of_channels = p.sizes[0] == p.channels == 1 and p.batch[1] >= lanes
    lies = w.image[0] == 1 or p.at[1].strides[-1] == w.image[1]
    if host.vector_bits < 512 or p.turned or not (of_channels and lies and w.area > 1):
        return False
    if any(w.padding) and not p.is_finite:
        return False
    (rows, across), size = w.places, p.y.dtype.itemsize
    high, wide = (n + 2 * pad for n, pad in zip(w.image, w.padding, strict=True))
    of_places = rows * -(-across // lanes) * (w.area * min(w.stride[1], 2) + _PLACED)
    of_places += high * -(-wide // lanes) * _BORDERED + _APART
    aliased = w.image[0] > 1 and p.at[1].strides[1] * size % host.tuning.set_bytes == 0
    turned = prod(w.image) * (1 + aliased) + rows * across
    multiplied = rows * across * w.area
    return (multiplied * _MULTIPLIED + turned * _TURNED) / lanes < of_places


def of_channels(p: Convolution) -> Convolution:
    """``p`` with a kernel for each channel, which it reads alone."""
    images, groups = p.batch
    x, y, out = p.at
    (x_g, y_g, out_g) = (at.strides[1] for at in p.at)
    at = (
        Layout((0, 0, x_g, 1), x.offset),
        Layout((y.strides[0], 0, y_g, y.strides[-1]), y.offset),
        Layout((out.strides[0], 0, out_g, 1), out.offset),
    )
    return replace(p, sizes=(groups, *p.sizes[1:]), batch=(images, 1), at=at)


def plan(p: Convolution, host: Host, threads: int) -> tuple[GemmPlan, int]:
    """How ``p`` is computed, and how many channels a part has."""
    lanes, groups = tile(host, p.dtype).lanes, p.sizes[0]
    parts = 1 if p.batch[0] % threads == 0 else threads
    each = padded(-(-groups // parts), lanes)
    return GemmPlan("channels", "own", sum(memory(p, host))), min(each, groups)


def around(p: Convolution) -> tuple[int, int]:
    """Rows of zeros above and below an image."""
    w = p.window
    reach = (w.places[0] - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1
    return w.padding[0], max(reach - w.padding[0] - w.image[0], 0)


def memory(p: Convolution, host: Host) -> tuple[int, int, int]:
    """Bytes of the images, the kernels and the sums of a vector of channels."""
    w, lanes = p.window, tile(host, p.dtype).lanes
    rows = w.image[0] + sum(around(p))
    counts = rows * w.image[1], w.area, prod(w.places)
    image, kernels, sums = (padded(n * lanes * p.dtype.itemsize, LINE) for n in counts)
    return image, kernels, sums


def blocks(p: Convolution, host: Host) -> Iterator[tuple[LanesBlock, int]]:
    """Tiles of a row of places, or of several narrow ones, and how many of each follow
    each other."""
    for block, tiles in kernel_lanes.blocks(p, host, 1, 1):
        yield replace(block, own=1), tiles
