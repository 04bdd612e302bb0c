"""Loop nests as the text of GPU kernels: maps, rows side by side, rows apart.

Knows threads, groups and barriers. Does not know how kernels are started. Start with
``print_nest.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .contiguous_rows import FEW_ROWS
    from .online_softmax import POWERS, online, recomputed
    from .print_nest import Source, joined_source, source_of

__getattr__ = lazy_room(__name__, __file__)
