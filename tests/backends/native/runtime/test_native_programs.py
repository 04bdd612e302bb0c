"""Whole programs in machine code: views, networks, layouts of inputs, other hosts."""

from __future__ import annotations

from random import Random
from typing import Any

import bodies
import numpy as np
import pytest
from agreement import FLOATS, drawn
from families import (
    OF_INPUTS,
    RESHAPES,
    TRANSPOSED,
    TRANSPOSES,
    of_nothing,
    views,
)
from hypothesis import given
from hypothesis import strategies as st
from layers import shared_out
from natives import (
    DTYPES,
    LAYOUTS,
    Array,
    called,
    fused,
    laid,
    layouts,
    lowered,
    mixed,
    natively,
    run,
    same_bits,
    threads,
)
from networks import GROUPS, NETWORKS, NUMPY_ARGUMENTS, written
from programs import assert_near, program_of, rounding_of
from sizes import examples, seeds, some

import eqsat as eq
from eqsat import ops
from eqsat.backends.native.lower import MANY_LAYOUTS
from eqsat.backends.numpy import interpret
from eqsat.kernels.program import Program
from eqsat.ops.position import take
from eqsat.ops.scan import sort
from eqsat.ops.transcendental import exp, tanh
from eqsat.ops.view import reshape
from eqsat.terms.op import Op
from eqsat.testing import Computed, agreement, optimised_agreement, programs

CPUS = [None, "generic", "x86-64-v2"]
rng = np.random.default_rng(0)


def draw(*shape: int, dtype: str = "f4") -> Array:
    return rng.standard_normal(shape).astype(dtype)


# -- views -----------------------------------------------------------------------------


@examples(40)
@given(
    seeds, st.integers(1, 6), st.sampled_from(DTYPES), layouts, threads, st.booleans()
)
def test_chains_of_views(
    seed: int, steps: int, dtype: Any, layout: str, threads: int, fuse: bool
) -> None:
    r = np.random.default_rng(seed)
    x = laid(mixed(r, r.permutation([2, 3, 35])[: r.integers(1, 4)], dtype), layout)
    f: Any = views(seed, steps)
    f = fused(f, 1) if fuse else f
    (got,) = natively(f, x, threads=threads)
    same_bits(got, interpret(program_of(f, x).roots, [x])[0])


@pytest.mark.parametrize("shape", TRANSPOSED)
def test_transposes_in_tiles(shape: tuple[int, ...]) -> None:
    for dtype in ("f4", "f8", "i1", "?"):
        x = mixed(np.random.default_rng(2), shape, dtype)
        for f in TRANSPOSES:
            (got,) = natively(f, x, threads=2)
            same_bits(got, interpret(program_of(f, x).roots, [x])[0])


def test_arrays_without_elements_need_nothing() -> None:
    e, x = np.zeros((4, 0), np.float32), draw(4, 6)
    got = natively(of_nothing, e, x)
    want = interpret(program_of(of_nothing, e, x).roots, [e, x])
    for g, w in zip(got, want, strict=True):
        same_bits(g, w)


def test_reshapes_that_no_index_says() -> None:
    x = draw(4, 6)
    for f in RESHAPES:
        f = fused(f, 1)
        (got,) = natively(f, x)
        assert_near(got, f.reference(x), 1)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_numpy_users_write(group: str) -> None:
    arrays = [*NUMPY_ARGUMENTS.values()]
    for _, done in written(group, draw(3, 4)):
        low = lowered(Program.of(done.outputs, done.inputs, done.names), 2)
        want = interpret(done.outputs, arrays)
        for g, w, root in zip(called(low, *arrays), want, done.outputs, strict=True):
            assert_near(g, w, 1, rounding_of(root))


# -- networks --------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETWORKS)
@examples(4)
@given(seeds, st.sampled_from(FLOATS), layouts, threads, st.sampled_from(CPUS))
def test_networks(
    name: str, seed: int, dtype: Any, layout: str, threads: int, cpu: str | None
) -> None:
    f, shapes = NETWORKS[name]
    arrays = [
        laid(drawn(seed + i, s, dtype, False), layout) for i, s in enumerate(shapes)
    ]
    program = program_of(f, *arrays)
    got, reasons = run(program, arrays, threads, cpu)
    assert not reasons
    want = interpret(program.roots, arrays)
    one, other = (Computed(r, program.roots, arrays) for r in (want, got))
    assert not (found := agreement(one, other)).reason, found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETWORKS)
@examples(2)
@given(seeds, st.sampled_from(FLOATS))
def test_networks_of_odd_numbers(name: str, seed: int, dtype: Any) -> None:
    f, shapes = NETWORKS[name]
    arrays = [drawn(seed + i, s, dtype) for i, s in enumerate(shapes)]
    with np.errstate(all="ignore"):
        program = program_of(f, *arrays)
        got, _ = run(program, arrays)
        for g, w in zip(got, interpret(program.roots, arrays), strict=True):
            assert_near(g, w, 4)


@examples(40)
@given(seeds, st.integers(1, 14), st.sampled_from(FLOATS[2:]), layouts, threads)
def test_kernels_that_nobody_wrote(
    seed: int, count: int, dtype: Any, layout: str, threads: int
) -> None:
    r = Random(seed)
    base = [r.choice([1, 2, 3, 5, 7, 9, 17]) for _ in range(r.randint(1, 3))]
    shapes = [tuple(base), *(tuple(base[i:]) for i in range(r.randint(0, 2)))]
    arrays = [
        laid(drawn(seed + i, s, dtype, False), layout) for i, s in enumerate(shapes)
    ]
    f = fused(bodies.body(seed, count), len(arrays))
    program = program_of(f, *arrays)
    got, _ = run(program, arrays, threads)
    want = interpret(program.roots, arrays)
    one, other = (Computed(r, program.roots, arrays) for r in (want, got))
    assert not (found := agreement(one, other)).reason, found


@examples(20)
@given(programs(max_ops=14), st.sampled_from([1, 2]))
def test_optimised_programs(program: Any, threads: int) -> None:
    options = eq.Options(threads=threads)
    fast = eq.jit(program.function, backend="native", options=options)
    assert not (found := optimised_agreement(program, fast)).reason, found


# Products of several threads are drawn every time.
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_rows_and_panels_are_shared_out(threads: int) -> None:
    for f, arrays in shared_out(np.random.default_rng(0)):
        program = program_of(f, *arrays)
        got, reasons = run(program, arrays, threads)
        assert not reasons
        want = interpret(program.roots, arrays)
        one, other = (Computed(r, program.roots, arrays) for r in (want, got))
        assert not (found := agreement(one, other)).reason, found


@pytest.mark.parametrize("cpu", CPUS[1:])
def test_other_hosts(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CPU", cpu)
    for dtype in some(FLOATS, 2):
        x, y = draw(5, 37).astype(dtype), draw(37).astype(dtype)

        def f(x: Any, y: Any) -> Any:
            z = ops.layer_norm(x, y, y)
            return z, ops.softmax(x), ops.sum(exp(x), 0), x.mT * 2.0, ops.argmax(x, 1)

        low = eq.jit(f, backend="native", options=eq.Options(threads=2)).lower(x, y)
        got = low.compile()(x, y)
        one = Computed(interpret(low.trace.outputs, [x, y]), low.trace.outputs, [x, y])
        found = agreement(one, Computed(got, low.term, [x, y]))
        assert not found.reason, found


# -- layouts of inputs -----------------------------------------------------------------


def test_a_program_is_compiled_for_each_layout() -> None:
    x = draw(6, 4)
    low = lowered(program_of(lambda x: tanh(x) * 2.0, x))
    layouts = [x, np.asfortranarray(x), x[::-1], x[:, ::-1], x[::-1, ::-1]]
    for n, y in enumerate([*layouts, *layouts]):
        assert_near(called(low, y)[0], np.tanh(y) * 2, 1)
        assert len(low.compiled) == min(n + 1, MANY_LAYOUTS)
    assert len(layouts) > MANY_LAYOUTS


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_inputs_in_any_layout(layout: str) -> None:
    x = laid(draw(4, 6), layout)
    for f in OF_INPUTS:
        low = lowered(program_of(f, x))
        for g, w in zip(called(low, x), interpret(low.program.roots, [x]), strict=True):
            assert_near(g, w, 1)


def test_through_jit() -> None:
    @eq.jit(backend="native")
    def f(x: Any, y: Any) -> Any:
        return x + y, x, x[::2], {"s": ops.softmax(x), "t": x.T @ y}

    x = draw(6, 6)
    for a, b in ((x, x), (x, x.T), (x.T, x.T), (x[::-1], x), (x, laid(x, "field"))):
        before = a.copy(), b.copy()
        for _ in range(2):
            z, same, part, more = f(a, b)
            assert_near(z, a + b, 1)
            same_bits(same, a)
            same_bits(part, a[::2])
            assert_near(more["t"], a.T @ b, 1)
            assert_near(more["s"], np.asarray(ops.softmax(a)), 1)
            results = [z, same, part, *more.values()]
            for i, r in enumerate(results):
                assert not any(np.may_share_memory(r, o) for o in (a, b, *results[:i]))
        same_bits(a, before[0])
        same_bits(b, before[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_runs_what_machine_code_does_not(threads: int) -> None:
    i = np.array([2, 0, -1])

    def f(x: Any, w: Any, k: Any, i: Any) -> Any:
        a = sort(tanh(x), -1) * 2.0
        b = take(exp(a), i, axis=-1) + 1.0
        c = ops.conv2d(reshape(b, (1, 2, 1, 15)), k, stride=(1, 40))
        return ops.sum(c, -1), a, b, w + ops.cumsum(w, 0), x[::2]

    x, w, k = draw(10, 6), draw(5, 3), draw(4, 2, 1, 2)
    for y in (x, x[::-1], np.asfortranarray(x)):
        low = lowered(program_of(f, y, w, k, i), threads)
        stride = "a convolution with a stride of 40"
        assert [*low.reasons.values()] == [stride]
        for g, r in zip(
            called(low, y, w, k, i),
            interpret(low.program.roots, [y, w, k, i]),
            strict=True,
        ):
            assert_near(g, r, 1)


def test_bad_indices_are_errors() -> None:
    x, i = draw(4, 3), np.array([0, 4])
    low = lowered(program_of(lambda x, i: take(x, i, axis=0) * 2.0, x, i))
    with pytest.raises(IndexError, match="out of bounds"):
        low(x, i)


# -- what was wrong once ---------------------------------------------------------------


def test_a_result_copied_from_one_element_leaves_the_argument_alone() -> None:
    x = np.broadcast_to(np.float32(3), (2,))
    (got,) = natively(lambda x: x[::-1], x)
    same_bits(got, np.float32([3, 3]))


def test_numbers_next_to_halves() -> None:
    op = Op.registry["nextafter"]
    for dtype in FLOATS[:2]:
        x, y = mixed(rng, (50,), dtype), mixed(rng, (50,), dtype)
        (got,), _ = run(program_of(lambda x, y: op(x, y), x, y), [x, y])
        with np.errstate(all="ignore"):
            same_bits(got, np.nextafter(x, y))


def test_the_position_of_the_largest_of_many_is_no_endless_task() -> None:
    x = draw(1000, 301)
    got = natively(lambda x: (ops.argmax(x), ops.sum(x)), x, threads=4)
    assert got[0] == np.argmax(x)
