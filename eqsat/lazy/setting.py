"""How arrays are computed: the backend, rules and options that they were made with.

What is computed of arrays has their setting. So an expression has one, or there is an
error when it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eqsat.jit import Jit, jit
from eqsat.kernels import backend_named
from eqsat.rulelang import RuleSet
from eqsat.support import OptionContext, OptionError, Options, at, caller_line

_MOST = 256
"""Settings that are known as one object each."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What :func:`jit` is told of an expression. None is what nobody said."""

    backend: str | None
    rules: RuleSet | None
    options: OptionContext | None

    def __reduce__(self) -> Any:
        return _setting, (self.backend, self.rules, self.options)

    def jitted(self, function: Callable[..., Any]) -> Jit:
        """``function`` with these."""
        said = None if self.options is None else Options(**self.options.given)
        return jit(function, self.backend, self.rules, said)


@lru_cache(_MOST)
def _setting(
    backend: str | None, rules: RuleSet | None, options: OptionContext | None
) -> Setting | None:
    said = backend, rules, options
    return None if said == (None, None, None) else Setting(*said)


def setting(
    backend: str | None, rules: RuleSet | None, options: Options | None
) -> Setting | None:
    """The setting of a new array; None where nothing is said.

    Raises :class:`BackendError` for a backend that is not there, and
    :class:`OptionError` for what are no rules or options.
    """
    if backend is not None:
        backend_named(backend)
    for name, value, of in (("rules", rules, RuleSet), ("options", options, Options)):
        if not isinstance(value, of | None):
            raise OptionError(f"eq.array: {name}={value!r:.60}, expected {of.__name__}")
    return _setting(
        backend, rules, None if options is None else OptionContext(options.given)
    )


@lru_cache(_MOST)
def _joined(a: Setting, b: Setting) -> Setting | str | None:
    """The setting of what is computed of both; what differs, where there is none."""
    found = []
    for name in ("backend", "rules", "options"):
        said = [v for s in (a, b) if (v := getattr(s, name)) is not None]
        if said[1:] and said[0] != said[1]:
            if name == "backend":
                return "backends {!r} and {!r}".format(*said)
            return f"two {name}"
        found.append(said[0] if said else None)
    return _setting(*found)


def joined(a: Setting | None, b: Setting | None) -> Setting | None:
    """The setting of what is computed of arrays with ``a`` and ``b``: what one of them
    says. Raises :class:`OptionError` where they say two things."""
    if a is b or b is None:
        return a
    if a is None:
        return b
    found = _joined(a, b)
    if isinstance(found, str):
        raise OptionError(
            f"arrays of {found} in one expression\n"
            f"  eq.array(x, backend=…) makes an array of the values of one for the "
            f"other's backend, rules or options{at(caller_line())}"
        )
    return found
