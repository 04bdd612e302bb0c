"""The text of an ``.egg`` file: its rewrites as syntax trees with lines and columns.

egglog's own parser reads each form by itself, because it copies the text that it is
given into every node. The forms are found here, and with them what that parser lets
pass or dies of: options given twice, and brackets nested thousands deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eqsat.support import RuleError, bindings


class TextPlace(NamedTuple):
    """A place in a text; lines and columns count characters from 1."""

    line: int
    column: int


class Name(NamedTuple):
    """A variable, or a name of an axis."""

    text: str
    place: TextPlace


class Literal(NamedTuple):
    """A number, a text or a truth value; None for ``()``."""

    value: int | float | str | bool | None
    place: TextPlace


class EggCall(NamedTuple):
    """``(head args…)``."""

    head: str
    args: tuple[Syntax, ...]
    place: TextPlace


Syntax = Name | Literal | EggCall


class Rewrite(NamedTuple):
    """A ``(rewrite …)`` or a ``(birewrite …)``."""

    left: Syntax
    right: Syntax
    conditions: tuple[EggCall, ...]
    ruleset: str
    """Empty when none is given, as is ``name``."""
    name: str
    both_ways: bool
    doc: str
    place: TextPlace
    options: Mapping[str, TextPlace]
    """Where each option stands."""


class Ruleset(NamedTuple):
    """A ``(ruleset …)``."""

    ruleset: str
    place: TextPlace
    options: Mapping[str, TextPlace]


def parse(file: str, text: str) -> list[Rewrite | Ruleset]:
    """The commands of ``text``. Raises :class:`RuleError` that says where in ``file``
    it is not egglog, or holds another command."""
    lines = text.split("\n")
    parser = bindings().EGraph()
    return [_parsed(file, lines, form, parser) for form in _forms(file, text)]


def wrong(file: str, place: TextPlace, message: str) -> RuleError:
    """The error that ``message`` holds of a place in a file."""
    return RuleError(f"{file}:{place.line}:{place.column}: {message}")


# -- forms -----------------------------------------------------------------------------

DEEPEST = 100
"""Brackets inside one another: the parser's stack ends at some thousands."""
COMMANDS = ("rewrite", "birewrite", "ruleset")
OPTIONS = (":name", ":ruleset", ":when")
_HOLDS = "a rule file holds (rewrite …), (birewrite …) and (ruleset …)"
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_TOKEN = re.compile(rf'{_TEXT.pattern}?|;[^\n]*|[()]|[^\s()";][^\s();]*', re.DOTALL)


@dataclass
class _Form:
    """What stands between two brackets that are in no others."""

    place: TextPlace
    head: str = ""
    options: dict[str, TextPlace] = field(default_factory=dict)
    text: str = ""


def _forms(file: str, text: str) -> Iterator[_Form]:
    form = _Form(TextPlace(1, 1))
    depth = start = 0
    for place, at, token in _tokens(text):
        if token[0] == '"' and not _TEXT.fullmatch(token):
            raise wrong(file, place, "this text is never closed")
        if depth == 0 and token != "(":
            what = "')' closes nothing" if token == ")" else f"{token} is no command"
            raise wrong(file, place, f"{what}; {_HOLDS}")
        if token == "(":
            if depth == 0:
                form, start = _Form(place), at
            depth += 1
            if depth > DEEPEST:
                raise wrong(file, place, f"more than {DEEPEST} brackets are open here")
        elif token == ")":
            depth -= 1
            if depth == 0:
                form.text = text[start : at + 1]
                yield form
        elif depth == 1:
            form.head = form.head or token
            if token[0] == ":":
                if token in form.options:
                    raise wrong(file, place, f"{token} is given twice")
                form.options[token] = place
    if depth:
        raise wrong(file, form.place, "this '(' is never closed")


def _tokens(text: str) -> Iterator[tuple[TextPlace, int, str]]:
    """Place, index and text of each token but comments."""
    line, start, last = 1, 0, 0
    for found in _TOKEN.finditer(text):
        at = found.start()
        breaks = text.count("\n", last, at)
        if breaks:
            line, start = line + breaks, text.rindex("\n", last, at) + 1
        last = at
        if found[0][0] != ";":
            yield TextPlace(line, at - start + 1), at, found[0]


# -- syntax ----------------------------------------------------------------------------

_SAID = re.compile(r"In (\d+):(\d+)-.*\nparse error: (.*)", re.DOTALL)


def _parsed(
    file: str, lines: Sequence[str], form: _Form, parser: Any
) -> Rewrite | Ruleset:
    if form.head not in COMMANDS:
        what = f"({form.head} …)" if form.head else "(…)"
        raise wrong(file, form.place, f"{what} is no rewrite; {_HOLDS}")
    for option in form.options.keys() - OPTIONS:
        message = f"no option {option}; there are {', '.join(OPTIONS)}"
        raise wrong(file, form.options[option], message)
    b = bindings()
    try:
        (command,) = parser.parse_program(form.text, file)
    except b.EggSmolError as error:
        said = _SAID.match(str(error))
        assert said is not None, str(error)
        place = _within(form.place, TextPlace(int(said[1]), int(said[2])))
        raise wrong(file, place, said[3]) from None
    if form.head == "ruleset":
        return Ruleset(command.name, form.place, form.options)
    reader = _Reader(b, form.place, form.text)
    rewrite = command.rewrite
    return Rewrite(
        reader.syntax(rewrite.lhs),
        reader.syntax(rewrite.rhs),
        tuple(reader.fact(c) for c in rewrite.conditions),
        command.name,
        rewrite.name,
        form.head == "birewrite",
        _comment_above(lines, form.place.line),
        form.place,
        form.options,
    )


def _within(start: TextPlace, place: TextPlace) -> TextPlace:
    """A place in a form that begins at ``start``, as a place in the file."""
    column = place.column + (start.column - 1 if place.line == 1 else 0)
    return TextPlace(start.line + place.line - 1, column)


def _comment_above(lines: Sequence[str], line: int) -> str:
    """The comment that ends in the line above ``line``."""
    found: list[str] = []
    at = line - 2
    while at >= 0 and lines[at].lstrip().startswith(";"):
        found.append(lines[at].lstrip().lstrip(";").strip())
        at -= 1
    return "\n".join(reversed(found))


@dataclass
class _Reader:
    """egglog's syntax trees as ours."""

    bindings: Any
    start: TextPlace
    text: str

    def syntax(self, tree: Any) -> Syntax:
        b = self.bindings
        place = self._place(tree.span)
        if isinstance(tree, b.Call):
            return EggCall(tree.name, tuple(map(self.syntax, tree.args)), place)
        if isinstance(tree, b.Var):
            return Name(tree.name.removeprefix("@"), place)
        return Literal(getattr(tree.value, "value", None), place)

    def fact(self, fact: Any) -> EggCall:
        if isinstance(fact, self.bindings.Eq):
            sides = (self.syntax(fact.left), self.syntax(fact.right))
            return EggCall("=", sides, self._place(fact.span))
        call = self.syntax(fact.expr)
        assert isinstance(call, EggCall)  # the parser admits nothing else
        return call

    def _place(self, span: Any) -> TextPlace:
        before = self.text.encode()[: span.i].decode()
        line = before.count("\n")
        return _within(
            self.start, TextPlace(line + 1, len(before) - before.rfind("\n"))
        )
