"""Conditions of rules: facts when the rule rewrites, tests when it runs on arrays.

A rule says ``where=lambda x, c: (nonzero(c), at_least(x, 0))``. Called with pattern
values each condition is a fact about the e-graph; called with arrays it is a bool, and
:meth:`Held.mend` bends a drawn array into the domain so that property tests reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from eqsat.rulelang.pattern import Expr, Pattern, as_pattern
from eqsat.support import RuleError
from eqsat.terms import Traced, dtype_code

HALF = np.dtype(np.float16)
SMALL = 2.0**-14
"""A divisor of at least this size has a reciprocal that is a normal float16."""
TINY = 1e-30
"""A divisor of at least this size has a reciprocal that is a normal float32."""


@dataclass(frozen=True)
class Fact:
    """A condition on patterns; ``text`` has ``{0}``, ``{1}`` … for the e-graph's
    variables."""

    text: str
    subjects: tuple[Pattern | Expr | int | float, ...]
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Held:
    """A condition on arrays: whether it holds, and how to bend the arrays so that it
    does."""

    holds: bool
    mend: Callable[[], None]
    name: str

    def __bool__(self) -> bool:
        return self.holds


def _subject(name: str, kind: str, value: Any) -> Pattern | Expr | int | float:
    """``value`` as what a fact says something of.

    ``kind``: ``array``, ``number``, ``size`` (an integer or a number) or ``ints``.
    """
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
) -> Fact | Held:
    """``kinds``: what each value is (:func:`_subject`), a word each."""
    if any(isinstance(v, (Expr, Traced)) for v in values):
        placed = zip(kinds.split(), values, strict=True)
        return Fact(text, tuple(_subject(name, k, v) for k, v in placed), name)
    return Held(bool(test(*values)), lambda: mend(*values), name)


def _unbendable(*values: Any) -> None:
    """Nothing to bend: the caller draws again."""


def nonzero(c: Any) -> Fact | Held:
    """The number ``c`` is not 0."""
    return _condition(
        "nonzero", "number", "(!= {0} 0.0)", lambda v: v != 0, _unbendable, c
    )


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
    return _condition(
        f"at most {limit:g}",
        "number",
        f"(<= {{0}} {float(limit)!r})",
        lambda v: v <= limit,
        _unbendable,
        c,
    )


def at_least(x: Any, limit: float) -> Fact | Held:
    """Every element of ``x`` is known to be at least ``limit`` (or NaN)."""

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray):
            np.maximum(np.abs(v), limit, out=v)

    return _condition(
        f"at least {limit:g}",
        "array",
        f"(>= (lower {{0}}) {float(limit)!r})",
        lambda v: bool(np.all(~(np.asarray(v) < limit))),
        mend,
        x,
    )


def equal(a: Any, b: Any) -> Fact | Held:
    """Two sizes or numbers are equal."""
    return _condition(
        "equal", "size size", "(= {0} {1})", lambda u, v: u == v, _unbendable, a, b
    )


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
    return _condition(
        "constant", "array", "(constant {0})", lambda v: True, _unbendable, x
    )


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


def regular(a: Any) -> Fact | Held:
    """The matrices ``a`` (... n n) are far from singular. A domain of numbers that the
    e-graph does not know: there a rule stands for all for which its left side has a
    value."""

    def is_regular(v: Any) -> bool:
        v = np.asarray(v, float)
        if not _is_moderate(v):
            return False
        return not v.size or bool(np.all(np.linalg.cond(v) < MOST_CONDITION))

    def mend(v: Any) -> None:
        _dominant(v, lambda diagonal, size: np.where(diagonal < 0, -size, size))

    return _condition("regular", "array", "(d1 {0})", is_regular, mend, a)


def positive_definite(a: Any) -> Fact | Held:
    """The matrices ``a`` (... n n) are symmetric and positive definite, and far from
    singular. A domain as that of :func:`regular`."""

    def is_definite(v: Any) -> bool:
        v = np.asarray(v, float)
        if not _is_moderate(v) or not np.array_equal(v, v.mT):
            return False
        ends = np.linalg.eigvalsh(v) if v.size else np.ones((1, 1))
        return bool(np.all(ends[..., 0] * MOST_CONDITION > ends[..., -1]))

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray) and _is_square(v):
            v[...] = np.tril(v) + np.tril(v, -1).mT
            _dominant(v, lambda diagonal, size: size)

    return _condition("positive definite", "array", "(d1 {0})", is_definite, mend, a)


MOST_CONDITION = 1e3
"""Of matrices that count as far from singular."""


def _is_square(v: Any) -> bool:
    return bool(v.ndim >= 2 and v.shape[-1] == v.shape[-2])


def _is_moderate(v: Any) -> bool:
    """Whether the matrices are square and the largest number of each is neither tiny
    nor huge."""
    if not _is_square(v) or not v.size:
        return _is_square(v)
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

    return _condition("causal", "array", "(causal {0})", is_causal, mend, mask)


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

    return _condition(
        "causal bias", "array", "(causal-bias {0})", is_causal, mend, mask
    )


def hides_future(mask: Any) -> Fact | Held:
    """``mask`` (… m n, bool) is true exactly where column > row + n - m."""

    def hides(v: Any) -> bool:
        v = np.asarray(v)
        return v.ndim >= 2 and bool(np.all(v != causal_mask(v.shape[-2], v.shape[-1])))

    def mend(v: Any) -> None:
        if isinstance(v, np.ndarray) and v.ndim >= 2:
            v[...] = ~causal_mask(v.shape[-2], v.shape[-1])

    return _condition(
        "hides the future", "array", "(hides-future {0})", hides, mend, mask
    )


def causal_mask(m: int, n: int) -> np.ndarray[Any, Any]:
    """Which of ``n`` keys each of ``m`` queries may see, the last query seeing all."""
    return np.tri(m, n, n - m, dtype=bool)


LEAF_FACTS: dict[str, Callable[[np.ndarray[Any, Any]], bool]] = {
    "causal": lambda v: v.dtype == bool and bool(causal(v)),
    "hides-future": lambda v: v.dtype == bool and bool(hides_future(v)),
    "causal-bias": lambda v: v.dtype.kind == "f" and bool(causal_bias(v)),
}
"""Relations of the e-graph that are read off the values of constant arrays."""


def as_facts(conditions: Any, who: str) -> list[Fact]:
    """The result of a ``where`` function called on patterns, as a list."""
    if conditions is None:
        return []
    listed = conditions if isinstance(conditions, (tuple, list)) else (conditions,)
    for c in listed:
        if not isinstance(c, Fact):
            raise RuleError(
                f"{who}: where= must return conditions of eqsat.condition, got {c!r}"
            )
    return list(listed)


__all__ = [
    "Fact",
    "Held",
    "at_least",
    "at_most",
    "before",
    "causal",
    "causal_bias",
    "constant",
    "equal",
    "hides_future",
    "length",
    "moderate",
    "nonzero",
    "normal",
    "not_half",
    "not_scalar",
    "positive_definite",
    "regular",
    "same_shape",
]
