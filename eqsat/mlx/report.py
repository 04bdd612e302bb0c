"""What stays in MLX, for people who ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.support import log_fallback


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
        lines = [f"{self.primitives} primitives in {self.programs} programs of eqsat"]
        lines += [f"MLX: {f.times} × {f.op}: {f.reason}" for f in self.fallbacks]
        return "\n".join(lines)


def counted(stayed: Iterable[tuple[str, str]]) -> tuple[MLXFallback, ...]:
    """What stays in MLX, by primitive and reason; the log says each once."""
    counts = Counter(stayed)
    for op, reason in counts:
        log_fallback("mlx", op, "a primitive of MLX", reason)
    return tuple(MLXFallback(*key, n) for key, n in counts.items())
