"""Loop nests as LLVM IR: vectors, passes over rows, reductions.

Knows one nest at a time. Start with ``emit_nest.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import (
        sweep_direction,
    )
    from .access import (
        PTR,
        Strand,
        loop,
        without,
    )
    from .prefetch import (
        AHEAD_BYTES,
        ask,
    )
    from .row_panels import (
        emit_nest,
    )
    from .sort_keys import (
        bits_of,
        key,
        key_type,
        loaded,
    )
    from .statements import (
        Statements,
    )
    from .vector_shape import (
        NEAR_BYTES,
        check,
        is_map,
        lanes,
        shape_of,
        turned,
    )

__getattr__ = lazy_room(__name__, __file__)

__all__ = [
    "AHEAD_BYTES",
    "NEAR_BYTES",
    "PTR",
    "Statements",
    "Strand",
    "ask",
    "bits_of",
    "check",
    "emit_nest",
    "is_map",
    "key",
    "key_type",
    "lanes",
    "loaded",
    "loop",
    "shape_of",
    "sweep_direction",
    "turned",
    "without",
]
