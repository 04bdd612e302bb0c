"""LLVM IR of the functions that products are made of, one module a function.

A *tile* is the rows by vectors of a result that registers hold. ``tiles`` multiplies
rows by columns that lie tile after tile, ``pairs`` those of bfloat16, ``line`` and
``dots`` multiply a matrix by a vector, ``copy`` and ``turn`` bring matrices into the
order that these read, ``back`` results into that of memory. ``gather`` does so for
what is under the kernels of a convolution; ``stencil`` is the convolution of one
channel, which ``border`` puts zeros around, ``slide`` that of a large kernel, ``taps``
that of few places, with sums in lanes that ``fold`` adds, ``lanes`` that of a kernel in
each lane. ``reach`` and ``finite`` tell
which columns of masked scores count.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ..loop_ir import (
    DType,
)
from .convolutions import (
    Lanes,
    LanesBlock,
    Slides,
    Stencil,
    Taps,
    TapsBlock,
    Windows,
)
from .convolutions import SlideBlock as Sums
from .machine import Host, forget
from .math import VOID
from .products import Order, Pairs, Reaches, Tiles, Vectors, signature


def text_of(name: str, host: Host) -> str:
    """The module with the function ``name`` of :func:`name_of`."""
    kind, number, *rest = name.split("_")
    module = ir.Module(name)
    module.triple = host.triple
    function = ir.Function(module, ir.FunctionType(VOID, signature(name)), name)
    given = function, host, np.dtype(number)
    if kind in ("tiles", "pairs"):
        height, vectors = map(int, rest[0].split("x"))
        code = (Tiles if kind == "tiles" else Pairs)(*given)
        code.tiles(height, vectors, "turned" in rest)
    elif kind in ("line", "dots"):
        vector = Vectors(*given)
        vector.asks = rest[0] if rest else ""
        (vector.line if kind == "line" else vector.dots)()
    elif kind == "gather":
        Windows(*given).gather(_dtype(rest[0]), int(rest[1]))
    elif kind == "border":
        Windows(*given).border(_dtype(rest[0]))
    elif kind in ("reach", "finite"):
        reaches = Reaches(*given)
        (reaches.reach if kind == "reach" else reaches.finite)()
    elif kind in ("taps", "fold"):
        sums = Taps(*given)
        sums.taps(TapsBlock.of(*rest)) if kind == "taps" else sums.fold()
    elif kind == "lanes":
        Lanes(*given).lanes_of(LanesBlock.of(*rest))
    elif kind == "stencil":
        Windows(*given).stencil(Stencil.of(*rest))
    elif kind == "slide":
        Slides(*given).slide(Sums.of(*rest))
    else:
        order = Order(*given)
        if kind == "copy":
            order.copy(_dtype(rest[0]))
        else:
            order.turn(_dtype(rest[0]), kind != "turn", kind == "planes")
    text = str(module)
    forget(module)
    return text


def _dtype(name: str) -> DType:
    if name == "bfloat16":
        import ml_dtypes

        kind: type = ml_dtypes.bfloat16
        return np.dtype(kind)
    return np.dtype(name)
