"""Programs that were found before: a new process need not search again.

A program is kept under its traced terms, the rules, the cost model and the options.
Constant arrays count by their types and by the facts that rules ask of their values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from eqsat.kernels import CostModel, calibrate
from eqsat.rulelang import OF_MASKS, Rule, RuleSet, default_rules
from eqsat.search import facts_of, is_constant
from eqsat.serialise import (
    NotPortableError,
    canonical,
    check_lowerings,
    decode_terms,
    encode_terms,
)
from eqsat.support import Options, disk_cache, version
from eqsat.terms import CONSTANT, Term, postorder

_OTHER: dict[str, Any] = {
    **{"threads": 0, "backend": None, "backends": {}, "cache": True},
    **{"log": frozenset(), "progress": True, "lazy_limit": 1},
    **{"stats": False, "adaptive": False, "trace": None, "memory_limit": 0},
}
"""Options that do not change which program is found."""


@dataclass(frozen=True)
class ProgramKey:
    """Where the program for traced terms is kept."""

    name: str
    written: Sequence[Term]
    arrays: Sequence[int]
    """``id`` of the constant arrays, in the order in which the terms name them."""
    tuned: str
    """Where a faster program is kept, which was found by measuring on this device."""
    tried: str
    """Where it is kept what was tried."""

    def recall(self, inputs: Sequence[Term]) -> list[Term] | None:
        """The roots of the program, as terms of the graph of ``inputs``, by measurement
        if there is such a one; None when there is none."""
        found = self._recall(self.tuned, inputs)
        return self._recall(self.name, inputs) if found is None else found

    def _recall(self, name: str, inputs: Sequence[Term]) -> list[Term] | None:
        data = disk_cache.get(name, asked=True)
        if data is None:
            return None
        try:
            graph = self.written[0].graph
            roots = decode_terms(data, graph, self.arrays, inputs)
            if [r.type for r in roots] == [r.type for r in self.written]:
                return roots
        except NotPortableError:
            pass
        disk_cache.drop(name, asked=True)
        return None

    def tuning(self) -> bytes | None:
        """What was tried, as :meth:`keep_tuned` was given it."""
        return disk_cache.get(self.tried, asked=True)

    def keep_tuned(self, roots: Sequence[Term] | None, tried: bytes) -> None:
        """Keep a faster program, if there is one, and what was tried."""
        numbers = {a: i for i, a in enumerate(self.arrays)}
        try:
            if roots is not None:
                disk_cache.put(self.tuned, encode_terms(roots, numbers), asked=True)
            disk_cache.put(self.tried, tried, asked=True)
        except NotPortableError:
            pass

    def keep(self, roots: Sequence[Term]) -> None:
        """Keep the roots of the program that was found."""
        numbers = {a: i for i, a in enumerate(self.arrays)}
        try:
            disk_cache.put(self.name, encode_terms(roots, numbers), asked=True)
        except NotPortableError:
            pass


def place_of(
    roots: Sequence[Term], rules: RuleSet | None, options: Options, model: CostModel
) -> ProgramKey | None:
    """Where the program for ``roots`` is kept; None where it is not: where ``options``
    turn the cache off, and with ops or lowerings that do not come with eqsat.
    ``rules``: None for the stock rules."""
    if not roots or not options.cache:
        return None
    try:
        check_lowerings()
        arrays = _arrays(roots)
        numbers = {a: i for i, a in enumerate(arrays)}
        parts = (
            encode_terms(roots, numbers),
            canonical(list(_facts(roots, OF_MASKS if rules is None else rules.asked))),
            _rules_key(rules),
            version(),
            canonical(replace(options, **_OTHER)),
            canonical(model),
        )
        name = disk_cache.key("program", *parts)
        here = calibrate.machine()
        more = (disk_cache.key(kind, *parts, here) for kind in ("tuned", "tried"))
    except NotPortableError:
        return None
    return ProgramKey(name, tuple(roots), arrays, *more)


def _arrays(roots: Sequence[Term]) -> list[int]:
    return [cast(int, t.attrs[0]) for t in postorder(roots) if t.op is CONSTANT]


def _facts(roots: Sequence[Term], asked: Collection[str]) -> Iterator[tuple[str, ...]]:
    """What is known of the values of constants that others read."""
    constant = is_constant(roots)
    read = (a for t in postorder(roots) if not constant[t] for a in t.args)
    for a in dict.fromkeys(read):
        if constant[a]:
            yield facts_of(a, asked)


def _rules_key(rules: RuleSet | None) -> bytes:
    if rules is None:
        return b"stock"
    known = default_rules() if default_rules.cache_info().currsize else RuleSet()
    return b"stock" if rules is known else _key_of(rules, known)


@lru_cache(maxsize=32)
def _key_of(rules: RuleSet, known: RuleSet) -> bytes:
    """Rules by what they say; stock rules by name."""
    stock = set(known)
    return canonical([r.name if r in stock else _content(r) for r in rules])


def _content(rule: Rule) -> tuple[Any, ...]:
    return (
        *(rule.name, rule.phase, rule.numerics, rule.dtypes, rule.both_ways),
        *(rule.params, rule.numbers, rule.masks, rule.hint, rule.signature.text),
        *(rule.left, rule.right, rule.facts),
    )
