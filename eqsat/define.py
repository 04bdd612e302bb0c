"""What users define ops with. Ops: :mod:`eqsat.ops`; rules: :func:`eqsat.rule`."""

from eqsat.terms.op import Axis, DTypeName, Ints, Op
from eqsat.terms.op_factories import composite, fused, op, pointwise

__all__ = ["Axis", "DTypeName", "Ints", "Op", "composite", "fused", "op", "pointwise"]
