"""Functions as Python text that stands alone: with all that they name."""

from __future__ import annotations

import ast
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from eqsat.support import SavedProgramError
from eqsat.terms import BF16

_MODULES: dict[str, ModuleType] = {"np": np, "math": math}
"""Modules that texts may name; the module has them."""


class FunctionTexts:
    """Definitions for a module, each before what names it.

    ``taken`` are names that the module uses otherwise. ``halves``: whether arrays of
    float16 may come, which references compute in float32.
    """

    def __init__(self, taken: set[str], halves: bool) -> None:
        self.taken, self._halves = taken, halves
        self.texts: list[str] = []
        self._known: list[tuple[Any, str]] = []

    def define(self, name: str, value: Any) -> None:
        """Define ``name`` as it is. Raises :class:`SavedProgramError` for what cannot
        be written."""
        called = self._called(value, name, name)
        if called != name:
            self.texts.append(f"{name} = {called}\n")

    def _called(self, value: Any, wanted: str, who: str) -> str:
        """What the text calls ``value``; defined if it is not yet."""
        for module, known in _MODULES.items():
            if value is known:
                return module
        for known, name in self._known:
            if known is value:
                return name
        if where := _in_numpy(value):
            return where
        name = wanted
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self._known.append((value, name))
        if isinstance(value, FunctionType):
            self.texts.append(self._function(value, name, who))
        else:
            self.texts.append(f"{name} = {literal(value, who)}\n")
        return name

    def _function(self, function: FunctionType, name: str, who: str) -> str:
        inner: Any = inspect.unwrap(function)
        if self._halves and inner is not function:
            raise _refused(who, "computes float16 in float32 by code of eqsat's")
        if inner.__closure__ or inner.__name__ == "<lambda>":
            raise _refused(who, "is made by a function around it")
        source = textwrap.dedent(inspect.getsource(inner))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.FunctionDef)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                raise _refused(who, f"needs {ast.unparse(node).split()[1]}")
        names = {n: inner.__globals__[n] for n in _read(tree, inner)}
        called = {n: self._called(v, n, who) for n, v in names.items()}
        plain: Any = _Plainly(called).visit(tree)
        plain.name = name
        return ast.unparse(ast.fix_missing_locations(plain)) + "\n"


def _in_numpy(value: Any) -> str:
    """How a function or a type of NumPy's is written; empty for other values."""
    name = getattr(value, "__name__", "")
    for module in ("numpy", getattr(value, "__module__", None)):
        top, dot, rest = str(module).partition(".")
        known = sys.modules.get(str(module))
        if top == "numpy" and isinstance(name, str) and name:
            if getattr(known, name, None) is value:
                return f"np{dot}{rest}.{name}"
    return ""


def _read(tree: ast.FunctionDef, function: Any) -> Iterator[str]:
    """Names outside of a function that its body reads; annotations do not count."""
    own = _Plainly({}).visit(ast.parse(ast.unparse(tree)).body[0])
    found = {n.id for n in ast.walk(own) if isinstance(n, ast.Name)}
    yield from sorted(found & function.__globals__.keys())


class _Plainly(ast.NodeTransformer):
    """A function without decorators and annotations, and with other names."""

    def __init__(self, called: Mapping[str, str]) -> None:
        self._called = called

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list, node.returns = [], None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        self.generic_visit(node)
        return ast.Assign([node.target], node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._called.get(node.id, node.id)
        return node


def literal(value: Any, who: str) -> str:
    """The text of a number, a text, a dtype, or a container of them. Raises
    :class:`SavedProgramError` for other values."""
    if isinstance(value, np.dtype):
        if value == BF16:
            return 'np.dtype([("bfloat16", np.uint16)])'
        return f"np.dtype({value.name!r})"
    if isinstance(value, np.generic):
        return f"np.{value.dtype.name}({literal(value.item(), who)})"
    if where := _in_numpy(value):
        return where
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{literal(k, who)}: {literal(v, who)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    writers: dict[Any, Callable[[str], str]] = {
        tuple: lambda inside: f"({inside}{',' if len(value) == 1 else ''})",
        list: lambda inside: f"[{inside}]",
        frozenset: lambda inside: f"frozenset(({inside},))" if value else "frozenset()",
    }
    write = writers.get(type(value))
    if write is None:
        raise _refused(who, f"needs {type(value).__name__!r} objects of eqsat's")
    return write(", ".join(literal(v, who) for v in value))


def _refused(who: str, why: str) -> SavedProgramError:
    return SavedProgramError(
        f"the program cannot be a module of NumPy alone: {who} {why}; Lowered.save "
        "writes programs that are machine code as a whole"
    )
