"""Programs that stay under ``Options(memory_limit)``: chosen among what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from eqsat.kernels import CostModel, Program, show_bytes, verify_program
from eqsat.lowered import Lowered
from eqsat.support import Deadline, MemoryLimitError, counted, verifying
from eqsat.terms import Term

DEARER = (8.0, 64.0)
"""How many times as slow memory is taken to be, and as fast arithmetic, so that the
search recomputes what it would keep."""


def fitting(first: Lowered, name: str, deadline: Deadline, again: Again) -> Lowered:
    """``first``, or the first program after it that takes no more memory in a call than
    its options allow: workspace and results.

    In this order: other orders of its steps, programs that the search finds where
    memory is slow, and all of them on one thread, which has less scratch memory than
    several. ``again`` searches with another cost model. Raises
    :class:`MemoryLimitError` that says how many bytes are too many; it stops at the
    deadline.
    """
    limit = first.options.memory_limit
    results = first.program.result_bytes
    if results > limit:
        raise MemoryLimitError(_too_large(name, limit, results, results, 0))
    least, tried = None, 0
    for low in _variants(first, again):
        if tried and not deadline.left:
            break
        tried += 1
        if verifying():
            verify_program(low.program, "memory limit")
        if low.peak_bytes <= limit:
            return low
        least = low.peak_bytes if least is None else min(least, low.peak_bytes)
    assert least is not None
    raise MemoryLimitError(_too_large(name, limit, least, results, tried))


Again = Callable[[CostModel], Sequence[Term]]


def _variants(first: Lowered, again: Again) -> Iterator[Lowered]:
    several = [first]
    yield first
    for program in _programs(first, again):
        search = first.search if program.roots == first.program.roots else None
        low = replace(first, term=program.roots, program=program, search=search)
        several.append(low)
        yield low
    if getattr(first.executable, "threads", 1) > 1:
        for low in several:
            yield replace(low, options=replace(low.options, threads=1))


def _programs(first: Lowered, again: Again) -> Iterator[Program]:
    """Programs other than the first one."""
    given = first.program
    yield _ordered(given.roots, given)
    seen = {given.roots}
    for times in DEARER:
        roots = tuple(again(_dearer(first.model, times)))
        if roots not in seen:
            seen.add(roots)
            names = [given.names[t] for t in given.inputs]
            yield Program.of(roots, given.inputs, names)
            yield _ordered(roots, given)


def _ordered(roots: Iterable[Term], like: Program) -> Program:
    """The program of ``roots`` in an order that keeps little in memory."""
    names = [like.names[t] for t in like.inputs]
    return Program.of(tuple(roots), like.inputs, names, least_memory=True)


def _dearer(model: CostModel, times: float) -> CostModel:
    """The model of a device that computes fast, and whose memories but the smallest are
    slow."""
    d = model.device
    first, *others = d.bandwidths
    slow = replace(
        d,
        flops_per_s=d.flops_per_s * times,
        map_flops_per_s=d.map_flops_per_s * times,
        bandwidths=(first, *((room, rate / times) for room, rate in others)),
    )
    return replace(model, device=slow)


def _too_large(name: str, limit: int, least: int, results: int, tried: int) -> str:
    if not tried:
        how = f"its results alone take {show_bytes(results)}"
    else:
        how = (
            f"the smallest of {counted(tried, 'program')} takes {show_bytes(least)}, "
            f"{show_bytes(results)} of them for results"
        )
    return f"{name!r} takes {least - limit} bytes more than memory_limit={limit}: {how}"
