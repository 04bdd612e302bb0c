"""Lints: dead, double, derivable and endless rules, and the report that names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sizes import is_whole

import eqsat as eq
from eqsat.checking.lint import Linter
from eqsat.checking.report import Report
from eqsat.ops import exp, sin
from eqsat.rulelang.condition import at_least

HERE = Path(__file__).resolve().parents[1]
STOCK = eq.default_rules()


def linted(*rules: eq.Rule) -> Linter:
    return Linter(rules, STOCK)


def shown(report: Report) -> str:
    """The report without what depends on the machine: units in the last place, and
    folders."""
    same = Report(tuple(replace(f, worst_ulp=0.0) for f in report))
    return re.sub(r"[^\s'(]*/((rules|linted)/\w+\.py)", r"\1", str(same)) + "\n"


# Each kind of lint is found below every time; this compares all that is printed.
@pytest.mark.slow
def test_the_report_shows_each_lint(golden: Callable[[str, str], None]) -> None:
    report = eq.check(eq.load_rules(HERE / "linted" / "rules.py"), examples=20)
    kinds = {lint.kind for _, lint in report.lints}
    assert kinds == {"dead", "duplicate", "derivable", "growth"}
    golden("lints.txt", shown(report))


def test_stock_rules_match_their_own_left_sides() -> None:
    linter = Linter(list(STOCK))
    some = list(STOCK)[:: 4 if is_whole() else 16]  # the next test takes all
    assert not {r.name: why for r in some if (why := linter.dead(r))}


@pytest.mark.slow
def test_stock_rules_have_no_lints() -> None:
    linter = Linter(list(STOCK))
    assert not {r.name: why for r in STOCK if (why := linter.dead(r))}
    assert not [(r.name, lint) for r in STOCK for lint in linter.warnings(r)]
    assert not [found for r in STOCK if (found := linter.growing(r))]


def test_a_rule_is_a_duplicate_under_other_names_and_guards_count() -> None:
    @eq.rule("..., ...", where=lambda u, w: at_least(w, 1e-30))
    def same(u, w):  # type: ignore[no-untyped-def]
        """u / √w = u rsqrt(w)."""
        return u / eq.ops.sqrt(w), u * eq.ops.rsqrt(w)

    @eq.rule("..., ...", where=lambda u, w: at_least(w, 1e-20))
    def other_guard(u, w):  # type: ignore[no-untyped-def]
        """The same of numbers that are not as small."""
        return u / eq.ops.sqrt(w), u * eq.ops.rsqrt(w)

    (lint,) = linted(same).warnings(same)
    assert (lint.kind, lint.rules) == ("duplicate", ("divide_by_sqrt",))
    (lint,) = linted(other_guard).warnings(other_guard)
    assert (lint.kind, lint.rules) == ("derivable", ("divide_by_sqrt",))


def test_axes_with_names_count_in_a_duplicate() -> None:
    @eq.rule("m n, n m")
    def square(x, y):  # type: ignore[no-untyped-def]
        """(x y)ᵀ = yᵀ xᵀ where the product is square."""
        return (x @ y).mT, y.mT @ x.mT

    (lint,) = linted(square).warnings(square)
    assert (lint.kind, lint.rules) == ("derivable", ("transpose_of_product",))


def test_a_rule_is_not_derivable_from_its_reverse() -> None:
    reverse = STOCK["matmul_factors"]
    assert not list(Linter([reverse], STOCK).warnings(reverse))


def test_a_stricter_rule_is_not_derivable_from_laxer_ones() -> None:
    @eq.rule("... i j, j k, k l, l m", numerics="exact")
    def four(a, b, c, d):  # type: ignore[no-untyped-def]
        """((a b) c) d = a (b (c d)), as if bit for bit."""
        return ((a @ b) @ c) @ d, a @ (b @ (c @ d))

    assert not list(linted(four).warnings(four))
    lax = replace(four, numerics="reassociate")
    (lint,) = linted(lax).warnings(lax)
    assert (lint.kind, lint.rules) == ("derivable", ("matmul_associates_right",))


def test_rules_that_come_to_an_end_do_not_grow() -> None:
    @eq.rule("..., ..., ...")
    def right(x, y, z):  # type: ignore[no-untyped-def]
        """(x + y) + z = x + (y + z)."""
        return (x + y) + z, x + (y + z)

    @eq.rule("..., ..., ...")
    def left(x, y, z):  # type: ignore[no-untyped-def]
        """x + (y + z) = (x + y) + z."""
        return x + (y + z), (x + y) + z

    linter = linted(right, left)
    assert linter.growing(right) is None and linter.growing(left) is None


def test_growth_is_told_once_and_names_the_fewest_rules() -> None:
    @eq.rule("...")
    def nests(x):  # type: ignore[no-untyped-def]
        """eˣ = (e^(x/2))²."""
        return exp(x), exp(x * 0.5) * exp(x * 0.5)

    @eq.rule("..., ...")
    def beside(x, y):  # type: ignore[no-untyped-def]
        """sin x eʸ = eʸ sin x, which has no part in it."""
        return sin(x) * exp(y), exp(y) * sin(x)

    linter = linted(beside, nests)
    found = linter.growing(beside)
    assert found is not None and found[0] is nests
    assert found[1].rules == ("nests",) and "feeds itself" in found[1].text
    assert linter.growing(nests) is None


def test_a_rule_may_feed_a_stock_rule() -> None:
    @eq.rule("... m k, k n")
    def halves(x, w):  # type: ignore[no-untyped-def]
        """x w = x (w/2 + w/2): the sum is taken apart again."""
        return x @ w, x @ (w * 0.5 + w * 0.5)

    found = linted(halves).growing(halves)
    assert found is not None and found[0] is halves
    assert found[1].rules[0] == "halves"
