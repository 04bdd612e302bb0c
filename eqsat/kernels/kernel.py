"""Kernels and views: what each node of an extracted term costs and reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from eqsat.kernels.cost_model import Account, account, flops
from eqsat.kernels.fusion_state import ATTENTION, CONTRACT, LIBRARY, MAP, ROW
from eqsat.ops import VIEWS, reshape_op
from eqsat.support import cached_property
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Shape, Term, Type, Weak
from eqsat.trace import (
    RESULT,
    KernelBody,
    body_above,
    label,
    outline,
    primitives,
)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One pass over memory: ``term``, whose arguments are in memory already."""

    name: str
    op: Op
    kind: str
    """``map`` (pointwise over one domain), ``row`` (reductions over some axes and
    pointwise), ``contract`` (a product with prologue and epilogue), ``attention`` (two
    products with a reduction between them) or ``library`` (anything else)."""
    term: Term
    results: tuple[Term, ...]
    """The values that it writes: ``term`` itself, or the terms that read it."""
    inputs: tuple[Term, ...]
    """The distinct arrays that it reads: values in memory or views of them."""
    flops: float
    """Floating operations (flop)."""
    bytes: int
    """Each value read once, each result written once (bytes)."""
    pointwise: bool
    """Whether every op of its bodies is pointwise."""

    @cached_property
    def bodies(self) -> tuple[Term, ...]:
        """The results in primitives over ``term.args``."""
        return self.opened(lambda term: False)

    def opened(self, closed: Callable[[Term], bool]) -> tuple[Term, ...]:
        """The results over ``term.args`` in primitives and in composites that are to
        stay ``closed``."""
        leaves = {a: a for a in self.term.args}
        return tuple(primitives(r, leaves, closed) for r in self.results)


@dataclass(frozen=True, eq=False)
class View:
    """``term`` is the value ``base`` under another index map; it costs nothing."""

    name: str
    term: Term
    base: Term


Step = Kernel | View


def steps_of(live: Iterable[Term], name: Callable[[Term, str], str]) -> Iterator[Step]:
    """A step for each term that is no leaf; ``live`` has arguments before users.

    ``name`` gives a term its identifier, near a wanted one. Inputs, constants and the
    results of kernels are taken to be packed in C order.
    """
    terms = list(live)
    several: dict[Term, list[Term]] = {}
    for t in terms:
        if t.op is RESULT:
            several.setdefault(t.args[0], []).append(t)
    strides: dict[Term, tuple[int, ...]] = {}
    base: dict[Term, Term] = {}
    known: dict[Hashable, _Work] = {}
    number = 0
    for t in terms:
        if t.op is INPUT or t.op is RESULT:
            continue
        called = name(t, f"{label(t)}_{number}")
        number += 1
        seen = _view_strides(t, strides) if t.op in VIEWS else None
        if seen is None:
            results = tuple(sorted(several.get(t, (t,)), key=_index))
            for i, r in enumerate(results):
                name(r, f"{called}{_LETTERS[i]}")
            yield _kernel(called, t, results, known)
        else:
            strides[t] = seen
            base[t] = base.get(t.args[0], t.args[0])
            yield View(called, t, base[t])


_LETTERS = "abcdefghijklmnop"


def _index(result: Term) -> int:
    return cast(int, result.attrs[0]) if result.op is RESULT else 0


def packed(shape: Shape) -> tuple[int, ...]:
    """C-order strides of ``shape``, in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _view_strides(
    term: Term, known: Mapping[Term, tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Strides of a view in elements; None when a reshape has to copy."""
    if term.size == 0:
        return packed(term.shape)
    op = cast(Op, term.op)
    source = term.args[0]
    return strides_of_view(op, op.attr_dict(term), source.shape, known.get(source))


def strides_of_view(
    op: Op, attrs: Mapping[str, Any], shape: Shape, strides: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Strides of a view of an array of ``shape`` and ``strides`` (packed when None), in
    elements; None when a reshape has to copy."""
    # One byte an element, never read: NumPy works out the strides.
    probe = np.lib.stride_tricks.as_strided(
        np.empty(1, np.int8), shape, packed(shape) if strides is None else strides
    )
    if op is reshape_op:
        try:
            return np.reshape(probe, attrs["shape"], copy=False).strides
        except ValueError:
            return None
    seen: np.ndarray[Any, Any] = op.reference(probe, **attrs)
    return seen.strides


@dataclass(frozen=True)
class _Work:
    """What equal kernels over other arrays have in common."""

    kind: str
    pointwise: bool
    flops: float
    account: Account


def _kernel(
    name: str,
    term: Term,
    results: tuple[Term, ...],
    known: dict[Hashable, _Work],
) -> Kernel:
    """``known``: the work of the kernels so far."""
    op = cast(Op, term.op)
    arrays = [a for a in term.args if not isinstance(a.dtype, Weak)]
    inputs = tuple(dict.fromkeys(arrays))
    key = outline(term), len(results)
    work = known.get(key)
    if work is None:
        leaves = {a: a for a in term.args}
        nodes = inner([primitives(r, leaves) for r in results], term.args)
        pointwise = all(cast(Op, n.op).kind == "pointwise" for n in nodes)
        found = account(term)
        total = sum(sum(flops(*step)) for step in found.work)
        work = known[key] = _Work(kind_of(nodes), pointwise, total, found)
    reads = work.account.moved(term)
    moved = int(sum(reads.values())) + sum(r.nbytes for r in results)
    return Kernel(
        name, op, work.kind, term, results, inputs, work.flops, moved, work.pointwise
    )


def likeness(term: Term, results: Sequence[Term]) -> Hashable:
    """What kernels have in common whose bodies are equal but for the arrays that they
    read."""
    # Bare numbers are parts of a body: equal ones make equal kernels.
    args = tuple(a.type if a.op is not SCALAR else a for a in term.args)
    places = tuple(term.args.index(a) for a in term.args)
    return term.op, term.attrs, args, places, len(results)


def inner(roots: Iterable[Term], leaves: Iterable[Term]) -> list[Term]:
    """The terms of bodies above their ``leaves``, arguments first, without
    constants."""
    done = set(leaves)
    out: list[Term] = []
    stack = list(roots)[::-1]
    while stack:
        term = stack[-1]
        if term not in done:
            missing = [a for a in reversed(term.args) if a not in done]
            if missing:
                stack.extend(missing)
                continue
            done.add(term)
            if term.op is not SCALAR and term.op is not CONSTANT:
                out.append(term)
        stack.pop()
    return out


def body_over(
    bodies: Sequence[Term], memory: Iterable[Term], types: Sequence[Type]
) -> tuple[KernelBody, tuple[Term, ...]]:
    """A kernel's body that computes ``bodies``, of ``types``, from those of ``memory``
    and the constants that it meets, and the terms of its arguments."""
    held = [t for t in dict.fromkeys(memory) if t.op is not SCALAR]
    nodes = inner(bodies, held)
    met = {a for t in nodes for a in t.args} | set(bodies)
    constants = sorted((t for t in met if t.op is CONSTANT), key=lambda t: t.id)
    leaves = tuple(dict.fromkeys([*(t for t in held if t in met), *constants]))
    chosen = {
        t.id: (cast(Op, t.op), t.attrs, tuple(a.id for a in t.args))
        for t in (*nodes, *(t for t in met if t.op is SCALAR))
    }
    of_roots = {b.id: t for b, t in zip(bodies, types, strict=True)}
    ids = [t.id for t in leaves]
    return body_above([b.id for b in bodies], chosen, ids, of_roots), leaves


def kind_of(nodes: Sequence[Term]) -> str:
    """The kind of the kernel whose body has ``nodes``, arguments before users."""
    kinds = [cast(Op, t.op).kind for t in nodes if t.args]
    products = [i for i, k in enumerate(kinds) if k == "contract"]
    if products:
        between = kinds[products[0] : products[-1]]
        return ATTENTION if "reduce" in between else CONTRACT
    if "library" in kinds:
        return LIBRARY
    return ROW if "reduce" in kinds else MAP
