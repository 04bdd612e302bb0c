"""Algebraic proof of rules: both sides are one function of real numbers.

Both sides are opened down to primitives for drawn shapes. Where they become the same
term, nothing is left to prove. Otherwise they are evaluated at random points of random
prime fields (``prime_field.py``), in which every op is the polynomial or the quotient
that it is, or an uninterpreted function (``field_semantics.py``). When the two sides
agree there, they are the same rational function of the arguments and of those
functions, but for a probability that :attr:`Proof.error` bounds.

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

from eqsat.checking.draws import (
    UNDEFINED,
    Case,
    dtypes_of,
    inside_domain,
    loose,
    sample,
)
from eqsat.checking.proofs.bit_symbols import Symbols, symbols_of
from eqsat.checking.proofs.field_semantics import evaluate
from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.checking.proofs.nan_flow import NanFlow
from eqsat.checking.proofs.prime_field import Field, FieldArray
from eqsat.ops import cast
from eqsat.rulelang import Expr, Rule, exprs, instantiate, number_names
from eqsat.support import Array
from eqsat.terms import HALF, INPUT, Graph, Op, Term, Weak, is_float, scalar
from eqsat.trace import Tracer, body_of, rebuilt

RANKS = (2, 1, 3, 0)
"""Numbers of axes that ``...`` stands for, a drawn shape each."""
DRAWS = 6
"""Cases that are drawn for each until one reaches the left side."""
ENOUGH = 5e-31
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


def prove(
    rule: Rule, cases: Sequence[Case] | None = None, seed: int = 0
) -> Proof | None:
    """The proof of ``rule`` for ``cases`` (:func:`default_cases` when there are none),
    or None when one of them has none.

    None says that the sides differ as functions of uninterpreted functions, or hold
    something that has no meaning in a field. The rule may be right for all that.
    """
    held = [c for c in cases or default_cases(rule, seed) if _of_numbers(c)]
    if not held or not _enough_sizes(rule, held):
        return None
    try:
        if rule.numerics == "exact":
            return _exact(held)
        full = (c for c in held if all(a.size for a in c.arrays.values()))
        if rule.numerics != "fast" and not all(map(_same_reach, full)):
            return None
    except (*UNDEFINED, Unprovable):
        return None
    for additive in (False, True):
        proof = _proof(held, seed, additive)
        if proof is not None:
            return proof
    return None


def _proof(cases: Sequence[Case], seed: int, additive: bool) -> Proof | None:
    """The proof of an identity of real numbers. A case with an empty array may have no
    value in a field, as its mean has none."""
    error, shown = 0.0, []
    rng = random.Random(seed)
    for case in cases:
        dtype = _of_numbers(case)
        assert dtype is not None
        try:
            sides = _Sides.of(case, dtype)
            found = sides.error(rng, additive)
        except (*UNDEFINED, Unprovable):
            if all(a.size for a in case.arrays.values()):
                return None
            continue
        if found is None:
            return None
        error = max(error, found)
        shown.append(case)
    # Two attempts are made, and each may be wrong.
    return Proof(2 * error, _shapes(shown)) if shown else None


def _shapes(cases: Sequence[Case]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_shape, cases)))


def default_cases(rule: Rule, seed: int = 0) -> Iterator[Case]:
    """A case of each rank that reaches the left side."""
    for rank in RANKS:
        rng = np.random.default_rng((seed, rank))
        for _ in range(DRAWS):
            case = inside_domain(sample(rule, rng, rank))
            if case is not None and _of_numbers(case):
                yield case
                break


def _enough_sizes(rule: Rule, cases: Sequence[Case]) -> bool:
    """Whether the cases have as many sizes of each axis as decide (see above)."""
    for axis, degree in _degrees(rule).items():
        sizes = {number_names(rule, c.args()).get(axis) for c in cases}
        if len(sizes - {0}) < degree + 1:
            return False
    return True


def _degrees(rule: Rule) -> dict[str, int]:
    """For each axis whose size is a number of the rule, how often it is one."""
    found: dict[str, int] = {}
    for side in (*rule.left, *rule.right):
        for e in exprs(side):
            for name in e.names - rule.numbers.keys():
                found[name] = found.get(name, 0) + 1
    return found


def _symbols(
    case: Case, dtype: Kind
) -> tuple[_Sides, Symbols, list[Array], list[Array]]:
    """Both sides of a case, and as arrays of symbols."""
    sides, s = _Sides.of(case, dtype), Symbols()
    numbers = {t: np.array(s.expression(e)) for t, e in sides.numbers.items()}
    found = symbols_of([*sides.left, *sides.right], s, numbers)
    n = len(sides.left)
    return sides, s, found[:n], found[n:]


def _exact(cases: Sequence[Case]) -> Proof | None:
    """The proof that both sides are the same bits."""
    for case in cases:
        for dtype in _kinds(case.rule):
            if not _reached(case, dtype):
                continue
            sides, _, left, right = _symbols(case, dtype)
            if [t.dtype for t in sides.left] != [t.dtype for t in sides.right]:
                return None
            for a, b in zip(left, right, strict=True):
                if a.shape != b.shape or (a != b).any():
                    return None
    return Proof(0.0, _shapes(cases))


def _same_reach(case: Case) -> bool:
    """Whether NaN of the same operands reaches each element of both sides."""
    dtype = _of_numbers(case)
    assert dtype is not None
    sides, s, left, right = _symbols(case, dtype)
    flow = NanFlow(s)
    floats = [is_float(t.dtype) for t in sides.left]
    if any(
        (a != b).any() for a, b, f in zip(left, right, floats, strict=True) if not f
    ):
        return False
    return all(
        a.shape == b.shape
        and all(map(flow.same_nan, a.ravel().tolist(), b.ravel().tolist()))
        for a, b in zip(left, right, strict=True)
    )


def _reached(case: Case, dtype: Kind) -> bool:
    """Whether the left side is defined."""
    try:
        instantiate(case.rule, case.rule.left, _args(case, dtype))
    except UNDEFINED:
        return False
    return True


def _of_numbers(case: Case) -> Kind | None:
    """The dtype that real numbers are told in: float64, or int64 where the left side is
    not defined for floats; None where it is for neither."""
    rule = case.rule
    first = rule.dtype or np.dtype("f8")
    for d in (
        (first, np.dtype("i8"), np.dtype("?")) if rule.dtypes == "any" else (first,)
    ):
        if _reached(case, (d, d)):
            return d, d
    return None


def _shape(case: Case) -> str:
    sizes = {p: "×".join(map(str, a.shape)) for p, a in case.arrays.items()}
    words = [f"{p} {s or 'scalar'}" for p, s in sizes.items()]
    words += [f"{p}={v}" for p, v in case.numbers.items() if not isinstance(v, float)]
    return ", ".join(words)


def _terms(
    case: Case,
    side: Sequence[Any],
    dtype: Kind,
    numbers: dict[Term, Expr] | None = None,
) -> list[Term]:
    """The terms of a side over arrays of ``dtype``. ``numbers`` gets the terms of
    number expressions."""
    held = {} if numbers is None else numbers

    def expression(graph: Graph, e: Expr, names: Mapping[str, Any]) -> Term:
        if e.kind == "int":
            return scalar(graph, float(e.value(names)))
        term = graph.node(INPUT, (), (str(e),), (Weak.FLOAT, ()))
        held[term] = e
        return term

    return instantiate(case.rule, side, _args(case, dtype), expression=expression)


def _args(case: Case, dtype: Kind) -> list[Any]:
    """The numbers of a case, and arrays of its shapes."""
    own = loose(case.rule)
    return [
        case.numbers[p]
        if p in case.numbers
        else np.zeros(
            case.arrays[p].shape, bool if p in case.rule.masks else dtype[p in own]
        )
        for p in case.rule.params
    ]


def _kinds(rule: Rule) -> Iterator[Kind]:
    """Dtypes that stand for all that the rule admits."""
    if rule.dtype is not None:
        yield rule.dtype, rule.dtype
        return
    ops = [Op.registry[n] for n in {*rule.ops(rule.left), *rule.ops(rule.right)}]
    casts = any(op.name == "cast" or op.body is not None for op in ops)
    names = ("f8", "f2", *(("i8", "u1", "?") if rule.dtypes == "any" else ()))
    for d in dtypes_of(rule) if casts else map(np.dtype, names):
        yield d, d
    if loose(rule):
        yield np.dtype("f4"), np.dtype("f8")


Kind = tuple[np.dtype[Any], np.dtype[Any]]
"""The dtype of arrays with named axes, and of the others that may have their own."""


def _opened(term: Term) -> Term | None:
    """The body of a composite; of half precision it is computed in float32 and rounded
    once."""
    op = term.op
    assert isinstance(op, Op)
    if op.body is None or term.dtype not in HALF:
        return body_of(term)
    wide = [
        cast(Tracer(a), dtype="float32") if a.dtype in HALF else Tracer(a)
        for a in term.args
    ]
    found: Tracer = cast(op.body(*wide, **op.attr_dict(term)), dtype=str(term.dtype))
    return found.term


@dataclass
class _Sides:
    """Both sides of a case as primitives over the same leaves."""

    case: Case
    left: list[Term]
    right: list[Term]
    numbers: dict[Term, Expr]

    @staticmethod
    def of(case: Case, dtype: Kind) -> _Sides:
        numbers: dict[Term, Expr] = {}
        rule = case.rule
        roots = _terms(case, [*rule.left, *rule.right], dtype, numbers)
        opened = rebuilt(roots, {}, _opened)
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
