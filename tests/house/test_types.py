"""What mypy and pyright say of a user's file, and what ``inspect`` says."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import ops
from eqsat.terms import Op

ROOT = Path(__file__).resolve().parents[2]
USER = ROOT / "tests" / "typing_user" / "user.py"

RULES = {
    "arg-type": "reportArgumentType",
    "attr-defined": "reportAttributeAccessIssue",
    "call-arg": "reportCallIssue",
    "call-overload": "reportCallIssue",
    "index": "reportIndexIssue",
}
"""Codes of mypy's errors, and what pyright calls the same."""

STOCK = [o for o in vars(ops).values() if isinstance(o, Op)]
"""The ops of the catalogue."""

Found = dict[int, set[str]]
"""Lines, and the errors in each."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment in which eqsat lies as it is installed."""
    home = tmp_path_factory.mktemp("typed") / "venv"
    venv.create(home, with_pip=False)
    paths = sysconfig.get_paths("venv", vars={"base": str(home)})
    site = Path(paths["purelib"])
    unwanted = shutil.ignore_patterns("__pycache__")
    for source, target in ("eqsat", "."), ("rules", "rules"), ("backends", "backends"):
        shutil.copytree(ROOT / source, site / "eqsat" / target, ignore=unwanted)
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"], "utf-8")
    return str(Path(paths["scripts"]) / "python")


def by_mypy(python: str, folder: Path) -> Found:
    given = ["--strict", "--config-file=", f"--cache-dir={folder}", "--output=json"]
    command = ["-m", "mypy", f"--python-executable={python}", *given, USER.name]
    done = subprocess.run(
        [sys.executable, *command], cwd=USER.parent, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Found = {}
    for line in done.stdout.splitlines():
        said = json.loads(line)
        if said["severity"] == "error":
            found.setdefault(said["line"], set()).add(said["code"])
    return found


def by_pyright(python: str, folder: Path) -> Found:
    settings = {"typeCheckingMode": "standard", "include": [str(USER)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    given = ["--outputjson", "--pythonpath", python, "-p", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", *given], capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Found = {}
    for said in json.loads(done.stdout)["generalDiagnostics"]:
        if said["severity"] == "error":
            line = said["range"]["start"]["line"] + 1
            found.setdefault(line, set()).add(said["rule"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "package, checker, rules",
    [("mypy", by_mypy, {}), ("basedpyright", by_pyright, RULES)],
    ids=["mypy", "pyright"],
)
def test_checkers_find_the_errors_of_a_user_and_no_others(
    package: str,
    checker: Callable[[str, Path], Found],
    rules: dict[str, str],
    python: str,
    tmp_path: Path,
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    wanted = {}
    for i, line in enumerate(USER.read_text(encoding="utf-8").splitlines(), 1):
        if mark := re.search("# error: ([a-z-]+)$", line):
            wanted[i] = rules.get(mark[1], mark[1])
    found = checker(python, tmp_path)
    assert found.keys() == wanted.keys()
    assert [i for i, code in wanted.items() if code not in found[i]] == []


@pytest.mark.parametrize(
    "name", sorted(o.name for o in STOCK if o.kind in ("composite", "fused"))
)
def test_an_op_has_the_signature_of_its_body(name: str) -> None:
    op = Op.registry[name]
    body = inspect.signature(op.body or op.reference).parameters.values()
    told = inspect.signature(op).parameters.values()
    assert [(p.name, p.kind, p.default) for p in told] == [
        (p.name, p.kind, p.default) for p in body
    ]


@pytest.mark.parametrize(
    "function, signature",
    [
        (eq.softmax, "(x, *, axis: 'Axis' = (-1,))"),
        (eq.group_norm, "(x, w, b, eps=1e-05, *, groups: 'int')"),
        (eq.sigmoid, "(x)"),
        (Op.registry["where"], "(condition, x, y)"),
        (Op.registry["concatenate"], "(*arrays, axis: 'int')"),
        (eq.jit(eq.softmax), "(x, *, axis: 'Axis' = (-1,))"),
        (eq.jit(eq.leaky_relu, "numpy"), "(x, slope=0.01)"),
        (eq.jit(lambda x, y=1, *, z: x), "(x, y=1, *, z)"),
        (eq.grad(lambda x, y=1, *, z: x, "z"), "(x, y=1, *, z)"),
        (eq.value_and_grad(eq.relu), "(x)"),
    ],
    ids=str,
)
def test_what_is_called_tells_its_signature(function: Any, signature: str) -> None:
    assert str(inspect.signature(function)) == signature


def test_a_jitted_method_has_the_signature_of_the_method() -> None:
    class Layer:
        @eq.jit
        def scaled(self, x: Any, *, scale: float = 2.0) -> Any:
            return x * scale

    x = np.ones(3)
    assert str(inspect.signature(Layer().scaled)) == (
        "(x: 'Any', *, scale: 'float' = 2.0) -> 'Any'"
    )
    assert Layer().scaled(x).tolist() == Layer.scaled(Layer(), x).tolist() == [2, 2, 2]
