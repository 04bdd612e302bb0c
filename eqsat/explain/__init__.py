"""What a search did and why: kernels, rules that led to them, rules that did not fire.

Reads what the search left behind and changes nothing. Start with ``explanation.py``.
"""

from eqsat.explain.explanation import Explanation, explain
from eqsat.explain.timing import Measured, Spread, Timing
from eqsat.explain.why_not import WhyNot
