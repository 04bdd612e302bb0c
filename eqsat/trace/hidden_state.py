"""Detects what a traced function reads that no program can read again: random
generators, clocks, files, input.

A program is made from one run of the function, so that what this run has read would be
read by no call after it.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import dis
import io
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from eqsat.support import SourceLine, StaleWarning, TraceError, Watch, an, at, warn
from eqsat.trace.call_arguments import is_array
from eqsat.trace.outside import (
    NameReader,
    Outside,
    Stateful,
    is_of_user,
    note_kept,
)
from eqsat.trace.random_state import has_state, owner_of, set_state, state_of

_DRAW = (
    "pass the numbers as an array, or draw them with eq.random and a key that is an "
    "argument"
)
_TIME = "read it before the call, and pass it as an argument: np.float64(seconds)"
_FILE = "read it before the call, and pass what it holds as an argument"

_CLOCKS = (
    *"time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time "
    "process_time_ns thread_time thread_time_ns localtime gmtime ctime".split(),
    *("clock_gettime", "clock_gettime_ns", "strftime", "asctime"),
)
_READERS: dict[Any, tuple[str, str]] = {
    **{getattr(time, n): ("the clock", _TIME) for n in _CLOCKS if hasattr(time, n)},
    datetime.datetime.now: ("the clock", _TIME),
    datetime.datetime.utcnow: ("the clock", _TIME),
    datetime.datetime.today: ("the clock", _TIME),
    datetime.date.today: ("the clock", _TIME),
    os.urandom: ("random numbers", _DRAW),
    builtins.input: ("the input", "ask before the call, and pass the answer"),
    io.open: ("a file", _FILE),
    os.open: ("a file", _FILE),
    os.read: ("a file", _FILE),
    np.fromfile: ("a file", _FILE),
}
if hasattr(os, "getrandom"):
    _READERS[os.getrandom] = "random numbers", _DRAW
"""Builtin functions, what they read, and what to do instead."""
_THROUGH = frozenset(
    "uuid secrets random datetime os pathlib codecs numpy json pickle getpass "
    "collections genericpath posixpath ntpath glob".split()
)
"""Modules that call those on behalf of others."""
_SETTINGS: dict[Any, str] = {
    **{
        getattr(type(os.environ), name).__code__: "os.environ"
        for name in ("__getitem__", "__iter__", "__len__")
    },
    **{
        f.__code__: f"np.{f.__name__}()"
        for f in (np.geterr, np.getbufsize, np.get_printoptions)
    },
    decimal.getcontext: "decimal.getcontext()",
    **{
        getattr(os, n): f"os.{n}()"
        for n in "access getcwd listdir lstat scandir stat".split()
    },
}
"""Code of functions, and builtin functions, that read what nothing can watch."""
_SETTING_CODE = frozenset(map(id, _SETTINGS))


class _Watch(Watch):
    """What the profiler of Python calls while a function is traced."""

    def __init__(self, reader: NameReader) -> None:
        self.reader = reader
        self.found: tuple[Any, str, str, SourceLine] | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if id(frame.f_code) not in self.reader.codes:  # hashing code takes long
                self._enter(frame)
        elif event == "c_call" and id(arg) in _SETTING_CODE:
            self._keep(arg, frame)
        elif event == "c_call" and self.found is None:
            known = _READERS.get(arg)
            if known is not None and not _reads_nothing(arg, frame):
                user = _users_frame(frame)
                if user is not None:
                    self.found = _called(arg), *known, _line_of(user)

    def _enter(self, frame: FrameType) -> None:
        """Note what code reads that was not expected to run."""
        code, names = frame.f_code, frame.f_globals
        if id(code) in _SETTING_CODE:
            self._keep(code, frame)
        elif is_of_user(code, names):
            self.reader.code(code, names, {}, {})
        else:
            self.reader.codes[id(code)] = code

    def _keep(self, read: Any, frame: FrameType) -> None:
        """Note what the user's code reads, and nothing can watch."""
        user = _users_frame(frame)
        if user is not None:
            self.reader.outside.unknown[_SETTINGS[read]] = _line_of(user)


def _called(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
    named = {"posix": "os", "nt": "os", "_io": "", "io": "", "builtins": ""}
    module = named.get(str(module), str(module))
    return f"{module}.{function.__name__}" if module else str(function.__name__)


def _reads_nothing(function: Any, frame: FrameType) -> bool:
    """Whether a file is written, or entropy thrown away by NumPy: a generator with a
    seed is made."""
    if function is io.open:
        return _is_mode(frame.f_locals.get("mode")) or any(
            s.opname == "LOAD_CONST" and _is_mode(s.argval) for s in _before_call(frame)
        )
    user = _users_frame(frame)
    if function is not os.urandom or user is None or user is frame:
        return False
    made = _before_call(user)[-1]
    return frame.f_back is user and made.opname == "CALL" and bool(made.arg)


def _is_mode(text: object) -> bool:
    """Whether text is the mode of a file that is only written to."""
    letters = set(text) if isinstance(text, str) else set()
    return bool(letters & set("wax")) and letters <= set("waxbt")


def _before_call(frame: FrameType) -> list[dis.Instruction]:
    """The call that a frame is making, and the few steps before it."""
    steps = [s for s in dis.get_instructions(frame.f_code) if s.offset <= frame.f_lasti]
    return steps[-5:]


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """The frame of the user's code that called this one, itself or by modules that read
    on behalf of others."""
    while frame is not None:
        if is_of_user(frame.f_code, frame.f_globals):
            return frame
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _THROUGH:
            return None
        frame = frame.f_back
    return None


def _line_of(frame: FrameType) -> SourceLine:
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


@contextmanager
def _profiled(watch: Callable[..., None]) -> Iterator[None]:
    """Have ``watch`` called on each call of a function, unless a profiler is."""
    before = sys.getprofile()
    if before is not None and not isinstance(before, Watch):
        yield
        return
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def watched(
    fn: Callable[..., Any],
    arguments: Iterable[tuple[str, Any]],
    kinds: Collection[type] = (),
) -> Iterator[Outside]:
    """Trace ``fn`` inside. Gives what it reads outside of ``arguments``, the values of
    those that are no arrays, of classes ``kinds``.

    Raises :class:`TraceError` where it drew from a random generator, advanced an
    iterator, or read a clock, a file, the input or the entropy of the system. Warns
    :class:`StaleWarning` of what it read and nothing can watch.
    """
    name = str(getattr(fn, "__name__", type(fn).__name__))
    reader = NameReader()
    reader.callable(fn)
    for path, value in arguments:
        _read_argument(reader, path, value)
    reader.classes(kinds)
    outside = reader.outside
    watch = _Watch(reader)
    before = {k: state_of(s.value) for k, s in outside.stateful.items()}
    try:
        with _profiled(watch):
            yield outside
        reader.classes(kinds)  # what code asks that was not expected to run
        note_kept(reader)
    finally:
        drawn = _drawn(outside.stateful, before)
    if watch.found is not None:
        called, what, advice, line = watch.found
        raise TraceError(
            f"{called} reads {what} while {name!r} is traced; every call would have "
            f"what this one read\n  {advice}{at(line)}"
        )
    if drawn is not None:
        iterates = isinstance(drawn.value, Iterator)
        called = an(type(drawn.value).__name__)
        what = f"advances {called}" if iterates else "draws random numbers"
        advice = _FILE if iterates else _DRAW
        raise TraceError(
            f"{drawn.written} {what} while {name!r} is traced; every call would have "
            f"what this one drew\n  {advice}{at(drawn.line)}"
        )
    for written, line in outside.unknown.items():
        warn(
            f"eqsat: {name!r} reads {written}, and nothing tells when it changes; the "
            f"program keeps what it is now. Pass it as an argument{at(line)}",
            StaleWarning,
        )


def _read_argument(reader: NameReader, path: str, value: Any) -> None:
    """Note the generators in an argument, and the functions."""
    if is_array(value):
        return
    state = owner_of(value)
    if has_state(state):
        reader.outside.stateful.setdefault(id(state), Stateful(state, path, None))
    elif callable(value):
        reader.callable(value)


def _drawn(
    stateful: Mapping[int, Stateful], before: Mapping[int, Any]
) -> Stateful | None:
    """What was drawn from; its state is put back."""
    found = None
    for key, one in stateful.items():
        then, now = before.get(key), state_of(one.value)
        if then is None and now is None:
            found = found or one
        elif then is not None and not _equal(then, now):
            set_state(one.value, then)
            found = found or one
    return found


def _equal(a: Any, b: Any) -> bool:
    """Whether two states are the same: nested, and with arrays in them."""
    if isinstance(a, dict):
        return all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)
