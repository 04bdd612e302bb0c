"""Conditions guard: a rule is used where they hold, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import condition as c
from eqsat.ops import exp

X = np.random.default_rng(0).random((3, 4))
SIZES: dict[str, tuple[Callable[..., Any], bool]] = {
    "less": (lambda x, a: x.shape[0] < 4, True),
    "not less": (lambda x, a: x.shape[0] < 3, False),
    "at most": (lambda x, a: x.shape[1] <= 4, True),
    "more": (lambda x, a: 4 > x.shape[0], True),
    "equal": (lambda x, a: x.shape[0] == 4, False),
    "apart": (lambda x, a: x.shape[0] != x.shape[1], True),
    "even": (lambda x, a: x.shape[1] % 2 == 0, True),
    "odd": (lambda x, a: x.shape[0] % 2 == 0, False),
    "half": (lambda x, a: (x.shape[0] - 5) // 2 == -1, True),
    "rest of less than 0": (lambda x, a: (x.shape[0] - 5) % 4 == 2, True),
    "both": (lambda x, a: (x.shape[0] < 4) & (x.shape[1] < 4), False),
    "either": (lambda x, a: (x.shape[0] == 7) | (x.shape[1] == 4), True),
    "neither": (lambda x, a: (x.shape[0] == 7) | (x.shape[1] == 5), False),
    "not": (lambda x, a: ~(x.shape[0] == 3), False),
    "not either": (lambda x, a: ~((x.shape[0] == 7) | (x.shape[1] == 5)), True),
    "elements": (lambda x, a: x.size == 12, True),
    "length": (lambda x, a: len(x) > 3, False),
    "number": (lambda x, a: a > 2, True),
    "number and size": (lambda x, a: a < x.shape[0], False),
    "positive": (lambda x, a: c.positive(a - 3.5), False),
}


def fires(rule: eq.Rule, program: Callable[..., Any], *args: Any) -> bool:
    fast = eq.jit(program, rules=[rule])
    np.testing.assert_allclose(fast(*args), program(*args), rtol=1e-12)
    return bool(fast.lower(*args).optimised.fired.get(rule.name, 0))


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_numbers(name: str) -> None:
    where, holds = SIZES[name]

    def sides(x, a: float):  # type: ignore[no-untyped-def]
        return exp(x) * a + exp(x) * a, exp(x) * (a * 2.0)

    rule = eq.rule("m n", where=where, name="mine")(sides)
    assert fires(rule, lambda x: np.exp(x) * 3.0 + np.exp(x) * 3.0, X) == holds
    held = rule.where(X, 3.0) if rule.where else ()
    assert all(held) == holds


@pytest.mark.parametrize(
    "where",
    [
        lambda x: x.shape[0] < 4 and x.shape[1] < 4,
        lambda x: x.shape[0] < 4 or x.shape[1] < 4,
        lambda x: 1 < x.shape[0] < 4,
        lambda x: not x.shape[0] == 3,
    ],
)
def test_words_of_python_are_refused(where: Callable[..., Any]) -> None:
    with pytest.raises(eq.RuleError, match=r"write & for `and`, \| for `or`"):
        eq.rule("m n", where=where)(lambda x: (exp(x), x))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "where, said",
    [
        (lambda x: None, "got None"),
        (lambda x: True, "always holds"),
        (lambda x: x.shape[0] - x.shape[0] == 0, "always holds"),
        (lambda x: x.shape[0] - x.shape[0] == 1, "never holds"),
        (lambda x: x.dtype != np.float16, "always holds"),
        (lambda x: x.shape != (3, 4), "always holds"),
        (lambda x: x.shape == (3, 4), "never holds"),
        (lambda x: 1, "got 1"),
        (lambda x: "n > 2", "got 'n > 2'"),
        (lambda x: exp(x) > 0, "got greater"),
        (lambda x: c.nonzero, "got <function nonzero"),
    ],
)
def test_what_is_no_condition_is_refused(
    where: Callable[..., Any], said: str, several: bool
) -> None:
    asked = (lambda x: (x.shape[0] > 2, where(x))) if several else where
    with pytest.raises(eq.RuleError, match=r"test_conditions.py:\d+: rule 'f': ") as e:

        @eq.rule("m n", where=asked)
        def f(x):  # type: ignore[no-untyped-def]
            return exp(x) + exp(x), exp(x) * 2.0

    assert said in str(e.value)


ROTATION = np.array([[0.6, -0.8], [0.8, 0.6]])
ARRAYS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "nonzero": (c.nonzero, [[1.0, -2.0], [3.0, 4.0]], [[1.0, 0.0], [3.0, 4.0]]),
    "positive": (c.positive, [[1.0, 2.0], [3.0, 4.0]], [[1.0, -2.0], [3.0, 4.0]]),
    "symmetric": (c.symmetric, [[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]),
    "orthonormal": (c.orthonormal, ROTATION, ROTATION * 2),
    "regular": (c.regular, [[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]),
    "definite": (c.positive_definite, [[2.0, 1.0], [1.0, 2.0]], ROTATION),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_known_at_compile_time(name: str) -> None:
    condition, inside, beyond = ARRAYS[name]
    rule = eq.rule("n n, n n", where=lambda x, a: condition(a), name="mine")(
        lambda x, a: (exp(x) * a + exp(x) * a, exp(x) * a * 2.0)
    )
    x = np.ones((2, 2))
    for value, holds in ((inside, True), (beyond, False)):
        a = np.array(value)
        a.flags.writeable = False
        known = fires(rule, lambda x, a=a: np.exp(x) * a + np.exp(x) * a, x)
        assert known == holds
        assert not fires(rule, lambda x, a: np.exp(x) * a + np.exp(x) * a, x, a.copy())
        held = condition(np.array(value))
        assert bool(held) == holds
        bent = np.array(value)
        condition(bent).mend()
        assert condition(bent)


def test_a_rule_of_definite_matrices_leaves_others_alone() -> None:
    def sides(x, a):  # type: ignore[no-untyped-def]
        return x.mT @ a, a @ x.mT

    rule = eq.rule("n n, n n", where=lambda x, a: c.positive_definite(a), name="mine")(
        sides
    )
    a = np.array([[0.0, 1.0], [2.0, 3.0]])
    assert not fires(rule, lambda x, a: x.mT @ a, X[:2, :2], a)


def test_a_domain_guards_nothing_and_is_tested_wherever_the_left_side_has_a_value() -> (
    None
):
    def sides(x, a):  # type: ignore[no-untyped-def]
        """Wrong: symmetric matrices do not commute with others."""
        return x.mT @ a, a.mT @ x.mT.mT.mT

    where = lambda x, a: c.domain(c.positive_definite(a))  # noqa: E731
    rule = eq.rule("n n, n n", where=where, name="mine")(sides)
    assert not eq.check(rule, examples=30).ok


def test_what_is_true_only_of_some_sizes_is_not_used_for_others() -> None:
    """A slice in a right side needs an axis that is long enough."""

    @eq.rule("m n", name="mine")
    def last_two(x):  # type: ignore[no-untyped-def]
        return exp(x)[:, -2:] + 0.0, exp(x[:, -2:])

    def program(x: Any) -> Any:
        return np.exp(x)[:, -2:] + 0.0

    assert fires(last_two, program, X)
    assert not fires(last_two, program, X[:, :1])


def test_egg_files_compare_sizes(tmp_path: Any) -> None:
    """The same conditions as text."""
    tests = {
        "(< m 4)": True,
        "(= 0 (% n 2))": True,
        "(or (= m 7) (= n 5))": False,
        "(not (or (= m 7) (= n 5)))": True,
        "(and (<= m 3) (!= n 4))": False,
    }
    for text, holds in tests.items():
        file = tmp_path / "mine.egg"
        file.write_text(
            '(rewrite (Add x x) (Multiply x 2.0) :name "mine"\n'
            f'  :when ((axes x "m n") {text}))'
        )
        (rule,) = eq.load_rules(file)
        assert fires(rule, lambda x: x + x, X) == holds, text


@pytest.mark.parametrize("exponent", [0.25, 0.75, 1.5])
@pytest.mark.parametrize(
    "base, known",
    [
        (lambda x: (x * x)[1:], True),
        (lambda x: np.pad(x * x, 1)[:, 2:], True),
        (lambda x: np.pad(np.abs(x), 1, constant_values=2.0) + 1, True),
        (lambda x: np.pad(np.abs(x), 1, constant_values=-1.0), False),
        (lambda x: x[1:], False),
    ],
)
def test_powers_of_what_is_not_negative_are_roots(base, known, exponent):
    """Parts, and what is padded, have the lower bound of what they are made of."""
    f = eq.jit(lambda x: np.power(base(x), exponent))
    x = np.array([[0.0, 2.0, -3.0], [1e-200, -0.0, 1e150]])
    with np.errstate(all="ignore"):
        want = f.fn(x)
    np.testing.assert_allclose(f(x), want, rtol=1e-15)
    assert ("power(" in str(f.lower(x).source("native"))) != known
