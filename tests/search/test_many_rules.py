"""Many rules of a user's, and rules that multiply: how much work a search has."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from bench.compiling import many_rules
from eqsat.demo import block
from eqsat.egraph import Engine, open_engine

line = sys.modules["eqsat.search.optimise"]
ROOMY = 2.5
"""How many times as large as with the stock rules a graph may be."""


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Engine]]:
    """The engines that ``optimise`` makes, in order."""
    made: list[Engine] = []

    def recorded(*args: Any, keep: bool) -> Engine:
        made.append(open_engine(*args))
        return made[-1]

    monkeypatch.setattr(line, "open_engine", recorded)
    yield made


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> eq.RuleSet:
    path = Path(tmp_path_factory.mktemp("rules")) / "many.py"
    path.write_text(many_rules.text(500))
    return eq.load_rules(path)


def test_the_rules_are_of_all_families(mine: eq.RuleSet) -> None:
    assert len(mine) == 500 and not mine.broken
    assert len(set().union(*(r.ops(r.left) for r in mine))) >= 45
    assert sum(r.both_ways for r in mine) >= 100


# Rules without an end stand beside programs every time.
@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_five_hundred_rules_beside_a_block(
    norm: str, mine: eq.RuleSet, engines: list[Engine]
) -> None:
    """A rule whose ops do not meet in the program is not loaded, and those that match
    leave a graph of the size that two compiles have."""
    config = block.Config(1, seq=10, dim=24, heads=3, norm=norm)
    model, x, _ = block.draw(config)
    both = eq.default_rules() + mine
    found = [
        eq.jit(model.forward, rules=rules).lower(x).optimised
        for rules in (eq.default_rules(), both)
    ]
    stock, more = engines
    assert len(more._loaded) - len(stock._loaded) <= len(mine) / 5
    assert more.size() <= ROOMY * stock.size()
    assert found[1].cost_s <= found[0].cost_s
    assert found[0].fired.keys() <= found[1].fired.keys()
    got = eq.jit(model.forward, rules=both)(x)
    np.testing.assert_allclose(got, model.forward(x), rtol=1e-4, atol=1e-5)


@eq.rule("..., ..., ...", both_ways=True)
def distributes(x: Any, y: Any, z: Any) -> Any:
    """x (y + z) = x y + x z."""
    return x * (y + z), x * y + x * z


@eq.rule("..., ...")
def sums_commute(x: Any, y: Any) -> Any:
    """x + y = y + x."""
    return x + y, y + x


@eq.rule("..., ...")
def products_commute(x: Any, y: Any) -> Any:
    """x y = y x."""
    return x * y, y * x


@eq.rule("..., ..., ...", both_ways=True)
def sums_associate(x: Any, y: Any, z: Any) -> Any:
    """(x + y) + z = x + (y + z)."""
    return (x + y) + z, x + (y + z)


@eq.rule("..., ..., ...", both_ways=True)
def products_associate(x: Any, y: Any, z: Any) -> Any:
    """(x y) z = x (y z)."""
    return (x * y) * z, x * (y * z)


POLYNOMIALS = [
    distributes,
    sums_commute,
    products_commute,
    sums_associate,
    products_associate,
]


def powers(x: Any, c: Any) -> Any:
    """Σᵢ cᵢ xⁱ."""
    total, power = c[0] * 1.0, x
    for a in c[1:]:
        total, power = total + a * power, power * x
    return total


def factors(x: Any, c: Any) -> Any:
    """Πᵢ (x + cᵢ)."""
    total = x + c[0]
    for a in c[1:]:
        total = total * (x + a)
    return total


def transposed(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


ENDLESS: dict[str, list[tuple[str, Any, bool]]] = {
    "sums": [
        ("..., ...", lambda x, y: (x + y, y + x), False),
        ("..., ..., ...", lambda x, y, z: ((x + y) + z, x + (y + z)), True),
    ],
    "products": [
        ("..., ...", lambda x, y: (x * y, y * x), False),
        ("..., ..., ...", lambda x, y, z: ((x * y) * z, x * (y * z)), True),
    ],
    "distributes": [
        ("..., ..., ...", lambda x, y, z: (x * (y + z), x * y + x * z), True),
        ("..., ..., ...", lambda x, y, z: (x - (y + z), (x - y) - z), True),
    ],
    "matrices": [
        ("m k, k j, j n", lambda x, v, w: ((x @ v) @ w, x @ (v @ w)), True),
        (
            "m k, k n",
            lambda x, w: (transposed(x @ w), transposed(w) @ transposed(x)),
            True,
        ),
        ("... m k, k n", lambda x, w: (x @ w, transposed(transposed(x @ w))), False),
        ("... m k, k n", lambda x, w: (x @ w, (x * 1.0) @ w), False),
    ],
    "the same": [
        ("..., ...", lambda x, y: (x + y, (x + y) * 1.0), False),
        ("..., ...", lambda x, y: (x + y, (x + y) + 0.0), False),
        ("..., ...", lambda x, y: (x * y, np.negative(np.negative(x * y))), False),
        ("...", lambda x: (np.exp(x), np.exp(x) * np.exp(x * 0.0)), False),
    ],
    "extrema": [
        ("..., ...", lambda x, y: (np.maximum(x, y), np.maximum(y, x)), False),
        ("..., ...", lambda x, y: (x + y, np.maximum(x + y, x + y)), False),
        ("..., ...", lambda x, y: (x * y, np.where(x < y, x * y, y * x)), False),
    ],
    "maps": [
        ("..., ...", lambda x, y: (np.exp(x + y), np.exp(x) * np.exp(y)), True),
        ("...", lambda x: (np.sqrt(x), np.sqrt(np.sqrt(x) * np.sqrt(x))), False),
    ],
}
"""Rules without an end: signature, both sides, whether they rewrite both ways."""
ENDLESS["all"] = [row for rows in ENDLESS.values() for row in rows]


def endless(kind: str, phase: str = "user") -> eq.RuleSet:
    return eq.RuleSet(
        tuple(
            eq.rule(signature, name=f"endless_{i}", both_ways=both, phase=phase)(f)
            for i, (signature, f, both) in enumerate(ENDLESS[kind])
        )
    )


def chain(x: Any, c: Any) -> Any:
    """A residual stream."""
    for a in c:
        x = x + np.tanh(x * a) + a
    return np.exp(x) / (1.0 + np.exp(x))


def layers(x: Any, w: Any) -> Any:
    for a in w:
        x = np.maximum(x @ a, 0.0) + x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def polynomial(x: Any, c: Any) -> Any:
    return powers(x, c) * factors(x, c[:4])


PROGRAMS = {
    "chain": (chain, (60,), [(60,)] * 6),
    "layers": (layers, (6, 8), [(8, 8)] * 5),
    "polynomial": (polynomial, (50,), [(50,)] * 8),
}


def draw(name: str) -> tuple[Any, Any, Any]:
    f, shape, others = PROGRAMS[name]
    rng = np.random.default_rng(0)
    return f, rng.uniform(0.1, 0.5, shape), [rng.uniform(0.1, 0.5, s) for s in others]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", ENDLESS)
def test_rules_without_an_end_cost_no_program(
    kind: str, program: str, engines: list[Engine]
) -> None:
    """The graph stays of the size that the stock rules leave, up to a factor and what
    small programs may grow by; what these find is found."""
    f, x, c = draw(program)
    both = eq.default_rules() + endless(kind)
    alone, found = (
        eq.jit(f, rules=rules).lower(x, c).optimised
        for rules in (eq.default_rules(), both)
    )
    stock, more = engines
    assert more.size() <= ROOMY * stock.size() + 200
    assert not found.cut_short
    assert found.cost_s <= alone.cost_s
    assert alone.fired.keys() <= found.fired.keys()
    np.testing.assert_allclose(eq.jit(f, rules=both)(x, c), f(x, c), rtol=1e-9)


@pytest.mark.parametrize("phase", ["recognise", "algebra", "merge"])
def test_whatever_the_phase_of_rules_without_an_end(phase: str) -> None:
    f, x, c = draw("chain")
    rows = endless("the same", phase)
    both = eq.default_rules() + rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eq.BudgetWarning)
        alone, found = (
            eq.jit(f, rules=rules).lower(x, c).optimised
            for rules in (eq.default_rules(), both)
        )
        np.testing.assert_allclose(eq.jit(f, rules=both)(x, c), f(x, c), rtol=1e-9)
    assert found.cost_s <= alone.cost_s


def test_a_normal_form_that_is_dearer_costs_no_program() -> None:
    f, x, c = draw("chain")
    rule = eq.rule("...", name="of_exp", phase="canonicalise")(
        lambda x: (np.tanh(x), 1.0 - 2.0 / (np.exp(x * 2.0) + 1.0))
    )
    both = eq.default_rules() + eq.RuleSet((rule,))
    alone, found = (
        eq.jit(f, rules=rules).lower(x, c).optimised
        for rules in (eq.default_rules(), both)
    )
    assert found.fired["of_exp"]
    assert found.cost_s <= alone.cost_s


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_rule_that_pays_is_used_beside_rules_without_an_end(kind: str) -> None:
    """cosh² - sinh² = 1 has two steps here: the second needs what the first made."""

    def f(x: Any, c: Any) -> Any:
        return np.square(np.cosh(x)) - np.sinh(x) * np.sinh(x) + chain(x, c)

    paying = eq.RuleSet(
        (
            eq.rule("...", name="of_sinh")(
                lambda x: (np.sinh(x) * np.sinh(x), np.square(np.cosh(x)) - 1.0)
            ),
            eq.rule("...", name="of_itself")(lambda x: (x - (x - 1.0), x * 0.0 + 1.0)),
        )
    )
    _, x, c = draw("chain")
    found = {}
    for name, rules in {"beside": paying + endless(kind), "alone": paying}.items():
        fast = eq.jit(f, rules=eq.default_rules() + rules)
        found[name] = fast.lower(x, c).optimised
        np.testing.assert_allclose(fast(x, c), f(x, c), rtol=1e-9)
    stock = eq.jit(f).lower(x, c).optimised
    assert found["beside"].cost_s <= found["alone"].cost_s * (1 + 1e-6) < stock.cost_s


def test_a_dearer_program_of_own_rules_is_not_taken_and_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Covers are found by heuristics: one over more nodes may be dearer."""
    f, x, c = draw("layers")
    cover, dear = line._covered, []

    def spoilt(*args: Any) -> Any:
        made = cover(*args)
        dear.append(made)
        if len(dear) == 2:
            made.cost_s *= 2
        return made

    monkeypatch.setattr(line, "_covered", spoilt)
    rules = eq.default_rules() + endless("sums")
    found = eq.jit(f, rules=rules).lower(x, c).optimised
    assert len(dear) == 2 and found is dear[0]
    assert found.own_cost_s == dear[1].cost_s > found.cost_s
    assert found.fired["endless_0"]


@pytest.mark.parametrize("max_nodes", [60, 300, 2000])
def test_what_ends_the_search_ends_it_after_the_stock_rules(max_nodes: int) -> None:
    f, x, c = draw("polynomial")
    options = eq.Options(max_nodes=max_nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eq.BudgetWarning)
        alone, found = (
            eq.jit(f, rules=rules, options=options).lower(x, c).optimised
            for rules in (eq.default_rules(), eq.default_rules() + endless("all"))
        )
    assert found.cost_s <= alone.cost_s


@pytest.mark.sampled(2)
@pytest.mark.parametrize("f", [powers, factors])
@pytest.mark.parametrize(
    "degree", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 8, 12))]
)
def test_a_set_that_distributes_both_ways_ends(f: Any, degree: int) -> None:
    """No iteration adds more than the graph may hold, whatever the one before did: 13
    factors once made 63 282 e-nodes of 3 988 at once."""
    rng = np.random.default_rng(0)
    x, c = rng.uniform(-1, 1, 50), [rng.uniform(1, 2, 50) for _ in range(degree + 1)]
    rules = eq.default_rules() + eq.RuleSet(tuple(POLYNOMIALS))
    options = eq.Options()
    fast = eq.jit(f, rules=rules, options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eq.BudgetWarning)
        low, got = fast.lower(x, c), fast(x, c)
    assert low.optimised.nodes <= options.max_nodes
    alone = eq.jit(f, options=options).lower(x, c).optimised
    assert low.optimised.cost_s <= alone.cost_s
    np.testing.assert_allclose(got, f(x, c), rtol=1e-12)
