"""``import eqsat`` loads nothing; a name loads what it needs when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import eqsat as eq

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ast.parse((ROOT / "eqsat" / "__init__.pyi").read_text(encoding="utf-8"))

AFTER_IMPORT = """
import sys
before = set(sys.modules)
import eqsat
ours = {n for n in sys.modules if n.split(".")[0] == "eqsat"}
assert ours == {"eqsat"}, ours
others = {n.split(".")[0] for n in set(sys.modules) - before} - {"eqsat"}
assert others <= set(sys.stdlib_module_names), others
assert set(eqsat.__all__) <= set(dir(eqsat))
"""

AFTER_JIT = """
import sys
import eqsat
eqsat.jit
found = set(sys.modules)
late = {"egglog", "scipy", "rich", "click", "llvmlite", "xxhash"} & found
assert not late, late
rooms = {n.split(".")[1] for n in found if n.startswith("eqsat.")}
late = {"array_api", "checking", "command", "demo", "graph", "lazy", "mlx", "onnx",
        "pytorch", "random", "testing"} & rooms
assert not late, late
"""

NAMES = """
import importlib, pickle, types
importlib.import_module("eqsat.{module}")
import eqsat
from eqsat import {name}
assert not isinstance({name}, types.ModuleType), {name}
assert eqsat.{name} is {name} and {name}.__module__ == "eqsat.{module}"
"""

FIRST_USE = """
import sys
import numpy as np
import eqsat as eq

@eq.jit
def f(x):
    return eq.gelu(x) + eq.random.normal(eq.random.key(0), x.shape, x.dtype)

x = np.ones(3, np.float32)
assert f(x).shape == (3,)
for module in ("ops", "define", "condition", "lazy", "backends", "rules"):
    assert getattr(eq, module) is sys.modules[f"eqsat.{module}"]
with_names = {n: getattr(eq, n) for n in eq.__all__}
assert all(getattr(eq, n) is v for n, v in with_names.items())
try:
    eq.jitt
except AttributeError as error:
    assert "no attribute 'jitt'" in str(error)
else:
    raise AssertionError("eq.jitt")
assert not hasattr(eq, "__path_of_nothing__")
"""


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", [AFTER_IMPORT, AFTER_JIT, FIRST_USE])
def test_what_is_loaded_and_when(code: str) -> None:
    run(code)


@pytest.mark.parametrize(
    "module, name", [("jit", "jit"), ("grad", "grad"), ("can_fuse", "can_fuse")]
)
def test_a_function_has_its_name_although_its_module_has_it_too(
    module: str, name: str
) -> None:
    run(NAMES.format(module=module, name=name))


def test_type_checkers_are_told_what_is_found() -> None:
    """The imports of ``eqsat/__init__.pyi`` are the table of ``eqsat/__init__.py``."""
    told = {
        alias.name: node.module
        for node in PUBLIC.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {n for n, home in told.items() if home == "eqsat"}
    assert eq._HOME == {n: home for n, home in told.items() if n not in modules}
    assert modules == eq._MODULES and sorted(told) == eq.__all__
    (given,) = (n.value for n in PUBLIC.body if isinstance(n, ast.Assign))
    assert ast.literal_eval(given) == eq.__all__
