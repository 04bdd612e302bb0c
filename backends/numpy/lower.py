"""A program as Python source, and the function compiled from exactly that text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from eqsat.kernels import Kernel, Program, View, decided, show_bytes, show_type
from eqsat.support import counted
from eqsat.terms import CONSTANT, Op, Term
from eqsat.trace import KERNEL, label, to_numpy

from ..interpret import Array, evaluate
from .blocks import Schedule, schedule
from .emit import INDENT, Names, new_array, write
from .kernel_nodes import BodyNode, NodeBody, body_of, leaf
from .spell import RESERVED, number, own_call, own_lowering, view

_INLINE = 3
"""A kernel of at most so many calls is written where it runs, not as a function."""


@dataclass(frozen=True)
class NumpyProgram:
    """A program that runs on NumPy. Calls share nothing but constants."""

    source: str
    """The Python text: ``program``, and a function for each kind of blocked kernel."""
    run: Callable[..., Sequence[Array]]
    """``program`` of that text."""

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, in fresh arrays. Floating-point warnings are off."""
        with np.errstate(all="ignore"):
            return list(self.run(*map(to_numpy, arrays)))


def lower(program: Program) -> NumpyProgram:
    """``program`` as Python that calls NumPy."""
    writer = _Writer(program)
    source = writer.source()
    scope = {**writer.namespace, "np": np}
    exec(compile(source, "<eqsat numpy program>", "exec"), scope)
    return NumpyProgram(source, scope["program"])


@dataclass
class _Writer:
    program: Program
    namespace: dict[str, Any] = field(default_factory=dict)
    """What the text names beyond NumPy and itself."""
    helpers: dict[str, str] = field(default_factory=dict)
    """Texts of functions, without their name, to their names."""

    def __post_init__(self) -> None:
        called = self.called = self.program.names
        self.decided = decided(self.program)
        self.names = Names({*RESERVED, *called.values()})
        fixed = [*self.program.constants, *self.program.folded]
        values = evaluate(fixed, {})
        self.namespace |= {called[t]: np.asarray(values[t]) for t in fixed}
        last = {t: s.last for s in self.program.plan.slots for t in s.values}
        self.dying: dict[int, list[str]] = {}
        for s in self.program.steps:
            for t in s.results if isinstance(s, Kernel) else (s.term,):
                owner = s.base if isinstance(s, View) else t
                if owner in last:
                    self.dying.setdefault(last[owner], []).append(called[t])

    def source(self) -> str:
        """The whole text."""
        main = [
            f"def program({', '.join(self.called[t] for t in self.program.inputs)}):"
        ]
        main += [INDENT + line for line in self._lines()]
        functions = [f"def {name}{rest}" for rest, name in self.helpers.items()]
        return "\n\n\n".join(["import numpy as np", *functions, "\n".join(main)]) + "\n"

    def _lines(self) -> list[str]:
        program, called = self.program, self.called
        lines = [f"# {called[t]}: {show_type(t)}" for t in program.inputs]
        for t in (*program.constants, *program.folded):
            kind = "constant" if t.op is CONSTANT else f"{t.op.name} of constants"
            lines.append(f"# {called[t]}: {show_type(t)}, {kind}")
        for i, step in enumerate(program.steps):
            lines += (
                [self._view(step)] if isinstance(step, View) else self._kernel(step)
            )
            lines += self._freed(i)
        return [*lines, f"return {self._results()}"]

    def _results(self) -> str:
        """The tuple of results; what is not an array of its own is copied."""
        names = [self.called[r] for r in self.program.roots]
        for i in self.program.copies:
            names[i] = f'np.array({names[i]}, order="C")'
        return f"({', '.join(names)}{',' if len(names) == 1 else ''})"

    def _view(self, step: View) -> str:
        term = step.term
        (source,) = term.args
        arg = leaf(source.shape, cast("np.dtype[Any]", source.dtype))
        op = cast(Op, term.op)
        node = BodyNode(op, (arg,), op.attr_dict(term), term.shape, arg.dtype)
        text = view(node, self.called[source], [str(d) for d in term.shape])
        return f"{step.name} = {text}  # {show_type(term)}, a view"

    def _freed(self, step: int) -> list[str]:
        """Forget what dies after ``step``, with all views of it."""
        names = self.dying.get(step)
        return [f"del {', '.join(names)}"] if names else []

    # -- kernels -----------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> list[str]:
        made = [self._result(kernel, r) for r in kernel.results]
        if not any(r.size for r in kernel.results):
            return made
        outs = [self.called[r] for r in kernel.results]
        own = own_lowering(kernel.op, self.namespace)
        if own is not None:
            attrs = kernel.op.attr_dict(kernel.term)
            args = [self._argument(t) for t in kernel.term.args]
            return [*made, own_call(own, args, attrs, kernel.name)]
        body = body_of(kernel, kernel.term in self.decided)
        operand = self.program.plan.in_place.get(kernel.term)
        plan = schedule(body, None if operand is None else body.leaves[operand])
        known = {n: self._constant(v) for n, v in body.constants.items()}
        if not plan.loops and not plan.registers:
            called = known | {n: self.called[t] for t, n in body.leaves.items()}
            names = Names(set(), (self.names.taken, self.namespace))
            text = write(body, plan, called, outs, names, self.namespace)
            if text.is_simple and len(text.lines) <= _INLINE:
                return [*made, *text.lines]
        given = [self.called[t] for t in body.leaves]
        name = self._function(kernel, body, plan, known)
        return [*made, f"{name}({', '.join([*given, *outs])})"]

    def _argument(self, term: Term) -> str:
        """The name of an argument, or the bare number that it is."""
        if term in self.called:
            return self.called[term]
        value = evaluate([term], {})[term]
        return number(cast(float, value), np.dtype(np.float64), self.namespace)

    def _result(self, kernel: Kernel, term: Term) -> str:
        """The array of a result: fresh, or that of a value that is dead."""
        plan, name = self.program.plan, self.called[term]
        operand = plan.in_place.get(term)
        if operand is not None:
            return f"{name} = {self.called[operand]}  # in place"
        values = plan.slots[plan.slot_of[term]].values
        earlier = values[: values.index(term)]
        # What came right before may have reshaped the memory in place.
        alike = next((t for t in reversed(earlier) if t.type == term.type), None)
        if alike is not None:
            return f"{name} = {self.called[alike]}  # its memory, reused"
        dtype = cast("np.dtype[Any]", term.dtype)
        new = new_array(term.shape, dtype, self.namespace)
        return f"{name} = {new}  # {show_bytes(term.nbytes)}"

    def _function(
        self, kernel: Kernel, body: NodeBody, plan: Schedule, known: dict[BodyNode, str]
    ) -> str:
        """The name of the function of a kernel; equal texts are one function."""
        names = Names({*RESERVED, *self.namespace})
        params = {}
        for t, n in body.leaves.items():
            i = kernel.term.args.index(t)
            given = kernel.op.params
            params[n] = names.fresh(given[i] if i < len(given) else f"x{i}")
        count = range(1, len(kernel.results))
        outs = ["out", *(names.fresh(f"out{i}") for i in count)]
        text = write(body, plan, known | params, outs, names, self.namespace)
        lines = [f'"""{_title(kernel, plan)}"""', *text.lines]
        rest = f"({', '.join([*params.values(), *outs])}):\n"
        rest += "\n".join(INDENT + line for line in lines)
        if rest not in self.helpers:
            self.helpers[rest] = self.names.fresh(label(kernel.term))
        return self.helpers[rest]

    def _constant(self, value: Array) -> str:
        """A name for a constant of a body; equal ones have one."""
        for name, known in self.namespace.items():
            if isinstance(known, np.ndarray) and _is_same(known, value):
                return name
        name = self.names.fresh("table")
        self.namespace[name] = value
        return name


def _is_same(a: Array, b: Array) -> bool:
    """Whether two arrays are equal bit by bit."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a is b or a.tobytes() == b.tobytes()


def _title(kernel: Kernel, plan: Schedule) -> str:
    """What a function computes and how, in a line."""
    term, usual = kernel.term, kernel.op.attr_defaults
    named = kernel.op.attr_dict(term).items()
    attrs = ", ".join(f"{n}={v}" for n, v in named if usual.get(n) != v)
    text = f"{kernel.op.name}{f'[{attrs}]' if attrs else ''}"
    if kernel.op is KERNEL:
        text = str(term.attrs[0])
    text += f", {show_type(term)}"
    turns = [
        (
            f"{-(-loop.size // loop.rows)} blocks of {loop.rows}"
            if loop.rows > 1
            else f"{counted(loop.size, 'turn')}"
        )
        for loop in plan.loops
    ]
    if turns:
        text += f", {' of '.join(turns)}"
    if plan.scratch_bytes:
        text += f", {show_bytes(plan.scratch_bytes)} of scratch"
    return text + "."
