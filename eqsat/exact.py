"""Exact extraction: the optimum of the DAG cost as an integer program."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.errors import OptionError
from eqsat.extract import Choice, Problem, as_choice, dag_cost, dense_problem, solve
from eqsat.frozen import Budget, EGraph


def extract_exact(
    graph: EGraph,
    weights: Sequence[float],
    roots: Sequence[int],
    budget: Budget,
    time_limit_s: float = 60.0,
) -> Choice:
    """The optimum by an integer program (HiGHS through SciPy), or the best found with
    its gap.

    One binary for each node, one for each class; a node needs its classes, a class
    needs a node, and levels forbid cycles inside strongly connected parts.
    """
    try:
        import numpy as np
        import scipy.sparse as sp
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError as error:
        raise OptionError("extract='exact' needs SciPy") from error
    p = dense_problem(graph, weights, roots)
    best, cost, gap = solve_exact(p, budget, time_limit_s)
    found = as_choice(p, best, cost)
    found.gap = gap
    return found


def solve_exact(p, budget, time_limit_s=60.0):
    import numpy as np
    import scipy.sparse as sp
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, m = len(p.cls), len(p.members)
    part, size = _components(p)
    levels = {
        c: n + m + i for i, c in enumerate(c for c in range(m) if size[part[c]] > 1)
    }
    rows: list[int] = []
    cols: list[int] = []
    data: list[float] = []
    low: list[float] = []

    def constrain(terms: Sequence[tuple[int, float]], least: float) -> None:
        for col, value in terms:
            rows.append(len(low))
            cols.append(col)
            data.append(value)
        low.append(least)

    for c, members in enumerate(p.members):
        constrain([(i, 1.0) for i in members] + [(n + c, -1.0)], 0.0)
    for i, kids in enumerate(p.kids):
        c = p.cls[i]
        for k in kids:
            constrain([(i, -1.0), (n + k, 1.0)], 0.0)
            if c in levels and k in levels and part[c] == part[k]:
                big = float(size[part[c]])
                constrain([(levels[c], 1.0), (levels[k], -1.0), (i, -big)], 1.0 - big)
    count = n + m + len(levels)
    price = np.zeros(count)
    price[:n] = [w * 1e6 for w in p.weight]
    lower, upper = np.zeros(count), np.ones(count)
    for c, v in levels.items():
        upper[v] = size[part[c]]
    lower[[n + r for r in p.roots]] = 1
    integral = np.zeros(count)
    integral[:n] = 1
    matrix = sp.csr_matrix((data, (rows, cols)), shape=(len(low), count))
    result = milp(
        price,
        constraints=LinearConstraint(matrix, low, np.inf),
        bounds=Bounds(lower, upper),
        integrality=integral,
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-6},
    )
    if result.x is None:
        budget.spent = budget.spent or "time"
        best, cost = solve(p, budget)
        return best, cost, 1.0
    best = [-1] * m
    for i in range(n):
        if result.x[i] > 0.5:
            c = p.cls[i]
            if best[c] < 0 or p.weight[i] < p.weight[best[c]]:
                best[c] = i
    cost, _ = dag_cost(p, best)
    return best, cost, float(result.mip_gap or 0.0)


def _components(p: Problem) -> tuple[list[int], list[int]]:
    """Strongly connected components of the classes, and their sizes."""
    import numpy as np
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    edges = [(p.cls[i], k) for i, kids in enumerate(p.kids) for k in kids]
    m = len(p.members)
    if not edges:
        return list(range(m)), [1] * m
    a, b = zip(*edges, strict=True)
    graph = sp.csr_matrix((np.ones(len(a)), (a, b)), shape=(m, m))
    _, part = connected_components(graph, directed=True, connection="strong")
    return list(part), list(np.bincount(part))
