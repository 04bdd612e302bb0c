"""Many rules of a user's, and rules that multiply: how much work a search has."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import many_rules
import numpy as np
import pytest

import eqsat as eq
from eqsat.demo import block
from eqsat.egraph import Engine, open_engine

line = sys.modules["eqsat.search.optimise"]


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
    assert len(more._loaded) <= 2 * len(stock._loaded)
    assert found[1].nodes <= 3 * found[0].nodes
    assert found[1].classes <= 2 * found[0].classes
    assert found[1].cost_s <= 1.02 * found[0].cost_s
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


@pytest.mark.parametrize("f", [powers, factors])
@pytest.mark.parametrize("degree", [4, 12])
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
    assert low.optimised.cost_s <= low.optimised.baseline_cost_s
    np.testing.assert_allclose(got, f(x, c), rtol=1e-12)
