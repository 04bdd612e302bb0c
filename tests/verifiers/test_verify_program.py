"""Defects planted in a program are caught, each by its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import caught
from programs import program_of

from eqsat import ops
from eqsat.kernels.buffer_plan import BufferPlan, Slot
from eqsat.kernels.kernel import View
from eqsat.kernels.program import Program
from eqsat.kernels.verify import verify_program as verify
from eqsat.ops.transcendental import exp, tanh
from eqsat.ops.view import reshape
from eqsat.terms.op import Op

X, W = np.zeros((6, 8), np.float32), np.zeros((8, 8), np.float32)


def chain(x: Any, w: Any) -> Any:
    """A product, an element-wise op in place, a view, a row op, and two results."""
    h = tanh(x @ w)
    y = ops.softmax(reshape(h, (3, 16)))
    return y, exp(y)


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(chain, X, W)


def step(program: Program, name: str) -> Any:
    return next(s for s in program.steps if s.name.startswith(name))


def with_step(program: Program, old: Any, new: Any) -> Program:
    steps = tuple(new if s is old else s for s in program.steps)
    return replace(program, steps=steps)


def with_plan(program: Program, **changes: Any) -> Program:
    return replace(program, plan=replace(program.plan, **changes))


def with_slot(program: Program, i: int, **changes: Any) -> Program:
    slots = [*program.plan.slots]
    slots[i] = replace(slots[i], **changes)
    return with_plan(program, slots=tuple(slots))


def test_what_is_made_of_terms_breaks_no_rule(program: Program) -> None:
    assert len(program.kernels) > 3 and program.plan.in_place
    assert any(isinstance(s, View) for s in program.steps)
    verify(program, "extract")


def test_a_value_that_is_read_before_it_is_made(program: Program) -> None:
    first, second, *rest = program.steps
    broken = replace(program, steps=(second, first, *rest))
    with caught("extract", second.name, "made before"):
        verify(broken, "extract")


def test_a_step_that_is_missing(program: Program) -> None:
    broken = replace(program, steps=program.steps[1:])
    with caught("extract", program.steps[1].name, "made before"):
        verify(broken, "extract")


def test_a_value_that_is_made_twice(program: Program) -> None:
    first = program.steps[0]
    broken = replace(program, steps=(first, *program.steps))
    with caught("extract", first.name, "a value is made once"):
        verify(broken, "extract")


def test_a_root_that_nothing_makes(program: Program) -> None:
    last = program.roots[-1]
    kept = tuple(s for s in program.steps if s.term is not last)
    broken = replace(program, steps=kept)
    with caught("extract", "result 1", "a result is made"):
        verify(broken, "extract")


def test_a_term_that_is_made_of_itself(program: Program) -> None:
    old = step(program, "tanh")
    graph = old.term.graph
    graph_term = graph.node(Op.registry["exp"], (program.roots[-1],), (), X_TYPE)
    broken = with_step(program, old, replace(old, term=graph_term))
    with caught("extract", old.name, "made before"):
        verify(broken, "extract")


X_TYPE = np.dtype(np.float32), (6, 8)


def test_a_type_that_disagrees(program: Program) -> None:
    x = program.inputs[0]
    wide = np.dtype(np.float64), x.shape
    made = Program.of([x.graph.node(Op.registry["tanh"], (x,), (), wide)], (x,))
    with caught("extract", "tanh", "its type follows from its arguments"):
        verify(made, "extract")


def test_a_shape_that_no_type_rule_allows() -> None:
    program = program_of(lambda x, w: x @ w, X, W)
    (kernel,) = program.kernels
    x, _ = kernel.term.args
    term = x.graph.node(Op.registry["matmul"], (x, x), (), X_TYPE)
    wrong = replace(kernel, term=term, results=(term,), inputs=(x,))
    broken = with_step(program, kernel, wrong)
    with caught("extract", "matmul", "its type rule holds"):
        verify(replace(broken, roots=(term,)), "extract")


def test_a_kernel_of_an_unknown_kind(program: Program) -> None:
    old = step(program, "softmax")
    with caught("extract", old.name, "its kind is known"):
        verify(with_step(program, old, replace(old, kind="magic")), "extract")


def test_a_kernel_that_hides_an_input(program: Program) -> None:
    old = step(program, "matmul")
    broken = with_step(program, old, replace(old, inputs=old.inputs[:1]))
    with caught("extract", old.name, "the arrays among its arguments"):
        verify(broken, "extract")


def test_a_view_of_something_else(program: Program) -> None:
    old = next(s for s in program.steps if isinstance(s, View))
    broken = with_step(program, old, replace(old, base=program.inputs[0]))
    with caught("extract", old.name, "it shows what its argument does"):
        verify(broken, "extract")


def test_an_input_among_what_is_folded(program: Program) -> None:
    broken = replace(program, folded=(program.roots[0],))
    with caught("extract", "", "a value is made once"):
        verify(broken, "extract")
    alone = replace(program_of(lambda x: tanh(x), X), steps=(), copies=frozenset())
    broken = replace(alone, folded=alone.roots, plan=EMPTY)
    with caught("extract", "input", "what is folded reads no input"):
        verify(broken, "extract")


EMPTY = BufferPlan((), {}, {}, {}, 0, 0)


def test_two_values_of_one_name(program: Program) -> None:
    names = dict(program.names)
    a, b, *_ = names
    names[a] = names[b]
    with caught("extract", "names", "a name stands for one value"):
        verify(replace(program, names=names), "extract")


# -- memory ----------------------------------------------------------------------------


def test_a_buffer_that_is_reused_while_it_is_live(program: Program) -> None:
    """The product and the softmax of what follows take turns in one slot."""
    plan = program.plan
    y, z = program.roots
    i, j = plan.slot_of[y], plan.slot_of[z]
    assert i != j
    slots = [*plan.slots]
    slots[i] = Slot((y, z), y.nbytes, slots[i].first, slots[j].last)
    broken = with_plan(program, slots=tuple(slots), slot_of={**plan.slot_of, z: i})
    rule = f"not written while {program.names[y]} is live"
    with caught("extract", program.names[z], rule):
        verify(broken, "extract")


def test_a_slot_that_ends_too_early(program: Program) -> None:
    y = program.roots[0]
    i = program.plan.slot_of[y]
    broken = with_slot(program, i, last=program.plan.slots[i].last - 1)
    with caught("extract", program.names[y], "its slot lasts while it is live"):
        verify(broken, "extract")


def test_a_slot_that_is_too_small(program: Program) -> None:
    y = program.roots[0]
    broken = with_slot(program, program.plan.slot_of[y], nbytes=y.nbytes - 4)
    with caught("extract", program.names[y], "its slot holds it"):
        verify(broken, "extract")


def test_a_value_without_a_slot(program: Program) -> None:
    y = program.roots[0]
    known = {t: i for t, i in program.plan.slot_of.items() if t is not y}
    with caught("extract", program.names[y], "it has a slot"):
        verify(with_plan(program, slot_of=known), "extract")


def test_what_is_written_in_place_but_read_later() -> None:
    program = program_of(lambda x: (lambda h: (tanh(h), h * h))(x @ x.mT), X)
    h = program.kernels[0].term
    early = next(k for k in program.kernels if k.term.op.name == "tanh")
    plan = program.plan
    i = plan.slot_of[h]
    slots = [*plan.slots]
    values = (*slots[i].values, early.term)
    slots[i] = replace(slots[i], values=values, last=len(program.steps))
    broken = with_plan(
        program,
        slots=tuple(slots),
        slot_of={**plan.slot_of, early.term: i},
        in_place={**plan.in_place, early.term: h},
    )
    with caught("extract", early.name, "is live in its slot"):
        verify(broken, "extract")


def test_a_row_op_that_overwrites_what_it_reads(program: Program) -> None:
    softmax = step(program, "softmax")
    broken = with_plan(
        program, in_place={**program.plan.in_place, softmax.term: softmax.inputs[0]}
    )
    with caught("extract", softmax.name, "what overwrites is pointwise"):
        verify(broken, "extract")


def test_a_result_that_shows_an_input() -> None:
    program = program_of(lambda x: reshape(x, (48,)), X)
    assert program.copies == {0}
    with caught("extract", "result 0", "a fresh array of its own"):
        verify(replace(program, copies=frozenset()), "extract")


def test_two_results_in_one_array() -> None:
    program = program_of(lambda x: (tanh(x), reshape(tanh(x), (48,))), X)
    assert program.copies == {1}
    with caught("extract", "result 1", "a fresh array of its own"):
        verify(replace(program, copies=frozenset()), "extract")


def test_a_peak_that_is_too_low(program: Program) -> None:
    broken = with_plan(program, peak_bytes=program.peak_bytes - 1)
    with caught("extract", "memory plan", "the peak is what is alive at once"):
        verify(broken, "extract")
