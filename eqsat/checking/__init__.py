"""The check of rules and ops: property tests, proofs and lints.

Knows how to draw arguments for a rule and when its two sides agree. Never rewrites
anything. Its files load when first used, since most need Hypothesis. Start with
``check.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.checking.bounds import PRECISION, Analysis
    from eqsat.checking.check_rules import check, report_of, tested
    from eqsat.checking.draws import (
        INSIDE,
        LIMIT,
        NUMBERS,
        SELDOM_UNUSUAL,
        UNDEFINED,
        VALUES,
        Case,
        Pick,
        Pressing,
        Shape,
        broadcastable,
        draw_attributes,
        draw_shapes,
        fitting_shapes,
        fitting_sizes,
        inside_domain,
        led_to,
        one_of,
        shuffled,
        values,
        ways,
    )
    from eqsat.checking.exactness import (
        FACTOR,
        FLOAT32_ROUNDING,
        Evaluated,
        bound,
        longest_sum,
        relative,
        wide,
    )
    from eqsat.checking.mutants import try_mutants
    from eqsat.checking.report import Finding, Report, show, with_bar
    from eqsat.checking.shrink import array_code
    from eqsat.checking.verdict import bits_differ, far_apart, not_finite, place

__getattr__ = lazy_room(__name__, __file__)
