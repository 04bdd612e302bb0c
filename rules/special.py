"""Special functions: spellings that lose digits, as the functions that keep them."""

from eqsat import rule
from eqsat.ops import erf, erfc

PHASE = "recognise"


@rule("...")
def complement_of_erf(x):
    """1 - erf x = erfc x."""
    return 1.0 - erf(x), erfc(x)
