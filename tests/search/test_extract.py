"""Extraction: valid and deterministic, never below the integer program, equal to it on
transformer blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import held_by
from sizes import examples

import eqsat as eq
from eqsat.demo import block
from eqsat.egraph.snapshot import Budget, EGraph, ENode
from eqsat.lowered import Lowered
from eqsat.search.extraction.extract import Choice, extract
from eqsat.search.extraction.ilp import extract_exact
from eqsat.support.errors import EngineError
from eqsat.terms.op import INPUT
from eqsat.terms.term import postorder

rng = np.random.default_rng(5)
Entry = tuple[int, tuple[int, ...], float]
"""Class, children and price of a node."""


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def budget(seconds: float = 60) -> Budget:
    return Budget.of(seconds, 10**9)


def graph_of(entries: Sequence[Entry]) -> tuple[EGraph, list[float]]:
    """An e-graph of nodes whose ops do not matter."""
    n = 1 + max(max((c, *kids)) for c, kids, _ in entries)
    graph = EGraph([None] * n, [[] for _ in range(n)], [], [False] * n)
    for i, (c, kids, _) in enumerate(entries):
        graph.add(ENode(c, INPUT, (i,), kids, ""))
    return graph, [price for _, _, price in entries]


def cost_of(
    graph: EGraph, weights: Sequence[float], roots: Sequence[int], choice: Choice
) -> float:
    """The price of a choice, which must be whole, free of cycles and of waste."""
    done: set[int] = set()
    open_: set[int] = set()

    def visit(c: int) -> None:
        assert c not in open_, "a class needs itself"
        if c in done:
            return
        open_.add(c)
        node = graph.nodes[choice.nodes[c]]
        assert node.cls == c
        for k in node.children:
            visit(k)
        open_.remove(c)
        done.add(c)

    for r in roots:
        visit(r)
    assert done == set(choice.nodes)
    cost = sum(weights[i] for i in choice.nodes.values())
    assert choice.cost_s == pytest.approx(cost)
    return cost


PRICES = st.sampled_from([0.0, 1e-12, 0.5, 1.0, 2.0, 3.0, 4.75])


@st.composite
def graphs(draw: st.DrawFn, most: int = 12, more: int = 3) -> list[Entry]:
    """Classes that can all be computed, with nodes that share and that make cycles."""
    n = draw(st.integers(2, most))
    entries: list[Entry] = []
    for c in range(n):
        below = st.lists(st.integers(0, max(c - 1, 0)), max_size=3 if c else 0)
        entries.append((c, tuple(draw(below)), draw(PRICES)))
    anything = st.lists(st.integers(0, n - 1), min_size=1, max_size=3).map(tuple)
    extra = st.tuples(st.integers(0, n - 1), anything, PRICES)
    return entries + draw(st.lists(extra, max_size=more * n))


# -- any graph -------------------------------------------------------------------------


@examples(60)
@given(entries=graphs(), data=st.data())
def test_choices_are_valid_and_never_below_the_optimum(
    entries: list[Entry], data: st.DataObject
) -> None:
    graph, weights = graph_of(entries)
    anywhere = st.integers(0, len(graph.classes) - 1)
    roots = data.draw(st.lists(anywhere, min_size=1, max_size=3))
    found = extract(graph, weights, roots, budget())
    cost = cost_of(graph, weights, roots, found)
    best = extract_exact(graph, weights, roots, budget())
    assert best.gap is not None and best.gap <= 1e-6
    assert cost >= cost_of(graph, weights, roots, best) - 1e-9
    assert extract(graph, weights, roots, budget()).nodes == found.nodes


@examples(60)
@given(entries=graphs(most=5, more=1))
def test_the_integer_program_finds_the_optimum(entries: list[Entry]) -> None:
    graph, weights = graph_of(entries)
    root = len(graph.classes) - 1
    best = extract_exact(graph, weights, [root], budget())
    found = cost_of(graph, weights, [root], best)
    assert found == pytest.approx(cheapest(graph, weights, root), abs=1e-9)


def cheapest(graph: EGraph, weights: Sequence[float], root: int) -> float:
    """The least DAG cost of all choices."""
    least = np.inf
    for chosen in itertools.product(*graph.classes):
        used: list[int] = []

        def visit(
            c: int,
            path: tuple[int, ...],
            chosen: tuple[int, ...] = chosen,
            used: list[int] = used,
        ) -> bool:
            if c in path:
                return False
            if c in used:
                return True
            fits = all(visit(k, (*path, c)) for k in graph.nodes[chosen[c]].children)
            used.append(c)
            return fits

        if visit(root, ()):
            least = min(least, sum(weights[chosen[c]] for c in used))
    return float(least)


def test_a_class_does_not_take_its_own_user() -> None:
    """c (1) is a leaf of price 5, or made from its user k (2) for 1: that is a cycle,
    which looks cheap because k is paid already."""
    graph, weights = graph_of(
        [(0, (), 0.0), (1, (0,), 5.0), (1, (2,), 1.0), (2, (1,), 1.0), (3, (2,), 1.0)]
    )
    for find in (extract, extract_exact):
        assert cost_of(graph, weights, [3], find(graph, weights, [3], budget())) == 7


def test_a_value_that_two_need_is_paid_once() -> None:
    """Alone, either root is cheaper by its own way; together the shared class is."""
    graph, weights = graph_of(
        [
            (0, (), 0.0),
            (1, (0,), 3.0),  # shared
            (2, (0,), 2.0),
            (2, (1,), 0.1),
            (3, (0,), 2.0),
            (3, (1,), 0.1),
        ]
    )
    for roots, cost in (([2], 2.0), ([3], 2.0), ([2, 3], 3.2)):
        for find in (extract, extract_exact):
            choice = find(graph, weights, roots, budget())
            assert cost_of(graph, weights, roots, choice) == pytest.approx(cost)


def test_a_merge_that_pays_only_with_what_it_makes_possible() -> None:
    """Gate and up: one product (3) saves the second of 2.4, and a gate applied later
    saves no kernel by itself."""
    graph, weights = graph_of(
        [
            (0, (), 0.0),
            (1, (0,), 2.4),  # silu(x g), one kernel
            (1, (3,), 2.2),  # silu of the product
            (2, (0,), 2.4),  # x u
            (2, (5,), 0.0),
            (3, (0,), 2.4),  # x g
            (3, (5,), 0.0),
            (4, (1, 2), 2.2),
            (4, (3, 2), 2.2),  # gated
            (5, (0,), 3.1),  # x [g u]
        ]
    )
    choice = extract(graph, weights, [4], budget())
    assert cost_of(graph, weights, [4], choice) == pytest.approx(5.3)


def test_without_time_the_cheapest_tree_is_taken() -> None:
    graph, weights = graph_of([(0, (), 0.0), (1, (0,), 2.0), (1, (0, 0), 1.0)])
    choice = extract(graph, weights, [1], budget(-1))
    assert cost_of(graph, weights, [1], choice) == 1


def test_a_root_that_no_leaf_leads_to() -> None:
    graph, weights = graph_of([(0, (1,), 1.0), (1, (0,), 1.0)])
    for find in (extract, extract_exact):
        with pytest.raises(EngineError, match="cannot be computed from its leaves"):
            find(graph, weights, [0], budget())


def test_a_class_of_many_nodes() -> None:
    """Of 20 000 nodes over two leaves each, one remains."""
    leaves: list[Entry] = [(c, (), 1.0) for c in range(200)]
    pairs = itertools.islice(itertools.combinations(range(200), 2), 19_900)
    many: list[Entry] = [(200, pair, 2.0) for pair in pairs]
    graph, weights = graph_of([*leaves, *many, (200, (7,), 2.0)])
    choice = extract(graph, weights, [200], budget())
    assert cost_of(graph, weights, [200], choice) == 3


# -- transformer blocks and products ---------------------------------------------------


def lowered(f: Any, *args: Any) -> Lowered:
    """The program of ``f``, which must compute what ``f`` does."""
    fast = eq.jit(f)
    np.testing.assert_allclose(fast(*args), f(*args), rtol=1e-9, atol=1e-9)
    low: Lowered = fast.lower(*args)
    return low


@pytest.mark.parametrize(
    ("norm", "lora", "weights"),
    [
        ("rms", 3, "arguments"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                *[("rms", 0, "arguments"), ("rms", 0, "constants")],
                ("rms", 3, "constants"),
                *itertools.product(["layer"], [0, 3], ["constants", "arguments"]),
            ]
        ),
    ],
)
def test_blocks_cost_what_the_integer_program_says(
    norm: str, lora: int, weights: str
) -> None:
    config = block.Config(layers=1, seq=20, dim=48, heads=4, norm=norm, lora=lora)
    model, x, adapters = block.draw(config)

    def forward(x: Any, params: Any, adapters: Any) -> Any:
        return block.Model(config, params).forward(x, adapters)

    args: tuple[Any, ...] = (x, model.params, adapters)
    known = ("params",) if weights == "constants" else ()
    found = eq.jit(forward, constants=known).lower(*args)
    exact = eq.Options(extract="exact", deadline_s=300)
    best = eq.jit(forward, options=exact, constants=known).lower(*args)
    assert best.optimised.optimal_gap == 0
    assert found.optimised.optimal_gap is None
    assert found.optimised.cost_s == pytest.approx(best.optimised.cost_s, rel=1e-6)
    assert best.explain().optimal_gap == 0


def three(x: Any, q: Any, k: Any, v: Any) -> Any:
    return np.sin(x @ q), np.exp(x @ k), x @ v


def concatenates(low: Lowered) -> bool:
    return any(t.op.name == "concatenate" for t in postorder(low.term))


def test_parallel_products_merge_when_their_weights_are_known() -> None:
    x, *weights = draw(64, 96), draw(96, 96), draw(96, 96), draw(96, 96)

    def products(x: Any, q: Any, k: Any, v: Any) -> Any:
        return x @ q, x @ k, x @ v

    live = eq.jit(products).lower(x, *weights)
    assert not concatenates(live)
    known = eq.jit(products, constants=("q", "k", "v")).lower(x, *weights)
    assert concatenates(known)
    (merged,) = (k for k in known.program.kernels if "matmul" in k.op.name)
    assert merged.term.shape == (64, 3 * 96)
    assert len(known.program.folded) == 1


SIZES = {"small rank": (80, 64, 48, 3), "rank above the width": (512, 24, 20, 300)}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("form", ["product", "sum"])
def test_the_order_of_a_low_rank_product(name: str, form: str) -> None:
    m, k, n, r = SIZES[name]
    x, w, a, b = draw(m, k), draw(k, n), draw(k, r), draw(r, n)

    def product(x: Any, a: Any, b: Any) -> Any:
        return x @ (a @ b)

    def summed(x: Any, a: Any, b: Any) -> Any:
        return x @ (w + a @ b)

    low = lowered(product if form == "product" else summed, x, a, b)
    cheap = "(x A) B" if name == "small rank" else "x (A B)"
    assert block.lora_order(low.program) == cheap


def test_the_dear_order_is_turned_round_too() -> None:
    m, k, n, r = SIZES["rank above the width"]
    x, a, b = draw(m, k), draw(k, r), draw(r, n)
    low = lowered(lambda x, a, b: (x @ a) @ b, x, a, b)
    assert block.lora_order(low.program) == "x (A B)"


def test_a_shared_product_is_computed_once() -> None:
    x, w, v = draw(64, 48), draw(48, 40), draw(40, 32)

    def f(x: Any, w: Any, v: Any) -> Any:
        h = x @ w
        return h.sum(-1), h @ v, x @ w

    low = eq.jit(f).lower(x, w, v)
    assert held_by(low.program).count("matmul") == 2


def test_what_many_products_read_is_computed_once() -> None:
    """The left operand of one product is computed as it is read; in each of many that
    would take as long as the product."""
    a, x = np.ones((512, 512), np.float32), np.ones(512, np.float32)

    def power(a: Any, x: Any, n: int) -> Any:
        for _ in range(n):
            x = (a - 1) @ x
        return x

    f = eq.jit(power)
    assert [k.kind for k in f.explain(a, x, 1).kernels] == ["contract"]
    assert [k.kind for k in f.explain(a, x, 8).kernels] == ["map", *["contract"] * 8]
