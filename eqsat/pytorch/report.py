"""What stays in PyTorch, for people who ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from eqsat.pytorch.plan import TorchFallback
from eqsat.support import counted, log_fallback

_NOTED: Counter[tuple[str, str]] = Counter()


@dataclass(frozen=True)
class TorchReport:
    """What of a graph runs where."""

    programs: int
    """Programs of eqsat."""
    operators: int
    """Operators of ATen in these programs. Views that they make are not counted."""
    fallbacks: tuple[TorchFallback, ...]
    """What stays in PyTorch."""

    def __str__(self) -> str:
        lines = [
            f"{counted(self.operators, 'operator')} in "
            f"{counted(self.programs, 'program')} of eqsat"
        ]
        lines += [f"PyTorch: {f.times} × {f.op}: {f.reason}" for f in self.fallbacks]
        return "\n".join(lines)


def note(fallbacks: Iterable[TorchFallback]) -> None:
    """Keep and log what stays in PyTorch."""
    for f in fallbacks:
        if (f.op, f.reason) not in _NOTED:
            log_fallback("torch", f.op, "an operator of PyTorch", f.reason)
        _NOTED[f.op, f.reason] += f.times


def noted() -> list[TorchFallback]:
    """All that was kept, the most frequent first."""
    return [TorchFallback(op, reason, n) for (op, reason), n in _NOTED.most_common()]


def forget() -> None:
    """Keep nothing of what was noted."""
    _NOTED.clear()
