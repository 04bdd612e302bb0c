"""Running error analysis: how far rounding may move each value of a term.

Knows how errors of operands show in a result. Knows no rules. Start with
``error_bounds.py``.
"""

from eqsat.checking.bounds.error_bounds import PRECISION, Analysis, ulp
