"""Engines that outlive a compile: declarations and rules are loaded once a thread.

Loading them takes most of the time of compiling a small program. So an engine is kept
for each set of rules; a compile works on a copy of it that is then dropped (``push``
and ``pop``, 0.3 ms). What a compile loads into its copy goes into the engine itself
when a program of the same ops, or of more, comes again. A rule too many changes
nothing, because a rule is only ever left out where it cannot match.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Set
from typing import Any

from eqsat.rulelang import RuleSet
from eqsat.support import bindings

MOST = 4
"""Engines kept in each thread, of the rules used last."""
OFTEN = 64
"""Copies of one engine before another takes its place, which takes 10 ms: each leaves
some 65 KB in the engine."""
_PARSED: dict[str, tuple[Any, ...]] = {}


def parsed(egg: Any, form: str) -> tuple[Any, ...]:
    """The commands of ``form``. Syntax trees belong to no e-graph, so they are parsed
    once a process."""
    known = _PARSED.get(form)
    if known is None:
        known = _PARSED[form] = tuple(egg.parse_program(form))
    return known


_ALIVE: dict[int, weakref.ref[Warm]] = {}
_HELD: list[Warm] = []
"""Engines during a fork."""
_LEFT: list[Warm] = []
"""Those of the parent, in a child: to drop one would wait for threads that a child does
not have."""


class Warm:
    """An engine without terms, and what it has loaded."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.egg: Any = bindings().EGraph()
        self.loaded: set[str] = set()
        """Forms."""
        self.copies = 0
        self._learnt: list[tuple[Set[str], tuple[str, ...]]] = []
        key = id(self)
        _ALIVE[key] = weakref.ref(self, lambda _: _ALIVE.pop(key, None))

    def open(self, forms: Iterable[str], ops: Set[str]) -> None:
        """Load ``forms``, and what programs of some of ``ops`` came to need, then begin
        a copy. What the engine raises passes through."""
        wanted = dict.fromkeys(forms)
        due = [entry for entry in self._learnt if entry[0] <= ops]
        self._learnt = [entry for entry in self._learnt if not entry[0] <= ops]
        for _, learnt in due:
            wanted.update(dict.fromkeys(learnt))
        new = [form for form in wanted if form not in self.loaded]
        self.egg.run_program(*(c for form in new for c in parsed(self.egg, form)))
        self.loaded.update(new)
        self.egg.run_program(bindings().Push(1))
        self.copies += 1

    def close(self, learnt: Iterable[str], ops: Set[str], copies: int = 0) -> None:
        """Drop the copy, and ``copies`` of it. ``learnt``: what was loaded into it for
        a program of ``ops``."""
        b = bindings()
        self.egg.run_program(b.Pop(b.RustSpan("", 0, 0), 1 + copies))
        forms = tuple(learnt)
        if forms:
            self._learnt.append((ops, forms))
        kept = _KEPT.engines
        if self.copies < OFTEN:
            kept[id(self.rules)] = self
        while len(kept) > MOST:
            del kept[next(iter(kept))]


class _Kept(threading.local):
    """The engine may only be used in the thread that made it."""

    def __init__(self) -> None:
        self.engines: dict[int, Warm] = {}


_KEPT = _Kept()


def _hold() -> None:
    # Other threads make engines meanwhile: a list of them is made in one step.
    made = [ref() for ref in list(_ALIVE.values())]
    _HELD.extend(warm for warm in made if warm is not None)


def _in_child() -> None:
    _LEFT.extend(_HELD)
    _HELD.clear()
    _PARSED.clear()
    _KEPT.engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold,
        after_in_parent=_HELD.clear,
        after_in_child=_in_child,
    )


def take(rules: RuleSet) -> Warm:
    """The engine kept for ``rules``, or a new one; it is the caller's until closed."""
    return _KEPT.engines.pop(id(rules), None) or Warm(rules)


def opened(rules: RuleSet, forms: Iterable[str], ops: Set[str]) -> Warm | None:
    """The engine kept for ``rules``, with a copy begun; None where what it has loaded
    clashes, as it does when an op is defined again."""
    warm = take(rules)
    try:
        warm.open(forms, ops)
    except BaseException as error:  # panics of the engine derive from BaseException
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return None
    return warm
