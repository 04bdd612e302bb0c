"""Sets of rules, and the files that they are loaded from."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

from eqsat.rulelang.broken import BrokenRule, built, setting_aside
from eqsat.rulelang.condition import LEAF_FACTS
from eqsat.rulelang.egg_file import rule_of
from eqsat.rulelang.egg_parser import Rewrite, parse, wrong
from eqsat.rulelang.egg_schema import constructors
from eqsat.rulelang.recognition import is_recognised, recognition, same_body, same_op
from eqsat.rulelang.rule import PHASES, Rule, listing_rules
from eqsat.support import RuleError, cached_property, nearest
from eqsat.terms import BySignature, Op, listing_ops


@dataclass(frozen=True)
class RuleSet:
    """Rules in order, with unique names. ``+`` joins two sets.

    So are the names of the ops that their files define. Of two composites that are one
    definition the first is kept."""

    rules: tuple[Rule, ...] = ()
    broken: tuple[BrokenRule, ...] = ()
    """Rules of the same files that cannot be built."""
    ops: tuple[Op, ...] = ()
    """Ops that the same files define."""
    _by_name: dict[str, Rule] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        kept = []
        for r in self.rules:
            other = self._by_name.setdefault(r.name, r)
            if other is r:
                kept.append(r)
            elif not same_body(other, r):
                raise RuleError(
                    f"{r.place}: rule {r.name!r} is already defined at {other.place}"
                )
        object.__setattr__(self, "rules", tuple(kept))
        object.__setattr__(self, "ops", _unique_ops(self.ops))

    def __repr__(self) -> str:
        broken = f", {len(self.broken)} broken" if self.broken else ""
        return f"<RuleSet of {len(self.rules)} rules{broken}>"

    @cached_property
    def asked(self) -> frozenset[str]:
        """Which facts of leaves its rules ask of constant arrays."""
        facts = (f for r in self.rules if r.where is not None for f in r.facts)
        texts = " ".join(f.text for f in facts if f.reads_constants)
        return frozenset(name for name in LEAF_FACTS if f"({name} {{" in texts)

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
        if not isinstance(other, RuleSet):
            return RuleSet((*self.rules, *more), self.broken, self.ops)
        broken, ops = (*self.broken, *other.broken), (*self.ops, *other.ops)
        return RuleSet((*self.rules, *more), broken, ops)


def _unique_ops(ops: Iterable[Op]) -> tuple[Op, ...]:
    """``ops`` of different names. Raises :class:`RuleError` for one whose name another
    definition has."""
    kept: dict[str, Op] = {}
    for op in ops:
        other = kept.setdefault(op.name, op)
        if op.fold is None and not same_op(other, op):  # its reduction tells
            _refuse_second(op, other)
    return tuple(kept.values())


def _refuse_second(op: Op, other: Op, file: str = "") -> NoReturn:
    """Raise :class:`RuleError` for ``op``, made in ``file``, whose name ``other``
    has."""
    at, line = op.place
    place = f"{at}:{line}" if at else file or op.home
    raise RuleError(f"{place}: op {op.name!r} is already defined {other.whereabouts}")


def load_rules(*paths: str | Path) -> RuleSet:
    """The rules of the files ``paths``, in order; a folder stands for its ``*.py`` and
    ``*.egg`` files.

    A Python file is run as a module of its own, and the body of a composite that it
    defines is a rule of it too; an ``.egg`` file holds rewrites as egglog text.
    A rule that cannot be built is set aside, in ``broken`` of the set; a
    :class:`RuleWarning` on its line says why. Raises :class:`RuleError` that names
    the file when it is missing, cannot be read, or holds no rule that works, and where
    two rules or two ops have one name, unless they are one composite; nothing is kept
    of a file that fails."""
    ops, modules = dict(Op.registry), set(sys.modules)
    try:
        files = [_load_file(f) for f in _files(paths)]
        loaded = RuleSet(
            tuple(r for rules, _ in files for r in rules),
            tuple(b for _, broken in files for b in broken),
            tuple(op for n, op in Op.registry.items() if _is_new(op, ops.get(n))),
        )
        for b in loaded.broken:
            b.warn()
        return loaded
    except BaseException:
        Op.registry.clear()
        Op.registry.update(ops)
        for name in set(sys.modules) - modules:
            if name.startswith(_MODULE):
                del sys.modules[name]
        raise


_MODULE = "eqsat_rules_"
"""How the names of modules begin that rule files are run as."""


_SUFFIXES = (".py", ".egg")


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in paths:
        p = Path(path)
        if p.is_dir():
            files = (f for f in p.iterdir() if f.suffix in _SUFFIXES and f.is_file())
            yield from sorted(f for f in files if f.name != "__init__.py")
        elif p.exists():
            yield p
        else:
            raise RuleError(
                f"rule file {str(path)!r} does not exist (working folder {Path.cwd()})"
            )


def _is_new(op: Op, before: Op | None) -> bool:
    """Whether a rule file has defined ``op``."""
    where = op.body or op.reference
    names = [
        where.__module__,
        *(own.function.__module__ for own in op.lowerings.values()),
    ]
    return op is not before and any(str(n).startswith(_MODULE) for n in names)


def _is_more_than_its_body(op: Op) -> bool:
    """Whether its author says of an op what a check can compare with something else."""
    by_body = op.body is not None and isinstance(op.type_rule, BySignature)
    return not by_body or bool(op.lowerings) or isinstance(op.vjp, tuple)


def _load_file(path: Path) -> tuple[list[Rule], list[BrokenRule]]:
    """The rules of a file, and those that cannot be built."""
    if path.suffix not in _SUFFIXES:
        raise RuleError(f"rule file {str(path)!r}: expected a .py or an .egg file")
    known = dict(Op.registry)
    with setting_aside() as aside, listing_ops() as made:
        rules = _load_egg(path) if path.suffix == ".egg" else _load_python(path)
    _refuse_second_ops(made, known, str(path.absolute()))
    sound = [r for r in rules if isinstance(r, Rule)]
    new = [o for n, o in Op.registry.items() if _is_new(o, known.get(n))]
    own = any(map(_is_more_than_its_body, new))
    if not sound and not aside and not own:
        raise RuleError(f"rule file {str(path)!r} defines no rule")
    if not sound and aside:
        raise RuleError(aside[0].reason)
    return sound, aside


def _refuse_second_ops(made: Sequence[Op], known: Mapping[str, Op], file: str) -> None:
    """Raise :class:`RuleError` for the first op of a file that has the name of another
    one, of the file or ``known`` before. A file that is read again may change its
    ops."""
    names: dict[str, Op] = {}
    for op in made:
        if op.fold is not None:  # its reduction tells
            continue
        other = names.get(op.name) or known.get(op.name)
        again = op.name not in names and (other is None or other.home == op.home)
        if other is not None and not again and not same_op(other, op):
            _refuse_second(op, other, file)
        names[op.name] = op


def _load_egg(path: Path) -> list[Rule | BrokenRule]:
    """The rules of egglog text. One without ``:name`` is called by its place."""
    file = str(path.absolute())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"rule file {str(path)!r}: expected UTF-8: {error}") from error
    ops = constructors()
    rules: list[Rule | BrokenRule] = []
    lines: set[int] = set()
    for command in parse(file, text):
        place, ruleset = command.place, command.ruleset
        if ruleset not in ("", *PHASES):
            at = command.options.get(":ruleset", place)
            phases = ", ".join(PHASES)
            raise wrong(file, at, f"ruleset {ruleset!r}, expected one of {phases}")
        if isinstance(command, Rewrite):
            name = f"{path.stem}:{place.line}"
            if place.line in lines:
                name += f":{place.column}"
            lines.add(place.line)
            name = command.name or name
            make = partial(rule_of, file, name, command, ops)
            rules.append(built(make, name, file, *place))
    return rules


_YOUNG_S = 2.0
"""Python tells byte code that it has kept from the text by whole seconds and length:
a file that has just changed is compiled from its text."""


class _TextLoader(SourceFileLoader):
    """Compiles the text as it stands, and keeps nothing."""

    def get_code(self, fullname: str) -> types.CodeType:
        code: types.CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _load_python(path: Path) -> list[Rule | BrokenRule]:
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"{_MODULE}{path.stem}_{digest}"
    young = time.time() - path.stat().st_mtime < _YOUNG_S
    loader = _TextLoader(name, str(path.absolute())) if young else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with listing_rules() as made:
            spec.loader.exec_module(module)
    except RuleError:
        raise
    except Exception as error:
        line = caller_line_of(error, str(spec.origin))
        raise RuleError(f"{path}:{line}: {type(error).__name__}: {error}") from error
    values = list(vars(module).values())
    own = [rule for module_name, rule in made if module_name == name]
    named = collect(values)
    rebound = [r for r in own if r not in named]  # whose names mean other rules now
    found: list[Rule | BrokenRule] = [*rebound, *named]
    for op in defined_ops(values, name):
        if is_recognised(op):
            body = built(partial(recognition, op), op.name, *op.place)
            found += body if isinstance(body, list) else [body]
    return found


def defined_ops(values: Iterable[Any], module: str) -> list[Op]:
    """The ops among ``values`` that ``module`` defines, each once."""
    ops = dict.fromkeys(v for v in values if isinstance(v, Op))
    return [op for op in ops if op.reference.__module__ == module]


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
