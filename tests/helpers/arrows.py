"""Rooms, arrows between them, and circles: ``python tests/helpers/arrows.py [ROOT]``.

A room is a folder of modules. An arrow goes from a room to a room that it imports from,
also inside functions and for type checkers only. Only the text of the modules is read.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDERS = ("eqsat", "rules", "backends", "bench")
DOCUMENTATION = "eqsat/documentation/"
"""A folder of pages; its programs are run there and are no part of the package."""
MOST_MODULES = 20
MOST_METHODS = 20


@dataclass(frozen=True)
class Import:
    """One imported name."""

    path: Path
    line: int
    source: str
    """The module that imports."""
    target: str
    """The module that is asked: a file, or the package whose ``__init__.py`` says what
    the name is."""


@dataclass(frozen=True)
class House:
    """The modules below ``root``."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Modules by the names that they have once installed."""
        found: dict[str, Path] = {}
        for folder in FOLDERS:
            for path in sorted((self.root / folder).rglob("*.py")):
                if DOCUMENTATION in path.relative_to(self.root).as_posix():
                    continue
                parts = list(path.relative_to(self.root).with_suffix("").parts)
                if folder in ("rules", "backends"):
                    parts.insert(0, "eqsat")
                if parts[-1] == "__init__":
                    parts.pop()
                found[".".join(parts)] = path
        return found

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {
            name: ast.parse(path.read_text(encoding="utf-8"))
            for name, path in self.modules.items()
        }

    def is_package(self, module: str) -> bool:
        return self.modules[module].name == "__init__.py"

    def room(self, module: str) -> str:
        """The folder of a module; of one in a root folder, the module itself."""
        return self._rooms[module]

    @cached_property
    def _rooms(self) -> dict[str, str]:
        found = {}
        for name, file in self.modules.items():
            path = file.relative_to(self.root)
            folder = path.parent.as_posix()
            in_root = folder in ("eqsat", "backends", "backends/native")
            found[name] = path.with_suffix("").as_posix() if in_root else folder
        return found

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of a module of the house by another."""
        found = []
        for name, tree in self.trees.items():
            for line, target in self._imported(name, tree):
                if target != name:
                    found.append(Import(self.modules[name], line, name, target))
        return found

    def _imported(self, name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
        package = name.split(".")
        if not self.is_package(name):
            package = package[:-1]
        for node in statements(tree):
            if isinstance(node, ast.Import):
                asked = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                up = len(package) + 1 - node.level
                start = [*(package[:up] if node.level else ()), *_parts(node.module)]
                base = ".".join(start)
                asked = [self._asked(base, alias.name, name) for alias in node.names]
            else:
                continue
            yield from ((node.lineno, a) for a in asked if a in self.modules)

    def _asked(self, base: str, name: str, importer: str) -> str:
        """The module that ``from base import name`` asks."""
        file = f"{base}.{name}"
        door = base != importer and name in self._says.get(base, ())
        return base if door or file not in self.modules else file

    @cached_property
    def _says(self) -> dict[str, set[str]]:
        """The names that each ``__init__.py`` defines or imports."""
        return {
            name: {bound for node in statements(tree) for bound in _bound(node)}
            for name, tree in self.trees.items()
            if self.is_package(name)
        }

    @cached_property
    def arrows(self) -> Counter[tuple[str, str]]:
        """Pairs of rooms, and how many imports go from the first to the second."""
        pairs = ((self.room(i.source), self.room(i.target)) for i in self.imports)
        return Counter(p for p in pairs if p[0] != p[1])

    def circles_of_rooms(self) -> list[list[str]]:
        graph: dict[str, set[str]] = defaultdict(set)
        for start, end in self.arrows:
            graph[start].add(end)
        return circles(graph)

    def circles_of_modules(self) -> list[list[str]]:
        """Circles of modules. A package stands for what it re-exports only, so that a
        module may import its own package's files."""
        graph: dict[str, set[str]] = defaultdict(set)
        for i in self.imports:
            if not self.is_package(i.source) and not self.is_package(i.target):
                graph[i.source].add(i.target)
        return circles(graph)

    def past_doors(self) -> list[Import]:
        """Imports that ask a file of another room, not the room's ``__init__.py``."""
        return [
            i
            for i in self.imports
            if self.room(i.source) != self.room(i.target)
            and not self.is_package(i.target)
            and self.room(i.target) != _name(self.modules[i.target], self.root)
            and not i.source.startswith("bench")
        ]

    def crowded(self) -> dict[str, int]:
        """Folders with too many modules, ``__init__.py`` aside."""
        many = Counter(
            path.parent.relative_to(self.root).as_posix()
            for path in self.modules.values()
            if path.name != "__init__.py"
        )
        return {k: n for k, n in many.items() if n > MOST_MODULES}

    @cached_property
    def classes(self) -> list[tuple[str, Path, int]]:
        """Name, file and number of methods of each class. What ``@overload`` declares
        is of the method that follows."""
        return [
            (node.name, self.modules[name], sum(map(_is_method, node.body)))
            for name, tree in self.trees.items()
            for node in statements(tree)
            if isinstance(node, ast.ClassDef)
        ]

    def large_classes(self) -> dict[str, int]:
        return {name: n for name, _, n in self.classes if n > MOST_METHODS}

    def repeated_classes(self) -> dict[str, list[str]]:
        """Public class names that stand for several classes."""
        homes: dict[str, list[str]] = defaultdict(list)
        for name, path, _ in self.classes:
            if not name.startswith("_"):
                homes[name].append(_name(path, self.root))
        return {name: found for name, found in homes.items() if len(found) > 1}


def _parts(module: str | None) -> list[str]:
    return module.split(".") if module else []


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements of a module, at any depth: expressions hold none."""
    parts = ("body", "orelse", "finalbody", "handlers", "cases")
    for part in parts:
        for node in getattr(tree, part, ()):
            yield node
            yield from statements(node)


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    return []


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).with_suffix("").as_posix()


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
        isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list
    )


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node. Tarjan 1972."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            start = stack.index(node)
            component = stack[start:]
            del stack[start:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def main(root: Path) -> None:
    house = House(root)
    folders = Counter(_name(p.parent, root) for p in house.modules.values())
    print("Folders, and their modules")
    for folder, n in sorted(folders.items()):
        print(f"  {folder:<34} {n}")
    print("Arrows between rooms, and their imports")
    for (start, end), n in sorted(house.arrows.items()):
        print(f"  {start:<34} → {end:<34} {n}")
    for what, found in (
        ("Circles of rooms", house.circles_of_rooms()),
        ("Circles of modules", house.circles_of_modules()),
        ("Folders with too many modules", house.crowded()),
        ("Classes with too many methods", house.large_classes()),
        ("Public class names for several classes", house.repeated_classes()),
    ):
        print(f"{what}: {found or 'none'}")


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here)
