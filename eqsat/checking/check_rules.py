"""The check of rules: property tests, algebraic proof, and lints.

    report = eq.check(eq.load_rules("my_rules.py"))
    print(report)
    assert report.ok

A rule is refused when a drawn case shows that its sides differ in shape, in dtype, in
where they are defined, or by more than its numerics class allows
(:mod:`eqsat.checking.verdict`), and when the engine never matches it. A rule that
passes is proved where its sides are one function of real numbers, or the same bits
(:mod:`eqsat.checking.proofs`), else tested. Lints (:mod:`eqsat.checking.lint`) warn of
rules that are not worth their while. Draws are the same from run to run.

The ops that the same files define are run on every backend that is here
(:mod:`eqsat.checking.op_checks`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eqsat.checking.report import Finding, Lint, Report
from eqsat.rulelang import BrokenRule, Rule, RuleSet, failure, tolerance

if TYPE_CHECKING:
    from eqsat.checking.draws import Case
    from eqsat.checking.lint import Linter
    from eqsat.checking.verdict import Outcome

EXAMPLES = 100
"""Cases that are drawn for each rule by default."""
INFERRED = ("exact", "reassociate")
"""Classes that are tried, strictest first, for a rule that declares none."""


INCOMPARABLE = (
    "both sides are finite for no drawn numbers: one is infinite or NaN where the "
    "other is not, beyond the working range or where rounding decides"
)


UNBOUNDED = (
    "rounding may move its results anywhere, for all drawn numbers: nothing was "
    "compared"
)
EMPTY = "only arrays without elements reach its left side"


@dataclass
class _State:
    """What the cases of one rule have shown so far."""

    examples: int = 0
    finite: tuple[bool, bool] = False, False
    """Whether results of plain numbers were finite on one side, and on both at once."""
    compared: bool = False
    """Whether results were compared, and not only looked at."""
    filled: bool = False
    """Whether some case had elements in each array."""
    worst: float = 0.0
    failed: tuple[Case, Outcome] | None = None
    reached: set[str] = field(default_factory=set)
    unreached: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    cases: list[Case] = field(default_factory=list)
    """Cases for a proof: small ones that together are in every class reached."""


def check(
    rules: Rule | Iterable[Rule],
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    lints: bool = True,
    progress: Callable[[Finding], None] | None = None,
) -> Report:
    """Test every rule on ``examples`` drawn cases, in both directions where it has two,
    prove it where that is possible, and look for lints among these rules and the stock
    rules.

    ``seed`` chooses the cases; ``progress`` is called after the test of each rule,
    again after its lints, and after the test of each op.

    >>> import eqsat as eq
    >>> print(eq.check(eq.default_rules()["times_one"])["times_one"].verdict)
    proved
    """
    given = RuleSet((rules,)) if isinstance(rules, Rule) else rules
    given = given if isinstance(given, RuleSet) else RuleSet(tuple(given))
    found = (tested(r, examples, seed) for r in given)
    return report_of(given, found, seed=seed, lints=lints, progress=progress)


def report_of(
    rules: RuleSet,
    found: Iterable[Finding],
    *,
    seed: int,
    lints: bool,
    progress: Callable[[Finding], None] | None,
) -> Report:
    """The report of ``rules`` whose tests ``found`` this, in their order: with lints,
    the rules that cannot be built, and the ops of the same files."""
    tell = progress or (lambda finding: None)
    seen = []
    for f in found:
        seen.append(f)
        tell(f)
    if lints:
        seen = _linted(list(rules), seen, seed, tell)
    from eqsat.checking.op_checks import check_op

    of_ops = []
    for op in rules.ops:
        found_of_op = check_op(op, seed)
        if found_of_op is not None:
            of_ops.append(found_of_op)
            tell(found_of_op)
    return Report((*seen, *_broken(rules.broken), *of_ops))


def tested(rule: Rule, examples: int, seed: int) -> Finding:
    """What the tests and the proof of one rule find."""
    return _survived(rule, _check_one, rule, examples, seed)


def _survived(rule: Rule, task: Callable[..., Finding], *args: Any) -> Finding:
    """What ``task`` finds of a rule. Where it fails itself the rule is refused, so that
    the others are checked."""
    try:
        return task(*args)
    except Exception as error:
        reason = f"the check itself failed: {failure(error)}"
        return _finding(rule, rule.numerics, _State(), reason)


def _broken(rules: Iterable[BrokenRule]) -> list[Finding]:
    """The findings of rules that cannot be built."""
    return [
        Finding(b.name, b.file, b.line, "", "refused", 0, 0.0, b.fault, column=b.column)
        for b in rules
    ]


def _linted(
    rules: Sequence[Rule],
    found: Sequence[Finding],
    seed: int,
    tell: Callable[[Finding], None],
) -> list[Finding]:
    """The findings with their lints. What the tests refuse is left out of them."""
    from eqsat.checking.lint import Linter
    from eqsat.rulelang import default_rules

    sound = [r for r, f in zip(rules, found, strict=True) if f.verdict != "refused"]
    linter = Linter(sound, default_rules(), seed)
    growing: dict[str, Lint] = {}
    made = []
    for r, f in zip(rules, found, strict=True):
        if f.verdict != "refused":
            f = _survived(r, _lints_of, linter, r, f, growing)
        made.append(f)
        tell(f)
    more = {f.rule: (*f.lints, growing[f.rule]) for f in made if f.rule in growing}
    return [replace(f, lints=more.get(f.rule, f.lints)) for f in made]


def _lints_of(
    linter: Linter, rule: Rule, found: Finding, growing: dict[str, Lint]
) -> Finding:
    """The finding of a rule with its lints; those of growth go into ``growing``."""
    why = linter.dead(rule)
    kinds = [Lint("dead", why)] if why else linter.warnings(rule)
    found = replace(found, lints=tuple(kinds))
    grown = linter.growing(rule)
    growing |= {grown[0].name: grown[1]} if grown else {}
    return _never(found, why) if why else found


def _never(found: Finding, why: str) -> Finding:
    """The finding of a rule that the engine never matches."""
    return replace(
        found, verdict="refused", reason=why, error_probability=None, proved_for=()
    )


def _check_one(rule: Rule, examples: int, seed: int) -> Finding:
    classes = INFERRED if rule.infers else (rule.numerics,)
    for numerics in classes:
        state = _drawn(rule, numerics, examples, seed)
        if state.failed is None:
            break
    if state.failed is not None:
        return _counterexample(rule, numerics, state)
    if why := _says_nothing(state):
        return _finding(rule, numerics, state, why)
    return _proved(rule, _finding(rule, numerics, state), state.cases, seed)


def _says_nothing(state: _State) -> str:
    """Why cases without a fault say nothing for a rule; empty where they do."""
    if not state.examples:
        return "no drawn arguments reach its left side"
    if state.finite == (True, False):
        return INCOMPARABLE
    if not state.filled:
        return EMPTY
    return "" if state.compared else UNBOUNDED


def _proved(rule: Rule, found: Finding, cases: list[Case], seed: int) -> Finding:
    """The finding of a rule that passes its tests, with its proof if there is one."""
    from eqsat.checking.proofs import prove

    if found.unreached:
        return found
    one_way = [c for c in cases if c.rule.backwards == rule.backwards]
    proof = prove(replace(rule, numerics=found.numerics), one_way, seed)
    if proof is None:
        return found
    return replace(
        found,
        verdict="proved",
        error_probability=proof.error,
        proved_for=proof.shapes,
    )


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
        reached=tuple(sorted(s.reached)),
        unreached=() if reason else tuple(sorted(s.unreached)),
        outside=() if reason else tuple(sorted(s.outside - s.reached)),
    )


def _drawn(rule: Rule, numerics: str, examples: int, seed: int) -> _State:
    """What cases of both directions of a rule show, up to the first that fails."""
    state = _State()
    for direction in rule.directions:
        if state.failed is None:
            _run(direction, numerics, examples, seed, state)
    return state


def _run(rule: Rule, numerics: str, examples: int, seed: int, state: _State) -> None:
    """Draw cases until one fails, then look at those whose sizes decide the rule."""
    from eqsat.checking.draws import explore, worst_points
    from eqsat.checking.proofs import deciding
    from eqsat.checking.verdict import judge

    def look(case: Case) -> bool:
        outcome = judge(case, numerics)
        if not outcome.reached:
            return False
        state.examples += 1
        state.worst = max(state.worst, outcome.ulps)
        state.compared = state.compared or outcome.compared
        state.filled = state.filled or all(a.size for a in case.arrays.values())
        if case.finite and not state.finite[1]:
            one, both = outcome.finite
            state.finite = state.finite[0] or one, both
        if outcome.reason:
            state.failed = case, outcome
            raise StopIteration
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = explore(rule, examples, seed, look)
        own = rule.numerics == numerics
        judged = rule if own else replace(rule, numerics=numerics)
        decision = deciding(judged, found.spanning)
        if state.failed is None:
            with suppress(StopIteration):
                for case in decision.cases:
                    look(case)
                for case in worst_points(rule, seed) if tolerance(numerics) else ():
                    look(case)
    state.cases += found.spanning
    state.reached |= found.reached
    state.unreached |= found.wanted
    state.outside |= set(found.outside)


def refutation(rule: Rule, examples: int, seed: int) -> tuple[str, list[Case]]:
    """Why ``rule`` is wrong, from drawn cases alone; empty where none shows it. Also
    the cases that a proof should cover."""
    state = _drawn(rule, rule.numerics, examples, seed)
    if state.failed is not None:
        return state.failed[1].reason, []
    return _says_nothing(state), state.cases


def _counterexample(rule: Rule, numerics: str, state: _State) -> Finding:
    """The finding of a rule that failed, with its smallest case."""
    from eqsat.checking.shrink import as_code, shrink
    from eqsat.checking.verdict import ONLY_FINITE, judge

    assert state.failed is not None
    case = shrink(state.failed[0], lambda c: bool(judge(c, numerics).reason))
    outcome = judge(case, numerics)
    code = as_code(case, outcome.reason, outcome.left, outcome.right)
    reason = outcome.reason
    if numerics != "exact" and not case.finite:
        reason = f"{reason}; {ONLY_FINITE}"
    return replace(_finding(rule, numerics, state, reason), counterexample=code)


__all__ = ["Finding", "Lint", "Report", "check"]
