"""Convolutions with large kernels that lie in few places, as derivatives by kernels do:
products of what is under the kernels, a row for each place of each image, by the
kernels, a column each. Rows are gathered and kernels brought into panels a stretch of
the inner axis at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...loop_ir import (
    Convolution,
    Layout,
)
from ..machine import COMMON, Host
from ..products import LINE, GemmPlan, height, padded, tile


@dataclass(frozen=True)
class ImageBlocks(Convolution):
    """A convolution with blocks of images as its first batch axis."""

    images: int = 0
    """In all blocks."""
    each: int = 1
    """Images of a block, but for the last one."""

    @property
    def steps(self) -> tuple[int, int]:
        """From image to image, of what is read and of the result (elements)."""
        read, made = (self.at[i].strides[0] // self.each for i in (1, 2))
        return read, made

    @property
    def sums_in_place(self) -> bool:
        """Whether sums can be kept where the result lies: as rows of kernels."""
        return self.sizes[1] == 1 and self.at[2].strides[-2] == 1


@dataclass(frozen=True)
class ImageBatch:
    """What is multiplied at once, and the memory that it takes (elements)."""

    channels: int
    """Of an image."""
    size: int
    """Elements of a kernel in each channel."""
    images: int
    wide: int
    """From row to row of what is under the kernels."""
    sums: int
    """From row to row of sums."""

    @property
    def inner(self) -> int:
        return self.channels * self.size


def in_blocks(p: Convolution, threads: int) -> tuple[ImageBlocks, int]:
    """``p`` with as many blocks of images as it has parts, and into how many parts the
    rows of places of each block are cut."""
    (images, groups), (m, n, _) = p.batch, p.sizes
    most = max(COMMON.turned_result_bytes // (n * m * p.dtype.itemsize), 1)
    blocks = -(-images // most)
    fewest = -(-COMMON.turned_rows // n)
    if blocks * groups < threads:
        blocks = min(-(-threads // groups), max(images // fewest, blocks))
    each = -(-images // blocks)
    columns = min(-(-threads // (-(-images // each) * groups)), p.window.places[0])
    return of_images(p, each), columns


def of_images(p: Convolution, each: int) -> ImageBlocks:
    """``p`` with blocks of so many images."""
    images, groups = p.batch
    x, *moved = p.at
    read, made = (
        Layout((each * at.strides[0], *at.strides[1:]), at.offset) for at in moved
    )
    batch, at = (-(-images // each), groups), (x, read, made)
    of = p.x, p.y, p.out, p.dtype, p.sizes, batch, at, p.window
    return ImageBlocks(*of, turned=True, images=images, each=each)


def stretch(p: ImageBlocks, host: Host) -> ImageBatch:
    """What of ``p`` is multiplied at once."""
    lanes = tile(host, p.dtype).lanes
    m, n, _ = p.sizes
    area = p.window.area
    channels, size = max(min(host.tuning.turned_inner // area, p.channels), 1), area
    if area > host.tuning.turned_inner:
        size = padded(-(-area // -(-area // host.tuning.turned_inner)), lanes)
    # Rows a power of two apart would share few lines of the first cache.
    wide = padded(channels * size, lanes) + lanes
    images = max(host.tuning.turned_strip_bytes // (n * wide * p.dtype.itemsize), 1)
    return ImageBatch(channels, size, min(images, p.each), wide, padded(m, lanes))


def memory(p: ImageBlocks, host: Host) -> tuple[int, int, int]:
    """Bytes of panels, of rows under kernels and of sums."""
    of, (m, n, _) = stretch(p, host), p.sizes
    panels = of.inner * padded(m, tile(host, p.dtype).lanes)
    sums = 0 if p.sums_in_place else p.each * n * of.sums
    parts = (panels, of.images * n * of.wide, sums)
    found = [padded(e * p.dtype.itemsize, LINE) for e in parts]
    return found[0], found[1], found[2]


def plan(p: ImageBlocks, host: Host) -> GemmPlan:
    """How ``p`` is computed."""
    rows = p.each * p.sizes[1]
    tall = height(rows, tile(host, p.dtype))
    return GemmPlan("turned", "own", sum(memory(p, host)), tall)
