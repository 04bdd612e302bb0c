"""How much the tests draw: little in every run, all of it in the whole suite."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

FULL, SMALL = 100, 4
"""Examples of a property that names no number, in the whole suite and otherwise."""

# A slow or loaded machine is no fault of the code under test: neither a deadline nor a
# slow generator fails a test.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **PATIENT, max_examples=SMALL, database=None)
settings.register_profile(
    "ci", **PATIENT, max_examples=SMALL, database=None, print_blob=True
)
settings.register_profile("slow", **PATIENT, max_examples=FULL)

seeds = st.integers(0, 2**32 - 1)
"""Of generators of random numbers."""


def load_profile(name: str | None, expression: str) -> None:
    """Load ``name``, or else the profile of what ``-m expression`` runs."""
    runs_slow = "slow" in expression.replace("not slow", "")
    settings.load_profile(name or ("slow" if runs_slow else "dev"))


def is_whole() -> bool:
    """Whether everything is drawn that the tests have."""
    return settings.default.max_examples >= FULL


def examples(count: int) -> Any:
    """A property draws ``count`` examples in the whole suite, and a tenth of them, the
    simplest and at least one other, otherwise."""
    small = max(2, count * SMALL // FULL)
    return settings(max_examples=count if is_whole() else min(count, small))


_test = ""
"""The test that runs."""


def some(values: Sequence[Any], count: int, *of: Any) -> list[Any]:
    """All values in the whole suite; otherwise ``count`` of them, others in each case
    of a test and, within it, for other things ``of``."""
    if is_whole() or len(values) <= count:
        return list(values)
    chosen = Random(f"{_test} {of}").sample(range(len(values)), count)
    return [values[i] for i in sorted(chosen)]


def draw_alike(item: pytest.Item) -> None:
    """Outside of the whole suite a test draws the same whenever it runs, and each case
    of its parameters something else: what was compiled for it is found again."""
    global _test
    _test = item.nodeid
    test = getattr(item, "obj", None)
    if hasattr(test, "hypothesis") and not is_whole():
        seed(zlib.crc32(item.nodeid.encode()))(test)


LONG = Path(__file__).resolve().parents[1] / "slow.txt"
"""Tests, and cases of them, that take long: of each file, and of each list of cases,
some others run every time."""


def leave_long(items: Iterable[pytest.Item]) -> None:
    """What :data:`LONG` names is slow."""
    names = set(LONG.read_text(encoding="utf-8").splitlines())
    for item in items:
        if not names.isdisjoint((item.nodeid, item.nodeid.partition("[")[0])):
            item.add_marker("slow")


def thin(items: Iterable[pytest.Item]) -> None:
    """Of a test over the product of several parameters so many cases run every time
    that each value of each parameter occurs, but one in ``share`` of all at most where
    it is marked ``sampled(share)``; of one that is so marked and has one list of cases,
    one in ``share``. Which ones is chosen at random, but always alike; the other cases
    are slow. ``sampled(1)``: all run every time."""
    tests: dict[str, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("sampled")
        share = marker.args[0] if marker else 0
        if share == 1:
            continue
        values = [_values(case) for case in cases]
        if sum(len(set(axis)) > 1 for axis in zip(*values, strict=True)) > 1:
            chosen = covering(values)
            if share:
                chosen = chosen[: max(1, len(cases) // share)]
        else:
            chosen = one_in(len(cases), share or 1)
        for place, case in enumerate(cases):
            if place not in chosen:
                case.add_marker("slow")


def _values(case: Any) -> list[tuple[int, ...]]:
    """Of each list of parameters the values that ``case`` has, by identity: equal ones
    may stand for different things."""
    params = dict(case.callspec.params)
    lists = []
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.split(",") if isinstance(names, str) else names
        lists.append([name.strip() for name in names])
    of_marks = {name for names in lists for name in names}
    lists += [[name] for name in params if name not in of_marks]  # of fixtures
    return [tuple(id(params[name]) for name in names) for names in lists]


def one_in(share_of: int, share: int) -> list[int]:
    """One place in ``share``, at least one, of so many."""
    order = list(range(share_of))
    Random(share_of).shuffle(order)
    return order[: max(1, share_of // share)]


def covering(cases: Sequence[Sequence[Any]]) -> list[int]:
    """Places of few cases in which each value of each parameter occurs: always the one
    that adds most next."""
    left = list(range(len(cases)))
    Random(len(cases)).shuffle(left)
    chosen: list[int] = []
    seen: list[set[Any]] = [set() for _ in cases[0]]

    def added(place: int) -> int:
        return sum(v not in s for v, s in zip(cases[place], seen, strict=True))

    while (best := max(left, key=added, default=None)) is not None and added(best):
        chosen.append(best)
        left.remove(best)
        for value, known in zip(cases[best], seen, strict=True):
            known.add(value)
    return chosen
