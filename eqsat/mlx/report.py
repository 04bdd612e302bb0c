"""What stays in MLX, for people who ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.support import counted, log_fallback


class MLXFallback(NamedTuple):
    """Primitives that stay in MLX."""

    op: str
    reason: str
    times: int = 1
    """How often it stands in graphs."""


@dataclass(frozen=True)
class MLXReport:
    """What of a function runs where, for the signatures it was called with."""

    programs: int
    """Programs of eqsat."""
    primitives: int
    """Primitives of MLX in these programs."""
    fallbacks: tuple[MLXFallback, ...]
    """What stays in MLX."""

    def __str__(self) -> str:
        lines = [
            f"{counted(self.primitives, 'primitive')} in "
            f"{counted(self.programs, 'program')} of eqsat"
        ]
        lines += [f"MLX: {f.times} × {f.op}: {f.reason}" for f in self.fallbacks]
        return "\n".join(lines)


def grouped(stayed: Iterable[tuple[str, str]]) -> tuple[MLXFallback, ...]:
    """What stays in MLX, by primitive and reason."""
    return tuple(MLXFallback(*key, n) for key, n in Counter(stayed).items())


def log(fallbacks: Iterable[MLXFallback]) -> None:
    """Tell the logger ``eqsat`` what stays in MLX."""
    for f in fallbacks:
        log_fallback("mlx", f.op, "a primitive of MLX", f.reason)
