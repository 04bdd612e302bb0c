"""A search that goes on without the rules that break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

from eqsat.rulelang import Rule, RuleSet, failure, own_rules, warn_of
from eqsat.support import EqsatError, RuleFailure

T = TypeVar("T")
_NAMED: WeakSet[Rule] = WeakSet()
"""Rules that a warning has named."""


def isolated(
    search: Callable[[RuleSet], T], rules: RuleSet
) -> tuple[T, tuple[Rule, ...]]:
    """``search(rules)``, and the rules that it was done without: where it fails by the
    fault of rules that are no stock rules, they are left out, and a
    :class:`RuleWarning` names each once.

    Raises what ``search`` raises with the stock rules among ``rules`` alone.
    """
    working = 0
    left_out: list[Rule] = []
    while True:
        try:
            return search(rules), tuple(left_out)
        except _PASSED_ON:
            raise
        except BaseException as error:  # panics of the engine derive from it
            found = _culprit(search, rules, error, working)
            if found is None:
                raise
            broken, failed, working = found
            _name(broken, failed)
            left_out.append(broken)
            rules = RuleSet(tuple(r for r in rules if r.name != broken.name))


_PASSED_ON = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


def _culprit(
    search: Callable[[RuleSet], object],
    rules: RuleSet,
    error: BaseException,
    working: int,
) -> tuple[Rule, BaseException, int] | None:
    """A rule without which the search goes further, how it fails with it, and with how
    many rules of the user's before it the search was seen to work, as it was with
    ``working`` of them. None where no rule of a user's is at fault."""
    own = own_rules(rules)
    if isinstance(error, RuleFailure) and rules[error.rule] in own:
        return rules[error.rule], error, 0
    failures = {len(own): error}

    def fails(count: int) -> bool:
        """Whether the search fails with the first ``count`` rules of the user."""
        left_out = set(own[count:])
        try:
            search(RuleSet(tuple(r for r in rules if r not in left_out)))
        except _PASSED_ON:
            raise
        except BaseException as raised:
            failures[count] = raised
        return count in failures

    works, broken = working if working < len(own) else 0, len(own)
    if not own or (not works and fails(0)):
        return None
    while broken - works > 1:
        middle = (works + broken) // 2
        works, broken = (works, middle) if fails(middle) else (middle, broken)
    return own[broken - 1], failures[broken], works


def _name(rule: Rule, error: BaseException) -> None:
    if rule in _NAMED:
        return
    _NAMED.add(rule)
    said = str(error).split("\n")[0] if isinstance(error, EqsatError) else ""
    at = f"{rule.place}: rule {rule.name!r}"
    why = said if said.startswith(at) else f"{at}: {said or failure(error)}"
    warn_of(rule.file, rule.line, why)
