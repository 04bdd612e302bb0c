"""What a search did and why: kernels, rules that led to them, rules that did not fire.

Reads what the search left behind and changes nothing. Start with ``explanation.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.explain.explanation import Explanation, explain
    from eqsat.explain.timing import Measured, Spread, Timing
    from eqsat.explain.why_not import WhyNot

__getattr__ = lazy_room(__name__, __file__)
