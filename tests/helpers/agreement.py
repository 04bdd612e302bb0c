"""Traced functions against NumPy and against formulas, in type and value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from evaluate import evaluate

from eqsat.support.errors import EqsatError
from eqsat.terms.op import INPUT
from eqsat.terms.term import Term, TermGraph, postorder
from eqsat.trace.open_composites import primitives
from eqsat.trace.tracer import Tracer

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F8 = np.dtype("f8")
FLOATS = [np.dtype("f2"), BF16, np.dtype("f4"), F8]
INTEGERS = [np.dtype(n) for n in ("i1", "u1", "i4", "u4", "i8")]
DTYPES = [*FLOATS, *INTEGERS, np.dtype(bool)]
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


def drawn(seed: int, shape: Sequence[int], dtype: Any, special: bool = True) -> Array:
    """Random elements, small enough not to overflow.

    Unless ``special`` is false a few floats are NaN, infinite or a zero of either sign.
    """
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.normal(size=shape) * 2)
    if dtype in FLOATS and special:
        odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], size=shape)
        x = np.where(rng.random(shape) < 0.1, odd, x)
    if dtype == np.dtype(bool):
        return np.asarray(x > 0)
    return np.asarray(np.abs(x) if dtype.kind == "u" else x).astype(dtype)


def normal(seed: int, *shape: int, dtype: Any = F8) -> Array:
    """Random elements, all of them finite."""
    return drawn(seed, shape, dtype, special=False)


def traced(*arrays: Array) -> list[Tracer]:
    """Stand-ins for arrays, in a graph of their own."""
    graph = TermGraph()
    return [
        Tracer(graph.node(INPUT, (), (i,), (x.dtype, x.shape)))
        for i, x in enumerate(arrays)
    ]


def names(root: Term) -> list[str]:
    """Names of the ops of a term but for its inputs, in order of evaluation."""
    return [t.op.name for t in postorder([root]) if t.op is not INPUT]


def agree(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: Array,
    tol: float = 0,
) -> None:
    """``ours`` has the type and the value of ``theirs``, or both refuse.

    Traced, its term does, and so does that of its primitives; called on arrays, its
    result. ``tol`` is in roundings of the dtype.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            want = theirs(*arrays)
        except (ValueError, TypeError, IndexError):
            with pytest.raises(EqsatError):
                ours(*traced(*arrays))
            return
        results = ours(*traced(*arrays)), ours(*arrays), want
        many = isinstance(want, list)
        for record, eager, w in zip(*results, strict=True) if many else [results]:
            w = np.asarray(w)
            type_ = w.dtype, w.shape
            assert type_ == (record.dtype, record.shape) == (eager.dtype, eager.shape)
            roots = record.term, primitives(record.term)
            for value in (eager, *evaluate(roots, arrays)):
                near(value, w, tol * ROUNDING.get(str(w.dtype), 0))


def near(got: Any, want: Array, rounding: float) -> None:
    """Equal up to ``rounding``, absolute and relative."""
    if want.dtype in FLOATS:
        got, want = np.asarray(got).astype(float), want.astype(float)
    np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding)


def rounded(formula: Callable[..., Any]) -> Callable[..., Any]:
    """``formula`` in float64, rounded to the common dtype of its arrays but bools.

    Integers alone give float64.
    """

    def at_the_end(*arrays: Any) -> Any:
        counted = [x.dtype for x in arrays if x.dtype != bool]
        dtype = np.result_type(*counted)
        wide = (x if x.dtype == bool else x.astype(float) for x in arrays)
        return np.asarray(formula(*wide)).astype(dtype if dtype in FLOATS else float)

    return at_the_end
