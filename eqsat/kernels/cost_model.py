"""Cost models: seconds of a kernel from its floating operations and the bytes it moves.

A kernel costs ``launch + max(arithmetic, traffic)``, and a thousandth of the lesser,
which decides ties. Arithmetic is the flops of its body over the peak of the device,
products at the peak of fused multiply-adds, the rest at that of plain vector work.
Traffic is each distinct operand read once and each result written once, every value at
the bandwidth of the smallest memory that holds it. A view costs nothing but a name;
what is known at compile time is folded and free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, prod
from typing import Any, NamedTuple

from eqsat.kernels.fusion_state import opened
from eqsat.kernels.joins_in_place import in_place, made_parts
from eqsat.kernels.target import Target
from eqsat.ops import (
    VIEWS,
    broadcast_to_op,
    concatenate_op,
    reshape_op,
    slice_op,
    transpose_op,
)
from eqsat.support import EqsatError, Options
from eqsat.terms import (
    SCALAR,
    Lowering,
    Op,
    Shape,
    Term,
    Type,
    Weak,
    infer,
    postorder,
)
from eqsat.trace import KERNEL, RESULT, BodyStep, KernelBody, outline


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know of a machine."""

    name: str
    launch_s: float
    """Seconds to start one kernel."""
    flops_per_s: float
    """Peak of fused multiply-adds, counted as two (flop/s)."""
    map_flops_per_s: float
    """Peak of arithmetic outside products (flop/s)."""
    bandwidths: tuple[tuple[float, float], ...]
    """Memories from the smallest: bytes that fit, and their bandwidth (B/s)."""
    step_s: float = 0.0
    """Seconds for each op in a kernel, where a kernel is a row of calls."""
    view_s: float = 2e-8
    """Seconds to make a view: not free, so that fewer views win a tie."""

    def traffic_s(self, size: float) -> float:
        """Seconds to read or write one value of ``size`` bytes."""
        for room, rate in self.bandwidths:
            if size <= room:
                return size / rate
        return size / self.bandwidths[-1][1]

    def panel_s(self, size: float) -> float:
        """Seconds to write so many bytes to the smallest memory, panel by panel, and to
        read them there."""
        return 2 * size / self.bandwidths[0][1]


CPU = Device(
    "cpu",
    launch_s=1.5e-6,
    flops_per_s=1e11,
    map_flops_per_s=2e10,
    bandwidths=((1 << 20, 9e10), (1 << 25, 4e10), (float("inf"), 1.8e10)),
)
"""One core of a 2.4 GHz server, all measured: FMA peak 98 GFLOP/s; exp at 2 to 3
elements a ns, 8 flop each; copies in 1 MiB of L2, 32 MiB of L3, and memory."""


_HIDDEN = 1e-3
"""Share of what a kernel does beside its slower part that it pays for: of two kernels
that move as much, the one that computes less wins a tie."""


_FEW_FLOPS = 4.0
"""Operations an element up to which a value is not worth keeping in memory."""
_APART = 4.0
"""How many times as long a value takes whose elements are wanted with steps between
them along the last axis: what it reads comes element by element, and is put together to
vectors."""


def nbytes(type_: Type) -> float:
    """Bytes of a value; a bare number has none."""
    dtype, shape = type_
    if isinstance(dtype, Weak):
        return 0.0
    n = float(dtype.itemsize)
    for d in shape:
        n *= d
    return n


@lru_cache(maxsize=1 << 14)
def flops(
    op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...], out: Type
) -> tuple[float, float]:
    """Floating operations of one node (flop): in products, and all others.

    A composite counts the primitives of its body, but for those over constants.
    """
    if op.body is None:
        if op.flops is None:
            return 0.0, 0.0
        n = op.flops(types, dict(zip(op.attrs, attrs, strict=True)), out)
        return (n, 0.0) if op.kind == "contract" else (0.0, n)
    leaves, root = opened(op, attrs, types)
    needed = set(leaves)
    products = others = 0.0
    for t in postorder([root]):
        if any(a in needed for a in t.args):  # the rest is known beforehand
            needed.add(t)
            a, b = term_flops(t)
            products += a
            others += b
    return products, others


def term_flops(term: Term) -> tuple[float, float]:
    """Floating operations of one term (flop): in products, and all others."""
    op = term.op
    assert isinstance(op, Op)
    return flops(op, term.attrs, tuple(a.type for a in term.args), term.type)


def _checked(op: Op, seconds: float) -> float:
    """A price that the author of an op gives: no sum of costs may fall."""
    if not 0 <= seconds < inf:
        raise EqsatError(
            f"op {op.name}: its lowering costs {seconds!r} s, expected a finite number "
            f"that is not negative"
        )
    return float(seconds)


@dataclass(frozen=True)
class CostModel:
    """Prices nodes and kernels in seconds on a device."""

    device: Device = CPU
    target: Target = field(default_factory=Target)
    """What one kernel may be."""
    backend: str = "numpy"
    """Whose lowerings may bring a price of their own."""
    others: tuple[str, ...] = ()
    """Backends whose lowerings this one runs where it has none of its own."""

    def under(self, options: Options) -> CostModel:
        """This model with only the kernels that the options allow."""
        target = replace(
            self.target,
            kinds=self.target.kinds & options.kinds if options.fusion else frozenset(),
            least_elements=max(self.target.least_elements, options.least_elements),
        )
        return replace(self, target=target)

    def arithmetic_s(
        self,
        op: Op,
        attrs: tuple[Any, ...],
        types: tuple[Type, ...],
        out: Type,
        gram: bool = False,
    ) -> float:
        """Seconds of the arithmetic of one node; ``gram``: its product is of a matrix
        by its own transpose."""
        products, others = flops(op, attrs, types, out)
        products *= self.target.gram_share if gram else 1.0
        d = self.device
        arithmetic = products / d.flops_per_s + others / d.map_flops_per_s
        starts_s = self._more_passes(op, types) * d.launch_s
        return arithmetic + d.step_s + starts_s

    def _more_passes(self, op: Op, types: tuple[Type, ...]) -> int:
        """Passes of a kernel but for one: each part of a join takes one, of a join
        alone none. What kernels read of a join is so read where it lies, and the parts
        are computed there: nine blocks of four branches (inception_v2) in 0.99 of the
        time, and in 0.95 where threads share no cache."""
        is_join = op is concatenate_op and self.target.joins_in_place
        return len(types) - 1 if is_join else 0

    def counts_gram(self, term: Term) -> bool:
        """Whether the kernel of ``term`` computes a part of a product, which is of a
        matrix by its own transpose."""
        return self.target.gram_share != 1 and is_gram(term)

    def counts_repeated(self, arithmetic_s: float, out: Type) -> bool:
        """Whether arithmetic that is done again takes time again: not where it is a few
        operations an element, which loads hide."""
        return arithmetic_s > _FEW_FLOPS * prod(out[1]) / self.device.map_flops_per_s

    def repeated_s(self, arithmetic_s: float, out: Type, times: float) -> float:
        """Seconds of the arithmetic of a node that is done so many times."""
        counts = self.counts_repeated(arithmetic_s, out)
        return arithmetic_s * times if counts else arithmetic_s

    def own(self, op: Op) -> Lowering | None:
        """The lowering of its own that the author of an op gives, if one runs here."""
        found = (op.lowerings.get(name) for name in (self.backend, *self.others))
        return next((x for x in found if x is not None), None)

    def own_s(
        self, op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...], out: Type
    ) -> float | None:
        """Seconds of an op that is not priced as one kernel of its body: those that its
        author gives for a lowering, or those of two kernels; None for all others."""
        own = self.own(op)
        if own is None and op.name in self.target.split_before:
            return self._in_two_s(op, attrs, types, out, nbytes(types[0]))
        if own is None and op.name in self.target.split_after:
            return self._in_two_s(op, attrs, types, out, nbytes(out))
        if own is None or own.seconds is None:
            return None
        named = dict(zip(op.attrs, attrs, strict=True))
        return _checked(op, own.seconds(types, named, out))

    def joined_s(
        self,
        op: Op,
        attrs: tuple[Any, ...],
        types: tuple[Type, ...],
        made: Sequence[bool],
    ) -> float | None:
        """Seconds of a join alone, of which a kernel has ``made`` some parts, where it
        only copies the others; None for all other ops."""
        if not self.target.joins_in_place:
            return None
        found = in_place(op, attrs, types, made)
        if not found:
            return None
        views = self.device.view_s * len(types)
        copied = [nbytes(t) for t, is_ in zip(types, found, strict=True) if not is_]
        traffic = 2 * self.traffic_s(copied)
        return views + (self.kernel_s(0.0, traffic) if copied else 0.0)

    def _in_two_s(
        self,
        op: Op,
        attrs: tuple[Any, ...],
        types: tuple[Type, ...],
        out: Type,
        between: float,
    ) -> float:
        """Seconds of two kernels with a value of so many bytes between them."""
        written = nbytes(out)
        moved = [written]
        moved += [read_bytes(op, i, nbytes(t), written) for i, t in enumerate(types)]
        traffic = sum(self.device.traffic_s(n) for n in moved)
        arithmetic = self.arithmetic_s(op, attrs, types, out)
        first = self.kernel_s(0.0, 2 * self.device.traffic_s(between))
        return first + self.kernel_s(arithmetic, traffic)

    def traffic_s(self, moved: Iterable[float]) -> float:
        """Seconds to read and write values of so many bytes each."""
        return sum(self.device.traffic_s(n) for n in moved)

    def kernel_s(self, arithmetic_s: float, traffic_s: float, views: int = 0) -> float:
        """Seconds of a kernel that reads or writes through so many views."""
        d = self.device
        hidden = min(arithmetic_s, traffic_s) * _HIDDEN
        return d.launch_s + max(arithmetic_s, traffic_s) + hidden + views * d.view_s

    def price(
        self,
        op: Op,
        attrs: tuple[Any, ...],
        types: tuple[Type, ...],
        children: Sequence[int],
        out: Type,
    ) -> float:
        """Seconds of a node as a kernel by itself; ``children`` tells equal operands
        apart."""
        if op.kind == "leaf":
            return 0.0
        if op in VIEWS:
            return self.device.view_s
        own = self.own_s(op, attrs, types, out)
        if own is not None:
            return own
        written = nbytes(out)
        moved = [written] + [
            read_bytes(op, i, nbytes(t), written)
            for i, t in enumerate(types)
            if children.index(children[i]) == i
        ]
        traffic = sum(self.device.traffic_s(n) for n in moved)
        return self.kernel_s(self.arithmetic_s(op, attrs, types, out), traffic)

    def term(self, term: Term) -> float:
        """Seconds of one term as a kernel."""
        op = term.op
        assert isinstance(op, Op)
        if op.kind == "leaf" or op is RESULT:
            return 0.0
        if op in VIEWS:
            return self.device.view_s
        types = tuple(a.type for a in term.args)
        own = self.own_s(op, term.attrs, types, term.type)
        if own is None and op is concatenate_op:
            own = self.joined_s(op, term.attrs, types, [*made_parts(term)])
        if own is not None:
            return own
        if op is KERNEL:
            body: KernelBody = term.attrs[0]  # type: ignore[assignment]
            written: tuple[Type, ...] = body.types
        else:
            written = (term.type,)
        done = account(term)
        steps, times = done.work, done.times
        gram = self.counts_gram(term)
        work = sum(
            self.repeated_s(self.arithmetic_s(*s, gram), s[-1], n)
            for s, n in zip(steps, times, strict=True)
        )
        moved = done.moved(term).values()
        traffic = self.traffic_s([*map(nbytes, written), *moved])
        if op is KERNEL:
            traffic += self.device.panel_s(prologue_bytes(body, steps))
        views = sum(step[0] in VIEWS for step in steps)
        return self.kernel_s(work, traffic, views)

    def limit_s(self, term: Term, cores: int = 1) -> float:
        """Seconds of one term at the limit of so many cores: the arithmetic or the
        traffic of its kernel, whichever takes longer, and nothing to start it."""
        d = self.device
        rooms = tuple((room, rate * cores) for room, rate in d.bandwidths)
        limit = replace(
            d,
            launch_s=0.0,
            step_s=0.0,
            view_s=0.0,
            flops_per_s=d.flops_per_s * cores,
            map_flops_per_s=d.map_flops_per_s * cores,
            bandwidths=rooms,
        )
        return replace(self, device=limit).term(term)

    def program(self, roots: Sequence[Term], constant: dict[Term, bool]) -> float:
        """Seconds of a program that runs each of its terms as one kernel."""
        known: dict[tuple[Any, ...], float] = {}
        total = 0.0
        for t in postorder(roots):
            if constant[t]:
                continue
            read = tuple(shown_bytes(a) for a in t.args)
            key = outline(t), read, self.counts_gram(t)
            if key not in known:
                known[key] = self.term(t)
            total += known[key]
        return total


def read_bytes(op: Op, i: int, size: float, written: float) -> float:
    """Bytes of argument ``i`` (``size``) that ``op`` reads to write ``written``."""
    if op is slice_op:
        return min(size, written)
    return op.bytes_read(i, size, written)


def shown_bytes(term: Term) -> float:
    """Bytes to read of a value in memory: a broadcast shows fewer than it has."""
    size = float(term.nbytes)
    while term.op in (broadcast_to_op, reshape_op, transpose_op):
        term = term.args[0]
        size = min(size, float(term.nbytes))
    return size


Work = tuple[Op, tuple[Any, ...], tuple[Type, ...], Type]
"""One op of a kernel: attributes, types of its arguments, its own type."""


Reading = tuple[int, float]
"""A value and which part of it is read."""
Places = tuple[tuple[int, int], ...]
Spot = tuple[tuple[Any, ...], Places]
"""Where a kernel wants a value: the views that are no slices, and then the first
element and the step along each axis, the last axis first."""
_HERE: Spot = ((), ())
_MOST_SPOTS = 64
"""Places of a value that are told apart; of more each counts."""


@lru_cache(maxsize=1 << 14)
def _through(starts: Shape, steps: Shape, axes: Places) -> Places:
    """Where a slice shows the elements at places of it."""
    found = []
    for i in range(max(len(starts), len(axes))):
        first, step = axes[i] if i < len(axes) else (0, 1)
        if i < len(starts):
            first = starts[-1 - i] + steps[-1 - i] * first
            step *= steps[-1 - i]
        found.append((first, step))
    while found and found[-1] == (0, 1):
        found.pop()
    return tuple(found)


def times_computed(
    results: Iterable[int],
    readers: Iterable[tuple[int, Op, tuple[Any, ...], Iterable[Reading]]],
) -> dict[int, float]:
    """How many times a kernel computes each element of its values, once at least.

    ``readers`` are its values, each behind those that read it, with their op and what
    they read of values inside. A view wants elements from other places than its own,
    and a value is computed once for each place that it is wanted at.
    """
    wanted: dict[int, dict[Spot, float]] = {r: {_HERE: 1.0} for r in results}
    lent: set[int] = set()  # what lies at the places of the one that reads it
    known: dict[int, float] = {}
    found: dict[int, float] = {}
    for value, op, attrs, readings in readers:
        spots = wanted.setdefault(value, {})
        times = known.get(id(spots))
        if times is None:
            times = 0.0
            for (_, axes), n in spots.items():
                times += n * _APART if axes and axes[0][1] != 1 else n
            times = known[id(spots)] = max(1.0, times)
        found[value] = times
        is_view = op in VIEWS
        for inside, part in readings:
            into = wanted.get(inside)
            if into is None and not is_view:
                wanted[inside] = spots
                lent.add(inside)
                continue
            if into is None or inside in lent:
                into = wanted[inside] = dict(into or {})
                lent.discard(inside)
            if not is_view:
                into.update(spots)
            elif len(spots) > _MOST_SPOTS:
                into[(value,), ()] = part * sum(spots.values())
            elif op is slice_op:
                starts, _, steps = attrs
                for (views, axes), n in spots.items():
                    into[views, _through(starts, steps, axes)] = n * part
            else:
                for s, n in spots.items():
                    into[(value, *s), ()] = n * part
    return found


class Account(NamedTuple):
    """What a kernel does, whatever the arrays are that it reads."""

    work: list[Work]
    """Its ops."""
    read: list[float]
    """Bytes that its ops read of each argument."""
    times: list[float]
    """How many times each op is computed."""

    def moved(self, term: Term) -> dict[Term, float]:
        """Bytes of each argument of a kernel that does this that come from memory: no
        more than are there."""
        args = _read_by(term)
        reads = dict.fromkeys(args, 0.0)
        for a, read in zip(args, self.read, strict=True):
            reads[a] += read
        return {a: min(read, shown_bytes(a)) for a, read in reads.items()}


def _read_by(term: Term) -> list[Term]:
    """The arguments of an :class:`Account`."""
    return list(term.args if term.op is KERNEL else dict.fromkeys(term.args))


def account(term: Term) -> Account:
    """What the kernel of ``term`` does."""
    op = term.op
    assert isinstance(op, Op)
    args = _read_by(term)
    places = {a: i for i, a in enumerate(args)}
    body = term.attrs[0] if op is KERNEL else None
    steps: tuple[BodyStep, ...] = (
        BodyStep(op, term.attrs, tuple(places[a] for a in term.args)),
    )
    if isinstance(body, KernelBody):
        steps = body.steps
    known = [a.type for a in args]
    reads = [0.0] * len(args)
    work: list[Work] = []
    inside: list[tuple[int, Op, tuple[Any, ...], list[Reading]]] = []
    for inner, attrs, operands in steps:
        if inner is SCALAR:
            known.append((Weak.FLOAT, ()))
            continue
        types = tuple(known[i] for i in operands)
        out = infer(inner, types, attrs)
        work.append((inner, attrs, types, out))
        readings: list[Reading] = []
        for j, i in enumerate(operands):
            if operands.index(i) == j:
                size = nbytes(types[j])
                read = read_bytes(inner, j, size, nbytes(out))
                readings.append((i, read / max(1.0, size)))
                if i < len(args):
                    reads[i] += read
        inside.append((len(known), inner, attrs, readings))
        known.append(out)
    ends = body.results if isinstance(body, KernelBody) else (len(known) - 1,)
    times = times_computed(ends, reversed(inside))
    return Account(work, reads, [times[value] for value, *_ in inside])


TURNED = ((-1, -2),)
"""Attributes of a transpose of matrices."""


def is_gram(term: Term) -> bool:
    """Whether the one product in the kernel of ``term`` is of a matrix by its own
    transpose."""
    body, args = term.attrs[0] if term.op is KERNEL else None, term.args
    if not isinstance(body, KernelBody):
        return len(args) > 1 and (_turns(*args[:2]) or _turns(args[1], args[0]))
    products = [s for s in body.steps if s.op.kind in ("contract", "fused")]
    if len(products) != 1 or len(products[0].args) < 2:
        return False

    def source(i: int) -> Term | int | None:
        """What a value of the body is the transpose of."""
        if i < body.arity:
            a = args[i]
            return a.args[0] if a.op is transpose_op and a.attrs == TURNED else None
        step = body.steps[i - body.arity]
        is_turned = step.op is transpose_op and step.attrs == TURNED
        return value(step.args[0]) if is_turned else None

    def value(i: int) -> Term | int:
        return args[i] if i < body.arity else i

    x, y = products[0].args[:2]
    return value(x) == source(y) or value(y) == source(x)


def _turns(x: Term, y: Term) -> bool:
    return y.op is transpose_op and y.attrs == TURNED and y.args == (x,)


def prologue_bytes(body: KernelBody, work: Sequence[Work]) -> float:
    """Bytes of the left operand of the one product in ``body``, where that is computed
    as it is read; ``work`` is that of its ops but bare numbers."""
    products = [s for s in body.steps if s.op.kind == "contract"]
    if len(products) != 1:  # none, or attention
        return 0.0
    left, n = products[0].args[0], body.arity
    while left >= n and body.steps[left - n].op in VIEWS:
        left = body.steps[left - n].args[0]
    types = next(types for op, _, types, _ in work if op.kind == "contract")
    return nbytes(types[0]) if left >= n else 0.0
