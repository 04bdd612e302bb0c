"""What terms and traced functions compute, by the NumPy references of ops alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.terms.op import CONSTANT, INPUT, SCALAR, Op
from eqsat.terms.term import Term, postorder
from eqsat.trace.call_arguments import flatten_arguments
from eqsat.trace.trace import trace


def evaluate(outputs: Sequence[Term], inputs: Sequence[Any]) -> list[Any]:
    """The values of ``outputs``; INPUT leaf i is ``inputs[i]``.

    Every value must have the shape and dtype that its term says.
    """
    values: dict[Term, Any] = {}
    for term in postorder(outputs):
        values[term] = _value(term, [values[a] for a in term.args], inputs)
        if term.op is not SCALAR:
            found = np.asarray(values[term])
            assert (found.dtype, found.shape) == term.type, f"{term}: {found.dtype}"
    return [values[t] for t in outputs]


def _value(term: Term, args: Sequence[Any], inputs: Sequence[Any]) -> Any:
    if term.op is INPUT:
        return np.asarray(inputs[term.attrs[0]])
    if term.op is CONSTANT:
        return term.graph.arrays[term.attrs[0]]
    if term.op is SCALAR:
        return term.attrs[0]
    assert isinstance(term.op, Op)
    return term.op.reference(*args, **term.op.attr_dict(term))


def traced(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``f`` computes when it is traced and its terms are evaluated."""
    done = trace(f, args, kwargs)
    arrays = flatten_arguments(f, args, kwargs).arrays
    return done.unflatten(evaluate(done.outputs, arrays))


def assert_same(got: Any, want: Any, rtol: float = 2e-6) -> None:
    """Equal structure, shapes, dtypes, and values up to rounding."""
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol)
        return
    g, w = np.asarray(got), np.asarray(want)
    assert (g.dtype, g.shape) == (w.dtype, w.shape)
    if w.dtype.kind in "biuUO":
        np.testing.assert_array_equal(g, w)
    else:
        near = 2e-3 if w.dtype.itemsize == 2 else rtol
        wide = np.complex128 if w.dtype.kind == "c" else np.float64
        g, w = g.astype(wide), w.astype(wide)
        np.testing.assert_allclose(g, w, rtol=near, atol=near)
