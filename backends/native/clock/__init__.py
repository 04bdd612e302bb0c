"""What the clock will show of machine code, before it is made.

Knows the plan of a program and what this processor takes for its parts; makes no code,
and decides nothing. Start with ``native_clock.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .native_clock import NativeClock
    from .rate_measurement import MANY, measure_rates, scaled
    from .rates import ClockRates, shipped

__getattr__ = lazy_room(__name__, __file__)
