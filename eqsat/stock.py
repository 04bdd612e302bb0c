"""The stock rules: the files of the package and the bodies of its composites."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from eqsat.errors import RuleError
from eqsat.op import Op
from eqsat.rule import Rule, annotated
from eqsat.rulefile import RuleSet, load_rules
from eqsat.signature import Signature


def recognition(op: Op) -> Iterator[Rule]:
    """The rules that a composite's body is: ``body → op``, one for each choice of
    attributes."""
    signature = getattr(op.type_rule, "signature", None)
    if op.body is None or not op.recognised or signature is None:
        return
    body = op.body
    axes = [a for a in op.attrs if op.attrs[a] == "Axis" and a not in op.choices]
    fixed: list[dict[str, Any]] = [{}]
    for attr, values in op.choices.items():
        fixed = [{**f, attr: v} for f in fixed for v in values]
    for choice in fixed:
        yield _recognition(op, body, signature, axes, choice)


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
    code = body.__code__
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
        file=code.co_filename,
        line=code.co_firstlineno,
        hint=frozenset(v for v in choice.values() if v in Op.registry),
    )


@lru_cache(maxsize=1)
def default_rules() -> RuleSet:
    """The stock rules, and the body of every composite of the catalogue as the rule
    that finds it."""
    folder = importlib.util.find_spec("eqsat.rules")
    if folder is None or not folder.submodule_search_locations:
        raise RuleError("the stock rules (package eqsat.rules) are not installed")
    files = load_rules(*folder.submodule_search_locations)
    bodies = [r for op in list(Op.registry.values()) for r in recognition(op)]
    return files + bodies
