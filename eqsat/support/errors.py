"""Every exception that eqsat raises on purpose, and how it names the user's line; what
is warned and logged."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from numpy.exceptions import AxisError, DTypePromotionError
from numpy.linalg import LinAlgError


class EqsatError(Exception):
    """Base class of all errors of this library."""


class TraceError(EqsatError, TypeError):
    """A function does something that cannot be recorded as a term."""

    elsewhere = False
    """Whether NumPy was given a traced value, for an array that was made elsewhere."""


def made_elsewhere(message: str) -> TraceError:
    """The error of a traced value that NumPy was given, to write it to an array."""
    error = TraceError(message)
    error.elsewhere = True
    return error


E = TypeVar("E", bound=EqsatError)


class _Refusals(threading.local):
    """What a thread refuses, for each trace that it is in."""

    def __init__(self) -> None:
        self.open: list[list[EqsatError]] = []


_REFUSALS = _Refusals()


def noted(error: E) -> E:
    """The error of what NumPy does and no trace can: a function that catches it goes on
    otherwise than with NumPy."""
    if _REFUSALS.open:
        _REFUSALS.open[-1].append(error)
    return error


def is_noted(error: Exception) -> bool:
    """Whether an error was :func:`noted` in the trace that this thread is in."""
    return bool(_REFUSALS.open) and any(e is error for e in _REFUSALS.open[-1])


def untraceable(message: str) -> TraceError:
    """The error of what NumPy does and no trace can, :func:`noted`."""
    return noted(TraceError(message))


@contextmanager
def refusals() -> Iterator[list[EqsatError]]:
    """Gives the errors that are :func:`noted` inside."""
    found: list[EqsatError] = []
    _REFUSALS.open.append(found)
    try:
        yield found
    finally:
        _REFUSALS.open.pop()
        found.clear()


class TraceAttributeError(TraceError, AttributeError):
    """A traced array lacks an attribute that arrays have."""


class TraceValueError(EqsatError, ValueError):
    """An argument has a value that NumPy refuses, too."""


class TraceIndexError(EqsatError, IndexError):
    """A key is none that NumPy takes."""


class ReadOnlyError(EqsatError, ValueError):
    """A function writes to an array that is read-only."""


class ShapeError(EqsatError, ValueError):
    """Shapes do not fit an op or a signature."""


class BoundsError(EqsatError, IndexError):
    """An index is outside of an array."""


class AxisBoundsError(ShapeError, BoundsError, AxisError):
    """An array has no axis of this number."""


class MatrixError(ShapeError, LinAlgError):
    """A function of ``np.linalg`` is given no matrix, or one that is not square."""


class NoElementsError(EqsatError, ZeroDivisionError):
    """A number of elements is divided by, and there are none."""


class DTypeError(EqsatError, TypeError):
    """A dtype is not supported, or does not fit an op."""


class PromotionError(DTypeError, DTypePromotionError):
    """No dtype holds the values of several."""


class RangeError(EqsatError, OverflowError):
    """An integer dtype does not hold a number."""


MISFITS = (ShapeError, DTypeError, BoundsError, RangeError, NoElementsError)
"""The errors of arguments that do not fit an op."""


class RuleError(EqsatError, ValueError):
    """A rule, or a file of rules, is wrong."""


class EngineError(EqsatError, RuntimeError):
    """The e-graph engine refused a command or found a contradiction."""


class RuleFailure(EngineError):
    """The engine cannot take a rule."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        """Its name."""


class MemoryLimitError(EqsatError):
    """No program that was found stays under ``Options(memory_limit)``."""


class OptionError(EqsatError, ValueError):
    """An option has a value that it cannot take."""


class GraphError(EqsatError, ValueError):
    """A graph of the user's, or a file of one, is wrong."""


class OnnxError(EqsatError, ValueError):
    """A model of ONNX is wrong, or asks for what eqsat does not have."""


class OnnxBoundsError(OnnxError, BoundsError):
    """A node of a model has an index outside of an array, or an axis that this does not
    have."""


class SavedProgramError(EqsatError, ValueError):
    """A file is no saved program, or a program cannot be saved."""


class ArgumentError(EqsatError, TypeError):
    """A saved program is called with other arguments than it was saved for."""


class NoResultError(EqsatError, IndexError, LinAlgError):
    """An argument of a saved program has no result: an index is outside of its array,
    or a matrix cannot be factored."""


class BackendError(EqsatError, RuntimeError):
    """A backend is missing or cannot run a program."""


class VerifyError(EqsatError):
    """What one stage hands to the next breaks a rule: a fault of eqsat's own.

    Verifiers raise it, under ``EQSAT_VERIFY=1``.
    """

    def __init__(
        self, stage: str, node: str, rule: str, actual: object, expected: object
    ) -> None:
        super().__init__(
            f"{stage}: {node}: {rule}\n  actual: {actual}\n  expected: {expected}"
        )
        self.stage, self.node, self.rule = stage, node, rule
        self.actual, self.expected = actual, expected


class BudgetWarning(UserWarning):
    """A budget ran out: the program is correct, but a cheaper one may exist."""


class RuleWarning(UserWarning):
    """A rule does not work: it is set aside, and the other rules are used."""


class RecompileWarning(UserWarning):
    """An argument that changes from call to call is compiled again and again."""


class StaleWarning(UserWarning):
    """A program keeps a value that was read when it was made, and that may change."""


class OptionWarning(UserWarning):
    """A variable of the environment looks like an option and is none."""


class CacheWarning(UserWarning):
    """The disk cache or a file of the user's is not used: others can change it."""


class SourceLine(NamedTuple):
    """A place in the user's code."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line itself, stripped; empty when the source is not at hand."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that is most like it,
    if one is."""
    import difflib  # most programs never need it

    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _folder(package: str) -> list[str]:
    """Where the files of an installed package lie; the package is not imported."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return [str(p) + os.sep for p in places or ()]


_PACKAGES = ("eqsat", "numpy", "scipy")
LIBRARIES = frozenset({*_PACKAGES, "mlx"}) | sys.stdlib_module_names - {"__main__"}
"""Packages whose names nobody changes."""
_SKIPPED = (
    str(Path(__file__).parents[1]) + os.sep,
    *_folder("numpy"),
    *_folder("scipy"),
)
_KNOWN: dict[str, bool] = {}
"""Files seen so far, and whether they are passed over: every traced operation asks."""


def is_of_library(frame: FrameType) -> bool:
    """Whether the code in a frame is eqsat's, NumPy's, SciPy's, MLX's or Python's."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in LIBRARIES


Place = tuple[CodeType, int]
"""Code, and the instruction that it had come to: a line costs more to find, and is
found when it is asked for."""


def caller_place(depth: int = 1) -> Place | None:
    """The innermost place of the call stack outside eqsat, NumPy and SciPy, ``depth``
    calls up or more.

    Code without a file counts as its module's: a line typed at a prompt is the user's,
    the generated ``__init__`` of a dataclass of eqsat is not.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        skipped = _KNOWN.get(name)
        if skipped is None:
            skipped = name.startswith((*_SKIPPED, "<frozen "))
            if name.startswith("<") and not skipped:
                module = str(frame.f_globals.get("__name__", ""))
                skipped = module.partition(".")[0] in _PACKAGES
            else:
                _KNOWN[name] = skipped
        if not skipped:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(place: Place | None) -> SourceLine | None:
    """The line of a place."""
    if place is None:
        return None
    code, at = place
    known = _LINES.get(id(code))
    if known is None:
        spans = [span for span in code.co_lines() if span[2] is not None]
        if len(_LINES) >= _MOST_CODES:
            _LINES.clear()
        known = _LINES[id(code)] = code, [start for start, *_ in spans], spans
    _, starts, spans = known
    i = bisect_right(starts, at) - 1
    if i >= 0 and at < spans[i][1]:
        return SourceLine(code.co_filename, spans[i][2] or 0)
    return SourceLine(code.co_filename, code.co_firstlineno)


_Spans = list[tuple[int, int, int | None]]
_LINES: dict[int, tuple[CodeType, list[int], _Spans]] = {}
"""By the ``id`` of code that is kept: where each line starts. A function of n lines has
n operations, each of which would go through all lines."""
_MOST_CODES = 256


def caller_line() -> SourceLine | None:
    """The line of :func:`caller_place`."""
    return line_of(caller_place(2))


_WARNED: dict[Any, Any] = {}
"""What has been said, and where: by default a line is warned once of one thing."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn of ``message`` on the user's line."""
    line = caller_line() or SourceLine("<unknown>", 0)
    warnings.warn_explicit(message, category, *line, registry=_WARNED)


def log_fallback(backend: str, kernel: str, how: str, reason: str) -> None:
    """Tell the logger ``eqsat`` how a kernel runs, and why no other way."""
    import logging  # which takes 4 ms, and is seldom needed

    log = logging.getLogger("eqsat")
    log.info("%s: %s runs as %s: %s", backend, kernel, how, reason)


def at(line: SourceLine | None) -> str:
    """``line`` as the tail of an error message."""
    if line is None:
        return ""
    return f"\n  at {line}" + (f"\n     {line.text}" if line.text else "")
