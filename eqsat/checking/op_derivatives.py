"""Derivatives that an author of an op gives, against central differences in float64
and against the derivative of the op's body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.bounds import Analysis
from eqsat.checking.draws import UNDEFINED
from eqsat.checking.op_draws import CallTypes, Drawn
from eqsat.checking.verdict import far_apart
from eqsat.ops import sum as sum_of
from eqsat.reverse import gradients
from eqsat.rulelang import evaluate, failure
from eqsat.support import Array, Range, TraceError
from eqsat.terms import BOOL, INPUT, Op, Term, TermGraph, is_float
from eqsat.trace import Tracer

STEP = 1e-5
F8 = np.dtype(np.float64)


@dataclass(frozen=True)
class _Slopes:
    """The derivatives of Σ g y by the floating arguments of y, as terms over these
    arguments and g, the last."""

    numbers: tuple[int, ...]
    terms: tuple[Term, ...]


def derivative_fault(drawn: Drawn, seed: int) -> str:
    """Where the rules of derivatives of an op are wrong; empty where no fault shows."""
    call, op = drawn.call, drawn.call.op
    if not isinstance(op.vjp, tuple) or call.term.dtype != F8:
        return ""
    of_floats = (a for i, a in enumerate(drawn.arrays) if i not in op.own)
    if any(a.dtype not in (F8, BOOL) for a in of_floats) or not call.term.size:
        return ""
    rng = np.random.default_rng(seed)
    g = np.asarray(rng.uniform(0.5, 1.5, call.term.shape))
    arrays = (*drawn.arrays, g)
    try:
        ruled = _slopes(call, op)
        found = _values(ruled, arrays)
    except TraceError as error:
        if f"{op.name} has no derivative" in str(error):
            return ""
        return f"its derivative raises {failure(error)}"
    except Exception as error:
        return f"its derivative raises {failure(error)}"
    return _by_differences(drawn, ruled, found, g, rng) or _by_body(
        drawn, ruled, found, arrays
    )


def _slopes(call: CallTypes, function: Any) -> _Slopes:
    graph = TermGraph(sources=False)
    types = [*call.types, call.term.type]
    leaves = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(types)]
    *given, g = map(Tracer, leaves)
    loss = sum_of(function(*given, *call.numbers, **call.attrs) * g).term
    numbers = tuple(i for i, t in enumerate(call.types) if is_float(t[0]))
    _, *terms = gradients(loss, [leaves[i] for i in numbers])
    return _Slopes(numbers, tuple(terms))


def _values(slopes: _Slopes, arrays: tuple[Array, ...]) -> list[Array]:
    with np.errstate(all="ignore"):
        return evaluate(slopes.terms, arrays)


def _name(op: Op, i: int) -> str:
    return op.params[i] if op.params and not op.variadic else str(i)


def _by_body(
    drawn: Drawn, ruled: _Slopes, found: list[Array], arrays: tuple[Array, ...]
) -> str:
    """Where the rules differ from the derivative of the body by more than rounding."""
    body = drawn.call.op.body
    if body is None:
        return ""
    try:
        own = _slopes(drawn.call, body)
        wanted = _values(own, arrays)
    except UNDEFINED:
        return ""  # a part of the body has no derivative
    work = Analysis(arrays, Range(drawn.limit[1]))
    balls = work.balls((*ruled.terms, *own.terms))
    count = len(found)
    for k, i in enumerate(ruled.numbers):
        if found[k].shape != wanted[k].shape:
            return f"its derivative by {_name(drawn.call.op, i)!r} has another shape"
        reason = far_apart(wanted[k], found[k], balls[count + k], balls[k], 0.0)
        if reason:
            return (
                f"its derivative by {_name(drawn.call.op, i)!r} is not that of its "
                f"body: {drawn}: expected and got {reason}"
            )
    return ""


def _by_differences(
    drawn: Drawn, ruled: _Slopes, found: list[Array], g: Array, rng: Any
) -> str:
    """Where the rules are not what central differences along a direction say."""
    if drawn.kind != "uniform":
        return ""
    call = drawn.call
    with np.errstate(all="ignore"):
        (out,) = evaluate([call.term], drawn.arrays)
        size = float(np.sum(np.abs(out) * g)) + 1
        for k, i in enumerate(ruled.numbers):
            way = np.asarray(rng.uniform(-1, 1, drawn.arrays[i].shape))
            got = float(np.sum(found[k] * way))
            near, far = (_slope(drawn, i, way, g, h) for h in (STEP, 2 * STEP))
            bound = abs(far - near) + 32 * 2.0**-53 * size / STEP
            if np.isfinite([near, far]).all() and not abs(got - near) <= bound:
                return (
                    f"its derivative by {_name(call.op, i)!r} is {got:.6g} along a "
                    f"direction, central differences say {near:.6g}: {drawn}"
                )
    return ""


def _slope(drawn: Drawn, i: int, way: Array, g: Array, h: float) -> float:
    def moved(step: float) -> Array:
        there = list(drawn.arrays)
        there[i] = there[i] + step * way
        return evaluate([drawn.call.term], there)[0]  # type: ignore[no-any-return]

    return float(np.sum((moved(h) - moved(-h)) / (2 * h) * g))
