"""Arrays that are joined or padded in one kernel, and few columns reduced in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_runs import Run, optimised
from metal import model
from natives import fused
from programs import program_of

from eqsat import ops
from eqsat.backends.gpu.generated import Generated, LibraryCall
from eqsat.backends.gpu.gpu_program import pieces_of
from eqsat.backends.gpu.shared_reads import with_shared_reads
from eqsat.backends.loop_ir.index_maps import Affine, Layout, LoopVar
from eqsat.backends.loop_ir.nest import (
    Buffer,
    Compute,
    Const,
    Load,
    Nest,
    Pass,
    Store,
)
from eqsat.backends.to_loops.schedule import LoopTarget
from eqsat.kernels.program import Program

Array = np.ndarray[Any, Any]
NEEDS_COMPILER = pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")


def rotary(x: Array, turns: Array) -> Array:
    """Heads of x, halves turned."""
    h = x.reshape(*x.shape[:-1], 4, -1).swapaxes(-2, -3)
    n = h.shape[-1] // 2
    a, b = h[..., :n], h[..., n:]
    cos, sin = np.cos(turns), np.sin(turns)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


JOINED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "rotary": (rotary, [(2, 9, 48), (9, 6)]),
    "three": (
        lambda x, y: np.concatenate([x * 2, y + 1, np.tanh(x)], 0),
        [(5, 7), (11, 7)],
    ),
    "rolled": (lambda x: np.roll(x, 3, -1) * x, [(6, 33)]),
    "padded": (lambda x: np.pad(x * x, ((1, 2), (0, 5))) + 1, [(9, 13)]),
    "stencil": (lambda x: np.pad(x[1:-1] - x[:-2], 1), [(40,)]),
}


def run(program: Program, arrays: list[Array], language: str) -> list[Any]:
    """What the model computes, after the kernels that it ran."""
    made = Run(program, language)
    functions = model.compiled(made.units)
    parts = [p for some in made.parts.values() for p in some]
    return [parts, *made(arrays, functions, 0)]


def drawn(shapes: list[tuple[int, ...]]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.sampled(5)
@NEEDS_COMPILER
@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("name", JOINED)
def test_what_joins_arrays_is_one_kernel(name: str, language: str) -> None:
    f, shapes = JOINED[name]
    arrays = drawn(shapes)
    parts, y = run(optimised(f, arrays), arrays, language)
    (part,) = parts
    assert isinstance(part, Generated)
    joined = part.source.joined or [part.source]
    assert part.source.groups == sum(s.groups for s in joined)
    want = f(*(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_what_several_parts_read_is_read_once() -> None:
    arrays = drawn([(2, 9, 48), (9, 6)])
    ((part,),) = Run(optimised(rotary, arrays), "cuda").parts.values()
    (nest,) = part.nests
    reads = [s for s in nest.statements() if isinstance(s, Load)]
    assert len(reads) == 3 and len({(s.buffer, s.at) for s in reads}) == 3
    assert sum(1 for s in nest.statements() if isinstance(s, Store)) == 2


def test_zeros_of_both_signs_are_two_values() -> None:
    i, wide = LoopVar("i", 300), np.dtype(np.float32)
    at, buffers = Affine.of(i), (Buffer("b0", wide), Buffer("b1", wide, True))

    def nest(zero: float, where: Affine) -> Nest:
        body = (
            Load(0, wide, 0, at),
            Const(1, wide, zero),
            Compute(2, wide, "multiply", (0, 1)),
            Store(1, where, 2),
        )
        return Nest(buffers, (i,), (Pass((), (), body),))

    two = [nest(0.0, at), nest(-0.0, at + Affine(300))]
    (both,) = with_shared_reads(two)
    values = [s.value for s in both.statements() if isinstance(s, Const)]
    assert [str(v) for v in values] == ["0.0", "-0.0"]
    (same,) = with_shared_reads([two[0], nest(0.0, at + Affine(300))])
    assert len([*same.statements()]) == 5


def test_joined_rows_are_calls_between_kernels() -> None:
    """Thread groups of rows differ in size, so that they are no parts of one kernel."""
    x = np.ones((64, 300), np.float32)

    def f(x: Any) -> Any:
        return ops.concatenate([ops.softmax(x), ops.softmax(x * 2)], axis=-1)

    parts = [
        p
        for some in Run(program_of(fused(f, 1), x), "cuda").parts.values()
        for p in some
    ]
    assert [type(p) for p in parts] == [Generated, Generated, LibraryCall]


COLUMNS: dict[str, tuple[Callable[..., Any], int]] = {
    "standardise": (
        lambda x: (x - x.mean(0)) / np.sqrt(((x - x.mean(0)) ** 2).mean(0) + 1e-5),
        5,
    ),
    "to_range": (lambda x: (x - x.min(0)) / (x.max(0) - x.min(0)), 3),
    "softmax": (lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0), 3),
    "variance": (lambda x: ((x - x.mean(0)) ** 2).mean(0), 4),
    "three": (
        lambda x: np.exp((x - x.mean(0)) / (np.abs(x - x.mean(0)).max(0) + 1)).sum(0),
        6,
    ),
}


@pytest.mark.sampled(10)
@NEEDS_COMPILER
@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("name", COLUMNS)
def test_few_columns_are_reduced_by_many_groups(name: str, language: str) -> None:
    """Each reduction in two steps; what is written of elements in one more."""
    f, steps = COLUMNS[name]
    (x,) = drawn([(2051, 36)])
    parts, y = run(optimised(f, [x]), [x], language)
    assert len(parts) == steps
    np.testing.assert_allclose(y, f(x.astype(np.float64)), rtol=2e-5, atol=1e-5)


def test_many_or_short_columns_take_one_kernel() -> None:
    f, _ = COLUMNS["standardise"]
    for shape in ((64, 64), (130, 1 << 16)):
        x = np.zeros(shape, np.float32)
        assert len(Run(optimised(f, [x]), "cuda").units) == 1, shape


def test_a_reshape_of_memory_with_gaps_is_no_copy() -> None:
    arrays = drawn([(2, 9, 48), (9, 6)])
    program = optimised(lambda x, t: rotary(x, t) + 1, arrays)
    (kernel,) = program.kernels
    gaps = Layout((9 * 96, 96, 1))
    layouts = {t: gaps for t in kernel.inputs if t.shape == (2, 9, 48)}
    packed, apart = (
        len(pieces_of(kernel, LoopTarget(), given).pieces) for given in ({}, layouts)
    )
    assert apart == packed
