"""Where the values of a program lie: inputs, results, constants, and one block of
scratch memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eqsat.kernels import Kernel, Program, Slot, View, bases_of, packed
from eqsat.ops import STOCK, reshape_op
from eqsat.terms import Op, Term
from eqsat.trace import is_immutable

from ...interpret import Array, evaluate
from ...loop_ir import (
    Layout,
    Unsupported,
)
from ..machine import COMMON, MemoryRef, aligned
from ..products import Panels
from ..runtime import fresh
from .filling import PART_BYTES, Filling
from .memory_turns import in_turns
from .placed_parts import Placed, placed_parts

if TYPE_CHECKING:
    from ...to_loops import DeferredConstant

TEMPORARY, PANELS = -2, -3
"""Buffer numbers of memory between the pieces of a kernel, and of constants that are
right operands of products, in panels."""


def _can_stay(value: Array, term: Term) -> bool:
    """Whether nobody writes to the memory of a constant, as to that of a model's file
    or what a ufunc has just made."""
    return is_immutable(value) or (_is_of_ufunc(term) and value.flags.c_contiguous)


def _is_of_ufunc(term: Term) -> bool:
    """Whether the reference of a term is a ufunc, which gives a new array."""
    op = cast(Op, term.op)
    return op.ufunc is not None and id(op) in STOCK


LATE_BYTES = 1 << 20
"""Computed constants from this size on are computed when they are read, and again where
they are read again: most go into panels, one after the other through the same memory.
Memory that a process has not touched yet may come at 0.5 GB/s."""


def _is_late(term: Term) -> bool:
    return term.nbytes >= LATE_BYTES and _is_of_ufunc(term)


def _absent(term: Term) -> Array:
    """An array of the type of a constant that takes no memory."""
    dtype = cast("np.dtype[Any]", term.dtype)
    return np.broadcast_to(np.zeros((), dtype), term.shape)


@dataclass(frozen=True)
class Place:
    """Where the elements of a value lie."""

    memory: MemoryRef
    layout: Layout


class Places:
    """The places of the values of ``program``, whose inputs have ``layouts``.

    Pointers are numbered: inputs, results, constants, then scratch.
    """

    def __init__(
        self,
        program: Program,
        layouts: Sequence[Layout],
        deferred: Sequence[int] = (),
    ) -> None:
        self.program = program
        self.deferred: dict[Term, DeferredConstant] = {}
        if deferred:
            from ...to_loops import opened  # 30 ms

            terms = [program.folded[i] for i in deferred]
            self.deferred = {t: opened(t) for t in terms}
        """Constants that products compute."""
        self._values: dict[Term, Array] = {}
        self.of: dict[Term, Place] = {}
        self.constants: list[Array] = []
        self.packed: list[tuple[int, Panels]] = []
        """The last constants: others, by their pointers, in panels."""
        self.finite: set[int] = set()
        """Pointers of constants that the code takes to be finite."""
        self._finite: dict[int, bool] = {}
        self._lent: set[int] = set()
        """Constants in memory that others may write to when the program is made."""
        self._late: dict[int, Term] = {}
        """Large computed constants that are not there, by their pointers."""
        self.filling = Filling()
        """Of :attr:`packed`, which :meth:`forget` waits for."""
        self.first_output = len(program.inputs)
        self.first_constant = self.first_output + len(program.roots)
        for i, (t, layout) in enumerate(zip(program.inputs, layouts, strict=True)):
            self.of[t] = Place(MemoryRef(i), layout)
        folded = (t for t in program.folded if t not in self.deferred)
        leaves = (a for of in self.deferred.values() for a in of.leaves)
        fixed = dict.fromkeys((*program.constants, *folded, *leaves))
        values = evaluate(tuple(t for t in fixed if not _is_late(t)), {})
        for t in fixed:
            if t in values:
                self._fixed(values[t], t)
            else:
                self._late[self.first_constant + len(self.constants)] = t
                self.constant(_absent(t), t)
        self.scratch_bytes = 0
        self.fault: MemoryRef | None = None
        """A byte that is 1 after a call that must not give what it computed."""
        self.parts: Placed = {}
        """Results that are computed where a join wants them."""
        self.joins: set[Term] = set()
        """What joins these."""
        self._slots()

    def constant(self, value: Array, term: Term | None = None) -> Place:
        """The place of an array that is known beforehand."""
        number = self.first_constant + len(self.constants)
        self.constants.append(value)
        place = Place(MemoryRef(number), Layout(packed(value.shape)))
        if term is not None:
            self.of[term] = place
        return place

    def _fixed(self, value: Any, term: Term) -> None:
        """Place a constant of the program. It is copied late, if it is: most are large
        and only read while they are brought into panels."""
        dtype = cast("np.dtype[Any]", term.dtype)
        lies = isinstance(value, np.ndarray) and value.dtype == dtype
        if not lies or not value.flags.aligned:
            value = np.array(value, dtype, order="C")
        elif not _can_stay(value, term):
            value = np.asarray(value)
            self._lent.add(self.first_constant + len(self.constants))
        self.constant(value, term)

    def _array(self, number: int) -> Array:
        """The constant with this pointer, computed if it is not there."""
        term = self._late.get(number)
        if term is None:
            return self.constants[number - self.first_constant]
        return cast(Array, evaluate((term,), {})[term])

    def settle(self, terms: Sequence[Term]) -> None:
        """Compute constants now that were to be computed by products."""
        values = evaluate(terms, {})
        for t in terms:
            self.constant(np.array(values[t], cast("np.dtype[Any]", t.dtype)), t)
            del self.deferred[t]

    def value(self, term: Term) -> Array | None:
        """The value of a constant that products compute, for whom else needs it; None
        for other terms."""
        if term not in self.deferred:
            return None
        if term not in self._values:
            dtype = cast("np.dtype[Any]", term.dtype)
            self._values[term] = np.array(evaluate((term,), {})[term], dtype)
        return self._values[term]

    def panels(self, number: int, panels: Panels) -> Place:
        """The place of the constant with this pointer, in panels, which are full after
        :meth:`forget`."""
        self.packed.append((number, panels))
        dtype = np.dtype(panels.dtype)
        least = COMMON.pooled_bytes // dtype.itemsize
        out = fresh((max(panels.elements, least),), dtype)[: panels.elements]
        if number in self._late:
            self.filling.add(partial(self._compute, number, panels, out), out.nbytes)
        else:
            given = panels.given(self._array(number))
            parts = max(out.nbytes // PART_BYTES, 1)
            for part in range(parts):
                fill = partial(panels.fill, out, given, part, parts)
                self.filling.add(fill, out.nbytes)
        return self.constant(out)

    def _compute(self, number: int, panels: Panels, out: Array) -> None:
        panels.fill(out, panels.given(self._array(number)))

    def is_finite(self, number: int) -> bool:
        """Whether all numbers of the floating constant with this pointer are finite:
        their sum is. False where it overflows."""
        if number not in self._finite:
            array = self._array(number)
            dtype = np.promote_types(array.dtype, np.float32)
            with np.errstate(all="ignore"):
                total = np.add.reduce(array, axis=None, dtype=dtype)
            self._finite[number] = bool(np.isfinite(total))
        return self._finite[number]

    def forget(self, numbers: Sequence[int]) -> None:
        """Give up the memory of constants that nothing reads; copy others that are
        lent, and bring their elements in order."""
        self.filling.finish()
        for number in numbers:
            self.constants[number - self.first_constant] = np.empty(0, np.uint8)
        for number in self._late.keys() - set(numbers):
            self.constants[number - self.first_constant] = self._array(number)
        for number in self._lent.difference(numbers):
            at = number - self.first_constant
            self.constants[at] = np.array(self.constants[at], order="C")
        self._late.clear()
        self._lent.clear()
        self.constants = [
            x if x.flags.c_contiguous else np.ascontiguousarray(x)
            for x in self.constants
        ]

    def scratch(self, size: int) -> MemoryRef:
        """So many bytes of scratch memory of their own."""
        start = self.scratch_bytes
        self.scratch_bytes += aligned(size)
        return MemoryRef(-1, start)

    def noted(self) -> MemoryRef:
        """Where a call notes that it has failed."""
        if self.fault is None:
            self.fault = self.scratch(1)
        return self.fault

    def _slots(self) -> None:
        """Kernels' results and the views of them; a result of the program is written
        where it is returned, if it lies there in order."""
        views: dict[Term, Layout] = {}
        for step in self.program.steps:
            if isinstance(step, View):
                source = views.get(step.term.args[0])
                if source is None:
                    known = self.of.get(step.term.args[0])
                    shape = step.term.args[0].shape
                    source = known.layout if known else Layout(packed(shape))
                views[step.term] = view_layout(step.term, source)
        plan = self.program.plan
        self.copied = set(self.program.copies)
        owners: dict[int, int] = {}
        bases = bases_of(self.program.steps)
        for i, root in enumerate(self.program.roots):
            if i in self.copied:
                continue
            if views.get(root, Layout(packed(root.shape))) != Layout(
                packed(root.shape)
            ):
                self.copied.add(i)
                continue
            owners[plan.slot_of[bases.get(root, root)]] = self.first_output + i
        self.parts = placed_parts(self.program, {*owners})
        self.joins = {join for join, _ in self.parts.values()}
        memory = {n: MemoryRef(owner) for n, owner in owners.items()}
        home: dict[Term, MemoryRef] = {}
        for turn in in_turns([*self._held(memory)]):
            where = self.scratch(max(h.nbytes for h in turn))
            home |= {t: where for h in turn for t in h.values}
        for step in self.program.steps:
            if isinstance(step, Kernel):
                for r in step.results:
                    t, start = self._outer(r)
                    found = home.get(t) or memory[plan.slot_of[t]]
                    where = MemoryRef(found.buffer, found.byte + start)
                    self.of[r] = Place(where, Layout(packed(r.shape)))
            else:
                base = self.of[step.base]
                layout = views[step.term]
                self.of[step.term] = Place(base.memory, layout)

    def _outer(self, term: Term) -> tuple[Term, int]:
        """The value in whose memory ``term`` lies, and where it starts there."""
        start = 0
        while term in self.parts:
            term, more = self.parts[term]
            start += more
        return term, start

    def _held(self, elsewhere: Collection[int]) -> Iterator[Slot]:
        """What has scratch memory, and when: slots but those that are ``elsewhere``,
        and joins with the parts that lie in them."""
        plan, steps = self.program.plan, self.program.steps
        joins: dict[Term, list[Term]] = {}
        for part in self.parts:
            joins.setdefault(self._outer(part)[0], []).append(part)
        moved = [t for t in joins if plan.slot_of[t] not in elsewhere]
        made = {
            r: i
            for i, step in enumerate(steps)
            if isinstance(step, Kernel)
            for r in step.results
        }
        for join in moved:
            every = (join, *joins[join])
            first = min(made[t] for t in every)
            last = max(plan.last_use.get(t, made[t]) for t in every)
            yield Slot((join,), join.nbytes, first, last)
        gone = {*moved, *self.parts}
        for n, slot in enumerate(plan.slots):
            values = tuple(v for v in slot.values if v not in gone)
            if values and n not in elsewhere:
                yield Slot(values, slot.nbytes, slot.first, slot.last)


def view_layout(term: Term, source: Layout) -> Layout:
    """The layout of a view of memory that has layout ``source``.

    Raises :class:`Unsupported` for a reshape that needs a copy.
    """
    (arg,) = term.args
    probe = np.lib.stride_tricks.as_strided(
        np.empty(1, np.int8), arg.shape, source.strides
    )
    op = cast(Op, term.op)
    if op is reshape_op:
        try:
            seen = np.reshape(probe, term.shape, copy=False)
        except ValueError:
            raise Unsupported(
                f"a reshape to {term.shape} of memory with strides {source.strides}"
            ) from None
    else:
        seen = op.reference(probe, **op.attr_dict(term))
    start = probe.__array_interface__["data"][0]
    offset = seen.__array_interface__["data"][0] - start
    return Layout(tuple(seen.strides), source.offset + offset)


def strided(block: Array, place: Place, term: Term) -> Array:
    """The array at ``place`` in the bytes ``block``."""
    dtype = cast("np.dtype[Any]", term.dtype)
    size = dtype.itemsize
    return np.ndarray(
        term.shape,
        dtype,
        block.data,
        place.memory.byte + place.layout.offset * size,
        tuple(s * size for s in place.layout.strides),
    )
