"""What NumPy takes to run a function as it is written: one call an operation.

The table holds, for each function and dtype, the seconds of a call and of an element
whose operands are in the second cache; products have a rate for each dtype. What is
larger moves at the pace of memory, where a result is an array of its own: its pages are
new, and the system clears them first. That takes longer than most arithmetic: adding
two arrays of 64 MiB takes three times as long as into an array that is there.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar

from eqsat.kernels.cost_model import nbytes, read_bytes, shown_bytes, term_flops
from eqsat.kernels.fusion_state import opened
from eqsat.kernels.measured_table import MeasuredTable
from eqsat.ops import (
    VIEWS,
    add_at,
    broadcast_to_op,
    matmul_op,
    reshape_op,
    slice_op,
    take_op,
    transpose_op,
)
from eqsat.terms import Op, Term, Type, Weak, postorder

ALIASES = (slice_op, reshape_op, transpose_op, broadcast_to_op)
"""Views that NumPy makes without a copy, but for a reshape of what has gaps."""
GAPS = (slice_op, transpose_op, broadcast_to_op)
"""Views after which elements may not follow one another in memory."""
SIDE = 24
"""The least size of a product from which on it runs at half the rate of large ones."""
NUMBER = "number"
"""What follows the name of a function of an array and a number."""
ANY = "any"
"""What stands for a function or a dtype that was not measured."""

_V = TypeVar("_V")


@dataclass(frozen=True)
class NumpyCalls(MeasuredTable):
    """Seconds of NumPy's functions on one machine.

    ``calls``, ``along`` and ``across`` have keys like ``exp float32``, or ``exp any``.
    """

    name: str
    calls: Mapping[str, tuple[float, float]]
    """The seconds of a call and those of an element."""
    along: Mapping[str, tuple[float, float]]
    """Of what goes along the last axis: the seconds of a row and of an element."""
    across: Mapping[str, float]
    """Of what goes along another axis: the seconds of an element."""
    products: Mapping[str, float]
    """A dtype to the multiply-adds a second of large products, counted as two."""
    reads: Sequence[tuple[float, float]]
    """Sizes of arrays (bytes), and the seconds to read a byte of one."""
    writes: Sequence[tuple[float, float]]
    """The same to write a byte of a result that is an array of its own."""
    orders: Mapping[str, Sequence[tuple[float, float]]]
    """Of sorts: elements of a row, and the seconds to put one in order."""
    factors: Mapping[str, Sequence[tuple[float, float]]]
    """Of factorisations: rows of a matrix, and the seconds of a floating operation."""
    view_s: float
    """Seconds to make a view."""
    inner_s: float
    """Seconds for each row of a map whose operands broadcast or have gaps."""
    part_s: float
    """Seconds for each matrix of a product of stacks of them."""

    def program(self, roots: Sequence[Term]) -> float:
        """Seconds of the operations that lead to ``roots``, each computed once."""
        return sum(self.term(t) for t in postorder(roots))

    @staticmethod
    def counts(term: Term) -> bool:
        """Whether a term is a call that computes something."""
        op = term.op
        return isinstance(op, Op) and op.kind != "leaf" and op not in ALIASES

    def term(self, term: Term) -> float:
        """Seconds of one operation."""
        op = term.op
        assert isinstance(op, Op)
        if op.kind == "leaf":
            return 0.0
        if op in VIEWS:
            return self._view(term)
        if op.kind == "pointwise":
            return self._map(term)
        if op.kind == "reduce":
            return self._reduction(term)
        if op is matmul_op:
            return self._product(term)
        if op.body is not None:
            types = tuple(a.type for a in term.args)
            leaves, root = opened(op, term.attrs, types)
            inside = [t for t in postorder([root]) if t not in leaves]
            return sum(self.term(t) for t in inside)
        return self._other(term)

    def _view(self, term: Term) -> float:
        if term.op in ALIASES:
            has_gaps = term.op is reshape_op and term.args[0].op in GAPS
            return self.view_s + (self._moved(term) if has_gaps else 0.0)
        assert isinstance(term.op, Op)
        call, _ = self._of(self.calls, term.op.name, term.type)
        return call + self._moved(term)

    def _map(self, term: Term) -> float:
        typed = [a for a in term.args if not isinstance(a.type[0], Weak)]
        like = typed[-1] if typed else term  # of where, not its condition
        assert isinstance(term.op, Op)
        name = term.op.name
        if name == "cast":
            name += f" {like.type[0]}"
            like = term
        if len(term.args) == 2 and any(math.prod(a.shape) == 1 for a in term.args):
            name += f" {NUMBER}"
        call, each = self._of(self.calls, name, like.type)
        n = math.prod(term.shape)
        found = call + max(n * each, self._moved(term))
        if len(term.shape) > 1 and any(_has_gaps(a, n) for a in typed):
            found += self.inner_s * n / max(1, term.shape[-1])
        return found

    def _reduction(self, term: Term) -> float:
        (read,) = term.args[:1]
        op = term.op
        assert isinstance(op, Op)
        call, _ = self._of(self.calls, op.name, read.type)
        n, rows = math.prod(read.shape), math.prod(term.shape)
        axes = dict(zip(op.attrs, term.attrs, strict=True)).get("axis", -1)
        if axes == -1 or (isinstance(axes, tuple) and -1 in axes):
            row, each = self._of(self.along, op.name, read.type)
        else:
            row, each = 0.0, self._of(self.across, op.name, read.type)
        return call + max(rows * row + n * each, self._moved(term))

    def _product(self, term: Term) -> float:
        call, _ = self._of(self.calls, "matmul", term.type)
        rate = self._of(self.products, "", term.type)
        shapes = [a.shape[-2:] for a in term.args]
        sides = [n for shape in shapes for n in shape]
        if min(sides, default=1) > 1:  # others are bound by memory
            rate *= min(sides) / (min(sides) + SIDE)
        parts = math.prod(term.shape[:-2])  # each a call of the BLAS
        work = term_flops(term)[0] / rate
        return call + max(parts * self.part_s + work, self._moved(term))

    def _other(self, term: Term) -> float:
        """What is not in the table: sorts, factorisations, convolutions, gathers."""
        op = term.op
        assert isinstance(op, Op)
        like = next((a for a in term.args if not isinstance(a.type[0], Weak)), term)
        call, each = self._of(self.calls, op.name, like.type)
        products, others = term_flops(term)
        n = math.prod((term.args[1] if op in (take_op, add_at) else term).shape)
        if f"{op.name} {ANY}" in self.orders:
            work = n * between(
                self._of(self.orders, op.name, like.type), like.shape[-1]
            )
        elif (routine := routine_of(term)) in self.factors:
            work = others * between(self.factors[routine], min(like.shape[-2:]))
        elif f"{op.name} {ANY}" in self.calls or not others:
            work = n * each
        else:
            work = others * self._of(self.calls, ANY, like.type)[1]
        work += products / self._of(self.products, "", term.type)
        return call + max(work, self._moved(term))

    def _moved(self, term: Term) -> float:
        """Seconds to read all operands and to write the result."""
        written = nbytes(term.type)
        found = _at(self.writes, written)
        assert isinstance(term.op, Op)
        for i, a in enumerate(term.args):
            if term.args.index(a) == i and not isinstance(a.type[0], Weak):
                size = read_bytes(term.op, i, shown_bytes(a), written)
                found += _at(self.reads, size)
        return found

    def __str__(self) -> str:
        shown = ("add float32", "exp float32", "sqrt float32", "matmul float32")
        lines = [f"NumPy's functions, {self.name}"]
        for key in shown:
            name, _, dtype = key.partition(" ")
            if name == "matmul":
                lines.append(f"  {key}: {self.products[dtype] / 1e9:.1f} Gflop/s")
            else:
                call, each = self.calls[key]
                lines.append(f"  {key}: {call * 1e6:.2f} µs and {each * 1e9:.2f} ns")
        return "\n".join(lines)

    @classmethod
    def of_record(cls, kept: Mapping[str, Any]) -> NumpyCalls:
        """Raises :class:`ValueError`, :class:`TypeError` or :class:`LookupError` for
        what :meth:`record` does not give."""
        found = cls(**cls.fields_of(kept))
        tables = found.calls, found.along, found.across, found.products, found.orders
        if not all(ANY in t for t in tables) or not all(found.products.values()):
            raise ValueError("a table lacks what stands for all others")
        return found

    @staticmethod
    def _of(table: Mapping[str, _V], name: str, type_: Type) -> _V:
        """The entry of a function and a dtype, or what stands for it."""
        for key in (f"{name} {type_[0]}", f"{name} {ANY}", f"{ANY} {ANY}"):
            if key.lstrip() in table:
                return table[key.lstrip()]
        return table[ANY]


def routine_of(term: Term) -> str:
    """What tells a factorisation from others."""
    assert isinstance(term.op, Op)
    of = [a for a in term.attrs if isinstance(a, str)]
    return " ".join([term.op.name, *of])


def between(table: Sequence[tuple[float, float]], size: float) -> float:
    """The entry for a size, between those of the table."""
    before = table[0]
    for here in table:
        if size <= here[0]:
            if here is before:
                return here[1]
            part = math.log(size / before[0]) / math.log(here[0] / before[0])
            return before[1] + part * (here[1] - before[1])
        before = here
    return before[1]


@functools.cache
def shipped() -> NumpyCalls:
    """The table of one core of a server with AVX-512 (AMD EPYC)."""
    text = (files(__package__) / "numpy_calls.json").read_text(encoding="utf-8")
    return NumpyCalls.of_record(json.loads(text))


def _has_gaps(term: Term, elements: int) -> bool:
    """Whether an operand of a map of so many elements is broadcast to them, or does not
    lie in memory as they do."""
    size = math.prod(term.shape)
    return size > 1 and (size < elements or term.op in GAPS)


def _at(table: Sequence[tuple[float, float]], size: float) -> float:
    """Seconds to move ``size`` bytes."""
    for room, each in table:
        if size <= room:
            return size * each
    return size * table[-1][1]
