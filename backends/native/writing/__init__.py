"""The native function of a program, part by part: pointers, threads, groups of steps.

Knows a plan and how each kind of piece is written. Does not plan. Start with
``group_code.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .frame import Frame, ModuleCode, begun, constant_words
    from .group_code import GroupCode, Kernels
    from .pointers import Arena, Pointers, arena_of
    from .shared_steps import SharedSteps

__getattr__ = lazy_room(__name__, __file__)
