"""How near results are to the exact ones, where bounds of each step are no use: those
of a deep network grow beyond its values.

The error is ‖got - exact‖ / ‖exact‖. Exact is what the references of the ops make of
the same inputs in float64. An error is explained by rounding up to :data:`FACTOR` times
the largest of

- the error of the same references in the dtypes of the function,
- half a unit in the last place of the result's dtype,
- u √n for the longest sum, of n terms, with u the rounding of float32: what the
  errors of a sum in any order stay near (Higham & Mary 2019, doi:10.1137/18M1226312).

So other orders of summation, fused multiply-adds and polynomials for exp and erf pass;
a wrong formula does not. Of integers and bools the error is the share of elements that
differ, and half a unit is 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.kernels import term_flops
from eqsat.ops import cast_op
from eqsat.rulelang import evaluate, leaf_value
from eqsat.support import Array
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, Weak, postorder
from eqsat.trace import flatten_arguments, primitives, trace

FACTOR = 8.0
"""Three bits: erf and exp of a few units in the last place, at several steps."""
FLOAT32_ROUNDING = 2.0**-24
_WIDE = {"f": np.float64, "V": np.float64, "c": np.complex128}
"""The dtype in which numbers of a kind are exact; those of ml_dtypes are of kind V."""
_COUNTED = "iubU"
"""Kinds of numbers, and text, whose elements differ or do not."""
_finfo: Any = ml_dtypes.finfo
"""numpy.finfo that knows bfloat16."""


def wide(array: Array) -> Array:
    """Floats as float64, complex numbers as complex128; others as they are."""
    return array.astype(_WIDE.get(array.dtype.kind, array.dtype), copy=False)


def relative(got: Array, exact: Array) -> float:
    """‖got - exact‖ / ‖exact‖, or the share of elements that differ of integers and
    bools; infinity for another shape, and where one alone is NaN or infinite."""
    if got.shape != exact.shape:
        return math.inf
    if exact.dtype.kind in _COUNTED:
        return float(np.mean(got != exact)) if exact.size else 0.0
    got = wide(got)
    same = (got == exact) | ((got != got) & (exact != exact))
    with np.errstate(invalid="ignore"):
        difference = float(np.linalg.norm(np.where(same, 0, got - exact).ravel()))
    size = np.where(np.isfinite(exact), exact, 0)
    norm = float(np.linalg.norm(size.ravel())) or 1.0
    return difference / norm if math.isfinite(difference) else math.inf


def bound(plain_error: float, dtype: Any, terms: int) -> float:
    """The largest error that rounding explains, of a result in ``dtype`` that sums of
    so many ``terms`` were made for."""
    if dtype.kind in _COUNTED:
        return FACTOR * plain_error
    half_unit = float(_finfo(dtype).eps) / 2
    return FACTOR * max(plain_error, half_unit, FLOAT32_ROUNDING * math.sqrt(terms))


def longest_sum(output: Term) -> int:
    """Terms of the longest sum before a result."""
    return max(map(_terms_summed, postorder([primitives(output)])))


def _terms_summed(term: Term) -> int:
    """How many numbers each number of a reduction or product adds up."""
    size = max(math.prod(term.shape), 1)
    assert isinstance(term.op, Op)
    products, _ = term_flops(term)
    if products:
        return int(products / (2 * size))
    if term.op.name in ("sum", "mean"):
        return max(math.prod(term.args[0].shape) // size, 1)
    return 1


def exact_values(roots: Iterable[Term], inputs: Sequence[Any]) -> list[Array]:
    """The values of ``roots`` by the ops' references, in float64 where they are of
    floats and complex128 where they are of complex numbers."""
    outputs = tuple(roots)
    order = list(postorder(outputs))
    readers = Counter([*outputs, *(a for t in order for a in t.args)])
    values: dict[Term, Any] = {}
    for term in order:
        values[term] = _exact(term, [values[a] for a in term.args], inputs)
        for a in term.args:  # a network's values in float64 are large together
            readers[a] -= 1
            if not readers[a]:
                del values[a]
    return [np.asarray(values[t]) for t in outputs]


def _exact(term: Term, args: Sequence[Any], inputs: Sequence[Any]) -> Any:
    if term.op is SCALAR:
        return term.attrs[0]
    if term.op in (INPUT, CONSTANT):
        return wide(np.asarray(leaf_value(term, inputs)))
    assert isinstance(term.op, Op)
    kind = "f" if isinstance(term.dtype, Weak) else term.dtype.kind
    if term.op is cast_op and kind in _WIDE:
        return np.asarray(args[0]).astype(_WIDE[kind])
    found = np.asarray(term.op.reference(*args, **term.op.attr_dict(term)))
    return found if isinstance(term.dtype, Weak) else wide(found)


class Evaluated:
    """A function, evaluated term by term as it is written: in its dtypes, or in
    float64 if ``exact``. It stands for a compiled function."""

    def __init__(self, fn: Callable[..., Any], exact: bool) -> None:
        self.fn, self.exact = fn, exact
        self.longest_sum = 1
        """Terms of the longest sum met."""
        self.written: dict[str, Array] = {}
        """What the last call would have written to arguments, by their paths."""

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The results for these arrays, nested as those of the function. Arguments stay
        as they are."""
        call = flatten_arguments(self.fn, args, named)
        traced = trace(self.fn, call)
        self.longest_sum = max([self.longest_sum, *map(longest_sum, traced.outputs)])
        run = exact_values if self.exact else evaluate
        with np.errstate(all="ignore"):
            values = list(run(traced.outputs, call.arrays))
        of = traced.writes.places
        to = [traced.names[i] for i in of]
        self.written = dict(zip(to, values[len(values) - len(of) :], strict=True))
        return traced.unflatten(values)
