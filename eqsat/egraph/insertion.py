"""Terms and steps as commands of the engine, and as text that says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from eqsat.egraph.snapshot import CHUNK, Inserted
from eqsat.rulelang import egg_schema
from eqsat.terms import SCALAR, Op, Weak
from eqsat.terms import encode as encode_type


class Iteration(NamedTuple):
    """One iteration of the rules of a phase."""

    phase: str
    most: int | None
    """A rule with more matches sits it out; None for no bound."""
    own: bool = False
    """Whether the rules are a user's own."""

    @property
    def ruleset(self) -> str:
        """The engine's name for the rules."""
        return egg_schema.ruleset(self.phase, self.own)


def step_command(b: Any, span: Any, step: Iteration) -> Any:
    """The command that runs ``step``."""
    if step.most is None:
        return b.RunSchedule(b.Run(span, b.RunConfig(step.ruleset, None)))
    limit = [b.Var(span, ":match-limit"), b.Lit(span, b.Int(step.most))]
    name = b.Var(span, "bounded")
    parts = [
        b.Call(span, "let-scheduler", [name, b.Call(span, "back-off", limit)]),
        b.Call(span, "run-with", [name, b.Var(span, step.ruleset)]),
    ]
    return b.UserDefined(span, "run-schedule", parts)


def step_text(step: Iteration) -> str:
    """The same as text."""
    if step.most is None:
        return f"(run {step.ruleset} 1)"
    back_off = f"(let-scheduler bounded (back-off :match-limit {step.most}))"
    return f"(run-schedule {back_off} (run-with bounded {step.ruleset}))"


def chunk(b: Any, span: Any, what: Inserted, start: int) -> tuple[list[Any], list[Any]]:
    """Actions that insert one chunk of terms, and the facts that look up earlier
    ones."""
    place, again = what.place, what.used_in_later_chunks
    end = min(start + CHUNK, len(what.terms))
    head: list[Any] = []
    needed: dict[int, None] = {}

    def var(i: int) -> Any:
        if i < start:
            needed[i] = None
        return b.Var(span, f"x{i}")

    @cache
    def integer(i: int) -> Any:
        return b.Lit(span, b.Int(i))

    @cache
    def vector(values: Sequence[int]) -> Any:
        if not values:
            return b.Call(span, "vec-empty", [])
        return b.Call(span, "vec-of", [integer(v) for v in values])

    for i in range(start, end):
        t = what.terms[i]
        leaf = what.leaves.get(t)
        op = t.op
        assert isinstance(op, Op)
        if leaf is not None:
            made = b.Call(span, "Leaf", [integer(leaf)])
        elif op is SCALAR:
            number = t.attrs[0]
            if t.dtype is Weak.FLOAT:
                made = b.Call(span, "Scalar", [b.Lit(span, b.Float(number))])
            else:
                made = b.Call(span, "ScalarInt", [integer(number)])
        else:
            args = [var(place[a]) for a in t.args]
            for kind, value in zip(op.attrs.values(), t.attrs, strict=True):
                args.append(_attr_tree(b, span, kind, value, vector))
            made = b.Call(span, egg_schema.constructor(op, len(t.args)), args)
        x = b.Var(span, f"x{i}")
        head.append(b.Let(span, f"x{i}", made))
        head.append(b.Set(span, "type", [x], vector(encode_type(t.type))))
        if i in again:
            head.append(b.Set(span, "node", [integer(what.base + i)], x))
        if leaf is not None:
            head.append(b.Set(span, "order", [x], integer(leaf)))
            if leaf in what.constants:
                head.append(b.Expr_(span, b.Call(span, "constant", [x])))
            for fact in what.facts.get(leaf, ()):
                head.append(b.Expr_(span, b.Call(span, fact, [x])))
    body = [
        b.Eq(span, b.Var(span, f"x{i}"), b.Call(span, "node", [integer(what.base + i)]))
        for i in needed
    ]
    return head, body


def _attr_tree(
    b: Any, span: Any, kind: str, value: Any, vector: Callable[[Sequence[int]], Any]
) -> Any:
    sort = egg_schema.SORTS[kind]
    if sort == "Dims":
        return vector(value)
    if sort == "String":
        return b.Lit(span, b.String(value))
    if sort == "f64":
        return b.Lit(span, b.Float(value))
    return b.Lit(span, b.Int(int(egg_schema.literal(kind, value))))


def inserted_text(what: Inserted) -> Iterable[str]:
    place = {t: what.base + i for i, t in enumerate(what.terms)}
    for t, i in place.items():
        leaf = what.leaves.get(t)
        op = t.op
        assert isinstance(op, Op)
        if leaf is not None:
            call = f"Leaf {leaf}"
        elif op is SCALAR:
            number = t.attrs[0]
            assert isinstance(number, (int, float))
            weak = t.dtype is Weak.FLOAT
            call = (
                f"Scalar {egg_schema.number(number)}" if weak else f"ScalarInt {number}"
            )
        else:
            attrs = zip(op.attrs.values(), t.attrs, strict=True)
            words = [f"$x{place[a]}" for a in t.args] + [
                egg_schema.literal(k, v) for k, v in attrs
            ]
            call = f"{egg_schema.constructor(op, len(t.args))} {' '.join(words)}"
        dims = " ".join(map(str, encode_type(t.type)))
        yield f"(let $x{i} ({call}))"
        yield f"(set (type $x{i}) (vec-of {dims})) (set (node {i}) $x{i})"
        if leaf is not None:
            known = ["constant"] * (leaf in what.constants) + list(
                what.facts.get(leaf, ())
            )
            facts = " ".join(f"({fact} $x{i})" for fact in known)
            yield f"(set (order $x{i}) {leaf}) {facts}"


def program_text(forms: Iterable[str], history: Iterable[Inserted | Iteration]) -> str:
    """A program that makes an e-graph again: its rules, what was inserted, and the
    steps."""
    lines = list(forms)
    for event in history:
        if isinstance(event, Iteration):
            lines.append(step_text(event))
        else:
            lines += inserted_text(event)
        lines.append("(run-schedule (saturate (run _types)))")
    return "\n".join(lines) + "\n"
