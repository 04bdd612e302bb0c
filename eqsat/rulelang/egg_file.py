"""Rules written as egglog text, in ``.egg`` files.

    ; x (a + b) = x a + x b.
    (birewrite (Matmul x (Add a b)) (Add (Matmul x a) (Matmul x b))
      :ruleset algebra
      :when ((axes x "... m k") (axes a "k n") (axes b "k n"))
      :name "matmul_distributes")

An op is its constructor of :mod:`eqsat.rulelang.egg_schema`: arrays first, then
attributes. Each rewrite becomes the rule that ``@rule`` makes of the same function in
Python."""

from __future__ import annotations

import inspect
import keyword
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from eqsat.rulelang import condition
from eqsat.rulelang.egg_parser import (
    EggCall,
    Literal,
    Name,
    Rewrite,
    Syntax,
    TextPlace,
    wrong,
)
from eqsat.rulelang.expression import ARITHMETIC, COMPARISONS, entry
from eqsat.rulelang.rule import Rule
from eqsat.support import EqsatError, RuleError, ShapeError, counted, nearest
from eqsat.terms import (
    ELLIPSIS,
    Axes,
    Op,
    Signature,
    annotation_name,
    dtype_code,
    normal_axes,
)
from eqsat.terms import parse as parse_axes

COMPARED = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
"""Conditions that compare sizes and numbers, as Python writes them."""
JOINED: dict[str, Callable[..., Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
}
"""Conditions of conditions."""
Values = Mapping[str, Any]
"""What the parameters and the axes of a rule are: patterns, or arrays and numbers."""
Build = Callable[[Values], Any]

RESULTS = "Results"
"""The head of a side that has several results."""
SCALAR = "Scalar"
"""The head of a bare number."""
CONDITIONS: dict[str, Callable[..., Any]] = {
    name.replace("_", "-"): getattr(condition, name)
    for name in condition.__all__
    if name not in ("Fact", "Held")
}
"""The conditions of :mod:`eqsat.rulelang.condition`."""
SETTINGS = ("axes", "bool", "dtypes", "numerics")
"""What ``:when`` says besides: of a variable, or of the whole rule."""
_STANDS = {
    "array": "an array",
    "float": "a number",
    "int": "an integer",
    "ints": "several integers",
}
"""Kinds of variables."""


def rule_of(file: str, name: str, source: Rewrite, ops: Mapping[str, Op]) -> Rule:
    """The rule that a rewrite is. Raises :class:`RuleError` with line and column."""
    return _Translation(file, source, name, ops).rule()


@dataclass(frozen=True)
class _Variable:
    kind: str
    """``array``, ``float``, ``int`` or ``ints``."""
    place: TextPlace


@dataclass
class _Translation:
    """One rewrite on its way to a rule."""

    file: str
    source: Rewrite
    name: str
    ops: Mapping[str, Op]
    variables: dict[str, _Variable] = field(default_factory=dict)
    """In the order in which the left side names them."""
    axes: dict[str, Axes] = field(default_factory=dict)
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Named axes: an array that has one, and where, counted from the end."""
    settings: dict[str, str] = field(default_factory=dict)
    masks: set[str] = field(default_factory=set)
    on_left: bool = True
    """Whether a variable may appear for the first time."""

    def rule(self) -> Rule:
        conditions = self.source.conditions
        settings = [c for c in conditions if c.head in SETTINGS]
        for call in settings:
            self._setting(call)
        left = _side(self._term, self.source.left)
        self.on_left = False
        for call in settings:
            self._check_setting(call)
        right = _side(self._term, self.source.right)
        tests = [self._condition(c) for c in conditions if c not in settings]
        made = self._made(left, right, tests)
        try:
            made.sides  # noqa: B018  (builds it, so that what is wrong is said here)
        except RuleError:
            raise
        except Exception as error:  # a reference of literals may raise anything
            self._fail(self.source, f"{type(error).__name__}: {error}")
        return made

    def _made(self, left: Build, right: Build, tests: Sequence[Build]) -> Rule:
        params = tuple(self.variables)
        kinds = {p: v.kind for p, v in self.variables.items()}
        arrays = [p for p in params if kinds[p] == "array"]
        axes = tuple(self.axes.get(p, Axes((ELLIPSIS,))) for p in arrays)
        text = ", ".join(" ".join(map(str, a.tokens)) for a in axes)
        numerics = self.settings.get("numerics", "reassociate")

        def values(args: Iterable[Any]) -> Values:
            given = dict(zip(params, args, strict=True))
            return given | {n: given[p].shape[i] for n, (p, i) in self.sizes.items()}

        def sides(*args: Any) -> tuple[Any, Any]:
            known = values(args)
            return left(known), right(known)

        def where(*args: Any) -> tuple[Any, ...]:
            known = values(args)
            return tuple(test(known) for test in tests)

        sides.__doc__ = self.source.doc
        return Rule(
            name=self.name,
            function=sides,
            signature=Signature(text, axes, ()),
            params=params,
            numbers={p: k for p, k in kinds.items() if k != "array"},
            where=where if tests else None,
            numerics="reassociate" if numerics == "inferred" else numerics,
            infers=numerics == "inferred",
            phase=self.source.ruleset or "user",
            dtypes=self.settings.get("dtypes", "float"),
            masks=frozenset(self.masks),
            file=self.file,
            line=self.source.place.line,
            column=self.source.place.column,
            both_ways=self.source.both_ways,
        )

    def _fail(self, at: Syntax | Rewrite, message: str) -> NoReturn:
        raise wrong(self.file, at.place, f"rule {self.name!r}: {message}")

    # -- settings ----------------------------------------------------------------------

    def _setting(self, call: EggCall) -> None:
        if call.head in ("dtypes", "numerics"):
            (value,) = self._words(call, "text")
            if call.head in self.settings:
                self._fail(call, f"({call.head} …) is given twice")
            self.settings[call.head] = self._text(value)
            return
        names = ("variable", "text") if call.head == "axes" else ("variable",)
        variable, *more = self._words(call, *names)
        if not isinstance(variable, Name):
            self._fail(variable, f"({call.head} …) speaks of a variable")
        if call.head == "bool":
            self.masks.add(variable.text)
        else:
            if variable.text in self.axes:
                self._fail(call, f"the axes of {variable.text!r} are given twice")
            self.axes[variable.text] = self._axes(variable.text, more[0])

    def _axes(self, variable: str, value: Syntax) -> Axes:
        text = self._text(value)
        try:
            found = parse_axes(text).inputs if text.strip() else (Axes(()),)
        except EqsatError as error:
            self._fail(value, str(error))
        if len(found) != 1 or "->" in text:
            self._fail(value, f"{text!r} are not the axes of one array")
        tail = found[0].after if found[0].variadic else found[0].tokens
        for i, axis in enumerate(tail, -len(tail)):
            if isinstance(axis, str):
                self.sizes.setdefault(axis, (variable, i))
        return found[0]

    def _check_setting(self, call: EggCall) -> None:
        """A setting of a variable is one of an array of the left side."""
        variable = call.args[0]
        if isinstance(variable, Name):
            self._read(variable, "array")
            axes = self.axes.get(variable.text, Axes(()))
            for axis in axes.tokens:
                if axis in self.variables:
                    self._fail(call, f"{axis!r} is the name of an axis and a variable")

    # -- conditions --------------------------------------------------------------------

    def _condition(self, call: EggCall) -> Build:
        if call.head in COMPARED or call.head in JOINED:
            return self._compared(call)
        function = CONDITIONS.get(call.head.replace("_", "-"))
        if function is None:
            hint = nearest(call.head, (*CONDITIONS, *COMPARED, *JOINED, *SETTINGS))
            self._fail(call, f"no condition {call.head!r}{hint}")
        if function is condition.domain:
            (inner,) = self._words(call, "condition")
            held = self._inner(inner)
            return lambda values: condition.domain(held(values))
        wanted = inspect.signature(function).parameters
        words = self._words(call, *wanted)
        kinds = [annotation_name(p.annotation) for p in wanted.values()]
        args = [self._subject(w, k) for w, k in zip(words, kinds, strict=True)]
        return lambda values: function(*(a(values) for a in args))

    def _compared(self, call: EggCall) -> Build:
        """``(< a b)`` of sizes and numbers; ``(and …)``, ``(or …)`` and ``(not …)``."""
        if call.head in COMPARED:
            a, b = (self._number(w, "float")[0] for w in self._words(call, "a", "b"))
            compare = COMPARISONS[COMPARED[call.head]]
            return lambda values: compare(a(values), b(values))
        names = ("condition",) if call.head == "not" else ("a", "b")
        parts = [self._inner(w) for w in self._words(call, *names)]
        join = JOINED[call.head]
        return lambda values: join(*(part(values) for part in parts))

    def _inner(self, e: Syntax) -> Build:
        if not isinstance(e, EggCall):
            self._fail(e, "expected a condition in brackets")
        return self._condition(e)

    def _subject(self, e: Syntax, annotation: str) -> Build:
        """An argument of a condition; ``float`` and ``int`` are literals."""
        if annotation in ("float", "int"):
            numbers = (int, float) if annotation == "float" else (int,)
            if not isinstance(e, Literal) or type(e.value) not in numbers:
                self._fail(e, f"expected a literal {annotation}")
            return _constant(e.value)
        if isinstance(e, Name) and e.text in self.variables:
            return self._read(e, self.variables[e.text].kind)
        if isinstance(e, EggCall) and e.head not in (*ARITHMETIC, "vec-get"):
            return self._term(e)
        return self._number(e, "float")[0]

    # -- terms -------------------------------------------------------------------------

    def _term(self, e: Syntax) -> Build:
        """An array, or a bare number."""
        if isinstance(e, Name):
            if e.text in self.sizes:
                self._fail(e, f"{e.text!r} is an axis; its size is (Scalar {e.text})")
            return self._read(e, "array")
        if isinstance(e, Literal):
            return self._real(e)
        if e.head == SCALAR:
            (number,) = self._words(e, "number")
            if isinstance(number, Literal):
                return self._real(number)
            return self._number(number, "float")[0]
        op, params = self._op(e)
        names = [*params, *(f"[{a}]" if a in op.attr_defaults else a for a in op.attrs)]
        given = self._words(e, *names)
        arrays = [self._term(a) for a in given[: len(params)]]
        named_attrs = zip(op.attrs, given[len(params) :], strict=False)
        attrs = {name: self._attribute(a, op, name) for name, a in named_attrs}

        def build(values: Values) -> Any:
            named = {name: a(values) for name, a in attrs.items()}
            return op(*(a(values) for a in arrays), **named)

        return build

    def _op(self, call: EggCall) -> tuple[Op, tuple[str, ...]]:
        """The op that a call is of, and the names of its arrays."""
        head = call.head
        if head not in self.ops:
            head = head.rstrip("0123456789")
        count = call.head[len(head) :]
        op = self.ops.get(head)
        if op is None or op.variadic != (0 < len(count) < 3):
            known = [n + "2" * op.variadic for n, op in self.ops.items()]
            longer = [n for n in known if n.startswith(call.head)]
            hint = f"; did you mean {longer[0]!r}?" if longer else nearest(head, known)
            self._fail(call, f"no op {call.head!r}{hint}")
        return op, op.params or tuple(f"x{i}" for i in range(int(count or 0)))

    def _attribute(self, e: Syntax, op: Op, attr: str) -> Build:
        kind = op.attrs[attr]
        choices = op.choices.get(attr)
        if kind in ("str", "DTypeName"):
            text = self._text(e)
            if choices and text not in choices:
                self._fail(e, f"{attr} {text!r}, expected one of {choices}")
            if kind == "DTypeName":
                self._checked(e, lambda: dtype_code(np.dtype(text)))
            return _constant(text)
        if kind in ("Axis", "Ints"):
            if isinstance(e, Name):
                return self._read(e, "ints")
            parts = self._integers(e)
            if kind == "Axis":
                self._checked(e, lambda: normal_axes(op.name, _fixed(parts), None))
            return lambda known: tuple(part(known) for part in parts)
        build, found = self._number(e, "float" if kind == "float" else "int")
        if found == "float" and kind != "float":
            self._fail(e, f"the attribute {attr!r} is an integer")
        return build

    def _checked(self, e: Syntax, test: Callable[[], Any]) -> None:
        try:
            test()
        except (EqsatError, TypeError) as error:
            self._fail(e, str(error).splitlines()[0])

    # -- numbers -----------------------------------------------------------------------

    def _number(self, e: Syntax, kind: str) -> tuple[Build, str]:
        """A number made of literals, sizes and parameters, and whether it is ``int`` or
        ``float``. ``kind`` is that of a parameter which appears for the first time."""
        if isinstance(e, Literal):
            if type(e.value) not in (int, float):
                self._fail(e, f"expected a number, not {e.value!r}")
            return _constant(e.value), type(e.value).__name__
        if isinstance(e, Name):
            if e.text in self.sizes:
                return _named(e.text), "int"
            known = self.variables.get(e.text)
            kind = known.kind if known and known.kind in ("float", "int") else kind
            return self._read(e, kind), kind
        if e.head == "vec-get":
            values, i = self._words(e, "attribute", "entry")
            if not isinstance(values, Name) or not isinstance(i, Literal):
                self._fail(e, "expected a variable and a number: (vec-get p 0)")
            place = i.value
            if type(place) is not int or place < 0:
                self._fail(i, "entries count from 0")
            attribute = self._read(values, "ints")
            return lambda known: entry(attribute(known), place), "int"
        if e.head not in ("+", "-", "*", "/", "%"):
            self._fail(e, f"no arithmetic {e.head!r}; there are + - * / % and vec-get")
        (a, one), (b, two) = (self._number(x, kind) for x in self._words(e, "a", "b"))
        kind = "float" if "float" in (one, two) else "int"
        join = ARITHMETIC["//" if e.head == "/" and kind == "int" else e.head]
        return lambda known: join(a(known), b(known)), kind

    def _integers(self, e: Syntax) -> list[Build]:
        if not isinstance(e, EggCall) or e.head not in ("vec-of", "vec-empty"):
            self._fail(e, "expected several integers, such as (vec-of -2 -1)")
        parts = [self._number(a, "int") for a in e.args]
        for a, (_, kind) in zip(e.args, parts, strict=True):
            if kind != "int":
                self._fail(a, "expected an integer")
        return [build for build, _ in parts]

    def _read(self, e: Name, kind: str) -> Build:
        """A variable, which is of one kind wherever it stands."""
        if not e.text.isidentifier() or keyword.iskeyword(e.text) or e.text == "_":
            self._fail(e, f"{e.text!r} is no name of a variable")
        known = self.variables.get(e.text)
        if known is None:
            if not self.on_left:
                self._fail(e, f"{e.text!r} is not in the left side")
            known = self.variables[e.text] = _Variable(kind, e.place)
        if known.kind != kind:
            line, column = known.place
            self._fail(
                e,
                f"{e.text!r} is {_STANDS[kind]} here and {_STANDS[known.kind]} at "
                f"{line}:{column}",
            )
        return _named(e.text)

    # -- words -------------------------------------------------------------------------

    def _real(self, e: Literal) -> Build:
        if isinstance(e.value, (int, float)) and not isinstance(e.value, bool):
            return _constant(float(e.value))
        self._fail(e, f"expected a term, not {e.value!r}")

    def _text(self, e: Syntax) -> str:
        if not isinstance(e, Literal) or not isinstance(e.value, str):
            self._fail(e, "expected a text in quotes")
        return e.value

    def _words(self, call: EggCall, *names: str) -> tuple[Syntax, ...]:
        """The arguments of ``call``, one for each name; those in brackets may lack."""
        least = sum(not n.startswith("[") for n in names)
        if not least <= len(call.args) <= len(names):
            wanted = " ".join((call.head, *names))
            self._fail(
                call, f"expected ({wanted}), got {counted(len(call.args), 'argument')}"
            )
        return call.args


def _fixed(parts: Sequence[Build]) -> tuple[int, ...]:
    """Integers without variables. Raises :class:`ShapeError` for others."""
    try:
        return tuple(part({}) for part in parts)
    except KeyError:
        raise ShapeError("axes are literal numbers") from None


def _side(term: Callable[[Syntax], Build], e: Syntax) -> Build:
    """One result or several."""
    if isinstance(e, EggCall) and e.head == RESULTS:
        terms = [term(a) for a in e.args]
        return lambda values: tuple(t(values) for t in terms)
    return term(e)


def _constant(value: Any) -> Build:
    return lambda known: value


def _named(name: str) -> Build:
    return lambda known: known[name]
