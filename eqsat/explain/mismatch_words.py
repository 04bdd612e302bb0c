"""What does not fit where a rule's left side nearly matches, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from eqsat.egraph import Binding, Class, Matcher
from eqsat.explain.describe import Readable, show_shape
from eqsat.rulelang import Expr, Fact, Pattern, PatternNode, PatternVar, show
from eqsat.support import counted
from eqsat.terms import SCALAR


@dataclass(frozen=True)
class MismatchWords:
    """Words for the classes of an e-graph. A class in words takes long: where nobody
    reads them, they are ``silent``."""

    matcher: Matcher
    readable: Readable
    silent: bool

    def named(self, cls: int) -> str:
        """A class."""
        return "" if self.silent else self.readable.cls(cls)

    def what(self, cls: int) -> str:
        """What a class is, for a message that expected something else."""
        graph = self.matcher.graph
        ops = {graph.nodes[i].op for i in graph.classes[cls]}
        text = self.named(cls)
        made = sorted({op.name for op in ops if op.kind not in ("leaf", "fused")})
        if SCALAR in ops or not made:
            return text
        return f"{text} ({', '.join(made)})" if len(made) > 1 else text

    def wanted(self, pattern: PatternNode, bound: Binding) -> str:
        """An operation of the left side, over what its variables stand for."""
        shown = []
        for a in pattern.args:
            cls = bound.get(a.name) if isinstance(a, PatternVar) else None
            if cls is not None:
                shown.append(self.named(cls))
            else:
                shown.append("…" if isinstance(a, PatternNode) else show(a))
        return f"{pattern.op.name}({', '.join(shown)})"

    def misfit(self, var: PatternVar, cls: int, bound: Binding) -> tuple[str, str]:
        """Why a variable that is not bound yet cannot stand for a class."""
        type_ = self.matcher.graph.types[cls]
        here = f"the rule's {var.name} is {self.named(cls)} here: expected"
        if type_ is None:
            return "shape", f"{here} a known shape"
        dtype, shape = type_
        if not var.takes(dtype):
            wanted = "a floating dtype" if var.dtype == "float" else var.dtype
            return "dtype", f"{here} {wanted}, found {dtype}"
        axes, n = var.axes, var.axes.rank
        if len(shape) < n or not (axes.variadic or len(shape) == n):
            least = "at least " if axes.variadic else ""
            count = f"{least}{counted(n, 'axis')}"
            return "rank", f"{here} {count} ({axes}), found shape {show_shape(type_)}"
        sizes = dict(_sizes(axes.after if axes.variadic else axes.tokens, bound))
        known = "".join(f", {a}={size}" for a, size in sizes.items())
        return "shape", f"{here} axes {axes}{known}, found shape {show_shape(type_)}"

    def broken(self, fact: Fact, subjects: Sequence[Any]) -> str:
        """A condition of the rule, and what it does not hold for."""
        said = []
        for subject, value in zip(fact.subjects, subjects, strict=True):
            plain = isinstance(subject, (Expr, int, float))
            name = str(subject) if plain else show(cast(Pattern, subject))
            text = self.named(value.number) if isinstance(value, Class) else value
            said.append(f"{name} = {text}")
        text = f"the condition {fact.name!r} does not hold for {', '.join(said)}"
        if "(lower " in fact.text:
            low = self.matcher.graph.tables.get("lower", {}).get(subjects[0].number)
            known = (
                "no lower bound of it is" if low is None else f"its bound {low:g} is"
            )
            text += f" ({known} known)"
        return text

    def missing_above(self, want: PatternNode, cls: int) -> str:
        """An operation that should read a class."""
        graph = self.matcher.graph
        users = {
            n.op.name for n in graph.nodes if cls in n.children and n.op.kind != "fused"
        }
        used = f"only {', '.join(sorted(users))}" if users else "nothing"
        return f"expected {want.op.name} of {self.named(cls)}, found {used}"


def _sizes(tail: Iterable[Any], bound: Binding) -> Iterator[tuple[str, int]]:
    for axis in tail:
        if isinstance(axis, str) and f"axis:{axis}" in bound:
            yield axis, bound[f"axis:{axis}"]
