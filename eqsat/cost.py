"""Cost models: seconds of a kernel from its floating operations and the bytes it moves.

A kernel costs ``launch + max(flops / peak, bytes / bandwidth)``. Each distinct operand
is read once, the result written once; a view costs nothing but a name; what is known at
compile time is folded and free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from eqsat.build import make
from eqsat.errors import EqsatError
from eqsat.expand import body_of
from eqsat.op import INPUT, Op
from eqsat.term import Graph, Term, Type, Weak, postorder


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know of a machine."""

    name: str
    launch_s: float
    """Seconds to start one kernel."""
    flops_per_s: float
    """Peak of fused multiply-adds, counted as two (flop/s)."""
    bytes_per_s: float
    """Stream bandwidth from memory (B/s)."""
    view_s: float = 2e-8
    """Seconds to make a view: not free, so that fewer views win a tie."""


CPU = Device("cpu", launch_s=1.5e-6, flops_per_s=1e11, bytes_per_s=1.8e10)
"""One core of a 2.4 GHz server: FMA peak 98 GFLOP/s, stream 17 to 21 GB/s, both
measured."""


def nbytes(type_: Type) -> float:
    """Bytes of a value; a bare number has none."""
    dtype, shape = type_
    if isinstance(dtype, Weak):
        return 0.0
    n = float(dtype.itemsize)
    for d in shape:
        n *= d
    return n


def flops(op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...], out: Type) -> float:
    """Floating operations of one node (flop); a composite counts the primitives of its
    body."""
    if op.body is not None:
        return _composite_flops(op, attrs, types)
    if op.flops is None:
        return 0.0
    return op.flops(types, dict(zip(op.attrs, attrs, strict=True)), out)


@lru_cache(maxsize=4096)
def _composite_flops(op: Op, attrs: tuple[Any, ...], types: tuple[Type, ...]) -> float:
    graph = Graph(sources=False)
    args = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(types)]
    body = body_of(make(op, graph, args, dict(zip(op.attrs, attrs, strict=True))))
    assert body is not None
    return sum(term_flops(t) for t in postorder([body]))


def term_flops(term: Term) -> float:
    """Floating operations of one term (flop)."""
    op = term.op
    assert isinstance(op, Op)
    return flops(op, term.attrs, tuple(a.type for a in term.args), term.type)


def roofline(device: Device, work: float, moved: float) -> float:
    """Seconds of a kernel of ``work`` flop that moves ``moved`` bytes."""
    return device.launch_s + max(work / device.flops_per_s, moved / device.bytes_per_s)


@lru_cache(maxsize=1 << 14)
def _price(
    device: Device,
    op: Op,
    attrs: tuple[Any, ...],
    types: tuple[Type, ...],
    places: tuple[int, ...],
    out: Type,
) -> float:
    """Seconds of a node; ``places`` gives equal operands the same number, read once."""
    if op.kind == "leaf":
        return 0.0
    if op.kind == "view" and op.name not in ("concatenate", "pad"):
        return device.view_s
    written = nbytes(out)
    read = sum(
        op.bytes_read(i, nbytes(t), written)
        for i, t in enumerate(types)
        if places[i] == i
    )
    return roofline(device, flops(op, attrs, types, out), read + written)


def _checked(op: Op, seconds: float) -> float:
    """A price that the author of an op gives: no sum of costs may fall."""
    if not 0 <= seconds < inf:
        raise EqsatError(
            f"op {op.name}: its lowering costs {seconds!r} s, expected a finite number "
            f"that is not negative"
        )
    return float(seconds)


@dataclass
class CostModel:
    """Prices nodes in seconds on a device."""

    device: Device = CPU
    backend: str = "numpy"
    """Whose lowerings may bring a price of their own."""

    def price(
        self,
        op: Op,
        attrs: tuple[Any, ...],
        types: Sequence[Type],
        children: Sequence[int],
        out: Type,
    ) -> float:
        """Seconds of the node as one kernel; ``children`` tells equal operands
        apart."""
        own = op.lowerings.get(self.backend)
        if own is not None and own.seconds is not None:
            named = dict(zip(op.attrs, attrs, strict=True))
            return _checked(op, own.seconds(types, named, out))
        places = tuple(children.index(c) for c in children)
        return _price(self.device, op, attrs, tuple(types), places, out)

    def kernel(self, work: float, moved: float) -> float:
        """Seconds of a kernel of ``work`` flop that moves ``moved`` bytes."""
        return roofline(self.device, work, moved)

    def term(self, term: Term) -> float:
        """Seconds of one term as a kernel."""
        op = term.op
        assert isinstance(op, Op)
        return self.price(
            op,
            term.attrs,
            [a.type for a in term.args],
            [a.id for a in term.args],
            term.type,
        )

    def program(self, roots: Sequence[Term], constant: dict[Term, bool]) -> float:
        """Seconds of a program that runs each of its terms as one kernel."""
        return sum(self.term(t) for t in postorder(roots) if not constant[t])


__all__ = ["CPU", "CostModel", "Device", "flops", "nbytes", "term_flops"]
