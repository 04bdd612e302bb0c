"""Options of one optimisation, and the ``EQSAT_*`` environment variables that set their
defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from eqsat.support.errors import OptionError
from eqsat.support.wording import an

NUMERICS = ("exact", "reassociate", "approximate", "fast")
"""Numerics classes, from the strictest: an option admits its class and those before it.
"""
EXTRACTORS = ("greedy", "exact")
KINDS = ("map", "row", "contract", "attention")
"""Kinds of kernels of several ops."""


def _env(name: str, default: Any) -> Any:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return type(default)(text)
    except ValueError:
        raise OptionError(
            f"{name}={text!r}: expected {an(type(default).__name__)}"
        ) from None


@dataclass(frozen=True)
class Options:
    """Settings of one optimisation.

    ``numerics``: the loosest class of rules to use (``exact``, ``reassociate``,
    ``approximate``, ``fast``: nothing is promised at NaN, ∞ and -0). ``deadline_s``:
    seconds that a compile may take. What tracing leaves of them goes to the search,
    which returns the best program found by then, and the rest to machine code. Where
    that is long it is made the quick way and is slower; what is not written 4 s after
    the deadline is run by NumPy. The traced function itself cannot be cut short. The
    seconds are processor time of the thread that compiles, so that a busy machine
    changes neither the program nor the warnings; there the wait is longer.
    ``max_nodes``: size of one e-graph
    (e-nodes); a user's own rules may enlarge any by an 800th of it. ``extract``:
    ``greedy`` or ``exact`` (an integer program, for small graphs).
    ``regions``: split long programs and optimise each distinct piece once.
    ``fusion``: let a kernel hold more than one op. ``disable``: names of rules and of
    rule files (``attention.py``) to leave out. ``kinds``: kinds of kernels of several
    ops (``map``, ``row``, ``contract``, ``attention``). ``least_elements``: size of the
    domain from which ops are fused. ``threads``: how many a program of the ``native``
    backend may run on; 0 for as many as the process may use processors. ``backends``:
    fields that differ for a backend, by its name:
    ``{"mlx": {"least_elements": 4096}}``.

    Environment: ``EQSAT_DEADLINE_S``, ``EQSAT_MAX_NODES``, ``EQSAT_NUMERICS``,
    ``EQSAT_THREADS``. ``EQSAT_MAX_PROGRAMS`` is none of one function: how many programs
    all functions of the process keep (4096), those that were called last.
    Raises :class:`OptionError` for values out of range.
    """

    numerics: str = field(default_factory=lambda: _env("EQSAT_NUMERICS", "reassociate"))
    deadline_s: float = field(default_factory=lambda: _env("EQSAT_DEADLINE_S", 2.0))
    max_nodes: int = field(default_factory=lambda: _env("EQSAT_MAX_NODES", 40_000))
    extract: str = "greedy"
    regions: bool = True
    fusion: bool = True
    disable: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset(KINDS)
    least_elements: int = 0
    threads: int = field(default_factory=lambda: _env("EQSAT_THREADS", 0))
    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("numerics", self.numerics, NUMERICS)
        _one_of("extract", self.extract, EXTRACTORS)
        for name, what in (("disable", "rule names"), ("kinds", "kinds of kernels")):
            value = getattr(self, name)
            if isinstance(value, str):
                raise OptionError(
                    f"{name}={value!r}: expected a set of {what}, got a string"
                )
            object.__setattr__(self, name, frozenset(value))
        for kind in sorted(self.kinds):
            _one_of("kinds", kind, KINDS)
        if not isinstance(self.threads, int):
            raise OptionError(f"threads={self.threads!r}: expected a whole number")
        for name in ("deadline_s", "max_nodes", "least_elements", "threads"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not value >= 0
            ):
                raise OptionError(
                    f"{name}={value!r}: expected a number that is not negative"
                )
        for f in fields(self):
            if f.name in ("regions", "fusion") and not isinstance(
                getattr(self, f.name), bool
            ):
                raise OptionError(
                    f"{f.name}={getattr(self, f.name)!r}: expected True or False"
                )

    def for_backend(self, name: str) -> Options:
        """These options with what differs for the backend ``name``.

        Raises :class:`OptionError` for a field that does not exist.
        """
        changes = self.backends.get(name)
        if not changes:
            return self
        known = {f.name for f in fields(self)} - {"backends"}
        for key in changes:
            if key not in known:
                raise OptionError(
                    f"backends[{name!r}]: no option {key!r}; there are "
                    f"{', '.join(sorted(known))}"
                )
        return replace(self, backends={}, **changes)

    def admits(self, numerics: str) -> bool:
        """Whether rules of class ``numerics`` are used; ``approximate(1e-6)`` counts by
        its name."""
        name = numerics.split("(")[0]
        return NUMERICS.index(name) <= NUMERICS.index(self.numerics)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(
            f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}"
        )
