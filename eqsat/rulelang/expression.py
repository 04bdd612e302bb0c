"""Arithmetic over what a rule knows by name: sizes of axes, numbers, attributes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.support import RuleError, is_of_library
from eqsat.terms import AttrVar, Traced

Number = int | float


class Arithmetic(AttrVar):
    """The operators of an expression; ``_join`` makes the result of one."""

    __slots__ = ()
    kind: str

    def _join(self, op: str, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def __add__(self, o: Any) -> Any:
        return self._join("+", self, o)

    def __radd__(self, o: Any) -> Any:
        return self._join("+", o, self)

    def __sub__(self, o: Any) -> Any:
        return self._join("-", self, o)

    def __rsub__(self, o: Any) -> Any:
        return self._join("-", o, self)

    def __mul__(self, o: Any) -> Any:
        return self._join("*", self, o)

    def __rmul__(self, o: Any) -> Any:
        return self._join("*", o, self)

    def __truediv__(self, o: Any) -> Any:
        return self._join("/", self, o)

    def __rtruediv__(self, o: Any) -> Any:
        return self._join("/", o, self)

    def __floordiv__(self, o: Any) -> Any:
        return self._join("//", self, o)

    def __rfloordiv__(self, o: Any) -> Any:
        return self._join("//", o, self)

    def __mod__(self, o: Any) -> Any:
        return self._join("%", self, o)

    def __rmod__(self, o: Any) -> Any:
        return self._join("%", o, self)

    def __divmod__(self, o: Any) -> Any:
        return self // o, self % o

    def __neg__(self) -> Any:
        return self._join("-", -0.0 if self.kind == "float" else 0, self)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if any(isinstance(i, Traced) for i in inputs):
            return NotImplemented
        symbol = _SYMBOLS.get(ufunc)
        if symbol is None or method != "__call__" or kwargs:
            raise _no_number(f"np.{ufunc.__name__}", self)
        return self._join(symbol, *inputs)

    def __pow__(self, o: Any) -> Any:
        raise _no_number("**", self)

    def __rpow__(self, o: Any) -> Any:
        raise _no_number("**", self)

    def __abs__(self) -> Any:
        raise _no_number("abs", self)

    def __float__(self) -> Any:
        raise _no_number("float", self)


_SYMBOLS: dict[np.ufunc, str] = {
    **{np.add: "+", np.subtract: "-", np.multiply: "*"},
    **{np.true_divide: "/", np.floor_divide: "//", np.remainder: "%"},
}
"""The functions of NumPy that rules compute of numbers."""


def _branch(what: str) -> RuleError:
    return RuleError(
        f"{what} is not known when the rule is built; a rule cannot branch on it, but "
        f"where= can ask for it"
    )


def _no_number(what: str, value: Any) -> RuleError:
    return RuleError(
        f"{what} of {value}, a number that is not known when the rule is built: rules "
        "compute + - * / // and % of numbers\n  make it a parameter that is an array, "
        "or, where the signature names all axes, np.full_like(x, a)"
    )


@dataclass(frozen=True, repr=False, eq=False)
class Expr(Arithmetic):
    """Arithmetic over axis sizes and number parameters: ``name``, ``a*b``, ``1.0/n``.

    ``kind`` is ``int``, ``float``, ``ints`` (a whole tuple-valued attribute) or
    ``dtype`` (that of a variable). Equal sums and products of integers are written in
    one way, so that they are one expression.
    """

    head: str
    args: tuple[Expr | Number, ...] = ()
    kind: str = "int"

    def _join(self, op: str, a: Any, b: Any) -> Any:
        if isinstance(a, Traced) or isinstance(b, Traced):
            return NotImplemented
        kinds = {x.kind if isinstance(x, Expr) else type(x).__name__ for x in (a, b)}
        if "ints" in kinds:
            raise RuleError(
                f"{self}: a tuple parameter has no arithmetic; use a helper"
            )
        kind = "float" if "float" in kinds or op == "/" else "int"
        if kind == "int" and op in ("+", "-", "*"):
            return written(polynomial(Expr(op, (a, b))), named(a, b))
        if kind == "int" and op == "//" and b == 1:
            return a
        return Expr(op, (a, b), kind)

    def __eq__(self, other: Any) -> bool:
        """Whether it is the same expression; in the user's code, whether it is the same
        number. Raises :class:`RuleError` where that differs between arrays."""
        same = type(other) is Expr and self._key == other._key
        kind = other.kind if type(other) is Expr else type(other).__name__
        if same or (self.kind, kind) != ("int", "int"):
            return same
        if is_of_library(sys._getframe(1)):
            return same
        found = difference(self, other)
        if found is None:
            raise _branch(f"whether {self} equals {other}")
        return found == 0

    def __hash__(self) -> int:
        return hash(self._key)

    def __bool__(self) -> bool:
        if not is_of_library(sys._getframe(1)):
            raise _branch(f"whether {self} is 0")
        return True

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.head, self.args, self.kind

    def __lt__(self, o: Any) -> bool:
        return self._before(o) < 0

    def __le__(self, o: Any) -> bool:
        return self._before(o) <= 0

    def __gt__(self, o: Any) -> bool:
        return self._before(o) > 0

    def __ge__(self, o: Any) -> bool:
        return self._before(o) >= 0

    def _before(self, other: Any) -> int:
        """How much larger than ``other`` it is. Raises :class:`RuleError` where that
        differs between arrays."""
        found = difference(self, other)
        if found is None:
            raise _branch(f"whether {self} or {other} is larger")
        return found

    def __getitem__(self, i: int) -> Any:
        if self.kind != "ints":
            raise RuleError(f"{self} is one number, it has no entry {i}")
        return entry(self, i)

    def __iter__(self) -> Any:
        raise RuleError(f"how many entries {self} has is not known: write {self}[0]")

    def __index__(self) -> int:
        raise RuleError(
            f"the size {self} of a pattern is not known when the rule is built; an "
            f"array of one number is np.full_like(x, 0.0), or np.zeros(shape, like=x)"
        )

    @property
    def is_tuple(self) -> bool:
        """Whether it stands for several integers."""
        return self.kind == "ints"

    def quotient(self, whole: Any, part: Any) -> Any:
        """``whole`` / ``part``, of sizes that divide (:func:`quotient`)."""
        found = quotient(whole, part)
        if isinstance(found, Expr) and found.head == "//":
            grant("==", Expr("%", found.args), 0)
        return found

    def grant(self, symbol: str, a: Any, b: Any) -> None:
        """Take ``a symbol b`` for granted (:func:`grant`)."""
        grant(symbol, a, b)

    @property
    def names(self) -> frozenset[str]:
        """The variables in this expression."""
        if not self.args:
            return frozenset([self.head])
        return frozenset().union(*(a.names for a in self.args if isinstance(a, Expr)))

    def value(self, bound: Mapping[str, Any]) -> Any:
        """The number this stands for under ``bound``."""
        if not self.args:
            return bound[self.head]
        a, b = (x.value(bound) if isinstance(x, Expr) else x for x in self.args)
        return ARITHMETIC[self.head](a, b)

    def __str__(self) -> str:
        if not self.args:
            return self.head
        a, b = self.args
        return f"{a}[{b}]" if self.head == "entry" else f"({a} {self.head} {b})"

    __repr__ = __str__


ARITHMETIC: dict[str, Callable[[Any, Any], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "entry": lambda a, b: a[b],
}


# -- sizes -----------------------------------------------------------------------------

Polynomial = dict[tuple[str, ...], int]
"""Products of names to what they are multiplied by."""


def polynomial(e: Expr | int) -> Polynomial:
    """An integer as a sum of products; what is divided counts as a name."""
    if not isinstance(e, Expr):
        return {(): e} if e else {}
    if e.head not in ("+", "-", "*") or not e.args:
        return {(str(e),): 1}
    a, b = (polynomial(x) for x in e.args)  # type: ignore[arg-type]
    if e.head == "*":
        pairs = [(tuple(sorted(p + q)), a[p] * b[q]) for p in a for q in b]
    else:
        sign = 1 if e.head == "+" else -1
        pairs = [*a.items(), *((q, sign * k) for q, k in b.items())]
    found: Polynomial = {}
    for product, k in pairs:
        found[product] = found.get(product, 0) + k
    return {product: k for product, k in found.items() if k}


def difference(a: Expr | int, b: Expr | int) -> int | None:
    """a - b where it is one number for all sizes; else None."""
    if any(isinstance(x, float) or getattr(x, "kind", "int") != "int" for x in (a, b)):
        return None
    rest = polynomial(Expr("-", (a, b)))
    return rest.get((), 0) if set(rest) <= {()} else None


def written(sums: Polynomial, names: Mapping[str, Expr]) -> Any:
    """A polynomial as an integer or an expression, of which there is one for each."""
    order = sorted(sums, key=lambda p: (sums[p] < 0, -len(p), p))
    found: Any = 0
    for product in order:
        k = sums[product]
        part: Any = None
        for name in product:
            part = names[name] if part is None else Expr("*", (part, names[name]))
        part = abs(k) if part is None else part
        part = Expr("*", (part, abs(k))) if product and abs(k) != 1 else part
        if found == 0 and k > 0:
            found = part
        elif isinstance(found, int) and isinstance(part, int):
            found = found + part if k > 0 else found - part
        else:
            found = Expr("+" if k > 0 else "-", (found, part))
    return found


def quotient(whole: Any, part: Any) -> Any:
    """``whole`` / ``part`` without a division where ``part`` is a factor of it."""
    if isinstance(whole, int) and isinstance(part, int):
        return whole // part
    above, below = polynomial(whole), [*polynomial(part).items()]
    found: Polynomial = {}
    for product, k in above.items():
        left = list(product)
        for name in below[0][0] if len(below) == 1 else ("", ""):
            if name not in left:
                return Expr("//", (whole, part))
            left.remove(name)
        if k % below[0][1]:
            return Expr("//", (whole, part))
        found[tuple(left)] = k // below[0][1]
    return written(found, named(whole))


def named(*expressions: Any) -> dict[str, Expr]:
    """The parts of expressions that count as names in a polynomial."""
    found: dict[str, Expr] = {}
    for e in expressions:
        if isinstance(e, Expr):
            found |= {str(e): e, **named(*e.args)}
    return found


# -- what a pattern takes for granted --------------------------------------------------

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Comparison = tuple[str, Any, Any]
_GRANTED: ContextVar[dict[Comparison, None] | None] = ContextVar(
    "granted", default=None
)


@contextmanager
def granted() -> Iterator[dict[Comparison, None]]:
    """Collects what must hold of sizes so that what is built inside is defined."""
    found: dict[Comparison, None] = {}
    token = _GRANTED.set(found)
    try:
        yield found
    finally:
        _GRANTED.reset(token)


def grant(symbol: str, a: Any, b: Any) -> None:
    """Take ``a symbol b`` of sizes for granted: a rule is only used where it holds.

    Raises :class:`RuleError` where it never does.
    """
    apart = difference(a, b)
    found = _GRANTED.get()
    if apart is not None and not COMPARISONS[symbol](apart, 0):
        raise RuleError(f"it needs {a} {symbol} {b}, which never holds")
    if apart is None and found is not None:
        found[symbol, a, b] = None


# -- numbers ---------------------------------------------------------------------------


def solve(e: Expr, name: str, value: Expr) -> Expr | None:
    """What ``name`` is where ``e`` is ``value``: of ``1.0 / a`` = k, a = ``1.0 / k``.
    None unless ``e`` has ``name`` once, under + - * / alone."""
    if not e.args:
        return value if e.head == name else None
    a, b = e.args
    inside = [isinstance(x, Expr) and name in x.names for x in (a, b)]
    if inside == [True, False] and isinstance(a, Expr):
        opposite = {"+": "-", "-": "+", "*": "/", "/": "*"}.get(e.head)
        return solve(a, name, Expr(opposite, (value, b), "float")) if opposite else None
    if inside == [False, True] and isinstance(b, Expr):
        rest = {
            "+": ("-", (value, a)),
            "-": ("-", (a, value)),
            "*": ("/", (value, a)),
            "/": ("/", (a, value)),
        }.get(e.head)
        return solve(b, name, Expr(*rest, "float")) if rest else None
    return None


def entry(values: tuple[int, ...] | Expr, i: int) -> Any:
    """Entry ``i`` of a tuple-valued parameter, counted from the front."""
    return Expr("entry", (values, i)) if isinstance(values, Expr) else values[i]
