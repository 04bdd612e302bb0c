"""How the reductions of users join two values, as straight-line code."""

from __future__ import annotations

from eqsat.terms import Op, Term
from eqsat.trace import primitives, traced_over

from ..loop_ir import (
    Compute,
    Const,
    DType,
    Joining,
    Layout,
    Operand,
    Unsupported,
)
from .value_graph import (
    KernelValue,
)
from .values import (
    Conflict,
    Values,
)


def joining_of(op: Op, dtype: DType) -> Joining:
    """The joining of ``op``, a fold of values of ``dtype``, as it is now: what its
    author's function reads outside may change. Raises :class:`Unsupported`."""
    assert op.fold is not None
    leaves, root = traced_over(op.fold.combine, [(dtype, ())] * 2)
    root = primitives(root, {t: t for t in leaves})
    values = _values(op, leaves, root)
    numbers = {values.known[t, ()]: i for i, t in enumerate(leaves)}
    rest = [i for i in range(len(values.values)) if i not in numbers]
    numbers |= {i: len(leaves) + n for n, i in enumerate(rest)}
    body = tuple(_statement(op, values.values[i], numbers[i], numbers) for i in rest)
    return Joining(op.fold.identity(dtype), body, numbers[values.known[root, ()]])


def _values(op: Op, leaves: list[Term], root: Term) -> Values:
    dtypes = [t.dtype for t in leaves]
    memory = {
        t: (Operand("array", i, dtype), Layout(()))  # type: ignore[arg-type]
        for i, (t, dtype) in enumerate(zip(leaves, dtypes, strict=True))
    }
    values = Values(memory, {})
    try:
        for t in (*leaves, root):
            values.value(t, ())
    except Conflict as conflict:
        raise Unsupported(f"{conflict.term.op.name} in what {op.name} joins") from None
    return values


def _statement(
    op: Op, v: KernelValue, target: int, numbers: dict[int, int]
) -> Const | Compute:
    if v.op == "const":
        return Const(target, v.dtype, v.source[1])
    if v.op in ("load", "gather", "position", "within", "running") or v.over:
        raise Unsupported(f"{v.op} in what {op.name} joins")
    return Compute(target, v.dtype, v.op, tuple(numbers[a] for a in v.args))
