"""Whether what computes an op gives what the op's reference does.

Bools and integers are equal, and floats up to the errors that
:mod:`eqsat.checking.bounds` explains. A kernel is called under every class of numerics,
so where an argument is NaN or infinite it gives NaN and infinities where the reference
does; the sign of a zero, and of an infinity that is made of a zero, may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.bounds import PRECISION, Analysis, ulp
from eqsat.checking.op_draws import Drawn
from eqsat.checking.verdict import bits_differ, far_apart, not_finite, place
from eqsat.rulelang import evaluate
from eqsat.support import WIDE, Array, Ball, Range, cached_property
from eqsat.terms import Term


@dataclass
class Expected:
    """What the references make of ``term`` for drawn values."""

    drawn: Drawn
    term: Term
    ulps: float = 0.0
    """The largest difference met, in units in the last place."""

    @cached_property
    def value(self) -> Array:
        with np.errstate(all="ignore"):
            (found,) = evaluate([self.term], self.drawn.arrays)
        return np.asarray(found)

    @cached_property
    def _analysis(self) -> tuple[Ball, Range]:
        return self._bounded(False)

    @cached_property
    def _coarse(self) -> tuple[Ball, Range]:
        return self._bounded(True)

    def _bounded(self, coarse: bool) -> tuple[Ball, Range]:
        """The ball of the value. What only NumPy knows may be as far off as its
        reference is."""
        ball, span = _ball(self.drawn, self.term, coarse)
        if self.drawn.call.op.opaque and self.value.dtype in PRECISION:
            off = np.abs(self.value.astype(WIDE) - ball.value)
            ball = Ball(ball.value, ball.error + np.where(np.isfinite(off), off, 0))
        return ball, span

    @cached_property
    def inside(self) -> bool:
        """Whether all values on the way stay in the working range, with 1 in place of
        what is not finite."""
        drawn = self.drawn
        if not drawn.finite and not all(a.size for a in drawn.arrays):
            return False
        span = self._analysis[1] if drawn.finite else _ball(drawn.plain, self.term)[1]
        return drawn.within and span.inside and not span.pole

    def fault(self, got: Any, strict: bool, coarse: bool = False) -> str:
        """Why ``got`` is not the value; empty when it is. ``strict``: NaN and
        infinities stand where the reference has them, not only something that is not
        finite. ``coarse``: as of :class:`Analysis`."""
        with np.errstate(all="ignore"):
            return self._fault(got, strict and not self.drawn.call.folds, coarse)

    def _fault(self, got: Array, strict: bool, coarse: bool) -> str:
        want = self.value
        type_ = (want.dtype, want.shape)
        if (got.dtype, got.shape) != type_:
            return (
                f"expected {want.dtype} {want.shape}, got {got.dtype} {got.shape}: "
                f"another type"
            )
        if not bits_differ(want, got):
            return ""
        if want.dtype not in PRECISION:
            return self._decided(got, coarse)
        self.ulps = max(self.ulps, ulp(want, got, want.dtype))
        ball, _ = self._coarse if coarse else self._analysis
        reason = far_apart(want, got, ball, ball, 0.0)
        if not reason and self.inside:
            reason = self._not_finite(got, ball, strict)
        return reason and f"expected and got {reason}"

    def _decided(self, got: Array, coarse: bool) -> str:
        """Why bools or integers differ where no rounding decides them."""
        want = self.value
        error = np.zeros((), WIDE)
        if any(a.dtype in PRECISION for a in self.drawn.arrays):
            ball, _ = self._coarse if coarse else self._analysis
            error = ball.error
        reason = bits_differ(want, np.where(error > 0, want, got))
        return reason and f"expected and got {reason}"

    def _not_finite(self, got: Array, ball: Ball, strict: bool) -> str:
        want = self.value
        if self.drawn.finite:
            reason = not_finite(want, got, ball, ball)
            return reason or (self._other_kind(got) if strict else "")
        lost = np.isfinite(want.astype(WIDE)) != np.isfinite(got.astype(WIDE))
        if not strict and np.isnan(want.astype(WIDE)).any():
            lost &= ~np.isnan(got.astype(WIDE))
        if lost.any():
            return _pair(want, got, lost, "one alone is finite")
        return self._other_kind(got) if strict else ""

    def _other_kind(self, got: Array) -> str:
        """Where one is NaN and the other infinite, or their signs differ."""
        x, y = self.value.astype(WIDE), got.astype(WIDE)
        beyond = ~np.isfinite(x) & ~np.isfinite(y)
        zeros = any((a == 0).any() for a in self.drawn.arrays)
        signs = beyond & (x != y) & ~np.isnan(x) & ~np.isnan(y)
        kinds = beyond & (np.isnan(x) != np.isnan(y))
        if kinds.any():
            return _pair(self.value, got, kinds, "one is NaN, the other infinite")
        if signs.any() and not zeros:
            return _pair(self.value, got, signs, "infinities of other signs")
        return ""


def _pair(want: Array, got: Array, wrong: Array, why: str) -> str:
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return f"{want[at]} and {got[at]}{place(at)}: {why}"


def _ball(drawn: Drawn, term: Term, coarse: bool = False) -> tuple[Ball, Range]:
    dtype, limit = drawn.limit
    span = Range(limit, narrow=dtype == np.dtype("f2"))
    (ball,) = Analysis(drawn.arrays, span, coarse).balls([term])
    return ball, span
