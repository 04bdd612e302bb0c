"""The check of ops that a file defines: how each backend computes them, their NumPy
kernels, prices and derivatives.

What computes an op gives what its reference does (:mod:`eqsat.checking.op_agreement`):
programs on every backend that is here, alone and fused, and the kernels that its author
gave. A derivative (:attr:`Op.vjp`) is what central differences in float64 say, and what
the op's body has.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.checking.op_agreement import Expected
from eqsat.checking.op_derivatives import derivative_fault
from eqsat.checking.op_draws import (
    KINDS,
    Drawn,
    calls,
    drawn,
    dtypes_of_calls,
    is_common,
)
from eqsat.checking.op_programs import (
    BACKENDS,
    MODES,
    Batch,
    absent,
    observed,
    program_fault,
)
from eqsat.checking.report import Finding, Lint
from eqsat.rulelang import failure
from eqsat.support import Array
from eqsat.terms import Op

MARK = 0x5A


@dataclass
class _Tally:
    """What was compared so far."""

    examples: int = 0
    ulps: float = 0.0
    not_run: dict[str, str] = field(default_factory=dict)
    """Backends that are not here, and why."""


def check_op(op: Op, seed: int = 0) -> Finding | None:
    """What there is to say of an op: None for the joining of two results of a
    reduction, which is checked with that."""
    if op.fold is not None:
        return None
    tally, reason = _Tally(), ""
    try:
        reason = next(_faults(op, seed, tally), "")
    except Exception as error:
        reason = f"the check itself failed: {failure(error)}"
    file, line = op.place
    return Finding(
        op.name,
        file,
        line,
        "reassociate",
        "refused" if reason else "tested",
        tally.examples,
        tally.ulps,
        reason,
        kind="op",
        lints=_not_run(tally.not_run),
    )


def _not_run(absent: dict[str, str]) -> tuple[Lint, ...]:
    texts = [f"on {where}: {why}" for where, why in absent.items()]
    return (Lint("not run", "; ".join(texts)),) if texts else ()


def _faults(op: Op, seed: int, tally: _Tally) -> Iterator[str]:
    """What is wrong with an op."""
    batches = list(_batches(op, seed))
    if not any(b.calls for b in batches):
        yield "no drawn arguments are in its domain"
        return
    tally.examples = sum(len(turn) for b in batches for turn in b.turns)
    for batch in batches:
        for turn in batch.turns:
            for d in turn:
                yield from filter(None, _call_faults(d, tally))
    yield from filter(None, _slope_faults(op, batches, seed))
    yield from filter(None, _backend_faults(op, batches, tally))
    tally.not_run |= _left_out(batches)
    for batch in batches:
        for mode in batch.modes:
            rows = batch.expected(mode)
            tally.ulps = max([tally.ulps, *(e.ulps for row in rows for e in row)])


def _left_out(batches: Sequence[Batch]) -> dict[str, str]:
    """The dtypes that a backend refuses, and why it refuses the first."""
    found = {}
    for name in BACKENDS:
        those = [b for b in batches if name in b.left_out]
        if those:
            dtypes = ", ".join(b.dtypes for b in those)
            found[f"{name}, of {dtypes}"] = those[0].left_out[name]
    return found


def _batches(op: Op, seed: int) -> Iterator[Batch]:
    for dtypes in dtypes_of_calls(op):
        common = is_common(dtypes)
        turns = range(len(KINDS))
        made = []
        for place, call in enumerate(calls(op, dtypes, seed)):
            row = [drawn(call, place, t, seed) for t in turns]
            if all(d is not None for d in row):
                made.append((call, row))
        if made:
            rows = zip(*(row for _, row in made), strict=True)
            modes = MODES if common else MODES[1:]
            yield Batch([c for c, _ in made], [list(r) for r in rows], modes)


def _backend_faults(op: Op, batches: Sequence[Batch], tally: _Tally) -> Iterator[str]:
    """What is wrong with programs on the backends that are here."""
    tally.not_run |= absent(op)
    with observed(op) as called:
        for backend in BACKENDS:
            if backend in tally.not_run:
                continue
            for batch in batches:
                for mode in batch.modes:
                    yield program_fault(batch, backend, mode)
    for name in op.lowerings:
        if name not in called and name not in tally.not_run:
            yield (
                f"its kernel for {name}: no program calls it; {name} runs its own code "
                f"for an op, or the kernel for numpy"
            )


def _slope_faults(op: Op, batches: Sequence[Batch], seed: int) -> Iterator[str]:
    """What is wrong with rules of derivatives, by numbers in float64 none of which is
    there twice: where two are equal there may be a kink."""
    if not isinstance(op.vjp, tuple):
        return
    for batch in batches:
        for place, call in enumerate(batch.calls):
            for kind in ("uniform", "large"):
                d = drawn(call, place, KINDS.index(kind), seed, "contiguous")
                if d is not None and d.kind == kind:
                    yield derivative_fault(d, place)


# -- a call by itself ------------------------------------------------------------------


def _call_faults(d: Drawn, tally: _Tally) -> Iterator[str]:
    """What is wrong with one call: the type of the reference, NumPy's kernel, prices,
    derivatives."""
    op, term = d.call.op, d.call.term
    want = Expected(d, term).value
    if (want.dtype, want.shape) != term.type:
        yield (
            f"its reference gives {want.dtype} {want.shape}, but its signature says "
            f"{term.dtype} {term.shape}: {d}"
        )
    yield _kernel_fault(d, tally)
    yield _price_fault(op, d)


def _kernel_fault(d: Drawn, tally: _Tally) -> str:
    """What is wrong with the NumPy kernel, called as programs call it."""
    op, term = d.call.op, d.call.term
    own = op.lowerings.get("numpy")
    if own is None or not term.size:
        return ""
    expected = Expected(d, term)
    for laid in d.laid:
        with np.errstate(all="ignore"):
            given = d.call.operands(laid.arrays)
            try:
                got, fault = _filled(own.function, given, d)
            except Exception as error:
                got, fault = expected.value, f"it raises {failure(error)}"
        fault = fault or expected.fault(got, True)
        tally.ulps = max(tally.ulps, expected.ulps)
        if fault:
            return f"its kernel for numpy: {laid}: {fault}"
    return ""


def _filled(
    function: Callable[..., Any], given: list[Any], d: Drawn
) -> tuple[Array, str]:
    """What the kernel writes between two margins, and what it does besides."""
    term = d.call.term
    dtype = np.dtype(term.dtype)  # type: ignore[arg-type]
    size = term.size * dtype.itemsize
    room = np.full(size + 2 * 64, MARK, np.uint8)
    arrays = [a for a in given if isinstance(a, np.ndarray)]
    before = [a.tobytes() for a in arrays]
    held = sys.getrefcount(room)
    out = room[64 : 64 + size].view(dtype).reshape(term.shape)
    function(*given, out=out, **d.call.attrs)
    got = out.copy()
    del out
    if sys.getrefcount(room) != held:
        gc.collect()
    if sys.getrefcount(room) != held:
        return got, "it keeps a reference to out"
    if (room[:64] != MARK).any() or (room[64 + size :] != MARK).any():
        return got, "it writes outside of out"
    if [a.tobytes() for a in arrays] != before:
        return got, "it changes an argument"
    return got, ""


def _price_fault(op: Op, d: Drawn) -> str:
    """What is wrong with what a kernel is said to take."""
    types = [t.type for t in d.call.term.args]
    for backend, own in op.lowerings.items():
        if own.seconds is None:
            continue
        said = f"seconds of its kernel for {backend}"
        try:
            price = float(own.seconds(types, dict(d.call.attrs), d.call.term.type))
        except Exception as error:
            return f"{said} raises {failure(error)}"
        if not 0 <= price < float("inf"):
            return f"{said} gives {price}, expected a finite number from 0 on"
    return ""
