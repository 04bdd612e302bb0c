"""What must hold of a native plan: what its steps read and write lies where it should.

Each function is a rule, or a few that are checked together; see
:mod:`eqsat.support.verification`. Which value lies where is followed through the
program anew, not taken from its plan of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from math import inf
from typing import cast

from eqsat.kernels import Kernel, bases_of, starts_in
from eqsat.support import Broken, cached_property, refuse
from eqsat.terms import SCALAR, Term

from ...loop_ir import (
    Affine,
    Contraction,
    Extent,
    Factoring,
    Gather,
    Load,
    Loops,
    Ordering,
    Product,
    Scatter,
    Store,
    Within,
    bounds,
    broken_piece,
    extent_of,
)
from ..loops import shape_of
from ..machine import ALIGNMENT, MemoryRef
from ..products import Mirroring, Packing
from .buffers import PANELS, TEMPORARY, Places
from .groups import Group, PlanStep
from .planes import plane_bytes
from .steps import Layered

SCRATCH = -1
Bytes = tuple[int, int]
"""From a place in memory, the first byte that may be touched and the first after."""
Part = tuple[int, int, int]
"""Of a join: the buffer that it lies in, its first byte there, and the first after."""


def verify_plan(layered: Layered) -> None:
    """Raise :class:`VerifyError` where a plan breaks a rule."""
    blocks = Blocks(layered)
    rules = (
        _scratch(blocks),
        _constants(layered),
        _held(layered),
        _joins(layered),
        _order(blocks),
        _own(blocks),
        chain.from_iterable(_groups(blocks)),
        _halves(layered),
    )
    refuse("native plan", chain.from_iterable(rules))


@dataclass(frozen=True)
class Blocks:
    """The memory that a plan knows: blocks, and what may be touched of each."""

    layered: Layered

    @cached_property
    def slots(self) -> dict[int, int]:
        """Where parts of scratch memory start, and their bytes; what has none may start
        where another does."""
        found: dict[int, int] = {}
        places, plan = self.layered.places, self.layered.places.program.plan
        for k in places.program.kernels:
            for r in k.results:
                m = places.of[r].memory
                if m.buffer == SCRATCH and r not in places.parts:
                    size = plan.slots[plan.slot_of[r]].nbytes
                    found[m.byte] = max(size, found.get(m.byte, 0))
        if places.fault is not None:
            found[places.fault.byte] = 1
        return found

    def block(self, m: MemoryRef) -> MemoryRef:
        """The block that holds ``m``: of scratch memory, the part that starts there or
        before."""
        if m.buffer in (TEMPORARY, PANELS):
            return m
        if m.buffer != SCRATCH:
            return MemoryRef(m.buffer)
        starts = (s for s, n in self.slots.items() if s <= m.byte < s + max(n, 1))
        return MemoryRef(SCRATCH, max(starts, default=m.byte))

    def bytes(self, m: MemoryRef) -> Bytes | None:
        """What may be touched from ``m`` on; None where there is no such memory."""
        places = self.layered.places
        low, size = 0, None
        if m.buffer == SCRATCH:
            start = self.block(m).byte
            size = self.slots.get(start)
            m = MemoryRef(SCRATCH, m.byte - start)
        elif m.buffer == TEMPORARY:
            held = self.layered.temporaries
            size = held[m.byte] if m.byte in range(len(held)) else None
            m = MemoryRef(TEMPORARY)
        elif m.buffer == PANELS:
            of = self.layered.panel_places
            return self.bytes(of[m.byte]) if m.byte in range(len(of)) else None
        elif m.buffer in range(places.first_output):
            term = places.program.inputs[m.buffer]
            first, last = extent_of(places.of[term].layout, term.shape)
            each = term.nbytes // max(term.size, 1)
            low, size = first * each, (last + 1) * each
        elif m.buffer in range(places.first_output, places.first_constant):
            size = places.program.roots[m.buffer - places.first_output].nbytes
        elif m.buffer - places.first_constant in range(len(places.constants)):
            size = places.constants[m.buffer - places.first_constant].nbytes
        return None if size is None else (low - m.byte, size - m.byte)


def said(m: MemoryRef) -> str:
    """A place in memory as people read it."""
    return f"byte {m.byte} of buffer {m.buffer}"


# -- places ----------------------------------------------------------------------------


def _scratch(blocks: Blocks) -> Iterator[Broken]:
    """Parts of scratch memory start on cache lines, inside of it, and are apart."""
    size = blocks.layered.places.scratch_bytes
    yield from broken_parts("scratch memory", blocks.slots, size)


def broken_parts(name: str, parts: Mapping[int, int], size: int) -> Iterator[Broken]:
    """The rules that parts of so many bytes of memory break, by where they start."""
    for start, count in parts.items():
        if start % ALIGNMENT:
            rule = "a part of scratch memory starts on a cache line"
            yield Broken(name, rule, start, f"a multiple of {ALIGNMENT}")
        if start < 0 or start + count > size:
            rule = "a part of scratch memory is inside of it"
            yield Broken(name, rule, (start, start + count), (0, size))
    for (a, count), (b, _) in pairwise(sorted(parts.items())):
        if a + count > b:
            rule = "parts of scratch memory are apart"
            yield Broken(name, rule, (a, a + count), f"up to {b}")


def _constants(layered: Layered) -> Iterator[Broken]:
    """A constant has the array of its type; what is in panels is a constant."""
    places = layered.places
    for t, place in places.of.items():
        i = place.memory.buffer - places.first_constant
        if i < 0 or t in places.program.inputs:
            continue
        name = f"constant {t}"
        if i not in range(len(places.constants)):
            yield Broken(name, "its pointer exists", i, len(places.constants))
            continue
        array = places.constants[i]
        if (array.dtype, array.nbytes) != (t.dtype, t.nbytes):
            found = array.dtype, array.shape
            yield Broken(name, "its array has its type", found, t.type)
    for number, _ in layered.panels:
        if number - places.first_constant not in range(len(places.constants)):
            rule = "what lies in panels is a constant"
            yield Broken("panels", rule, number, f"{places.first_constant} and up")


def _held(layered: Layered) -> Iterator[Broken]:
    """What a kernel reads still lies in its place: nothing has been written over it."""
    places, program = layered.places, layered.places.program
    base = bases_of(program.steps)
    made: set[Term] = set()
    holds: dict[MemoryRef, Term] = {}
    rule = "what it reads still lies in its place"
    for k in program.kernels:
        if not any(r.size for r in k.results):
            continue
        for a in k.inputs:
            b = base.get(a, a)
            if b in made and holds.get(places.of[b].memory) not in _homes(b, places):
                yield Broken(k.name, rule, holds.get(places.of[b].memory), b)
        for r in (r for r in k.results if r.size):
            place = places.of[r].memory
            over = program.plan.in_place.get(r)
            old = holds.get(place)
            if any(base.get(a, a) is old for a in k.inputs) and (
                (over is None or base.get(over, over) is not old)
                and r not in _homes(old, places)
            ):
                rule_of = "a result is not written over what its kernel reads"
                yield Broken(k.name, rule_of, old, "another place, or in place")
            holds[place] = r
            made.add(r)
    for i, root in enumerate(program.roots):
        b = base.get(root, root)
        if b in made and holds.get(places.of[b].memory) not in _homes(b, places):
            yield Broken(f"result {i}", rule, holds.get(places.of[b].memory), b)
        if i not in places.copied and root.size:
            place = places.of[b].memory
            if place != MemoryRef(places.first_output + i):
                expected = said(MemoryRef(places.first_output + i))
                yield Broken(f"result {i}", "it is returned", said(place), expected)


def _homes(term: Term | None, places: Places) -> list[Term | None]:
    """A value, and the joins that it is a part of, which hold it as well."""
    found = [term]
    while term in places.parts:
        term, _ = places.parts[term]
        found.append(term)
    return found


def _joins(layered: Layered) -> Iterator[Broken]:
    """The parts of a join that kernels write where it wants them are written before it,
    inside of it and apart; its own steps write the others."""
    places = layered.places
    of_joins: dict[Term, dict[int, int]] = {}
    for part, (join, start) in places.parts.items():
        of_joins.setdefault(join, {})[start] = part.nbytes
        home, own = places.of[join].memory, places.of[part].memory
        if own != MemoryRef(home.buffer, home.byte + start):
            rule = "a part lies where its join wants it"
            yield Broken(f"part {part}", rule, said(own), said(home))
    made: set[Term] = set()
    for name, kernel, parts in _parts(layered):
        if kernel is None:
            continue
        term = kernel.term
        if term in of_joins:
            mine = of_joins[term]
            yield from broken_parts(name, mine, term.nbytes)
            for part, (join, _) in places.parts.items():
                if join is term and part not in made:
                    yield Broken(name, "its parts are written before", part, "written")
            yield from _copies(name, term, mine, layered, parts)
        made.update(kernel.results)


def _copies(
    name: str,
    join: Term,
    mine: Mapping[int, int],
    layered: Layered,
    parts: Sequence[object],
) -> Iterator[Broken]:
    """Every part of ``join`` is there already or copied: ``mine`` are there."""
    home = layered.places.of[join].memory
    written = {home.byte + start for start in mine}
    for g in parts:
        if not isinstance(g, Group):
            return  # NumPy joins all
        made = [m for s in g.steps for m in _touched(s)[1]]
        written.update(m.byte for m in made if m.buffer == home.buffer)
    for a, start in zip(join.args, starts_in(join), strict=True):
        if a.size and home.byte + start not in written:
            yield Broken(name, "each part is written", start, sorted(written))


# -- steps -----------------------------------------------------------------------------


def _touched(step: PlanStep) -> tuple[list[MemoryRef], list[MemoryRef]]:
    """What a step reads and what it writes."""
    p, memory = step.piece, step.memory
    if isinstance(p, Loops):
        kinds = (Load, Gather, Scatter)
        read = {s.buffer for s in p.nest.statements() if isinstance(s, kinds)}
        written = {i for i, b in enumerate(p.nest.buffers) if b.written}
        return [memory[i] for i in sorted(read)], [memory[i] for i in sorted(written)]
    if isinstance(p, Ordering):
        return [memory[0]], list(memory[-2:])
    last = -2 if isinstance(p, Factoring) else -1
    return list(memory[:last]), list(memory[last:])


def _parts(layered: Layered) -> Iterator[tuple[str, Kernel | None, list[object]]]:
    """The parts of a plan by the kernels that they are of; None for copies."""
    start = 0
    for kernel, end in layered.ends:
        yield kernel.name, kernel, list(layered.parts[start:end])
        start = end
    yield "copies of results", None, list(layered.parts[start:])


def _order(blocks: Blocks) -> Iterator[Broken]:
    """What a step reads was written by a step before it, or is known beforehand."""
    layered, places = blocks.layered, blocks.layered.places
    written: set[MemoryRef] = set()
    for name, kernel, parts in _parts(layered):
        for part in parts:
            if isinstance(part, Kernel):
                written |= {blocks.block(places.of[r].memory) for r in part.results}
                continue
            for i, step in enumerate(cast(Group, part).steps):
                read, made = _touched(step)
                for m in read:
                    if _is_made(m, blocks) and blocks.block(m) not in written:
                        rule = "what it reads was written by a step before"
                        yield Broken(f"{name}, step {i}", rule, said(m), "written")
                written |= {blocks.block(m) for m in made}
        for r in kernel.results if kernel is not None else ():
            if r.size and blocks.block(places.of[r].memory) not in written:
                yield Broken(name, "its result is written", repr(r), "by a step")
    for i, root in enumerate(places.program.roots):
        if root.size and MemoryRef(places.first_output + i) not in written:
            yield Broken(f"result {i}", "it is written", repr(root), "by a step")


def _is_made(m: MemoryRef, blocks: Blocks) -> bool:
    """Whether steps write memory: neither inputs nor constants are."""
    places = blocks.layered.places
    results = range(places.first_output, places.first_constant)
    return m.buffer in (SCRATCH, TEMPORARY) or m.buffer in results


def _own(blocks: Blocks) -> Iterator[Broken]:
    """The steps of a kernel touch what it reads and writes, and memory in between."""
    layered, places = blocks.layered, blocks.layered.places
    for name, kernel, parts in _parts(layered):
        if kernel is None:
            continue
        values = [*(t for t in kernel.inputs if t.op is not SCALAR), *kernel.results]
        known = [places.of[t].memory for t in values if t in places.of]
        mine = {blocks.block(m) for m in known}
        results = {blocks.block(places.of[r].memory) for r in kernel.results}
        for part in parts:
            if isinstance(part, Kernel):
                continue
            for step in cast(Group, part).steps:
                read, made = _touched(step)
                for m in made:
                    is_fault = m == places.fault
                    if m.buffer != TEMPORARY and not is_fault:
                        if blocks.block(m) not in results:
                            rule = "a step writes results of its kernel"
                            yield Broken(name, rule, said(m), results)
                for m in read:
                    fixed = m.buffer >= places.first_constant
                    between = m.buffer in (TEMPORARY, PANELS) or fixed
                    if not between and blocks.block(m) not in mine:
                        rule = "a step reads arguments of its kernel"
                        yield Broken(name, rule, said(m), mine)


def _groups(blocks: Blocks) -> Iterator[Iterator[Broken]]:
    layered = blocks.layered
    private = [m for g in layered.parts if isinstance(g, Group) for m, _ in g.private]
    base = bases_of(layered.places.program.steps)
    for name, kernel, parts in _parts(layered):
        of = [] if kernel is None else _parts_of_joins(kernel, layered.places, base)
        for part in parts:
            if not isinstance(part, Group):
                continue
            yield _shared_out(part, layered, name)
            yield _private(part, layered, private, name)
            for i, step in enumerate(part.steps):
                yield _step(step, blocks, f"{name}, step {i}", of)


def _parts_of_joins(
    kernel: Kernel, places: Places, base: Mapping[Term, Term]
) -> list[Part]:
    """The memory of what a kernel reads and writes that lies in a join."""
    found: list[Part] = []
    for t in (*(base.get(a, a) for a in kernel.inputs), *kernel.results):
        if t in places.parts:
            m = places.of[t].memory
            found.append((m.buffer, m.byte, m.byte + t.nbytes))
    if kernel.term in places.joins:
        home = places.of[kernel.term].memory
        for a, start in zip(kernel.term.args, starts_in(kernel.term), strict=True):
            at = home.byte + start
            found.append((home.buffer, at, at + a.nbytes))
    elif found:
        for t in (base.get(a, a) for a in kernel.inputs):  # a join may be read, too
            if t in places.of and t not in places.parts:
                m = places.of[t].memory
                found.append((m.buffer, m.byte, m.byte + t.nbytes))
    return found


def _part_at(m: MemoryRef, parts: Sequence[Part]) -> Part | None:
    """The largest of ``parts`` that holds ``m``; None where none does."""
    held = [p for p in parts if p[0] == m.buffer and p[1] <= m.byte < p[2]]
    return max(held, key=lambda p: p[2] - p[1], default=None)


def _are_apart(a: Part | None, b: Part | None) -> bool:
    """Whether two parts of a join are known, and known to be beside each other."""
    return a is not None and b is not None and (a[2] <= b[1] or b[2] <= a[1])


def _shared_out(g: Group, layered: Layered, name: str) -> Iterator[Broken]:
    """The parts that threads take of a group cover its rows, each once."""
    first, *rest = (s.piece for s in g.steps)
    if not g.rows:
        if rest:
            yield Broken(name, "a group without rows has one step", len(g.steps), 1)
        return
    if g.panel < 1 or g.columns < 1:
        found_parts = g.panel, g.columns
        yield Broken(name, "threads share parts of rows", found_parts, "1 or more")
    if isinstance(first, Loops):
        nests = [(s.piece, s.memory) for s in g.steps if isinstance(s.piece, Loops)]
        sizes = plane_bytes(nests, g.rows, layered.host)
        if len(nests) < len(g.steps) or not sizes:
            yield Broken(name, "its nests go plane by plane", g.rows, "planes of each")
        for m, size in g.private:
            if sizes.get(m) != size:
                rule = "a thread's own memory holds planes"
                yield Broken(said(m), rule, size, sizes.get(m))
        return
    if not isinstance(first, Contraction) or first.rows != g.rows:
        found = first.rows if isinstance(first, Contraction) else type(first).__name__
        yield Broken(name, "its rows are those of its product", g.rows, found)
        return
    for p in rest:
        if isinstance(p, Product) and p.rows != g.rows:
            yield Broken(name, "its products have its rows", p.rows, g.rows)
        if isinstance(p, Loops):
            units = shape_of(p.nest, layered.host).units
            if units % g.rows or p.nest.vertical or p.nest.chunk or p.nest.ordered:
                rule = "what follows a product goes row by row"
                yield Broken(name, rule, units, f"a multiple of {g.rows}")


def _halves(layered: Layered) -> Iterator[Broken]:
    """Where what is left of the diagonal is left out, it is written next."""
    groups = [g for g in layered.parts if isinstance(g, Group)]
    for g, after in zip_longest(groups, groups[1:], fillvalue=Group(())):
        for s in g.steps:
            if s.plan is None or not s.plan.is_half:
                continue
            found = [t for t in after.steps if isinstance(t.piece, Mirroring)]
            if len(g.steps) > 1 or [t.memory for t in found] != [s.memory[-1:]]:
                rule = "the rest of half a product is written after it"
                yield Broken(said(s.memory[-1]), rule, after.steps, "a mirroring")


def _private(
    g: Group, layered: Layered, private: Sequence[MemoryRef], name: str
) -> Iterator[Broken]:
    """Memory of a thread's own holds the rows of its group, which alone uses it."""
    for m, size in g.private:
        held = layered.temporaries[m.byte]
        if size * g.rows < held:
            yield Broken(name, "it holds all rows", size * g.rows, held)
        if private.count(m) > 1:
            yield Broken(name, "one group uses it", private.count(m), 1)


def _step(
    step: PlanStep, blocks: Blocks, name: str, parts: Sequence[Part]
) -> Iterator[Broken]:
    """A step touches memory that exists, inside of it, in the dtype that it holds; of
    a join it may touch ``parts`` only."""
    p, memory = step.piece, step.memory
    if isinstance(p, Packing):
        sizes = [p.product.y.dtype.itemsize, p.product.dtype.itemsize]
    elif isinstance(p, Loops):
        sizes = [b.dtype.itemsize for b in p.nest.buffers]
    else:
        sizes = [o.dtype.itemsize for o in p.operands]
    if len(sizes) != len(memory):
        yield Broken(name, "each operand has memory", len(memory), len(sizes))
        return
    extents: list[Extent | None] = []
    for m, size in zip(memory, sizes, strict=True):
        found = blocks.bytes(m)
        if found is None:
            yield Broken(name, "its memory exists", said(m), "a block of the plan")
            return
        low, high = found
        if (part := _part_at(m, parts)) is not None:
            low, high = part[1] - m.byte, part[2] - m.byte
        extents.append((-(-low // size), high // size - 1))
    if isinstance(p, (Packing, Mirroring)):
        return
    yield from broken_piece(p, extents, name)
    if isinstance(p, Loops):
        yield from _aliases(p, blocks, memory, name, parts)


class _Spans:
    """The bytes of their blocks that statements of a nest touch."""

    def __init__(
        self,
        p: Loops,
        memory: Sequence[MemoryRef],
        parts: Sequence[Part] = (),
    ) -> None:
        self.nest, self.memory, self.parts = p.nest, memory, parts
        statements = p.nest.statements()
        self.within = {s.target: s for s in statements if isinstance(s, Within)}

    def of(self, s: Load | Gather | Store) -> tuple[float, float]:
        """From where, and to where, ``s`` may touch its block."""
        start, size = self.memory[s.buffer].byte, self.nest.buffers[s.buffer].dtype
        low, high = bounds(s.at)
        if isinstance(s, Gather):
            if (known := self.within.get(s.by)) is None:
                part = _part_at(self.memory[s.buffer], self.parts)
                return (-inf, inf) if part is None else part[1:]
            low, high = low + known.low, high + known.high - 1
        return start + size.itemsize * low, start + size.itemsize * (high + 1)

    def meet(self, a: Load | Gather | Store, b: Load | Gather | Store) -> bool:
        """Whether ``a`` and ``b``, of one block, may touch the same bytes."""
        one, other = self.of(a), self.of(b)
        if one[1] <= other[0] or other[1] <= one[0]:
            return False
        steps = {abs(c) * self._size(s) for s in (a, b) for _, c in s.at.terms}
        if isinstance(a, Gather) or isinstance(b, Gather):
            return True
        return not any(self._are_beside(a, b, step) for step in steps)

    def _size(self, s: Load | Gather | Store) -> int:
        return self.nest.buffers[s.buffer].dtype.itemsize

    def _are_beside(self, a: Load | Store, b: Load | Store, step: int) -> bool:
        """Whether ``a`` and ``b`` touch other parts of so many bytes each: columns
        of rows that are ``step`` apart."""
        starts, widths = [], []
        for s in (a, b):
            size = self._size(s)
            rest = [(v, c) for v, c in s.at.terms if c * size % step]
            low, high = bounds(Affine(s.at.offset, tuple(rest)))
            starts.append(self.memory[s.buffer].byte + size * low)
            widths.append(size * (high + 1 - low))
        apart = (starts[1] - starts[0]) % step
        return widths[0] <= apart and apart + widths[1] <= step


def _aliases(
    p: Loops,
    blocks: Blocks,
    memory: Sequence[MemoryRef],
    name: str,
    parts: Sequence[Part],
) -> Iterator[Broken]:
    """Where a nest reads memory that it writes, it reads what it is about to write."""
    nest = p.nest
    stores = [s for s in nest.statements() if type(s) is Store]
    spans = _Spans(p, memory, parts)
    for s in nest.statements():
        if not isinstance(s, (Load, Gather)):
            continue
        m = memory[s.buffer]
        over = [
            t
            for t in stores
            if blocks.block(memory[t.buffer]) == blocks.block(m)
            and not _are_apart(_part_at(m, parts), _part_at(memory[t.buffer], parts))
        ]
        if not over:
            continue
        met = [t for t in over if spans.meet(s, t)]
        if isinstance(s, Gather):
            broken = bool(met)
        else:
            broken = bool(met) and all(
                t.at != s.at or memory[t.buffer] != m for t in met
            )
        if broken:
            rule = "what is overwritten is read where it is written"
            yield Broken(f"{name}: {nest.buffers[s.buffer].name}", rule, s, met)
        for i in {s.buffer, *(t.buffer for t in over)}:
            if i not in nest.aliased and any(t.buffer != s.buffer for t in over):
                rule = "buffers that are one memory are known to be"
                yield Broken(name, rule, sorted(nest.aliased), i)
