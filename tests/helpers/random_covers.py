"""Random programs as kernel covers: what extraction sees of fusion, without an e-graph.

Each op of a random DAG is a class. Its nodes are the kernels that could compute it:
connected parts of the DAG that one kernel may hold, computed from other classes, the
best by area flow. With ``several``, a kernel may also give values from its middle;
such kernels are classes of their own, and cycles arise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.kernels.cost_model import CPU, CostModel
from eqsat.search.extraction.problem import Problem, ProblemNode

MOST_OPS = 6
"""Ops of the largest kernel."""
TAKE_S = 1e-12
"""Seconds of taking one of several results of a kernel: nothing."""


@dataclass(frozen=True)
class DagOp:
    kind: str
    """``input``, ``map``, ``reduce`` or ``matmul``."""
    args: tuple[int, ...]
    flops: float
    nbytes: float
    """Size of the result."""


def program(rng: random.Random, ops: int) -> tuple[list[DagOp], list[int]]:
    """A DAG of ``ops`` ops over a few inputs, with fan-outs of 1 to 3, and its roots:
    what nothing uses."""
    rows, width = rng.choice([64, 256, 1024]), rng.choice([64, 256, 1024])
    found = [
        DagOp("input", (), 0.0, 4.0 * rows * width) for _ in range(rng.randint(1, 4))
    ]
    free = {i: rng.randint(1, 3) for i in range(len(found))}
    for i in range(len(found), len(found) + ops):
        kind = rng.choices(["map", "reduce", "matmul"], [6, 2, 2])[0]
        arity = {"map": rng.choice([1, 2, 2, 3]), "reduce": 1, "matmul": 1}[kind]
        near = sorted(free)[-8:]
        args = tuple(sorted(rng.sample(near, min(arity, len(near)))))
        for a in args:
            free[a] -= 1
            if not free[a]:
                del free[a]
        if not free:
            free[rng.randrange(i)] = 1
        free[i] = rng.randint(1, 3)
        found.append(_drawn(rng, kind, args, max(found[a].nbytes for a in args)))
    used = {a for op in found for a in op.args}
    return found, [i for i in range(len(found)) if i not in used]


def _drawn(
    rng: random.Random, kind: str, args: tuple[int, ...], nbytes: float
) -> DagOp:
    elements = nbytes / 4
    if kind == "reduce":
        return DagOp(kind, args, elements, max(nbytes / rng.choice([64, 256]), 4.0))
    if kind == "matmul":
        return DagOp(kind, args, 2 * elements * rng.choice([64, 256]), nbytes)
    return DagOp(kind, args, elements * rng.choice([1, 1, 10]), nbytes)


def kernels(ops: Sequence[DagOp], out: int) -> Iterator[frozenset[int]]:
    """The sets of ops that one kernel may hold and that compute ``out``."""
    seen = {frozenset([out])}
    todo = [frozenset([out])]
    while todo:
        held = todo.pop()
        yield held
        if len(held) == MOST_OPS:
            continue
        for a in sorted({a for i in held for a in ops[i].args} - held):
            more = held | {a}
            if ops[a].kind != "input" and more not in seen and _fits(ops, more):
                seen.add(more)
                todo.append(more)


def _fits(ops: Sequence[DagOp], held: frozenset[int]) -> bool:
    """One product at most, which nothing in the kernel feeds, and no reduction beside
    it."""
    products = [i for i in held if ops[i].kind == "matmul"]
    if not products:
        return True
    return (
        len(products) == 1
        and not held & set(ops[products[0]].args)
        and all(ops[i].kind != "reduce" for i in held)
    )


def price(ops: Sequence[DagOp], held: frozenset[int], outs: Sequence[int]) -> float:
    """Seconds of a kernel that reads each operand once and writes ``outs``."""
    leaves = {a for i in held for a in ops[i].args} - held
    moved = sum(ops[i].nbytes for i in (*leaves, *outs))
    work = sum(ops[i].flops for i in held) / CPU.flops_per_s
    return CostModel(CPU).kernel_s(work, CPU.traffic_s(moved))


def cover(
    ops: Sequence[DagOp], roots: Sequence[int], most: int = 12, several: bool = False
) -> Problem:
    """The problem of covering a program by kernels, the ``most`` best by area flow for
    each op, as a cut enumeration keeps them.

    Raises :class:`EngineError` as :meth:`Problem.of` does.
    """
    users = _users(ops)
    flow = [0.0] * len(ops)
    entries = [
        ProblemNode(i, (), 0.0) for i, op in enumerate(ops) if op.kind == "input"
    ]
    shared: dict[tuple[frozenset[int], tuple[int, ...]], int] = {}
    for i, op in enumerate(ops):
        if op.kind == "input":
            continue
        found = []
        for held in kernels(ops, i):
            leaves = sorted({a for j in held for a in ops[j].args} - held)
            cost = price(ops, held, [i])
            found.append((cost + sum(flow[a] for a in leaves), sorted(held), leaves))
        found.sort()
        flow[i] = found[0][0] / max(len(users[i]), 1)
        for _, ordered, leaves in found[:most]:
            held = frozenset(ordered)
            entries.append(ProblemNode(i, leaves, price(ops, held, [i])))
            also = [j for j in ordered if j != i and (users[j] - held or j in roots)]
            if several and also and convex(users, held, leaves):
                shared.setdefault((held, (*also, i)), len(ops) + len(shared))
    for (held, outs), c in shared.items():
        leaves = sorted({a for j in held for a in ops[j].args} - held)
        entries.append(ProblemNode(c, leaves, price(ops, held, outs)))
        entries.extend(ProblemNode(i, [c], TAKE_S) for i in outs)
    return Problem.of(len(ops) + len(shared), entries, roots)


def _users(ops: Sequence[DagOp]) -> list[set[int]]:
    users: list[set[int]] = [set() for _ in ops]
    for i, op in enumerate(ops):
        for a in op.args:
            users[a].add(i)
    return users


def convex(
    users: Sequence[set[int]], held: frozenset[int], leaves: Sequence[int]
) -> bool:
    """Whether no operand of the kernel is computed from one of its results."""
    last = max(leaves, default=-1)
    seen = set(held)
    todo = list(held)
    while todo:
        for j in users[todo.pop()]:
            if j <= last and j not in seen:
                seen.add(j)
                todo.append(j)
    return not seen.intersection(leaves)


def drawn(
    seed: int, least: int = 20, most: int = 60, kept: int = 12, several: bool = False
) -> Problem:
    """The cover of a random program of ``least`` to ``most`` ops."""
    rng = random.Random(seed)
    return cover(*program(rng, rng.randint(least, most)), kept, several)
