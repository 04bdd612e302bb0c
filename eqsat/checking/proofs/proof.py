"""Algebraic proof of rules: both sides are one function of real numbers.

Both sides are opened down to primitives for drawn shapes. Where they become the same
term, nothing is left to prove. Otherwise they are evaluated at random points of random
prime fields (``prime_field.py``), in which every op is the polynomial or the quotient
that it is, or an uninterpreted function (``field_semantics.py``). When the two sides
agree there, they are the same rational function of the arguments and of those
functions, but for a probability that :attr:`Proof.error` bounds.

What is proved holds wherever both sides are defined, and no condition of the rule is
used. Under ``exact`` it is the same bits, by symbols of elements (``bit_symbols.py``).
Under the other classes it is an identity of real numbers; but for ``fast``, NaN of the
same operands also reaches the same elements (``nan_flow.py``). Overflow, infinities and
the wrapping of integers are looked at by the tests alone.

It is proved for cases of all classes of shapes and attributes that the rule admits
(:attr:`Proof.shapes`), and for sizes that decide all others (``needed_sizes.py``).

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

from eqsat.checking.draws import UNDEFINED, Case, inside_domain, sample
from eqsat.checking.proofs.bit_symbols import Symbols, symbols_of
from eqsat.checking.proofs.deciding_sizes import deciding
from eqsat.checking.proofs.field_semantics import evaluate
from eqsat.checking.proofs.free_functions import Unprovable
from eqsat.checking.proofs.nan_flow import NanFlow
from eqsat.checking.proofs.prime_field import Field, FieldArray
from eqsat.checking.proofs.sides import Kind, Sides, kinds, of_numbers, reached
from eqsat.rulelang import Expr, Rule, number_names
from eqsat.support import Array
from eqsat.terms import INPUT, Term, is_float

RANKS = (2, 1, 3, 0)
"""Numbers of axes that ``...`` stands for, a drawn shape each."""
DRAWS = 6
"""Cases that are drawn for each until one reaches the left side."""
ENOUGH = 5e-31
"""Trials are repeated until their agreement by chance is less likely than this."""
MOST_TRIALS = 6


@dataclass(frozen=True)
class Proof:
    """That a rule is an identity of real numbers or of bits."""

    error: float
    """How likely it is at most that the rule is none; 0 where the sides are the same
    term."""
    shapes: tuple[str, ...]
    """Shapes and attributes of the cases that were proved one by one."""


def prove(
    rule: Rule, cases: Sequence[Case] | None = None, seed: int = 0
) -> Proof | None:
    """The proof of ``rule`` for ``cases`` (:func:`default_cases` when there are none)
    and for the sizes that decide it; None when one of them has none.

    None says that the sides differ as functions of uninterpreted functions, or hold
    something that has no meaning in a field. The rule may be right for all that.
    """
    held = [c for c in cases or default_cases(rule, seed) if of_numbers(c)]
    decision = deciding(rule, held)
    held += decision.cases
    if not held or not decision.whole:
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
        dtype = of_numbers(case)
        assert dtype is not None
        try:
            sides = Sides.of(case, dtype)
            found = _error(sides, rng, additive)
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
            if case is not None and of_numbers(case):
                yield case
                break


def _symbols(
    case: Case, dtype: Kind
) -> tuple[Sides, Symbols, list[Array], list[Array]]:
    """Both sides of a case, and as arrays of symbols."""
    sides, s = Sides.of(case, dtype), Symbols()
    numbers = {t: np.array(s.expression(e)) for t, e in sides.numbers.items()}
    found = symbols_of([*sides.left, *sides.right], s, numbers)
    n = len(sides.left)
    return sides, s, found[:n], found[n:]


def _exact(cases: Sequence[Case]) -> Proof | None:
    """The proof that both sides are the same bits."""
    for case in cases:
        for dtype in kinds(case.rule):
            if not reached(case, dtype):
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
    dtype = of_numbers(case)
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


def _shape(case: Case) -> str:
    sizes = {p: "×".join(map(str, a.shape)) for p, a in case.arrays.items()}
    words = [f"{p} {s or 'scalar'}" for p, s in sizes.items()]
    words += [f"{p}={v}" for p, v in case.numbers.items() if not isinstance(v, float)]
    return ", ".join(words)


def _error(sides: Sides, rng: random.Random, additive: bool) -> float | None:
    """How likely the sides differ although all trials agree; None when one does
    not, or when the trials do not say enough."""
    if sides.left == sides.right:
        return 0.0
    error = 1.0
    for _ in range(MOST_TRIALS):
        doubt = _trial(sides, Field.drawn(rng, additive))
        if doubt is None:
            return None
        error *= doubt
        if error < ENOUGH:
            return error
    return None


def _trial(sides: Sides, f: Field) -> float | None:
    leaves = _leaves(sides, f)
    values = evaluate([*sides.left, *sides.right], leaves, f)
    n = len(sides.left)
    doubt = 0.0
    for a, b in zip(values[:n], values[n:], strict=True):
        if a.array.shape != b.array.shape or (a.array != b.array).any():
            return None
        doubt = max(doubt, a.size.coincide(b.size))
    return doubt + f.free.doubt()


def _leaves(sides: Sides, f: Field) -> dict[Term, FieldArray]:
    """Variables in the places of arrays and of number parameters."""
    case = sides.case
    names = number_names(case.rule, case.args())
    names |= {p: f.variable(()) for p, k in case.rule.numbers.items() if k == "float"}
    values = {t: _number(f, e, names) for t, e in sides.numbers.items()}
    graph = sides.left[0].graph
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
