"""Algebraic proof: what is proved is true, and what is wrong is never proved."""

from __future__ import annotations

import math
import random
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, some

import eqsat as eq
from eqsat.checking.draws.cases import Case
from eqsat.checking.draws.explore import explore
from eqsat.checking.proofs.field_semantics import LOGIC, REAL
from eqsat.checking.proofs.free_functions import FreeFunctions, LogPairs, Unprovable
from eqsat.checking.proofs.prime_field import Field, FieldArray, is_prime, random_prime
from eqsat.checking.proofs.proof import prove
from eqsat.checking.proofs.quotient_bound import LEAST, QuotientBound
from eqsat.checking.verdict import left_is_defined
from eqsat.ops import (
    absolute,
    cos,
    exp,
    log,
    logical_not,
    sigmoid,
    sin,
    sqrt,
    tanh,
    where,
)
from eqsat.rulelang.condition import nonzero
from eqsat.terms.op import Op

WRONG = eq.load_rules(Path(__file__).resolve().parents[1].joinpath("wrong_rules"))
TRUE_OF_REAL_NUMBERS = {"compare_by_difference"}
"""Wrong rules beside those of ``floats.py`` that only the wrap of integers breaks."""
UNPROVED = {
    "log_of_softmax",  # ln of a quotient
    "power_quarter",  # a root of a root
    "power_three_quarters",
    "power_three_halves",
    "attention_of_causal",  # the others hold infinite numbers
    "attention_of_hidden_future",
    "attention_of_causal_bias",
    *(r.name for r in eq.default_rules() if Path(r.file).name == "linalg.py"),
}
"""Rules of factorisations have none, as a field orders no pivots."""


# -- the field -------------------------------------------------------------------------


def test_primes_are_told_apart() -> None:
    sieve = [
        n for n in range(2, 3000) if all(n % d for d in range(2, math.isqrt(n) + 1))
    ]
    assert [n for n in range(3000) if is_prime(n)] == sieve
    assert is_prime(2**61 - 1) and not is_prime(2**67 - 1)
    # The least numbers that the first nine and the first twelve bases take for primes.
    assert not is_prime(3825123056546413051)
    assert not is_prime(318665857834031151167461)


def test_a_random_prime_lies_in_its_range() -> None:
    rng = random.Random(0)
    for _ in range(5):
        p = random_prime(rng)
        assert LEAST < p < 2 * LEAST and is_prime(p)


@given(st.fractions(max_denominator=50), st.fractions(max_denominator=50))
def test_numbers_are_computed_with_as_fractions(a: Fraction, b: Fraction) -> None:
    f = Field.drawn(random.Random(0))
    x, y = f.number(a), f.number(b)
    assert f.add(x, y).array == f.number(a + b).array
    assert f.subtract(x, y).array == f.number(a - b).array
    assert f.multiply(x, y).array == f.number(a * b).array
    if b:
        assert f.divide(x, y).array == f.number(a / b).array
    else:
        with pytest.raises(Unprovable):
            f.divide(x, y)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_have_no_residue(value: float) -> None:
    with pytest.raises(Unprovable):
        Field.drawn(random.Random(0)).number(value)


def test_sizes_bound_degrees_and_coefficients() -> None:
    """(x + 1)² / y, then the sum of three such quotients."""
    f = Field.drawn(random.Random(0))
    x, y = f.variable((3,)), f.variable((3,))
    quotient = f.divide(f.power(f.add(x, f.number(1)), 2), y)
    assert (quotient.size.num, quotient.size.den) == (2, 1)
    assert quotient.size.bits >= math.log2(4)
    total = f.sum(quotient, (0,))
    assert (total.size.num, total.size.den) == (4, 3)
    assert total.size.bits >= math.log2(3 * 4)
    assert total.size.coincide(QuotientBound(1)) >= 4 / LEAST


# -- the meanings ----------------------------------------------------------------------


class Reals(Field):
    """The interface of a field over float64, with the true functions."""

    def number(self, value: Any) -> FieldArray:
        return FieldArray(np.asarray(float(value)), QuotientBound())

    def named(self, name: str) -> FieldArray:
        return self.number({"ln 2": math.log(2), "ln 10": math.log(10)}[name])

    def add(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(x.array + y.array, QuotientBound())

    def subtract(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(x.array - y.array, QuotientBound())

    def negative(self, x: FieldArray) -> FieldArray:
        return FieldArray(-x.array, QuotientBound())

    def multiply(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(x.array * y.array, QuotientBound())

    def divide(self, x: FieldArray, y: FieldArray) -> FieldArray:
        return FieldArray(x.array / y.array, QuotientBound())

    def power(self, x: FieldArray, n: int) -> FieldArray:
        return FieldArray(x.array**n, QuotientBound())

    def sum(self, x: FieldArray, axis: Any) -> FieldArray:
        return FieldArray(x.array.sum(tuple(axis), keepdims=True), QuotientBound())

    def largest(self, x: FieldArray, axis: Any) -> FieldArray:
        return FieldArray(x.array.max(tuple(axis), keepdims=True), QuotientBound())

    def exp(self, x: FieldArray) -> FieldArray:
        return FieldArray(np.exp(x.array), QuotientBound())

    def log(self, x: FieldArray) -> FieldArray:
        return FieldArray(np.log(x.array), QuotientBound())

    def function(self, name: str, *args: FieldArray) -> FieldArray:
        known = {
            "less than 0": lambda v: (v < 0) * 1.0,
            "zero": lambda v: (v == 0) * 1.0,
        }
        f = known.get(name) or Op.registry[name].reference
        return FieldArray(np.asarray(f(*(a.array for a in args))), QuotientBound())

    def even(self, name: str, x: FieldArray) -> FieldArray:
        return self.function(name, FieldArray(np.abs(x.array), QuotientBound()))

    def odd(self, name: str, x: FieldArray) -> FieldArray:
        found = self.function(name, FieldArray(np.abs(x.array), QuotientBound()))
        return FieldArray(np.sign(x.array) * found.array, QuotientBound())


class Places(FreeFunctions):
    """The place of the largest, as the one free function."""

    def residue(self, name: str, key: Any) -> int:
        assert name in ("argmax", "argmin")
        return int(np.argmax(key))


def reals() -> Reals:
    """The field of real numbers."""
    free = Places(random.Random(0), p=7)
    return Reals(free.p, free, LogPairs(free))


MODULO = ("matmul", "conv2d", "prod")
"""Computed by NumPy, then taken modulo p; tested with residues below."""
ARGUMENTS = {
    "where": lambda x, y: [x > 0.5, x, y],
    "arcsin": lambda x, y: [x - 1],
    "arctanh": lambda x, y: [x - 1],
    "rsqrt": lambda x, y: [x],
    "sqrt": lambda x, y: [x],
    **dict.fromkeys(("log", "log2", "log10", "log1p"), lambda x, y: [x]),
    "divide": lambda x, y: [x - 1, y],
    "reciprocal": lambda x, y: [x],
}
"""Arguments that a function is defined for, of arrays between 0.1 and 1.9."""


@pytest.mark.parametrize("name", [n for n in REAL if n not in MODULO])
def test_meanings_are_identities_of_real_numbers(name: str) -> None:
    """A meaning with the true functions in it computes what the op computes."""
    op = Op.registry[name]
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.1, 1.9, (2, 3, 4))
    x[0], y[0] = rng.integers(1, 3, (2, 4)) * 0.5  # halves, and some equal pairs
    if name in ARGUMENTS:
        args = ARGUMENTS[name](x, y)
    else:
        # Both signs: the parity of a function is a part of its meaning.
        args = [x - 1.0, y - 1.0][: len(op.params)]
    attrs = {"axis": (-1,)} if "axis" in op.attrs else {}
    reference = op.reference(*args, **attrs)
    f = reals()
    found = REAL[name](
        f, *(FieldArray(np.asarray(a) * 1.0, QuotientBound()) for a in args), **attrs
    )
    got = found.array.astype(float)
    np.testing.assert_allclose(got, reference, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in LOGIC if n != "where"])
def test_meanings_of_conditions(name: str) -> None:
    op = Op.registry[name]
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    args = [x, y][: len(op.params)]
    f = reals()
    found = LOGIC[name](f, *(FieldArray(a * 1.0, QuotientBound()) for a in args))
    assert np.array_equal(found.array, op.reference(*args) * 1.0)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_and_products_of_residues(groups: int) -> None:
    rng = np.random.default_rng(0)
    f = Field.drawn(random.Random(0))
    x, w = rng.integers(0, 9, (2, 4, 5, 6)), rng.integers(0, 9, (6, 4 // groups, 2, 3))
    attrs = {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1), "groups": groups}
    found = REAL["conv2d"](f, f.constants(x), f.constants(w), **attrs)
    want = Op.registry["conv2d"].reference(x * 1.0, w * 1.0, **attrs)
    assert np.array_equal(found.array.astype(float), want)
    a, b = rng.integers(0, 9, (3, 4, 5)), rng.integers(0, 9, (5, 2))
    product = REAL["matmul"](f, f.constants(a), f.constants(b))
    assert np.array_equal(product.array.astype(int), a @ b)
    whole = REAL["prod"](f, f.constants(b), axis=(-2, -1))
    assert np.array_equal(whole.array.astype(int), b.prod(keepdims=True))


# -- rules -----------------------------------------------------------------------------

PARTS = 192
"""Of the stock rules: each is one test."""


@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_stock_rules_are_proved(part: int) -> None:
    rules = list(eq.default_rules())[part::PARTS]
    report = eq.check(rules, lints=False, seed=part)
    unproved = {f.rule for f in report if f.verdict != "proved"}
    assert unproved == UNPROVED & {r.name for r in rules}
    assert max(f.error_probability or 0 for f in report) < 1e-30


def test_a_proof_names_the_shapes_that_it_covers() -> None:
    shapes = eq.check(eq.default_rules()["matmul_factors"])["matmul_factors"].proved_for
    assert len(shapes) > 20
    assert all(s.startswith("x ") and ", a " in s for s in shapes)


def cases(rule: eq.Rule, seed: int) -> list[Case]:
    """Cases of every class of ``rule``, as the check draws them."""

    def look(case: Case) -> bool:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return left_is_defined(case, case.args())

    return explore(rule, 60, seed, look).spanning


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_rules_are_not_proved(seed: int) -> None:
    """But those that are true of real numbers, and wrong of floats or integers."""
    for r in some([*WRONG], len(WRONG) // 32):
        algebraic = not r.name.endswith("_mended") and "floats" not in r.file
        if algebraic and r.name not in TRUE_OF_REAL_NUMBERS:
            assert prove(r, cases(r, seed), seed) is None, r.name


RIGHT = {
    "exponents add": lambda x, y: (exp(x) * exp(y), exp(x + y)),
    "exponents subtract": lambda x, y: (exp(x - y) * exp(y), exp(x)),
    "one exponent": lambda x, y: (exp((x + y) * y), exp(x * y + y * y)),
    "inverse functions": lambda x, y: (log(exp(x)) + exp(log(y)), x + y),
    "hyperbolic": lambda x, y: (tanh(x), sigmoid(x + x) * 2.0 - 1.0),
    "odd": lambda x, y: (sin(x - y), -sin(y - x)),
    "even": lambda x, y: (cos(x - y), cos(y - x)),
    "inner": lambda x, y: (sin((x + y) * (x - y)), sin(x * x - y * y)),
    "roots": lambda x, y: (sqrt(x * x), absolute(x)),
    "conditions": lambda x, y: (where(x < y, x, y), where(logical_not(x < y), y, x)),
    "powers": lambda x, y: ((x + y) ** 3.0, (x + y) * (x + y) * (x + y)),
}
FALSE = {
    "nearly": lambda x, y: (x * 0.1 + x * 0.2, x * 0.3),
    "exponents": lambda x, y: (exp(x) * exp(y), exp(x * y)),
    "doubled": lambda x, y: (exp(x + x), exp(x) * 2.0),
    "odd": lambda x, y: (sin(x - y), sin(y - x)),
    "functions": lambda x, y: (sin(x) + cos(y), sin(y) + cos(x)),
    "signs": lambda x, y: (sqrt(x * x), x + 0.0),
    "no value": lambda x, y: (x / (y - y), x / (x - x)),
    "conditions": lambda x, y: (where(x < y, x, y), where(x < y, y, x)),
}


def of_two(sides: Any) -> eq.Rule:
    def rule(x, y):  # type: ignore[no-untyped-def]
        """Two arrays, both of which the left side has."""
        left, right = sides(x, y)
        return left + (x + y), right + (x + y)

    return eq.rule("m n, m n")(rule)


@pytest.mark.parametrize("name", RIGHT)
def test_identities_are_proved(name: str) -> None:
    proof = prove(of_two(RIGHT[name]))
    assert proof is not None and proof.error < 1e-30


@pytest.mark.parametrize("name", FALSE)
def test_what_is_no_identity_is_not_proved(name: str) -> None:
    assert prove(of_two(FALSE[name])) is None


def test_number_parameters_are_any_numbers() -> None:
    @eq.rule("...", where=lambda x, a: nonzero(a))
    def right(x, a: float):  # type: ignore[no-untyped-def]
        """x / a + x = x (1/a + 1)."""
        return x / a + x, x * (1.0 / a + 1.0)

    @eq.rule("...", where=lambda x, a: nonzero(a))
    def wrong(x, a: float):  # type: ignore[no-untyped-def]
        """True of a = 1 alone."""
        return x / a, x * a

    assert prove(right) is not None and prove(wrong) is None


# -- drawn identities ------------------------------------------------------------------

Tree = Any
"""A variable, a number, or an operation with its operands."""
LEAVES = st.sampled_from(["x", "y", "z"]) | st.integers(-4, 4)
FUNCTIONS = {"sin": sin, "exp": exp, "sqrt": sqrt, "tanh": tanh}
TREES = st.recursive(
    LEAVES,
    lambda t: (
        st.tuples(st.sampled_from("+-*"), t, t)
        | st.tuples(st.sampled_from(sorted(FUNCTIONS)), t)
    ),
    max_leaves=8,
)


def value(tree: Tree, env: dict[str, Any]) -> Any:
    if isinstance(tree, str):
        return env[tree]
    if isinstance(tree, int):
        return env["x"] * 0.0 + float(tree)
    args = [value(t, env) for t in tree[1:]]
    if tree[0] in FUNCTIONS:
        return FUNCTIONS[tree[0]](args[0])
    a, b = args
    return a + b if tree[0] == "+" else a - b if tree[0] == "-" else a * b


def rewritten(tree: Tree, rng: random.Random) -> Tree:
    """The same, written another way: commuted, distributed, with signs moved."""
    if not isinstance(tree, tuple):
        return ("-", ("+", tree, "y"), "y") if rng.random() < 0.2 else tree
    op, *args = tree
    parts = [rewritten(t, rng) for t in args]
    if op in FUNCTIONS:
        return (op, parts[0])
    a, b = parts
    if op == "-":
        return ("+", a, ("*", -1, b))
    if op == "+":
        return ("+", b, a)
    if isinstance(b, tuple) and b[0] in "+-":
        return (b[0], ("*", a, b[1]), ("*", a, b[2]))
    return ("*", b, a)


def of_trees(left: Tree, right: Tree) -> eq.Rule:
    def rule(x, y, z):  # type: ignore[no-untyped-def]
        """Three arrays of one axis."""
        env = {"x": x, "y": y, "z": z}
        # All variables are on the left side, whose top is an operation.
        return value(left, env) + (x + y + z), value(right, env) + (x + y + z)

    return eq.rule("n, n, n")(rule)


@examples(60)
@given(TREES, st.integers(0, 2**32))
def test_an_identity_written_two_ways_is_proved(tree: Tree, seed: int) -> None:
    assert prove(of_trees(tree, rewritten(tree, random.Random(seed)))) is not None


@examples(60)
@given(
    TREES,
    st.integers(0, 2**32),
    st.integers(1, 3) | st.integers(-3, -1),
    st.sampled_from(
        ["x", "z", ("*", "x", "y"), ("sin", "z"), ("*", "z", ("exp", "x"))]
    ),
)
def test_a_perturbed_identity_is_not_proved(
    tree: Tree, seed: int, factor: int, change: Tree
) -> None:
    right = ("+", rewritten(tree, random.Random(seed)), ("*", factor, change))
    assert prove(of_trees(tree, right), seed=seed % 5) is None


@examples(40)
@given(TREES, st.sampled_from("xyz"), st.sampled_from("xyz"))
def test_a_variable_in_place_of_another_is_proved_only_where_it_is_the_same(
    tree: Tree, old: str, new: str
) -> None:
    """Proved, then equal: compared in extended precision at a point."""

    def renamed(t: Tree) -> Tree:
        if isinstance(t, tuple):
            return (t[0], *map(renamed, t[1:]))
        return new if t == old else t

    if prove(of_trees(tree, renamed(tree))) is not None:
        rng = np.random.default_rng(0)
        env = {v: rng.uniform(0.5, 1.5, 20).astype(np.longdouble) for v in "xyz"}
        with np.errstate(all="ignore"):
            a, b = value(tree, env), value(renamed(tree), env)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
