"""Random programs, optimised in every way and run by every backend, against the
references of their ops. The whole suite draws thousands, other runs a few.

``TESTS_FUZZ_SEED`` draws other programs. A failure shows the seed and the smallest
failing program as code.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat.testing import (
    Computed,
    DrawnProgram,
    agreement,
    fuzz,
    optimised_agreement,
    random_program,
)
from eqsat.trace.trace import trace

SEED = int(os.environ.get("TESTS_FUZZ_SEED", "0"))
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"extract": "exact"},
    {"regions": False},
    {"fusion": False},
    {"numerics": "exact"},
)
"""Options that programs are compiled with in turn."""
EXACT_S = 5
"""Seconds for an optimum, which may take longer than any deadline to find: what was
found by then is compared."""


@functools.cache
def backends() -> list[str]:
    """Names of the backends whose packages are installed."""
    found = []
    for point in entry_points(group="eqsat.backends"):
        try:
            point.load()
        except ImportError:
            continue
        found.append(point.name)
    return found


@dataclass
class Tally:
    """What the programs of one run have shown."""

    programs: int = 0
    undecided: int = 0
    """Programs with an element that the error bounds cannot judge."""
    fired: Counter[str] = field(default_factory=Counter)
    regions: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """Programs by whether they have several regions, and equal ones among them."""

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.undecided} undecided, "
            f"{len(self.fired)} of {len(eq.default_rules())} rules fired"
        )


def optimise(seed: Any, count: int, max_ops: int = 12, layers: bool = False) -> Tally:
    """Optimise and run ``count`` programs. Raises :class:`AssertionError` with the
    smallest that NumPy or a backend does not compute as its references do, or that
    cannot be explained when it is made of ``layers``."""
    tally = Tally()
    for i, way in enumerate(WAYS):
        test = functools.partial(compare, tally, way, explained=layers)
        count_of_way = count // len(WAYS)
        named = f"{seed}.{i}"
        fuzz(test, seed=named, count=count_of_way, max_ops=max_ops, layers=layers)
    print(tally)
    return tally


def compare(
    tally: Tally, way: dict[str, Any], program: DrawnProgram, explained: bool = False
) -> None:
    as_numpy(program)
    is_exact = way.get("extract") == "exact"
    options = eq.Options(deadline_s=EXACT_S if is_exact else 3600, **way)
    undecided = False
    for backend in backends():
        fast = eq.jit(program.function, backend, options=options)
        try:
            with warnings.catch_warnings():
                if is_exact:
                    warnings.simplefilter("ignore", eq.BudgetWarning)
                found = optimised_agreement(program, fast)
        except eq.BackendError as error:  # MLX's, where its device is a GPU
            if "is float64, which MLX has on the CPU only" not in str(error):
                raise
            continue
        call = f"eq.jit(program, {backend!r}, options=eq.Options(**{way}))"
        assert not found.reason, f"{found.reason}\n{call}"
        undecided |= found.undecided > 0
        done = fast.lower(*program.inputs).optimised
        tally.fired.update(+Counter(done.fired))
        if explained:
            explain(fast.explain(*program.inputs))
    tally.programs += 1
    tally.undecided += undecided
    tally.regions[done.regions > 1, done.distinct_regions < done.regions] += 1


def explain(said: eq.Explanation) -> None:
    """The explanation and that of every third kernel can be printed."""
    assert str(said) and said.to_json()
    for kernel in said.kernels[::3]:
        assert str(said.why(kernel.name))


def as_numpy(program: DrawnProgram) -> None:
    """The function is what NumPy computes, but for dtypes of 16 bits: NumPy adds
    float16 up in float16, and widens bfloat16 when it meets a Python number."""
    if "float16" in str(program):
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        plain = program.function(*program.inputs)
    terms = trace(program.function, program.inputs).outputs
    found = agreement(
        Computed(plain, terms, program.variables),
        Computed(program(*program.inputs), terms, program.variables),
    )
    assert not found.reason, f"as NumPy: {found.reason}"


def test_twenty_programs_and_a_long_one() -> None:
    count = 20 if is_whole() else 10
    tally = optimise(SEED, count)
    assert tally.programs == count
    assert tally.undecided < tally.programs / 4
    assert len(tally.fired) > (0.05 if is_whole() else 0.02) * len(eq.default_rules())
    long = random_program(f"{SEED}.long", max_ops=40, layers=True)
    compare(tally, {}, long, explained=True)


@pytest.mark.slow
def test_two_hundred_programs() -> None:
    tally = optimise(SEED, 200)
    assert tally.programs == 200
    assert tally.undecided < tally.programs / 10
    assert len(tally.fired) > 0.3 * len(eq.default_rules())


@pytest.mark.slow
def test_ten_long_programs() -> None:
    tally = optimise(SEED, 10, 40, layers=True)
    assert tally.programs == 10
    assert sum(n for (several, _), n in tally.regions.items() if several) >= 3


@pytest.mark.slow
def test_three_hundred_long_programs() -> None:
    tally = optimise(SEED + 1, 300, 64, layers=True)
    assert tally.programs == 300
    assert sum(n for (several, _), n in tally.regions.items() if several) >= 100
    assert tally.regions[True, True] >= 5


@pytest.mark.slow
def test_two_thousand_programs() -> None:
    """Ten runs of a seed each, every other one with longer programs."""
    tallies = [optimise(SEED + i, 200, (12, 40)[i % 2]) for i in range(1, 11)]
    fired = set().union(*(t.fired for t in tallies))
    assert sum(t.programs for t in tallies) == 2000
    assert sum(t.undecided for t in tallies) < 200
    assert len(fired) > 0.6 * len(eq.default_rules())


# Wrong rules are refused by the check every time; this is about the smallest program.
@pytest.mark.slow
def test_a_wrong_rule_is_found_and_its_program_is_small() -> None:
    @eq.rule("...")
    def nothing_of_tanh(x):  # type: ignore[no-untyped-def]
        """tanh x is not x."""
        return np.tanh(x), x

    rules = [*eq.default_rules(), nothing_of_tanh]

    def test(program: DrawnProgram) -> None:
        found = optimised_agreement(program, eq.jit(program.function, rules=rules))
        assert not found.reason, found.reason

    with pytest.raises(AssertionError) as caught:
        fuzz(test, seed=SEED)
    said, code = str(caught.value).split("\n\n", 1)
    assert said.startswith(f'program of seed "{SEED}.') and "rounding explains" in said
    assert len(re.findall(r"^    t\d+ = ", code, re.MULTILINE)) == 1, code
    seen: dict[str, Any] = {}
    exec(code, seen)
    x = [seen[n] for n in seen if re.fullmatch(r"[xct]\d+", n)]
    exact, wrong = seen["program"](*x), eq.jit(seen["program"], rules=rules)(*x)
    assert any(not np.array_equal(a, b) for a, b in zip(exact, wrong, strict=True))


def test_a_seed_is_one_program() -> None:
    one, again, other = (str(random_program(s)) for s in ("0.7", "0.7", "0.8"))
    assert one == again != other
