"""What the ops of statements cost: what their rows in the catalogue say."""

from __future__ import annotations

from eqsat.terms import Cost, Op

from .nest import (
    CDF,
)

_OF_LOOPS = {CDF: 9}
"""Ops that loops alone have."""


def weight(op: str) -> int:
    """Additions that one element of an op takes, about."""
    row = Op.registry.get(op)
    return _OF_LOOPS.get(op, Cost.LIGHT) if row is None else row.cost


def is_function(op: str) -> bool:
    """Whether an op is an exponential or the like."""
    return weight(op) > Cost.SLOW
