"""The stock rules: the files of the package and the bodies of its composites."""

from __future__ import annotations

import importlib.util
from functools import lru_cache

from eqsat.rulelang.recognition import is_recognised, rules_of_body
from eqsat.rulelang.rule import Rule
from eqsat.rulelang.ruleset import RuleSet, load_rules
from eqsat.support import RuleError
from eqsat.terms import Op


@lru_cache(maxsize=1)
def default_rules() -> RuleSet:
    """The stock rules, and the body of every composite of the catalogue as the rule
    that finds it."""
    folder = importlib.util.find_spec("eqsat.rules")
    if folder is None or not folder.submodule_search_locations:
        raise RuleError("the stock rules (package eqsat.rules) are not installed")
    files = load_rules(*folder.submodule_search_locations)
    if files.broken:
        raise RuleError(files.broken[0].reason)
    catalogue = (
        op
        for op in Op.registry.values()
        if is_recognised(op) and op.reference.__module__.startswith("eqsat.ops.")
    )
    return files + [r for op in catalogue for r in rules_of_body(op)]


def own_rules(rules: RuleSet) -> list[Rule]:
    """Those of ``rules`` that are no stock rules."""
    stock = default_rules() if default_rules.cache_info().currsize else RuleSet()
    if rules is stock:
        return []
    known = {id(r) for r in stock}
    return [r for r in rules if id(r) not in known]
