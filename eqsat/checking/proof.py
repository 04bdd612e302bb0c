"""Algebraic proof of rules: both sides are one function of real numbers.

Both sides are opened down to primitives for drawn shapes. Where they become the same
term, nothing is left to prove. Otherwise they are evaluated at random points of random
prime fields (:mod:`eqsat.checking.prime_field`), in which every op is the polynomial or
the quotient that it is, or an uninterpreted function
(:mod:`eqsat.checking.field_semantics`). When the two sides agree there, they are the
same rational function of the arguments and of those functions, but for a probability
that :attr:`Proof.error` bounds.

What is proved is an identity of real numbers, wherever both sides are defined, for the
shapes drawn (:attr:`Proof.shapes`): named axes of pairwise distinct sizes of at least
two, but where a convolution or a number of groups fixes them, and no axis to three for
``...``. It says nothing of rounding, overflow, NaN or the wrapping of integers, which
the tests look at, and no condition of the rule is used.

J. T. Schwartz, Fast probabilistic algorithms for verification of polynomial identities,
J. ACM 27, 1980.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.checking.field_semantics import evaluate
from eqsat.checking.free_functions import Unprovable
from eqsat.checking.prime_field import Field, FieldArray
from eqsat.checking.strategies import Case, inside_domain, sample
from eqsat.checking.verdict import UNDEFINED
from eqsat.rulelang import Expr, Rule, instantiate, number_names
from eqsat.support import EqsatError
from eqsat.terms import INPUT, Graph, Term, Weak, scalar
from eqsat.trace import primitives

RANKS = (2, 1, 3, 0)
"""Numbers of axes that ``...`` stands for, a drawn shape each."""
DRAWS = 6
"""Cases that are drawn for each until one reaches the left side."""
ENOUGH = 1e-30
"""Trials are repeated until their agreement by chance is less likely than this."""
MOST_TRIALS = 6


@dataclass(frozen=True)
class Proof:
    """That a rule is an identity of real numbers for the shapes drawn."""

    error: float
    """How likely it is at most that the rule is none; 0 where the sides are the same
    term."""
    shapes: tuple[str, ...]
    """The shapes drawn."""


def prove(rule: Rule, seed: int = 0) -> Proof | None:
    """The proof of ``rule``, or None when none was found.

    None says that the sides differ as functions of uninterpreted functions, or hold
    something that has no meaning in a field. The rule may be right for all that.
    """
    for additive in (False, True):
        proof = _proof(rule, seed, additive)
        if proof is not None:
            return proof
    return None


def _proof(rule: Rule, seed: int, additive: bool) -> Proof | None:
    error, shapes = 0.0, []
    rng = random.Random(seed)
    for case in _cases(rule, seed):
        try:
            sides = _Sides.of(case)
            found = sides.error(rng, additive)
        except (*UNDEFINED, Unprovable):
            return None
        if found is None:
            return None
        error = max(error, found)
        shapes.append(_shape(case))
    # Two attempts are made, and each may be wrong.
    return Proof(2 * error, tuple(dict.fromkeys(shapes))) if shapes else None


def _cases(rule: Rule, seed: int) -> Iterator[Case]:
    """A case of each rank that reaches the left side."""
    for rank in RANKS:
        rng = np.random.default_rng((seed, rank))
        for _ in range(DRAWS):
            case = inside_domain(sample(rule, rng, rank))
            if case is not None and _reached(case):
                yield case
                break


def _reached(case: Case) -> bool:
    try:
        _terms(case, case.rule.left)
    except UNDEFINED:
        return False
    return True


def _shape(case: Case) -> str:
    sizes = {p: "×".join(map(str, a.shape)) for p, a in case.arrays.items()}
    words = [f"{p} {s or 'scalar'}" for p, s in sizes.items()]
    words += [f"{p}={v}" for p, v in case.numbers.items() if not isinstance(v, float)]
    return ", ".join(words)


def _terms(
    case: Case, side: Sequence[Any], numbers: dict[Term, Expr] | None = None
) -> list[Term]:
    """The terms of a side over float64, or over int64 where it is not defined for
    floats. ``numbers`` gets the terms of number expressions."""
    held = {} if numbers is None else numbers

    def expression(graph: Graph, e: Expr, names: Mapping[str, Any]) -> Term:
        if e.kind == "int":
            return scalar(graph, float(e.value(names)))
        term = graph.node(INPUT, (), (str(e),), (Weak.FLOAT, ()))
        held[term] = e
        return term

    problem: Exception | None = None
    first = case.rule.dtype or "f8"
    for dtype in (first, "i8") if case.rule.dtypes == "any" else (first,):
        args = [
            case.numbers[p] if p in case.numbers else _typed(case.arrays[p], dtype)
            for p in case.rule.params
        ]
        try:
            return instantiate(case.rule, side, args, expression=expression)
        except EqsatError as error:
            problem = error
    assert problem is not None
    raise problem


def _typed(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    return array if array.dtype == bool else np.zeros(array.shape, dtype)


@dataclass
class _Sides:
    """Both sides of a case as primitives over the same leaves."""

    case: Case
    left: list[Term]
    right: list[Term]
    numbers: dict[Term, Expr]

    @staticmethod
    def of(case: Case) -> _Sides:
        numbers: dict[Term, Expr] = {}
        rule = case.rule
        roots = _terms(case, [*rule.left, *rule.right], numbers)
        opened = [primitives(t) for t in roots]
        n = len(rule.left)
        return _Sides(case, opened[:n], opened[n:], numbers)

    def error(self, rng: random.Random, additive: bool) -> float | None:
        """How likely the sides differ although all trials agree; None when one does
        not, or when the trials do not say enough."""
        if self.left == self.right:
            return 0.0
        error = 1.0
        for _ in range(MOST_TRIALS):
            doubt = self._trial(Field.drawn(rng, additive))
            if doubt is None:
                return None
            error *= doubt
            if error < ENOUGH:
                return error
        return None

    def _trial(self, f: Field) -> float | None:
        leaves = self._leaves(f)
        values = evaluate([*self.left, *self.right], leaves, f)
        n = len(self.left)
        doubt = 0.0
        for a, b in zip(values[:n], values[n:], strict=True):
            if a.array.shape != b.array.shape or (a.array != b.array).any():
                return None
            doubt = max(doubt, a.size.coincide(b.size))
        return doubt + f.free.doubt()

    def _leaves(self, f: Field) -> dict[Term, FieldArray]:
        """Variables in the places of arrays and of number parameters."""
        case = self.case
        names = number_names(case.rule, case.args())
        names |= {
            p: f.variable(()) for p, k in case.rule.numbers.items() if k == "float"
        }
        values = {t: _number(f, e, names) for t, e in self.numbers.items()}
        graph = self.left[0].graph
        for t in graph.terms:
            if t.op is INPUT and t not in values:
                values[t] = f.variable(t.shape)
        return values


def _number(f: Field, e: Expr | float, names: Mapping[str, Any]) -> FieldArray:
    """A number expression in which float parameters are variables."""
    if not isinstance(e, Expr):
        return f.number(e)
    if not e.args:
        held = names[e.head]
        return held if isinstance(held, FieldArray) else f.number(held)
    if e.head in ("//", "entry"):
        return f.number(Fraction(e.value(names)))
    combine = {"+": f.add, "-": f.subtract, "*": f.multiply, "/": f.divide}
    a, b = (_number(f, x, names) for x in e.args)
    return combine[e.head](a, b)
