"""The pytest plugin: rule files as tests, one a rule.

    pytest my_rules.py --eqsat

or the setting ``eqsat_rules``, patterns of paths below the root folder. It is installed
as the package ``eqsat_pytest`` of its own, and imports nothing of eqsat before a rule
file is collected: pytest loads it in every project.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eqsat.checking import Finding
    from eqsat.rulelang import Rule

_RULES = re.compile(r"^\s*@(\w+\.)?rule\(|^.*\brule\(.*\)\(", re.MULTILINE)
"""What the text of a rule file has: ``@rule(…)``, or ``rule(…)(sides)``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("eqsat", "rules of eqsat")
    group.addoption(
        "--eqsat",
        action="store_true",
        help="collect rule files, one test a rule: Python files that are no test "
        "modules and hold rules",
    )
    group.addoption(
        "--eqsat-examples",
        type=int,
        metavar="N",
        help="cases drawn for each rule (default: the setting eqsat_examples, or 100)",
    )
    group.addoption(
        "--eqsat-seed", type=int, default=0, metavar="N", help="which cases are drawn"
    )
    parser.addini(
        "eqsat_rules",
        "patterns of rule files, such as my_rules.py or rules/*.py: collected without "
        "--eqsat too",
        type="linelist",
    )
    parser.addini("eqsat_examples", "cases drawn for each rule", default="100")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """A rule file gives its rules alone; what else would collect it is left out."""
    found = yield
    if not _is_rule_file(file_path, parent.config):
        return found
    others = [c for c in found if not isinstance(c, pytest.Module)]
    return [*others, RuleFile.from_parent(parent, path=file_path)]


def _is_rule_file(path: Path, config: pytest.Config) -> bool:
    if path.suffix != ".py":
        return False
    patterns = config.getini("eqsat_rules")
    if any(_matches(path, config.rootpath, p) for p in patterns):
        return True
    if not config.getoption("--eqsat") or path.name in ("__init__.py", "conftest.py"):
        return False
    if any(path.match(p) for p in config.getini("python_files")):
        return False
    return _RULES.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def _matches(path: Path, root: Path, pattern: str) -> bool:
    return path.is_relative_to(root) and path.relative_to(root).match(pattern)


class RuleFile(pytest.File):
    """A file of rules, a test each."""

    def collect(self) -> Iterator[RuleItem]:
        from eqsat.rulelang import load_rules
        from eqsat.support import RuleError

        try:
            rules = load_rules(self.path)
        except RuleError as error:
            raise self.CollectError(str(error)) from error
        for rule in rules:
            yield RuleItem.from_parent(self, name=rule.name, rule=rule)


class RuleRefused(Exception):
    """What the check of a rule found against it."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


class RuleItem(pytest.Item):
    """The check of one rule against its numerics class (:func:`eqsat.check`)."""

    def __init__(self, *, rule: Rule, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rule = rule

    def runtest(self) -> None:
        from eqsat.checking import check
        from eqsat.support import counted

        given = self.config.getoption("--eqsat-examples")
        examples = int(self.config.getini("eqsat_examples")) if given is None else given
        seed = self.config.getoption("--eqsat-seed")
        (finding,) = check(self.rule, examples=examples, seed=seed)
        self.add_report_section("call", "eqsat", counted(finding.examples, "case"))
        if finding.verdict == "refused":
            raise RuleRefused(finding)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The reason and the smallest counterexample, without a traceback."""
        if not isinstance(excinfo.value, RuleRefused):
            return super().repr_failure(excinfo, style)
        finding = excinfo.value.finding
        lines = [f"{finding.file}:{finding.line}: rule {finding.rule!r}"]
        lines += [self.rule.doc, "", f"{finding.numerics}: {finding.reason}"]
        return "\n".join([*lines, "", finding.counterexample]).rstrip()

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.rule.line - 1, f"rule {self.name}"
