"""How much the tests draw: little in every run, all of it in the whole suite."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

FULL, SMALL = 100, 20
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
    """A property draws ``count`` examples in the whole suite, and a fifth of them, the
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


def thin(items: Iterable[pytest.Item]) -> None:
    """Of a test that is marked ``sampled(share)`` one case in ``share`` runs every
    time, chosen at random but always alike, and so many more that each value of several
    parameters occurs; the other cases are slow."""
    tests: dict[Any, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            tests.setdefault(item.obj, []).append(item)  # type: ignore[attr-defined]
    for cases in tests.values():
        (share,) = cases[0].get_closest_marker("sampled").args
        for case in set(cases).difference(sample(cases, share)):
            case.add_marker("slow")


def sample(cases: Sequence[Any], share: int) -> list[Any]:
    """One in ``share`` and those that cover the values of the parameters."""
    order = list(cases)
    Random(len(order)).shuffle(order)
    count = max(1, len(order) // share)
    chosen, others = order[:count], order[count:]
    values = {case: set(case.callspec.indices.items()) for case in order}
    places = zip(*(sorted(v) for v in values.values()), strict=True)
    if len({tuple(i for _, i in axis) for axis in places}) == 1:
        return chosen  # of one list each case is a value of its own
    seen = set().union(*(values[case] for case in chosen))
    for case in others:
        if values[case] - seen:
            chosen.append(case)
            seen |= values[case]
    return chosen
