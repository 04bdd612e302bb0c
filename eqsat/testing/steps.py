"""The steps that programs are drawn from, with repeats for weight."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.testing.arranging import gather, reduction, scan, view
from eqsat.testing.builder import Builder
from eqsat.testing.composing import composite, images, product
from eqsat.testing.pointwise import binary, cast, choice, comparison, logic, unary
from eqsat.testing.templates import template

_ONE_OP: tuple[Callable[[Builder], None], ...] = (
    *(unary, unary, unary, binary, binary, binary, binary, reduction, view, view),
    *(product, composite, composite, choice, comparison, logic, cast, gather, images),
    scan,
)
STEPS = (*_ONE_OP, *(template,) * len(_ONE_OP))
