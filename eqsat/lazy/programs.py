"""The programs of recorded graphs: found by their recipes, compiled once.

A graph of lazy arrays is walked once: what was recorded, over which leaves. The same
walk as before finds its program at once. Any other graph becomes terms, and their
outline finds or makes the program.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

from eqsat.jit import Jit, jit
from eqsat.lazy.graph import Outline, parts, recorded
from eqsat.lazy.setting import Setting
from eqsat.measure import FunctionCounts
from eqsat.ops import spectral
from eqsat.support import TABLE, ForkLock, RecompileWarning, SourceLine, current, warn

_MOST = 1024
"""Programs that are kept, those used last."""
_LARGEST = 840
"""Operations of a graph whose walk is remembered. As the default of
``Options.lazy_limit`` it is also the largest program: larger ones take seconds to
compile, and a part of this size holds a whole number of rounds of a loop of 2 to 8, 10
or 12 operations, so that a long loop is a few programs."""
_MANY_NUMBERS = 8
"""Programs that differ in Python numbers alone before a warning."""

_KEPT = frozenset({spectral.decompose, spectral.pinv})
"""Ops of matrices whose values are kept when something of them is asked for: what is
recorded next asks for them again, as after the rank of a matrix."""

LOCK = ForkLock()
"""Held while graphs are looked at or settled, never while programs compile or run."""
_programs: OrderedDict[Hashable, Jit] = OrderedDict()
_found: OrderedDict[Hashable, tuple[Jit, tuple[int, ...]]] = OrderedDict()
"""Programs by the walk of a graph, and which of its leaves each argument is."""
_counts: WeakValueDictionary[SourceLine | None, FunctionCounts] = WeakValueDictionary()
"""What is counted, by the line that recorded what was asked for."""
_spelled: Counter[Hashable] = Counter()
"""Programs made of each outline, Python numbers aside."""


def value_of(array: Any) -> Any:
    """The value of a lazy array, if it is known."""
    if array.value is None and array.made is not None:
        array.value = array.made.value
    return array.value


class _Walk:
    """The graph below some lazy arrays, each of which is met once."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self.leaves: list[Any] = []
        """Lazy arrays whose values are known."""
        self.key: Hashable = None
        """Equal for graphs that one program computes; None where a part of the graph
        has no recipe, and for large graphs."""
        leaves, key = self.leaves, []
        places: dict[Any, int] = {}
        queue: list[Any] = []
        for root in roots:
            me = root.made or root  # what two lazy arrays of one term share
            key.append(places.setdefault(me, len(queue)))
            if len(places) > len(queue):
                queue.append(root)
        rows = 0
        for array in queue:
            if array.value is not None or value_of(array) is not None:
                leaves.append(array)
                key.append(array.kind)
                continue
            recipe = array.recipe
            if recipe is None:
                return
            key.append(recipe)
            rows += recipe.size
            for given in array.given:
                if given.was_written:
                    given = given.first
                me = given.made or given
                place = places.get(me)
                if place is None:
                    place = places[me] = len(queue)
                    queue.append(given)
                key.append(place)
        if rows <= _LARGEST:
            self.key = *key, current()


def evaluate_all(arrays: Sequence[Any]) -> None:
    """Compute the values of lazy arrays, where they are not known: those of one setting
    together."""
    groups: dict[Setting | None, list[Any]] = {}
    with LOCK():
        for a in arrays:
            groups.setdefault(a.kind.setting, []).append(a.now if a.was_written else a)
    for group in groups.values():
        _evaluate(group)


def _evaluate(arrays: Sequence[Any]) -> None:
    with LOCK():
        roots = [a for a in arrays if value_of(a) is None]
        if not roots:
            return
        walk = _Walk(roots)
        found = None if walk.key is None else _found.get(walk.key)
        if found is not None:
            _found.move_to_end(walk.key)
            program, order = found
            leaves = [walk.leaves[i].value for i in order]
    if found is None:
        _evaluate_terms(roots, walk)
        return
    results = program(*leaves)
    with LOCK():
        for root, result in zip(roots, results, strict=True):
            settle(root, result)


def settle(array: Any, value: Any) -> None:
    """Note the value of a lazy array, which lets go of what it was made of."""
    if value_of(array) is None:  # else another thread was faster
        array.value = value
        if array.made is not None:
            array.made.settle(value)
    array.given, array.recipe = (), None


def _evaluate_terms(roots: Sequence[Any], walk: _Walk) -> None:
    """Compute by terms, and remember the program of the walk."""
    setting = roots[0].kind.setting
    with LOCK():
        terms = [r.term for r in roots]
        kept = [t for t in recorded(terms) if t.op in _KEPT and t.value is None]
        waiting = parts([*terms, *kept], _limit(setting))
    once = len(waiting) == 1 and not kept
    while waiting:
        wanted = waiting.pop()
        with LOCK():
            outline = Outline(wanted)
            program = program_of(outline, setting)
            if once and walk.key is not None:
                _remember(walk, outline, program, [wanted.index(t) for t in terms])
        results = program(*outline.leaves)
        with LOCK():
            for term, result in zip(wanted, results, strict=True):
                if term.value is None:
                    term.settle(result)
    with LOCK():
        for root, term in zip(roots, terms, strict=True):
            settle(root, term.value)


def _limit(setting: Setting | None) -> int:
    """Operations of one program, as the options in force say."""
    for context in (None if setting is None else setting.options, current()):
        if context is not None and "lazy_limit" in context.given:
            return int(context.given["lazy_limit"])
    return int(TABLE["lazy_limit"].from_environment())


def _remember(
    walk: _Walk, outline: Outline, program: Jit, results: Sequence[int]
) -> None:
    """Keep the program of a walk, if its results are those of the walk in order."""
    places = {id(leaf.made): i for i, leaf in enumerate(walk.leaves)}
    order = [places.get(id(t)) for t in outline.leaf_terms]
    if None in order or results != [*range(len(results))]:
        return
    while len(_found) >= _MOST:
        _found.popitem(last=False)
    _found[walk.key] = program, cast(tuple[int, ...], tuple(order))


def program_of(outline: Outline, setting: Setting | None) -> Jit:
    """The compiled program for ``outline``."""
    key = outline.key, setting
    found = _programs.get(key)
    if found is not None:
        _programs.move_to_end(key)
        return found
    _note_numbers(outline.key_without_numbers, setting)
    while len(_programs) >= _MOST:
        _programs.popitem(last=False)
    _programs[key] = made = _jitted(outline, setting)
    return made


def _jitted(outline: Outline, setting: Setting | None) -> Jit:
    function = outline.function()
    made = jit(function) if setting is None else setting.jitted(function)
    made.counts = _counts.setdefault(outline.line, made.counts)
    return made


def _note_numbers(*key: Hashable) -> None:
    """Warn of Python numbers that are others each time."""
    if len(_spelled) >= _MOST:
        _spelled.clear()
    _spelled[key] += 1
    if _spelled[key] == _MANY_NUMBERS:
        warn(
            f"eqsat: a graph of lazy arrays was compiled {_MANY_NUMBERS} times, once "
            f"for each value of a Python number in it. Numbers are part of the "
            f"program. Make an array of one that changes: eq.array(number, x.dtype)",
            RecompileWarning,
        )
