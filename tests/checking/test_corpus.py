"""Planted rules of all families: no wrong one is proved, next to none is tested, and
next to no right one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sizes import some

import eqsat as eq
from eqsat.terms import Op

TESTS = Path(__file__).resolve().parents[1]
PLANTED = sorted(TESTS.joinpath("wrong_rules", "planted").glob("*.*"))
RIGHT = sorted(TESTS.joinpath("right_rules").glob("*.*"))
PAIRS = sorted(TESTS.joinpath("wrong_rules").glob("*.py"))
"""Each wrong rule with the mended one behind it."""
MENDED = "_mended"
BODY = "planted_"
"""How the ops of wrong rules begin, whose bodies are rules too, and right."""
SHARE = 40
"""One rule in so many is checked every time, all of them in the whole suite."""
TESTED = {
    "specials.egg:hypotenuse_of_nan": "the left side is NaN where hypot(∞, NaN) is ∞",
    "matrices.egg:regular_determinant_cancels": "no singular matrix is drawn",
    "matrices.egg:regular_sign_squared": "no singular matrix is drawn",
}
"""Wrong rules that no draw refutes, ``file:rule``, and why."""
REFUSED: dict[str, str] = {}
"""Right rules that the check refuses, ``file:rule``, and why."""


@pytest.fixture(autouse=True)
def no_op_stays() -> Iterator[None]:
    """The ops that files define are gone after a test."""
    before = dict(Op.registry)
    yield
    for name in Op.registry.keys() - before.keys():
        del Op.registry[name]


def wrong_rules(path: Path) -> list[eq.Rule]:
    rules = eq.load_rules(path)
    return [r for r in rules if not r.name.endswith(MENDED) and BODY not in r.name]


def right_rules(path: Path) -> list[eq.Rule]:
    rules = eq.load_rules(path)
    return [r for r in rules if path in RIGHT or r.name.endswith(MENDED)]


def verdicts(path: Path, rules: list[eq.Rule]) -> dict[str, eq.Finding]:
    """What the check says of some of the rules, or of all of them."""
    chosen = some(rules, max(1, len(rules) // SHARE))
    return {f"{path.name}:{r.name}": eq.check(r, lints=False)[r.name] for r in chosen}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", [*PLANTED, *PAIRS], ids=lambda p: p.name)
def test_wrong_rules_are_refused(path: Path) -> None:
    found = verdicts(path, wrong_rules(path))
    passed = {n: f.verdict for n, f in found.items() if f.verdict != "refused"}
    assert "proved" not in passed.values(), passed
    assert passed.keys() <= TESTED.keys(), passed


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", [*RIGHT, *PAIRS], ids=lambda p: p.name)
def test_right_rules_pass(path: Path) -> None:
    found = verdicts(path, right_rules(path))
    refused = {n: f.reason for n, f in found.items() if f.verdict == "refused"}
    assert refused.keys() <= REFUSED.keys(), refused


def test_there_are_enough_rules_and_few_exceptions() -> None:
    wrong = [f"{p.name}:{r.name}" for p in [*PLANTED, *PAIRS] for r in wrong_rules(p)]
    right = [f"{p.name}:{r.name}" for p in [*RIGHT, *PAIRS] for r in right_rules(p)]
    assert len(set(wrong)) == len(wrong) >= 330
    assert len(set(right)) == len(right) >= 220
    assert TESTED.keys() <= set(wrong) and 100 * len(TESTED) <= len(wrong)
    assert REFUSED.keys() <= set(right) and 50 * len(REFUSED) <= len(right)


@pytest.mark.parametrize(
    "path", [*PLANTED, *RIGHT], ids=lambda p: f"{p.parent.name}-{p.name}"
)
def test_each_rule_says_why(path: Path) -> None:
    for rule in eq.load_rules(path):
        assert rule.doc, f"{rule.place}: a comment above says what is wrong or right"
