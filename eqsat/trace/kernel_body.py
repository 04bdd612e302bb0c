"""Bodies of generated kernels: several e-nodes that one kernel computes.

A chosen cut becomes a term of the op ``kernel`` over its leaves. Its one attribute is
the :class:`KernelBody`, so that equal kernels are equal terms. A kernel with several
results is read through terms of the op ``result``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eqsat.support import EqsatError, cached_property, counted
from eqsat.terms import (
    OF_COMPLEX,
    SCALAR,
    Custom,
    Op,
    Term,
    TermGraph,
    Type,
    make,
    node_over,
    scalar,
)
from eqsat.trace.tracer import Tracer


class BodyStep(NamedTuple):
    """``op(*args, **attrs)``; arguments are places of values."""

    op: Op
    attrs: tuple[Any, ...]
    args: tuple[int, ...]


@dataclass(frozen=True)
class KernelBody:
    """Straight-line code: the values 0 to ``arity`` - 1 are arguments, the rest steps.

    Bare numbers are steps of the op ``scalar``.
    """

    arity: int
    steps: tuple[BodyStep, ...]
    results: tuple[int, ...]
    """Places of the values that the kernel writes."""
    types: tuple[Type, ...]
    """Their types."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.arity, self.steps, self.results))

    @cached_property
    def without_numbers(self) -> tuple[Any, ...]:
        """The body but for the values of its bare numbers."""
        steps = (s._replace(attrs=()) if s.op is SCALAR else s for s in self.steps)
        return self.arity, tuple(steps), self.results, self.types

    @property
    def label(self) -> str:
        """A short name: its ops, or of many those that tell most."""
        names = [s.op.name for s in self.steps if s.op is not SCALAR]
        work = [s.op for s in self.steps if s.op.kind not in ("leaf", "view")]
        if len(work) > 3:
            work = [o for o in work if o.kind != "pointwise"] or work
        shown = [o.name for o in work][:3] or names[:3]
        more = len(work) - len(shown)
        return "_".join(shown) + (f"_{more}_more" if more > 0 else "")

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the ops in order, without numbers."""
        return tuple(s.op.name for s in self.steps if s.op is not SCALAR)

    def __str__(self) -> str:
        return " ".join(self.ops)

    def apply(self, graph: TermGraph, args: Sequence[Term]) -> list[Term]:
        """The terms of all values over ``args``."""
        values = list(args)
        for op, attrs, places in self.steps:
            if op is SCALAR:
                values.append(scalar(graph, attrs[0]))
            else:
                given = [values[i] for i in places]
                if op.name == OF_COMPLEX:  # it may be given views now
                    named = dict(zip(op.attrs, attrs, strict=True))
                    values.append(make(op, graph, given, named))
                else:
                    values.append(node_over(op, graph, given, attrs))
        return values


def outline(term: Term) -> tuple[Any, ...]:
    """What kernels have in common that differ in their arrays and in the values of bare
    numbers alone: they are of one kind, and do as much."""
    body = term.attrs[0] if term.op is KERNEL else None
    attrs = body.without_numbers if isinstance(body, KernelBody) else term.attrs
    places = tuple(term.args.index(a) for a in term.args)
    return term.op, attrs, term.type, tuple(a.type for a in term.args), places


def _kernel_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    body: KernelBody = attrs["body"]
    if len(types) != body.arity:
        raise EqsatError(
            f"{who}: {counted(len(types), 'argument')}, the body has {body.arity}"
        )
    return body.types[0]


def _kernel_body(*args: Any, body: KernelBody) -> Any:
    terms = [a.term for a in args]
    return Tracer(body.apply(terms[0].graph, terms)[body.results[0]])


def _result_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    raise EqsatError(f"{who}: the type of a result is that of its kernel's body")


def _result_body(x: Any, *, index: int) -> Any:
    kernel = x.term
    body: KernelBody = kernel.attrs[0]
    values = body.apply(kernel.graph, kernel.args)
    return Tracer(values[body.results[index]])


def _run_kernel(*args: Any, body: KernelBody) -> Any:
    """The results by the references of the ops: one value, or a tuple of several."""
    values = list(args)
    for op, attrs, places in body.steps:
        if op is SCALAR:
            values.append(attrs[0])
        else:
            named = dict(zip(op.attrs, attrs, strict=True))
            values.append(op.reference(*(values[i] for i in places), **named))
    found = tuple(values[i] for i in body.results)
    return found if len(found) > 1 else found[0]


def _take_result(x: Any, *, index: int) -> Any:
    return x[index]


KERNEL = Op(
    name="kernel",
    kind="kernel",
    type_rule=Custom(_kernel_type),
    reference=_run_kernel,
    params=(),
    variadic=True,
    attrs={"body": "Body"},
    body=_kernel_body,
    doc="One generated kernel.",
    recognised=False,
)
RESULT = Op(
    name="result",
    kind="kernel",
    type_rule=Custom(_result_type),
    reference=_take_result,
    params=("kernel",),
    attrs={"index": "int"},
    body=_result_body,
    doc="One of several results of a kernel.",
    recognised=False,
)


def kernel_terms(
    body: KernelBody, args: Sequence[Term], graph: TermGraph
) -> list[Term]:
    """The results of a kernel with ``body`` over ``args``, as terms.

    A body of one step and one result is that op itself.
    """
    real = [s for s in body.steps if s.op is not SCALAR]
    if len(real) == 1 and len(body.results) == 1:
        return [body.apply(graph, args)[body.results[0]]]
    term = graph.node(KERNEL, args, (body,), body.types[0])
    if len(body.results) == 1:
        return [term]
    return [
        graph.node(RESULT, [term], (i,), type_) for i, type_ in enumerate(body.types)
    ]


def body_above(
    roots: Sequence[int],
    chosen: Mapping[int, tuple[Op, tuple[Any, ...], tuple[int, ...]]],
    leaves: Sequence[int],
    types: Mapping[int, Type],
) -> KernelBody:
    """The body that computes the values ``roots`` from ``leaves``.

    ``chosen`` gives the op, attributes and operands of each value inside.
    """
    place = {leaf: i for i, leaf in enumerate(leaves)}
    steps: list[BodyStep] = []
    stack = list(reversed(roots))
    while stack:
        value = stack[-1]
        if value in place:
            stack.pop()
            continue
        op, attrs, operands = chosen[value]
        missing = [k for k in reversed(operands) if k not in place]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if op is SCALAR:  # 1 and 1.0 are equal, but not the same number
            attrs = (*attrs, type(attrs[0]).__name__)
        place[value] = len(leaves) + len(steps)
        steps.append(BodyStep(op, attrs, tuple(place[k] for k in operands)))
    return KernelBody(
        len(leaves),
        tuple(steps),
        tuple(place[r] for r in roots),
        tuple(types[r] for r in roots),
    )


def label(term: Term) -> str:
    """The name of what a term does: its op, or what a generated kernel holds."""
    if term.op is KERNEL:
        body: KernelBody = term.attrs[0]  # type: ignore[assignment]
        return body.label
    if term.op.name == OF_COMPLEX:
        return f"complex_{str(term.attrs[0]).rpartition('.')[2]}"
    return term.op.name
