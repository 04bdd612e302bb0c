"""A program as Python source, and the function compiled from exactly that text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.kernel import Kernel, View
from eqsat.op import CONSTANT, Op
from eqsat.program import Program, show_bytes, show_type
from eqsat.term import Term

from .body import Body, Node, body_of, leaf
from .emit import INDENT, Names, dtype_text, write
from .interpret import Array, evaluate
from .schedule import Schedule, schedule
from .spell import RESERVED, view

_INLINE = 3
"""A kernel of at most so many calls is written where it runs, not as a function."""


@dataclass(frozen=True)
class Lowered:
    """A program that runs on NumPy. Calls share nothing but constants."""

    source: str
    """The Python text: a function ``program``, and one for each kind of blocked kernel."""
    run: Callable[..., Sequence[Array]]
    """``program`` of that text."""

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, as fresh arrays. Floating-point warnings are off, as in other backends."""
        with np.errstate(all="ignore"):
            return list(self.run(*arrays))


def lower(program: Program) -> Lowered:
    """``program`` as Python that calls NumPy."""
    writer = _Program(program)
    source = writer.source()
    scope = {**writer.namespace, "np": np}
    exec(compile(source, "<eqsat numpy program>", "exec"), scope)
    return Lowered(source, scope["program"])


def realises(op: Op) -> bool:
    """Whether this backend runs ``op``: it does when the op has a reference."""
    return op.kind != "leaf"


@dataclass
class _Program:
    program: Program
    namespace: dict[str, Any] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    """Texts of functions, without their name, to their names."""
    functions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        called = self.program.names
        self.names = Names({*RESERVED, *called.values()})
        fixed = [*self.program.constants, *self.program.folded]
        values = evaluate(fixed, {})
        for t in fixed:
            self.namespace[called[t]] = np.asarray(values[t])

    def source(self) -> str:
        program = self.program
        called = program.names
        params = [called[t] for t in program.inputs]
        head = [f"def program({', '.join(params)}):"]
        lines = [f"# {called[t]}: {show_type(t)}" for t in program.inputs]
        for t in (*program.constants, *program.folded):
            kind = "constant" if t.op is CONSTANT else f"{t.op.name} of constants, folded"
            lines.append(f"# {called[t]}: {show_type(t)}, {kind}")
        for i, step in enumerate(program.steps):
            if isinstance(step, View):
                lines.append(self._view(step))
            else:
                lines += self._kernel(step)
            lines += self._freed(i)
        lines.append(f"return {self._results()}")
        body = [INDENT + line for line in lines]
        blocks = ["import numpy as np", *self.functions, "\n".join(head + body)]
        return "\n\n\n".join(blocks) + "\n"

    def _results(self) -> str:
        texts = []
        for i, r in enumerate(self.program.roots):
            name = self.program.names[r]
            copied = i in self.program.copies
            texts.append(f'np.array({name}, order="C")' if copied else name)
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def _view(self, step: View) -> str:
        source = step.term.args[0]
        node = _view_node(step.term)
        text = view(node, self.program.names[source], [str(d) for d in node.shape])
        return f"{step.name} = {text}  # {show_type(step.term)}, a view"

    def _freed(self, step: int) -> list[str]:
        """Forget what dies after ``step``, with all views of it."""
        names = [
            self.program.names[t]
            for slot in self.program.plan.slots
            if slot.last == step
            for t in self._showing(slot.values)
        ]
        return [f"del {', '.join(names)}"] if names else []

    def _showing(self, values: Sequence[Term]) -> list[Term]:
        steps = self.program.steps
        return [
            s.term
            for s in steps
            if s.term in values or (isinstance(s, View) and s.base in values)
        ]

    # -- kernels -------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> list[str]:
        body = body_of(kernel)
        operand = self.program.plan.in_place.get(kernel.term)
        over = body.leaves[operand] if operand is not None else None
        lines = [self._result(kernel)]
        if not kernel.term.size:
            return lines
        plan = schedule(body, over)
        return lines + self._calls(kernel, body, plan, over)

    def _result(self, kernel: Kernel) -> str:
        """The array of the result: fresh, or that of a value that is no longer needed."""
        term, plan, called = kernel.term, self.program.plan, self.program.names
        operand = plan.in_place.get(term)
        if operand is not None:
            return f"{kernel.name} = {called[operand]}  # in place"
        values = plan.slots[plan.slot_of[term]].values
        before = values.index(term)
        if before:
            return f"{kernel.name} = {called[values[before - 1]]}  # its memory, reused"
        node = leaf(term.shape, np.dtype(term.dtype))  # type: ignore[arg-type]
        size = show_bytes(term.nbytes)
        dtype = dtype_text(node)
        if dtype == "bfloat16":
            self.namespace[dtype] = node.dtype.type
        return f"{kernel.name} = np.empty({term.shape}, {dtype})  # {size}"

    def _calls(
        self, kernel: Kernel, body: Body, plan: Schedule, over: Node | None
    ) -> list[str]:
        called = {n: self.program.names[t] for t, n in body.leaves.items()}
        called |= {n: self._constant(v) for n, v in body.constants.items()}
        if not plan.loops and not plan.registers:
            names = Names({*self.names.taken, *self.namespace})
            text = write(body, plan, called, kernel.name, names, self.namespace, over)
            if text.is_simple and len(text.lines) <= _INLINE:
                return text.lines
        name, params = self._function(kernel, body, plan, called, over)
        given = [self.program.names[t] for t in params]
        return [f"{name}({', '.join([*given, kernel.name])})"]

    def _function(
        self,
        kernel: Kernel,
        body: Body,
        plan: Schedule,
        called: dict[Node, str],
        over: Node | None,
    ) -> tuple[str, tuple[Term, ...]]:
        """The function of a kernel, and what to call it with; equal texts are one function."""
        names = Names({*RESERVED, *self.namespace})
        inside = dict(called)
        for t, n in body.leaves.items():
            position = kernel.term.args.index(t)
            params = kernel.op.params
            stem = params[position] if position < len(params) else f"x{position}"
            inside[n] = names.fresh(stem)
        text = write(body, plan, inside, "out", names, self.namespace, over)
        lines = [f'"""{_title(kernel, plan)}"""', *text.lines]
        params_text = ", ".join([*(inside[n] for n in body.leaves.values()), "out"])
        rest = f"({params_text}):\n" + "\n".join(INDENT + line for line in lines)
        if rest not in self.helpers:
            name = self.names.fresh(kernel.op.name)
            self.helpers[rest] = name
            self.functions.append(f"def {name}{rest}")
        return self.helpers[rest], kernel.inputs

    def _constant(self, value: Array) -> str:
        """A name for a constant of a body; equal small arrays have one."""
        for name, known in self.namespace.items():
            if isinstance(known, np.ndarray) and _equal(known, value):
                return name
        name = self.names.fresh("table")
        self.namespace[name] = value
        return name


def _equal(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a is b or a.tobytes() == b.tobytes()


def _title(kernel: Kernel, plan: Schedule) -> str:
    term = kernel.term
    attrs = ", ".join(f"{n}={v}" for n, v in kernel.op.attr_dict(term).items() if v != "")
    text = f"{kernel.op.name}{f'[{attrs}]' if attrs else ''}, {show_type(term)}"
    if plan.loops:
        loops = " of ".join(
            f"{-(-loop.size // loop.rows)} blocks of {loop.rows}"
            if loop.rows > 1
            else f"{loop.size} turns"
            for loop in plan.loops
        )
        text += f", in {loops}"
    if plan.scratch_bytes:
        text += f", {show_bytes(plan.scratch_bytes)} of scratch"
    return text + "."


def _view_node(term: Term) -> Node:
    op = term.op
    assert isinstance(op, Op)
    (source,) = term.args
    arg = leaf(source.shape, np.dtype(source.dtype))  # type: ignore[arg-type]
    return Node(op, (arg,), op.attr_dict(term), term.shape, arg.dtype)
