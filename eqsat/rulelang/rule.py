"""Rules: one function that is the rewrite and its test.

    @rule("m k, k n, n")
    def bias_gelu(x, w, b):
        "gelu(x w + b) is one kernel."
        return gelu(x @ w + b), linear(x, w, b, act="gelu")

Called with pattern values the function gives the two sides of a rewrite; called with
arrays it gives two results that must agree. Parameters annotated ``float``, ``int``,
``Ints`` or ``Axis`` are numbers and attributes, not arrays, and have no place in the
signature.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple, cast

import numpy as np

from eqsat.rulelang.broken import built, failure
from eqsat.rulelang.condition import as_facts
from eqsat.rulelang.expression import Expr, granted
from eqsat.rulelang.fact import AskedNumber, Fact, asked, compared
from eqsat.rulelang.match_binding import gap, used
from eqsat.rulelang.pattern import (
    Pattern,
    PatternNode,
    PatternVar,
    exprs,
    nodes,
    show,
)
from eqsat.rulelang.pattern_value import (
    AskedArray,
    PatternValue,
    as_pattern,
    with_lengths,
)
from eqsat.rulelang.rule_sides import held
from eqsat.support import (
    NUMERICS,
    EqsatError,
    RuleError,
    cached_property,
    caller_line,
    counted,
)
from eqsat.terms import Signature, annotation_name, parse

PHASES = ("canonicalise", "recognise", "algebra", "user", "fuse", "merge")
"""When a rule runs; a file sets it for its rules with ``PHASE = "algebra"``. Default:
``user``."""

DTYPES = ("float", "any", "float16", "bfloat16", "float32", "float64")
"""What the arrays of a rule may hold: any floating dtype, any at all, or this one."""

NUMBER_KINDS = {"float": "float", "int": "int", "Ints": "ints", "Axis": "ints"}
"""Annotations of parameters that are numbers or attributes, to their kinds."""


class RulePatterns(NamedTuple):
    """A rule as patterns."""

    left: tuple[Pattern, ...]
    right: tuple[Pattern, ...]
    facts: tuple[Fact, ...]


@dataclass(eq=False)
class Rule:
    """A rewrite that is also its own test. Made by :func:`rule`."""

    name: str
    function: Callable[..., Any]
    """Arguments to the pair (left side, right side); each side one value or a tuple of
    values."""
    signature: Signature
    params: tuple[str, ...]
    """All parameters in order."""
    numbers: dict[str, str]
    """Parameters that are numbers or attributes, with their kinds."""
    where: Callable[..., Any] | None
    numerics: str
    phase: str
    dtypes: str
    masks: frozenset[str]
    file: str
    line: int
    infers: bool = False
    """Whether the check of rules finds out its numerics class."""
    hint: frozenset[str] = frozenset()
    """Ops that its left side is known to have before it is built."""
    both_ways: bool = False
    """Whether it also rewrites from right to left."""
    column: int = 0
    """Where it starts in its line, from 1; 0 when only the line is known."""
    backwards: bool = False
    """Whether this is the :attr:`reverse` of a rule."""
    spelling: str = ""
    """Which of several spellings of its left side this is; empty for the first."""

    def __post_init__(self) -> None:
        if self.where is not None:
            self.where = Where(getattr(self.where, "function", self.where), self)

    @cached_property
    def sides(self) -> RulePatterns:
        """Both sides and the conditions as patterns. Raises :class:`RuleError` when ill
        formed."""
        return _build(self)

    @property
    def left(self) -> tuple[Pattern, ...]:
        return self.sides.left

    @property
    def right(self) -> tuple[Pattern, ...]:
        return self.sides.right

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.sides.facts

    @property
    def doc(self) -> str:
        """The formula, as its docstring gives it."""
        return inspect.getdoc(self.function) or ""

    @property
    def place(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place}:{self.column}" if self.column else place

    @property
    def tensors(self) -> tuple[str, ...]:
        """Parameters that are arrays, in the order of the signature."""
        return tuple(p for p in self.params if p not in self.numbers)

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The one dtype that its arrays have; None where they may have several."""
        return None if self.dtypes in ("float", "any") else np.dtype(self.dtypes)

    @cached_property
    def one_dtype(self) -> bool:
        """Whether all its arrays must have one dtype, those of any rank too.

        A side that lacks an array of the other side would else have another dtype; of
        an exact rule a step would round, of integers it would wrap, elsewhere.
        """
        if self.numerics == "exact" or self.dtypes == "any":
            return True
        held = [
            {p for root in side for p in nodes(root) if isinstance(p, PatternVar)}
            for side in self.sides[:2]
        ]
        return held[0] != held[1]

    @property
    def is_fusion(self) -> bool:
        """Whether it runs in the phase ``fuse``: it adds one node to a saturated
        e-graph."""
        return self.phase == "fuse"

    @property
    def directions(self) -> tuple[Rule, ...]:
        """The rewrites that this rule is: itself and, both ways, its reverse."""
        return (self, self.reverse) if self.both_ways else (self,)

    @cached_property
    def reverse(self) -> Rule:
        """The rewrite from right to left, of the same name."""

        @functools.wraps(self.function)
        def exchanged(*args: Any) -> Any:
            left, right = self.function(*args)
            return right, left

        return replace(
            self,
            function=exchanged,
            hint=frozenset(),
            both_ways=False,
            backwards=not self.backwards,
        )

    @property
    def label(self) -> str:
        """The name of this one rewrite; that of a reverse differs from the rule's."""
        way = " (backwards)" if self.backwards else ""
        return f"{self.name}{way}{self.spelling}"

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __repr__(self) -> str:
        return f"<rule {self.name} at {self.place}>"

    def __str__(self) -> str:
        left, right = (" , ".join(map(show, side)) for side in self.sides[:2])
        return f"{left}  {'↔' if self.both_ways else '→'}  {right}"

    def ops(self, side: tuple[Pattern, ...]) -> frozenset[str]:
        """Names of the ops in ``side``; bare numbers count as ``scalar``."""
        return _op_names(side)


@functools.lru_cache(maxsize=4096)
def _op_names(side: tuple[Pattern, ...]) -> frozenset[str]:
    parts = (p for root in side for p in nodes(root))
    return frozenset(p.op.name for p in parts if isinstance(p, PatternNode))


@dataclass(frozen=True)
class Where:
    """The conditions of a rule. Called as their function is: for patterns it gives
    facts, for arrays whether these hold (:func:`held`)."""

    function: Callable[..., Any]
    rule: Rule

    def __call__(self, *values: Any) -> Any:
        if any(isinstance(v, (PatternValue, AskedNumber)) for v in values):
            return with_lengths(self.function)(*values)
        return held(self.rule, values)


def rule(
    signature: str,
    *,
    where: Callable[..., Any] | None = None,
    numerics: str | None = "reassociate",
    phase: str | None = None,
    dtypes: str = "float",
    name: str | None = None,
    both_ways: bool = False,
) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of a function that returns ``(left, right)``.

    ``signature``: the axes of the array parameters. A named axis is one size wherever
    it appears; the axes of ``...`` broadcast. ``where``: a function of the same
    parameters that returns conditions (:mod:`eqsat.condition`). ``numerics``:
    ``exact``, ``reassociate``, ``approximate(tol)`` or ``fast``; None lets the check of
    rules infer one of the first two, and the rule counts as ``reassociate``.
    ``phase``: when the rule runs, by default ``user`` or the ``PHASE`` of its file.
    ``dtypes``: ``float``, ``any``, or one floating dtype. ``name``: that of the
    function by default.
    ``both_ways``: it rewrites the right side to the left one too, which takes sides
    that bind the same parameters. Raises :class:`RuleError` with file and line when
    the rule is not well formed.
    """

    if not isinstance(signature, str):
        raise RuleError(
            f'{caller_line()}: a rule needs the axes of its arrays: @rule("m k, k n")'
        )

    options = {
        "where": where,
        "numerics": numerics,
        "phase": phase,
        "dtypes": dtypes,
        "name": name,
        "both_ways": both_ways,
    }

    def defined(function: Callable[..., Any], called: str) -> Rule:
        code = function.__code__
        _check_options(
            f"{code.co_filename}:{code.co_firstlineno}: rule {called!r}", options
        )
        made = Rule(
            name=called,
            function=function,
            signature=parse(signature),
            params=code.co_varnames[: code.co_argcount],
            numbers=_numbers(function),
            where=where,
            numerics="reassociate" if numerics is None else numerics,
            infers=numerics is None,
            phase=function.__globals__.get("PHASE", "user") if phase is None else phase,
            dtypes=dtypes,
            masks=frozenset(p for p, a in annotated(function).items() if a == "bool"),
            file=code.co_filename,
            line=code.co_firstlineno,
            both_ways=both_ways,
        )
        made.sides  # noqa: B018  (builds it, so that what is wrong is said here)
        return made

    def define(function: Callable[..., Any]) -> Rule:
        if not inspect.isfunction(function):
            raise RuleError(
                f"{caller_line()}: a rule is made of a function, got "
                f"{type(function).__name__!r}"
            )
        code = function.__code__
        place = code.co_filename, code.co_firstlineno
        called = name if name and isinstance(name, str) else function.__name__
        made = built(lambda: defined(function, called), called, *place)
        listed = _MADE.get()
        if listed is not None and isinstance(made, Rule):
            listed.append((_module(), made))
        return cast(Rule, made)  # or what stands for it in a file that goes on

    return define


_MADE: ContextVar[list[tuple[str, Rule]] | None] = ContextVar("_MADE", default=None)


@contextmanager
def listing_rules() -> Iterator[list[tuple[str, Rule]]]:
    """Lists the rules that are made within this block, each with the name of the module
    whose top level made it."""
    found: list[tuple[str, Rule]] = []
    token = _MADE.set(found)
    try:
        yield found
    finally:
        _MADE.reset(token)


def _module() -> str:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals["__name__"]) if frame is not None else ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "where": (callable, "a function that returns conditions"),
    "numerics": (_is_text, f"one of {', '.join(NUMERICS)}"),
    "phase": (_is_text, f"one of {', '.join(PHASES)}"),
    "dtypes": (_is_text, f"one of {', '.join(DTYPES)}"),
    "name": (_is_text, "a text that is not empty"),
    "both_ways": (lambda value: isinstance(value, bool), "True or False"),
}
"""What each option of a rule takes, and how that is called."""
_MAY_BE_NONE = ("where", "numerics", "phase", "name")


def _check_options(who: str, given: dict[str, Any]) -> None:
    for option, value in given.items():
        fits, expected = _OPTIONS[option]
        if not (fits(value) or (value is None and option in _MAY_BE_NONE)):
            raise RuleError(f"{who}: {option}={value!r}, expected {expected}")


def tolerance(numerics: str) -> float:
    """The tolerance of a numerics class, 0 for those without one. Raises
    :class:`RuleError` for what is no class."""
    found = re.fullmatch(r"approximate(?:\((.*)\))?", numerics)
    if found is None:
        if numerics not in NUMERICS:
            raise RuleError(
                f"numerics={numerics!r}, expected one of {', '.join(NUMERICS)}"
            )
        return 0.0
    try:
        tol = float(found[1] or "nan")
    except ValueError:
        tol = math.nan
    if not 0 < tol < math.inf:
        raise RuleError(
            f"numerics={numerics!r}: expected a tolerance above 0, such as "
            f"approximate(1e-6)"
        )
    return tol


def annotated(function: Callable[..., Any]) -> dict[str, str]:
    return {p: annotation_name(a) for p, a in function.__annotations__.items()}


def _numbers(function: Callable[..., Any]) -> dict[str, str]:
    known = annotated(function)
    return {p: NUMBER_KINDS[a] for p, a in known.items() if a in NUMBER_KINDS}


def _build(r: Rule) -> RulePatterns:
    who = f"{r.place}: rule {r.name!r}"
    try:
        tolerance(r.numerics)
    except RuleError as error:
        raise RuleError(f"{who}: {error}") from None
    if r.phase not in PHASES:
        raise RuleError(
            f"{who}: phase={r.phase!r}, expected one of {', '.join(PHASES)}"
        )
    if r.dtypes not in DTYPES:
        raise RuleError(
            f"{who}: dtypes={r.dtypes!r}, expected one of {', '.join(DTYPES)}"
        )
    for axes in r.signature.inputs:
        if axes.variadic and axes.before:
            raise RuleError(
                f"{who}: axes {axes}: a rule names axes after '...', not before it"
            )
    if len(r.tensors) != len(r.signature.inputs):
        raise RuleError(
            f"{who}: signature {r.signature.text!r} has "
            f"{counted(len(r.signature.inputs), 'argument')}, the function has "
            f"{len(r.tensors)} ({', '.join(r.tensors)})"
        )
    values = pattern_values(r)
    with granted() as taken:
        sides = _called(r.function, values, who)
    if not isinstance(sides, tuple) or len(sides) != 2:
        raise RuleError(
            f"{who}: must return (left, right), returned {type(sides).__name__!r}"
        )
    left, right = (_side(s, who) for s in sides)
    if len(left) != len(right):
        given = counted(len(right), "right side")
        raise RuleError(f"{who}: {counted(len(left), 'left side')}, {given}")
    for root in left:
        if not isinstance(root, PatternNode):
            raise RuleError(
                f"{who}: the left side is {show(root)}, expected an operation"
            )
    facts = [compared(*comparison) for comparison in taken]
    if r.where:
        subjects = [
            AskedArray(v.pattern) if isinstance(v, PatternValue) else asked(v)
            for v in values
        ]
        facts += as_facts(_called(r.where, subjects, who), who)
    made = RulePatterns(left, right, tuple(facts))
    _check_bound(r, made, who)
    if r.is_fusion:
        _check_fusion(r, made, who)
    if r.both_ways:
        _check_reverse(r, made, who)
    return made


def _called(function: Callable[..., Any], values: list[Any], who: str) -> Any:
    try:
        return with_lengths(function)(*values)
    except RuleError as error:
        raise RuleError(f"{who}: {error}") from None
    except EqsatError as error:
        raise RuleError(f"{who}: {str(error).splitlines()[0]}") from error
    except Exception as error:  # a user's function may raise anything
        raise RuleError(f"{who}: {failure(error)}") from error


def pattern_values(r: Rule) -> list[Any]:
    """What the rule's function is called with to build its sides."""
    axes = iter(r.signature.inputs)
    values: list[Any] = []
    for p in r.params:
        if p in r.numbers:
            values.append(Expr(p, (), r.numbers[p]))
        else:
            dtype = "bool" if p in r.masks else r.dtypes
            values.append(PatternValue(PatternVar(p, next(axes), dtype)))
    return values


def _side(side: Any, who: str) -> tuple[Pattern, ...]:
    try:
        return tuple(
            as_pattern(s)
            for s in (side if isinstance(side, (tuple, list)) else (side,))
        )
    except RuleError as error:
        raise RuleError(f"{who}: {error}") from None


def _check_fusion(r: Rule, made: RulePatterns, who: str) -> None:
    """Fusions are matched outside the engine, so they are of one simple form."""
    root, *more = made.right
    plain = isinstance(root, PatternNode) and not any(
        isinstance(a, PatternNode) for a in root.args
    )
    if more or made.facts or not plain:
        raise RuleError(
            f"{who}: a rule of the phase fuse has one left side, no conditions, and on "
            f"the right one op over variables and numbers"
        )
    for e in (e for side in (*made.left, root) for e in exprs(side)):
        if e.args or e.head not in r.numbers:
            raise RuleError(
                f"{who}: a rule of the phase fuse cannot use the number {e}, only "
                f"parameters that are numbers"
            )


def _check_bound(r: Rule, made: RulePatterns, who: str) -> None:
    why = gap(made.left, made.right, r.numbers)
    if why:
        raise RuleError(f"{who}: {why}{_both(made)}")
    bound = used(made.left)
    unused = [p for p in r.params if p not in bound]
    if unused:
        raise RuleError(f"{who}: parameter {unused[0]!r} is not used by the left side")


def _check_reverse(r: Rule, made: RulePatterns, who: str) -> None:
    """What a rule that applies both ways needs besides."""
    if r.phase in ("canonicalise", "fuse"):
        raise RuleError(
            f"{who}: a rule of the phase {r.phase} has one direction, it cannot "
            f"rewrite both ways"
        )
    for root in made.right:
        if not isinstance(root, PatternNode):
            raise RuleError(
                f"{who}: it rewrites both ways, but the right side is {show(root)}, "
                f"expected an operation"
            )
    why = gap(made.right, made.left, r.numbers, ("right", "left"))
    if why:
        raise RuleError(f"{who}: it rewrites both ways, but {why}{_both(made)}")


def _both(made: RulePatterns) -> str:
    left, right = (" , ".join(map(show, side)) for side in made[:2])
    return f"\n  left:  {left}\n  right: {right}"
