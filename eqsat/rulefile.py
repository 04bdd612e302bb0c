"""Sets of rules, and the files that they are loaded from."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.errors import RuleError, nearest
from eqsat.op import Op
from eqsat.recognition import is_recognised, recognition
from eqsat.rule import Rule


@dataclass(frozen=True)
class RuleSet:
    """Rules in order, with unique names. ``+`` joins two sets."""

    rules: tuple[Rule, ...] = ()
    _by_name: dict[str, Rule] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for r in self.rules:
            other = self._by_name.setdefault(r.name, r)
            if other is not r:
                raise RuleError(
                    f"{r.place}: rule {r.name!r} is already defined at {other.place}"
                )

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, name: str) -> Rule:
        try:
            return self._by_name[name]
        except KeyError:
            raise RuleError(f"no rule {name!r}{nearest(name, self._by_name)}") from None

    def __add__(self, other: RuleSet | Iterable[Rule]) -> RuleSet:
        more = [r for r in other if self._by_name.get(r.name) is not r]
        return RuleSet((*self.rules, *more))


def load_rules(*paths: str | Path) -> RuleSet:
    """The rules of Python files, in order; a folder stands for its ``*.py`` files.

    The body of a composite that a file defines is a rule of the file too. Each file is
    run as a module of its own. Raises :class:`RuleError` that names the file when it is
    missing, cannot be read, or holds no rule; nothing is kept of a file that fails.
    """
    ops, modules = dict(Op.registry), set(sys.modules)
    try:
        return RuleSet(tuple(r for f in _files(paths) for r in _load_file(f)))
    except BaseException:
        Op.registry.clear()
        Op.registry.update(ops)
        for name in set(sys.modules) - modules:
            if name.startswith(_MODULE):
                del sys.modules[name]
        raise


_MODULE = "eqsat_rules_"
"""How the names of modules begin that rule files are run as."""


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in paths:
        p = Path(path)
        if p.is_dir():
            yield from sorted(f for f in p.glob("*.py") if f.name != "__init__.py")
        elif p.exists():
            yield p
        else:
            raise RuleError(
                f"rule file {str(path)!r} does not exist (working folder {Path.cwd()})"
            )


def _load_file(path: Path) -> list[Rule]:
    if path.suffix != ".py":
        raise RuleError(f"rule file {str(path)!r}: expected a .py file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"{_MODULE}{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except RuleError:
        raise
    except Exception as error:
        line = caller_line_of(error, str(spec.origin))
        raise RuleError(f"{path}:{line}: {type(error).__name__}: {error}") from error
    values = list(vars(module).values())
    found = collect(values)
    for op in dict.fromkeys(v for v in values if isinstance(v, Op)):
        if is_recognised(op) and op.reference.__module__ == name:
            found += recognition(op)
    if not found:
        raise RuleError(f"rule file {str(path)!r} defines no rule")
    return found


def collect(values: Iterable[Any]) -> list[Rule]:
    """Rules among ``values``, looking into lists and tuples."""
    found: list[Rule] = []
    for v in values:
        if isinstance(v, Rule):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found += [r for r in v if isinstance(r, Rule)]
    return list(dict.fromkeys(found))


def caller_line_of(error: BaseException, file: str) -> int:
    """The line of ``file`` that ``error`` came through last."""
    line = getattr(error, "lineno", None) or 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return int(line)
