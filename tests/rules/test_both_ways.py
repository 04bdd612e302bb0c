"""Rules that rewrite both ways: one rule, two rewrites, and each is chosen by cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import held_by

import eqsat as eq
from eqsat.egraph.normal_form import normal_forms
from eqsat.ops import exp, log, log_softmax, softmax
from eqsat.ops.view import transpose_op
from eqsat.rulelang.condition import at_least, moderate
from eqsat.terms.op import Ints


@eq.rule("... m k, k n, k n", both_ways=True)
def distributes(x, a, b):  # type: ignore[no-untyped-def]
    """x (a + b) = x a + x b."""
    return x @ (a + b), x @ a + x @ b


@eq.rule("... m k, k n, n p", both_ways=True)
def associates(x, a, b):  # type: ignore[no-untyped-def]
    """(x a) b = x (a b)."""
    return (x @ a) @ b, x @ (a @ b)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).random(shape)


def lowered(rule: eq.Rule, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What ``fn`` becomes with one rule; it computes the same."""
    fast = eq.jit(fn, rules=[rule], options=eq.Options(**options))
    for got, want in zip(fast(*args), fn(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    return fast.lower(*args)


def products(low: Any) -> int:
    return held_by(low.program).count("matmul")


X, A, B = array(96, 64), array(64, 48), array(64, 48) + 1


def test_the_cheaper_side_is_chosen_in_either_direction() -> None:
    factored = lowered(distributes, lambda x, a, b: (x @ a + x @ b,), X, A, B)
    assert products(factored) == 1
    spread = lowered(distributes, lambda x, a, b: (x @ a, x @ b, x @ (a + b)), X, A, B)
    assert products(spread) == 2
    assert products(lowered(distributes, lambda x, a, b: (x @ (a + b),), X, A, B)) == 1


@pytest.mark.parametrize("inner_first", [False, True])
def test_a_chain_of_products_is_turned_to_the_cheap_order(inner_first: bool) -> None:
    """Of x a b with a low rank in the middle, x a comes first."""
    x, a, b = array(256, 64), array(64, 2), array(2, 64)
    forms = (lambda x, a, b: ((x @ a) @ b,), lambda x, a, b: (x @ (a @ b),))
    low = lowered(associates, forms[inner_first], x, a, b)
    assert [k.flops for k in low.program.kernels] == [2 * 256 * 64 * 2] * 2


def test_it_is_one_rule_with_one_name() -> None:
    low = lowered(distributes, lambda x, a, b: (x @ a, x @ b, x @ (a + b)), X, A, B)
    assert set(low.optimised.fired) == {"distributes"}
    explained = low.explain()
    assert set(explained.rules) == {"distributes"}
    assert explained.rules["distributes"].fired == low.optimised.fired["distributes"]
    assert {r for k in explained.kernels for r in k.rules} == {"distributes"}
    assert "(backwards)" not in explained.to_json() + str(explained)
    assert len(eq.RuleSet((distributes,))) == 1
    off = eq.Options(disable=frozenset({"distributes"}))
    fast = eq.jit(lambda x, a, b: x @ a + x @ b, rules=[distributes], options=off)
    assert not fast.lower(X, A, B).optimised.fired


def test_it_reads_as_an_equation() -> None:
    assert str(distributes) == (
        "matmul(x, add(a, b))  ↔  add(matmul(x, a), matmul(x, b))"
    )
    there, back = distributes.directions
    assert there is distributes and back is distributes.reverse
    assert (back.left, back.right) == (there.right, there.left)
    assert (back.name, back.place, back.doc) == (there.name, there.place, there.doc)
    assert there.label != back.label and back.directions == (back,)
    assert back.reverse.left == there.left


def test_it_is_checked_in_both_directions() -> None:
    report = eq.check(distributes, examples=30)
    assert [f.rule for f in report] == ["distributes"]
    assert report.ok and report["distributes"].examples >= 60


def test_a_side_that_is_defined_where_the_other_is_not_is_refused() -> None:
    """From left to right the rule holds: where x x is defined, so is x + x."""

    def sides(x: Any) -> tuple[Any, Any]:
        """x x + (x - x) = x x + (x - x)."""
        return x @ x * 0.0 + x, x * 1.0

    one_way = eq.rule("m n", name="square", numerics="fast")(sides)
    assert eq.check(one_way).ok
    both = eq.rule("m n", name="square", numerics="fast", both_ways=True)(sides)
    found = eq.check(both)["square"]
    assert found.verdict == "refused"
    assert found.reason.startswith("the right side fails where the left does not")
    assert '["square"].reverse\n' in found.counterexample


def test_conditions_hold_in_both_directions() -> None:
    @eq.rule("...", where=lambda x: at_least(x, 0.0), both_ways=True)
    def root(x):  # type: ignore[no-untyped-def]
        """log √x = ½ log x where x ≥ 0."""
        return log(np.sqrt(x)), log(x) * 0.5

    y = array(3, 4)
    for fn in (lambda x: (np.log(x) * 0.5,), lambda x: (np.log(np.sqrt(x)),)):
        assert not lowered(root, fn, y).optimised.fired
    for fn in (
        lambda x: (np.log(np.exp(x)) * 0.5,),
        lambda x: (np.log(np.sqrt(np.exp(x))),),
    ):
        assert lowered(root, fn, y).optimised.fired == {"root": 2}


def test_a_number_is_found_from_what_is_computed_of_it() -> None:
    @eq.rule("...", where=lambda x, a: moderate(a), both_ways=True)
    def quotient(x, a: float):  # type: ignore[no-untyped-def]
        """x / (2 a) = x (½ / a)."""
        return exp(x) / (a * 2.0), exp(x) * (0.5 / a)

    y = array(3, 4)
    for fn in (lambda x: (np.exp(x) / 5.0,), lambda x: (np.exp(x) * 0.2,)):
        low = lowered(quotient, fn, y)
        assert low.optimised.fired["quotient"] >= 1
    assert eq.check(quotient).ok


def test_a_composite_and_its_body() -> None:
    @eq.rule("... n", both_ways=True)
    def meaning(x):  # type: ignore[no-untyped-def]
        """log softmax(x) = log_softmax(x)."""
        return log(softmax(x)), log_softmax(x)

    x = array(8, 16)
    (kernel,) = lowered(meaning, lambda x: (log(softmax(x)),), x).program.kernels
    assert kernel.op.name == "log_softmax"
    both = lowered(meaning, lambda x: (softmax(x), log_softmax(x)), x)
    assert held_by(both.program)[0] == "softmax"
    assert both.optimised.fired["meaning"] >= 2


def test_it_lives_with_the_stock_rules() -> None:
    """Both sides of each direction are brought to normal form."""
    rules = eq.default_rules() + eq.RuleSet((distributes,))
    _, left, right = normal_forms(rules)(distributes.reverse)
    assert (left, right) == (distributes.right, distributes.left)
    fast = eq.jit(lambda x, a, b: x @ (0.5 * a) + x @ (b / 2.0), rules=rules)
    np.testing.assert_allclose(fast(X, A, B), X @ (0.5 * A) + X @ (B / 2.0))
    assert products(fast.lower(X, A, B)) == 1


def test_an_error_of_the_engine_names_it_once() -> None:
    @eq.rule("... n", both_ways=True)
    def nonsense(x):  # type: ignore[no-untyped-def]
        """Σ x is not exp x."""
        return x.sum(-1, keepdims=True), exp(x)

    fast = eq.jit(lambda x: (np.exp(x), x.sum(-1, keepdims=True)), rules=[nonsense])
    x = array(3, 4)
    with pytest.warns(eq.RuleWarning, match=r"rule 'nonsense': a rule made two"):
        assert np.allclose(fast(x)[0], np.exp(x))


def test_an_attribute_that_both_sides_carry() -> None:
    @eq.rule("... i j k", both_ways=True)
    def past(x, p: Ints):  # type: ignore[no-untyped-def]
        """exp(xᵀ) = exp(x)ᵀ."""
        return exp(transpose_op(x, perm=p)), transpose_op(exp(x), perm=p)

    x, perm = array(2, 3, 4), (-1, -3, -2)
    fn = {
        "inside": lambda x: (np.exp(transpose_op(x, perm=perm)),),
        "outside": lambda x: (transpose_op(np.exp(x), perm=perm),),
    }
    for f in fn.values():
        assert lowered(past, f, x).optimised.fired["past"] >= 1
