"""A program while it is drawn: the values so far, traced and with their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from eqsat.checking import (
    LIMIT,
    PRECISION,
    SELDOM_UNUSUAL,
    Analysis,
    Pick,
    Shape,
    one_of,
    shuffled,
    values,
)
from eqsat.support import Array, Ball, EqsatError, Range
from eqsat.terms import INPUT, Term, TermGraph, Weak, constant, postorder
from eqsat.testing.drawn import DrawnProgram, DrawnStep, quiet, scope
from eqsat.trace import Tracer

LARGEST = 4096
"""Elements of the largest value."""
MOST_AXES = 5
SIZES = (2, 3, 4, 5, 6, 7, 8, 16, 33)
DType = np.dtype[Any]


class Builder:
    """Draws leaves and takes steps that are well typed and whose values can be told.

    ``pick`` makes the choices. A step is refused when eqsat cannot trace it, when it
    has no value or one large in size, and, unless ``wild``, when its value is not
    finite, leaves the working range, or depends on how intermediate values round.
    """

    def __init__(
        self,
        pick: Pick,
        dtype: DType,
        kinds: Sequence[str],
        allowed: Collection[str] | None = None,
        wild: bool = False,
    ) -> None:
        self.pick = pick
        self.dtype = dtype
        self.kinds = kinds
        self.allowed = allowed
        self.wild = wild
        sizes = shuffled(pick, SIZES)[:3]
        unusual = one_of(pick, SELDOM_UNUSUAL)
        self.sizes = [*sizes[:2], sizes[2] if unusual is None else unusual]
        self.arguments: dict[str, Array] = {}
        self.steps: list[DrawnStep] = []
        self.wanted: list[str] = []
        """Values that should be results."""
        self.refused: list[str] = []
        """Code of steps that were not taken, and why."""
        self._scope = scope()
        self._graph = TermGraph(sources=False)
        self._inputs: list[Array] = []
        self._analysis = Analysis(self._inputs, Range(math.inf))
        self._names: list[str] = []

    # -- what there is -----------------------------------------------------------------

    def shape(self, name: str) -> Shape:
        return tuple(self._scope[name].shape)

    def dtype_of(self, name: str) -> DType:
        found: DType = self._scope[name].dtype
        return found

    def value(self, name: str) -> Array:
        """The exact value, about as the program computes it."""
        return self._ball(self._scope[name].term).value

    def names(self, fits: Callable[[str], bool]) -> list[str]:
        """Values that fit, the latest first."""
        return [n for n in reversed(self._names) if fits(n)]

    def some(self, fits: Callable[[str], bool]) -> str | None:
        """A value that fits, or None."""
        found = self.names(fits)
        return one_of(self.pick, found[:8]) if found else None

    def floating(self, name: str) -> bool:
        return self.dtype_of(name) in PRECISION

    def may(self, op: str) -> bool:
        """Whether steps may use ``op``."""
        return self.allowed is None or op in self.allowed

    # -- leaves ------------------------------------------------------------------------

    def leaf(self, shape: Shape, dtype: DType | None = None) -> str:
        """A new argument or constant of ``shape``."""
        dtype = self.dtype if dtype is None else dtype
        rng = np.random.default_rng(self.pick(1 << 16))
        if dtype.kind in "iu" and self.pick(4):
            least = 0 if dtype.kind == "u" else -9
            return self.hold(rng.integers(least, 10, shape, dtype))
        return self.hold(values(one_of(self.pick, self.kinds), rng, shape, dtype))

    def hold(self, array: Array, fixed: bool | None = None) -> str:
        """A new argument, read-only when it is ``fixed``: a constant then."""
        fixed = self.pick(5) > 2 if fixed is None else fixed
        array = np.asarray(array)
        name = f"{'c' if fixed else 'x'}{len(self.arguments)}"
        self.arguments[name] = array
        if fixed:
            array.flags.writeable = False
            term = constant(self._graph, array)
        else:
            type_ = (array.dtype, array.shape)
            term = self._graph.node(INPUT, (), (len(self._inputs),), type_)
            self._inputs.append(array)
        self._scope[name] = Tracer(term)
        self._names.append(name)
        return name

    # -- steps -------------------------------------------------------------------------

    def take(self, code: str, rule: str = "", inner: bool = False) -> str | None:
        """The name of a new value ``code``; None when the step is refused.

        An ``inner`` value is a part of one that counts: it may be vague.
        """
        try:
            with quiet():
                made = eval(code, self._scope)
                why = self._objection(made)
                vague = "" if why else self._doubt(made)
        except (EqsatError, np.linalg.LinAlgError) as error:
            why, vague = str(error).splitlines()[0], ""
        if why or (vague and not inner):
            self.refused.append(f"{code}: {why or vague}")
            return None
        name = f"t{len(self.steps)}"
        self._scope[name] = made
        self.steps.append(DrawnStep(name, code, rule))
        if not vague:
            self._names.append(name)
        return name

    def _objection(self, made: Any) -> str:
        """Why a value cannot be in the program at all."""
        if not isinstance(made, Tracer):
            return "not traced"
        if made.size > LARGEST or made.ndim > MOST_AXES:
            return f"of shape {made.shape}"
        if self.allowed is None:
            return ""
        own = {t.op.name for t in postorder([made.term]) if t.args}
        return ", ".join(sorted(own - set(self.allowed)))

    def _doubt(self, made: Tracer) -> str:
        if self.wild:
            return ""
        ball = self._ball(made.term)
        return _vague(made.term, ball, self._analysis.range)

    def _ball(self, term: Term) -> Ball:
        with np.errstate(all="ignore"):
            return self._analysis.ball(term)

    # -- the end -----------------------------------------------------------------------

    def program(self) -> DrawnProgram:
        """The program whose results are values that nothing else uses: a few of the
        latest, or all."""
        used = {n for step in self.steps for n in step.reads}
        made = [n for n in reversed(self._names) if n.startswith("t")]
        ends = [n for n in made if n not in used and n not in self.wanted]
        most = one_of(self.pick, (1, 2, 3, len(made)))
        wanted = self.wanted[-max(3, most) :]
        results = [*wanted, *ends[:most]] or [self._names[-1]]
        return DrawnProgram.of(
            self.steps, tuple(dict.fromkeys(results)), self.arguments
        )


def _vague(term: Term, ball: Ball, span: Range) -> str:
    """Why the value of a term says little about a program that computes it."""
    assert not isinstance(term.dtype, Weak)
    pole, span.pole = span.pole, False
    if pole:
        return "at a pole"
    if term.dtype not in PRECISION:
        return "decided by rounding" if ball.error.any() else ""
    limit = LIMIT[term.dtype]
    if not np.all(np.abs(ball.value) <= limit):
        return "out of range"
    if not np.all(ball.error <= 0.25 * np.maximum(1, np.abs(ball.value))):
        return "lost in rounding"
    return ""
