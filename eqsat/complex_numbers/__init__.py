"""Complex numbers: one op that calls NumPy for all functions that take or give them.

Knows which functions of NumPy there are for them, their types and derivatives. Does not
know how a function is traced: ``make`` writes the op where a term would be complex, and
no rule, kernel or proof of real numbers sees it. Start with ``complex_op.py``.
"""

from eqsat.complex_numbers.complex_op import FUNCTIONS, of_complex
from eqsat.complex_numbers.functions import call
from eqsat.complex_numbers.numpy_call import (
    ALWAYS,
    FOR_COMPLEX,
    REAL_ONLY,
    arguments_of,
    holds_complex,
    numpy_call,
)
from eqsat.complex_numbers.parts import conjugate, imag, real, with_parts
