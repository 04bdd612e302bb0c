"""Every stock rule computes the same on both sides, in float64 or in the dtype that it
is for, over drawn shapes and values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.rulelang.condition import Held
from eqsat.rulelang.pattern import Expr, PatternNode, nodes
from eqsat.rulelang.rule import Rule

RULES = list(eq.default_rules())
NUMBERS = [-2.0, -1.0, 0.5, 3.0, 0.0, -math.inf]


@st.composite
def arguments(draw: st.DrawFn, rule: Rule) -> list[Any]:
    """Arguments of a rule: named axes of distinct sizes, broadcast ellipses,
    numbers."""
    sizes = draw(st.permutations([2, 3, 4, 5, 6, 7]))
    names = dict.fromkeys(
        a for axes in rule.signature.inputs for a in axes.tokens if a != "..."
    )
    size = dict(zip(names, sizes, strict=False))
    groups = draw(st.sampled_from([1, 2]))
    if "conv2d" in rule.ops(rule.left):
        size |= {
            "j": 3,
            "i": 3 * groups,
            "o": 2 * groups,
            "p": 1,
            "q": 2,
            "h": 4,
            "v": 5,
        }
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays: dict[str, np.ndarray] = {}
    for name, axes in zip(rule.tensors, rule.signature.inputs, strict=True):
        shape: list[int] = []
        for a in axes.tokens:
            if a == "...":
                keep = draw(st.integers(0, len(batch)))
                mine = [draw(st.sampled_from([1, b])) for b in batch[keep:]]
                shape += batch if rule.numbers else mine
            else:
                shape.append(a if isinstance(a, int) else size[a])
        values = rng.uniform(-2, 2, shape).astype(rule.dtype or float)
        arrays[name] = values > 0 if name in rule.masks else values
    rank = min((a.ndim for a in arrays.values() if a.ndim), default=0)
    made = []
    for p in rule.params:
        if p not in rule.numbers:
            made.append(arrays[p])
        elif rule.numbers[p] == "float":
            made.append(draw(st.sampled_from(NUMBERS[:-1])))
        elif rule.numbers[p] == "int":
            made.append(groups)
        else:
            made.append(draw(_attribute(rule, p, arrays, rank)))
    return made


def _attribute(
    rule: Rule, param: str, arrays: dict[str, np.ndarray], rank: int
) -> st.SearchStrategy[tuple[int, ...]]:
    """Values of an attribute parameter, by the op whose attribute it is."""
    x = next(iter(arrays.values()))
    for side in rule.left:
        for p in nodes(side):
            if isinstance(p, PatternNode) and Expr(param, (), "ints") in p.attrs:
                if p.op.name == "reshape":
                    n = x.size
                    return st.sampled_from([(n,), (1, n), (n, 1), x.shape])
                if p.op.name == "conv2d":
                    attr = list(p.op.attrs)[p.attrs.index(Expr(param, (), "ints"))]
                    least = 0 if attr == "padding" else 1
                    return st.tuples(st.integers(least, 2), st.integers(least, 2))
                if p.op.name == "transpose":
                    return st.permutations(range(-min(rank, 3), 0)).map(tuple)
    return st.integers(-rank, -1).map(lambda a: (a,))


def _inside_domain(rule: Rule, args: list[Any]) -> list[Any]:
    """The arguments bent into the rule's domain; empty when that cannot be done."""
    assert rule.where is not None
    floats = [i for i, p in enumerate(rule.params) if rule.numbers.get(p) == "float"]
    for numbers in itertools.product(*([args[i], *NUMBERS] for i in floats)):
        tried = list(args)
        for i, number in zip(floats, numbers, strict=True):
            tried[i] = number
        for _ in range(2):
            held = rule.where(*tried)
            conditions = held if isinstance(held, tuple) else (held,)
            assert all(isinstance(h, Held) for h in conditions)
            if all(conditions):
                return tried
            for h in conditions:
                if not h:
                    h.mend()
    return []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
@examples(15)
@given(data=st.data())
def test_sides_agree(rule: Rule, data: st.DataObject) -> None:
    args = data.draw(arguments(rule))
    if rule.where is not None:
        args = _inside_domain(rule, args)
        assume(bool(args))
    with np.errstate(all="ignore"):
        try:
            left, right = rule(*args)
        except ValueError:  # a size that is odd, or that groups do not divide
            assume(False)
    pairs = (
        zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    )
    for a, b in pairs:
        assert np.shape(a) == np.shape(b)
        if rule.dtype is not None:
            assert a.dtype == b.dtype == rule.dtype
            a, b = a.astype(float), b.astype(float)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_every_rule_has_a_formula_and_a_place() -> None:
    for rule in RULES:
        assert rule.doc, rule.name
        assert rule.line > 0 and rule.file.endswith(".py")


def test_a_wrong_rule_fails_this_test() -> None:
    @eq.rule("n, n")
    def sinh_of_sum(x, y):  # type: ignore[no-untyped-def]
        """sinh x cosh y + cosh y sinh x is not sinh(x + y)."""
        left = np.sinh(x) * np.cosh(y) + np.cosh(y) * np.sinh(x)
        return left, np.sinh(x + y)

    x, y = np.array([1.0]), np.array([0.5])
    left, right = sinh_of_sum(x, y)
    assert abs(left - right) > 0.1
