"""CUDA kernels that write more than a device's last cache holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from ..kernels.language import Load, Nest

PAST_BYTES = 64 << 20
"""What is written from which none of it should push other things out of a last cache,
of 50 to 60 MB in Hopper's GPUs. With this and what is read once marked, an H200 takes
0.98 of the time for layer_norm of float32 16384×4096, and as long, by 1 in 100, for
softmax and for maps with GELU. Stores alone that are marked gain nothing."""
SMALL_BYTES = 1 << 20
"""What stays in a cache however it is marked, read again and again."""

_LOAD = re.compile(r"\beq_load<(\d+)>\((\w+)")


def streamed(body: str, nest: Nest, sizes: Sequence[int]) -> str:
    """A kernel's text with its packed loads and stores marked, where ``nest`` writes so
    much; ``sizes`` are the elements of its buffers."""
    held = [n * b.dtype.itemsize for n, b in zip(sizes, nest.buffers, strict=True)]
    written = [n for n, b in zip(held, nest.buffers, strict=True) if b.written]
    if max(written, default=0) < PAST_BYTES:
        return body
    loads = [m[2] for m in _LOAD.finditer(body)]
    whole = {b.name for i, b in enumerate(nest.buffers) if _covers(nest, i)}
    small = {b.name for n, b in zip(held, nest.buffers, strict=True) if n < SMALL_BYTES}
    once = {n for n in loads if n in small or (n in whole and loads.count(n) == 1)}

    def marked(m: re.Match[str]) -> str:
        return f"eq_load_once<{m[1]}>({m[2]}" if m[2] in once else m[0]

    return _LOAD.sub(marked, body).replace("eq_store<", "eq_store_past<")


def _covers(nest: Nest, buffer: int) -> bool:
    """Whether no two points of the loops read the same element of a buffer."""
    places = [
        (prod(v.size for v in (*nest.grid, *p.loops)), s.at)
        for p in nest.passes
        for s in p.body
        if isinstance(s, Load) and s.buffer == buffer
    ]
    return bool(places) and all(
        prod(v.size for v in at.variables) == points for points, at in places
    )
