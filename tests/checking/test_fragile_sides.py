"""Rules that lead from a side which keeps its digits to one that loses them, or that
are wrong at numbers which their own numbers lead to, are refused; the other way round
they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.ops import erf, erfc, log_softmax, logsumexp, softmax
from eqsat.testing import assert_equivalent

Sides = Callable[..., tuple[Any, Any]]


def verdict(signature: str, sides: Sides, **settings: Any) -> eq.Finding:
    rule = eq.rule(signature, name="drawn", **settings)(sides)
    return eq.check(rule, lints=False)["drawn"]


def both(f: Callable[..., Any], g: Callable[..., Any]) -> Sides:
    """The sides that two functions of as many arrays are."""
    if f.__code__.co_argcount == 1:
        return lambda x: (f(x), g(x))
    return lambda x, y: (f(x, y), g(x, y))


def never(holds: Callable[..., Any]) -> Callable[..., Any]:
    """What is false wherever ``holds`` has a value."""
    if holds.__code__.co_argcount == 1:
        return lambda x: np.logical_and(holds(x), np.logical_not(holds(x)))
    return lambda x, y: np.logical_and(holds(x, y), np.logical_not(holds(x, y)))


def of_rows(x: Any, f: Callable[[Any], Any]) -> Any:
    return f(x).mean(-1, keepdims=True)


def far(x: Any) -> Any:
    return x - x.mean(-1, keepdims=True)


CANCELS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "distances of pairs": (
        "m k, n k",
        lambda x, y: np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)),
        lambda x, y: np.sqrt(
            (x * x).sum(-1)[:, None] - 2.0 * (x @ y.T) + (y * y).sum(-1)[None]
        ),
    ),
    "distance": (
        "... n, ... n",
        lambda x, y: np.sqrt(((x - y) * (x - y)).sum(-1, keepdims=True)),
        lambda x, y: np.sqrt((x * x - 2.0 * x * y + y * y).sum(-1, keepdims=True)),
    ),
    "deviation": (
        "... n",
        lambda x: np.sqrt(of_rows(x, lambda v: far(v) * far(v))),
        lambda x: np.sqrt(of_rows(x, lambda v: v * v) - of_rows(x, lambda v: v) ** 2),
    ),
    "deviation of columns": (
        "m n",
        lambda x: np.sqrt(((x - x.mean(0)) ** 2).mean(0)),
        lambda x: np.sqrt((x * x).mean(0) - x.mean(0) ** 2),
    ),
    "magnitude": (
        "..., ...",
        lambda x, y: np.abs(x - y),
        lambda x, y: np.sqrt(x * x - 2.0 * x * y + y * y),
    ),
    "power": (
        "..., ...",
        lambda x, y: np.abs(x - y),
        lambda x, y: (x * x - 2.0 * x * y + y * y) ** 0.5,
    ),
    "logarithm": (
        "..., ...",
        lambda x, y: np.log(1.0 + (x - y) * (x - y)),
        lambda x, y: np.log(x * x - 2.0 * x * y + y * y + 1.0),
    ),
    "logarithm of a product": (
        "..., ...",
        lambda x, y: np.log(np.abs(x)) + np.log(np.abs(y)),
        lambda x, y: np.log(np.abs(x * y)),
    ),
    "logarithm of many": (
        "m n",
        lambda x: np.log(np.abs(x)).sum(0),
        lambda x: np.log(np.abs(x).prod(0)),
    ),
    "exponentials": (
        "..., ...",
        lambda x, y: np.exp(x - y),
        lambda x, y: np.exp(x) / np.exp(y),
    ),
    "quotient of bells": (
        "..., ...",
        lambda x, y: np.exp(y * y - x * x),
        lambda x, y: np.exp(x * x * -1.0) / np.exp(y * y * -1.0),
    ),
    "logarithm of softmax": (
        "... n",
        lambda x: x - logsumexp(x, axis=(-1,)),
        lambda x: np.log(softmax(x, axis=(-1,))),
    ),
}
"""A signature, a side that keeps its digits, and one that loses them."""


@pytest.mark.parametrize("case", CANCELS)
def test_nothing_leads_to_the_side_that_loses_its_digits(case: str) -> None:
    signature, whole, fragile = CANCELS[case]
    away = verdict(signature, both(whole, fragile))
    assert away.verdict == "refused", away
    assert "one side alone" in away.reason or "differ by" in away.reason


@pytest.mark.parametrize("case", CANCELS)
def test_a_rule_may_lead_away_from_it(case: str) -> None:
    signature, whole, fragile = CANCELS[case]
    found = verdict(signature, both(fragile, whole))
    assert found.verdict != "refused", found.reason


LOSES: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "variance": (
        "... n",
        lambda x: of_rows(x, lambda v: far(v) * far(v)),
        lambda x: of_rows(x, lambda v: v * v) - of_rows(x, lambda v: v) ** 2,
    ),
    "variance of columns": (
        "m n",
        lambda x: ((x - x.mean(0)) ** 2).mean(0),
        lambda x: (x * x).mean(0) - x.mean(0) ** 2,
    ),
    "covariance": (
        "m n, m n",
        lambda x, y: ((x - x.mean(0)) * (y - y.mean(0))).mean(0),
        lambda x, y: (x * y).mean(0) - x.mean(0) * y.mean(0),
    ),
    "logarithm": ("...", lambda x: np.log1p(x), lambda x: np.log(1.0 + x)),
    "exponential": ("...", lambda x: np.expm1(x), lambda x: np.exp(x) - 1.0),
    "complement": ("...", lambda x: erfc(x), lambda x: 1.0 - erf(x)),
    "its complement": ("...", lambda x: erf(x), lambda x: 1.0 - erfc(x)),
    "sine": ("...", lambda x: np.sinh(x), lambda x: (np.exp(x) - np.exp(-x)) * 0.5),
    "tangent": (
        "...",
        lambda x: np.tanh(x),
        lambda x: 1.0 - 2.0 / (np.exp(2.0 * x) + 1.0),
    ),
    "half an angle": (
        "...",
        lambda x: 2.0 * np.sin(x * 0.5) ** 2,
        lambda x: 1.0 - np.cos(x),
    ),
    "inverse": (
        "...",
        lambda x: np.arctanh(x),
        lambda x: 0.5 * np.log((1.0 + x) / (1.0 - x)),
    ),
    "square of a difference": (
        "..., ...",
        lambda x, y: (x - y) ** 2,
        lambda x, y: x * x - 2.0 * x * y + y * y,
    ),
    "partial fractions": (
        "...",
        lambda x: 1.0 / ((x * x + 1.0) * (x * x + 2.0)),
        lambda x: 1.0 / (x * x + 1.0) - 1.0 / (x * x + 2.0),
    ),
    "quarter squares": (
        "..., ...",
        lambda x, y: x * y,
        lambda x, y: ((x + y) ** 2 - (x - y) ** 2) * 0.25,
    ),
    "there and back": ("..., ...", lambda x, y: x + y * 0.0, lambda x, y: x + y - y),
}
"""As above; the side that loses its digits stays finite."""


@pytest.mark.parametrize("case", LOSES)
def test_a_right_side_that_cancels_is_refused_though_it_is_the_same_real_number(
    case: str,
) -> None:
    signature, whole, fragile = LOSES[case]
    away = verdict(signature, both(whole, fragile))
    assert away.verdict == "refused" and "which cancels" in away.reason, away
    back = verdict(signature, both(fragile, whole))
    assert back.verdict != "refused", back.reason


@pytest.mark.parametrize("case", ["logarithm", "variance"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_it_is_refused_of_each_dtype_and_class(case: str, dtype: str) -> None:
    signature, whole, fragile = LOSES[case]
    settings: dict[str, Any]
    for settings in ({"numerics": "fast"}, {"both_ways": True}, {"numerics": None}):
        found = verdict(signature, both(whole, fragile), dtypes=dtype, **settings)
        assert found.verdict == "refused", found
    near = verdict("...", both(*LOSES["exponential"][1:]), numerics="approximate(1e-3)")
    assert near.verdict != "refused", near.reason


@pytest.mark.parametrize(
    "signature, sides",
    [
        ("..., ..., ...", lambda x, y, z: (x * (y + z), x * y + x * z)),
        ("..., ..., ...", lambda x, y, z: ((x + y) + z, x + (y + z))),
        ("..., ...", lambda x, y: ((x - y) * (x + y), x * x - y * y)),
        ("m n", lambda x: (x.sum(1).sum(0), x.sum((0, 1)))),
        (
            "..., ..., ...",
            lambda x, y, z: (
                (x - y) / (z * z + 1.0),
                x / (z * z + 1.0) - y / (z * z + 1.0),
            ),
        ),
    ],
)
def test_what_rounded_arguments_lose_as_well_may_be_lost(
    signature: str, sides: Sides
) -> None:
    found = verdict(signature, sides)
    assert found.verdict == "proved", found


@pytest.mark.parametrize(
    "signature, sides",
    [
        (
            "... n",
            lambda x: (
                np.log(np.abs(x)).sum(-1, keepdims=True),
                np.log(np.abs(x).prod(-1, keepdims=True)),
            ),
        ),
        ("m n", lambda x: (np.log(np.abs(x)).sum(0), np.log(np.abs(x).prod(0)))),
        (
            "... n",
            lambda x: (log_softmax(x, axis=(-1,)), np.log(softmax(x, axis=(-1,)))),
        ),
        (
            "... n, ... n",
            lambda x, y: (
                (x / (np.abs(y) + 1.0)).prod(-1, keepdims=True),
                x.prod(-1, keepdims=True) / (np.abs(y) + 1.0).prod(-1, keepdims=True),
            ),
        ),
    ],
)
def test_what_leaves_every_dtype_on_the_way_is_no_other_form(
    signature: str, sides: Sides
) -> None:
    found = verdict(signature, sides)
    assert found.verdict == "refused", found
    assert "one side alone" in found.reason


@pytest.mark.parametrize("a", [7.0, 49.0, 0.3])
@pytest.mark.parametrize(
    "sides",
    [
        lambda x, a: (np.remainder(x, a), x - a * np.floor(x / a)),
        lambda x, a: (np.remainder(x, a), x - a * np.floor(x * (1.0 / a))),
        lambda x, a: (np.fmod(x, a), x - a * np.trunc(x / a)),
        lambda x, a: (np.floor_divide(x, a), np.floor(x * (1.0 / a))),
    ],
)
def test_multiples_of_numbers_are_drawn(sides: Sides, a: float) -> None:
    found = verdict("...", lambda x: sides(x, a))
    assert found.verdict == "refused", found


SOLVED: dict[str, tuple[str, Callable[..., Any]]] = {
    "square": ("...", lambda x: x * x == 49.0),
    "power": ("...", lambda x: x**2 == 49.0),
    "sum": ("...", lambda x: x + 3.5 == 10.25),
    "line": ("...", lambda x: 3.0 * x + 5.0 == 26.0),
    "other way": ("...", lambda x: 100.0 - x == 63.0),
    "root": ("...", lambda x: np.sqrt(x) == 13.0),
    "reciprocal": ("...", lambda x: 1.0 / x == 0.015625),
    "exponential": ("...", lambda x: np.exp(x) == 1.0),
    "logarithm": ("...", lambda x: np.log2(x) == 5.0),
    "nested": ("...", lambda x: np.sqrt(np.abs(x - 3.0)) * 2.0 == 9.0),
    "product of two": ("..., ...", lambda x, y: x * y == 49.0),
    "sum of two": ("..., ...", lambda x, y: x + y == 49.5),
    "sum of a row": ("... n", lambda x: x.sum(-1, keepdims=True) == 49.5),
    "mean of columns": ("m n", lambda x: x.mean(0) == 49.5),
    "largest": ("m n", lambda x: x.max(0) == 49.5),
    "whole": ("...", lambda x: np.floor(x / 13.0) * 13.0 == x),
}
"""Conditions that hold for next to no numbers."""


@pytest.mark.parametrize("case", SOLVED)
def test_solutions_of_what_a_rule_names_are_drawn(case: str) -> None:
    signature, holds = SOLVED[case]

    found = verdict(signature, both(holds, never(holds)))
    assert found.verdict == "refused", found
    assert "True and False" in found.reason


@pytest.mark.parametrize(
    "holds",
    [
        lambda x: x * x == 49,
        lambda x: x + 3 == 49,
        lambda x: 100 - x == 63,
        lambda x: x * 3 == 111,
    ],
)
def test_integers_that_solve_it_are_drawn(holds: Callable[[Any], Any]) -> None:
    found = verdict("...", both(holds, never(holds)), dtypes="any")
    assert found.verdict == "refused", found


@pytest.mark.parametrize("power", [0.5, 1.5, 2.0, 3.0])
def test_roots_of_what_is_never_negative_are_bounded(power: float) -> None:
    """However near to 0: there NaN would hide in a bound that has no end."""
    found = verdict("...", lambda x: ((x * x) ** power, (x * x) ** power * 1.0001))
    assert found.verdict == "refused", found


def test_a_product_that_underflows_has_no_sign() -> None:
    found = verdict("..., ...", lambda x, y: (np.sign(x) * np.sign(y), np.sign(x * y)))
    assert found.verdict == "refused", found


def bump(x: Any, at: float, width: float, height: float) -> Any:
    return height * np.exp(((x - at) / width) ** 2 * -1.0)


@pytest.mark.parametrize(
    "signature, sides",
    [
        ("...", lambda x: (np.tanh(x), np.tanh(x) + bump(x, 1.234, 1e-2, 1.1e-3))),
        ("...", lambda x: (np.tanh(x), np.tanh(x) + bump(x, 77.7, 1.0, 1.1e-3))),
        (
            "..., ...",
            lambda x, y: (
                np.tanh(x + y),
                np.tanh(x + y) + bump(x, 1.3, 0.1, 1.2e-3) * bump(y, -0.4, 0.1, 1.0),
            ),
        ),
        (
            "... n",
            lambda x: (
                np.tanh(x.sum(-1, keepdims=True)),
                np.tanh(x.sum(-1, keepdims=True))
                + bump(x.sum(-1, keepdims=True), 2.345, 3e-2, 1.1e-3),
            ),
        ),
        (
            "m n",
            lambda x: (
                np.tanh(x.sum(0)),
                np.tanh(x.sum(0)) + bump(x.sum(0), 2.345, 0.3, 1.1e-3),
            ),
        ),
        (
            "...",
            lambda x: (np.tanh(x), np.where(np.abs(x) > 3.79, np.sign(x), np.tanh(x))),
        ),
    ],
)
def test_the_worst_point_of_an_approximation_is_looked_for(
    signature: str, sides: Sides
) -> None:
    wrong = verdict(signature, sides, numerics="approximate(1e-3)")
    assert wrong.verdict == "refused", wrong
    right = verdict(signature, sides, numerics="approximate(1.3e-3)")
    assert right.verdict != "refused", right.reason


@pytest.mark.parametrize("case", CANCELS)
def test_functions_are_drawn_as_rules_are(case: str) -> None:
    signature, whole, fragile = CANCELS[case]
    with pytest.raises(AssertionError, match=r"one side alone is not finite|differ by"):
        assert_equivalent(whole, fragile, signature, examples=10)
    assert_equivalent(fragile, whole, signature, examples=10)


BY_BITS = [(case, "exact") for case in SOLVED]
UP_TO_ROUNDING = [(c, "reassociate") for c in ("square", "power", "sum", "line")]
"""Conditions that no rounding decides."""


@pytest.mark.parametrize("case, numerics", BY_BITS + UP_TO_ROUNDING)
def test_solutions_are_drawn_for_functions(case: str, numerics: str) -> None:
    signature, holds = SOLVED[case]
    with pytest.raises(AssertionError, match="True and False"):
        assert_equivalent(
            holds, never(holds), signature, numerics, dtype="float64", examples=10
        )


def test_what_presses_two_functions_is_made_small() -> None:
    """And is left out where the kinds of values are named."""

    def wrong(x: Any) -> Any:
        return np.where(x * x == 49.0, 1.0, x)

    with pytest.raises(AssertionError, match=r"x0 = np.array\(\[-?7.0\], 'float64'\)"):
        assert_equivalent(wrong, lambda x: x * 1.0, "n", dtype="float64")
    assert_equivalent(wrong, lambda x: x * 1.0, "n", elements="uniform")


def test_programs_of_functions_with_steps_agree() -> None:
    for f in (lambda x: np.floor(x / 49.0), lambda x: np.remainder(x, 49.0)):
        assert_equivalent(f, eq.jit(f), "n", examples=10)


OVERFLOWS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "sum": ("..., ...", lambda x, y: x + y, lambda x, y: finite(x) & finite(y)),
    "difference": ("..., ...", lambda x, y: x - y, lambda x, y: finite(x) & finite(y)),
    "product": ("..., ...", lambda x, y: x * y, lambda x, y: finite(x) & finite(y)),
    "hypotenuse": ("..., ...", np.hypot, lambda x, y: finite(x) & finite(y)),
    "square": ("...", lambda x: x * x, lambda x: finite(x)),
    "double": ("...", lambda x: x + x, lambda x: finite(x)),
    "half as much again": ("...", lambda x: x * 1.5, lambda x: finite(x)),
    "row": ("m n", lambda x: x.sum(-1), lambda x: finite(x).all(-1)),
    "mean": ("m n", lambda x: x.mean(-1), lambda x: finite(x).all(-1)),
    "squares": ("m n", lambda x: (x * x).sum(-1), lambda x: finite(x).all(-1)),
}
"""A signature, a number that overflows, and what is said to tell that it is finite."""
finite = np.isfinite


@pytest.mark.parametrize("numerics", ["reassociate", "exact"])
@pytest.mark.parametrize("case", OVERFLOWS)
def test_what_overflows_is_drawn(case: str, numerics: str) -> None:
    signature, number, is_finite = OVERFLOWS[case]
    if "," in signature:
        found = verdict(
            signature,
            lambda x, y: (finite(number(x, y)), is_finite(x, y)),
            numerics=numerics,
        )
    else:
        found = verdict(
            signature,
            lambda x: (finite(number(x)), is_finite(x)),
            numerics=numerics,
        )
    assert found.verdict == "refused", found
