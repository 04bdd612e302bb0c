"""Where a program's values lie, and which pieces run together.

Knows memory and order. Does not write code. Start with ``steps.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .buffers import PANELS, TEMPORARY, Places, strided
    from .call_table import (
        PLACES,
        TableCall,
        calls_of,
        is_nest,
        is_run,
        table,
        told_units,
        units_at,
    )
    from .groups import Group, PlanStep
    from .piece_kinds import kind_of, of_kind
    from .steps import Layered, Owner
    from .verify import verify_plan
    from .verify_code import verify_arena, verify_table

__getattr__ = lazy_room(__name__, __file__)
