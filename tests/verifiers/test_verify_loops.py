"""Defects planted in the pieces and nests of a kernel are caught, each by its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from natives import fused
from planted import caught
from programs import program_of

from eqsat import ops
from eqsat.backends.loop_ir.index_maps import (
    Affine,
    LoopVar,
)
from eqsat.backends.loop_ir.nest import (
    Accumulate,
    Buffer,
    Compute,
    Keep,
    Kept,
    Load,
    Nest,
    Operand,
    Running,
    Scatter,
    Statement,
    Store,
    Within,
)
from eqsat.backends.loop_ir.pieces import (
    Convolution,
    Loops,
    Pieces,
    Product,
)
from eqsat.backends.loop_ir.verify_pieces import (
    verify,
)
from eqsat.backends.to_loops.lower import (
    pieces_of,
)
from eqsat.backends.to_loops.schedule import (
    LoopTarget,
)
from eqsat.kernels.kernel import Kernel
from eqsat.ops.position import add_at
from eqsat.ops.transcendental import tanh

X, W = np.zeros((6, 32), np.float32), np.zeros((32, 8), np.float32)
Made = tuple[Kernel, Pieces]


def made_of(f: Callable[..., Any], *arrays: Any, **target: Any) -> Made:
    """The one kernel of a function, and its pieces."""
    (kernel,) = program_of(f, *arrays).kernels
    return kernel, pieces_of(kernel, LoopTarget(**target))


@pytest.fixture(scope="module")
def softmax() -> Made:
    """A row kernel: passes that keep, recall and reduce."""
    return made_of(ops.softmax, X)


@pytest.fixture(scope="module")
def linear() -> Made:
    """A product into memory, and a map of it."""
    return made_of(lambda *a: ops.linear(*a, act="gelu"), X, W, np.zeros(8, np.float32))


def broken(made: Made, i: int, **changes: Any) -> None:
    """Verify the pieces with changes of one of them."""
    kernel, pieces = made
    listed = [*pieces.pieces]
    listed[i] = replace(listed[i], **changes)
    verify(replace(pieces, pieces=listed), kernel, {})


def nest_of(made: Made, i: int = 0) -> Nest:
    piece = made[1].pieces[i]
    assert isinstance(piece, Loops)
    return piece.nest


def changed(made: Made, change: Callable[[Any], Statement], i: int = 0) -> None:
    """Verify the pieces with other statements in a nest."""
    broken(made, i, nest=nest_of(made, i).changed(change))


def only(kind: type, of: str = "", **fields: Any) -> Callable[[Any], Any]:
    """A change of all statements of a kind, or those with the op ``of``."""
    return lambda s: (
        replace(s, **fields)
        if type(s) is kind and of in ("", getattr(s, "op", ""))
        else s
    )


def with_passes(made: Made, change: Callable[[list[Any]], None]) -> None:
    passes = [*nest_of(made).passes]
    change(passes)
    broken(made, 0, nest=replace(nest_of(made), passes=tuple(passes)))


def test_what_lowering_makes_breaks_no_rule(softmax: Made, linear: Made) -> None:
    for kernel, pieces in (softmax, linear):
        verify(pieces, kernel, {})
    kinds = {type(s) for s in nest_of(softmax).statements()}
    assert kinds >= {Load, Compute, Accumulate, Keep, Kept, Store}


# -- statements ------------------------------------------------------------------------


def test_a_value_that_is_read_before_it_is_made(softmax: Made) -> None:
    def first(passes: list[Any]) -> None:
        p = passes[1]
        load, *rest = p.body
        passes[1] = replace(p, body=(*rest, load))

    with caught("loops", "subtract", "made before it is read"):
        with_passes(softmax, first)


def test_a_value_of_an_element_that_is_read_in_another_pass(softmax: Made) -> None:
    def dropped(passes: list[Any]) -> None:
        *others, last = passes
        kept = tuple(s for s in last.body if not isinstance(s, Kept))
        passes[:] = [*others, replace(last, body=kept)]

    with caught("loops", "multiply", "made before it is read"):
        with_passes(softmax, dropped)


def test_a_value_that_is_made_twice(softmax: Made) -> None:
    def twice(passes: list[Any]) -> None:
        p = passes[0]
        passes[0] = replace(p, body=(p.body[0], *p.body))

    with caught("loops", "b0[", "a value is made once"):
        with_passes(softmax, twice)


def test_an_unknown_reduction(softmax: Made) -> None:
    with caught("loops", "sum_of_squares of v", "its reduction is known"):
        changed(softmax, only(Accumulate, "sum", op="sum_of_squares"))


def test_an_unknown_op(softmax: Made) -> None:
    with caught("loops", "frobnicate(", "a pointwise one of the catalogue"):
        changed(softmax, only(Compute, "exp", op="frobnicate"))


def test_an_op_of_too_few_values(softmax: Made) -> None:
    with caught("loops", "subtract(", "arity"):
        changed(
            softmax,
            lambda s: (
                replace(s, args=s.args[:1])
                if isinstance(s, Compute) and s.op == "subtract"
                else s
            ),
        )


def test_types_that_disagree(softmax: Made) -> None:
    wide = np.dtype(np.float64)
    with caught("loops", "b0[", "the dtype of its memory"):
        changed(softmax, only(Load, dtype=wide))
    with caught("loops", "subtract(", "its dtype follows from its arguments"):
        changed(softmax, only(Compute, dtype=wide))
    with caught("loops", "max of v", "the dtype of its value"):
        changed(softmax, only(Accumulate, dtype=wide))
    with caught("loops", "keep0", "what is kept has one dtype"):
        changed(softmax, only(Kept, dtype=wide))


def test_a_store_of_another_type(softmax: Made) -> None:
    def wrong(passes: list[Any]) -> None:
        p = passes[-1]
        *body, store = p.body
        flag = Compute(99, np.dtype(bool), "isfinite", (store.value,))
        passes[-1] = replace(p, body=(*body, flag, replace(store, value=99)))

    with caught("loops", "b1[", "the dtype of what is stored"):
        with_passes(softmax, wrong)


def test_what_is_recalled_but_was_never_kept(softmax: Made) -> None:
    def unkept(passes: list[Any]) -> None:
        for i, p in enumerate(passes):
            body = tuple(s for s in p.body if not isinstance(s, Keep))
            passes[i] = replace(p, body=body)

    with caught("loops", "= keep0", "was written by an earlier pass"):
        with_passes(softmax, unkept)


def test_a_place_that_is_not_there(softmax: Made) -> None:
    with caught("loops", "keep7", "the place that is kept exists"):
        changed(softmax, only(Keep, place=7))


def test_a_statement_of_an_unknown_kind(softmax: Made) -> None:
    class Wish(Load):
        pass

    with caught("loops", softmax[0].name, "a statement is known"):
        changed(
            softmax,
            lambda s: (
                Wish(s.target, s.dtype, s.buffer, s.at) if isinstance(s, Load) else s
            ),
        )


def test_a_buffer_that_does_not_exist(softmax: Made) -> None:
    kernel, pieces = softmax
    listed = [*pieces.pieces]
    listed[0] = replace(listed[0], nest=nest_of(softmax).changed(only(Load, buffer=1)))
    with caught("loops", "piece 0", "was written by an earlier piece"):
        verify(replace(pieces, pieces=listed), kernel, {})


def test_an_empty_range_and_a_check_that_marks_another_place() -> None:
    indices = np.zeros(5, np.int64)
    taken = made_of(lambda x, i: ops.take(x, i, 0), X, indices)
    assert any(isinstance(s, Within) for s in nest_of(taken).statements())
    with caught("loops", "to", "a range has numbers"):
        changed(taken, only(Within, low=6, high=6))
    piece = taken[1].pieces[0]
    assert isinstance(piece, Loops)
    moved = tuple(
        Operand("table", 0, o.dtype) if o.kind == "fault" else o for o in piece.operands
    )
    with caught("loops", "piece 0", "a check marks the fault"):
        broken(taken, 0, operands=moved)


def test_an_unknown_running_op() -> None:
    running = made_of(lambda x: np.cumsum(x, 1), X)
    with caught("loops", "running average", "one of running results"):
        changed(running, only(Running, op="average"))


# -- loops and index maps --------------------------------------------------------------


def test_a_loop_out_of_bounds(softmax: Made) -> None:
    def longer(s: Any) -> Any:
        if not hasattr(s, "at"):
            return s
        terms = tuple(
            (replace(v, size=33) if v.size == 32 else v, c) for v, c in s.at.terms
        )
        return replace(s, at=replace(s.at, terms=terms))

    nest = nest_of(softmax).changed(longer)
    passes = tuple(
        replace(p, loops=tuple(replace(v, size=33) for v in p.loops))
        for p in nest.passes
    )
    kernel, pieces = softmax
    piece = replace(pieces.pieces[0], nest=replace(nest, passes=passes))
    with caught("loops", "result 0", "each element is written exactly once"):
        verify(replace(pieces, pieces=[piece]), kernel, {})
    with caught("loops", "b0[", "inside of its memory"):
        changed(softmax, lambda s: shifted(s) if isinstance(s, Load) else s)


def shifted(s: Any, by: int = 1) -> Any:
    return replace(s, at=s.at + Affine(by))


def test_an_address_before_its_memory(softmax: Made) -> None:
    with caught("loops", "b1[", "inside of its memory"):
        changed(softmax, lambda s: shifted(s, -1) if isinstance(s, Store) else s)


def test_an_index_that_follows_a_loop_elsewhere(softmax: Made) -> None:
    strange = Affine.of(LoopVar("elsewhere", 2))
    with caught("loops", "elsewhere", "follows the loops around it"):
        changed(softmax, lambda s: replace(s, at=strange) if type(s) is Load else s)


def test_a_loop_without_turns(softmax: Made) -> None:
    nest = nest_of(softmax)
    grid = tuple(replace(v, size=0) for v in nest.grid)
    with caught("loops", "loop i0", "a loop has turns"):
        broken(softmax, 0, nest=replace(nest, grid=grid))


def test_two_loops_of_one_name(softmax: Made) -> None:
    nest = nest_of(softmax)
    grid = (*nest.grid, LoopVar(nest.passes[0].loops[0].name, 1))
    with caught("loops", "piece 0", "variables of their own"):
        broken(softmax, 0, nest=replace(nest, grid=grid))


def test_parts_that_are_not_of_the_grid(softmax: Made) -> None:
    nest = replace(nest_of(softmax), chunk=LoopVar("chunk", 4))
    with caught("loops", "piece 0", "parts are of the grid"):
        broken(softmax, 0, nest=nest)


# -- results ---------------------------------------------------------------------------


def test_a_result_that_is_not_written(softmax: Made) -> None:
    def silent(passes: list[Any]) -> None:
        *body, _ = passes[-1].body
        passes[-1] = replace(passes[-1], body=tuple(body))

    with caught("loops", "result 0", "it is written"):
        with_passes(softmax, silent)


def test_elements_that_are_written_twice() -> None:
    joined = made_of(fused(lambda x: ops.concatenate([x, tanh(x)], 0), 1), X)
    first, second = joined[1].pieces
    assert isinstance(first, Loops) and isinstance(second, Loops)
    nest = second.nest.changed(
        lambda s: replace(s, at=Affine(0, s.at.terms)) if isinstance(s, Store) else s
    )
    with caught("loops", "result 0", "each element is written exactly once"):
        broken(joined, 1, nest=nest)


def test_threads_that_write_one_element(softmax: Made) -> None:
    (row,) = nest_of(softmax).grid

    def folded(s: Any) -> Any:
        if not isinstance(s, Store):
            return s
        return replace(s, at=Affine(0, tuple(t for t in s.at.terms if t[0] != row)))

    with caught("loops", "result 0", "each element is written exactly once"):
        changed(softmax, folded)

    def crossed(s: Any) -> Any:
        if not isinstance(s, Store):
            return s
        terms = tuple((v, 31 if v == row else c) for v, c in s.at.terms)
        return replace(s, at=Affine(0, terms))

    with caught("loops", "b1[", "no two points of the loops write one element"):
        changed(softmax, crossed)


def test_a_value_that_changes_where_its_address_does_not() -> None:
    total = made_of(lambda x: ops.sum(x, 1), X)
    nest = nest_of(total)
    store = next(s for s in nest.statements() if isinstance(s, Store))
    (row,) = nest.grid
    wide = replace(nest, grid=(LoopVar("again", 6), row))

    def other(s: Any) -> Any:
        if isinstance(s, Load):
            return replace(
                s, at=Affine(0, ((LoopVar("again", 6), 32), *s.at.terms[1:]))
            )
        return s

    assert store.at.variables == (row,)
    with caught("loops", "b1[", "its address does too"):
        broken(total, 0, nest=wide.changed(other))


def test_a_piece_that_reads_what_a_later_one_writes(linear: Made) -> None:
    kernel, pieces = linear
    turned = replace(pieces, pieces=pieces.pieces[::-1])
    with caught("loops", "piece 0", "was written by an earlier piece"):
        verify(turned, kernel, {})


def test_a_product_past_the_end_of_its_operand(linear: Made) -> None:
    product = linear[1].pieces[0]
    assert isinstance(product, Product)
    x, y, out = product.at
    m, n, k = product.sizes
    with caught("loops", "piece 0, left operand", "inside of its memory"):
        broken(linear, 0, at=(replace(x, offset=1), y, out))
    with caught("loops", "piece 0, right operand", "inside of its memory"):
        broken(linear, 0, at=(x, replace(y, offset=1), out))
    with caught("loops", "temporary 0", "each element is written exactly once"):
        broken(linear, 0, sizes=(m - 1, n, k))


def test_a_product_of_another_type(linear: Made) -> None:
    product = linear[1].pieces[0]
    assert isinstance(product, Product)
    wide = replace(product.x, dtype=np.dtype(np.float64))
    with caught("loops", "piece 0", "it reads the dtype of array"):
        broken(linear, 0, x=wide)
    with caught("loops", "piece 0", "its result has its dtype"):
        broken(linear, 0, dtype=np.dtype(np.float64))


def test_a_buffer_of_another_type_than_its_operand(softmax: Made) -> None:
    nest = nest_of(softmax)
    wide = Buffer("b0", np.dtype(np.float64))
    with caught("loops", "piece 0", "the dtypes of their operands"):
        broken(softmax, 0, nest=replace(nest, buffers=(wide, *nest.buffers[1:])))


def test_a_buffer_that_is_written_but_not_declared_so(softmax: Made) -> None:
    nest = nest_of(softmax)
    buffers = tuple(replace(b, written=False) for b in nest.buffers)
    with caught("loops", "b1", "written where it is declared so"):
        broken(softmax, 0, nest=replace(nest, buffers=buffers))


def test_an_index_that_is_no_integer() -> None:
    def f(x: Any, i: Any) -> Any:
        return add_at(x, i, size=9, axis=-2)

    made = made_of(f, X, np.zeros(6, np.int64), scatters=True)
    last = len(made[1].pieces) - 1
    scatters = [s for s in nest_of(made, last).statements() if isinstance(s, Scatter)]
    with caught("loops", "+= v", "an index is an integer"):
        changed(made, only(Scatter, by=scatters[0].value), last)


@pytest.mark.parametrize("kernel", [(4, 3, 3, 3), (8, 3, 16, 16)], ids=str)
def test_a_convolution_past_the_end_of_its_operands(kernel: tuple[int, ...]) -> None:
    """Small kernels, and large ones, which are the right operand."""
    images = np.zeros((8, 3, 17, 18), np.float32)
    made = made_of(ops.conv2d, images, np.zeros(kernel, np.float32))
    (piece,) = made[1].pieces
    assert isinstance(piece, Convolution)
    assert piece.turned == (kernel[-1] == 16)
    x, y, out = piece.at
    which = "kernels" if piece.turned else "left operand"
    with caught("loops", f"piece 0, {which}", "inside of its memory"):
        broken(made, 0, at=(replace(x, offset=1), y, out))
    with caught("loops", "piece 0, images", "inside of its memory"):
        broken(made, 0, at=(x, replace(y, offset=1), out))
    with caught("loops", "piece 0, result", "inside of its memory"):
        broken(made, 0, at=(x, y, replace(out, offset=-1)))
