"""Kernels that are alike: what differs between them is memory, or numbers.

The steps of a loop are kernels over other memory; some hold numbers that count steps,
as ``1 - 0.9**t``. Where there are many such numbers in one place, a kernel reads them
from memory, so that all of them are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eqsat.kernels import Kernel, inner
from eqsat.terms import SCALAR, Op, Term, Weak
from eqsat.trace import RESULT

from ...loop_ir import (
    DType,
    Layout,
)
from ..machine import COMMON

PLACES = frozenset("add subtract multiply divide maximum minimum".split())
"""Ops whose code does not depend on which number it is."""


@dataclass(frozen=True)
class Numbers:
    """The numbers that kernels read from memory."""

    places: Mapping[Any, frozenset[int]] = field(default_factory=dict)
    """Of the arguments of kernels, by what they have in common."""

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Numbers:
        """Those that differ among many of ``kernels``."""
        alike: dict[Any, list[Kernel]] = {}
        for kernel in kernels:
            if any(a.op is SCALAR for a in kernel.term.args):
                alike.setdefault(_in_common(kernel), []).append(kernel)
        found = {}
        for key, members in alike.items():
            if len(members) < COMMON.varying_numbers:
                continue
            sample = members[0].term.args
            places = frozenset(
                i
                for i, a in enumerate(sample)
                if a.op is SCALAR
                and len({k.term.args[i] for k in members}) >= COMMON.varying_numbers
                and _dtype_of(members[0], a) is not None
            )
            if places:
                found[key] = places
        return cls(found)

    def read(self, kernel: Kernel) -> dict[Term, DType]:
        """The numbers that ``kernel`` reads from memory, and in which dtype."""
        found = {}
        for i in self.places.get(_in_common(kernel), ()) if self.places else ():
            dtype = _dtype_of(kernel, kernel.term.args[i])
            if dtype is not None:
                found[kernel.term.args[i]] = dtype
        return found


def key_of(
    kernel: Kernel, layouts: Mapping[Term, Layout], numbers: Mapping[Term, DType]
) -> Any:
    """Equal for kernels that are made of the same pieces over other memory."""
    args = kernel.term.args
    of_args = (numbers.get(a, a) if isinstance(a.dtype, Weak) else a.type for a in args)
    lie = (layouts[t].strides for t in kernel.inputs)
    return *_in_common(kernel), tuple(of_args), tuple(lie)


def _in_common(kernel: Kernel) -> tuple[Any, ...]:
    args = kernel.term.args
    return (
        *(kernel.op, kernel.term.attrs),
        tuple(None if a.op is SCALAR else a.type for a in args),
        tuple(map(args.index, args)),
        tuple((r.op is RESULT, r.attrs, r.type) for r in kernel.results),
    )


def _dtype_of(kernel: Kernel, number: Term) -> DType | None:
    """The dtype that a number of ``kernel`` is taken in; None where it may depend on
    the number how it is computed with."""
    if number in kernel.bodies or kernel.term.op.name != "kernel":
        return None
    found: set[DType] = set()
    for t in inner(kernel.bodies, kernel.term.args):
        if number in t.args:
            if cast(Op, t.op).name not in PLACES:
                return None
            others = (a.dtype for a in t.args if not isinstance(a.dtype, Weak))
            found.update(others)
    dtype = found.pop() if len(found) == 1 else None
    is_whole = dtype is not None and dtype.kind == "f" and dtype.itemsize >= 4
    return dtype if is_whole else None
