"""The README and the documentation: blocks run, what they show is what is printed,
links lead somewhere, the site builds, and each public name is in the reference.

``--update-golden`` writes what is printed into the pages anew.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import page_parts
import pictures
import pytest
from pages import (
    FOLDER,
    LANGUAGES,
    PAGES,
    ROOT,
    SITE,
    anchors,
    blocks,
    links,
    run_page,
    write_anew,
)

import eqsat.ops
from eqsat.command.cli import main
from eqsat.terms import Op

OPTIONAL = ("torch", "mlx", "onnx", "jax", "pandas", "sklearn")
"""Packages that a page may need, and that are not installed everywhere."""


def needs(page: str) -> set[str]:
    code = "\n".join(b.text for b in blocks(page) if b.language == "python")
    return {n for n in OPTIONAL if re.search(rf"^\s*(import|from) {n}\b", code, re.M)}


def test_the_example_of_the_readme_is_what_numpy_computes(tmp_path: Path) -> None:
    names, wrong = run_page("README.md", tmp_path)
    gate: Any = names["gate"]
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.standard_normal(65536, np.float32) for _ in range(4))
    expected = np.maximum(a * b + c, 0) / (1 + np.exp(-d))
    np.testing.assert_allclose(gate(a, b, c, d), expected, rtol=1e-5, atol=1e-6)
    assert len(gate.explain(a, b, c, d).kernels) == 1 and not wrong


SLOW = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]
"""PyTorch takes seconds to load and to write a model down, and warns of itself."""
RUN = [
    pytest.param(p, marks=SLOW if "torch" in needs(p) else [])
    for p in PAGES
    if p != "README.md"
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", RUN)
def test_blocks_run_and_print_what_the_page_shows(
    page: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EQSAT_THREADS", "2")  # on any machine, as the pages show
    if missing := [n for n in needs(page) if find_spec(n) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    _, differences = run_page(page, tmp_path)
    if request.config.getoption("--update-golden"):
        write_anew(page, differences)
    elif differences:
        first = differences[0]
        pytest.fail(f"{page} shows\n{first.block.text}\nprinted is\n{first.said}")


def test_what_is_shown_follows_what_prints_it() -> None:
    for page in PAGES:
        before = ""
        for block in blocks(page):
            assert block.language in LANGUAGES | SITE, f"{page}: {block.text[:60]}"
            if block.language in ("printed", "measured"):
                assert before == "python", f"{page}: {block.text[:60]}"
                assert block.text.strip(), f"{page}: a block shows nothing"
            before = block.language


def test_files_of_a_page_are_used() -> None:
    for page in PAGES:
        found = blocks(page)
        for i, block in enumerate(found):
            if block.file:
                later = "".join(b.text for b in found[i + 1 :])
                assert block.file in later, f"{page}: {block.file}"


WRONG = """```python
print(1 + 1)
```

```printed
3
```

```python
print("12.5 µs, bound by memory")
```

```measured
3 µs, bound by arithmetic
```

```measured
13 µs, bound by nothing
```
"""


def test_what_a_page_shows_wrongly_is_found_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text(WRONG, encoding="utf-8")
    _, differences = run_page(str(page), tmp_path)
    assert [d.said for d in differences] == ["2\n", "12.5 µs, bound by memory\n"]
    write_anew(str(page), differences)
    assert not run_page(str(page), tmp_path)[1]
    assert "3 µs, bound by arithmetic" in page.read_text(encoding="utf-8")


def test_links_and_anchors_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One: two\n\n[a](b.md#c) `[d](e)` ![f](g.svg)\n## One two\n")
    assert [*links(str(page))] == ["b.md#c", "g.svg"]
    assert anchors(page) == {"one-two", "one-two-1"}


# -- commands --------------------------------------------------------------------------

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def parsed(words: list[str]) -> None:
    """Raises click's error where a command does not fit."""
    command, name = main, "eqsat"
    while True:
        context = command.make_context(name, list(words), resilient_parsing=False)
        if not hasattr(command, "resolve_command"):
            return
        name, found, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        command = found


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_install_or_download_have_right_words(page: str) -> None:
    for block in blocks(page):
        if block.language != "sh":
            continue
        for line in block.text.splitlines():
            for one in line.split("#")[0].split("&&"):
                program, *words = shlex.split(one) or [""]
                program = program.removeprefix(".venv/bin/")
                if program == "eqsat":
                    parsed(words)
                for extras in re.findall(r"\[([\w,]+)\]", one):
                    assert {*extras.split(",")} <= {*EXTRAS, "cuda13"}, one


def test_a_wrong_command_is_found() -> None:
    parsed(["demo", "block", "--layers", "2"])
    for words in ["demo", "blocks"], ["demo", "block", "--layer", "x"]:
        with pytest.raises(Exception, match=r"No such|not a valid"):
            parsed(words)


# -- links -----------------------------------------------------------------------------

TEXTS = [
    *PAGES,
    "bench/README.md",
    "eqsat/README.md",
    "rules/README.md",
    "CHANGELOG.md",
    ".github/CONTRIBUTING.md",
    ".github/SECURITY.md",
]


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files_and_headings(page: str) -> None:
    path = ROOT / page
    for target in links(page):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page}: {target}"


@pytest.mark.slow
def test_links_to_other_sites_are_there() -> None:
    """Those that a network finds; the others are listed in the reason of the skip."""
    outside = {t for p in TEXTS for t in links(p) if t.startswith("http")}
    assert all(t.startswith("https://") for t in outside)
    unseen = []
    for target in sorted(outside):
        asked = urllib.request.Request(target, headers={"User-Agent": "eqsat-tests"})
        try:
            urllib.request.urlopen(asked, timeout=20).close()
        except urllib.error.HTTPError as error:
            assert error.code not in (404, 410), target
        except OSError:
            unseen.append(target)
    if unseen:
        pytest.skip(f"not reached: {', '.join(unseen)}")


# -- the site --------------------------------------------------------------------------


# Workflows build the site, too; the pages' own links and blocks are tested every time.
@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = ["-W", "--keep-going", "-n", "-q", "-b", "html"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(FOLDER), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


# -- the reference ---------------------------------------------------------------------

MODULES = ("", ".condition", ".define", ".mlx", ".onnx", ".pytorch", ".random")
MODULES += (".testing",)
CREATION = {"arange", "asarray", "eye", "full", "linspace", "ones", "zeros"}
"""Functions of the array API standard: a table of ``reference/lazy.md`` has them."""
INSIDE = {"Fact", "Held"}
"""What conditions are made of."""
PUBLIC = [
    (f"eqsat{module}", name)
    for module in MODULES
    for name in import_module(f"eqsat{module}").__all__
    if name not in INSIDE
]
REFERENCE = "\n".join(p.read_text("utf-8") for p in (FOLDER / "reference").glob("*.md"))


NEEDED = {"eqsat.mlx": "mlx", "eqsat.onnx": "onnx", "eqsat.pytorch": "torch"}


def public_names(module: str) -> list[str]:
    """Those of a module; the test is skipped where what it needs is not installed."""
    if module in NEEDED:
        pytest.importorskip(NEEDED[module])
    return [name for m, name in PUBLIC if m == module]


def is_in_reference(module: str, name: str) -> bool:
    value = getattr(import_module(module), name)
    if value is getattr(eqsat, name, None):
        module = "eqsat"
    if module == "eqsat.condition" or module == "eqsat.random":
        return f"automodule:: {module}\n   :members:" in REFERENCE
    told = (f"auto{k}:: {module}.{name}\n" for k in DIRECTIVES)
    return any(t in REFERENCE for t in told) or f"`{module}.{name}`" in REFERENCE


DIRECTIVES = ("class", "data", "exception", "function", "module")


@pytest.mark.parametrize("module", [f"eqsat{m}" for m in MODULES])
def test_each_public_name_is_in_the_reference(module: str) -> None:
    for name in public_names(module):
        if name in CREATION:
            assert f"| `{name}(" in REFERENCE, name
        elif name not in eqsat.ops.__all__ and name != "random":
            assert is_in_reference(module, name), f"{module}.{name}"


def test_each_op_is_in_the_reference() -> None:
    (page,) = (p for p in PAGES if p.endswith("reference/ops.md"))
    shown = "".join(
        page_parts.ops(*re.split(r"\s+", m[1]))
        for m in re.finditer(r"\{made\} ops (.*)", (ROOT / page).read_text("utf-8"))
    )
    for name in eqsat.ops.__all__:
        assert f"### `{name}(" in shown, name
        told = shown.split(f"### `{name}(")[1].split("###")[0]
        said = "".join(told.splitlines()[1:])
        assert said and not said.startswith("Axes"), f"{name} says nothing"


def parameters(value: Any) -> list[str]:
    """Parameters that a docstring has to name."""
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(value).parameters.values()
    return [p.name for p in found if p.kind not in kinds]


@pytest.mark.parametrize("module", [f"eqsat{m}" for m in MODULES])
def test_docstrings_of_public_functions_name_their_parameters(module: str) -> None:
    for name in public_names(module):
        value = getattr(import_module(module), name)
        if name in CREATION or not callable(value) or isinstance(value, Op):
            continue
        text = inspect.getdoc(value) or ("as told" if name == "Op" else "")
        assert text, f"{module}.{name} has no docstring"
        if inspect.isfunction(value) and name != "options":
            missing = [p for p in parameters(value) if not re.search(rf"\b{p}\b", text)]
            assert not missing, f"{module}.{name}: {missing}"


# -- what is made ----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(pictures.DRAWN))
def test_pictures_are_those_of_the_programs(name: str) -> None:
    drawn = pictures.DRAWN[name]()
    assert (FOLDER / "pictures" / name).read_text("utf-8") == drawn


def test_no_page_names_what_is_not_made() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(r"^```\{made\} (\w*)", text, re.MULTILINE):
            assert name in page_parts.MAKERS, f"{page}: {name}"


# Gradients of networks are compared every time.
@pytest.mark.slow
def test_a_network_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = pytest.importorskip("digits", exc_type=ImportError)
    weights, losses = digits.train(120, hidden=64)
    assert losses[-1] < losses[0] / 4 and digits.accuracy(weights) > 0.85


@pytest.mark.slow
def test_the_network_of_the_tutorial_learns_the_digits() -> None:
    digits = pytest.importorskip("digits", exc_type=ImportError)
    weights, losses = digits.train(1500)
    assert digits.accuracy(weights) >= 0.97
    shown = (FOLDER / "pictures" / "loss.svg").read_text("utf-8")
    points = [
        np.array(re.findall(r"points=\"(.*?)\"", s)[0].replace(",", " ").split(), float)
        for s in (shown, digits.curve(losses))
    ]
    assert np.abs(points[0] - points[1])[: 2 * 300].max() < 3  # rounding grows later
