"""Convolutions of few images with large kernels in few places, as derivatives by the
kernels of depthwise or first layers are: the sums of a block of kernels and places stay
in registers while the image, with zeros around it, and the kernels run past."""

from __future__ import annotations

from ...loop_ir import (
    Convolution,
)
from ..machine import Host
from ..products import LINE, GemmPlan, padded, tile
from .large_kernels import ImageBlocks
from .taps_code import TapsBlock


def are_worth_it(p: Convolution, host: Host) -> bool:
    """Whether ``p``, which is turned, is computed so."""
    (m, n, _), most = p.sizes, host.tuning
    few = p.batch[0] <= most.taps_images and m <= most.taps_kernels
    few &= n <= most.taps_places and m * n <= most.taps_sums
    return few and p.window.places[1] <= _sums(host)


def _sums(host: Host) -> int:
    """Sums that registers hold beside what is multiplied."""
    return 24 if host.is_arm or host.vector_bits == 512 else 12


def blocks(p: Convolution, host: Host) -> tuple[int, int]:
    """Kernels and rows of places of a block."""
    m, (rows, across) = p.sizes[0], p.window.places
    most = _sums(host) // across
    kernels = -(-m // -(-m // most))
    most = max(most // kernels, 1)
    return kernels, -(-rows // -(-rows // most))


def block(p: Convolution, kernels: int, rows: int) -> TapsBlock:
    """The code of a block."""
    w = p.window
    return TapsBlock(kernels, rows, w.places[1], w.dilation[1], w.stride[1])


def line(p: Convolution, host: Host) -> int:
    """Elements from row to row of an image with zeros around it."""
    w, lanes = p.window, tile(host, p.dtype).lanes
    last = (padded(w.kernel[1], lanes) - 1) * w.dilation[1]
    return padded(last + (w.places[1] - 1) * w.stride[1] + 1, lanes)


def lines(p: Convolution, rows: int) -> int:
    """Rows of an image under so many rows of kernels."""
    w = p.window
    return (rows - 1) * w.dilation[0] + (w.places[0] - 1) * w.stride[0] + 1


def band(p: Convolution, host: Host) -> int:
    """Rows of kernels at once, with which rows of an image stay in the first cache."""
    each = line(p, host) * p.window.dilation[0] * p.dtype.itemsize
    return min(max(host.tuning.strip_bytes // each, 1), p.window.kernel[0])


def memory(p: Convolution, host: Host) -> tuple[int, int]:
    """Bytes of a band of an image, and of the sums of one."""
    size, lanes = p.dtype.itemsize, tile(host, p.dtype).lanes
    image = lines(p, band(p, host)) * line(p, host) * size
    return padded(image, LINE), p.sizes[0] * p.sizes[1] * lanes * size


def plan(p: ImageBlocks, host: Host, threads: int) -> tuple[GemmPlan, int]:
    """How ``p`` is computed, and how many kernels each part has."""
    kernels, _ = blocks(p, host)
    parts = -(-threads // (p.batch[0] * p.batch[1]))
    rows = padded(-(-p.sizes[0] // parts), kernels)
    return GemmPlan("taps", "own", sum(memory(p, host)), kernels), rows
