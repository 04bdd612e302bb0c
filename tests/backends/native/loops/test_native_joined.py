"""Arrays that are filled, padded, joined and split become part of what is computed of
them: one kernel, and no memory between."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import fused, natively, same_bits
from programs import program_of
from sizes import examples, seeds

import eqsat as eq
from eqsat.backends.loop_ir import Accumulate, Compute, Loops
from eqsat.backends.to_loops import LoopTarget, pieces_of
from eqsat.backends.to_loops.joined_parts import MOST_WORK

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((37, 50)).astype(np.float32) for _ in range(2))
EDGES = ((1, 2), (3, 0))


def written(x: Any) -> Any:
    o = np.zeros_like(x)
    o[1:-1, 2:-3] = np.tanh(x[1:-1, 2:-3])
    return o * 2 + 1


def filled(x: Any) -> Any:
    o = np.empty_like(x)
    o.fill(2.5)
    return o * x + np.full(x.shape, 3, x.dtype)


def gated(x: Any) -> Any:
    a, b = np.split(np.exp(x), 2, axis=1)
    return np.tanh(a) * b


PROGRAMS: dict[str, Callable[..., Any]] = {
    "pad, arithmetic": lambda x: np.tanh(np.pad(x, EDGES)) * 2 + 1,
    "arithmetic, pad": lambda x: np.pad(np.tanh(x) * 2, EDGES, constant_values=3),
    "arithmetic, pad, arithmetic": lambda x: np.exp(np.pad(np.tanh(x), EDGES)) + 1,
    "two pads": lambda x, y: np.pad(x, EDGES) * np.pad(y, EDGES, constant_values=2),
    "pad of pad": lambda x: np.pad(np.pad(x, 1) * 2, 2, constant_values=7) - 1,
    "pad of an axis, a column": lambda x: np.pad(x, ((0, 0), (2, 1))) * x[:, :1],
    "concatenate of computed parts": lambda x, y: np.concatenate([np.tanh(x), y + 1]),
    "and arithmetic": lambda x, y: np.concatenate([np.tanh(x), y * y]) * 2 - 1,
    "along rows": lambda x, y: np.concatenate([x + 1, y], axis=1) * np.float32(3),
    "of three, a row": lambda x, y: np.concatenate([x, y, x * y]) * y[:1],
    "two of the same parts": lambda x, y: (
        np.concatenate([x, y]) * np.concatenate([np.tanh(y), x])
    ),
    "stack, arithmetic": lambda x, y: np.stack([np.tanh(x), y]) * 2 + y,
    "stack of elements": lambda x, y: np.tanh(np.stack([x, y], axis=-1)),
    "roll": lambda x: np.roll(np.tanh(x), 1, axis=0) - x,
    "roll by a row": lambda x: x[:1] - np.roll(x, -3, axis=1) * 2,
    "split": lambda x: np.multiply(*np.split(np.tanh(x), 2, axis=1)),
    "split with arithmetic": gated,
    "results of a split": lambda x: [p * 2 for p in np.split(np.exp(x), 2, axis=1)],
    "part of what is joined": lambda x, y: np.split(np.concatenate([x, y]), 2)[1] + 1,
    "turned part": lambda x, y: np.concatenate([x, y])[40:50, ::-1] + 1,
    "full": lambda x: np.full(x.shape, 3, np.float32) + x * 2,
    "fill": filled,
    "a value of the array": lambda x: np.full(x.shape, x[0, 0]) + x,
    "copy": lambda x: np.copy(x) * 2 + x.copy(),
    "zeros that are written to": written,
    "an empty part": lambda x, y: np.concatenate([x[:0], x, y[:0]]) + 1,
}


def arguments(f: Callable[..., Any]) -> tuple[Any, ...]:
    return (X, Y)[: f.__code__.co_argcount]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_without_memory_between(name: str) -> None:
    f = PROGRAMS[name]
    args = arguments(f)
    compiled = eq.jit(f, "native")
    got, want = compiled(*args), f(*args)
    results = want if isinstance(want, list) else [want]
    for g, w in zip(got if isinstance(got, list) else [got], results, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    found, low = compiled.explain(*args), compiled.lower(*args)
    assert len(found.kernels) == 1, found
    own = sum(r.nbytes for r in results)
    assert own <= low.peak_bytes <= own + 64 * len(results)
    assert re.search(r"memory of a call \S+ \w+: workspace 0 B, results", str(found))


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "bool"])
def test_written_operations_have_numpys_bits(backend: str, dtype: str) -> None:
    x, y = (np.abs(a * 9).astype(dtype) for a in (X, Y))

    def f(x: Any, y: Any) -> Any:
        padded = np.pad(x, 1, constant_values=1) + np.pad(y, ((2, 0), (0, 2)))
        joined = np.concatenate([x, y + x, x], 1) > np.concatenate([y] * 3, 1)
        other = np.concatenate([y, x, y], 1) > x[:, :1]
        return padded * padded, joined & other, np.roll(x * y, 2, (0, 1)) + y

    exact = eq.Options(numerics="exact")
    for pick in range(3):
        one = lambda x, y, i=pick: f(x, y)[i]  # noqa: E731
        got = eq.jit(one, backend, options=exact)(x, y)
        np.testing.assert_array_equal(got, one(x, y), strict=True)


def test_what_others_read_is_joined_once() -> None:
    def f(x: Any, y: Any) -> Any:
        h = np.concatenate([np.exp(x), y], axis=1)
        return h / h.sum(1, keepdims=True)

    np.testing.assert_allclose(eq.jit(f, "native")(X, Y), f(X, Y), rtol=1e-3, atol=1e-5)


def test_a_sum_beside_joined_arrays_is_computed_once() -> None:
    def f(x: Any, y: Any) -> Any:
        return np.concatenate([x, y], axis=1) / np.exp(y).sum(1, keepdims=True)

    one = fused(f, 2)
    np.testing.assert_allclose(natively(one, X, Y)[0], f(X, Y), rtol=1e-4, atol=1e-6)
    (kernel,) = program_of(one, X, Y).kernels
    loops = [p for p in pieces_of(kernel, LoopTarget()).pieces if isinstance(p, Loops)]
    made = [s for p in loops for run in p.nest.passes for s in run.body]
    assert sum(isinstance(s, Accumulate) for s in made) == 1


def test_many_parts_of_much_code_are_joined_first() -> None:
    def f(x: Any) -> Any:
        h = np.concatenate([x[i : i + 1] * i for i in range(20)])
        for i in range(MOST_WORK // 20 + 1):
            h = np.abs(h) - i
        return h

    low = eq.jit(f, "native").lower(X)
    np.testing.assert_allclose(low.executable(X)[0], f(X), rtol=1e-5)
    assert low.peak_bytes >= 2 * f(X).nbytes


# -- slices of what is joined ----------------------------------------------------------


def span(at: int, count: int, by: int, size: int) -> slice:
    """So many elements, from the one with number ``at`` of those in the order of
    ``by``."""
    first = at if by > 0 else size - 1 - at
    stop = first + count * by
    return slice(first, stop if stop >= 0 else None, by)


LIGHT: dict[str, Callable[[Any], Any]] = {
    "in memory": lambda x: x,
    "by one operation": lambda x: np.maximum(x, np.float32(0)),
    "by some": lambda x: np.abs(np.maximum(x * np.float32(3), x) - np.float32(1)),
    "by a function": lambda x: np.sqrt(np.abs(x)) / (x * x + np.float32(1)),
}


@st.composite
def joined_and_sliced(draw: st.DrawFn) -> tuple[int, Callable[..., Any]]:
    """Sums, products or maxima of slices of arrays of some axes that are padded, or
    joined, along axes that may be the last one; and of windows of rows of these."""
    ndim = draw(st.integers(2, 3))
    widths = [draw(st.tuples(*[st.integers(0, 3)] * 2)) for _ in range(ndim)]
    if draw(st.booleans()):
        widths[-1] = 0, 0
    value = draw(st.sampled_from([0.0, -0.0, 2.5, np.inf, -np.inf, np.nan]))
    axis = draw(st.sampled_from([None, None, *range(ndim)]))
    steps = [draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2])) for _ in range(ndim)]
    starts = [
        [draw(st.integers(0, 3)) for _ in range(ndim)]
        for _ in range(draw(st.integers(1, 3)))
    ]
    meet = draw(st.sampled_from([np.add, np.multiply, np.maximum, np.minimum]))
    scaled = draw(st.booleans())
    made = LIGHT[draw(st.sampled_from(sorted(LIGHT)))]
    beside = draw(st.sampled_from([None, (0, 1), (1, 1), (2, 1), (3, 3)]))

    def f(x: Any, y: Any) -> Any:
        x = made(x)
        if axis is None:
            whole = np.pad(x, widths, constant_values=value)
        else:
            whole = np.concatenate([x, y, x], axis)
        most = [max(own) for own in zip(*starts, strict=True)]
        rows = list(zip(whole.shape, most, steps, strict=True))
        counts = [(n - at - 1) // abs(by) + 1 for n, at, by in rows]
        found: Any = None
        for own in starts:
            cut = zip(own, counts, steps, whole.shape, strict=True)
            part = whole[tuple(span(*c) for c in cut)]
            found = part if found is None else meet(found, part)
        if beside is not None:
            edges = [(0, 0)] * (ndim - 1) + [beside]
            rows, n = np.pad(found, edges, constant_values=value), found.shape[-1]
            windows = [rows[..., i : i + n] for i in range(sum(beside) + 1)]
            found = meet(meet(windows[0], windows[1]), windows[-1])
        return found * np.float32(2) if scaled else meet(found, found)

    return ndim, f


@examples(300)
@given(seeds, joined_and_sliced(), st.integers(1, 2))
def test_slices_of_what_is_joined_have_numpys_bits(
    seed: int, drawn: tuple[int, Callable[..., Any]], threads: int
) -> None:
    ndim, f = drawn
    rng = np.random.default_rng(seed)
    shape = *rng.integers(4, 12, ndim - 1), rng.integers(10, 60)
    x, y = (rng.standard_normal(shape, np.float32) for _ in "xy")

    odd = rng.random(x.shape) < 0.1
    x[odd] = rng.choice(np.float32([0, -0.0, np.inf, -np.inf, np.nan]), odd.sum())
    with np.errstate(all="ignore"):
        want = f(x, y)
    (got,) = natively(fused(f, 2), x, y, threads=threads)
    # Which of two zeros a maximum is, NumPy does not say.
    same_bits(got, want, signs=False)


@pytest.mark.parametrize("value", [0.0, -np.inf])
@pytest.mark.parametrize("meet", [np.add, np.maximum])
def test_windows_of_padded_images_need_no_copy(meet: Any, value: float) -> None:
    """Rows of an image and of the zeros around it, without a padded image."""
    x = RNG.standard_normal((3, 20, 33)).astype(np.float32)

    def f(x: Any, y: Any) -> Any:
        whole = np.pad(x, ((0, 0), (2, 1), (0, 0)), constant_values=value)
        rows = [whole[:, i : i + 20] for i in range(4)]
        return meet(meet(meet(rows[0], rows[1]), rows[2]), rows[3])

    one = fused(f, 2)
    same_bits(natively(one, x, x)[0], f(x, x))
    (kernel,) = program_of(one, x, x).kernels
    assert not pieces_of(kernel, LoopTarget(reads_parts=True)).temporaries


@pytest.mark.parametrize("last", [False, True])
def test_windows_of_joined_images_need_no_copy(last: bool) -> None:
    """The maxima of windows of images whose channels are joined, of which one is
    computed first: each is one nest."""
    x, y = (RNG.standard_normal((n, 21, 40)).astype(np.float32) for n in (3, 5))

    def f(x: Any, y: Any) -> Any:
        whole = np.concatenate([x, np.maximum(y - np.float32(1), np.float32(0))])
        rows = [whole[:, i : i + 19 : 2] for i in range(3)]
        found = np.maximum(np.maximum(rows[0], rows[1]), rows[2])
        if last:
            columns = [found[..., i : i + 38] for i in range(3)]
            found = np.maximum(np.maximum(columns[0], columns[1]), columns[2])
        return found

    one = fused(f, 2)
    same_bits(natively(one, x, y)[0], f(x, y), signs=False)
    (kernel,) = program_of(one, x, y).kernels
    made = pieces_of(kernel, LoopTarget(reads_parts=True))
    assert not made.temporaries and len(made.pieces) == 2


def test_what_takes_long_is_computed_once_for_joined_images() -> None:
    x, y = (RNG.standard_normal((n, 21, 40)).astype(np.float32) for n in (3, 5))

    def f(x: Any, y: Any) -> Any:
        whole = np.concatenate([x, np.tanh(y)])
        rows = [whole[:, i : i + 19] for i in range(3)]
        return np.maximum(np.maximum(rows[0], rows[1]), rows[2])

    one = fused(f, 2)
    np.testing.assert_allclose(natively(one, x, y)[0], f(x, y), rtol=1e-5)
    (kernel,) = program_of(one, x, y).kernels
    made = pieces_of(kernel, LoopTarget(reads_parts=True, remembers=True))
    nests = [p.nest for p in made.pieces if isinstance(p, Loops)]
    computed = [s for n in nests for s in n.statements() if isinstance(s, Compute)]
    assert sum(s.op == "tanh" for s in computed) == 1


@pytest.mark.parametrize("value", [0.0, -np.inf])
def test_rows_are_written_with_what_lies_beside_them(value: float) -> None:
    """Maxima of windows of 3×3 in two stages: the first writes rows and the numbers
    beside these, with no nest for these alone."""
    x = RNG.standard_normal((4, 18, 30)).astype(np.float32)

    def f(x: Any, y: Any) -> Any:
        rows = [x[:, i : i + 16] for i in range(3)]
        tall = np.maximum(np.maximum(rows[0], rows[1]), rows[2])
        beside = np.pad(tall, ((0, 0), (0, 0), (1, 1)), constant_values=value)
        columns = [beside[..., i : i + 30] for i in range(3)]
        return np.maximum(np.maximum(columns[0], columns[1]), columns[2])

    one = fused(f, 2)
    same_bits(natively(one, x, x)[0], f(x, x), signs=False)
    (kernel,) = program_of(one, x, x).kernels
    made = pieces_of(kernel, LoopTarget(reads_parts=True))
    assert len(made.pieces) == 2
