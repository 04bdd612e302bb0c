"""The table of NumPy's functions, measured on this machine."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from eqsat.kernels.cost_model import term_flops
from eqsat.kernels.numpy_call_times import ANY, NUMBER, NumpyCalls, routine_of
from eqsat.terms import BF16, Op, Term, postorder
from eqsat.trace import flatten_arguments, trace

Array = np.ndarray[Any, Any]
SMALL, LARGE = 16, 1 << 13
"""Elements of the arrays that calls and elements are told apart by."""
SIDE = 96
"""Rows and columns of products whose dtypes have no BLAS."""
BLAS_SIDE = 512
CHAIN = 4
"""Maps of the expression that shows how fast results are written."""
KEPT = (32 << 20) - (1 << 16)
"""Bytes of an array whose memory a C library keeps."""
SIZES = tuple(1 << k for k in range(13, 27))
"""Bytes of the arrays that are read and written."""
DTYPES = (*map(np.dtype, ("f4", "f8", "i4", "i8", "u1", "?", "f2", "c16")), BF16)
AT_ONCE_S = 1e-3
"""Seconds of the calls that are timed as one."""
ROUNDS = 3
ROWS = 20, 50, 200, 1000, 8000, 64000
"""Elements of rows that are sorted."""
SIDES = 8, 96
"""Rows of matrices that are factored."""
SORTS: tuple[Callable[..., Any], ...] = (np.sort, np.argsort)
FACTORS: tuple[Callable[[Any], Any], ...] = (
    lambda x: np.linalg.slogdet(x)[1],
    np.linalg.cholesky,
    np.linalg.inv,
    lambda x: np.linalg.solve(x, x),
    np.linalg.eigvalsh,
    lambda x: np.linalg.svd(x, compute_uv=False),
    lambda x: np.linalg.svd(x)[0],
    lambda x: np.linalg.qr(x)[1],
)
"""Whose routines are those of :func:`.numpy_calls.routine_of`."""
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "all", "any", "argmax", "argmin")


def measure_numpy(name: str, progress: Callable[[str], None]) -> NumpyCalls:
    """Each function of NumPy and SciPy that an op is, for each dtype that it takes;
    about 4 s. ``progress`` is told what comes next."""
    calls: dict[str, tuple[float, float]] = {}
    along: dict[str, tuple[float, float]] = {}
    across: dict[str, float] = {}
    progress("functions")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex numbers lose a part
        for op in sorted(Op.registry.values(), key=lambda op: op.name):
            if op.kind == "pointwise" and not op.attrs:
                for dtype in DTYPES:
                    found = _pointwise(_function(op), len(op.params), dtype)
                    if found is not None:
                        calls[f"{op.name} {dtype}"] = found
                    if found is not None and len(op.params) == 2:
                        f = _function(op)
                        one = _pointwise(partial(_with_one, f), 1, dtype)
                        calls[f"{op.name} {NUMBER} {dtype}"] = one or found
    progress("casts, views and copies")
    for dtype in DTYPES:
        for other in DTYPES if dtype.kind != "c" else ():
            found = _call(lambda x, to=other: x.astype(to), [_drawn(dtype)])
            if found is not None:
                calls[f"cast {dtype} {other}"] = found
    join = _call(lambda x: np.concatenate([x, x]), [_drawn(DTYPES[0])])
    assert join is not None
    pad = _call(lambda x: np.pad(x, 1), [_drawn(DTYPES[0])])
    assert pad is not None
    calls[f"concatenate {ANY}"] = join[0], 0.0
    calls[f"pad {ANY}"] = pad[0], 0.0
    progress("reductions")
    for op_name in REDUCTIONS:
        for dtype in DTYPES:
            _reduction(op_name, dtype, calls, along, across)
    progress("sorts and gathers")
    for dtype in DTYPES:
        _others(dtype, calls)
    progress("sorts of rows and factorisations")
    orders = {f"{f.__name__} {d}": _order(f, d) for f in SORTS for d in DTYPES}
    factors = _factors()
    progress("products")
    products = {str(d): _product(d) for d in DTYPES}
    progress("memory")
    reads, writes = zip(*_memory(), strict=True)
    for table in (calls, along, across, products, orders):
        _stand_for_all(table)
    x = _drawn(DTYPES[0], SMALL)
    rows = _drawn(DTYPES[0], LARGE).reshape(-1, 8)
    inner = _seconds(lambda: rows + rows[0]) - _seconds(lambda: rows + rows)
    few, many = (np.ones((n, 4, 4), np.float32) for n in (1, 257))
    parts_s = _seconds(lambda: many @ many) - _seconds(lambda: few @ few)
    return NumpyCalls(
        name,
        calls,
        along,
        across,
        products,
        reads,
        writes,
        orders,
        factors,
        view_s=_seconds(lambda: x[1:]),
        inner_s=max(0.0, inner) / len(rows),
        part_s=max(0.0, parts_s) / 256,
    )


def _with_one(f: Callable[..., Any], x: Array) -> Any:
    """``f`` of an array and a number: some functions take another loop for these."""
    return f(x, x.dtype.type(1))


def _function(op: Op) -> Callable[..., Any]:
    if op.special:
        import scipy.special

        found: Callable[..., Any] = getattr(scipy.special, op.special)
        return found
    return op.ufunc or op.reference


def _pointwise(
    f: Callable[..., Any], arguments: int, dtype: np.dtype[Any]
) -> tuple[float, float] | None:
    """Seconds of a call and of an element, of normal numbers where a function has
    values there, else of numbers from 0 to 1."""
    x = _drawn(dtype)
    if dtype.kind == "f":
        normal = np.random.default_rng(0).standard_normal(LARGE).astype(dtype)
        try:
            if not np.isnan(f(*[normal] * arguments)).any():
                x = normal
        except (TypeError, ValueError):
            return None
    return _call(f, [x] * arguments)


def _drawn(dtype: np.dtype[Any], n: int = LARGE) -> Array:
    """Numbers at which most functions do their usual work."""
    x = np.random.default_rng(0).uniform(0.1, 0.9, n)
    if dtype.kind in "iu":
        return (10 * x).astype(dtype)
    return x.astype(dtype) if dtype.kind != "b" else x > 0.5


def _call(f: Callable[..., Any], arrays: list[Array]) -> tuple[float, float] | None:
    """Seconds of a call and of an element; None where NumPy refuses the dtype."""
    small = [a[:SMALL] for a in arrays]
    try:
        f(*small)
    except (TypeError, ValueError):
        return None
    few, many = _seconds(lambda: f(*small)), _seconds(lambda: f(*arrays))
    each = max(0.0, many - few) / (LARGE - SMALL)
    return few, each


def _reduction(
    name: str,
    dtype: np.dtype[Any],
    calls: dict[str, tuple[float, float]],
    along: dict[str, tuple[float, float]],
    across: dict[str, float],
) -> None:
    f, x, key = getattr(np, name), _drawn(dtype), f"{name} {dtype}"
    try:
        call = _seconds(lambda: f(x[:SMALL]))
    except TypeError:
        return
    long = _seconds(lambda: f(x.reshape(-1, LARGE // 4), axis=-1)) - call
    short = _seconds(lambda: f(x.reshape(-1, 8), axis=-1)) - call
    tall = np.resize(x, (64, 1024))
    other = _seconds(lambda: f(tall, axis=0)) - call
    each = max(0.0, long) / LARGE
    calls[key] = call, 0.0
    along[key] = max(0.0, short - LARGE * each) / (LARGE // 8), each
    across[key] = max(0.0, other) / tall.size


def _others(dtype: np.dtype[Any], calls: dict[str, tuple[float, float]]) -> None:
    """What an element takes in gathers, sums by index and sums so far."""
    x, at = _drawn(dtype), np.random.default_rng(0).integers(0, LARGE, LARGE)
    several: dict[str, Callable[[Array], Any]] = {
        "add_at": lambda x: np.bincount(at[: len(x)], x, LARGE),
        "take": lambda x: x[at[: len(x)] % len(x)],
        "accumulate": np.cumsum,
    }
    for name, f in several.items():
        found = _call(f, [x])
        if found is not None:
            calls[f"{name} {dtype}"] = found


def _order(sort: Callable[..., Any], dtype: np.dtype[Any]) -> list[tuple[float, float]]:
    """What an element of a sorted row takes, for each length of rows."""
    found = []
    for row in ROWS:
        x = drawn_rows(row).astype(dtype)
        found.append((float(row), _seconds(partial(sort, x)) / x.size))
    return found


def drawn_rows(row: int) -> Array:
    """Rows of so many elements, in no order."""
    x = np.random.default_rng(0).standard_normal((max(1, LARGE // 2 // row), row))
    return 100 * x


def drawn_matrix(side: int) -> Array:
    """A matrix that each routine takes."""
    x = np.random.default_rng(0).standard_normal((side, side))
    found: Array = x @ x.T + side * np.eye(side)
    return found


def _factors() -> dict[str, list[tuple[float, float]]]:
    """What a floating operation of each routine takes."""
    found: dict[str, dict[float, float]] = {}
    for side in SIDES:
        x = drawn_matrix(side)
        for f in FACTORS:
            traced = trace(f, flatten_arguments(f, (x,), {}))
            terms = [t for t in postorder(traced.outputs) if _is_library(t)]
            work = sum(term_flops(t)[1] for t in terms)
            each = _seconds(partial(f, x)) / work
            for t in terms:
                found.setdefault(routine_of(t), {}).setdefault(float(side), each)
    return {routine: [*each.items()] for routine, each in found.items()}


def _is_library(term: Term) -> bool:
    return isinstance(term.op, Op) and term.op.kind == "library"


def _product(dtype: np.dtype[Any]) -> float:
    side = BLAS_SIDE if dtype.kind in "fc" and dtype.itemsize > 2 else SIDE
    x = np.resize(_drawn(dtype), (side, side))
    return 2.0 * side**3 / _seconds(lambda: x @ x)


def _memory() -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """For each size the seconds to read and to write a byte. A result is an array of
    its own, made while the one before lives, as in any expression.

    The C library gives freed memory back to the system or keeps it, whose pages then
    need not be cleared again; glibc keeps as much as the largest array that the
    process has freed, up to 32 MiB. As one has been freed here, so it is in processes
    that have worked for a while (1.3 M int32: 250 µs an operation, not 1,700).
    """
    np.ones(KEPT, np.uint8)  # freed at once

    def chain(x: Array) -> Array:
        for _ in range(CHAIN):
            x = np.negative(x)
        return x

    for size in SIZES:
        x = np.ones(size // 4, np.float32)
        start = _seconds(partial(np.max, x[:SMALL]))
        read = max(1e-13 * size, _seconds(partial(np.max, x)) - start)
        both = _seconds(partial(chain, x)) / CHAIN - start
        yield (float(size), read / size), (float(size), max(read, both - read) / size)


def _seconds(run: Callable[[], object]) -> float:
    """Seconds of one call: the least of some rounds of many calls each."""
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    best = math.inf
    for _ in range(ROUNDS):
        count = max(1, min(1000, int(AT_ONCE_S / max(once, 1e-7))))
        start = time.perf_counter()
        for _ in range(count):
            run()
        once = (time.perf_counter() - start) / count
        best = min(best, once)
    return best


def _stand_for_all(table: dict[str, Any]) -> None:
    """Add what stands for what was not measured: for a function the largest of its
    dtypes, for all others the median of all."""
    names: dict[str, list[Any]] = {}
    for key, value in table.items():
        names.setdefault(key.rpartition(" ")[0], []).append(value)
    middle = sorted(table.values())[len(table) // 2]
    table |= {f"{n} {ANY}".lstrip(): max(v) for n, v in names.items()}
    table.setdefault(ANY, middle)
