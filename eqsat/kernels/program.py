"""Programs: kernels in order, the views between them, and a plan of their memory.

An extracted term is a DAG. Each node of it that is neither a leaf nor a view is one
kernel, which reads values from memory and writes one. What depends on constants only is
folded when the program is compiled.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from eqsat.kernels.buffer_plan import BufferPlan, plan, roots_to_copy
from eqsat.kernels.kernel import Kernel, Step, steps_of
from eqsat.kernels.memory_order import least_memory_order
from eqsat.support import EqsatError, as_html, counted
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, Weak, postorder
from eqsat.trace import KERNEL


@dataclass(frozen=True, eq=False)
class Program:
    """Kernels and views in order, made by :meth:`of`. Equal terms and equal
    orders, equal programs."""

    inputs: tuple[Term, ...]
    roots: tuple[Term, ...]
    constants: tuple[Term, ...]
    """Constant arrays that steps or roots name."""
    folded: tuple[Term, ...]
    """Maximal terms over constants: computed once, when the program is compiled."""
    steps: tuple[Step, ...]
    names: Mapping[Term, str]
    """Identifiers of the inputs, constants, folded terms and steps."""
    copies: frozenset[int]
    """Positions of roots that must be copied, so that no result shares memory."""
    plan: BufferPlan
    least_memory: bool = False
    """Whether the order of the steps is one that keeps little in memory."""

    @classmethod
    def of(
        cls,
        roots: Sequence[Term],
        inputs: Sequence[Term],
        names: Sequence[str] | None = None,
        least_memory: bool = False,
    ) -> Program:
        """The program that computes ``roots`` from INPUT leaves, called ``names``, in
        the order that they were written or in one that keeps little in memory.

        Raises :class:`EqsatError` when a root needs an input that is not given.
        """
        if names is not None and len(names) != len(inputs):
            raise EqsatError(
                f"{counted(len(inputs), 'input')}, but {counted(len(names), 'name')}"
            )
        terms = list(postorder(roots))
        for t in terms:
            if t.op is INPUT and t not in inputs:
                raise EqsatError(
                    f"the program needs input {t.attrs[0]}, which is not given"
                )
        called = _Names()
        for i, t in enumerate(inputs):
            called.give(t, names[i] if names else f"x{i}")
        constant = _constant(terms)
        live = [t for t in terms if t not in constant]
        if least_memory:
            live = least_memory_order(live, roots)
        steps = list(steps_of(live, called.give))
        fixed = _fixed(roots, steps, constant)
        folded = tuple(t for t in fixed if t.op is not CONSTANT)
        arrays = tuple(t for t in fixed if t.op is CONSTANT)
        for kind, group in (("folded", folded), ("constant", arrays)):
            for i, t in enumerate(group):
                called.give(t, f"{kind}_{i}")
        copies = frozenset(roots_to_copy(roots, steps))
        return cls(
            tuple(inputs),
            tuple(roots),
            arrays,
            folded,
            tuple(steps),
            called.names,
            copies,
            plan(roots, steps, copies),
            least_memory,
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(s for s in self.steps if isinstance(s, Kernel))

    @property
    def flops(self) -> float:
        """Floating operations of all kernels (flop)."""
        return sum(k.flops for k in self.kernels)

    @property
    def bytes(self) -> int:
        """Traffic of all kernels (bytes)."""
        return sum(k.bytes for k in self.kernels)

    @property
    def peak_bytes(self) -> int:
        """Most memory of intermediates and results at once, as planned (bytes)."""
        return self.plan.peak_bytes

    @property
    def result_bytes(self) -> int:
        """Memory of the results (bytes)."""
        return sum(r.nbytes for r in self.roots)

    @property
    def workspace_bytes(self) -> int:
        """Most memory at once beside the results, as planned (bytes)."""
        return max(0, self.peak_bytes - self.result_bytes)

    @property
    def naive_peak_bytes(self) -> int:
        """The same when every intermediate is kept (bytes)."""
        return self.plan.naive_peak_bytes

    def __str__(self) -> str:
        return listing(self)

    def _repr_html_(self) -> str:
        return as_html(str(self))


class _Names:
    """Unique identifiers of terms."""

    def __init__(self) -> None:
        self.names: dict[Term, str] = {}
        self._taken = {"np", "program", "out"}

    def give(self, term: Term, wanted: str) -> str:
        """The name of ``term``: ``wanted``, changed if taken or no identifier."""
        if term in self.names:
            return self.names[term]
        stem = re.sub(r"\W+", "_", wanted).strip("_")
        if not stem.isidentifier() or keyword.iskeyword(stem):
            stem = f"x_{stem}"
        name = stem
        n = 1
        while name in self._taken:
            n += 1
            name = f"{stem}_{n}"
        self._taken.add(name)
        self.names[term] = name
        return name


def _constant(terms: Iterable[Term]) -> set[Term]:
    """The ``terms``, given arguments first, that depend on no input."""
    constant: set[Term] = set()
    for t in terms:
        if t.op is not INPUT and all(a in constant for a in t.args):
            constant.add(t)
    return constant


def _fixed(
    roots: Sequence[Term], steps: Sequence[Step], constant: set[Term]
) -> list[Term]:
    """The constants that steps read, bare numbers excepted, and that are roots."""
    read = (a for s in steps for a in s.term.args if not isinstance(a.dtype, Weak))
    return [t for t in dict.fromkeys((*read, *roots)) if t in constant]


def show_type(term: Term) -> str:
    """A type as people write it: ``512×3072 float32``."""
    return " ".join(filter(None, ("×".join(map(str, term.shape)), str(term.dtype))))


def show_bytes(n: float) -> str:
    """Bytes with a binary unit: ``6.0 MiB``."""
    if n < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB"):
        n /= 1024
        if n < 1024:
            return f"{n:.1f} {unit}"
    return f"{n / 1024:.1f} GiB"


def listing(program: Program) -> str:
    """A program as a table: a line a step, then its memory."""
    called = program.names
    lines = [(_call(t, called), "folded", show_type(t), "") for t in program.folded]
    for step in program.steps:
        kind, cost = "view", ""
        if isinstance(step, Kernel):
            kind, cost = step.kind, f"{step.flops:.3g} flop, {show_bytes(step.bytes)}"
            more = [called[r] for r in step.results[1:]]
            cost += f", with {', '.join(more)}" if more else ""
            over = program.plan.in_place.get(step.term)
            cost += f", in place of {called[over]}" if over is not None else ""
        lines.append((_call(step.term, called), kind, show_type(step.term), cost))
    wide = [max((len(cells[i]) for cells in lines), default=0) for i in range(3)]
    params = ", ".join(f"{called[t]}: {show_type(t)}" for t in program.inputs)
    peaks = show_bytes(program.peak_bytes), show_bytes(program.naive_peak_bytes)
    return "\n".join(
        [f"program({params})"]
        + [
            f"  {a:{wide[0]}}  {b:{wide[1]}}  {c:{wide[2]}}  {d}".rstrip()
            for a, b, c, d in lines
        ]
        + [f"  return {', '.join(called[r] for r in program.roots)}"]
        + [f"peak {peaks[0]}; {peaks[1]} with every intermediate kept"]
    )


def _call(term: Term, called: Mapping[Term, str]) -> str:
    op = cast(Op, term.op)
    if op is SCALAR:
        return f"{called[term]} = {term.attrs[0]!r}"
    parts = [_operand(a, called) for a in term.args]
    if op is KERNEL:
        return f"{called[term]} = {{{term.attrs[0]}}}({', '.join(parts)})"
    parts += [f"{n}={v}" for n, v in op.attr_dict(term).items()]
    return f"{called[term]} = {op.name}({', '.join(parts)})"


def _operand(term: Term, called: Mapping[Term, str]) -> str:
    if term in called:
        return called[term]
    return repr(term.attrs[0]) if term.op is SCALAR else term.op.name
