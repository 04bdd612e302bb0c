"""What a rule can say, in programs that it rewrites and in programs that it must not.

The rules are those of ``rule_language/rules.py``; ``test_egg_files.py`` checks each of
them and runs each on a program that it rewrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import rule
from eqsat.ops import concatenate, conv2d, exp, gelu, linear, log_softmax, unless_op
from eqsat.ops.spectral import decompose
from eqsat.ops.view import reshape_op, slice_op, transpose_op
from eqsat.rulelang import is_scalar, match, substitute
from eqsat.rulelang.condition import at_least, at_most, equal, nonzero, same_shape
from eqsat.serialise import canonical
from eqsat.support import RuleError
from eqsat.terms import Ints, Op, composite

RULES = eq.load_rules(
    Path(__file__).resolve().parents[1].joinpath("rule_language") / "rules.py"
)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).random(shape)


def fired(
    rule: eq.Rule, fn: Callable[..., Any], *args: Any, tolerance: float = 1e-12
) -> int:
    """How often a rule matched in ``fn``, which goes on computing the same."""
    options = eq.Options(numerics="approximate")
    fast = eq.jit(fn, rules=[rule], options=options)
    got, want = fast(*args), fn(*args)
    for a, b in zip(
        *(v if type(v) is tuple else (v,) for v in (got, want)), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return fast.lower(*args).optimised.fired.get(rule.name, 0)


Program = tuple[Callable[..., Any], tuple[Any, ...]]
X = array(3, 4)
WEIGHTS = array(8, 5), array(8, 6)
KERNEL = array(4, 1, 2, 2)
NOT_REWRITTEN: dict[str, list[Program]] = {
    "both_ways": [
        (lambda x, a, b: x @ a - x @ b, (X, array(4, 5), array(4, 5))),
        (lambda x, a, b: x @ (a + b), (X, array(4, 1), array(1, 5))),
        (lambda x, a, b: x @ (a + b), (X, array(2, 4, 5), array(4, 5))),
    ],
    "any_axes": [(lambda x, y: x + y, (X, X + 1)), (lambda x: x * 3.0, (X,))],
    "size_as_number": [
        (lambda x: x.sum(-1, keepdims=True) / 3, (X,)),
        (lambda x: x.sum(-2, keepdims=True) / 3, (X,)),
    ],
    "literal_size": [
        (lambda x, y: x @ y, (array(2, 6, 2), array(2, 4))),
        (lambda x, y: x @ y, (array(6, 1), array(2, 1, 4))),
    ],
    "repeated_axis": [(lambda x, y: x.mT @ y.mT, (array(4, 4), array(4, 4) + 1))],
    "number": [
        (lambda x, y: x / 3.0 + y / 4.0, (X, X)),
        (lambda x, y: x / 1e30 + y / 1e30, (X, X)),
        (lambda x, y, c: x / c + y / c, (X, X, np.array(3.0))),
    ],
    "two_numbers": [(lambda x, y: x + 5.0 - y, (X, X))],
    "axis": [(lambda x: np.exp(x - log_softmax(x)), (X,))],
    "entries": [
        (
            lambda x: transpose_op(transpose_op(x, perm=(-1, -2)), perm=(-2, -3, -1)),
            (array(2, 3, 4),),
        ),
        (
            lambda x: transpose_op(
                transpose_op(x, perm=(-1, -3, -2)), perm=(-1, -3, -2)
            ),
            (array(2, 3, 4),),
        ),
    ],
    "tuples": [
        (lambda x: reshape_op(np.exp(reshape_op(x, shape=(12,))), shape=(2, 6)), (X,))
    ],
    "integers": [
        (lambda x, s: conv2d(x, KERNEL) * s, (array(1, 1, 5, 5), array(4, 4))),
    ],
    "mask": [
        (
            lambda m, n, x, y: np.where(m, np.where(n, x, y), y),
            (X[0] > 0.5, X[1] > 0.5, X[0], X[1]),
        ),
        (lambda m, x, y: np.where(m, np.where(m, x, y), y), (X > 0.5, X, X + 1)),
    ],
    "domain": [(lambda x: np.sqrt(x * x), (X - 0.5,))],
    "results": [
        (lambda x, y: (x @ WEIGHTS[0], y @ WEIGHTS[1]), (array(4, 8), array(4, 8) + 1)),
        (lambda x: x @ WEIGHTS[0], (array(4, 8),)),
    ],
    "fusion": [
        (lambda x, w, b: gelu(x @ w + b), (array(6, 5), array(5, 4), array(6, 4))),
        (lambda x, w, b: gelu(x @ w + b), (array(2, 6, 5), array(5, 4), array(4))),
    ],
    "near": [(lambda x: np.tanh(x), (X,))],
    "scalar": [(lambda x, s: np.tanh(x) * s, (X, array(4)))],
    "wrong": [
        (lambda x, y: np.sinh(x) * np.cosh(y) + np.cosh(x) * np.sinh(y), (X, X + 1))
    ],
}
"""For each rule programs that are like its left side, but outside what it says."""


def test_every_rule_has_a_program_that_it_leaves_alone() -> None:
    assert list(NOT_REWRITTEN) == [r.name for r in RULES]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "i"),
    [(n, i) for n, made in NOT_REWRITTEN.items() for i in range(len(made))],
)
def test_a_rule_matches_no_more_than_it_says(name: str, i: int) -> None:
    fn, args = NOT_REWRITTEN[name][i]
    assert fired(RULES[name], fn, *args) == 0


# -- axes ------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", range(5))
def test_dots_stand_for_axes_of_any_number(rank: int) -> None:
    x = array(*(2, 3, 2, 3)[:rank])
    assert fired(RULES["any_axes"], lambda x: x + x, x) >= 1


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((1,), (3, 4))]
)
def test_the_axes_that_dots_stand_for_broadcast(shapes: Any) -> None:
    x, y = (array(*s) for s in shapes)
    assert fired(RULES["number"], lambda x, y: x / 3.0 + y / 3.0, x, y) >= 1


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_dots_before_named_axes(lead: tuple[int, ...]) -> None:
    fn, args = (lambda x, a, b: x @ a + x @ b), (array(5, 6), array(5, 6))
    assert fired(RULES["both_ways"], fn, array(*lead, 4, 5), *args) >= 1


# -- numbers and attributes ------------------------------------------------------------

NUMBERS: dict[str, Callable[[Any, float], Any]] = {
    "x + a": lambda x, a: exp(x + a),
    "x - a": lambda x, a: exp(x - a),
    "a - x": lambda x, a: exp(a - x),
    "x a": lambda x, a: exp(x * a),
    "x / a": lambda x, a: exp(x / a),
    "a / x": lambda x, a: exp(a / x),
    "x (a + 1)": lambda x, a: exp(x * (a + 1.0)),
    "x (1 - a)": lambda x, a: exp(x * (1.0 - a)),
    "x (2 / a)": lambda x, a: exp(x * (2.0 / a)),
    "x (a / 2)": lambda x, a: exp(x * (a / 2.0)),
}
"""Left sides with a number parameter."""


@pytest.mark.parametrize("stock", [False, True], ids=["alone", "with stock rules"])
@pytest.mark.parametrize("form", NUMBERS)
def test_a_number_is_told_by_what_is_computed_of_it(form: str, stock: bool) -> None:
    """In normal form x / a is x (1/a), and a is found from what stands there."""
    left = NUMBERS[form]

    def sides(x, a: float):  # type: ignore[no-untyped-def]
        """Not true, but only matched here."""
        return left(x, a), x * a

    mine = eq.RuleSet((eq.rule("...", name="mine")(sides),))
    rules = eq.default_rules() + mine if stock else mine
    for a in (3.0, 0.3, -4.0):
        low = eq.jit(lambda x, a=a: left(x, a), rules=rules).lower(X)
        assert low.optimised.fired.get("mine", 0) >= 1, a


def test_a_number_that_stands_twice_is_one_number() -> None:
    """The one that is computed with is compared, the other one is bound."""

    @eq.rule("...")
    def twice(x, a: float):  # type: ignore[no-untyped-def]
        """exp(x (a - 1)) + a, in other words."""
        y = exp(x * (a - 1.0))
        return y + a, y + 1.0 * a

    for a, n in ((2.0, 3.0), (0.25, 1.25), (-1.5, -0.5)):
        assert fired(twice, lambda x, a=a, n=n: np.exp(x * a) + n, X) >= 1
        assert fired(twice, lambda x, a=a, n=n: np.exp(x * a) + (n + 0.5), X) == 0


def test_two_numbers_that_are_written_in_one_cannot_be_told() -> None:
    def sides(x, a: float, b: float):  # type: ignore[no-untyped-def]
        return x * (a + b), x * a + x * b

    with pytest.raises(eq.RuleError) as caught:
        eq.rule("...", name="sum")(sides)
    assert "has (a + b), from which 'a' and 'b' cannot be told" in str(caught.value)


@pytest.mark.parametrize(
    "sides, fn",
    [
        (lambda x, a, b: (exp(x * a * b), exp(x * (a * b))), lambda x: x * 3.0 * 2.0),
        (lambda x, a, b: (exp(x + a - b), exp(x + (a - b))), lambda x: x + 3.0 - 2.0),
        (lambda x, a, b: (exp(x / a / b), exp(x / (a * b))), lambda x: x / 3.0 / 2.0),
        (lambda x, a, b: (exp(a * (b * x)), exp(x * (a * b))), lambda x: 2.0 * (3 * x)),
    ],
)
def test_numbers_that_the_stock_rules_make_one_are_found_as_written(
    sides: Any, fn: Any
) -> None:
    def pair(x, a: float, b: float):  # type: ignore[no-untyped-def]
        return sides(x, a, b)

    made = eq.rule("...", name="pair", numerics="approximate(1e-9)")(pair)
    rules = eq.default_rules() + eq.RuleSet((made,))
    options = eq.Options(numerics="approximate")
    f = eq.jit(lambda x: np.exp(fn(x)), rules=rules, options=options)
    assert f.lower(X).optimised.fired["pair"] >= 1
    np.testing.assert_allclose(f(X), np.exp(fn(X)))
    found = eq.check(made)["pair"]
    assert found.verdict != "refused" and "dead" not in {n.kind for n in found.lints}


def test_an_attribute_that_is_computed_cannot_be_told() -> None:
    def sides(x, g: int, s: Ints):  # type: ignore[no-untyped-def]
        return reshape_op(x, shape=(g + 1, 2)), reshape_op(x, shape=s)

    with pytest.raises(eq.RuleError, match=r"uses 's', which the left side lacks"):
        eq.rule("...")(sides)

    def computed(x, g: int):  # type: ignore[no-untyped-def]
        return reshape_op(x, shape=(g + 1, 2)), x

    with pytest.raises(
        eq.RuleError, match=r"\(g \+ 1\), from which 'g' cannot be told"
    ):
        eq.rule("...")(computed)


@pytest.mark.parametrize("groups", [1, 2])
def test_integers_of_a_convolution(groups: int) -> None:
    """Stride, padding, dilation and groups are variables of one rule."""
    w = array(4, 4 // groups, 2, 3)
    for stride, padding, dilation in [
        ((1, 2), (0, 1), (1, 1)),
        ((1, 1), (1, 1), (2, 1)),
    ]:
        n = fired(
            RULES["integers"],
            lambda x, s, a=(stride, padding, dilation): conv2d(x, w, *a, groups) * s,
            array(1, 4, 6, 7),
            array(4, 1, 1),
        )
        assert n >= 1


def test_an_integer_is_a_number_too() -> None:
    """An ``int`` parameter that stands as a number is bound by its attribute alone."""

    @eq.rule("b i h v, o j p q")
    def grouped(x, w, g: int):  # type: ignore[no-untyped-def]
        """g conv(x, w)."""
        one = (1, 1)
        y = conv2d(x, w, one, (0, 0), one, g)
        return y * g, y + y * (g - 1.0)

    x, w = array(1, 4, 6, 6), array(4, 2, 2, 2)
    assert fired(grouped, lambda x: conv2d(x, w, groups=2) * 2.0, x) >= 1
    assert fired(grouped, lambda x: conv2d(x, w, groups=2) * 3.0, x) == 0
    assert eq.check(grouped, examples=30).ok


def test_starts_sizes_and_steps_are_variables() -> None:
    @eq.rule("... n")
    def every(x, a: Ints, b: Ints, c: Ints):  # type: ignore[no-untyped-def]
        """A slice of exp is exp of a slice."""
        return (
            slice_op(exp(x), starts=a, sizes=b, steps=c),
            exp(slice_op(x, starts=a, sizes=b, steps=c)),
        )

    assert fired(every, lambda x: np.exp(x)[:, ::2], X) >= 1
    assert fired(every, lambda x: np.exp(x)[1:, ::-1], X) >= 1


@pytest.mark.parametrize("perm", [(-1, -2, -3), (-2, -1, -3), (-1, -3, -2)])
def test_a_permutation_is_a_variable(perm: tuple[int, ...]) -> None:
    def fn(x: Any) -> Any:
        return transpose_op(transpose_op(x, perm=perm), perm=(-2, -3, -1))

    assert fired(RULES["entries"], fn, array(2, 3, 4)) >= 1


@pytest.mark.parametrize("axis", [-1, -2, (-2, -1)])
def test_an_axis_is_a_variable(axis: Any) -> None:
    assert fired(RULES["axis"], lambda x: np.exp(log_softmax(x, axis=axis)), X) >= 1


# -- several results -------------------------------------------------------------------


def test_two_products_become_one_and_are_split() -> None:
    a, b = WEIGHTS
    x = array(2, 32, 8)
    fast = eq.jit(lambda x: (x @ a, x @ b), rules=[RULES["results"]])
    kernels = [k.op.name for k in fast.lower(x).program.kernels]
    assert kernels.count("matmul") == 1
    for got, w in zip(fast(x), (a, b), strict=True):
        np.testing.assert_allclose(got, x @ w, rtol=1e-12)


def test_a_rule_of_several_results_splits_too() -> None:
    """From columns of one product to a product each, where the parts are at hand."""

    @eq.rule("m k, k n, k p", phase="user")
    def split(x, a, b):  # type: ignore[no-untyped-def]
        """The columns of x [a b] are x a and x b."""
        n, p = a.shape[-1], b.shape[-1]
        y = x @ concatenate([a, b], axis=-1)
        first = slice_op(y, starts=(0,), sizes=(n,), steps=(1,))
        rest = slice_op(y, starts=(n,), sizes=(p,), steps=(1,))
        return (first, rest), (x @ a, x @ b)

    def fn(x: Any, a: Any, b: Any) -> Any:
        y = x @ np.concatenate([a, b], axis=-1)
        return y[:, :5], y[:, 5:]

    args = array(4, 8), *WEIGHTS
    assert fired(split, fn, *args) >= 1
    assert fired(split, lambda x, a, b: fn(x, a, b)[0], *args) == 0
    assert eq.check(split, examples=30).ok


# -- conditions ------------------------------------------------------------------------

CONDITIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "size is a number": (lambda x, a: equal(x.shape[-1], 4), True),
    "size is another number": (lambda x, a: equal(x.shape[-1], 5), False),
    "two sizes": (lambda x, a: equal(x.shape[-1], x.shape[-2] + 1), True),
    "a number": (lambda x, a: equal(a, 3), True),
    "another number": (lambda x, a: equal(a, 3.5), False),
    "a size at most": (lambda x, a: at_most(x.shape[-1], 4), True),
    "a size at most less": (lambda x, a: at_most(x.shape[-1], 3), False),
    "a size not 0": (lambda x, a: nonzero(x.shape[-1]), True),
    "a difference of sizes": (lambda x, a: nonzero(x.shape[-1] - 4), False),
    "a number at most a whole one": (lambda x, a: at_most(a, 3), True),
    "several": (lambda x, a: (nonzero(a), at_most(a, 2.0)), False),
    "a bound that is known": (lambda x, a: at_least(exp(x), 0), True),
    "a bound that is not known": (lambda x, a: at_least(x, 0), False),
    "none": (lambda x, a: (), True),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_rule_is_used_where_its_conditions_hold(name: str) -> None:
    where, holds = CONDITIONS[name]

    def sides(x, a: float):  # type: ignore[no-untyped-def]
        """eˣ a + eˣ a = 2 a eˣ."""
        return exp(x) * a + exp(x) * a, exp(x) * (a * 2.0)

    rule = eq.rule("m n", where=where, name="mine")(sides)
    assert (fired(rule, lambda x: np.exp(x) * 3.0 + np.exp(x) * 3.0, X) > 0) == holds


MISPLACED: dict[str, tuple[Callable[..., Any], str]] = {
    "array": (
        lambda x, a, s: at_most(x, 3),
        "'at most 3' takes a number parameter or a size, x is an array",
    ),
    "number": (lambda x, a, s: at_least(a, 0), "takes an array, a is a number"),
    "attribute": (lambda x, a, s: equal(s, a), "or a size, s is an attribute"),
    "text": (lambda x, a, s: equal(a, "3"), "or a size, got '3'"),
    "shape": (
        lambda x, a, s: same_shape(x, (2, 3)),
        "takes an attribute of several integers, got (2, 3)",
    ),
    "entry by name": (lambda x, a, s: equal(s["axis"], 1), "s['axis']: the entries"),
    "entry of a fraction": (lambda x, a, s: s[1.5] == 1, "s[1.5]: the entries of"),
    "entry from the end": (lambda x, a, s: s[-1] == 1, "the attribute s are s[0], s"),
    "several entries": (lambda x, a, s: s[:2] == 1, "s[slice(None, 2, None)]: the"),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_condition_of_the_wrong_thing_is_an_error_of_the_rule(name: str) -> None:
    where, said = MISPLACED[name]

    def sides(x, a: float, s: Ints):  # type: ignore[no-untyped-def]
        return reshape_op(x * a, shape=s), reshape_op(x, shape=s) * a

    with pytest.raises(eq.RuleError) as caught:
        eq.rule("...", where=where, name="mine")(sides)
    assert said in str(caught.value) and "rule 'mine'" in str(caught.value)


OF_FEW: dict[str, tuple[Callable[..., Any], str]] = {
    "unless": (
        lambda x, b, w: unless_op(x @ w, b > 0, error="nan"),
        "unless: attribute 'error' is 'nan', expected one of 'all_nan', 'range', ",
    ),
    "linear": (
        lambda x, b, w: linear(x, w, b, act="rely"),
        "linear: attribute 'act' is 'rely', expected one of '', 'relu', 'gelu', ",
    ),
    "decompose": (
        lambda x, b, w: decompose(x @ w, routine="svd_of_it") + b,
        "decompose: attribute 'routine' is 'svd_of_it', expected one of '",
    ),
}


@pytest.mark.parametrize("name", OF_FEW)
def test_an_attribute_that_takes_one_of_a_few_values_takes_no_other(name: str) -> None:
    side, said = OF_FEW[name]
    here = side.__code__.co_filename
    for sides in (
        lambda x, b, w: (side(x, b, w), x @ w + b),
        lambda x, b, w: (x @ w + b, side(x, b, w)),
    ):
        with pytest.raises(eq.RuleError) as caught:
            eq.rule("m n, 1, n n", name="mine")(sides)
        assert f"rule 'mine': {said}" in str(caught.value) and here in str(caught.value)
    with pytest.raises(eq.TraceError) as traced:
        eq.jit(side)(X[:, :3], X[0, :1], X[:3, :3])
    assert said in str(traced.value)


@pytest.mark.parametrize("recognised", [True, False])
def test_choices_are_of_attributes_that_there_are(recognised: bool) -> None:
    def scaled_by_mode(x: Any, *, kind: str = "a") -> Any:
        return np.exp(x)

    choices = {"mode": ("a", "b")}
    with pytest.raises(eq.EqsatError) as caught:
        composite("... -> ...", choices=choices, recognised=recognised)(scaled_by_mode)
    assert str(caught.value) == (
        "op scaled_by_mode: choices of attribute 'mode', which it lacks; its "
        "attributes: 'kind'"
    )
    assert "scaled_by_mode" not in Op.registry


NOT_COMPUTED: dict[str, Callable[[Any], Any]] = {
    "np.sqrt": np.sqrt,
    r"\*\*": lambda a: a**2,
    "abs": abs,
    "float": math.sqrt,
    "np.maximum": lambda a: np.maximum(a, 1.0),
    "np.add": lambda a: np.add.reduce(a),
}


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_what_a_rule_cannot_compute_of_a_number_is_said(name: str) -> None:
    said = f"{name} of a, a number that is not known when the rule is built"

    def wrong(x: Any, a: float) -> Any:
        return x * a, x * NOT_COMPUTED[name](a)

    with pytest.raises(RuleError, match=said):
        rule("... n")(wrong)


def test_functions_of_numpy_are_operators_of_numbers() -> None:
    def right(x: Any, a: float) -> Any:
        return (x * a) / 4.0, np.multiply(np.true_divide(a, 4.0), x)

    def by_operators(x: Any, a: float) -> Any:
        return (x * a) / 4.0, (a / 4.0) * x

    found, same = (rule("... n")(f) for f in (right, by_operators))
    assert str(found).partition(":")[2] == str(same).partition(":")[2]


@pytest.mark.parametrize("way", ["shared left", "shared right", "both ways"])
def test_shared_parts_of_sides_are_looked_at_once(way: str) -> None:
    """Walked as a tree a side of 28 doublings has 2²⁹ parts."""

    def halved_twice(x: Any) -> Any:
        y = np.exp(x)
        for _ in range(28):
            y = (y + y) * 0.5
        return y

    def sides(x: Any) -> Any:
        pair = halved_twice(x), np.exp(x) * 1.0
        return pair[::-1] if way == "shared right" else pair

    rule = eq.rule("...", name="mine", both_ways=way == "both ways")(sides)
    assert len(str(rule)) < 10_000
    assert eq.check(rule, examples=5)["mine"].verdict == "proved"
    fast = eq.jit(lambda x: (np.exp(x) * 1.0, halved_twice(x)), rules=[rule])
    assert np.allclose(fast(np.ones(3))[0], np.e)


def test_patterns_with_shared_parts_are_matched_and_keyed_once() -> None:
    def tower(x: Any, last: float) -> Any:
        for _ in range(40):
            x = x + x
        return x * last

    x, y = (
        eq.rule("...", name="mine")(lambda x: (tower(np.exp(x), 1.0), x * 2.0)),
        eq.rule("...", name="mine")(lambda x: (tower(np.exp(x), 1.0), x * 3.0)),
    )
    assert match(x.left[0], y.left[0]) is not None
    assert substitute(x.left[0], {"x": x.left[0]}) is not x.left[0]
    assert not is_scalar(x.left[0])
    assert canonical(x.sides[:2]) != canonical(y.sides[:2])
    assert canonical(x.sides[:1]) == canonical(y.sides[:1])
