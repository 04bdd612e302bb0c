"""Where the values of a program lie: inputs, results, constants, and one block of
scratch memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eqsat.kernels import Kernel, Program, Slot, View, packed
from eqsat.ops import reshape_op
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

if TYPE_CHECKING:
    from ...to_loops import DeferredConstant


def _kept(value: Any, dtype: np.dtype[Any]) -> Array:
    """A constant in memory that nobody writes to: its own where that is so already, as
    that of a model's file, else a copy, in order."""
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        if value.flags.aligned and is_immutable(value):
            return value
    return np.array(value, dtype, order="C")


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
        self.first_output = len(program.inputs)
        self.first_constant = self.first_output + len(program.roots)
        for i, (t, layout) in enumerate(zip(program.inputs, layouts, strict=True)):
            self.of[t] = Place(MemoryRef(i), layout)
        folded = (t for t in program.folded if t not in self.deferred)
        leaves = (a for of in self.deferred.values() for a in of.leaves)
        fixed = dict.fromkeys((*program.constants, *folded, *leaves))
        values = evaluate(tuple(fixed), {})
        for t in fixed:
            self.constant(_kept(values[t], cast("np.dtype[Any]", t.dtype)), t)
        self.scratch_bytes = 0
        self.fault: MemoryRef | None = None
        """A byte that is 1 after a call that must not give what it computed."""
        self._slots()

    def constant(self, value: Array, term: Term | None = None) -> Place:
        """The place of an array that is known beforehand."""
        number = self.first_constant + len(self.constants)
        self.constants.append(value)
        place = Place(MemoryRef(number), Layout(packed(value.shape)))
        if term is not None:
            self.of[term] = place
        return place

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
        """The place of the constant with this pointer, in panels."""
        self.packed.append((number, panels))
        source = self.constants[number - self.first_constant]
        dtype = np.dtype(panels.dtype)
        least = COMMON.pooled_bytes // dtype.itemsize
        out = fresh((max(panels.elements, least),), dtype)[: panels.elements]
        panels.fill(out, source)
        return self.constant(out)

    def forget(self, numbers: Sequence[int]) -> None:
        """Give up the memory of constants that nothing reads, and bring the elements
        of others in order."""
        for number in numbers:
            self.constants[number - self.first_constant] = np.empty(0, np.uint8)
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
        bases = {s.term: s.base for s in self.program.steps if isinstance(s, View)}
        for i, root in enumerate(self.program.roots):
            if i in self.copied:
                continue
            if views.get(root, Layout(packed(root.shape))) != Layout(
                packed(root.shape)
            ):
                self.copied.add(i)
                continue
            owners[plan.slot_of[bases.get(root, root)]] = self.first_output + i
        memory = {n: MemoryRef(owner) for n, owner in owners.items()}
        own = [n for n in range(len(plan.slots)) if n not in memory]
        for turn in self._in_turns(own):
            size = max(plan.slots[n].nbytes for n in turn)
            memory |= dict.fromkeys(turn, self.scratch(size))
        for step in self.program.steps:
            if isinstance(step, Kernel):
                for r in step.results:
                    where = memory[plan.slot_of[r]]
                    self.of[r] = Place(where, Layout(packed(r.shape)))
            else:
                base = self.of[step.base]
                layout = views[step.term]
                self.of[step.term] = Place(base.memory, layout)

    def _in_turns(self, numbers: Sequence[int]) -> list[list[int]]:
        """Slots that take turns in one part of scratch memory, which a program that is
        to keep little in memory has: the largest first, each where it fits."""
        slots = self.program.plan.slots
        if not self.program.least_memory:
            return [[n] for n in numbers]
        found: list[list[int]] = []
        for n in sorted(numbers, key=lambda n: -slots[n].nbytes):
            free = (
                turn for turn in found if all(_apart(slots[n], slots[m]) for m in turn)
            )
            turn = next(free, None)
            if turn is None:
                found.append([n])
            else:
                turn.append(n)
        return found


def _apart(a: Slot, b: Slot) -> bool:
    """Whether two slots are in use at different times."""
    return a.last < b.first or b.last < a.first


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
