"""Data flows one way: no module imports one that stands after it in the line."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ORDER = (
    "errors folders options cache term signature typerule viewrule promote op define "
    "build ops limits indexing numpy_api views selected writing tree tracer arguments "
    "trace body portable expand target domain cost kernel memory program backend "
    "pattern patternmatch binding condition rule recognition encode ruletext engine "
    "eggtext eggfile rulefile stock normal frozen insertion warm reading egraph "
    "ematch portions regions problem reduction recovery frontier window extract loops "
    "exact dense cuts hurry joint cover second opportunity origin readable facts "
    "nearest derivation forced stacked optimise whynot explain "
    "store calibrate lowered jit reverse grad recording lazy fusing "
    "sides instantiate ball perturbation propagate bounds samples drawing verdict "
    "shrink field meaning proof probe findings lint check . testing demo cli __main__ "
    "pytest_plugin"
).split()
"""Modules of eqsat, the earliest first; ``.`` is ``eqsat/__init__.py``."""

BACKENDS_MAY_NOT = [
    *ORDER[ORDER.index("pattern") : ORDER.index("calibrate")],
    *("lowered", "jit", "fusing", ".", "demo", "cli", "__main__"),
]


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def package_of(path: Path) -> list[str]:
    """The package that relative imports of ``path`` start from, once installed."""
    parts = list(path.relative_to(ROOT).parent.parts)
    return parts if parts[0] == "eqsat" else ["eqsat", *parts]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in ``path``, also inside functions."""
    package = package_of(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base += [node.module] if node.module else []
            for alias in node.names:
                yield node.lineno, ".".join((*base, alias.name))


def part_of(full_name: str) -> str | None:
    """The entry of ORDER that an imported name belongs to; None outside eqsat."""
    head, *rest = full_name.split(".")
    if head != "eqsat":
        return None
    return rest[0] if rest and rest[0] in ORDER else "."


def own_part(path: Path) -> str:
    inside = path.relative_to(ROOT / "eqsat").parts
    name = inside[0].removesuffix(".py")
    return "." if name == "__init__" else name


def test_every_module_has_its_place_in_the_line() -> None:
    found = {own_part(path) for path in sources("eqsat")}
    assert found - set(ORDER) == set(), "put the new module into ORDER"


@pytest.mark.parametrize("path", sources("eqsat"), ids=lambda p: p.stem)
def test_no_import_points_backwards(path: Path) -> None:
    mine = own_part(path)
    for line, name in imported(path):
        part = part_of(name)
        if part is not None and part != mine:
            assert ORDER.index(part) < ORDER.index(mine), (
                f"{path.name}:{line}: {mine} comes before {part} and must not import it"
            )


@pytest.mark.parametrize("path", sources("eqsat"), ids=lambda p: p.stem)
def test_eqsat_never_imports_rules_or_backends(path: Path) -> None:
    for line, name in imported(path):
        top = name.removeprefix("eqsat.").split(".")[0]
        assert top not in ("rules", "backends"), f"{path.name}:{line}: imports {name}"


@pytest.mark.parametrize("path", sources("backends"), ids=lambda p: p.stem)
def test_backends_know_nothing_before_the_program(path: Path) -> None:
    for line, name in imported(path):
        if not name.startswith("eqsat.backends"):
            part = part_of(name)
            assert part not in BACKENDS_MAY_NOT, f"{path.name}:{line}: imports {name}"


@pytest.mark.parametrize(
    "path", [*sources("rules"), *sources("backends")], ids=lambda p: p.stem
)
def test_mapped_folders_import_themselves_relatively(path: Path) -> None:
    """In the source tree ``eqsat.backends`` is no folder, so type checkers lose it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for name in names:
            top = name.removeprefix("eqsat.").split(".")[0]
            assert top not in ("rules", "backends"), (
                f"{path.name}:{node.lineno}: write the import of {name} with dots"
            )


@pytest.mark.parametrize("path", sources("eqsat"), ids=lambda p: p.stem)
def test_only_the_engine_module_touches_egglog(path: Path) -> None:
    """Neither an import nor a string in code names the engine; prose may."""
    if own_part(path) == "engine":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = id(node) not in prose and node.value.split(".")[0] == "egglog"
            assert not named, f"{path.name}:{node.lineno}: {node.value!r}"
    for line, name in imported(path):
        assert name.split(".")[0] != "egglog", f"{path.name}:{line}: imports {name}"


def test_importing_eqsat_runs_no_slow_package() -> None:
    """``egglog/__init__.py`` takes 0.3 to 0.7 s; SciPy, rich and click can wait."""
    code = (
        "import sys, eqsat\n"
        "slow = {'egglog', 'scipy', 'rich', 'click'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
