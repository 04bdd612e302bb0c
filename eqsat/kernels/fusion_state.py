"""What one kernel can compute: the state of a value inside it.

A kernel runs over one domain. A *map* computes each element by itself, whatever index
maps it reads through. A *row* kernel reduces one set of axes of its domain, any number
of times, and puts the results back. A *contract* kernel has one product, whose result
is its domain: pointwise work and reductions over the last axis may follow it, and its
left operand may be a map or a row kernel over whole rows. Two products with a row
reduction between them are *attention*.

:func:`join` says what becomes of the states of an op's arguments, and None when no
kernel of the target can hold them together. A composite is interpreted through its
body, so that nothing here knows a composite by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from eqsat.kernels.target import Target
from eqsat.ops import (
    ASSEMBLIES,
    broadcast_to_op,
    matmul_op,
    reshape_op,
    take_op,
    transpose_op,
)
from eqsat.support import an, counted
from eqsat.terms import (
    CONSTANT,
    INPUT,
    SCALAR,
    Op,
    Shape,
    Term,
    TermGraph,
    Type,
    make,
    postorder,
)
from eqsat.trace import body_of

MAP, ROW, CONTRACT, ATTENTION, LIBRARY = (
    "map",
    "row",
    "contract",
    "attention",
    "library",
)
"""Kinds of kernels; ``library`` is any other single op."""
FREE, FIXED = None, ()
"""Axes that a kernel reduces: not yet decided, and none at all."""


class State(NamedTuple):
    """A value that a kernel computes, or reads from memory."""

    kind: str
    """``leaf`` for a value in memory, ``view`` for a view of one, else a kind of
    kernel."""
    dom: Shape = ()
    """The domain of a kernel that is not a map."""
    axes: tuple[int, ...] | None = FREE
    """The reduced axes of the domain, counted from the end."""
    anchor: int = -1
    """Which product it has; -1 for none."""
    moved: int = -1
    """Which view of the domain it is; -1 for the domain itself or its reduced form,
    -2 for one of these with axes of size 1 more or less."""


LEAF = State("leaf")
VIEW = State("view")
"""A value in memory under another index map."""
PLAIN = State(MAP)
SQUEEZED = -2
STORED = ("leaf", "view")
LIGHT = ("leaf", "view", MAP)
"""States whose elements are computed one by one, or not at all."""


def join(
    op: Op,
    attrs: tuple[Any, ...],
    types: tuple[Type, ...],
    out: Type,
    states: Sequence[State],
    target: Target,
    me: int,
) -> State | None:
    """The state of ``op`` over arguments in ``states``, or None when no kernel is it.

    ``me`` names the value: products and views are told apart by it.
    """
    names: dict[int, int] = {-1: -1, SQUEEZED: SQUEEZED}
    short = []
    for s in states:
        if s.kind in LIGHT:
            short.append(s)
        else:
            anchor = names.setdefault(s.anchor, len(names))
            moved = names.setdefault(s.moved, len(names))
            short.append(s._replace(anchor=anchor, moved=moved))
    found = _join(op, attrs, types, out, tuple(short), target)
    if found is None or found.kind in LIGHT:
        return found
    back = {v: k for k, v in names.items()} | {_ME: me}
    return found._replace(anchor=back[found.anchor], moved=back[found.moved])


_ME = 1 << 40
"""The value itself, until it has a name."""


@lru_cache(maxsize=1 << 15)
def _join(
    op: Op,
    attrs: tuple[Any, ...],
    types: tuple[Type, ...],
    out: Type,
    states: tuple[State, ...],
    target: Target,
) -> State | None:
    if op.body is not None:
        found = _interpreted(op, attrs, types, states, target)
    elif op.kind == "pointwise":
        found = _pointwise(types, out, states)
    elif op.kind == "reduce":
        found = _reduce(op, attrs, types[0][1], states[0])
    elif op.kind == "contract":
        found = _contract(op, types, out, states, target)
    elif op.kind == "view":
        found = _view(op, types, out, states)
    elif op is take_op:
        light = states[0].kind in STORED and states[1].kind in LIGHT
        found = PLAIN if light else None
    else:
        found = State(LIBRARY) if all(s.kind in STORED for s in states) else None
    return found


def refusal(state: State, shape: Shape, target: Target) -> str:
    """Why the target does not run a kernel of several e-nodes in ``state`` whose result
    has ``shape``; empty when it does."""
    if state.kind in STORED:
        return ""
    if state.kind not in target.kinds:
        return f"kernels of kind {state.kind!r} are off"
    domain = shape if state.kind in LIGHT else state.dom
    if prod(domain) < target.least_elements:
        return (
            f"its domain has {counted(prod(domain), 'element')}, and fusion starts at "
            f"{target.least_elements}"
        )
    if state.axes and prod(state.dom[a] for a in state.axes) > target.longest_row:
        length = counted(prod(state.dom[a] for a in state.axes), "element")
        return f"its rows have {length}, at most {target.longest_row} fit"
    return ""


def _pointwise(
    types: Sequence[Type], out: Type, states: Sequence[State]
) -> State | None:
    found = PLAIN
    for (_, shape), s in zip(types, states, strict=True):
        if s.kind in LIGHT:
            continue
        if shape != out[1] and (s.moved != -1 or out[1] != s.dom):
            return None
        both = s if found is PLAIN else merged(found, s)
        if both is None:
            return None
        found = both
    return found


def merged(a: State, b: State) -> State | None:
    """One kernel for two values over the same domain."""
    if a.dom != b.dom or a.moved != b.moved:
        return None
    if a.axes is not FREE and b.axes is not FREE and a.axes != b.axes:
        return None
    if -1 not in (a.anchor, b.anchor) and a.anchor != b.anchor:
        return None
    axes = b.axes if a.axes is FREE else a.axes
    first = a if a.anchor != -1 else b
    return first._replace(axes=axes)


def _reduce(op: Op, attrs: tuple[Any, ...], shape: Shape, s: State) -> State | None:
    axes = tuple(attrs[list(op.attrs).index("axis")])
    if s.kind in LIGHT:
        return State(ROW, shape, axes)
    if s.dom != shape or s.moved != -1 or s.axes not in (FREE, axes):
        return None
    if s.anchor != -1 and axes != (-1,):
        return None
    return s._replace(axes=axes)


def _contract(
    op: Op,
    types: Sequence[Type],
    out: Type,
    states: Sequence[State],
    target: Target,
) -> State | None:
    if any(s.kind not in STORED for s in states[1:]):
        return None
    left = states[0]
    plain = State(CONTRACT, out[1], FREE if op is matmul_op else FIXED, _ME)
    if left.kind in STORED:
        return plain
    if op is not matmul_op:
        return None
    if left.kind == MAP:
        return plain if "map" in target.prologues else None
    if left.dom != types[0][1] or left.moved != -1 or left.axes not in (FREE, (-1,)):
        return None
    if left.kind == ROW:
        return plain if "row" in target.prologues else None
    if left.kind == CONTRACT and left.axes == (-1,):
        return plain._replace(kind=ATTENTION, axes=FIXED)
    return None


def _view(
    op: Op, types: Sequence[Type], out: Type, states: Sequence[State]
) -> State | None:
    heavy = [s for s in states if s.kind not in LIGHT]
    if not heavy:
        stored = all(s.kind in STORED for s in states) and op not in ASSEMBLIES
        return VIEW if stored else PLAIN
    s, shape = heavy[0], types[0][1]
    if op is broadcast_to_op:
        return s if s.moved == -1 and out[1] == s.dom else None
    if op not in (reshape_op, transpose_op):
        return None
    if op is reshape_op and s.moved in (-1, SQUEEZED) and _same(shape, out[1]):
        kept = tuple(
            1 if s.axes and i - len(s.dom) in s.axes else n for i, n in enumerate(s.dom)
        )
        back = (
            out[1] in (s.dom, kept) or (1,) * (len(kept) - len(out[1])) + out[1] == kept
        )
        return s._replace(moved=-1 if back else SQUEEZED)
    return s._replace(moved=_ME, axes=FIXED if s.axes is FREE else s.axes)


def _same(a: Shape, b: Shape) -> bool:
    """Whether two shapes differ in axes of size 1 only."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def _interpreted(
    op: Op,
    attrs: tuple[Any, ...],
    types: tuple[Type, ...],
    states: tuple[State, ...],
    target: Target,
) -> State | None:
    leaves, root = opened(op, attrs, types)
    known = dict(zip(leaves, states, strict=True))
    if _walked(known, root, target) is not None:
        return None
    end = known[root]
    if end.kind in LIGHT:
        return PLAIN
    anchor = _ME if end.anchor >= _INSIDE else end.anchor
    moved = _ME if end.moved >= _INSIDE else end.moved
    return end._replace(anchor=anchor, moved=moved)


_INSIDE = 1 << 20
"""Names of values in the body of a composite begin here."""


def _walked(known: dict[Term, State], root: Term, target: Target) -> Term | None:
    """Fill in the states of all terms up to ``root``; the term that no kernel holds."""
    for t in postorder([root]):
        if t in known:
            continue
        if not t.args or t.op in (SCALAR, CONSTANT):
            known[t] = LEAF
            continue
        found = join(*_asked(t, known), target, _INSIDE + t.id)
        if found is None:
            return t
        known[t] = found
    return None


_Asked = tuple[Op, tuple[Any, ...], tuple[Type, ...], Type, list[State]]


def _asked(t: Term, known: dict[Term, State]) -> _Asked:
    types = tuple(a.type for a in t.args)
    op = t.op
    assert isinstance(op, Op)
    return op, t.attrs, types, t.type, [known[a] for a in t.args]


def hindrance(
    op: Op,
    attrs: tuple[Any, ...],
    types: tuple[Type, ...],
    out: Type,
    states: Sequence[State],
    target: Target,
) -> str:
    """Why no kernel holds ``op`` over arguments in ``states``, in words."""
    if op.body is not None:
        leaves, root = opened(op, attrs, types)
        known = dict(zip(leaves, states, strict=True))
        t = _walked(known, root, target)
        if t is None:
            return ""
        return f"{op.name}: {hindrance(*_asked(t, known), target)}"
    heavy = [
        (t[1], s) for t, s in zip(types, states, strict=True) if s.kind not in LIGHT
    ]
    if op.kind == "pointwise":
        return _pointwise_hindrance(out[1], heavy)
    if op.kind == "reduce":
        s, axes = heavy[0][1], attrs[list(op.attrs).index("axis")]
        if s.dom != heavy[0][0] or s.moved != -1:
            return f"{op.name} runs over another shape than the domain {s.dom}"
        if s.anchor != -1 and tuple(axes) != (-1,):
            return (
                f"{op.name} of a product over axes {axes}; only the last can follow it"
            )
        return f"{op.name} reduces axes {axes}, the kernel before it {s.axes}"
    if op.kind == "contract":
        if any(s.kind not in STORED for s in states[1:]):
            return f"{op.name} reads its right operand once for each row"
        if op is not matmul_op:
            return f"{op.name} reads its operands from memory"
        left = states[0]
        if left.kind in (MAP, ROW) and left.kind not in target.prologues:
            kernel = f"{an(left.kind)} kernel"
            return f"the backend cannot compute {kernel} while it reads an operand"
        if left.kind == CONTRACT:
            return "two products without a reduction of whole rows between them"
        return "its left operand is not computed by whole rows"
    if op.kind == "view":
        return f"{op.name} of {an(heavy[0][1].kind)} kernel is no view of its domain"
    why = f": {op.opaque}" if op.opaque else " reads its arguments from memory"
    return f"{op.name}{why}"


def _pointwise_hindrance(shape: Shape, heavy: Sequence[tuple[Shape, State]]) -> str:
    for mine, s in heavy:
        if mine != shape and (s.moved != -1 or shape != s.dom):
            return f"values of shape {mine} would be computed again for all of {shape}"
    (_, a), (_, b) = heavy[0], heavy[-1]
    if a.dom != b.dom or a.moved != b.moved:
        return f"two domains: {a.dom} and {b.dom}, or one under two views"
    if a.anchor != b.anchor:
        return "two products in one kernel"
    return f"one part reduces axes {a.axes}, the other {b.axes}"


@lru_cache(maxsize=4096)
def opened(
    op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...]
) -> tuple[list[Term], Term]:
    """The body of a composite over leaves of ``types``: the leaves and the result."""
    graph = TermGraph(sources=False)
    args = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(types)]
    body = body_of(make(op, graph, args, dict(zip(op.attrs, attrs, strict=True))))
    assert body is not None
    return args, body
