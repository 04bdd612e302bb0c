"""The types that attributes of ops and rules are annotated with."""

from eqsat.terms import Axis, DTypeName, Ints, Op

__all__ = ["Axis", "DTypeName", "Ints", "Op"]
