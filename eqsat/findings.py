"""What the check of rules found: data, and the table that a terminal shows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.errors import RuleError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Finding:
    """What the check of one rule found."""

    rule: str
    file: str
    line: int
    numerics: str
    """The class declared, or inferred where none was."""
    verdict: str
    """``tested`` or ``refused``."""
    examples: int
    """Cases in which the left side was defined."""
    worst_ulp: float
    """The largest difference of the sides met, in units in the last place."""
    reason: str = ""
    """Why the rule is refused."""
    counterexample: str = ""
    """Python code that shows it."""
    column: int = 0
    """Where the rule starts in its line, from 1; 0 for rules in Python."""

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
        """``{"rules": [{"rule", "file", "line", "numerics", "verdict", …}]}``."""
        rows = [asdict(f) for f in self.findings]
        for row in rows:
            if row["worst_ulp"] == float("inf"):
                row["worst_ulp"] = None
        return json.dumps({"rules": rows}, indent=2)

    def __str__(self) -> str:
        return text(self)


def text(report: Report) -> str:
    """The table, 100 columns wide, without colours."""
    from rich.console import Console

    out = io.StringIO()
    show(report, Console(file=out, width=100))
    return out.getvalue().rstrip()


def show(report: Report, console: Console) -> None:
    """Print the table, then every counterexample."""
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("rule", overflow="fold")
    table.add_column("where", no_wrap=True)
    table.add_column("numerics")
    table.add_column("worst ulp", justify="right")
    table.add_column("examples", justify="right")
    table.add_column("verdict")
    for f in report:
        colour = "red" if f.verdict == "refused" else "green"
        table.add_row(
            f.rule.replace("[", r"\["),
            Path(f.place).name,
            f.numerics,
            f"{f.worst_ulp:.3g}",
            str(f.examples),
            f"[{colour}]{f.verdict}[/]",
        )
    console.print(table)
    for f in report.refused:
        console.print(f"\n{f.place}: rule {f.rule!r}: {f.reason}", markup=False)
        console.print(f.counterexample, markup=False, highlight=False, soft_wrap=True)
    count = len(report.findings)
    console.print(f"\n{count} rules, {len(report.refused)} refused", markup=False)


def with_bar(run: Callable[[Callable[[Finding], None]], Report], total: int) -> Report:
    """``run`` with a progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking rules", total=total)

        def step(finding: Finding) -> None:
            bar.update(task, advance=1, description=finding.rule.replace("[", r"\["))

        return run(step)
