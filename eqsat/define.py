"""What users define ops with. Ops: :mod:`eqsat.ops`; rules: :func:`eqsat.rule`."""

from eqsat.terms import Axis, DTypeName, Ints, Op, composite, fused, op, pointwise

__all__ = ["Axis", "DTypeName", "Ints", "Op", "composite", "fused", "op", "pointwise"]
