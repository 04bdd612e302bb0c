"""Names and arguments of the functions that products and convolutions call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...loop_ir import (
    DType,
)
from ..loops import PTR
from ..machine import I1, I64

TILES = (PTR, I64, PTR, I64, I64, PTR, I64, I64, I64, I64, I1)
LINE = (PTR, I64, PTR, I64, PTR, I64, I64)
DOTTED = (PTR, I64, PTR, PTR, I64, I64, I64)
MOVED = (PTR, I64, PTR, I64, I64, I64)
GATHERED = (PTR, *[I64] * 13, PTR, *[I64] * 5)
BORDERED = (PTR, I64, I64, I64, PTR, I64, I64, I64, I64)
STENCIL = (PTR, I64, PTR, PTR, I64, I64)
SLIDE = (PTR, I64, I64, PTR, I64, *[I64] * 6, PTR, I64, I64)
REACH = (PTR, I64, PTR)
LANES = (PTR, *[I64] * 7, PTR, I64, PTR, I64, I64, I64, I1)
TAPS = (PTR, I64, I64, PTR, I64, I64, I64, PTR, I64, I1)
FOLD = (PTR, PTR, I64, I64, I64)
FINITE = (PTR, I64, I64, I64, PTR)
SIGNATURES = {
    **{"tiles": TILES, "pairs": TILES, "line": LINE, "dots": DOTTED},
    **{"gather": GATHERED, "border": BORDERED, "stencil": STENCIL},
    "slide": SLIDE,
    **dict.fromkeys(("copy", "turn", "back", "planes"), MOVED),
    **{"taps": TAPS, "fold": FOLD, "lanes": LANES},
    **{"reach": REACH, "finite": FINITE},
}


def name_of(kind: str, dtype: DType, detail: object = "") -> str:
    """What a function is called: its kind, dtype and the rows and vectors of a tile
    (``8x3``), the dtype that is read, with a stride for some, a stencil, or ``far`` or
    ``dense`` for a matrix that is asked for ahead."""
    return f"{kind}_{dtype.name}" + (f"_{detail}" if detail != "" else "")


def signature(name: str) -> Sequence[Any]:
    """Types of the arguments of the function ``name``."""
    return SIGNATURES[name.partition("_")[0]]
