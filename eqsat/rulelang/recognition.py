"""Rules that ops bring with them: the body of a composite, and casts around an op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from eqsat.rulelang.pattern import PatternNode
from eqsat.rulelang.rule import NUMBER_KINDS, Rule, annotated
from eqsat.support import RuleError
from eqsat.terms import Op, Signature, parse


def recognition(op: Op) -> list[Rule]:
    """The rules that the body of a composite is: ``body → op``, one for each choice of
    attributes.

    An attribute that is an ``Axis`` is a parameter of the rule; another one has its
    default, or each of its ``choices``. Raises :class:`RuleError` that names the line
    of the body when it cannot be a rule.

    >>> import eqsat as eq
    >>> [str(r) for r in recognition(eq.silu)]
    ['multiply(x, sigmoid(x))  →  silu(x)']
    """
    if not is_recognised(op):
        why = "it has no body"
        if op.body is not None:
            why = "it is made with recognised=False, or has no axis signature"
        raise RuleError(f"the body of op {op.name!r} is no rule: {why}")
    rules = list(rules_of_body(op))
    given = {*op.choices, *op.attr_defaults}
    for r in rules:
        free = [a for a, k in op.attrs.items() if k != "Axis" and a not in given]
        if free:
            raise RuleError(
                f"{r.place}: the body of {op.name!r} cannot be a rule: attribute "
                f"{free[0]!r} has no default and no choices=; recognised=False makes "
                f"none of it"
            )
        try:
            r.sides  # noqa: B018  (builds it)
        except RuleError as error:
            raise RuleError(
                f"{error}\n  recognised=False makes no rule of the body of {op.name!r}"
            ) from None
    return rules


def is_recognised(op: Op) -> bool:
    """Whether the body of ``op`` is a rule."""
    known = getattr(op.type_rule, "signature", None) is not None
    return op.body is not None and op.recognised and known


def rules_of_body(op: Op) -> Iterator[Rule]:
    """The same, of an op that :func:`is_recognised`, built when they are used."""
    signature = getattr(op.type_rule, "signature", None)
    assert op.body is not None and signature is not None
    axes = [a for a in op.attrs if op.attrs[a] == "Axis" and a not in op.choices]
    fixed: list[dict[str, Any]] = [{}]
    for attr, values in op.choices.items():
        fixed = [{**f, attr: v} for f in fixed for v in values]
    for choice in fixed:
        yield _recognition(op, op.body, signature, axes, choice)


_SAID = tuple(
    f.name
    for f in fields(Op)
    if f.init and f.name not in ("body", "reference", "doc", "flops")
)
"""What the author of an op says of it besides its body."""


def same_op(a: Op, b: Op) -> bool:
    """Whether two ops are one definition: one function, or composites that differ in
    nothing and whose bodies are one pattern."""
    if a.source is b.source:
        return True
    if not (is_recognised(a) and is_recognised(b)):
        return False
    if any(getattr(a, name) != getattr(b, name) for name in _SAID):
        return False
    try:
        pairs = list(zip(rules_of_body(a), rules_of_body(b), strict=True))
        return all(one.params == two.params for one, two in pairs) and all(
            one.left == two.left for one, two in pairs
        )
    except RuleError:  # a body that is no pattern
        return False


def same_body(a: Rule, b: Rule) -> bool:
    """Whether two rules are the bodies of composites that are one definition."""
    one, two = a.right[0], b.right[0]
    if not isinstance(one, PatternNode) or not isinstance(two, PatternNode):
        return False
    bodies = ((r.file, r.line) == p.op.place for r, p in ((a, one), (b, two)))
    same = (a.left, one.args, one.attrs) == (b.left, two.args, two.attrs)
    return all(bodies) and same and same_op(one.op, two.op)


def of_casts(op: Op, dtype: str, numerics: str = "exact") -> Rule:
    """``cast(op(cast(x, float32)), dtype) → op(x)`` for arrays ``x`` of ``dtype``,
    float16 or bfloat16, which ``op`` computes in float32 and rounds once.

    Arguments without axes are numbers; masks are not cast. ``numerics`` is the class of
    the rule. Raises :class:`RuleError` for an op that takes integers.
    """
    cast = Op.registry["cast"]
    masks = frozenset(p for p, a in annotated(op.reference).items() if a == "bool")
    if len(masks) != len(op.own):
        raise RuleError(f"op {op.name!r} takes integers, which no cast to a float is")
    known = getattr(op.type_rule, "signature", None)
    axes = known.inputs if known is not None else parse("...").inputs
    numbers = {p: "float" for p, a in zip(op.params, axes, strict=True) if not a.tokens}

    def sides(*args: Any) -> Any:
        given = dict(zip((*op.params, *op.attrs), args, strict=True))
        attrs = {a: given.pop(a) for a in op.attrs}
        kept = {*masks, *numbers}
        wide = [v if p in kept else cast(v, dtype="float32") for p, v in given.items()]
        return cast(op(*wide, **attrs), dtype=dtype), op(*given.values(), **attrs)

    sides.__doc__ = f"{op.name} in float32 and rounded once = {op.name} of {dtype}."
    file, line = op.place
    arrays = tuple(a for a in axes if a.tokens)
    return Rule(
        name=f"{op.name}_of_{dtype}",
        function=sides,
        signature=Signature(", ".join(map(str, arrays)), arrays, ()),
        params=(*op.params, *op.attrs),
        numbers=numbers | {a: NUMBER_KINDS[k] for a, k in op.attrs.items()},
        where=None,
        numerics=numerics,
        phase="recognise",
        dtypes=dtype,
        masks=masks,
        file=file,
        line=line,
        hint=frozenset(("cast", op.name)),
    )


def _recognition(
    op: Op,
    body: Callable[..., Any],
    signature: Signature,
    axes: list[str],
    choice: dict[str, Any],
) -> Rule:
    def sides(*args: Any) -> Any:
        arrays, named = (
            args[: len(op.params)],
            dict(zip(axes, args[len(op.params) :], strict=True)),
        )
        return body(*arrays, **choice, **named), op(*arrays, **choice, **named)

    sides.__doc__ = op.doc.split("\n")[0]
    file, line = op.place
    tag = "".join(f"[{v or 'plain'}]" for v in choice.values())
    masks = frozenset(p for p, a in annotated(body).items() if a == "bool")
    inputs = Signature(signature.text, signature.inputs, ())
    return Rule(
        name=f"{op.name}{tag}",
        function=sides,
        signature=inputs,
        params=(*op.params, *axes),
        numbers=dict.fromkeys(axes, "ints"),
        where=None,
        numerics="reassociate",
        phase="fuse" if op.kind == "fused" else "recognise",
        dtypes="float",
        masks=masks,
        file=file,
        line=line,
        hint=frozenset(v for v in choice.values() if v in Op.registry),
    )
