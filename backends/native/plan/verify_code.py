"""What must hold of what a program's writer makes of a plan: where the memory between
kernels and that of threads lies, and the table of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from eqsat.support import Broken, refuse

from ..machine import ALIGNMENT, Host, MemoryRef, aligned
from .buffers import TEMPORARY
from .call_table import TableCall, code_alone, is_nest, told_units
from .groups import Group
from .steps import Layered
from .verify import Blocks, broken_parts, said


def verify_arena(
    layered: Layered,
    parts: Sequence[Group],
    homes: Mapping[MemoryRef, MemoryRef],
    threads: tuple[int, int, int],
) -> None:
    """Raise :class:`VerifyError` where memory between kernels, whose ``homes`` are in
    scratch memory, or memory of ``threads``, breaks a rule. These are where theirs
    starts, bytes of each, and bytes in all."""
    refuse("native program", _arena(layered, parts, homes, *threads))


def _arena(
    layered: Layered,
    parts: Sequence[Group],
    homes: Mapping[MemoryRef, MemoryRef],
    start: int,
    each: int,
    whole: int,
) -> Iterator[Broken]:
    blocks = Blocks(layered)
    sizes = dict(blocks.slots)
    for m, home in homes.items():
        if sizes.get(home.byte):
            rule = "parts of scratch memory are apart"
            yield Broken(said(m), rule, home.byte, "memory of its own")
        sizes[home.byte] = layered.temporaries[m.byte]
    yield from broken_parts("scratch memory", sizes, layered.places.scratch_bytes)
    private = {m for g in parts for m, _ in g.private}
    for g in parts:
        for m in (m for s in g.steps for m in s.memory):
            if m.buffer == TEMPORARY and m not in homes and m not in private:
                yield Broken(said(m), "memory in between lies somewhere", m, "a home")
        need = sum(aligned(g.panel * size) for _, size in g.private)
        need += max((s.plan.bytes for s in g.steps if s.plan), default=0)
        if need > each:
            yield Broken("memory of a thread", "it holds a group's", each, need)
    if start % ALIGNMENT or start < layered.places.scratch_bytes:
        expected = aligned(layered.places.scratch_bytes)
        rule = "memory of threads starts behind the scratch memory"
        yield Broken("memory of threads", rule, start, expected)
    if whole < start + each * layered.threads:
        expected = start + each * layered.threads
        yield Broken("arena", "it holds the memory of all threads", whole, expected)


def verify_table(
    groups: Sequence[Group],
    distinct: Sequence[Group],
    calls: Sequence[TableCall],
    host: Host,
) -> None:
    """Raise :class:`VerifyError` where a row of the table does not call what its group
    does."""
    refuse("call table", _table(groups, distinct, calls, host))


def _table(
    groups: Sequence[Group],
    distinct: Sequence[Group],
    calls: Sequence[TableCall],
    host: Host,
) -> Iterator[Broken]:
    if len(calls) != len(groups):
        yield Broken("table", "each group has a row", len(calls), len(groups))
    for i, (g, call) in enumerate(zip(groups, calls, strict=False)):
        name = f"row {i}"
        if call.kind not in range(len(distinct)):
            yield Broken(name, "its function exists", call.kind, len(distinct))
            continue
        made = distinct[call.kind]
        own = [m for m, _ in g.private]
        for s, t in zip_longest(g.steps, made.steps):
            if s is None or t is None:
                found = len(made.steps)
                yield Broken(name, "its function has its steps", found, len(g.steps))
                break
            one, other = (getattr(x.piece, "nest", type(x.piece)) for x in (s, t))
            if is_nest(g) and is_nest(made):
                one, other = (code_alone(x.piece, host) for x in (s, t))
            if one != other:
                yield Broken(name, "its function has its pieces", t.piece, s.piece)
            for m, place in zip_longest(s.memory, t.memory):
                seen = own if place.byte < 0 else call.memory
                at = ~place.byte if place.byte < 0 else place.byte
                found_at = seen[at] if at < len(seen) else None
                if found_at != m:
                    yield Broken(name, "its operands lie there", found_at, m)
        if call.units != told_units(g, host):
            yield Broken(name, "it has its units", call.units, told_units(g, host))
        sizes = [(x.rows, x.panel, x.columns) for x in (made, g)]
        if sizes[0] != sizes[1]:
            yield Broken(name, "its function shares out its rows", *sizes)
