"""Installed in each way, the package holds the folders rules/ and backends/."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import eqsat as eq
from eqsat.saved import is_possible

ROOT = Path(__file__).resolve().parents[2]

CHECK = """
import importlib.metadata, importlib.resources, importlib.util
import eqsat, eqsat.rules, eqsat.backends.numpy
assert importlib.resources.files(eqsat).joinpath("py.typed").is_file()
for name in ("rules", "backends"):
    assert importlib.util.find_spec(name) is None, f"{name} is a package of its own"
points = importlib.metadata.entry_points(group="eqsat.backends", name="numpy")
(point,) = points
point.load()
(plugin,) = importlib.metadata.entry_points(group="pytest11", name="eqsat")
assert importlib.util.find_spec(plugin.value), plugin.value
"""


def shell_lines() -> list[str]:
    """The lines of the README's blocks of commands, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_readme_set_up_and_run() -> None:
    block, minilm, tests = shell_lines()
    assert "venv" in block and "eqsat demo block" in block
    assert minilm.endswith("eqsat demo minilm")
    assert "venv" in tests and tests.endswith("pytest")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    shown = run([str(ROOT / ".ci" / "run"), "--show"], ROOT)
    assert shown == shell_lines()[-1]


def test_the_readme_is_two_screens() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.*")), ids=lambda p: p.name
)
def test_tests_that_workflows_and_contributors_run_exist(path: Path) -> None:
    for named in re.findall(r"\btests/[\w/.]+", path.read_text(encoding="utf-8")):
        assert (ROOT / named.rstrip(".")).exists(), named


def test_the_list_of_packages_names_every_folder_of_code() -> None:
    """setuptools takes the list as it is: a folder that it lacks is not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    found = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for folder in ("eqsat", "rules", "backends")
        for path in (ROOT / folder).rglob("*.py")
        if "documentation" not in path.parts  # pages, which are not installed
    }
    installed = {f if f.split(".")[0] == "eqsat" else f"eqsat.{f}" for f in found}
    installed = installed - {"eqsat.pytest_plugin"} | {"eqsat_pytest"}
    assert sorted(installed) == sorted(listed)


def test_the_version_is_the_same_wherever_it_stands() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == eq.__version__
    newest = re.search(r"^## (\S+) \((\S+)\)$", changes, re.M)
    assert newest[1] == eq.__version__
    assert re.search(r"^date-released: (.*)$", citation, re.M)[1] == newest[2]


def run(command: list[str], folder: Path) -> str:
    """The output of ``command``; the test fails with all that it said."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source tree, so that a build leaves nothing behind."""
    copy = tmp_path / "source"
    unwanted = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=unwanted)
    return copy


@pytest.fixture
def python(tmp_path: Path) -> str:
    """The interpreter of a fresh virtual environment that sees no other packages."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True, system_site_packages=False)
    return str(home / ("Scripts" if sys.platform == "win32" else "bin") / "python")


SAVED = """
import importlib.util
import numpy as np, eqsat as eq
for name in ("egglog", "llvmlite", "ml_dtypes", "scipy"):
    assert importlib.util.find_spec(name) is None
x = np.load("x.npy")
np.testing.assert_array_equal(eq.load("f.eqsat")(x), np.load("y.npy"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not is_possible(), reason="not on this system")
def test_saved_programs_run_beside_numpy_alone(
    source: Path, python: str, tmp_path: Path
) -> None:
    w = np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48)
    x = np.linspace(-1, 2, 40 * 64, dtype=np.float32).reshape(40, 64)
    f = eq.jit(lambda x: eq.softmax(x @ w))
    f.lower(x).save(tmp_path / "f.eqsat")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", f(x))
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    run([*pip, "numpy"], tmp_path)
    run([*pip, "--no-deps", str(source)], tmp_path)
    run([python, "-I", "-W", "error", "-c", SAVED], tmp_path)


def contents(wheel: Path) -> list[str]:
    """What a wheel installs beside what it says of itself."""
    with zipfile.ZipFile(wheel) as file:
        return [n for n in file.namelist() if ".dist-info/" not in n]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "editable", "wheel"])
def test_an_installation_holds_rules_and_backends(
    way: str, source: Path, python: str, tmp_path: Path
) -> None:
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    if way == "wheel":
        run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(source)], tmp_path)
        (wheel,) = tmp_path.glob("eqsat-*.whl")
        kinds = {Path(n).suffix for n in contents(wheel)}
        assert kinds == set(".py .pyi .typed .json .html .css .js".split())
        run([*pip, "install", str(wheel)], tmp_path)
    else:
        editable = ["-e"] if way == "editable" else []
        run([*pip, "install", *editable, str(source)], tmp_path)
    if way != "editable":
        shutil.rmtree(source)
    run([python, "-I", "-W", "error", "-c", CHECK], tmp_path)
    run([python, "-I", "-m", "eqsat", "--version"], tmp_path)
    if way == "wheel":
        names = zipfile.ZipFile(wheel).namelist()
        assert not [n for n in names if "documentation" in n]
