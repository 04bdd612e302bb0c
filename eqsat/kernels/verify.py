"""What must hold of a program: its kernels and views, and the plan of its memory.

Each function is a rule, or a few that are checked together; see
:mod:`eqsat.support.verification`. Lifetimes are found anew, not taken from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import cast

from eqsat.kernels.buffer_plan import Slot, bases_of
from eqsat.kernels.fusion_state import ATTENTION, CONTRACT, LIBRARY, MAP, ROW
from eqsat.kernels.kernel import Kernel, View, inner
from eqsat.kernels.program import Program
from eqsat.ops import VIEWS, reshape_op
from eqsat.support import Broken, EqsatError, cached_property, counted, refuse
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, Type, Weak, postorder
from eqsat.trace import RESULT, KernelBody


def verify_program(program: Program, stage: str) -> None:
    """Raise :class:`VerifyError` where ``program``, made by ``stage``, breaks a
    rule."""
    lives = Lives(program)
    rules = (
        _reads(program),
        _kernels(program),
        _views(program),
        _types(program),
        _folded(program),
        _names(program),
        _slots(program, lives),
        _turns(program, lives),
        _in_place(program, lives),
        _copies(program, lives),
        _peak(program, lives),
    )
    refuse(stage, chain.from_iterable(rules))


class Lives:
    """When the values of a program are written and read; steps are numbered, and the
    last number is of the return."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def base(self) -> dict[Term, Term]:
        """Views to what they show."""
        return bases_of(self.program.steps)

    @cached_property
    def written(self) -> dict[Term, int]:
        """Results of kernels, and the step that writes each."""
        steps = enumerate(self.program.steps)
        return {r: i for i, s in steps if isinstance(s, Kernel) for r in s.results}

    @cached_property
    def read(self) -> dict[Term, int]:
        """The last step that reads each value or a view of it."""
        found = {t: i for t, i in self.written.items()}
        for i, s in enumerate(self.program.steps):
            for a in s.term.args:
                found[self.base.get(a, a)] = i
        for r in self.program.roots:
            found[self.base.get(r, r)] = len(self.program.steps)
        return found


def _reads(program: Program) -> Iterator[Broken]:
    """What a step reads is there before it, and no value is made twice."""
    there = {*program.inputs, *program.constants, *program.folded}
    rule = "what it reads is an input, a constant or made before"
    for s in program.steps:
        args = [] if s.term.op is RESULT else s.term.args
        for a in args:
            if a not in there and a.op is not SCALAR and not isinstance(a.dtype, Weak):
                yield Broken(s.name, rule, a, sorted(program.names[t] for t in there))
        for r in s.results if isinstance(s, Kernel) else (s.term,):
            if r in there:
                yield Broken(s.name, "a value is made once", r, "not there yet")
            there.add(r)
    for i, r in enumerate(program.roots):
        if r not in there and r.op is not SCALAR:
            yield Broken(f"result {i}", "a result is made", r, "there after all steps")


_KINDS = (MAP, ROW, CONTRACT, ATTENTION, LIBRARY)


def _kernels(program: Program) -> Iterator[Broken]:
    """A kernel says what it reads and writes."""
    for k in program.kernels:
        if k.kind not in _KINDS:
            yield Broken(k.name, "its kind is known", k.kind, _KINDS)
        arrays = [a for a in k.term.args if not isinstance(a.dtype, Weak)]
        if k.inputs != tuple(dict.fromkeys(arrays)):
            rule = "its inputs are the arrays among its arguments"
            yield Broken(k.name, rule, k.inputs, arrays)
        if k.results == (k.term,):
            continue
        body = k.term.attrs[0] if k.term.attrs else None
        count = len(body.results) if isinstance(body, KernelBody) else 1
        places = [r.attrs[0] for r in k.results if r.args == (k.term,)]
        if not set(places) <= set(range(count)) or len(places) < len(k.results):
            rule = "its results are those of its body"
            yield Broken(
                k.name, rule, k.results, f"{counted(count, 'result')} of {k.term}"
            )


def _views(program: Program) -> Iterator[Broken]:
    """A view shows a value in memory, by an op of views."""
    shown: dict[Term, Term] = {}
    for s in program.steps:
        if not isinstance(s, View):
            continue
        if s.term.op not in VIEWS:
            yield Broken(
                s.name,
                "its op is a view",
                s.term.op.name,
                sorted(o.name for o in VIEWS),
            )
        source = s.term.args[0]
        base = shown.get(source, source)
        if s.base is not base:
            yield Broken(s.name, "it shows what its argument does", s.base, base)
        shown[s.term] = base


def _types(program: Program) -> Iterator[Broken]:
    """The type of each term follows from those of its arguments: of steps, of the
    bodies of kernels, and of what is folded."""
    for s in program.steps:
        yield from _typed(s.name, [s.term])
        if isinstance(s, Kernel):
            for r, body in zip(s.results, s.bodies, strict=True):
                if r.type != body.type and not isinstance(body.dtype, Weak):
                    rule = "a result has the type of its body"
                    yield Broken(s.name, rule, _said(r.type), _said(body.type))
            yield from _typed(s.name, inner(s.bodies, s.term.args))
    yield from _typed("folded", postorder(program.folded))


def _typed(name: str, terms: Sequence[Term] | Iterator[Term]) -> Iterator[Broken]:
    for t in terms:
        op = cast(Op, t.op)
        if op.kind == "leaf":
            continue
        try:
            if op is RESULT:
                body = cast(KernelBody, t.args[0].attrs[0])
                expected = body.types[cast(int, t.attrs[0])]
            else:
                types = [a.type for a in t.args]
                expected = op.type_rule.infer(op.name, types, op.attr_dict(t))
        except EqsatError as error:
            yield Broken(f"{name}: {t}", "its type rule holds", error, _said(t.type))
            continue
        if t.type != expected:
            rule = "its type follows from its arguments"
            yield Broken(f"{name}: {t}", rule, _said(t.type), _said(expected))


def _said(type_: Type) -> str:
    return f"{type_[0]} {type_[1]}"


def _folded(program: Program) -> Iterator[Broken]:
    """What is folded depends on no input; inputs and constants are leaves."""
    for t in postorder(program.folded):
        if t.op is INPUT:
            yield Broken(repr(t), "what is folded reads no input", t, "constants")
    for op, group in ((INPUT, program.inputs), (CONSTANT, program.constants)):
        for t in group:
            if t.op is not op:
                yield Broken(repr(t), f"it is a leaf: {op.name}", t.op.name, op.name)
    if len(set(program.inputs)) < len(program.inputs):
        yield Broken("inputs", "each is given once", program.inputs, "distinct ones")


def _names(program: Program) -> Iterator[Broken]:
    """All that steps name has a name of its own."""
    named = [*program.inputs, *program.constants, *program.folded]
    for s in program.steps:
        named += s.results if isinstance(s, Kernel) else [s.term]
    for t in named:
        if t not in program.names:
            yield Broken(repr(t), "it has a name", None, "an identifier")
    names = list(program.names.values())
    if len(set(names)) < len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        yield Broken("names", "a name stands for one value", twice, "distinct names")


# -- memory ----------------------------------------------------------------------------


def _slots(program: Program, lives: Lives) -> Iterator[Broken]:
    """Each result of a kernel has a slot that is large enough and lasts long enough."""
    plan, called = program.plan, program.names
    for t, first in lives.written.items():
        i = plan.slot_of.get(t, -1)
        if i not in range(len(plan.slots)) or t not in plan.slots[i].values:
            yield Broken(called[t], "it has a slot that holds it", i, len(plan.slots))
            continue
        slot, last = plan.slots[i], lives.read[t]
        if slot.nbytes < t.nbytes:
            yield Broken(called[t], "its slot holds it", slot.nbytes, t.nbytes)
        if slot.first > first or slot.last < last:
            rule = "its slot lasts while it is live"
            yield Broken(called[t], rule, (slot.first, slot.last), (first, last))
        if plan.last_use.get(t) != last:
            rule = "its last use is the last step that reads it"
            yield Broken(called[t], rule, plan.last_use.get(t), last)


def _turns(program: Program, lives: Lives) -> Iterator[Broken]:
    """No value of a slot is written while the one before it is live, but in place."""
    called = program.names
    for slot in program.plan.slots:
        for earlier, later in pairwise(_in_turn(slot, lives)):
            end, start = lives.read[earlier], lives.written[later]
            over = program.plan.in_place.get(later)
            same = over is not None and lives.base.get(over, over) is earlier
            if start < end or (start == end and not same):
                rule = f"it is not written while {called[earlier]} is live in its slot"
                yield Broken(called[later], rule, f"step {start}", f"after step {end}")


def _in_turn(slot: Slot, lives: Lives) -> list[Term]:
    known = [t for t in slot.values if t in lives.written]
    return sorted(known, key=lives.written.__getitem__)


def _in_place(program: Program, lives: Lives) -> Iterator[Broken]:
    """A kernel that overwrites what it reads goes through both in one order."""
    kernels = {k.term: k for k in program.kernels}
    for t, over in program.plan.in_place.items():
        k = kernels.get(t)
        if k is None or over not in k.inputs:
            rule = "what a kernel overwrites is one of its inputs"
            yield Broken(repr(t), rule, over, () if k is None else k.inputs)
            continue
        base = lives.base.get(over, over)
        if not k.pointwise or k.op.lowerings:
            yield Broken(k.name, "what overwrites is pointwise", k.kind, MAP)
        if over.type != t.type:
            rule = "it has the type of what it overwrites"
            yield Broken(k.name, rule, _said(t.type), _said(over.type))
        if lives.read[base] != lives.written[t]:
            rule = "nothing reads later what it overwrites"
            yield Broken(k.name, rule, f"step {lives.read[base]}", lives.written[t])
        if sum(lives.base.get(a, a) is base for a in k.inputs) > 1:
            yield Broken(k.name, "it reads what it overwrites in one order", over, base)
        view = over
        while view is not base:
            if view.op is not reshape_op:
                rule = "it reads what it overwrites in one order"
                yield Broken(k.name, rule, view, "reshapes alone")
                break
            view = view.args[0]


def _copies(program: Program, lives: Lives) -> Iterator[Broken]:
    """A result that is not copied is a whole fresh array that no other one shows."""
    owner: dict[Term, int] = {}
    for i, r in enumerate(program.roots):
        if i in program.copies:
            continue
        base = lives.base.get(r, r)
        rule = "a result that is not copied is a fresh array of its own"
        if base not in lives.written:
            yield Broken(f"result {i}", rule, base, "what a kernel writes")
        elif base in owner:
            yield Broken(f"result {i}", rule, f"that of result {owner[base]}", base)
        elif r.size != base.size:
            yield Broken(f"result {i}", rule, f"{r.size} of {base.size}", "all of it")
        owner[base] = i


def _peak(program: Program, lives: Lives) -> Iterator[Broken]:
    """The peak is what slots and copies take at once."""
    end = len(program.steps)
    alive = [0] * (end + 1)
    for slot in program.plan.slots:
        for i in range(max(slot.first, 0), min(slot.last, end) + 1):
            alive[i] += slot.nbytes
    alive[end] += sum(program.roots[i].nbytes for i in program.copies)
    if program.plan.peak_bytes < max(alive):
        rule = "the peak is what is alive at once"
        yield Broken("memory plan", rule, program.plan.peak_bytes, max(alive))
