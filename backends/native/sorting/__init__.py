"""Sorted rows: networks of comparisons for short ones, library sorts for others, and
the first or last positions of long ones alone.

Start with ``sort_networks.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import library_sorts, selection, sort_networks

__getattr__ = lazy_room(__name__, __file__)
