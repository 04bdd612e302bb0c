"""Why a function is compiled again: what a call has that no earlier one had."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from eqsat.support import RecompileWarning, SourceLine, at, warn
from eqsat.trace import Arguments, Trace

MANY, MANY_SHAPES = 8, 32
"""Programs that differ in one thing, or in a shape, before a warning."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), range)
_ADVICE = {
    "shape": "A program is made for each shape: pad {path} to few of them",
    "dtype": "A program is made for each dtype: cast {path} to one",
    "constant": "Constants are part of the program: leave {path} out of constants=",
    "value": "What is no array is part of the program: pass {path} as an array",
}


class _Aspect(NamedTuple):
    """One thing that programs of a function can differ in."""

    path: str
    """The argument, as one would write it."""
    kind: str


class _Fact(NamedTuple):
    """What a call has of it."""

    key: object
    shown: str
    type: type
    """Of the value; values of each are counted apart."""


class Recompiles:
    """The programs of one function, as far as their calls differ.

    ``note`` warns :class:`RecompileWarning` of what is another one in each call.
    """

    def __init__(
        self, name: str, fn: Callable[..., Any], is_logged: bool = False
    ) -> None:
        self.name, self.line = name, _line_of(fn)
        self.is_logged = is_logged
        """Whether to print each: ``Options(log={"compiles"})``."""
        self._latest: deque[Mapping[_Aspect, _Fact]] = deque(maxlen=2 * MANY)
        self._seen: dict[tuple[_Aspect, type], set[object]] = {}
        self._changes: dict[str, int] = {}

    def note(self, call: Arguments, old: Trace | None) -> str:
        """Why ``call`` is compiled. ``old``: the program for such calls, which is no
        longer right."""
        facts = dict(_facts_of(call))
        cause = self._changed(old) if old is not None else self._new(facts)
        self._latest.append(facts)
        for aspect, fact in facts.items():
            self._count(aspect, fact)
        return cause

    def log(self, cause: str, seconds: float) -> None:
        """Print a compile on stderr, where that is asked."""
        if self.is_logged:
            place = "" if self.line is None else f" ({self.line})"
            text = f"eqsat: compiled {self.name!r}{place} in {seconds:.3f} s: {cause}"
            print(text, file=sys.stderr, flush=True)

    def log_layouts(self, call: Arguments, program: Any) -> None:
        """Where that is asked, have ``program`` make machine code for the layouts of
        the arrays, and tell of it."""
        if not self.is_logged:
            return
        prepare = getattr(program, "prepare", None)
        start = time.perf_counter()
        if prepare is not None and prepare(call.arrays):
            self.log(_layouts_of(call), time.perf_counter() - start)

    def _new(self, facts: Mapping[_Aspect, _Fact]) -> str:
        """How a call differs from the one that is most like it."""
        if not self._latest:
            return "first call"
        found = [[*_differences(old, facts)] for old in reversed(self._latest)]
        least = min(map(len, found))
        nearest = next(words for words in found if len(words) == least)
        return "; ".join(nearest) or "the program was not kept"

    def _changed(self, old: Trace) -> str:
        """What changed outside of the function; warns of a name that often does."""
        changed = old.outside.changed()
        if changed is None:
            return "a name outside changed, and changed back"
        written, line = changed
        self._changes[written] = self._changes.get(written, 0) + 1
        if self._changes[written] == MANY:
            warn(
                f"eqsat: {self.name!r} was compiled again {MANY} times, since "
                f"{written} changed. Pass it as an argument, a number as a NumPy scalar"
                f"{at(line)}",
                RecompileWarning,
            )
        return f"{written} changed outside of the function"

    def _count(self, aspect: _Aspect, fact: _Fact) -> None:
        """Warn of what is another one each time."""
        path, kind = aspect
        many = MANY_SHAPES if kind == "shape" else MANY
        seen = self._seen.setdefault((aspect, fact.type), set())
        if fact.key in seen or len(seen) == many:
            return
        seen.add(fact.key)
        if len(seen) < many:
            return
        advice = _ADVICE[kind].format(path=path)
        if fact.type in (int, float):
            scalar = "float32" if fact.type is float else "int64"
            advice = (
                f"Python numbers are part of the program. Pass a NumPy scalar instead, "
                f"such as np.{scalar}({path})"
            )
            if scalar == "int64":
                advice += ", unless it is a size or an axis"
        warn(
            f"eqsat: {self.name!r} was compiled for {many} {kind}s of {path}, now for "
            f"{fact.shown}. {advice}",
            RecompileWarning,
        )


def _layouts_of(call: Arguments) -> str:
    """The layouts that machine code is made for beside that of C-contiguous arrays:
    few of each program, so that no warning is due."""
    told = []
    for leaf in call.leaves:
        value = leaf.value
        if leaf.constant or not isinstance(value, np.ndarray):
            continue
        if not value.flags.c_contiguous:
            order = "Fortran order, " if value.flags.f_contiguous else ""
            told.append(
                f"argument {leaf.path!r} changed layout to {order}strides of "
                f"{value.strides} bytes"
            )
    return "; ".join(told)


def _facts_of(call: Arguments) -> Iterator[tuple[_Aspect, _Fact]]:
    for leaf in call.leaves:
        if leaf.declared:
            shown = f"array {id(leaf.given):#x}"
            yield (
                _Aspect(leaf.path, "constant"),
                _Fact(id(leaf.given), shown, np.ndarray),
            )
        else:
            yield _Aspect(leaf.path, "shape"), _Fact(leaf.shape, str(leaf.shape), tuple)
            yield (
                _Aspect(leaf.path, "dtype"),
                _Fact(leaf.dtype, str(leaf.dtype), np.dtype),
            )
    for path, value in call.statics():
        kind = type(value)
        shown = f"{value!r:.60}" if kind in _PLAIN else f"another {kind.__name__}"
        key = (kind, repr(value)) if kind in _PLAIN else (kind, id(value))
        yield _Aspect(path, "value"), _Fact(key, shown, kind)


def _differences(
    old: Mapping[_Aspect, _Fact], new: Mapping[_Aspect, _Fact]
) -> Iterator[str]:
    """How two calls differ, in words."""
    for aspect in dict.fromkeys((*old, *new)):
        a, b = old.get(aspect), new.get(aspect)
        where = f"argument {aspect.path!r}"
        if a is None or b is None:
            if aspect.kind != "dtype":  # told with the shape
                yield f"{where} is {'there' if a is None else 'not there'}"
        elif a.key != b.key:
            yield f"{where} changed {aspect.kind} {a.shown} -> {b.shown}"


def _line_of(fn: Any) -> SourceLine | None:
    """Where a function is written; one that eqsat made says whose line it stands
    for."""
    if hasattr(fn, "eqsat_line"):
        return cast("SourceLine | None", fn.eqsat_line)
    for one in (fn, getattr(fn, "__func__", None), vars(type(fn)).get("__call__")):
        code = getattr(one, "__code__", None)
        if code is not None:
            return SourceLine(code.co_filename, code.co_firstlineno)
    return None
