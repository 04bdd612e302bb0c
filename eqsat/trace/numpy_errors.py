"""Errors that NumPy raises itself when it meets a traced value, said as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from eqsat.support import (
    EqsatError,
    SourceLine,
    TraceError,
    at,
    made_elsewhere,
    refusals,
)
from eqsat.trace.outside import is_of_user

_WRITTEN = ("setting an array element with a sequence", "Error setting single item")
_OTHERS = (
    *("only length-1 arrays", "only 0-dimensional arrays", "only integer scalar"),
    *("expected a sequence of integers", "object cannot be interpreted"),
)
_MAKE = (
    "make that array in the traced function by np.zeros(...), np.array(y) and their "
    "like, called as functions of np, or give a copy of it a name before the write: "
    "o = y.copy()"
)
_ITERATED = "Iterator operand is flagged as writeable, but is an object"
_STAND_INS = {
    "'Tracer'": "a traced array",
    "'KnownArray'": "an array made in a traced function",
    "'AtEnd'": "an array whose shape depends on data",
    "'Selected'": "an array whose shape depends on data",
}
"""What Python's own errors call values, and what they are."""
_PLAIN = "shapes, axes, counts and elements of lists are Python numbers there"


@contextmanager
def numpy_errors_told() -> Iterator[None]:
    """Raise :class:`TraceError`, with the user's line and what to write, where NumPy
    raises an error of its own for a traced value, and where the function has caught
    the error of what NumPy does and no trace can."""
    with refusals() as refused:
        try:
            yield
        except (TypeError, ValueError) as error:
            told = None if isinstance(error, EqsatError) else _told(error)
            if told is None:
                raise
            raise told from error
        caught = next(filter(_is_caught_by_user, refused), None)
        if caught is not None:
            raise caught


def _is_caught_by_user(error: Exception) -> bool:
    """Whether the user's code has caught an error: the outermost frame that it came
    through."""
    outermost = error.__traceback__
    if outermost is None:
        return False
    frame = outermost.tb_frame
    return is_of_user(frame.f_code, frame.f_globals)


def _told(error: Exception) -> TraceError | None:
    text, cause = str(error), error.__cause__ or error.__context__
    ours = isinstance(cause, TraceError) or "Tracer(" in text
    line = at(_line_of(error.__traceback__))
    if text.startswith(_WRITTEN) and (ours or text.startswith(_WRITTEN[1])):
        return made_elsewhere(
            "a traced value is written to an array of NumPy that was made elsewhere, "
            f"and holds numbers alone\n  {_MAKE}{line}"
        )
    if ours and text.startswith(_OTHERS):
        if isinstance(cause, TraceError):
            return cause
        return made_elsewhere(f"NumPy takes no traced value: {text}\n  {_PLAIN}{line}")
    if text.startswith(_ITERATED):
        return TraceError(
            "np.nditer goes through the values of a traced array, which are not known "
            f"while tracing\n  write x.flat or np.ndindex(x.shape){line}"
        )
    names = [n for n in _STAND_INS if n in text]
    if not names or not isinstance(error, TypeError):
        return None
    for name in names:
        text = text.replace(name, _STAND_INS[name])
    asked = "\n  its shape and dtype are known while tracing, not its values and memory"
    return TraceError(f"{text}{'' if 'support' in text else asked}{line}")


def _line_of(traceback: TracebackType | None) -> SourceLine | None:
    """The innermost line of the user's."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_of_user(code, traceback.tb_frame.f_globals):
            found = SourceLine(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
