"""What an optimisation did: data first, a table second."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.cost import CostModel
from eqsat.errors import EqsatError, SourceLine
from eqsat.kernel import Kernel, inner
from eqsat.optimise import Optimised
from eqsat.program import Program, show_bytes
from eqsat.rulefile import RuleSet


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of the chosen program."""

    name: str
    kind: str
    ops: tuple[str, ...]
    """Primitive operations of its body, in order."""
    rules: tuple[str, ...]
    """Rules that built it; empty when the user wrote it."""
    cost_s: float
    """Estimated seconds."""
    flops: float
    """Floating operations (flop)."""
    bytes: int
    """Bytes read and written."""
    lines: tuple[SourceLine, ...]
    """The user's lines whose work it does."""


@dataclass(frozen=True)
class RuleInfo:
    """What one rule did."""

    fired: int
    """Matches, over all e-graph iterations."""
    in_winner: int
    """Nodes of the chosen program that it built."""


@dataclass(frozen=True)
class Explanation:
    """The chosen program beside the one that the user wrote, and how it was found.

    Costs are estimates of the cost model in seconds; ``baseline`` is the traced
    function with one kernel an operation.
    """

    kernels: tuple[KernelInfo, ...]
    rules: Mapping[str, RuleInfo]
    cost_s: float
    baseline_cost_s: float
    baseline_kernels: int
    peak_bytes: int
    """Most memory of intermediates and results at once, as planned (bytes)."""
    baseline_peak_bytes: int
    phases_s: Mapping[str, float]
    """Seconds of each phase of the compilation."""
    classes: int
    """E-classes after saturation."""
    nodes: int
    """E-nodes after saturation."""
    regions: int
    distinct_regions: int
    optimal_gap: float | None = None
    """Exact extraction: the relative distance to the proven bound."""
    cut_short: str = ""
    """Which budget ran out, if one did; the program is correct all the same."""
    _places: Mapping[str, str] = field(default_factory=dict, repr=False)

    def why(self, kernel: str) -> str:
        """How a kernel came about: its rules with file and line, and the user's lines.

        Raises :class:`EqsatError` when there is no kernel of that name.
        """
        for k in self.kernels:
            if k.name == kernel:
                break
        else:
            names = ", ".join(k.name for k in self.kernels)
            raise EqsatError(f"no kernel {kernel!r}; there are {names}")
        lines = [f"{k.name}: {' '.join(k.ops)}"]
        lines += [f"  rule {r}  {self._places.get(r, '')}".rstrip() for r in k.rules]
        if not k.rules:
            lines.append("  as written")
        lines += [f"  line {s}  {s.text}".rstrip() for s in k.lines]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(self.record(), indent=1)

    def record(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings."""
        return {
            "kernels": [
                {
                    "name": k.name,
                    "kind": k.kind,
                    "ops": list(k.ops),
                    "rules": list(k.rules),
                    "cost_s": k.cost_s,
                    "flops": k.flops,
                    "bytes": k.bytes,
                    "lines": [str(s) for s in k.lines],
                }
                for k in self.kernels
            ],
            "rules": {
                n: {"fired": r.fired, "in_winner": r.in_winner}
                for n, r in self.rules.items()
            },
            "cost_s": self.cost_s,
            "baseline_cost_s": self.baseline_cost_s,
            "baseline_kernels": self.baseline_kernels,
            "peak_bytes": self.peak_bytes,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "phases_s": dict(self.phases_s),
            "classes": self.classes,
            "nodes": self.nodes,
            "regions": self.regions,
            "distinct_regions": self.distinct_regions,
            "optimal_gap": self.optimal_gap,
            "cut_short": self.cut_short,
        }

    def __str__(self) -> str:
        rows = [("kernel", "kind", "µs", "Mflop", "moved", "rules")]
        for k in self.kernels:
            rows.append(
                (
                    k.name,
                    k.kind,
                    f"{k.cost_s * 1e6:.1f}",
                    f"{k.flops / 1e6:.1f}",
                    show_bytes(k.bytes),
                    " ← ".join(k.rules) or "as written",
                )
            )
        wide = [max(len(r[i]) for r in rows) for i in range(5)]
        table = [
            "  ".join(
                (*(c.ljust(w) for c, w in zip(r, wide, strict=False)), r[5])
            ).rstrip()
            for r in rows
        ]
        saved = self.baseline_cost_s / self.cost_s if self.cost_s else 1.0
        table.append(
            f"{len(self.kernels)} kernels, {self.cost_s * 1e6:.1f} µs estimated; as "
            f"written "
            f"{self.baseline_kernels} kernels, {self.baseline_cost_s * 1e6:.1f} µs "
            f"({saved:.2f} times as much)"
        )
        table.append(
            f"peak memory {show_bytes(self.peak_bytes)}; as written "
            f"{show_bytes(self.baseline_peak_bytes)}"
        )
        table.append(
            f"compiled in {sum(self.phases_s.values()) * 1e3:.0f} ms: "
            + ", ".join(f"{n} {s * 1e3:.0f}" for n, s in self.phases_s.items())
        )
        if self.cut_short:
            table.append(f"cut short: {self.cut_short}; a cheaper program may exist")
        return "\n".join(table)


def explain(
    done: Optimised,
    program: Program,
    baseline: Program,
    rules: RuleSet,
    model: CostModel,
) -> Explanation:
    """The explanation of one optimisation, lowered as ``program``."""
    won: dict[str, int] = {}
    for origin in done.origins.values():
        for name in origin.rules:
            won[name] = won.get(name, 0) + 1
    known = {r.name: r.place for r in rules}
    return Explanation(
        kernels=tuple(_kernel_info(k, done, model) for k in program.kernels),
        rules={
            name: RuleInfo(fired, won.get(name, 0))
            for name, fired in sorted(done.fired.items())
        },
        cost_s=done.cost_s,
        baseline_cost_s=done.baseline_cost_s,
        baseline_kernels=len(baseline.kernels),
        peak_bytes=program.peak_bytes,
        baseline_peak_bytes=baseline.naive_peak_bytes,
        phases_s=dict(done.phases_s),
        classes=done.classes,
        nodes=done.nodes,
        regions=done.regions,
        distinct_regions=done.distinct_regions,
        optimal_gap=done.optimal_gap,
        cut_short=done.cut_short,
        _places=known,
    )


def _kernel_info(kernel: Kernel, done: Optimised, model: CostModel) -> KernelInfo:
    origin = done.origins.get(kernel.term)
    body: Sequence[Any] = inner(kernel.body, kernel.term.args)
    return KernelInfo(
        name=kernel.name,
        kind=kernel.kind,
        ops=tuple(t.op.name for t in body),
        rules=origin.rules if origin else (),
        cost_s=model.term(kernel.term),
        flops=kernel.flops,
        bytes=kernel.bytes,
        lines=origin.lines if origin else (),
    )
