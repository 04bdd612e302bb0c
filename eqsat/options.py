"""Options of one optimisation, and the ``EQSAT_*`` environment variables that set their
defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from eqsat.errors import OptionError

NUMERICS = ("exact", "reassociate", "approximate")
"""Numerics classes, from the strictest: an option admits its class and those before it.
"""
EXTRACTORS = ("greedy", "exact")


def _env(name: str, default: Any) -> Any:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return type(default)(text)
    except ValueError:
        raise OptionError(
            f"{name}={text!r}: expected a {type(default).__name__}"
        ) from None


@dataclass(frozen=True)
class Options:
    """Settings of one optimisation.

    ``numerics``: the loosest class of rules to use (``exact``, ``reassociate``,
    ``approximate``). ``deadline_s``: seconds for saturation and extraction together;
    the best program found by then is returned. ``max_nodes``: size of one e-graph
    (e-nodes). ``extract``: ``greedy`` or ``exact`` (an integer program, for small
    graphs). ``regions``: split long programs and optimise each distinct piece once.
    ``fusion``: use the named fusions. ``disable``: names of rules to leave out.

    Environment: ``EQSAT_DEADLINE_S``, ``EQSAT_MAX_NODES``, ``EQSAT_NUMERICS``.
    Raises :class:`OptionError` for values out of range.
    """

    numerics: str = field(default_factory=lambda: _env("EQSAT_NUMERICS", "reassociate"))
    deadline_s: float = field(default_factory=lambda: _env("EQSAT_DEADLINE_S", 2.0))
    max_nodes: int = field(default_factory=lambda: _env("EQSAT_MAX_NODES", 40_000))
    extract: str = "greedy"
    regions: bool = True
    fusion: bool = True
    disable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _one_of("numerics", self.numerics, NUMERICS)
        _one_of("extract", self.extract, EXTRACTORS)
        if isinstance(self.disable, str):
            raise OptionError(
                f"disable={self.disable!r}: expected a set of rule names, got a string"
            )
        object.__setattr__(self, "disable", frozenset(self.disable))
        for name in ("deadline_s", "max_nodes"):
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
