"""The rates of a core, measured with programs of machine code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.kernels import Program, between, calibrate, measure_numpy, packed
from eqsat.support import BackendError
from eqsat.terms import INPUT, Cost, Op, TermGraph
from eqsat.trace import KERNEL, BodyStep, KernelBody, flatten_arguments, trace

from ...loop_ir import Factoring, Layout, Network
from ..lower import NativeProgram, planned
from ..machine import host
from ..plan import Group, Places, kind_of
from .rates import ClockRates, stands_for_all

Array = np.ndarray[Any, Any]
Table = list[tuple[float, float]]
ELEMENTS = 1 << 12
"""Of arrays that stay in the first two caches."""
DTYPES = tuple(map(np.dtype, ("f4", "f8", "i4", "i8")))
SIZES = tuple(1 << k for k in (13, 16, 18, 20, 22, 24, 26))
"""Bytes of arrays that are read and written."""
INDICES = 1 << 19
"""Most indices by which elements are read: more lines than a second cache holds."""
NETWORKS = 4, 8, 16, 32
"""Elements of rows that networks sort."""
LINES = 8, 40
"""Operations of kernels that tell what one takes."""
MANY = 32
"""Kernels of a program that shows what it takes to start one."""
SIDE, SMALL_SIDE = 512, 96
"""Rows of matrices that are multiplied: of floating numbers, and of others."""
ROUND_S, ROUNDS = 5e-3, 5
"""Seconds for each figure, about, and in how many rounds; the least counts."""
CALL = 0.4, 0.033, 0.15
"""What a call takes beside its kernels, each argument and each result after the first,
of the time of a call of NumPy. All of it is work of the interpreter."""


def measure_rates(name: str, progress: Callable[[str], None]) -> ClockRates:
    """About 10 s. ``progress`` is told what comes next."""
    progress("calls of machine code")
    tiny = np.ones(16, np.float32)
    call_s = _seconds(np.negative, tiny)
    start_s = (_seconds(scaled(MANY), tiny) - call_s) / (MANY - 1)
    python_s = calibrate.seconds(lambda: np.negative(tiny))
    entry_s, argument_s, result_s = (part * python_s for part in CALL)
    progress("rows")
    long, wide = np.ones((64, 2048), np.float32), np.ones((8192, 16), np.float32)
    row_s = _seconds(lambda x: x + x[0], wide) - _seconds(np.negative, wide)
    sums_s = _seconds(lambda x: x.sum(-1), wide) - _seconds(lambda x: x.sum(-1), long)
    progress("functions of machine code")
    functions = dict(_functions())
    progress("sorts and running results")
    orders = {
        f"{f.__name__} {d}": _order(f, d) for f in measure_numpy.SORTS for d in DTYPES
    }
    running = {
        f"{f.__name__} {d}": (_seconds(f.accumulate, _drawn(d)) - call_s) / ELEMENTS
        for f in (np.add, np.multiply, np.maximum)
        for d in DTYPES
    }
    progress("memory")
    reads, writes, apart, gathers, scatters = _memory(call_s)
    lines = np.ones((ELEMENTS, 1024), np.float32)
    far_s = (_seconds(lambda x: np.negative(x[:, 0]), lines) - call_s) / ELEMENTS
    progress("products and factorisations")
    return ClockRates(
        name,
        host().vector_bits,
        entry_s,
        argument_s,
        result_s,
        start_s=max(0.0, start_s),
        row_s=max(0.0, row_s) / len(wide),
        reduced_s=max(0.0, sums_s) / len(wide),
        vectors=stands_for_all({str(d): _vector_s(d) for d in DTYPES}),
        functions=functions,
        running=stands_for_all(running),
        reads=reads,
        writes=writes,
        apart=apart,
        far_s=max(0.0, far_s),
        gathers=gathers,
        scatters=scatters,
        products=_products(),
        orders=stands_for_all(orders),
        networks=[
            (float(n), _of_planned(np.sort, measure_numpy.drawn_rows(n))[1])
            for n in NETWORKS
        ],
        factors=stands_for_all(_factors()),
    )


def scaled(times: int) -> Callable[[Any], Any]:
    """A function of so many kernels."""

    def scaled(x: Any) -> Any:
        for _ in range(times):
            x = x * 1.5
        return x

    return scaled


# -- arithmetic ------------------------------------------------------------------------


def _functions() -> Iterator[tuple[str, float]]:
    """What an element of each function takes that is no addition, for each dtype."""
    for dtype in DTYPES:
        x, least = _drawn(dtype), _seconds(np.negative, _drawn(dtype))
        for op in sorted(Op.registry.values(), key=lambda op: op.name):
            if op.kind != "pointwise" or op.attrs or op.cost <= Cost.LIGHT:
                continue
            n = len(op.params)
            ways: dict[str, tuple[Callable[..., Any], int]] = {
                f"{op.name} {dtype}": (op, n)
            }
            if n == 2:
                of_number = f"{op.name} number {dtype}"
                ways[of_number] = lambda x, op=op: op(x, x.dtype.type(3)), 1
            for key, (f, arguments) in ways.items():
                try:
                    spent = _seconds(f, *[x] * arguments)
                except (BackendError, TypeError):  # NumPy runs it, or has none
                    continue
                yield key, max(0.0, spent - least) / ELEMENTS


def _vector_s(dtype: np.dtype[Any]) -> float:
    """Seconds of an addition of vectors, where one kernel has many of them."""
    few, many = (_straight(dtype, n) for n in LINES)
    x = _drawn(dtype)
    spent = _run_s(many, x) - _run_s(few, x)
    lanes = host().vector_bits / (8 * x.itemsize)
    return max(1e-12, spent * lanes / (x.size * (LINES[1] - LINES[0])))


def _straight(dtype: np.dtype[Any], lines: int) -> Program:
    """A kernel of so many operations an element, four of them independent, that LLVM
    makes no fewer of."""
    kinds = (ops.subtract,) if dtype.kind == "f" else (ops.bitwise_xor, ops.add)
    steps = [BodyStep(ops.add, (), (0, 0))]
    for i in range(lines - 1):
        op = kinds[i % len(kinds)]
        steps.append(BodyStep(op, (), (max(0, i - 3), max(0, i - 2))))
    for i in range(3):  # all of the last values are used
        steps.append(BodyStep(ops.subtract, (), (lines - i, lines + i)))
    graph, type_ = TermGraph(sources=False), (dtype, (ELEMENTS,))
    body = KernelBody(1, tuple(steps), (len(steps),), (type_,))
    x = graph.node(INPUT, (), (0,), type_)
    return Program.of([graph.node(KERNEL, [x], (body,), type_)], [x])


def _order(sort: Callable[..., Any], dtype: np.dtype[Any]) -> Table:
    """Seconds to put an element in order, for each length of rows."""
    found = []
    for row in measure_numpy.ROWS:
        x = measure_numpy.drawn_rows(row).astype(dtype)
        found.append((float(row), _seconds(sort, x) / x.size))
    return found


def _products() -> dict[str, float]:
    found = {}
    for dtype in DTYPES:
        side = SIDE if dtype.kind == "f" else SMALL_SIDE
        x = np.resize(_drawn(dtype), (side, side))
        found[str(dtype)] = 2.0 * side**3 / _seconds(lambda x: x @ x, x)
    return found | {"any": found["float32"]}


def _factors() -> dict[str, Table]:
    """What factorisations take of what is planned for them."""
    found: dict[str, dict[float, float]] = {}
    for side in measure_numpy.SIDES:
        x = measure_numpy.drawn_matrix(side)
        for f in measure_numpy.FACTORS:
            pieces, ratio = _of_planned(f, x)
            for p in pieces:
                if isinstance(p, Factoring):
                    found.setdefault(p.routine, {}).setdefault(float(side), ratio)
    return {routine: [*ratios.items()] for routine, ratios in found.items()}


def _of_planned(f: Callable[..., Any], x: Array) -> tuple[list[Any], float]:
    """The pieces of a function that are sorted or factored, and how many times as long
    as planned they take."""
    program = _traced(f, x)
    layouts = [Layout(packed(t.shape)) for t in program.inputs]
    plan = planned(program, Places(program, layouts), host(), 1, False)
    groups = [part for part in plan.parts if isinstance(part, Group)]
    every = [s.piece for group in groups for s in group.steps]
    pieces = [p for p in every if isinstance(p, (Factoring, Network))]
    planned_s = sum(kind_of(p).seconds(p, host()) for p in pieces)
    return pieces, _run_s(program, x) / planned_s


# -- memory ----------------------------------------------------------------------------


def _memory(call_s: float) -> tuple[Table, Table, Table, Table, Table]:
    """For each size the seconds of a byte read, and written; and of an element read
    across rows, read by an index, and added to by one."""
    reads, writes, apart, gathers, scatters = (
        Table(),
        Table(),
        Table(),
        Table(),
        Table(),
    )
    draw = np.random.default_rng(0)
    for size in SIZES:
        n = size // 4
        x = np.ones(n, np.float32)
        read_s = max(_seconds(np.max, x) - call_s, 1e-12 * size)
        copied_s = max(_seconds(np.negative, x) - call_s, 1e-12 * size)
        reads.append((float(size), read_s / size))
        written_s = max(copied_s - size * between(reads, 2 * size), read_s)
        writes.append((2.0 * size, written_s / size))
        side = 1 << (n.bit_length() - 1) // 2
        turned_s = _seconds(lambda x: np.negative(x.T), x.reshape(-1, side)) - call_s
        apart.append((float(size), max(0.0, turned_s - copied_s) / n))
        some = draw.integers(0, n, min(n, INDICES))
        taken_s = _seconds(lambda x, i: x[i], x, some) - call_s
        gathers.append((float(size), max(0.0, taken_s) / some.size))
        ones = np.ones(some.size, np.float32)
        added_s = _seconds(_added, x, some, ones) - call_s - copied_s
        scatters.append((float(size), max(0.0, added_s) / some.size))
    return _falling(reads), _falling(writes), apart, gathers, scatters


def _added(x: Any, i: Any, values: Any) -> Any:
    out = x.copy()
    np.add.at(out, i, values)
    return out


def _falling(table: Table) -> Table:
    """The table where a byte of what is smaller takes no longer than of what is larger:
    what the call or a reduction takes counts in small ones."""
    found, least = Table(), math.inf
    for size, each in reversed(table):
        least = min(least, each)
        found.append((size, least))
    return found[::-1]


# -- timing ----------------------------------------------------------------------------


def _drawn(dtype: np.dtype[Any], n: int = ELEMENTS) -> Array:
    """Numbers at which most functions do their usual work."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, n)
    return (1 + 10 * x).astype(dtype) if dtype.kind == "i" else x.astype(dtype)


def _traced(f: Callable[..., Any], *arrays: Array) -> Program:
    """A function as it is written, an operation a kernel."""
    traced = trace(f, flatten_arguments(f, arrays, {}))
    return Program.of(traced.outputs, traced.inputs)


def _seconds(f: Callable[..., Any], *arrays: Array) -> float:
    """Seconds of a function as machine code, on one thread."""
    return _run_s(_traced(f, *arrays), *arrays)


def _run_s(program: Program, *arrays: Array) -> float:
    """Seconds of a call. Raises :class:`BackendError` where NumPy runs a part."""
    run = NativeProgram(program, host(), threads=1, cache=False)
    if run.reasons:
        raise BackendError(next(iter(run.reasons.values())))
    once = max(1e-7, min(run.first.repeated(arrays, 1) for _ in range(3)))
    calls = max(1, min(2000, int(ROUND_S / ROUNDS / once)))
    return min(run.first.repeated(arrays, calls) for _ in range(ROUNDS)) / calls
