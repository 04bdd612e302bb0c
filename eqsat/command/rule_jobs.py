"""Rules of files, tested by several processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.checking import Finding
    from eqsat.rulelang import RuleSet

_RULES: list[RuleSet] = []
"""The rules of this process."""


def loaded(files: Sequence[str]) -> RuleSet:
    """The rules of ``files``; what does not load is in ``broken`` and is not warned
    of, because a report names it."""
    from eqsat.rulelang import load_rules
    from eqsat.support import RuleWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuleWarning)
        return load_rules(*files)


def _begin(files: Sequence[str]) -> None:
    _RULES.append(loaded(files))


def _tested(place: int, examples: int, seed: int) -> Finding:
    from eqsat.checking import tested

    return tested(_RULES[-1].rules[place], examples, seed)


@contextmanager
def tested_in_order(
    rules: RuleSet, files: Sequence[str], examples: int, seed: int, jobs: int
) -> Iterator[Iterable[Finding]]:
    """What the tests of ``rules``, those of ``files``, find: in their order, each as
    soon as it and those before it are done. Each process loads the files itself."""
    from eqsat.checking import tested

    if jobs == 1 or len(rules) < 2:
        yield (tested(r, examples, seed) for r in rules)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(rules)), fresh, _begin, (files,)) as pool:
        places = range(len(rules))
        waiting = [pool.submit(_tested, i, examples, seed) for i in places]
        yield (w.result() for w in waiting)
