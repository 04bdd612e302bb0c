"""Defects planted in a native plan are caught, each by its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import caught
from programs import program_of
from sizes import examples

import eqsat as eq
from eqsat import ops
from eqsat.backends.loop_ir.index_maps import (
    Affine,
    Layout,
    LoopVar,
)
from eqsat.backends.loop_ir.nest import (
    Accumulate,
    Buffer,
    Load,
    Nest,
    Pass,
    Store,
    Within,
)
from eqsat.backends.loop_ir.pieces import (
    Loops,
    Product,
)
from eqsat.backends.native.machine.memory import MemoryRef
from eqsat.backends.native.machine.processor import host
from eqsat.backends.native.machine.tuning import COMMON
from eqsat.backends.native.plan.buffers import TEMPORARY, Place, Places
from eqsat.backends.native.plan.call_table import calls_of
from eqsat.backends.native.plan.groups import Group
from eqsat.backends.native.plan.steps import Layered
from eqsat.backends.native.plan.verify import _Spans, verify_plan
from eqsat.backends.native.plan.verify_code import verify_arena, verify_table
from eqsat.backends.native.products import Mirroring, gemm_plan
from eqsat.backends.native.writing.pointers import Arena, arena_of
from eqsat.kernels.kernel import packed
from eqsat.kernels.program import Program
from eqsat.ops.transcendental import tanh

ARRAYS = tuple(
    np.zeros(s, np.float32) for s in ((64, 32), (32, 48), (48,), (48, 16), (5, 3))
)
SCRATCH = -1


def network(x: Any, w: Any, b: Any, w2: Any, t: Any) -> Any:
    """A product with what follows, a row op, views, an op in place, taken rows."""
    a = eq.softmax(eq.gelu(x @ w + b), axis=0)
    return np.sum(a @ w2, axis=1), np.tanh(a.T * 2)[:, ::-1], np.take(t, [1, 0], axis=0)


@pytest.fixture(scope="module")
def program() -> Program:
    return eq.jit(network).lower(*ARRAYS).program


def planned(program: Program, threads: int = 2) -> Layered:
    """A plan that a test may change."""
    packed_ones = [Layout(packed(t.shape)) for t in program.inputs]
    return Layered(program, Places(program, packed_ones), host(), threads)


def group(layered: Layered, kind: type) -> int:
    """The first group that starts with a piece of ``kind``."""
    return next(
        i
        for i, g in enumerate(layered.parts)
        if isinstance(g, Group) and isinstance(g.steps[0].piece, kind)
    )


def with_step(layered: Layered, i: int, n: int = 0, **changes: Any) -> Layered:
    """The plan with changes of a step of a group."""
    g = layered.parts[i]
    assert isinstance(g, Group)
    steps = [*g.steps]
    steps[n] = replace(steps[n], **changes)
    layered.parts[i] = replace(g, steps=tuple(steps))
    return layered


def memory(layered: Layered, i: int, n: int = 0) -> list[MemoryRef]:
    g = layered.parts[i]
    assert isinstance(g, Group)
    return [*g.steps[n].memory]


def with_nest(
    layered: Layered, i: int, change: Callable[[Any], Any], n: int = 0
) -> Layered:
    g = layered.parts[i]
    assert isinstance(g, Group)
    piece = g.steps[n].piece
    assert isinstance(piece, Loops)
    return with_step(layered, i, n, piece=replace(piece, nest=change(piece.nest)))


@pytest.fixture
def layered(program: Program) -> Layered:
    return planned(program)


def refused(layered: Layered, name: str, rule: str) -> None:
    with caught("native plan", name, rule):
        verify_plan(layered)


def test_what_is_planned_breaks_no_rule(program: Program) -> None:
    for threads in (1, 2, 5):
        layered = planned(program, threads)
        verify_plan(layered)
        kinds = {
            type(s.piece)
            for g in layered.parts
            if isinstance(g, Group)
            for s in g.steps
        }
        assert kinds >= {Loops, Product}


def test_values_without_elements_lie_anywhere() -> None:
    """What has no bytes of scratch memory starts where something else does."""

    def f(x: Any, w: Any, e: Any, s: Any, v: Any) -> Any:
        return eq.gelu(ops.rms_norm(e, s, 1.0) @ v), np.einsum("...k,kn->...n", x, w)

    shapes = (2, 2), (2, 2), (2, 5, 0), (0,), (0, 0)
    program = program_of(f, *(np.zeros(s, np.float16) for s in shapes))
    layered, _, a = arena(program)
    verify_plan(layered)
    assert any(n == 0 for n in (s.nbytes for s in program.plan.slots)) and a.homes


# -- joins -----------------------------------------------------------------------------


@pytest.fixture
def joined() -> Layered:
    """A join of two parts that kernels write there, and of one that is copied."""

    def f(x: Any, w: Any) -> Any:
        a = np.sort(x @ w, axis=0)
        return np.sort(np.concatenate([a, x, np.sort(a @ w, axis=1)]), axis=0)

    shapes = (16, 32), (32, 32)
    layered = planned(program_of(f, *(np.zeros(s, np.float32) for s in shapes)))
    assert len(layered.places.parts) == 2
    verify_plan(layered)
    return layered


def test_a_part_that_lies_elsewhere(joined: Layered) -> None:
    part, (_, start) = max(joined.places.parts.items(), key=lambda item: item[1][1])
    m = joined.places.of[part].memory
    moved(joined, part, MemoryRef(m.buffer, m.byte - start // 2))
    with pytest.raises(eq.VerifyError):
        verify_plan(joined)


def test_a_part_that_is_not_copied(joined: Layered) -> None:
    name = next(k.name for k, _ in joined.ends if k.op.name == "concatenate")
    ends = dict((k.name, end) for k, end in joined.ends)
    del joined.parts[ends[name] - 1]
    joined.ends = [(k, end - (end >= ends[name])) for k, end in joined.ends]
    refused(joined, name, "each part is written")


def test_parts_that_overlap(joined: Layered) -> None:
    (first, (join, _)), (other, _) = joined.places.parts.items()
    joined.places.parts[other] = join, 64
    home = joined.places.of[join].memory
    moved(joined, other, MemoryRef(home.buffer, home.byte + 64))
    with pytest.raises(eq.VerifyError, match=r"apart|places"):
        verify_plan(joined)
    assert first is not other


# -- places ----------------------------------------------------------------------------


def scratch_of(layered: Layered) -> list[Any]:
    """The values that lie in scratch memory, in the order of their places."""
    of = layered.places.of
    made = [r for k in layered.places.program.kernels for r in k.results]
    held = [r for r in made if of[r].memory.buffer == SCRATCH]
    return sorted(held, key=lambda r: of[r].memory.byte)


def moved(layered: Layered, value: Any, m: MemoryRef) -> Layered:
    layered.places.of[value] = Place(m, layered.places.of[value].layout)
    return layered


def test_a_buffer_that_is_reused_while_it_is_live() -> None:
    program = program_of(lambda x, w: (lambda h: tanh(h) + h)(x @ w), *ARRAYS[:2])
    layered = planned(program)
    product = program.kernels[0].term
    other = program.kernels[1].term
    moved(layered, other, layered.places.of[product].memory)
    refused(layered, program.kernels[1].name, "over what its kernel reads")


def test_a_value_that_is_overwritten_before_it_is_read() -> None:
    program = program_of(
        lambda x, w: (lambda h: h + ops.softmax(tanh(h)))(x @ w), *ARRAYS[:2]
    )
    layered = planned(program)
    product, _, softmax, add = program.kernels
    moved(layered, softmax.term, layered.places.of[product.term].memory)
    refused(layered, add.name, "still lies in its place")


def test_parts_of_scratch_memory_that_overlap(layered: Layered) -> None:
    first, second, *_ = scratch_of(layered)
    start = layered.places.of[first].memory.byte
    moved(layered, second, MemoryRef(SCRATCH, start + 64))
    refused(layered, "scratch memory", "are apart")


def test_a_part_of_scratch_memory_that_is_not_aligned(layered: Layered) -> None:
    last = scratch_of(layered)[-1]
    moved(layered, last, MemoryRef(SCRATCH, layered.places.of[last].memory.byte + 4))
    refused(layered, "scratch memory", "starts on a cache line")


def test_a_part_past_the_end_of_scratch_memory(layered: Layered) -> None:
    layered.places.scratch_bytes -= 64
    refused(layered, "scratch memory", "is inside of it")


def test_a_constant_of_another_type(layered: Layered) -> None:
    layered.places.constants[0] = layered.places.constants[0].astype(np.int32)
    refused(layered, "constant", "its array has its type")


def test_a_constant_that_does_not_exist(layered: Layered) -> None:
    layered.places.constants.clear()
    refused(layered, "constant", "its pointer exists")


def test_a_result_that_is_not_where_it_is_returned(program: Program) -> None:
    layered = planned(program)
    root = program.roots[0]
    moved(layered, root, MemoryRef(SCRATCH, layered.places.scratch_bytes))
    layered.places.scratch(root.nbytes)
    refused(layered, "result 0", "it is returned")


# -- steps -----------------------------------------------------------------------------


def test_steps_in_another_order(layered: Layered) -> None:
    layered.parts[0], layered.parts[1] = layered.parts[1], layered.parts[0]
    refused(layered, "step 0", "was written by a step before")


def test_a_result_that_no_step_writes(program: Program) -> None:
    layered = planned(program)
    assert program.roots[1] in {program.roots[i] for i in layered.places.copied}
    layered.parts.pop()
    refused(layered, "result 1", "it is written")


def test_a_step_of_another_kernel(layered: Layered) -> None:
    at = group(layered, Loops)
    read, written = memory(layered, at)
    other = MemoryRef(layered.places.first_output)
    with_step(layered, at, memory=(read, other))
    refused(layered, "softmax", "its result is written")
    assert written in [layered.places.of[t].memory for t in scratch_of(layered)]


def test_a_step_that_reads_what_is_no_argument(layered: Layered) -> None:
    at = group(layered, Loops)
    _, written = memory(layered, at)
    with_step(layered, at, memory=(MemoryRef(0), written))
    refused(layered, "softmax", "reads arguments of its kernel")


def test_an_operand_without_memory(program: Program) -> None:
    layered = planned(program)
    at = group(layered, Product)
    with_step(layered, at, 1, memory=tuple(memory(layered, at, 1)[:2]))
    with pytest.raises((eq.VerifyError, IndexError)):
        verify_plan(layered)
    with_step(layered, at, 1, memory=(*memory(planned(program), at, 1), MemoryRef(0)))
    refused(layered, "step 1", "each operand has memory")


def test_memory_that_does_not_exist(layered: Layered) -> None:
    last = len(layered.parts) - 2
    refs = memory(layered, last)
    refs[0] = MemoryRef(99)
    with_step(layered, last, memory=tuple(refs))
    refused(layered, "step 0", "its memory exists")


def test_a_loop_past_the_end_of_its_memory(layered: Layered) -> None:
    at = group(layered, Loops)

    def later(s: Any) -> Any:
        return replace(s, at=s.at + Affine(1)) if isinstance(s, Store) else s

    with_nest(layered, at, lambda nest: nest.changed(later))
    refused(layered, "softmax", "inside of its memory")


def test_a_product_past_the_end_of_its_memory(layered: Layered) -> None:
    at = group(layered, Product)
    x, *others = memory(layered, at)
    with_step(layered, at, memory=(replace(x, byte=4), *others))
    refused(layered, "step 0, left operand", "inside of its memory")


def test_an_unknown_reduction_after_planning(layered: Layered) -> None:
    at = group(layered, Loops)

    def unknown(s: Any) -> Any:
        return replace(s, op="median") if isinstance(s, Accumulate) else s

    with_nest(layered, at, lambda nest: nest.changed(unknown))
    refused(layered, "softmax", "its reduction is known")


def test_what_is_overwritten_before_it_is_read() -> None:
    program = program_of(lambda x, w: tanh(x @ w), *ARRAYS[:2])
    assert program.plan.in_place
    layered = planned(program, 1)
    at = next(
        i
        for i, g in enumerate(layered.parts)
        if isinstance(g, Group) and isinstance(g.steps[0].piece, Loops)
    )
    g = layered.parts[at]
    assert isinstance(g, Group) and isinstance(g.steps[0].piece, Loops)
    assert g.steps[0].piece.nest.aliased == {0, 1}

    def backwards(s: Any) -> Any:
        if not isinstance(s, Load):
            return s
        last = sum(c * (v.size - 1) for v, c in s.at.terms)
        return replace(s, at=s.at.times(-1) + Affine(last))

    with_nest(layered, at, lambda nest: nest.changed(backwards))
    refused(layered, "tanh", "is read where it is written")
    layered = with_nest(
        planned(program, 1), at, lambda nest: replace(nest, aliased=frozenset())
    )
    refused(layered, "tanh", "one memory are known to be")


def test_what_is_read_beside_the_place_that_is_written() -> None:
    """A part of the result that an index reads, and the other part that is written."""

    def f(x: Any) -> Any:
        made = ~x
        return np.concatenate([made, np.maximum(made[[0]], 5)])

    layered = planned(eq.jit(f).lower(np.array([4])).program, 1)
    verify_plan(layered)
    at = len(layered.parts) - 1

    def further(s: Any) -> Any:
        return replace(s, high=2) if isinstance(s, Within) else s

    with_nest(layered, at, lambda nest: nest.changed(further))
    refused(layered, "take", "is read where it is written")


# -- groups ----------------------------------------------------------------------------


def product_group(layered: Layered) -> tuple[int, Group]:
    at = group(layered, Product)
    g = layered.parts[at]
    assert isinstance(g, Group)
    return at, g


def test_rows_that_are_not_those_of_the_product(layered: Layered) -> None:
    at, g = product_group(layered)
    layered.parts[at] = replace(g, rows=g.rows + 1)
    refused(layered, "linear", "its rows are those of its product")


def test_threads_that_share_nothing(layered: Layered) -> None:
    at, g = product_group(layered)
    layered.parts[at] = replace(g, panel=0)
    refused(layered, "linear", "threads share parts of rows")


def test_what_follows_a_product_in_other_rows(layered: Layered) -> None:
    at, g = product_group(layered)
    softmax = layered.parts[group(layered, Loops)]
    assert isinstance(softmax, Group)
    layered.parts[at] = replace(g, steps=(*g.steps, softmax.steps[0]))
    refused(layered, "linear", "")


def test_steps_without_rows_in_one_group(layered: Layered) -> None:
    at = group(layered, Loops)
    g = layered.parts[at]
    assert isinstance(g, Group)
    layered.parts[at] = replace(g, steps=g.steps * 2)
    refused(layered, "softmax", "a group without rows has one step")


def test_memory_of_a_thread_that_is_too_small(layered: Layered) -> None:
    at, g = product_group(layered)
    (m, size), *_ = g.private
    layered.parts[at] = replace(g, private=((m, size - 4),))
    refused(layered, "linear", "it holds all rows")


def test_memory_of_a_thread_that_two_groups_use(layered: Layered) -> None:
    at, g = product_group(layered)
    layered.parts[at] = replace(g, private=g.private * 2)
    refused(layered, "linear", "one group uses it")


def blurred(x: Any) -> Any:
    """Nests that run plane by plane."""
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    rows = p[:, :-2] + p[:, 1:-1] + p[:, 2:]
    return rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]


def planes_group() -> tuple[Layered, Group]:
    program = eq.jit(blurred).lower(np.ones((64, 14, 15), np.float32)).program
    layered = planned(program)
    verify_plan(layered)
    (g,) = layered.parts
    assert isinstance(g, Group) and g.private
    return layered, g


def test_nests_in_other_planes() -> None:
    layered, g = planes_group()
    layered.parts[0] = replace(g, rows=g.rows // 2 + 1)
    refused(layered, "", "its nests go plane by plane")


def test_a_nest_that_reads_the_next_plane() -> None:
    layered, g = planes_group()
    last = len(g.steps) - 1

    def further(nest: Nest) -> Nest:
        read = [i for i, b in enumerate(nest.buffers) if not b.written]
        return nest.changed(
            lambda s: (
                replace(s, at=s.at + Affine(1))
                if isinstance(s, Load) and s.buffer in read
                else s
            )
        )

    refused(with_nest(layered, 0, further, last), "", "its nests go plane by plane")


def test_planes_of_another_size_in_the_memory_of_a_thread() -> None:
    layered, g = planes_group()
    (m, size), *others = g.private
    layered.parts[0] = replace(g, private=((m, size + 64), *others))
    refused(layered, "", "a thread's own memory holds planes")


# -- what the writer makes of a plan ---------------------------------------------------


def arena(program: Program) -> tuple[Layered, list[Group], Arena]:
    layered = planned(program)
    groups = [g for g in layered.parts if isinstance(g, Group)]
    return layered, groups, arena_of(groups, layered)


def test_memory_of_threads(program: Program) -> None:
    layered, groups, a = arena(program)
    start, each, whole = a.thread_start, a.thread_bytes, a.bytes
    verify_arena(layered, groups, a.homes, (start, each, whole))
    with caught("native program", "memory of threads", "behind the scratch memory"):
        verify_arena(layered, groups, a.homes, (0, each, whole))
    with caught("native program", "memory of a thread", "it holds a group's"):
        verify_arena(layered, groups, a.homes, (start, 64, whole))
    with caught("native program", "arena", "memory of all threads"):
        verify_arena(layered, groups, a.homes, (start, each, whole - 64))


def test_memory_between_kernels() -> None:
    """A temporary that several groups use lies in scratch memory, apart from others."""
    x = np.zeros(200_000, np.float32)
    program = program_of(lambda x: ops.sum(x), x)
    layered, groups, a = arena(program)
    assert a.homes
    sizes = a.thread_start, a.thread_bytes, a.bytes
    verify_arena(layered, groups, a.homes, sizes)
    (m, *_), first = [*a.homes], layered.places.noted()
    with caught("native program", "byte", "memory in between lies somewhere"):
        verify_arena(layered, groups, {}, sizes)
    with caught("native program", "byte", "are apart"):
        verify_arena(layered, groups, {**a.homes, m: first}, sizes)
    assert m.buffer == TEMPORARY


def test_a_row_of_the_table_that_calls_something_else() -> None:
    def deep(x: Any, w: Any) -> Any:
        for _ in range(COMMON.written_groups):
            x = ops.softmax(x @ w, axis=0)
        return x

    arrays = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
    layered = planned(program_of(deep, *arrays))
    groups = [g for g in layered.parts if isinstance(g, Group)]
    assert len(groups) > COMMON.written_groups
    distinct, calls = calls_of(groups, layered.host, lambda g: g.seconds)
    verify_table(groups, distinct, calls, layered.host)
    with caught("call table", "row 3", "its function exists"):
        verify_table(
            groups, distinct, changed(calls, 3, kind=len(distinct)), layered.host
        )
    with caught("call table", "row 3", "its function has its"):
        other = (calls[3].kind + 1) % len(distinct)
        verify_table(groups, distinct, changed(calls, 3, kind=other), layered.host)
    turned = calls[4].memory[::-1]
    with caught("call table", "row 4", "its operands lie there"):
        verify_table(groups, distinct, changed(calls, 4, memory=turned), layered.host)
    with caught("call table", "row 4", "it has its units"):
        more = changed(calls, 4, units=calls[4].units + 1)
        verify_table(groups, distinct, more, layered.host)
    with caught("call table", "table", "each group has a row"):
        verify_table(groups, distinct, calls[:-1], layered.host)
    first = replace(distinct[calls[0].kind], panel=7)
    with caught("call table", "row 0", "shares out its rows"):
        verify_table(groups, [first, *distinct[1:]], calls, layered.host)


def test_nests_of_more_or_fewer_rows_are_one_function() -> None:
    """And so are long loops, and nests that read or write other parts of arrays."""

    def parts(x: Any, y: Any) -> Any:
        rows = [x[i : i + 3 + i, :37] * 2 for i in range(0, 40, 2)]
        runs = [np.exp(y[: 20000 + 64 * i]) for i in range(20)]
        return [*rows, *runs]

    arrays = np.zeros((90, 40), np.float32), np.zeros(40000, np.float32)
    layered = planned(program_of(parts, *arrays))
    groups = [g for g in layered.parts if isinstance(g, Group)]
    assert len(groups) >= 40
    distinct, calls = calls_of(groups, layered.host, lambda g: None)
    verify_table(groups, distinct, calls, layered.host)
    assert len(distinct) == 2
    assert len({c.units for c in calls}) >= 30


def changed(calls: list[Any], i: int, **fields: Any) -> list[Any]:
    return [*calls[:i], replace(calls[i], **fields), *calls[i + 1 :]]


def test_half_a_product_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_plan, "is_better", lambda host: True)
    x = np.zeros((1000, 2000), np.float32)  # half of it pays on every processor
    program = program_of(lambda x: x @ x.T, x)
    layered = planned(program)
    verify_plan(layered)
    at = group(layered, Mirroring)
    layered.parts[at] = layered.parts[at - 1]
    rule = "the rest of half a product is written after it"
    refused(layered, "byte 0 of buffer 1", rule)


_terms = st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 30)), max_size=3)
_places = st.tuples(st.integers(0, 40), _terms, st.integers(0, 9))


def spans_of(places: list[Any], size: int) -> tuple[_Spans, list[Load], list[Any]]:
    """Accesses at an offset and terms, each of memory that starts somewhere in one
    block, and the bytes that each touches."""
    dtype = np.dtype(f"u{size}")
    statements, touched, memory = [], [], []
    for i, (offset, terms, start) in enumerate(places):
        at, elements = Affine(offset), {offset}
        for j, (n, c) in enumerate(terms):
            at += Affine.of(LoopVar(f"{'ab'[i]}{j}", n)).times(c)
            elements = {e + c * k for e in elements for k in range(n)}
        statements.append(Load(i, dtype, i, at))
        touched.append({start + size * e + b for e in elements for b in range(size)})
        memory.append(MemoryRef(0, start))
    buffers = tuple(Buffer(f"b{i}", dtype) for i in range(2))
    nest = Nest(buffers, (), (Pass((), (), tuple(statements)),))
    return _Spans(Loops(nest, ()), memory), statements, touched


@examples(400)
@given(_places, _places, st.sampled_from([1, 4]))
def test_accesses_that_are_held_to_be_apart_are(
    one: Any, other: Any, size: int
) -> None:
    spans, (a, b), (first, second) = spans_of([one, other], size)
    if not spans.meet(a, b):
        assert not first & second


def test_columns_beside_each_other_are_apart_wherever_memory_starts() -> None:
    for start in range(0, 72, 2):
        read, write = (1, [(3, 9), (3, 2)], start), (6, [(3, 9), (3, 1)], start)
        spans, (a, b), (first, second) = spans_of([read, write], 2)
        assert not first & second and not spans.meet(a, b)
        spans, (a, b), _ = spans_of([read, (5, [(3, 9), (3, 1)], start)], 2)
        assert spans.meet(a, b)
