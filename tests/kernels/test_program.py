"""Programs: kernels, views, folded constants, names, and the plan of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bodies
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import program_of, terms_of
from sizes import examples, seeds

from eqsat import ops
from eqsat.kernels.backend import backend_named
from eqsat.kernels.buffer_plan import bases_of
from eqsat.kernels.kernel import Kernel, View
from eqsat.kernels.program import Program
from eqsat.ops.pointwise import cast
from eqsat.ops.position import diagonal_band
from eqsat.ops.transcendental import exp, tanh
from eqsat.ops.view import broadcast_to, reshape, window
from eqsat.support.errors import EqsatError
from eqsat.trace.kernel_body import BodyStep, KernelBody, kernel_terms
from eqsat.trace.trace import trace


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


X = zeros(6, 4)
HEADS = zeros(2, 3, 6, 4)
KINDS: list[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]] = [
    ("map", tanh, (X,)),
    ("map", ops.gelu, (X,)),
    ("map", lambda x: ops.concatenate([x, x], 0), (X,)),
    ("row", lambda x: ops.sum(x, -1, keepdims=True), (X,)),
    ("row", lambda x: ops.sum(x, (0, 1), keepdims=True), (X,)),
    ("row", ops.softmax, (X,)),
    ("row", ops.layer_norm, (X, X[0], X[0])),
    ("row", lambda x: ops.sum(x, 0, keepdims=True), (X,)),
    ("library", lambda x: ops.take(x, np.array([1, 0]), 0), (X,)),
    ("contract", lambda x: x @ x.mT, (X,)),
    ("contract", ops.linear, (X, X.T, zeros(6))),
    ("contract", ops.layer_norm_linear, (X, X[0], X[0], zeros(), X.T, zeros(6))),
    ("contract", ops.lora_plain, (X, X.T, X.T, zeros(6, 6))),
    ("attention", ops.attention_scaled, (HEADS, HEADS, HEADS, zeros())),
    ("attention", ops.attention_causal, (HEADS, HEADS, HEADS, zeros())),
]


@pytest.mark.parametrize(("kind", "f", "arrays"), KINDS)
def test_the_kind_follows_from_the_body(
    kind: str, f: Callable[..., Any], arrays: tuple[np.ndarray, ...]
) -> None:
    assert program_of(f, *arrays).kernels[-1].kind == kind


def steps(f: Callable[..., Any], *arrays: np.ndarray) -> list[str]:
    """The ops of the steps, views in brackets."""
    return [
        f"[{s.term.op.name}]" if isinstance(s, View) else s.term.op.name
        for s in program_of(f, *arrays).steps
    ]


def test_views_are_no_kernels() -> None:
    assert steps(lambda x: tanh(x.mT[1:, ::-1]), X) == [
        "[transpose]",
        "[slice]",
        "tanh",
    ]
    assert steps(lambda x: tanh(broadcast_to(x, (2, 6, 4))), X)[0] == "[broadcast_to]"


def test_a_reshape_is_a_view_where_strides_allow_it() -> None:
    assert steps(lambda x: tanh(reshape(x, (3, 8))), X) == ["[reshape]", "tanh"]
    assert steps(lambda x: reshape(x.mT, (24,)), X) == ["[transpose]", "reshape"]
    split = steps(lambda x: reshape(x.mT, (2, 2, 6)), X)
    assert split == ["[transpose]", "[reshape]"]


def test_a_view_of_a_view_names_the_value_in_memory() -> None:
    program = program_of(lambda x: reshape(tanh(x), (3, 8))[1:], X)
    kernel, *views = program.steps
    assert isinstance(kernel, Kernel)
    assert [v.base for v in views if isinstance(v, View)] == [kernel.term] * 2


def test_constant_terms_are_folded_as_a_whole() -> None:
    w = np.ones((4, 5), np.float32)
    program = program_of(lambda x, w: x @ tanh(w * w + 1.0)[:, ::2], X, constants=[w])
    assert [t.op.name for t in program.folded] == ["slice"]
    assert [k.op.name for k in program.kernels] == ["matmul"]
    assert program.constants == ()


def test_bare_constants_are_not_folded() -> None:
    w = np.ones((4, 5), np.float32)
    program = program_of(lambda x: x @ w, X)
    assert program.folded == ()
    assert [t.shape for t in program.constants] == [(4, 5)]


def test_what_has_no_arguments_is_constant() -> None:
    program = program_of(lambda x: x + cast(diagonal_band(6, 4, 0, like=x), "f4"), X)
    assert [k.op.name for k in program.kernels] == ["add"]
    assert [t.op.name for t in program.folded] == ["cast"]


def test_an_input_that_is_not_given_is_an_error() -> None:
    roots, inputs = terms_of(lambda x, y: x + y, [X, X])
    with pytest.raises(EqsatError, match="needs input 1, which is not given"):
        Program.of(roots, inputs[:1])
    with pytest.raises(EqsatError, match="2 inputs, but 1 name"):
        Program.of(roots, inputs, ["x"])


def test_names_are_identifiers_and_differ() -> None:
    asked = ["tanh_0", "params['w'][0]", "lambda", "np", ""]
    roots, inputs = terms_of(lambda *xs: tanh(sum(xs)), [X] * 5)
    names = Program.of(roots, inputs, asked).names
    assert [names[t] for t in inputs] == [
        "tanh_0",
        "params_w_0",
        "x_lambda",
        "np_2",
        "x_",
    ]
    assert len({*names.values()}) == len(names)
    assert all(n.isidentifier() for n in names.values())


def test_bytes_count_what_a_kernel_reads_of_each_value() -> None:
    def parts(x: Any) -> Any:
        return window(x, (0,), (2,)) * window(x, (2,), (2,))

    assert program_of(parts, X).kernels[0].bytes == 6 * 4 * 4 + 6 * 2 * 4
    assert program_of(lambda x: x * x, X).kernels[0].bytes == 2 * X.nbytes
    spread = program_of(lambda x: exp(broadcast_to(x, (9, 6, 4))), X).kernels[0]
    assert spread.bytes == X.nbytes + 9 * X.nbytes


def test_flops_are_those_of_the_body() -> None:
    (kernel,) = program_of(ops.linear, X, zeros(4, 5), zeros(5)).kernels
    assert kernel.flops == 2 * 6 * 4 * 5 + 6 * 5


# -- memory ----------------------------------------------------------------------------


def in_place(f: Callable[..., Any], *arrays: np.ndarray) -> list[str]:
    """Names of the kernels that write over an argument."""
    program = program_of(f, *arrays)
    return [k.name for k in program.kernels if k.term in program.plan.in_place]


def test_pointwise_kernels_write_over_a_dead_argument() -> None:
    assert in_place(lambda x: exp(tanh(x)), X) == ["exp_1"]
    assert in_place(lambda x: ops.gelu(reshape(tanh(x), (24,))), X) == ["gelu_2"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + 1.0,
        lambda x: (tanh(x), exp(tanh(x))),
        lambda x: ops.softmax(tanh(x)),
        lambda x: cast(tanh(x), "f8"),
        lambda x: tanh(x) + tanh(x)[::-1],
        lambda x: ops.concatenate([exp(tanh(x)), window(tanh(x), (0,), (2,))], -1),
    ],
    ids=["input", "result", "row kernel", "dtype", "view beside", "live view"],
)
def test_nothing_else_is_written_over(f: Callable[..., Any]) -> None:
    assert in_place(f, X) == []


def test_a_broadcast_argument_is_not_written_over() -> None:
    assert in_place(lambda x, v: x + tanh(v), X, X[0]) == []


def test_slots_are_reused_where_the_peak_allows_it() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = ops.softmax(x)
        return x

    program = program_of(chain, X)
    assert len(program.plan.slots) == 2
    assert program.peak_bytes == 2 * X.nbytes
    assert program.naive_peak_bytes == 6 * X.nbytes


def test_results_that_are_no_arrays_of_their_own_are_copied() -> None:
    w = np.ones(4, np.float32)

    def f(x: Any) -> Any:
        y = tanh(x)
        return x, x.mT, y, y, y.mT, ops.matmul(y, x.mT).mT, y + 1.0, x + w

    assert program_of(f, X).copies == {0, 1, 3, 4}


def test_a_part_or_a_spread_of_an_array_is_copied() -> None:
    program = program_of(lambda x: (tanh(x)[1:], broadcast_to(exp(x), (2, 6, 4))), X)
    assert program.copies == {0, 1}


@examples(60)
@given(seeds, st.integers(1, 20))
def test_no_value_is_overwritten_while_it_is_needed(seed: int, count: int) -> None:
    """Run the plan: each slot holds one value at a time, until its last use."""
    x = np.zeros((3, 4), np.float32)
    program = program_of(bodies.body(seed, count), x, x[0])
    plan, base = program.plan, bases_of(program.steps)
    holds: dict[int, Any] = {}
    alive, peak = 0, 0
    for i, step in enumerate(program.steps):
        for a in step.term.args:
            value = base.get(a, a)
            if value in plan.slot_of:
                assert holds[plan.slot_of[value]] is value
        if isinstance(step, Kernel):
            slot = plan.slot_of[step.term]
            old = holds.get(slot)
            if old is None:
                alive += plan.slots[slot].nbytes
            elif step.term in plan.in_place:
                assert base.get(*[plan.in_place[step.term]] * 2) is old
                assert plan.last_use[old] == i
            else:
                assert plan.last_use[old] < i
            holds[slot] = step.term
        peak = max(peak, alive)
        alive -= sum(s.nbytes for s in plan.slots if s.last == i)
    alive += sum(program.roots[i].nbytes for i in program.copies)
    assert max(peak, alive) == program.peak_bytes <= program.naive_peak_bytes


@examples(20)
@given(seeds)
def test_equal_terms_give_equal_programs(seed: int) -> None:
    f = bodies.body(seed, 12)
    x = np.zeros((3, 4), np.float32)
    assert str(program_of(f, x)) == str(program_of(f, x))


def test_the_listing_is_readable(golden: Callable[[str, str], None]) -> None:
    def block(x: Any, b: Any, v: Any, w: Any) -> Any:
        h = ops.linear(x, w * w + 1.0, b, act="gelu")
        return exp(tanh(ops.matmul(h, v))).mT, ops.softmax(x)

    arrays = zeros(64, 32), zeros(128), zeros(128, 32)
    roots, inputs = terms_of(block, arrays, [np.ones((32, 128), np.float32)])
    golden("program.txt", f"{Program.of(roots, inputs, ['x', 'b', 'v'])}\n")


def test_a_kernel_of_two_results_of_which_one_is_read() -> None:
    """It is no pointwise kernel over an argument that dies: its term is no value."""
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    done = trace(lambda x: np.sin(x), [x])
    (dies,) = done.outputs
    steps = (BodyStep(tanh, (), (0,)), BodyStep(exp, (), (1,)))
    body = KernelBody(1, steps, (1, 2), (dies.type, dies.type))
    _, second = kernel_terms(body, [dies], done.graph)
    program = Program.of([second], done.inputs)
    assert not program.plan.in_place
    (got,) = backend_named("numpy").lower(program)(x)
    np.testing.assert_allclose(got, np.exp(np.tanh(np.sin(x))), rtol=1e-6)
