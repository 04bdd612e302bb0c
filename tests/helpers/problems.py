"""Small extraction problems: drawn, and solved by trying everything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import strategies as st

from eqsat.egraph.snapshot import Budget
from eqsat.search.extraction.problem import Problem, ProblemNode, dag_cost, in_order

PRICES = st.sampled_from([0.0, 1e-12, 0.5, 1.0, 2.0, 3.0, 4.75])


def seconds(s: float = 60) -> Budget:
    """A budget that ends in ``s`` seconds."""
    return Budget.of(s, 10**9)


class Calls(Budget):
    """A budget that ends when it has been asked a number of times."""

    def __init__(self, calls: int) -> None:
        super().__init__(math.inf, 10**9)
        self.calls = calls

    def part(self, share: float) -> Budget:
        return self

    def left(self) -> bool:
        self.calls -= 1
        return self.calls >= 0


@st.composite
def problems(
    draw: st.DrawFn, most: int = 8, more: int = 2, cyclic: bool = True
) -> Problem:
    """Classes that can all be computed, with nodes that share and, where ``cyclic``,
    that need their own class."""
    n = draw(st.integers(2, most))
    entries = []
    for c in range(n):
        below = st.lists(st.integers(0, max(c - 1, 0)), max_size=3 if c else 0)
        entries.append(ProblemNode(c, draw(below), draw(PRICES)))
    for _ in range(draw(st.integers(0, more * n))):
        c = draw(st.integers(0 if cyclic else 1, n - 1))
        last = n - 1 if cyclic else c - 1
        kids = st.lists(st.integers(0, last), min_size=1, max_size=3)
        entries.append(ProblemNode(c, draw(kids), draw(PRICES)))
    roots = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3))
    return Problem.of(n, entries, roots)


def choices(p: Problem) -> Iterator[tuple[float, list[int]]]:
    """Every choice of nodes for all classes that computes the roots without cycles,
    with its price."""
    for best in itertools.product(*[m or [-1] for m in p.members]):
        if acyclic(p, best):
            yield dag_cost(p, best)[0], list(best)


def acyclic(p: Problem, best: Sequence[int]) -> bool:
    """Whether the roots can be computed in some order."""
    done: set[int] = set()
    changed = True
    while changed:
        changed = False
        for c, n in enumerate(best):
            if c not in done and n >= 0 and done.issuperset(p.kids[n]):
                done.add(c)
                changed = True
    return done.issuperset(p.roots)


def optimum(p: Problem) -> float:
    """The least price of all choices."""
    return min(cost for cost, _ in choices(p))


def checked(p: Problem, best: Sequence[int], cost: float) -> None:
    """The choice is whole, free of cycles and of what nothing needs, and has the
    price."""
    used = in_order(p, best)
    assert acyclic(p, best)
    assert set(used) == {c for c, n in enumerate(best) if n >= 0}
    assert all(p.cls[best[c]] == c for c in used)
    assert cost == pytest.approx(sum(p.weight[best[c]] for c in used), abs=1e-15)
