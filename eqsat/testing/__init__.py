"""Tests of your own functions and rules, with Hypothesis (the extra ``check``).

An example::

    from hypothesis import given
    from eqsat.testing import arrays, assert_equivalent, programs

    def test_my_softmax():
        assert_equivalent(eq.softmax, my_softmax, "... n")

    @given(arrays("m k, k n, n"))
    def test_my_layer(drawn):
        x, w, b = drawn
        ...
"""

from eqsat.support import EqsatError

try:
    import hypothesis
except ImportError as error:
    raise EqsatError("eqsat.testing needs hypothesis: pip install hypothesis") from (
        error
    )

from eqsat.testing.agreement import Agreement, Computed, agreement
from eqsat.testing.drawn import DrawnProgram
from eqsat.testing.equivalent import assert_equivalent, optimised_agreement
from eqsat.testing.fuzzing import fuzz, random_program
from eqsat.testing.strategies import arrays, programs

__all__ = [
    "Agreement",
    "Computed",
    "DrawnProgram",
    "agreement",
    "arrays",
    "assert_equivalent",
    "fuzz",
    "optimised_agreement",
    "programs",
    "random_program",
]
