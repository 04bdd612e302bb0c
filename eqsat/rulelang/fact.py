"""Facts: what a condition of a rule says to the e-graph, and how arrays are tested.

``where=`` is called with values that answer a comparison by a fact:
:class:`AskedNumber` for sizes, numbers and entries of attributes, and arrays whose
shape is made of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from eqsat.rulelang.expression import COMPARISONS, Expr, entry
from eqsat.support import RuleError
from eqsat.terms import AttrVar

Subject = Any
"""What a fact speaks of: a pattern, an expression or a number."""


def _unbendable(*values: Any) -> None:
    """Nothing to bend: the caller draws again."""


@dataclass(frozen=True)
class Fact:
    """A condition on patterns; ``text`` has ``{0}``, ``{1}`` … for the e-graph's
    variables."""

    text: str
    """Empty for what guards nothing."""
    subjects: tuple[Subject, ...]
    name: str
    truth: str = ""
    """The same as a bool of the engine; empty where it can only be asked to hold."""
    test: Callable[..., bool] = field(default=bool, compare=False, repr=False)
    """Of the arrays and numbers that the subjects stand for."""
    mend: Callable[..., None] = field(default=_unbendable, compare=False, repr=False)
    """Bends these arrays so that the test holds, where it can."""
    reads_constants: bool = False
    """Whether only arrays that are known at compile time can meet it."""
    is_domain: bool = False
    """Whether arrays are drawn by it, and it guards nothing."""

    def __str__(self) -> str:
        return self.name

    def __and__(self, other: Any) -> Fact:
        return self._joined("and", other)

    def __or__(self, other: Any) -> Fact:
        return self._joined("or", other)

    def _joined(self, word: str, other: Any) -> Fact:
        if not isinstance(other, Fact):
            raise RuleError(f"{self.name} {word} {other!r}: expected a condition")
        moved = _renumbered(other, len(self.subjects))
        truth = ""
        if self.truth and other.truth:
            truth = f"({word} {self.truth} {moved.truth})"
        elif word == "or":
            refuse_words(self if other.truth else other, "|")
        joined: Callable[[Any], bool] = all if word == "and" else any
        n = len(self.subjects)

        def test(*values: Any) -> bool:
            return joined((self.test(*values[:n]), other.test(*values[n:])))

        def mend(*values: Any) -> None:
            self.mend(*values[:n])
            other.mend(*values[n:])

        return Fact(
            f"{self.text} {moved.text}" if word == "and" else f"(guard {truth})",
            (*self.subjects, *other.subjects),
            f"{self.name} {word} {other.name}",
            truth,
            test,
            mend,
            self.reads_constants or other.reads_constants,
            self.is_domain and other.is_domain,
        )

    def __invert__(self) -> Fact:
        if not self.truth:
            refuse_words(self, "~")
        truth = f"(not {self.truth})"
        return replace(
            self,
            text=_opposite(self.text) or f"(guard {truth})",
            truth=truth,
            name=f"not {self.name}",
            test=lambda *values: not self.test(*values),
            mend=_unbendable,
        )

    def __bool__(self) -> NoReturn:
        raise RuleError(
            f"the condition {self.name!r} is not known when the rule is built: write & "
            f"for `and`, | for `or`, ~ for `not`, and (a < b) & (b < c) for a < b < c"
        )


def refuse_words(fact: Fact, word: str) -> NoReturn:
    """Raise :class:`RuleError` for a condition of which only the truth can be asked."""
    raise RuleError(
        f"the condition {fact.name!r} cannot stand under {word}, which is for "
        f"conditions on sizes and attributes; write a rule for each case"
    )


def _renumbered(fact: Fact, by: int) -> Fact:
    """``fact`` with places that begin at ``by``."""

    def moved(text: str) -> str:
        return re.sub(r"\{(\d+)\}", lambda m: f"{{{int(m[1]) + by}}}", text)

    return replace(fact, text=moved(fact.text), truth=moved(fact.truth))


@dataclass(frozen=True)
class Held:
    """A condition on arrays: whether it holds, and how to bend the arrays so that it
    does."""

    holds: bool
    mend: Callable[[], None]
    name: str

    def __bool__(self) -> bool:
        return self.holds


# -- comparisons -----------------------------------------------------------------------

_OPPOSITES = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _opposite(text: str) -> str:
    """The comparison that holds where another one does not; empty for other texts."""
    found = re.fullmatch(r"\((\S+) \{0\} \{1\}\)", text)
    return f"({_OPPOSITES[found[1]]} {{0}} {{1}})" if found else ""


def compared(symbol: str, a: Any, b: Any) -> Fact:
    """The condition ``a symbol b`` of sizes, numbers, or whole attributes."""
    head, test = symbol.replace("==", "="), COMPARISONS[symbol]
    subjects = [expression_of(x) for x in (a, b)]
    kinds = [getattr(s, "kind", type(s).__name__) for s in subjects]
    name = f"{subjects[0]} {symbol} {subjects[1]}"
    if not {*kinds} <= {"int", "float"}:
        raise RuleError(
            f"the condition {name!r}: expected sizes and numbers; entries of an "
            f"attribute are p[0], p[1] …"
        )
    whole = "float" not in kinds
    truth = ""
    if whole:
        truth = f"(bool-{head.lstrip('!')} {{0}} {{1}})"
        truth = f"(not {truth})" if head == "!=" else truth
    return Fact(f"({head} {{0}} {{1}})", tuple(subjects), name, truth, test)


@dataclass(frozen=True, eq=False)
class AskedNumber(AttrVar):
    """A size, a number or an attribute in ``where=``, whose comparisons are facts."""

    expr: Expr

    def _join(self, symbol: str, a: Any, b: Any) -> Any:
        found = Expr._join(self.expr, symbol, expression_of(a), expression_of(b))
        return AskedNumber(found) if isinstance(found, Expr) else found

    def __getitem__(self, i: int) -> AskedNumber:
        if self.expr.kind != "ints":
            raise RuleError(f"{self.expr} is one number, it has no entry {i}")
        if type(i) is not int or i < 0:
            raise RuleError(
                f"{self.expr}[{i!r}]: the entries of the attribute {self.expr} are "
                f"{self.expr}[0], {self.expr}[1] …, counted from its first"
            )
        return AskedNumber(entry(self.expr, i))

    def __iter__(self) -> NoReturn:
        raise RuleError(f"{self.expr}: write {self.expr}[0] and its like")

    def __bool__(self) -> NoReturn:
        raise RuleError(f"{self.expr} is a number: compare it, as in {self.expr} != 0")

    def __str__(self) -> str:
        return str(self.expr)

    __hash__ = None  # type: ignore[assignment]


def _arithmetic(symbol: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: AskedNumber, other: Any) -> Any:
        return self._join(symbol, self, other)

    def reflected(self: AskedNumber, other: Any) -> Any:
        return self._join(symbol, other, self)

    return forward, reflected


for _word, _symbol in (
    *(("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/")),
    *(("floordiv", "//"), ("mod", "%")),
):
    _forward, _reflected = _arithmetic(_symbol)
    setattr(AskedNumber, f"__{_word}__", _forward)
    setattr(AskedNumber, f"__r{_word}__", _reflected)
for _word, _symbol in zip("eq ne lt le gt ge".split(), COMPARISONS, strict=True):
    setattr(
        AskedNumber,
        f"__{_word}__",
        lambda self, other, _symbol=_symbol: compared(_symbol, self, other),
    )


def expression_of(value: Any) -> Any:
    """What stands behind a value that is asked of."""
    return value.expr if isinstance(value, AskedNumber) else value


def asked(value: Any) -> Any:
    """``value``, a size or a parameter, as ``where=`` gets it."""
    return AskedNumber(value) if isinstance(value, Expr) else value
