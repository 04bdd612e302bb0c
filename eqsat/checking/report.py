"""What the check of rules found: data, and the table that a terminal shows."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.support import RuleError, as_html, counted

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Lint:
    """A warning about a rule."""

    kind: str
    """``dead``, ``duplicate``, ``derivable``, ``growth``; of an op ``not run``."""
    text: str
    """One sentence."""
    rules: tuple[str, ...] = ()
    """The other rules that it is about."""


@dataclass(frozen=True)
class Finding:
    """What the check of one rule found."""

    rule: str
    file: str
    line: int
    numerics: str
    """The class declared, or inferred where none was."""
    verdict: str
    """``refused``: a counterexample was found, or the rule can never help. ``proved``:
    an identity of real numbers that passes all tests. ``tested``: it passes them."""
    examples: int
    """Cases in which the left side was defined."""
    worst_ulp: float
    """The largest difference of the sides met, in units in the last place."""
    reason: str = ""
    """Why the rule is refused."""
    counterexample: str = ""
    """Python code that shows it; empty where the fault is none of values."""
    column: int = 0
    """Where the rule starts in its line, from 1; 0 for rules in Python."""
    error_probability: float | None = None
    """How likely it is at most that a proved rule is no identity: 0 where its sides are
    the same term. None for a rule that is not proved."""
    proved_for: tuple[str, ...] = ()
    """The shapes that the proof covers."""
    lints: tuple[Lint, ...] = ()
    """What else there is to say of it."""
    reached: tuple[str, ...] = ()
    """The classes of arguments that cases were in."""
    unreached: tuple[str, ...] = ()
    """Classes that the rule admits and no case was in: they forbid ``proved``."""
    outside: tuple[str, ...] = ()
    """Classes that the conditions or the left side of the rule leave out."""

    kind: str = "rule"
    """``rule``, or ``op`` for the kernels and derivatives of an op."""

    @property
    def place(self) -> str:
        """``file:line``, and the column where it is known."""
        place = f"{self.file}:{self.line}"
        return f"{place}:{self.column}" if self.column else place


@dataclass(frozen=True)
class Report:
    """The findings, a rule each. ``str()`` is a table."""

    findings: tuple[Finding, ...]

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The rules that are wrong."""
        return tuple(f for f in self.findings if f.verdict == "refused")

    @property
    def lints(self) -> tuple[tuple[Finding, Lint], ...]:
        """Every warning, with what was found of its rule."""
        return tuple((f, lint) for f in self.findings for lint in f.lints)

    @property
    def ok(self) -> bool:
        """Whether no rule is refused."""
        return not self.refused

    def __getitem__(self, rule: str) -> Finding:
        for f in self.findings:
            if f.rule == rule:
                return f
        raise RuleError(f"no rule {rule!r} in this report")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def to_json(self) -> str:
        """``{"rules": [{"rule", "file", "line", "numerics", "verdict", …}]}``: the
        fields of :class:`Finding`, an infinite ``worst_ulp`` as null."""
        rows = [asdict(f) for f in self.findings]
        for row in rows:
            if row["worst_ulp"] == float("inf"):
                row["worst_ulp"] = None
        return json.dumps({"rules": rows}, indent=2)

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return as_html(str(self))


def text(report: Report) -> str:
    """The table, 100 columns wide, without colours."""
    from rich.console import Console

    out = io.StringIO()
    show(report, Console(file=out, width=100))
    return out.getvalue().rstrip()


def show(report: Report, console: Console) -> None:
    """Print the table, then every counterexample, then the warnings and the counts."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("rule", overflow="fold", min_width=18)
    table.add_column("where", overflow="fold")
    table.add_column("numerics", no_wrap=True)
    table.add_column("worst ulp", justify="right")
    table.add_column("examples", justify="right")
    table.add_column("verdict", no_wrap=True)
    for f in report:
        error = _below(f.error_probability)
        table.add_row(
            f.rule.replace("[", r"\["),
            Path(f.place).name,
            f.numerics,
            f"{f.worst_ulp:.3g}",
            str(f.examples),
            f"[{COLOURS[f.verdict]}]{f.verdict}[/]{error and ' ' + error}",
        )
    console.print(table)
    for f in report.refused:
        why = f"\n{f.place}: {f.kind} {f.rule!r}: {f.reason}"
        console.print(why, markup=False, soft_wrap=True)
        if f.counterexample:
            code = f.counterexample
            console.print(code, markup=False, highlight=False, soft_wrap=True)
    for f in report:
        if f.unreached:
            why = f"{f.place}: rule {f.rule!r}: not drawn: {', '.join(f.unreached)}"
            console.print(f"\n{why}", markup=False, soft_wrap=True)
    warnings = [(f, lint) for f, lint in report.lints if f.verdict != "refused"]
    if warnings:
        console.print()
    for f, lint in warnings:
        text = f"{f.place}: {f.kind} {f.rule!r}: {lint.kind}: {lint.text}"
        console.print(text, markup=False, soft_wrap=True)
    console.print(f"\n{_counts(report, len(warnings))}", markup=False)


COLOURS = {"proved": "green", "tested": "cyan", "refused": "red"}


def _below(probability: float | None) -> str:
    """A bound as a power of ten."""
    if probability is None:
        return ""
    return f"<1e{math.floor(math.log10(probability)) + 1}" if probability else "0"


def _counts(report: Report, warnings: int) -> str:
    verdicts = [f.verdict for f in report]
    words = [f"{verdicts.count(v)} {v}" for v in COLOURS]
    more = f", {counted(warnings, 'warning')}" if warnings else ""
    ops = sum(f.kind == "op" for f in report)
    what = counted(len(verdicts) - ops, "rule")
    what += f" and {counted(ops, 'op')}" if ops else ""
    return f"{what}: {', '.join(words)}{more}"


def with_bar(run: Callable[[Callable[[Finding], None]], Report], steps: int) -> Report:
    """``run`` with a progress bar on standard error. It calls back ``steps`` times."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking rules", total=steps)

        def step(finding: Finding) -> None:
            bar.update(task, advance=1, description=finding.rule.replace("[", r"\["))

        return run(step)
