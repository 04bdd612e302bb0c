"""The check of ops that a file defines: NumPy kernels, prices and derivatives.

A kernel (:meth:`Op.lowering`) fills what the reference computes, up to the errors that
:mod:`eqsat.checking.bounds` explains, for arrays of every layout. A derivative
(:attr:`Op.vjp`) is what central differences in float64 say.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION, Analysis, ulp
from eqsat.checking.draws import (
    FLOATS,
    LIMIT,
    UNDEFINED,
    VALUES,
    fitting_shapes,
    values,
)
from eqsat.checking.report import Finding, Lint
from eqsat.checking.verdict import bits_differ, far_apart, not_finite
from eqsat.ops import where
from eqsat.rulelang import evaluate, failure
from eqsat.support import Array, Range
from eqsat.terms import BOOL, INPUT, Axes, Graph, OnlyWhere, Op, Term, annotation_name
from eqsat.trace import Tracer

SIZES = (None, None, 0, 1, 33)
"""What the first named axis is, None for a small size."""
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "contiguous": lambda a: a.copy(),
    "strided": lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a.copy(),
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1] if a.ndim else a.copy(),
    "transposed": lambda a: a.T.copy().T,
    "read-only": lambda a: np.broadcast_to(a.copy(), a.shape),
}
"""Copies of an array that lie differently in memory."""
STEP = 1e-5
MARK = 0x5A


@dataclass(frozen=True)
class DrawnCall:
    """Arguments of an op, with the term of the call."""

    kind: str
    arrays: tuple[Array, ...]
    attrs: Mapping[str, Any]
    term: Term


def check_op(op: Op, seed: int = 0) -> Finding | None:
    """What the kernels and derivatives that the author of ``op`` gave are worth; None
    where there are none."""
    if not op.lowerings and not isinstance(op.vjp, tuple):
        return None
    apart, count, reason = [0.0], 0, ""
    try:
        for i, call in enumerate(calls(op, seed)):
            count += 1
            reason = _kernel_fault(op, call, apart) or _price_fault(op, call)
            if not reason and call.kind == "uniform":
                reason = _slope_fault(op, call, i)
            if reason:
                break
        if not count:
            reason = "no drawn arguments are in its domain"
    except Exception as error:
        reason = f"the check itself failed: {failure(error)}"
    code = getattr(op.body or op.reference, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code else ("", 0)
    verdict = "refused" if reason else "tested"
    other = sorted(set(op.lowerings) - {"numpy"})
    text = "the kernel for {} is not run: only kernels for numpy are"
    lints = tuple(Lint("not run", text.format(name)) for name in other)
    return Finding(
        op.name,
        file,
        line,
        "reassociate",
        verdict,
        count,
        max(apart),
        reason,
        kind="op",
        lints=lints,
    )


# -- calls -----------------------------------------------------------------------------


def calls(op: Op, seed: int) -> Iterator[DrawnCall]:
    """Calls of every dtype, kind of values and size that the op takes."""
    for number, dtype in enumerate(FLOATS):
        for k, kind in enumerate(VALUES):
            for size in SIZES:
                rng = np.random.default_rng((seed, number, k, size or 7))
                try:
                    yield _call(op, rng, dtype, kind, size)
                except UNDEFINED:
                    continue


def _call(
    op: Op, rng: np.random.Generator, dtype: Any, kind: str, size: int | None
) -> DrawnCall:
    axes = _axes(op)
    names = [n for a in axes for n in a.tokens if isinstance(n, str) and n != "..."]
    fixed = {names[0]: size} if names and size is not None else {}

    def pick(n: int) -> int:
        return int(rng.integers(n))

    batch = None if names or size is None else (size,)
    shapes = fitting_shapes(axes, pick, fixed, batch=batch, whole=True, unusual=(None,))
    masks = [annotation_name(a) for a in _annotations(op)]
    arrays = tuple(
        np.asarray(values(kind, rng, s, BOOL if masks[i] == "bool" else dtype))
        for i, s in enumerate(shapes)
    )
    ndim = arrays[0].ndim if arrays else 0
    attrs = op.settle({n: _attr(op, n, rng, ndim) for n in op.attrs}, ndim)
    return DrawnCall(kind, arrays, attrs, _traced(op, arrays, attrs).term)


def _axes(op: Op) -> Sequence[Axes]:
    signature = getattr(op.type_rule, "signature", None)
    if signature is not None:
        return list(signature.inputs)
    one = Axes(("...",)) if op.kind == "pointwise" else Axes(("...", "n"))
    return [one] * (len(op.params) or 2)


def _annotations(op: Op) -> list[Any]:
    given = getattr(op.reference, "__annotations__", {})
    return [given.get(p, "") for p in op.params or ("", "")]


def _attr(op: Op, name: str, rng: np.random.Generator, ndim: int) -> Any:
    """A value of an attribute; raises ``ValueError`` where none is known."""
    if name in op.choices:
        return op.choices[name][int(rng.integers(len(op.choices[name])))]
    kind = op.attrs[name]
    if kind == "Axis":
        return (int(rng.integers(-ndim, 0)),) if ndim else ()
    if name in op.attr_defaults:
        return op.attr_defaults[name]
    known = {"float": (0.5, 1.5, -2.0), "int": (1, 2, 3), "bool": (0, 1)}
    if kind not in known:
        raise ValueError(f"no value of the attribute {name!r} is known")
    return known[kind][int(rng.integers(len(known[kind])))]


def _traced(op: Op, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Any:
    return op(*_inputs(Graph(sources=False), arrays), **attrs)


def _inputs(graph: Graph, arrays: Sequence[Array]) -> list[Tracer]:
    types = [(a.dtype, a.shape) for a in arrays]
    return [Tracer(graph.node(INPUT, (), (i,), t)) for i, t in enumerate(types)]


# -- kernels ---------------------------------------------------------------------------


def _kernel_fault(op: Op, call: DrawnCall, apart: list[float]) -> str:
    """What is wrong with the NumPy kernel; empty when nothing is. ``apart`` collects
    the differences, in units in the last place."""
    own = op.lowerings.get("numpy")
    if own is None or not np.prod(call.term.shape):
        return ""
    with np.errstate(all="ignore"):
        (want,) = evaluate([call.term], call.arrays)
        for layout, laid in LAYOUTS.items():
            arrays = [laid(a) for a in call.arrays]
            try:
                got, fault = _filled(own.function, arrays, call)
            except Exception as error:
                got, fault = want, f"it raises {failure(error)}"
            fault = fault or _differs(call, want, got)
            if want.dtype in PRECISION:
                apart.append(ulp(want, got, want.dtype))
            if fault:
                shapes = ", ".join(f"{a.dtype} {a.shape}" for a in arrays)
                where = f"{layout} arguments ({shapes}; {call.kind} values)"
                return f"its kernel for numpy: {where}: {fault}"
    return ""


def _filled(
    function: Callable[..., Any], arrays: list[Array], call: DrawnCall
) -> tuple[Array, str]:
    """What the kernel writes between two margins, and what it does besides."""
    dtype = np.dtype(call.term.dtype)  # type: ignore[arg-type]
    size = int(np.prod(call.term.shape)) * dtype.itemsize
    room = np.full(size + 2 * 64, MARK, np.uint8)
    before = [a.tobytes() for a in arrays]
    held = sys.getrefcount(room)
    out = room[64 : 64 + size].view(dtype).reshape(call.term.shape)
    function(*arrays, out=out, **call.attrs)
    got = out.copy()
    del out
    if sys.getrefcount(room) != held:
        gc.collect()
    if sys.getrefcount(room) != held:
        return got, "it keeps a reference to out"
    if (room[:64] != MARK).any() or (room[64 + size :] != MARK).any():
        return got, "it writes outside of out"
    if [a.tobytes() for a in arrays] != before:
        return got, "it changes an argument"
    return got, ""


def _differs(call: DrawnCall, want: Array, got: Array) -> str:
    """Why the kernel's result is not the reference's, up to rounding."""
    if want.dtype not in PRECISION:
        return bits_differ(want, got)
    dtype = min(
        (a.dtype for a in call.arrays if a.dtype in LIMIT), key=LIMIT.__getitem__
    )
    span = Range(LIMIT[dtype], narrow=dtype == np.dtype("f2"))
    (ball,) = Analysis(call.arrays, span).balls([call.term])
    reason = far_apart(want, got, ball, ball, 0.0)
    if reason:
        return reason
    if call.kind == "special":
        lost = np.isfinite(want) != np.isfinite(got)
        if lost.any():
            at = np.unravel_index(int(np.argmax(lost)), lost.shape)
            return f"{want[at]} and {got[at]}: one alone is finite"
    inside = span.inside and not span.pole and call.kind != "huge"
    plain = all(np.isfinite(a.astype(float)).all() for a in call.arrays)
    return not_finite(want, got, ball, ball) if inside and plain else ""


def _price_fault(op: Op, call: DrawnCall) -> str:
    """What is wrong with what a kernel is said to take."""
    types = [(a.dtype, a.shape) for a in call.arrays]
    for backend, own in op.lowerings.items():
        if own.seconds is None:
            continue
        said = f"seconds of its kernel for {backend}"
        try:
            price = float(own.seconds(types, dict(call.attrs), call.term.type))
        except Exception as error:
            return f"{said} raises {failure(error)}"
        if not 0 <= price < float("inf"):
            return f"{said} gives {price}, expected a finite number from 0 on"
    return ""


# -- derivatives -----------------------------------------------------------------------


def _slope_fault(op: Op, call: DrawnCall, seed: int) -> str:
    """Where a rule of derivatives is not what central differences say."""
    rules = op.vjp
    if not isinstance(rules, tuple) or not np.prod(call.term.shape):
        return ""
    f8 = np.dtype(np.float64)
    if any(a.dtype not in (f8, BOOL) for a in call.arrays) or call.term.dtype != f8:
        return ""
    rng = np.random.default_rng(seed)
    g = np.asarray(rng.uniform(0.5, 1.5, call.term.shape))
    for i in range(len(call.arrays)):
        rule = rules[0 if op.variadic else i]
        if call.arrays[i].dtype != f8:
            continue
        way = np.asarray(rng.uniform(-1, 1, call.arrays[i].shape))
        got = 0.0 if rule is None else _pulled(op, call, rule, i, g, way)
        near, far = (_slope(call, i, way, g, h) for h in (STEP, 2 * STEP))
        (out,) = evaluate([call.term], call.arrays)
        size = float(np.sum(np.abs(out) * g)) + 1
        bound = abs(far - near) + 32 * 2.0**-53 * size / STEP
        if np.isfinite([near, far]).all() and not abs(got - near) <= bound:
            name = op.params[i] if op.params else str(i)
            return (
                f"its derivative by {name!r} is {got:.6g} along a direction, central "
                f"differences say {near:.6g}"
            )
    return ""


def _pulled(op: Op, call: DrawnCall, rule: Any, i: int, g: Array, way: Array) -> float:
    """Σ (the derivative by argument ``i``) · ``way``, by the rule."""
    args = [g, *call.arrays]
    first, *rest = _inputs(Graph(sources=False), args)
    result = op(*rest, **call.attrs)
    which = {"which": i} if op.variadic else {}
    part = rule(first, *rest, result, **call.attrs, **which)
    if isinstance(part, OnlyWhere):
        part = part.part if part.is_zero else where(part.condition, part.part, 0.0)
    if isinstance(part, Tracer):
        (part,) = evaluate([part.term], args)
    return float(np.sum(np.broadcast_to(part, way.shape) * way))


def _slope(call: DrawnCall, i: int, way: Array, g: Array, h: float) -> float:
    def moved(step: float) -> Array:
        there = list(call.arrays)
        there[i] = there[i] + step * way
        return evaluate([call.term], there)[0]  # type: ignore[no-any-return]

    return float(np.sum((moved(h) - moved(-h)) / (2 * h) * g))
