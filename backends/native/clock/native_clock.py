"""What a program of machine code takes, by the plan of its code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from eqsat.kernels import (
    ClockModel,
    ExpectedTime,
    Kernel,
    Program,
    between,
    inner,
    numpy_calls,
    packed,
)

from ...loop_ir import (
    Contraction,
    Factoring,
    Layout,
    Loops,
    Network,
    Operand,
    Ordering,
)
from ..lower import planned
from ..machine import Host, host
from ..plan import Group, Places, PlanStep, kind_of
from ..products import deferred, symmetric
from .nest_clock import NestClock, Room, Spent
from .rates import ClockRates, entry, shipped

APART = 0.5
"""The share of its lesser part, arithmetic or traffic, that a kernel does not do at the
same time as the other."""
TURN = 8
"""Terms of a sum of a product that its start and its end take as long as."""
SWITCH_S = 4e-6
"""Seconds between machine code and what NumPy runs."""


@dataclass(frozen=True)
class NativeClock(ClockModel):
    """Prices programs on one thread by the loops and products of their plan."""

    rates: ClockRates = field(default_factory=shipped)

    def call_s(self, program: Program) -> float:
        rates = self.rates
        more = max(0, len(program.roots) - 1)
        beside = len(program.inputs) * rates.argument_s + more * rates.result_s
        parts = sum(e.seconds for _, e in self._parts(program))
        return parts + rates.entry_s + beside

    def kernels(self, program: Program) -> tuple[ExpectedTime, ...]:
        found = {k: ExpectedTime(0.0, "start") for k in program.kernels}
        for owner, expected in self._parts(program):
            if isinstance(owner, Kernel):  # else it is a copy of a result
                found[owner] += expected
        return tuple(found.values())

    def _parts(self, program: Program) -> Iterator[tuple[Kernel | int, ExpectedTime]]:
        layouts = [Layout(packed(t.shape)) for t in program.inputs]
        machine = host()
        places = Places(program, layouts, deferred(program, machine))
        plan = planned(program, places, machine, threads=1, exact=False)
        for part, owner in zip(plan.parts, plan.owners, strict=True):
            if isinstance(part, Group):
                steps = (_PieceClock(s, owner, self.rates, machine) for s in part.steps)
                yield owner, self._expected(sum((s.spent() for s in steps), Spent()))
            else:
                body = inner(part.bodies, part.term.args)
                spent = sum(map(numpy_calls().term, body))
                yield owner, ExpectedTime(spent + SWITCH_S, "arithmetic")

    def _expected(self, spent: Spent) -> ExpectedTime:
        least, most = sorted((spent.computing, spent.moving))
        bound = "arithmetic" if spent.computing > spent.moving else "memory"
        if most < self.rates.start_s:
            bound = "start"
        return ExpectedTime(self.rates.start_s + most + APART * least, bound)


@dataclass(frozen=True)
class _PieceClock:
    """What a step of a plan takes."""

    step: PlanStep
    owner: Kernel | int
    rates: ClockRates
    host: Host

    def spent(self) -> Spent:
        rates = self.rates
        match piece := self.step.piece:
            case Loops():
                rooms = [*map(self._room, piece.operands, self.step.memory)]
                return NestClock(piece.nest, rooms, rates, self.host).spent()
            case Contraction():
                return self._product(piece)
            case Ordering(wanted=0):
                what = "argsort" if piece.is_positions else "sort"
                each = between(entry(rates.orders, f"{what} {piece.dtype}"), piece.size)
                return Spent(each * piece.rows * piece.size)
        planned_s = kind_of(piece).seconds(piece, self.host)
        if isinstance(piece, Network):
            planned_s *= between(rates.networks, piece.size)
        if isinstance(piece, Factoring):
            planned_s *= between(entry(rates.factors, piece.routine), piece.sizes[0])
        return Spent(planned_s)

    def _product(self, p: Contraction) -> Spent:
        rates = self.rates
        m, n, k = p.sizes
        lanes = max(1, self.host.vector_bits // (8 * p.dtype.itemsize))
        whole = -(-n // lanes) * lanes / n if m > 1 else 1.0
        narrow = rates.vector_bits / self.host.vector_bits
        rate = float(entry(rates.products, str(p.dtype))) / narrow
        of = zip((p.x, p.y, p.out), (m * k, k * n, m * n), strict=True)
        moved = float(sum(o.dtype.itemsize * size for o, size in of) * prod(p.batch))
        computing = p.flops / rate * whole * (1 + TURN / k)
        plan = self.step.plan
        if plan is not None and plan.is_half:
            computing *= symmetric.computed_share(n, p.dtype, self.host)
        return Spent(computing, moved * between(rates.reads, moved))

    def _room(self, o: Operand, memory: Any) -> Room:
        size = 0.0
        if o.kind == "array":
            size = float(o.key.nbytes)
        elif o.kind == "result" and isinstance(self.owner, Kernel):
            size = float(self.owner.results[o.key].nbytes)
        return Room(memory, size)
