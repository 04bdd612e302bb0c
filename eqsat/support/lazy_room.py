"""Rooms whose files load when something in them is first used.

A package lists what it exports under ``if TYPE_CHECKING:``, where type checkers see it;
:func:`lazy_room` reads the same list, without what is of other packages. Importing the
package then costs nothing, and importing one name costs the file that defines it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_room(package: str, file: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of the package whose ``__init__.py`` is ``file``."""
    homes: dict[str, str] = {}
    for statement in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If):
            for line in statement.body:
                assert isinstance(line, ast.ImportFrom)
                module = line.module or ""
                if line.level or f"{module}.".startswith(f"{package}."):
                    home = module.removeprefix(package).lstrip(".")
                    homes.update(dict.fromkeys((a.name for a in line.names), home))

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
