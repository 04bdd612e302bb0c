"""What users define ops with. Ops: :mod:`eqsat.ops`; rules: :func:`eqsat.rule`."""

from eqsat.terms import Axis, DTypeName, Ints, Op, composite, fused
from eqsat.trace import define_op as op
from eqsat.trace import define_pointwise as pointwise
from eqsat.trace import reduction

__all__ = [
    "Axis",
    "DTypeName",
    "Ints",
    "Op",
    "composite",
    "fused",
    "op",
    "pointwise",
    "reduction",
]
