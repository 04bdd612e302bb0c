"""Rules that do not work: they are set aside and named, and the others go on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from eqsat.support import EqsatError, RuleError, RuleWarning

T = TypeVar("T")


@dataclass(frozen=True)
class BrokenRule:
    """A rule that cannot be built. It stands in a file where the rule would."""

    name: str
    file: str
    line: int
    reason: str
    """What is wrong, with the place and the name of the rule in front."""
    column: int = 0

    @property
    def fault(self) -> str:
        """What is wrong, without the place and the name."""
        return self.reason.partition(f"rule {self.name!r}: ")[2] or self.reason

    def warn(self) -> None:
        """Warn of it, on its own line."""
        warn_of(self.file, self.line, self.reason)


def warn_of(file: str, line: int, reason: str) -> None:
    """Warn that a rule is set aside; the warning stands on the rule's line."""
    message = f"{reason}\n  The rule is set aside; the others are used."
    warnings.warn_explicit(message, RuleWarning, file, line, registry={})


_ASIDE: ContextVar[list[BrokenRule] | None] = ContextVar("_ASIDE", default=None)
"""The broken rules of the file that is being loaded; None outside of files."""


@contextmanager
def setting_aside() -> Iterator[list[BrokenRule]]:
    """Within this block a rule that cannot be built is listed and does not raise."""
    found: list[BrokenRule] = []
    token = _ASIDE.set(found)
    try:
        yield found
    finally:
        _ASIDE.reset(token)


def built(
    make: Callable[[], T], name: str, file: str, line: int, column: int = 0
) -> T | BrokenRule:
    """What ``make`` gives, or the rule that it cannot build: raised as
    :class:`RuleError`, or set aside while a file is being loaded."""
    try:
        return make()
    except Exception as error:
        reason = _reason(error, name, file, line)
        aside = _ASIDE.get()
        if aside is None:
            if isinstance(error, EqsatError):
                raise
            raise RuleError(reason) from error
        aside.append(BrokenRule(name, file, line, reason, column))
        return aside[-1]


def _reason(error: Exception, name: str, file: str, line: int) -> str:
    if isinstance(error, RuleError) and repr(name) in str(error):
        return str(error)
    said = str(error) if isinstance(error, EqsatError) else failure(error)
    return f"{file}:{line}: rule {name!r}: {said}"


def failure(error: BaseException) -> str:
    """An exception in one line: its type and what it says."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
