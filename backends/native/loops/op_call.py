"""One pointwise op as it is written, and what instructions and intrinsics write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ...loop_ir import (
    DType,
)
from ..machine import Host, constant, lanes_of, register_type
from ..math import declared


@dataclass(eq=False)
class OpCall:
    """One op to be written: its values, their dtype, and the dtype of the result."""

    b: ir.IRBuilder
    op: str
    args: Sequence[ir.Value]
    of: DType
    dtype: DType
    host: Host

    @property
    def lanes(self) -> int:
        return max(map(lanes_of, self.args))

    @property
    def is_float(self) -> bool:
        return self.of.kind == "f"

    @property
    def is_unsigned(self) -> bool:
        return self.of.kind in "ub"

    def number(self, value: float) -> ir.Constant:
        """A constant of the dtype of the arguments."""
        return constant(register_type(self.of), self.lanes, value)


Emit = Callable[[OpCall], ir.Value]


def instruction(name: str) -> Emit:
    return lambda c: getattr(c.b, name)(*c.args)


def call_intrinsic(c: OpCall, name: str, flags: tuple[str, ...] = ()) -> ir.Value:
    """The intrinsic ``llvm.name`` of its arguments, with ``flags`` of LLVM's fast
    mathematics."""
    kind = c.args[0].type
    one = f"{'f' if c.is_float else 'i'}{8 * c.of.itemsize}"
    full = f"llvm.{name}.{one if c.lanes == 1 else f'v{c.lanes}{one}'}"
    function = declared(c.b, full, [kind] * len(c.args), kind)
    return c.b.call(function, list(c.args), fastmath=flags)


def intrinsic(name: str) -> Emit:
    return lambda c: call_intrinsic(c, name)
