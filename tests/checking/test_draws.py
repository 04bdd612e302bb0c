"""What the check of rules draws: every class that a rule admits, and no proof without
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sizes import some

import eqsat as eq
from eqsat.checking.draws import UNDEFINED
from eqsat.checking.draws import cases as strategies
from eqsat.checking.draws.cases import Case, sample
from eqsat.checking.draws.coverage import Coverage, admitted, classes
from eqsat.checking.draws.explore import explore
from eqsat.ops import (
    absolute,
    cast,
    conv2d,
    exp,
    fmax,
    isfinite,
    isnan,
    logical_or,
    maximum,
    minimum,
    pad_op,
    power,
    sqrt,
    sum,
    where,
)
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.terms import Axis, Ints


def reached(rule: eq.Rule, seed: int = 0) -> Coverage:
    def look(case: Case) -> bool:
        try:
            with np.errstate(all="ignore"):
                rule(*case.args())
        except UNDEFINED:
            return False
        return True

    return explore(rule, 60, seed, look)


def summed(x: Any, y: Any, a: Axis) -> Any:
    return sum(x + y, axis=a, keepdims=True), sum(y + x, axis=a, keepdims=True)


def permuted(x: Any, p: Ints) -> Any:
    return transpose_op(exp(x), perm=p), exp(transpose_op(x, perm=p))


def sliced(x: Any, b: Ints, n: Ints, s: Ints) -> Any:
    y = slice_op(x, starts=b, sizes=n, steps=s)
    return y + 0.0, y + 0.0


def padded(x: Any, b: Ints, e: Ints) -> Any:
    y = pad_op(x, 0.0, low=b, high=e)
    return y * 1.0, y * 1.0


def reshaped(x: Any, y: Any, s: Ints) -> Any:
    return reshape_op(x * y, shape=s), reshape_op(y * x, shape=s)


def product(x: Any, y: Any) -> Any:
    return x @ y, x @ y


def halved(x: Any, a: float) -> Any:
    return x * a, x * a


def convolved(x: Any, w: Any, r: Ints, p: Ints, d: Ints, g: int) -> Any:
    return conv2d(x, w, r, p, d, g), conv2d(x, w, r, p, d, g)


@pytest.mark.parametrize(
    ("sides", "signature", "some"),
    [
        (summed, "..., ...", ["x is stretched", "a is several axes, not all"]),
        (permuted, "...", ["p has a cycle of 4", "p is not its own inverse"]),
        (sliced, "...", ["s of -2 or less", "n of 0", "b has several entries"]),
        (padded, "...", ["b of 2 or more", "e has several entries"]),
        (reshaped, "..., ...", ["s splits an axis", "y has fewer axes"]),
        (product, "m k, k n", ["m = n", "k = 0", "m > k", "NaN in x"]),
        (halved, "...", ["a is NaN", "a = -∞", "float16", "denormal in x"]),
        (convolved, "b i h v, o j p q", ["r of unequal entries", "h = 1", "g > 1"]),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_draws_reach_every_class(sides: Any, signature: str, some: list[str]) -> None:
    rule = eq.rule(signature)(sides)
    found = reached(rule)
    assert set(some) <= found.reached
    assert not found.wanted
    assert {c for c in found.outside if " in " in c} <= {"-0 in none"}


def test_any_dtype_is_every_dtype_and_its_ends() -> None:
    rule = eq.rule("..., ...", dtypes="any")(lambda x, y: (x + y, y + x))
    names = set(admitted(rule))
    assert {"bool", "uint64", "int16", "bfloat16", "least in x", "∞ in y"} <= names
    assert not reached(eq.rule("...", dtypes="any")(lambda x: (x + x, x + x))).wanted


def test_ranks_go_up_to_eight() -> None:
    rule = eq.rule("... m n")(lambda x: (exp(x), exp(x)))
    rng = np.random.default_rng(0)
    drawn = [sample(rule, rng) for _ in range(300)]
    ranks = {c.arrays["x"].ndim for c in drawn}
    assert {2, 3, 4, 5, 6, 8} <= ranks
    assert all(classes(c) for c in drawn)


def test_specials_stand_alone_and_mixed() -> None:
    rule = eq.rule("...", numerics="exact")(lambda x: (exp(x), exp(x)))
    rng = np.random.default_rng(1)
    kinds = {"NaN in x", "∞ in x", "-∞ in x", "-0 in x", "denormal in x", "huge in x"}
    held = [classes(sample(rule, rng)) & kinds for _ in range(600)]
    assert kinds <= {k for h in held if len(h) == 1 for k in h}
    assert any(len(h) > 3 for h in held)


def test_a_class_that_no_draw_reaches_forbids_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = eq.rule("...")(halved)
    assert eq.check(rule, lints=False)["halved"].verdict == "proved"
    monkeypatch.setattr(strategies, "FILLS", (1e30,))
    report = eq.check(rule, lints=False)
    assert report["halved"].verdict == "tested"
    assert {"a is NaN", "a = ∞", "a = -∞"} <= set(report["halved"].unreached)
    assert "not drawn: a = -∞, a = ∞, a is NaN" in str(report)


FINITE = {
    "NaN is 0": ("n", lambda x: (where(isnan(x), 0.0, x), x)),
    "NaN is passed over": ("..., ...", lambda x, y: (fmax(x, y), maximum(x, y))),
    "difference is 0": ("n", lambda x: (x - x, where(x == x, 0.0, x * 0.0))),
    "product is 0": ("n, n", lambda x, y: (x * 0.0 + y, y)),
    "sum is undone": ("m n, m n", lambda x, y: ((x + y) - y, x)),
    "power is 1": ("n", lambda x: (power(x, 0.0), x * 0.0 + 1.0)),
    "finite is true": ("...", lambda x: (isfinite(x), x == x)),
    "compared by difference": ("n, n", lambda x, y: (x - y == 0.0, x == y)),
    "NaN is less": ("..., ...", lambda x, y: (x < y, ~(x >= y))),
    "larger of two": ("..., ...", lambda x, y: (maximum(x, y), where(x > y, x, y))),
    "least of two": ("..., ...", lambda x, y: (where(x < y, x, y), minimum(x, y))),
}
"""Equal for finite numbers, not for NaN or infinities."""


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", FINITE)
def test_what_holds_for_finite_numbers_alone_is_refused(name: str) -> None:
    signature, sides = FINITE[name]
    usual = eq.rule(signature, name=name, numerics="reassociate")(sides)
    found = eq.check(usual, lints=False)[name]
    assert found.verdict == "refused" and 'class numerics="fast"' in found.reason
    if name in some(list(FINITE), len(FINITE) // 2):
        fast = eq.rule(signature, name=name, numerics="fast")(sides)
        found = eq.check(fast, lints=False)[name]
        assert found.verdict != "refused", found.reason


def doubled(x: Any, dtypes: Any) -> Any:
    for d in dtypes:
        x = cast(x, dtype=d)
    return x


SIDE_BY_SIDE = {
    "infinities cancel": (
        "..., ...",
        lambda x, y: (isnan(x + y), logical_or(isnan(x), isnan(y))),
    ),
    "0 times infinity": (
        "..., ...",
        lambda x, y: (isnan(x * y), logical_or(isnan(x), isnan(y))),
    ),
    "both overflow": ("..., ...", lambda x, y: (x * 2.0 < y * 2.0, x < y)),
    "one overflows": ("m n, m n", lambda x, y: (x + y - y == x, x == x)),
    "rounded twice": (
        "...",
        lambda x: (doubled(x, ("float32", "float16")), doubled(x, ("float16",))),
    ),
    "overflows in a root": ("...", lambda x: (sqrt(x * x), absolute(x))),
    "underflows twice": ("...", lambda x: (x / 8.0 / 8.0, x / 64.0)),
    "sign of a sum": ("..., ...", lambda x, y: (-(x + y), -x - y)),
    "sign of a product": ("n, n", lambda x, y: (x * y + 0.0, x * y)),
    "quotient of halves": ("..., ...", lambda x, y: (x / y, x * (1.0 / y))),
}
"""Equal but for two special values side by side, or near a tie."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_special_values_stand_beside_all_others(name: str) -> None:
    signature, sides = SIDE_BY_SIDE[name]
    rule = eq.rule(signature, name=name, numerics="exact")(sides)
    for seed in some(range(4), 1):
        found = eq.check(rule, lints=False, seed=seed)[name]
        assert found.verdict == "refused", seed
        assert max(map(len, found.counterexample.splitlines())) < 200
