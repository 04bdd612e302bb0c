"""The extraction engine: its parts keep the optimum, and every answer is valid at
whatever moment the budget ends."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import Calls, acyclic, checked, choices, optimum, problems, seconds
from random_covers import drawn
from sizes import examples

from eqsat.search.extraction import extract, ilp
from eqsat.search.extraction.cycles import loops
from eqsat.search.extraction.extract import solve
from eqsat.search.extraction.frontier import frontier
from eqsat.search.extraction.ilp import solve_exact
from eqsat.search.extraction.local_search import Chosen
from eqsat.search.extraction.presolve import Reduction
from eqsat.search.extraction.problem import (
    Problem,
    ProblemNode,
    components,
    dag_cost,
    tree_greedy,
)
from eqsat.search.extraction.window_search import refine
from eqsat.support.errors import EngineError

few = examples(60)


def known(p: Problem, best: float) -> object:
    """A price that is the optimum but for rounding."""
    return pytest.approx(best, rel=1e-6, abs=1e-9)


# -- problems --------------------------------------------------------------------------


def test_problems_that_cannot_be() -> None:
    for nodes, roots, message in (
        ([ProblemNode(0, [2], 1.0)], [0], "node 0: class 2 of 2 classes"),
        ([ProblemNode(3, [], 1.0)], [0], "node 0: class 3 of 2 classes"),
        (
            [ProblemNode(0, [], 1.0), ProblemNode(1, [], -2.0)],
            [0],
            "node 1: a weight of -2",
        ),
        ([ProblemNode(0, [], float("nan"))], [0], "node 0: a weight of nan"),
        ([ProblemNode(0, [], float("inf"))], [0], "node 0: a weight of inf"),
        ([ProblemNode(0, [], 1.0)], [5], "root 5 of 2 classes"),
    ):
        with pytest.raises(EngineError, match=message):
            Problem.of(2, nodes, roots)


@given(st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=10, max_size=10))
@few
def test_components_hold_what_leads_to_one_another(below: list[set[int]]) -> None:
    reach = [{c} for c in range(10)]
    for _ in range(10):
        for c in range(10):
            reach[c] |= set().union(*[reach[k] for k in below[c]])
    parts = components(below)
    assert sorted(c for part in parts for c in part) == list(range(10))
    place = {c: i for i, part in enumerate(parts) for c in part}
    for a in range(10):
        for b in reach[a]:
            assert place[b] <= place[a]
            assert (place[a] == place[b]) == (a in reach[b])


# -- solve -----------------------------------------------------------------------------


@given(problems())
@few
def test_no_choice_is_cheaper_than_a_proven_one(p: Problem) -> None:
    found = solve(p, seconds())
    checked(p, found.best, found.cost)
    best = optimum(p)
    assert found.cost >= best * (1 - 1e-9)
    if found.proven:
        assert found.cost == known(p, best)
    again = solve(p, seconds())
    assert (again.best, again.cost) == (found.best, found.cost)


@given(problems(cyclic=False))
@few
def test_small_problems_without_cycles_are_proven(p: Problem) -> None:
    found = solve(p, seconds())
    assert found.proven
    assert found.cost == known(p, optimum(p))


@given(problems(), st.integers(0, 60))
@few
def test_a_budget_that_ends_leaves_a_valid_choice(p: Problem, calls: int) -> None:
    found = solve(p, Calls(calls))
    checked(p, found.best, found.cost)
    assert found.cost >= optimum(p) * (1 - 1e-9)
    if found.proven:
        assert found.cost == known(p, optimum(p))


def test_without_time_trees_are_taken() -> None:
    for seed in range(20):
        p = drawn(seed, 5, 20, several=True)
        found = solve(p, seconds(-1))
        checked(p, found.best, found.cost)
        assert found.cost <= dag_cost(p, tree_greedy(p))[0] * (1 + 1e-12)


GATE_AND_UP = [
    *[(0, [], 0.0), (1, [0], 2.4), (2, [0], 2.4), (2, [5], 0.0)],  # silu(x g), x u
    *[(1, [3], 2.2), (3, [0], 2.4), (3, [5], 0.0)],  # silu of the product, x g
    *[(4, [1, 2], 2.2), (4, [3, 2], 2.2), (5, [0], 3.1)],  # gated, x [g u]
]
SHARED = [
    *[(0, [], 0.0), (1, [0], 3.0), (2, [0], 2.0), (2, [1], 0.1)],
    *[(3, [0], 2.0), (3, [1], 0.1)],
]
LOOP = [(0, [], 0.0), (1, [0], 5.0), (1, [2], 1.0), (2, [1], 1.0), (3, [2], 1.0)]


def one_of_many(classes: int) -> list[tuple[int, Sequence[int], float]]:
    """A last class that each pair of the others computes, and one of them alone."""
    leaves = [(c, [], 1.0) for c in range(classes)]
    pairs = itertools.combinations(range(classes), 2)
    return [*leaves, *((classes, k, 2.0) for k in pairs), (classes, [7], 2.0)]


@pytest.mark.parametrize(
    ("entries", "roots", "cost"),
    [
        pytest.param(LOOP, [3], 7.0, id="a class does not take its own user"),
        pytest.param(SHARED, [2], 2.0, id="alone, a root goes its own way"),
        pytest.param(SHARED, [3], 2.0, id="and so does the other"),
        pytest.param(SHARED, [2, 3], 3.2, id="together they share"),
        pytest.param(GATE_AND_UP, [4], 5.3, id="a merge pays with what it allows"),
        pytest.param(one_of_many(60), [60], 3.0, id="one of 1,800 nodes"),
        pytest.param(
            one_of_many(200),
            [200],
            3.0,
            id="one of 20,000 nodes",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_problems_with_a_known_optimum(
    entries: list[tuple[int, Sequence[int], float]], roots: list[int], cost: float
) -> None:
    classes = 1 + max(c for c, _, _ in entries)
    p = Problem.of(classes, itertools.starmap(ProblemNode, entries), roots)
    for found in (solve(p, seconds()), solve_exact(p, seconds()).solution):
        checked(p, found.best, found.cost)
        assert found.cost == pytest.approx(cost)


def test_infeasible_nodes_and_classes_are_left_out() -> None:
    """Class 1 needs itself through 2, class 3 has no node at all."""
    entries = [
        ProblemNode(0, [], 4.0),
        ProblemNode(0, [1], 0.0),
        ProblemNode(0, [3], 0.0),
    ]
    p = Problem.of(
        4, [*entries, ProblemNode(1, [2], 0.0), ProblemNode(2, [1], 0.0)], [0]
    )
    found = solve(p, seconds())
    assert (found.best, found.cost, found.proven) == ([0, -1, -1, -1], 4.0, True)
    for find in (solve, solve_exact):
        with pytest.raises(EngineError, match="cannot be computed from its leaves"):
            find(Problem.of(4, entries, [3]), seconds())


def test_of_equals_the_one_with_fewer_needs_is_chosen() -> None:
    """Also when a need costs nothing: ``maximum(x, 0)`` is written ``relu(x)``."""
    entries = [ProblemNode(0, [], 1.0), ProblemNode(1, [], 0.0)]
    p = Problem.of(
        3, [*entries, ProblemNode(2, [0, 1], 1.0), ProblemNode(2, [0], 1.0)], [2]
    )
    assert solve(p, seconds()).best == [0, -1, 3]


def test_what_costs_nothing_is_optimal() -> None:
    """Also where classes are computed from one another."""
    nodes = [(0, [1]), (0, [2]), (1, [0]), (1, [2]), (2, [0]), (2, [1]), (2, [])]
    p = Problem.of(3, [ProblemNode(c, kids, 0.0) for c, kids in nodes], [0, 1])
    found = solve(p, seconds())
    assert (found.cost, found.proven) == (0, True)
    proof = solve_exact(p, seconds())
    assert (proof.solution.cost, proof.bound, proof.gap) == (0, 0, 0)


def ladder(rungs: int) -> Problem:
    """Diamonds on top of each other. On each, two sides may take a shared product (1.9)
    for 0.1 each, or compute alone for 1.0: alone is the cheaper tree for one, shared
    would be the dearer program were it not for the third taker on every other rung."""
    entries = [ProblemNode(0, [], 0.0)]
    for i in range(rungs):
        low, shared, top = 5 * i, 5 * i + 1, 5 * i + 5
        sides = [5 * i + 2, 5 * i + 3, 5 * i + 4]
        entries.append(ProblemNode(shared, [low], 1.9))
        for side in sides:
            entries += [ProblemNode(side, [low], 1.0), ProblemNode(side, [shared], 0.1)]
        entries.append(ProblemNode(top, sides if i % 2 else sides[:2], 0.5))
    return Problem.of(5 * rungs + 1, entries, [5 * rungs])


def test_diamonds_are_solved_to_the_optimum() -> None:
    found = solve(ladder(8), seconds())
    assert found.proven
    assert found.cost == pytest.approx(8 * 0.5 + 4 * 2.0 + 4 * (1.9 + 0.3))
    tree, _ = dag_cost(ladder(8), tree_greedy(ladder(8)))
    assert tree > found.cost


def test_random_kernel_covers_come_close_to_the_optimum() -> None:
    gaps = []
    for seed in range(12):
        p = drawn(seed, 20, 32)
        found, proof = solve(p, seconds()), solve_exact(p, seconds())
        assert proof.gap == 0
        gaps.append(found.cost / proof.solution.cost - 1)
    assert min(gaps) >= -1e-9
    assert statistics.mean(gaps) <= 0.01
    assert max(gaps) <= 0.05


@pytest.mark.slow
def test_five_thousand_classes() -> None:
    """The budget ends the search, not the answer; with time, it is far better than the
    cheapest trees."""
    p = drawn(1, 5000, 5000, kept=6)
    assert len(p.members) > 5000
    tree, _ = dag_cost(p, tree_greedy(p))
    for budget, part in ((Calls(0), 1.0), (Calls(1000), 1.0), (seconds(60), 0.8)):
        found = solve(p, budget)
        if isinstance(budget, Calls):
            assert -len(p.members) < budget.calls < 0  # and is not asked for long
        checked(p, found.best, found.cost)
        assert found.cost <= part * tree


def test_a_thousand_diamonds() -> None:
    p = ladder(1000)
    assert len(p.members) == 5001
    found = solve(p, seconds())
    assert found.proven
    assert found.cost == pytest.approx(1000 * 0.5 + 500 * 2.0 + 500 * (1.9 + 0.3))


# -- the stages ------------------------------------------------------------------------


@given(problems())
@few
def test_reductions_keep_the_optimum(p: Problem) -> None:
    reduction = Reduction(p, seconds())
    parts = reduction.parts()
    nodes = []
    for part in parts:
        _, best = min(choices(part.problem))
        used = dag_cost(part.problem, best)[1]
        nodes += [part.origin[best[c]] for c in used]
    lifted = reduction.lift(nodes)
    assert acyclic(p, lifted)
    assert dag_cost(p, lifted)[0] == known(p, optimum(p))


@given(problems(), st.sampled_from([1, 2, 100]))
@few
def test_walks_find_choices_and_prove_them_with_room(p: Problem, width: int) -> None:
    line = frontier(p, tree_greedy(p))
    walk = line.walk(0.5, width, float("inf"), seconds())
    if walk is None:
        assert width < 100
        return
    best = tree_greedy(p)
    for n in walk.nodes:
        best[p.cls[n]] = n
    assert acyclic(p, best)
    assert dag_cost(p, best)[0] <= walk.cost + 1e-9
    if walk.complete and line.whole:
        assert walk.cost == known(p, optimum(p))


def test_a_walk_under_the_optimum_finds_nothing() -> None:
    p = ladder(3)
    best = solve(p, seconds()).cost
    walk = frontier(p, tree_greedy(p)).walk(0.5, 100, best, seconds())
    assert walk is not None
    assert (walk.nodes, walk.complete) == ([], True)


@given(problems())
@few
def test_local_search_keeps_account_of_the_price(p: Problem) -> None:
    chosen = Chosen(p, tree_greedy(p))
    prices = [chosen.cost]
    for stage in ("settle", "search", "refine"):
        if stage == "settle":
            chosen.settle(seconds())
        elif stage == "search":
            chosen.search(seconds())
        else:
            chosen = refine(chosen, 10, seconds())
        assert acyclic(p, chosen.best)
        assert chosen.cost == pytest.approx(dag_cost(p, chosen.best)[0])
        assert chosen.refs == Chosen(p, chosen.best).refs
        prices.append(chosen.cost)
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(prices))


def test_a_shared_class_is_paid_for_all_its_users_at_once() -> None:
    """One of three users alone gains nothing by the shared class."""
    entries = [ProblemNode(0, [], 0.0), ProblemNode(1, [0], 3.0)]
    for c in (2, 3, 4):
        entries += [ProblemNode(c, [0], 2.0), ProblemNode(c, [1], 0.1)]
    p = Problem.of(5, entries, [2, 3, 4])
    chosen = Chosen(p, tree_greedy(p))
    chosen.settle(seconds())
    assert chosen.cost == pytest.approx(6.0)
    chosen.search(seconds())
    assert chosen.cost == pytest.approx(3.3)


# -- the exact mode --------------------------------------------------------------------


@given(problems())
@few
def test_the_integer_program_needs_no_walks(p: Problem) -> None:
    """Walks of one partial choice at a time prove nothing worth proving."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extract, "BROAD", 1)
        patch.setattr(extract, "NARROW", 1)
        proof = solve_exact(p, seconds())
    checked(p, proof.solution.best, proof.solution.cost)
    assert proof.gap == 0
    assert proof.solution.cost == known(p, optimum(p))
    assert proof.bound <= proof.solution.cost


@given(problems(most=5))
@few
def test_every_choice_without_cycles_keeps_the_rows_of_loops(p: Problem) -> None:
    """For any takings, whatever rows they break."""
    all_ = list(choices(p))
    for shift in range(4):
        taken = [((n * 7 + shift * 3) % 5) / 4 for n in range(len(p.cls))]
        for entries, members in loops(p, taken):
            assert sum(taken[n] for n in entries) < sum(taken[n] for n in members)
            for _, best in all_:
                used = {best[c] for c in dag_cost(p, best)[1]}
                assert len(used.intersection(entries)) >= len(
                    used.intersection(members)
                )


def test_a_loop_is_found() -> None:
    """Two classes made from each other; only node 2 comes from outside."""
    p = Problem.of(
        3,
        [
            ProblemNode(0, [1], 1.0),
            ProblemNode(1, [0], 1.0),
            ProblemNode(1, [2], 9.0),
            ProblemNode(2, [], 1.0),
        ],
        [0],
    )
    assert loops(p, [1.0, 0.0, 1.0, 1.0]) == []
    (row,) = set(loops(p, [1.0, 1.0, 0.0, 0.0]))
    assert row.entries == (2,)


def test_exact_without_time_says_how_far_the_optimum_may_be() -> None:
    p = drawn(3, several=True)
    for allowed in (-1.0, 0.3):
        proof = solve_exact(p, seconds(allowed))
        checked(p, proof.solution.best, proof.solution.cost)
        assert 0 < proof.gap <= 1
        assert proof.bound == pytest.approx((1 - proof.gap) * proof.solution.cost)


def test_exact_is_done_without_scipy_where_walks_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ilp, "_Program", None)
    assert solve_exact(ladder(6), seconds()).gap == 0
