"""Programs in NumPy that are drawn line by line do what they do by NumPy.

``TESTS_FUZZ=10000 pytest -s -m slow tests/numpy_api/test_drawn_programs.py`` runs so
many programs on each backend, over all cores, and prints each difference, reduced.
``TESTS_FUZZ_SEED`` is the first seed (without it, the day's), ``TESTS_FUZZ_HOW`` names
backends, ``TESTS_FUZZ_PROCESSES`` says how many processes run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import pytest
from drawn_agreement import HOWS, Tally, tally
from sizes import some

SEEDS = range(2000)
SMALL = 60
CHUNK = 25
"""Seeds that a process runs at a time."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("how", ["native", "native exact", "numpy"])
def test_drawn_programs_are_numpys(how: str, part: int) -> None:
    check(tally(some(SEEDS[part::4], SMALL // 4, how, part), how))


def test_drawn_programs_are_numpys_on_mlx() -> None:
    pytest.importorskip("mlx.core")
    check(tally(some(SEEDS[:200], 6), "mlx"))


@pytest.mark.slow
@pytest.mark.skipif("TESTS_FUZZ" not in os.environ, reason="TESTS_FUZZ=number")
def test_many_drawn_programs_are_numpys() -> None:
    first = int(os.environ.get("TESTS_FUZZ_SEED", int(time.time()) // 86400 * 10**6))
    seeds = range(first, first + int(os.environ["TESTS_FUZZ"]))
    hows = os.environ.get("TESTS_FUZZ_HOW", ",".join(HOWS)).split(",")
    totals = dict.fromkeys(hows, Tally())
    for how, found in over_processes(seeds, hows):
        totals[how] = totals[how] + found
        if sum(t.ran for t in totals.values()) % (20 * CHUNK) == 0:
            print("; ".join(f"{h}: {t}" for h, t in totals.items()), flush=True)
        for said in found.different.values():
            print(f"\n{said}", flush=True)
    print(f"\nseeds {seeds.start} to {seeds.stop - 1}")
    for how, total in totals.items():
        print(f"{how}: {total}")
        for reason, count in total.refused.most_common():
            print(f"  {count} refused: {reason}")
    for total in totals.values():
        check(total)


def over_processes(seeds: range, hows: list[str]) -> Iterator[tuple[str, Tally]]:
    """The tallies of parts of the seeds as they end; of one part all hows together."""
    parts = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    count = int(os.environ.get("TESTS_FUZZ_PROCESSES", os.cpu_count() or 1))
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        running = {pool.submit(tally, p, how): how for p in parts for how in hows}
        for future in as_completed(running):
            yield running.pop(future), future.result()


def check(total: Tally) -> None:
    """No program differs, and few are refused."""
    assert not total.different, "\n\n".join(total.different.values())
    assert total.agreed > 0.8 * total.ran
