"""Property tests of rules: draw arguments, compare both sides, shrink what fails.

    report = eq.check(eq.load_rules("my_rules.py"))
    print(report)
    assert report.ok

A rule is refused when a drawn case shows that its sides differ in shape, in dtype, in
where they are defined, or by more than its numerics class allows
(:mod:`eqsat.verdict`). Draws are the same from run to run. Needs Hypothesis.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from eqsat.errors import EqsatError, RuleError
from eqsat.findings import Finding, Report
from eqsat.rule import Rule

if TYPE_CHECKING:
    from eqsat.drawing import Case
    from eqsat.verdict import Outcome

EXAMPLES = 100
"""Cases that are drawn for each rule by default."""
INFERRED = ("exact", "reassociate")
"""Classes that are tried, strictest first, for a rule that declares none."""


@dataclass
class _State:
    """What the cases of one rule have shown so far."""

    examples: int = 0
    worst: float = 0.0
    failed: tuple[Case, Outcome] | None = None


def check(
    rules: Rule | Iterable[Rule],
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    progress: Callable[[Finding], None] | None = None,
) -> Report:
    """Test every rule on ``examples`` drawn cases, in both directions where it has two.

    ``seed`` chooses the cases; ``progress`` is called after each rule. Raises
    :class:`EqsatError` when Hypothesis is not installed.

    >>> import eqsat as eq
    >>> print(eq.check(eq.default_rules()["times_one"])["times_one"].verdict)
    tested
    """
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise EqsatError(
            "checking rules needs hypothesis: pip install hypothesis"
        ) from (error)
    found = []
    for r in [rules] if isinstance(rules, Rule) else rules:
        finding = _check_one(r, examples, seed)
        found.append(finding)
        if progress is not None:
            progress(finding)
    return Report(tuple(found))


def _check_one(rule: Rule, examples: int, seed: int) -> Finding:
    from eqsat.verdict import tolerance

    try:
        tolerance(rule.numerics)
    except RuleError as error:
        return _finding(rule, rule.numerics, _State(), str(error))
    classes = INFERRED if rule.infers else (rule.numerics,)
    for numerics in classes:
        state = _State()
        for direction in rule.directions:
            if state.failed is None:
                _run(direction, numerics, examples, seed, state)
        if state.failed is None:
            break
    if state.failed is not None:
        return _counterexample(rule, numerics, state)
    if not state.examples:
        return _finding(rule, numerics, state, "no drawn arguments reach its left side")
    return _finding(rule, numerics, state)


def _finding(rule: Rule, numerics: str, s: _State, reason: str = "") -> Finding:
    verdict = "refused" if reason else "tested"
    return Finding(
        rule.name,
        rule.file,
        rule.line,
        numerics,
        verdict,
        s.examples,
        s.worst,
        reason,
        column=rule.column,
    )


def _run(rule: Rule, numerics: str, examples: int, seed: int, state: _State) -> None:
    """Draw cases until one fails."""
    import hypothesis
    from hypothesis.errors import Unsatisfiable

    from eqsat.drawing import cases, inside_domain
    from eqsat.verdict import judge

    class Stop(Exception):
        pass

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )
    @hypothesis.given(cases(rule, itertools.count().__next__))
    def test(drawn: Case) -> None:
        if state.failed is not None:
            raise Stop
        case = inside_domain(drawn)
        hypothesis.assume(case is not None)
        assert case is not None
        outcome = judge(case, numerics)
        hypothesis.assume(outcome.reached)
        state.examples += 1
        state.worst = max(state.worst, outcome.ulps)
        if outcome.reason:
            state.failed = case, outcome
            raise Stop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            test()
        except (Stop, Unsatisfiable):
            return


def _counterexample(rule: Rule, numerics: str, state: _State) -> Finding:
    """The finding of a rule that failed, with its smallest case."""
    from eqsat.shrink import as_code, shrink
    from eqsat.verdict import judge

    assert state.failed is not None
    case = shrink(state.failed[0], lambda c: bool(judge(c, numerics).reason))
    outcome = judge(case, numerics)
    code = as_code(case, outcome.reason, outcome.left, outcome.right)
    found = asdict(_finding(rule, numerics, state, outcome.reason))
    return Finding(**{**found, "counterexample": code})


__all__ = ["Finding", "Report", "check"]
