"""Conditions of rules: facts when the rule rewrites, tests when it runs on arrays.

A rule says ``where=lambda x, c: (nonzero(c), at_least(x, 0))``. Called with pattern
values each condition is a fact about the e-graph, which knows how to test arrays, too;
called with arrays it is a bool, and :meth:`Held.mend` bends a drawn array into the
domain so that property tests reach it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import numpy as np

from eqsat.rulelang.expression import COMPARISONS, Expr
from eqsat.rulelang.fact import AskedNumber, Fact, Held, compared, expression_of
from eqsat.rulelang.pattern import Pattern
from eqsat.rulelang.pattern_value import as_pattern
from eqsat.support import RuleError
from eqsat.terms import (
    CONSTANT,
    SCALAR,
    Op,
    Term,
    Traced,
    dtype_code,
    postorder,
    rounding,
)

HALF = np.dtype(np.float16)
SMALL = 2.0**-14
"""A divisor of at least this size has a reciprocal that is a normal float16."""
TINY = 1e-30
"""A divisor of at least this size has a reciprocal that is a normal float32."""


def _subject(name: str, kind: str, value: Any) -> Pattern | Expr | int | float:
    """``value`` as what a fact says something of.

    ``kind``: ``array``, ``number``, ``size`` (an integer or a number) or ``ints``.
    """
    value = expression_of(value)
    if isinstance(value, Expr):
        is_ints = value.kind == "ints"
        if kind == "array" or is_ints != (kind == "ints"):
            raise _misplaced(name, kind, f"{value} is {_KINDS[value.kind]}")
        return value * 1.0 if kind == "number" and value.kind == "int" else value
    if isinstance(value, Traced):
        if kind != "array":
            raise _misplaced(name, kind, f"{value!r} is an array")
        return as_pattern(value)
    if kind == "size" and type(value) in (int, float):
        return cast("int | float", value)
    raise _misplaced(name, kind, f"got {value!r}")


_KINDS = {"int": "an integer", "float": "a number", "ints": "an attribute"}
_TAKES = {
    "array": "an array",
    "number": "a number parameter or a size",
    "size": "a number parameter or a size",
    "ints": "an attribute of several integers",
}


def _misplaced(name: str, kind: str, got: str) -> RuleError:
    return RuleError(f"the condition {name!r} takes {_TAKES[kind]}, {got}")


def _condition(
    name: str,
    kinds: str,
    text: str,
    test: Callable[..., bool],
    mend: Callable[..., None],
    *values: Any,
    constants: bool = False,
) -> Fact | Held:
    """``kinds``: what each value is (:func:`_subject`), a word each. ``constants``:
    only arrays that are known at compile time can meet it."""
    if any(isinstance(v, (Expr, AskedNumber, Traced)) for v in values):
        placed = zip(kinds.split(), values, strict=True)
        subjects = tuple(_subject(name, k, v) for k, v in placed)
        return Fact(text, subjects, name, "", test, mend, constants)
    return Held(bool(test(*values)), lambda: mend(*values), name)


def _compared(name: str, symbol: str, a: Any, b: Any) -> Fact | Held:
    """A comparison of sizes and numbers."""
    values = (a, b)
    if not any(isinstance(v, (Expr, AskedNumber, Traced)) for v in values):
        holds = COMPARISONS[symbol](a, b)
        return Held(bool(holds), _unbendable, name)
    return replace(
        compared(symbol, *(_subject(name, "size", v) for v in values)), name=name
    )


def _unbendable(*values: Any) -> None:
    """Nothing to bend: the caller draws again."""


def _of_elements(
    name: str,
    relation: str,
    test: Callable[[Any], bool],
    mend: Callable[[Any], None],
    x: Any,
) -> Fact | Held:
    """A condition on the elements of an array that is known at compile time."""

    def bend(v: Any) -> None:
        if isinstance(v, np.ndarray) and v.size:
            mend(v)

    return _condition(
        name, "array", f"({relation} {{0}})", test, bend, x, constants=True
    )


def nonzero(c: Any) -> Fact | Held:
    """The number ``c`` is not 0; or all elements of the known array ``c`` are finite
    and not 0."""
    if not isinstance(c, Traced) and np.ndim(c) == 0:
        return _compared("nonzero", "!=", c, 0)

    def mend(v: Any) -> None:
        v[~np.isfinite(v) | (v == 0)] = 1

    return _of_elements("nonzero", "nonzero", _is_nonzero, mend, c)


def _is_nonzero(v: Any) -> bool:
    return bool(np.all(np.isfinite(v) & (np.asarray(v) != 0)))


def positive(c: Any) -> Fact | Held:
    """The number ``c`` is above 0; or all elements of the known array ``c`` are finite
    and above 0."""
    if not isinstance(c, Traced) and np.ndim(c) == 0:
        return _compared("positive", ">", c, 0)

    def mend(v: Any) -> None:
        v[~np.isfinite(v) | (v == 0)] = 1
        np.abs(v, out=v)

    return _of_elements("positive", "positive", _is_positive, mend, c)


def _is_positive(v: Any) -> bool:
    return bool(np.all(np.isfinite(v) & (np.asarray(v) > 0)))


def symmetric(a: Any) -> Fact | Held:
    """The known matrices ``a`` (... n n) are finite and their own transposes."""
    return _of_elements("symmetric", "symmetric", _is_symmetric, _mirror, a)


def _is_symmetric(v: Any) -> bool:
    v = np.asarray(v)
    return _is_square(v) and bool(np.all(np.isfinite(v) & (v == v.mT)))


def _mirror(v: Any) -> None:
    if _is_square(v):
        v[~np.isfinite(v)] = 1
        v[...] = np.tril(v) + np.tril(v, -1).mT


def orthonormal(a: Any) -> Fact | Held:
    """The columns of the known matrices ``a`` (... m n) are orthonormal, up to the
    rounding of their dtype: aᵀ a = 1."""

    def mend(v: Any) -> None:
        if v.ndim >= 2 and v.shape[-2] >= v.shape[-1]:
            v[~np.isfinite(v)] = 1
            wide = np.asarray(v, float) + np.eye(*v.shape[-2:])
            v[...] = np.linalg.qr(wide)[0]

    return _of_elements("orthonormal", "orthonormal", _is_orthonormal, mend, a)


def _is_orthonormal(v: Any) -> bool:
    v = np.asarray(v)
    if v.ndim < 2 or v.dtype.kind in "biu":
        return False
    wide = np.asarray(v, float)
    apart = np.abs(wide.mT @ wide - np.eye(v.shape[-1]))
    return bool(np.all(apart <= 8 * max(v.shape[-2:]) * rounding(v.dtype)))


def normal(c: Any) -> Fact | Held:
    """The number ``c`` and its reciprocal are normal float32 numbers: 1e-30 ≤ \\|c\\| ≤
    1e30."""
    return _between("normal", TINY, c)


def moderate(c: Any) -> Fact | Held:
    """The number ``c`` and its reciprocal are normal float16 numbers."""
    return _between("moderate", SMALL, c)


def _between(name: str, least: float, c: Any) -> Fact | Held:
    """The size of the number ``c`` is ``least`` at least, and 1 / ``least`` at most."""
    most = 1 / least
    text = f"(>= (abs {{0}}) {least}) (<= (abs {{0}}) {most})"
    return _condition(
        name, "number", text, lambda v: least <= abs(v) <= most, _unbendable, c
    )


def not_half(x: Any) -> Fact | Held:
    """``x`` is not float16, whose numbers end at 65504."""
    return _condition(
        "not float16",
        "array",
        f"(!= {dtype_code(HALF)} (dtype {{0}}))",
        lambda v: np.asarray(v).dtype != HALF,
        _unbendable,
        x,
    )


def at_most(c: Any, limit: float) -> Fact | Held:
    """The number ``c`` is at most ``limit``."""
    whole = int(limit) if float(limit).is_integer() else limit
    return _compared(f"at most {limit:g}", "<=", c, whole)


def at_least(x: Any, limit: float) -> Fact | Held:
    """Every element of ``x`` is known to be at least ``limit`` (or NaN)."""

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray):
            least = limit if v.dtype.kind not in "biu" else math.ceil(limit)
            v[...] = np.maximum(np.abs(v), least)

    return _condition(
        f"at least {limit:g}",
        "array",
        f"(>= (lower {{0}}) {float(limit)!r})",
        lambda v: bool(np.all(~(np.asarray(v) < limit))),
        mend,
        x,
    )


def equal(a: Any, b: Any) -> Fact | Held:
    """``a`` and ``b``, two sizes or numbers, are equal."""
    return _compared("equal", "==", a, b)


def length(values: Any, n: int) -> Fact | Held:
    """The attribute ``values`` has ``n`` entries."""
    return _condition(
        f"length {n}",
        "ints",
        f"(= {n} (vec-length {{0}}))",
        lambda v: len(v) == n,
        _unbendable,
        values,
    )


def not_scalar(x: Any) -> Fact | Held:
    """``x`` has at least one axis. Keeps rules from turning numbers round for
    nothing."""
    return _condition("not scalar", "array", "(d1 {0})", lambda v: True, _unbendable, x)


def same_shape(x: Any, shape: Any) -> Fact | Held:
    """``x`` has the shape ``shape``."""
    return _condition(
        "same shape",
        "array ints",
        "(= (type {0}) (vec-append (vec-of (vec-get (type {0}) 0)) {1}))",
        lambda v, s: np.shape(v) == tuple(s),
        _unbendable,
        x,
        shape,
    )


def constant(x: Any) -> Fact | Held:
    """``x`` is known when the program is compiled. A matter of profit that arrays
    cannot show."""
    return _of_elements("constant", "constant", lambda v: True, _unbendable, x)


def before(a: Any, b: Any) -> Fact | Held:
    """Leaf ``a`` comes before leaf ``b``: breaks the symmetry of rules over several
    products."""
    return _condition(
        "before",
        "array array",
        "(< (order {0}) (order {1}))",
        lambda u, v: True,
        _unbendable,
        a,
        b,
    )


def domain(condition: Any) -> Any:
    """Arrays are drawn where ``condition`` holds, but it guards nothing: a rule is used
    wherever its left side has a value, and there it must be true.

    ``domain(regular(a))`` suits a rule whose left side inverts ``a``.
    """
    if isinstance(condition, Fact):
        return replace(
            condition, text="", truth="", reads_constants=False, is_domain=True
        )
    if isinstance(condition, Held):
        return condition
    raise RuleError(f"domain({condition!r}): expected a condition")


def regular(a: Any) -> Fact | Held:
    """The known matrices ``a`` (... n n) are far from singular: no condition number is
    above 1000."""

    def mend(v: Any) -> None:
        _dominant(v, lambda diagonal, size: np.where(diagonal < 0, -size, size))

    return _of_elements("regular", "regular", is_regular, mend, a)


def is_regular(v: Any) -> bool:
    """Whether matrices are square, far from singular, and of moderate size."""
    v = np.asarray(v, float)
    if not _is_moderate(v):
        return False
    return not v.size or bool(np.all(np.linalg.cond(v) < MOST_CONDITION))


def positive_definite(a: Any) -> Fact | Held:
    """The known matrices ``a`` (... n n) are symmetric and positive definite, and far
    from singular."""

    def mend(v: Any) -> None:
        _mirror(v)
        _dominant(v, lambda diagonal, size: size)

    return _of_elements("positive definite", "positive-definite", _is_definite, mend, a)


def _is_definite(v: Any) -> bool:
    v = np.asarray(v, float)
    if not _is_moderate(v) or not np.array_equal(v, v.mT):
        return False
    ends = np.linalg.eigvalsh(v) if v.size else np.ones((1, 1))
    return bool(np.all(ends[..., 0] * MOST_CONDITION > ends[..., -1]))


MOST_CONDITION = 1e3
"""Of matrices that count as far from singular."""


def _is_square(v: Any) -> bool:
    return bool(v.ndim >= 2 and v.shape[-1] == v.shape[-2])


def _is_moderate(v: Any) -> bool:
    """Whether the matrices are square and the largest number of each is neither tiny
    nor huge."""
    if not _is_square(v) or not v.size or not np.all(np.isfinite(v)):
        return _is_square(v) and not v.size
    largest = np.abs(v).max((-2, -1))
    return bool(np.all((largest >= 1e-3) & (largest <= 1e4)))


def _dominant(v: Any, chosen: Callable[[Any, Any], Any]) -> None:
    """Make the diagonal of matrices larger than the rest of a row together: what
    ``chosen`` gives of it and of that size."""
    if not isinstance(v, np.ndarray) or not _is_square(v) or not v.size:
        return
    v[~np.isfinite(v) | (np.abs(v) > 1e2)] = 1
    n = v.shape[-1]
    largest = np.maximum(np.abs(v).max((-2, -1), keepdims=True)[..., 0], 1e-3)
    diagonal = v.reshape(*v.shape[:-2], n * n)[..., :: n + 1]
    diagonal[...] = chosen(diagonal, 2 * n * largest)


def causal(mask: Any) -> Fact | Held:
    """``mask`` (… m n, bool) is true exactly where column ≤ row + n - m."""

    def is_causal(v: Any) -> bool:
        v = np.asarray(v)
        return v.ndim >= 2 and bool(np.all(v == causal_mask(v.shape[-2], v.shape[-1])))

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray) and v.ndim >= 2:
            v[...] = causal_mask(v.shape[-2], v.shape[-1])

    return _of_elements("causal", "causal", is_causal, mend, mask)


def causal_bias(mask: Any) -> Fact | Held:
    """``mask`` (… m n) is 0 where column ≤ row + n - m and -inf elsewhere."""

    def wanted(v: Any) -> Any:
        return np.where(causal_mask(v.shape[-2], v.shape[-1]), 0.0, -np.inf)

    def is_causal(v: Any) -> bool:
        if np.ndim(v) < 2 or np.size(v) == 0 or np.any(v[..., -1, :] != 0):
            return False  # the last query sees all: most weights are told by one row
        return bool(np.all(v == wanted(v)))

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray) and v.ndim >= 2:
            v[...] = wanted(v)

    return _of_elements("causal bias", "causal-bias", is_causal, mend, mask)


def hides_future(mask: Any) -> Fact | Held:
    """``mask`` (… m n, bool) is true exactly where column > row + n - m."""

    def hides(v: Any) -> bool:
        v = np.asarray(v)
        return v.ndim >= 2 and bool(np.all(v != causal_mask(v.shape[-2], v.shape[-1])))

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray) and v.ndim >= 2:
            v[...] = ~causal_mask(v.shape[-2], v.shape[-1])

    return _of_elements("hides the future", "hides-future", hides, mend, mask)


def causal_mask(m: int, n: int) -> np.ndarray[Any, Any]:
    """Which of ``n`` keys each of ``m`` queries may see, the last query seeing all."""
    return np.tri(m, n, n - m, dtype=bool)


Array = np.ndarray[Any, Any]
LEAF_FACTS: dict[str, Callable[[Array], bool]] = {
    "causal": lambda v: v.dtype == bool and bool(causal(v)),
    "hides-future": lambda v: v.dtype == bool and bool(hides_future(v)),
    "causal-bias": lambda v: v.dtype.kind == "f" and bool(causal_bias(v)),
    "nonzero": _is_nonzero,
    "positive": _is_positive,
    "symmetric": _is_symmetric,
    "orthonormal": lambda v: _is_small(v) and _is_orthonormal(v),
    "positive-definite": lambda v: _is_small(v) and _is_definite(v),
    "regular": lambda v: _is_small(v) and is_regular(v),
}
"""Relations of the e-graph that are read off the values of constant arrays, where a
rule asks for them."""
OF_MASKS = frozenset(("causal", "hides-future", "causal-bias"))
"""Those that the stock rules ask."""
FACT_LIMIT = 1 << 22
"""Constant arrays of more elements than this are not searched for structure."""
FACT_TERMS = 64
"""Nor are those that take more terms than this to compute."""
COMPUTED_LIMIT = 1 << 16
"""Nor are computed arrays of more elements, but for those that masks make: weights of
convolutions by scales of a norm are no mask (0.07 s of 0.5 of a ResNet-50)."""
MOST_ROWS = 512
"""Of matrices that are factored to know a fact of them."""


def _is_small(v: Array) -> bool:
    return v.ndim >= 2 and max(v.shape[-2:]) <= MOST_ROWS and v.size <= MOST_ROWS**2


def facts_of(t: Term, asked: Collection[str]) -> tuple[str, ...]:
    """Which of the ``asked`` relations of :data:`LEAF_FACTS` the value of a constant
    satisfies."""
    if not asked or t.size > FACT_LIMIT:
        return ()
    array = _value(t)
    if array is None:
        return ()
    with np.errstate(all="ignore"):  # of arrays with infinities, say
        return tuple(
            name for name in LEAF_FACTS if name in asked and LEAF_FACTS[name](array)
        )


def _value(t: Term) -> Array | None:
    """The value of a constant that takes no more than some views and pointwise work,
    or None."""
    below = list(islice(postorder([t]), FACT_TERMS + 1))
    if len(below) > FACT_TERMS or not all(map(_is_light, below)):
        return None
    if t.size > COMPUTED_LIMIT and len(below) > 1:
        if all(u.dtype != np.dtype(bool) for u in below):
            return None
    values: dict[Term, Any] = {}
    with np.errstate(all="ignore"):
        for u in below:
            if u.op is CONSTANT:
                values[u] = u.graph.arrays[u.attrs[0]]  # type: ignore[index]
            elif u.op is SCALAR:
                values[u] = u.attrs[0]
            else:
                op = cast(Op, u.op)
                args = [values[a] for a in u.args]
                values[u] = op.reference(*args, **op.attr_dict(u))
    return np.asarray(values[t])


def _is_light(t: Term) -> bool:
    op = cast(Op, t.op)
    return op in (CONSTANT, SCALAR) or (
        op.kind in ("view", "pointwise") and bool(t.args) and t.size <= FACT_LIMIT
    )


def as_facts(conditions: Any, who: str) -> list[Fact]:
    """The result of a ``where`` function called on patterns, as a list."""
    listed = conditions if isinstance(conditions, (tuple, list)) else (conditions,)
    for c in listed:
        if isinstance(c, bool):
            how = "always holds: leave it out" if c else "never holds"
            raise RuleError(f"{who}: a condition of where= {how} ({c})")
        if not isinstance(c, Fact):
            raise RuleError(
                f"{who}: where= must return conditions of eqsat.condition or "
                f"comparisons of sizes and numbers, got {c!r}"
            )
    return [*listed]


__all__ = [
    "Fact",
    "Held",
    "at_least",
    "at_most",
    "before",
    "causal",
    "causal_bias",
    "constant",
    "domain",
    "equal",
    "hides_future",
    "length",
    "moderate",
    "nonzero",
    "normal",
    "not_half",
    "not_scalar",
    "orthonormal",
    "positive",
    "positive_definite",
    "regular",
    "same_shape",
    "symmetric",
]
