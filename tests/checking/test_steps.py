"""Rules of functions with steps. Where the left side computes its step exactly, the
right side may come to no other step, however near a multiple of a number lies. What the
left side rounds before its step may fall on either side of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.testing import assert_equivalent

Sides = Callable[[Any, Any], tuple[Any, Any]]
MODULI = (0.3, 0.6, 1 / 3, 1.1, 2.3)
"""Numbers whose multiples no dtype holds."""
DTYPES = ("float16", "float32", "float64")


def verdict(signature: str, sides: Callable[..., Any], dtypes: str) -> eq.Finding:
    rule = eq.rule(signature, name="drawn", dtypes=dtypes)(sides)
    return eq.check(rule, lints=False)["drawn"]


def with_cast(x: Any) -> Any:
    return x.astype("int64").astype(x.dtype)


def nearest(x: Any, a: float) -> Any:
    return x - a * np.rint(x / a)


ANOTHER_STEP: dict[str, Sides] = {
    "remainder": lambda x, a: (np.remainder(x, a), x - a * np.floor(x / a)),
    "remainder by a product": lambda x, a: (
        np.remainder(x, a),
        x - a * np.floor(x * (1.0 / a)),
    ),
    "negative": lambda x, a: (np.remainder(x, -a), x + a * np.floor(x / -a)),
    "scaled remainder": lambda x, a: (
        np.remainder(x, a),
        np.remainder(x / a, 1.0) * a,
    ),
    "fmod": lambda x, a: (np.fmod(x, a), x - a * np.trunc(x / a)),
    "fmod of a magnitude": lambda x, a: (
        np.fmod(np.abs(x), a),
        np.abs(x) - a * np.floor(np.abs(x) / a),
    ),
    "fmod by a cast": lambda x, a: (np.fmod(x, a), x - a * with_cast(x / a)),
    "floor_divide": lambda x, a: (np.floor_divide(x, a), np.floor(x / a)),
    "floor_divide by a product": lambda x, a: (
        np.floor_divide(x, a),
        np.floor(x * (1.0 / a)),
    ),
    "what is left is used": lambda x, a: (
        np.exp(np.remainder(x, a)) * 2.0,
        np.exp(x - a * np.floor(x / a)) * 2.0,
    ),
    "the greater one": lambda x, a: (
        np.remainder(np.maximum(x, a), a),
        np.maximum(x, a) - a * np.floor(np.maximum(x, a) / a),
    ),
}
"""The left side has no rounding before its step, the right side has."""


@pytest.mark.sampled(80)
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("a", MODULI)
@pytest.mark.parametrize("case", ANOTHER_STEP)
def test_rounding_of_a_number_excuses_no_other_step(
    case: str, a: float, dtypes: str
) -> None:
    found = verdict("...", lambda x: ANOTHER_STEP[case](x, a), dtypes)
    assert found.verdict == "refused", found


SAME_STEP: dict[str, Sides] = {
    "remainder of fmod": lambda x, a: (
        np.remainder(x, a),
        np.where(np.fmod(x, a) < 0.0, np.fmod(x, a) + a, np.fmod(x, a)),
    ),
    "remainder of floor_divide": lambda x, a: (
        np.remainder(x, a),
        x - a * np.floor_divide(x, a),
    ),
    "floor_divide of remainder": lambda x, a: (
        np.floor_divide(x, a),
        np.rint((x - np.remainder(x, a)) / a),
    ),
    "twice": lambda x, a: (np.remainder(np.remainder(x, a), a), np.remainder(x, a)),
    "doubled": lambda x, a: (
        np.remainder(x * 2.0, a * 2.0),
        np.remainder(x, a) * 2.0,
    ),
    "odd": lambda x, a: (np.fmod(x * -1.0, a), np.fmod(x, a) * -1.0),
    "magnitude": lambda x, a: (np.fmod(np.abs(x), a), np.abs(np.fmod(x, a))),
    "products": lambda x, a: (
        np.remainder(x, a) * 0.7 * 3.1,
        np.remainder(x, a) * (0.7 * 3.1),
    ),
    "to remainder": lambda x, a: (x - a * np.floor(x / a), np.remainder(x, a)),
    "to fmod": lambda x, a: (x - a * np.trunc(x / a), np.fmod(x, a)),
    "to floor_divide": lambda x, a: (np.floor(x / a), np.floor_divide(x, a)),
    "to a number": lambda x, a: (np.floor(x / a * a), np.floor(x)),
    "chosen": lambda x, a: (
        np.where(x > a, 1.0, 0.0),
        np.where(x * -1.0 < -a, 1.0, 0.0),
    ),
    "signs": lambda x, a: (np.sign(x - a), np.sign(a - x) * -1.0),
}
"""Both sides come to the same step, or only the left side rounds before it."""


@pytest.mark.sampled(80)
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("a", MODULI[::2])
@pytest.mark.parametrize("case", SAME_STEP)
def test_the_same_step_is_no_fault(case: str, a: float, dtypes: str) -> None:
    found = verdict("...", lambda x: SAME_STEP[case](x, a), dtypes)
    assert found.verdict != "refused", found.reason


@pytest.mark.sampled(15)
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize(
    "sides",
    [
        lambda x, y: (np.mod(x, y), x - y * np.floor(x / y)),
        lambda x, y: (np.fmod(x, y), x - y * np.trunc(x / y)),
        lambda x, y: (np.floor_divide(x, y), np.floor(x / y)),
    ],
)
def test_multiples_of_arrays(sides: Sides, dtypes: str) -> None:
    found = verdict("..., ...", sides, dtypes)
    assert found.verdict == "refused", found


WRONG_STEPS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "rint of a product": lambda x: (np.rint(x), np.rint(x * 0.3 / 0.3)),
    "rint by floor": lambda x: (np.rint(x), np.floor(x + 0.5)),
    "rest of rint": lambda x: (x - np.rint(x), x - np.rint(x * 0.7 / 0.7)),
    "floor of a product": lambda x: (np.floor(x), np.floor(x * 0.7 / 0.7)),
    "ceil of a sum": lambda x: (np.ceil(x), np.ceil(x + 0.3 - 0.3)),
    "trunc of a quotient": lambda x: (np.trunc(x), np.trunc(x / 1.1 * 1.1)),
}


@pytest.mark.sampled(15)
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("case", WRONG_STEPS)
def test_whole_numbers_and_halves_are_drawn(case: str, dtypes: str) -> None:
    found = verdict("...", WRONG_STEPS[case], dtypes)
    assert found.verdict == "refused", found


@pytest.mark.parametrize("a", (0.3, 1.1))
def test_functions_are_held_to_it_as_rules_are(a: float) -> None:
    def whole(x: Any) -> Any:
        return np.remainder(x, a)

    def fragile(x: Any) -> Any:
        return x - a * np.floor(x / a)

    with pytest.raises(AssertionError, match="differ by"):
        assert_equivalent(whole, fragile, "n", examples=10)
    assert_equivalent(fragile, whole, "n", examples=10)
