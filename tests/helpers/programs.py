"""Programs of traced functions, for tests of programs and backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from eqsat.backends.numpy import blocks, interpret, lower
from eqsat.kernels.kernel import Kernel
from eqsat.kernels.program import Program
from eqsat.ops import transcendental
from eqsat.terms.make_term import constant
from eqsat.terms.op import INPUT, Op
from eqsat.terms.term import Term, TermGraph, postorder
from eqsat.terms.type_rules import is_float
from eqsat.trace.kernel_body import KERNEL
from eqsat.trace.tracer import Tracer

Array = np.ndarray[Any, Any]
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-10}
FUNCTIONS = [o for o in vars(transcendental).values() if isinstance(o, Op)]


def terms_of(
    f: Callable[..., Any], arrays: Sequence[Any], constants: Sequence[Array] = ()
) -> tuple[list[Term], list[Term]]:
    """The roots that ``f`` records over arrays and constants, and its inputs."""
    graph = TermGraph()
    inputs = [
        graph.node(INPUT, (), (i,), (x.dtype, x.shape)) for i, x in enumerate(arrays)
    ]
    fixed = [constant(graph, c) for c in constants]
    results = f(*map(Tracer, [*inputs, *fixed]))
    many = results if isinstance(results, (tuple, list)) else [results]
    return [r.term for r in many], inputs


def program_of(
    f: Callable[..., Any], *arrays: Any, constants: Sequence[Array] = ()
) -> Program:
    """The program of ``f`` as it is written, one kernel an op."""
    roots, inputs = terms_of(f, arrays, constants)
    return Program.of(roots, inputs)


def assert_lowered(
    f: Callable[..., Any],
    *arrays: Array,
    constants: Sequence[Array] = (),
    tol: float = 1,
) -> str:
    """The NumPy program of ``f`` gives what the oracle gives, in arrays of its own.

    ``tol`` is in roundings of the dtype. Returns the source.
    """
    program = program_of(f, *arrays, constants=constants)
    low = lower(program)
    before = [x.copy() for x in arrays]
    got = low(*arrays)
    want = interpret(program.roots, arrays)
    for x, kept in zip(arrays, before, strict=True):
        assert x.tobytes() == kept.tobytes()
    for i, (g, w, root) in enumerate(zip(got, want, program.roots, strict=True)):
        assert type(g) is np.ndarray
        assert (g.dtype, g.shape) == (w.dtype, w.shape) == root.type
        assert g.flags.writeable
        others = [*arrays, *got[:i], *root.graph.arrays.values()]
        assert not any(np.may_share_memory(g, o) for o in others)
        assert_near(g, w, tol)
    return low.source


def assert_near(
    got: Array, want: Array, tol: float, rounding: float | None = None
) -> None:
    """Equal up to ``tol`` roundings, absolute and relative, as are NaN and ∞.

    ``rounding``: that of a coarser dtype than the result's (:func:`rounding_of`).
    """
    rounding = tol * (
        ROUNDING.get(want.dtype.name, 0) if rounding is None else rounding
    )
    if rounding:
        got, want = got.astype(float), want.astype(float)
    np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding)


def rounding_of(root: Term) -> float:
    """The largest of those of the result and of the library's functions on the way to
    it: a logarithm in float32 is no closer for a later cast."""
    if not is_float(root.dtype):
        return 0.0
    rounded = [t for t in postorder([root]) if t.op in FUNCTIONS and is_float(t.dtype)]
    return max(ROUNDING[str(t.dtype)] for t in (root, *rounded))


@contextmanager
def small_cache(room: int, rows: int = 2) -> Iterator[None]:
    """Blocks for a cache of ``room`` bytes, and products of at least ``rows`` rows."""
    known = blocks.CACHE_BYTES, blocks.GEMM_ROWS
    blocks.CACHE_BYTES, blocks.GEMM_ROWS = room, rows
    try:
        yield
    finally:
        blocks.CACHE_BYTES, blocks.GEMM_ROWS = known


def held(kernel: Kernel) -> tuple[str, ...]:
    """The ops that a kernel holds: its own, or those of its body."""
    if kernel.op is not KERNEL:
        return (kernel.op.name,)
    body: Any = kernel.term.attrs[0]
    return tuple(body.ops)


def held_by(program: Program) -> list[str]:
    """The ops that the kernels of a program hold."""
    return [name for k in program.kernels for name in held(k)]
