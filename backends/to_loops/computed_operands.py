"""Matrices that are computed where a product reads them, from others in memory."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.terms import Term

from ..loop_ir import (
    LOOPS,
    WIDE,
    Affine,
    Compute,
    Const,
    Layout,
    Load,
    LoopVar,
    Mapped,
    Operand,
    Split,
    Unsupported,
    weight,
)
from .value_graph import (
    KernelValue,
)
from .values import (
    Conflict,
    Values,
)


def mapped(
    term: Term, memory: Mapping[Term, tuple[Operand, Layout]], exact: bool = False
) -> Mapped | None:
    """``term``, a matrix in float32, from what lies in ``memory``; None where columns
    do not lie side by side there, or loops cannot compute it. With ``exact`` each
    element is what it says, unfactored."""
    for rows in LOOPS.rows_together:
        if term.shape[0] % rows == 0:
            found = _of_rows(term, memory, rows)
            if found is not None:
                return found if exact else _factored(found)
    return None


def _of_rows(
    term: Term, memory: Mapping[Term, tuple[Operand, Layout]], rows: int
) -> Mapped | None:
    k, n = term.shape
    column = LoopVar("j", n)
    splits: dict[str, int] = {}
    while True:
        values = Values(memory, splits)
        block = values.fresh("k", k // rows)
        lines = (block.times(rows) + Affine(r) for r in range(rows))
        try:
            numbers = [values.value(term, (e, Affine.of(column))) for e in lines]
        except Split as split:
            if split.var == column:
                return None
            splits[split.var.name] = split.inner
        except (Conflict, Unsupported):
            return None
        else:
            return _found(values, numbers, block, (k, n))


def _found(
    values: Values, numbers: list[int], block: Affine, sizes: tuple[int, int]
) -> Mapped | None:
    column = LoopVar("j", sizes[1])
    operands: list[Operand] = []
    body: list[Const | Load | Compute] = []
    for i, v in enumerate(values.values):
        s = _statement(i, v, operands)
        if s is None or v.at.coefficient(column) not in (0, 1):
            return None
        body.append(s)
    if any(values.values[i].dtype != WIDE for i in numbers):
        return None
    return Mapped(tuple(operands), sizes, tuple(body), tuple(numbers), block)


def _statement(
    i: int, v: KernelValue, operands: list[Operand]
) -> Const | Load | Compute | None:
    if v.op == "const":
        return Const(i, v.dtype, v.source[1])
    if v.op == "load":
        if v.source not in operands:
            operands.append(v.source)
        return Load(i, v.dtype, operands.index(v.source), v.at)
    known = not v.over and v.op not in ("gather", "position", "running", "within")
    return Compute(i, v.dtype, v.op, v.args) if known else None


def _factored(m: Mapped) -> Mapped:
    """With a factor that all rows have taken out of their sum."""
    made = {s.target: s for s in m.body}
    roots = [made[i] for i in m.rows]
    if len(m.rows) == 1:
        return m
    products = [s for s in roots if isinstance(s, Compute) and s.op == "multiply"]
    if len(products) < len(roots) or len(set(m.rows)) == 1:
        return m
    common = set(products[0].args).intersection(*(s.args for s in products))
    if len(common) != 1:
        return m
    (factor,) = common
    rest = [x if y == factor else y for x, y in (s.args for s in products)]
    body = tuple(s for s in m.body if s.target not in m.rows)
    return Mapped(m.operands, m.sizes, body, tuple(rest), m.block, factor)


def work(m: Mapped) -> float:
    """Additions that an element takes, about."""
    total = sum(weight(s.op) for s in m.body if isinstance(s, Compute))
    return total / len(m.rows)
