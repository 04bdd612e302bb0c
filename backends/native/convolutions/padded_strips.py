"""Parts of convolutions that read images with zeros around them: rows of places, or
places of the only row, with what each needs of an image in memory of a thread."""

from __future__ import annotations

from ...loop_ir import (
    Convolution,
)
from ..machine import Host
from ..products import padded, tile


def are_of_columns(p: Convolution) -> bool:
    """Whether parts are places of one row, and not rows."""
    return p.window.places[0] == 1


def parts(p: Convolution, host: Host, threads: int, least: int) -> int:
    """In how many parts the places of an image are, of ``least`` rows, or places of
    the only row."""
    rows, across = p.window.places
    total = across if are_of_columns(p) else rows
    found = parts_of_memory(p, host)
    planes = p.rows // p.sizes[0]
    if planes < host.tuning.even_parts * threads:
        found = max(found, -(-threads * host.tuning.even_parts // planes))
    return max(min(found, total // least), 1)


def parts_of_memory(p: Convolution, host: Host) -> int:
    """In how many parts an image is, of as much of it as caches keep."""
    rows, across = p.window.places
    image = p.channels * lines(p, rows) * line(p, host, across)
    strip = host.tuning.strip_bytes if p.channels == 1 else host.tuning.image_bytes
    return -(-image * p.dtype.itemsize // strip)


def line(p: Convolution, host: Host, places: int) -> int:
    """Elements from row to row of an image with zeros around it, for so many places of
    each."""
    w = p.window
    need = (places - 1) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1
    return padded(need, tile(host, p.dtype).lanes)


def lines(p: Convolution, rows: int) -> int:
    """Rows of an image under so many rows of places."""
    w = p.window
    return (rows - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1


def longest(p: Convolution, host: Host, parts: int) -> int:
    """Elements from row to row, where there are so many parts."""
    across = p.window.places[1]
    return line(p, host, -(-across // parts) if are_of_columns(p) else across)


def plane(p: Convolution, host: Host, parts: int) -> int:
    """Elements from channel to channel, where there are so many parts: an odd number of
    vectors, so that channels lie in different sets of a cache."""
    rows = 1 if are_of_columns(p) else -(-p.window.places[0] // parts)
    lanes = tile(host, p.dtype).lanes
    return (lines(p, rows) * longest(p, host, parts) // lanes | 1) * lanes
