"""What every run of the tests draws, and what is kept of what compilers made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import made
import pytest
from sizes import LONG, covering, is_whole, some, thin

CASES = """
import pytest

numbers = pytest.mark.parametrize("x, name", [(x, str(x)) for x in range(900, 909)])
slow = pytest.param("s", marks=pytest.mark.slow)
letters = pytest.mark.parametrize("letter", [*"abc", slow])


@pytest.fixture(params=[True, False])
def given(request):
    return request.param


@numbers
@letters
def test_products(x, name, letter, given): ...


@numbers
@letters
@pytest.mark.sampled(1)
def test_all(x, name, letter): ...


@numbers
@letters
@pytest.mark.sampled(9)
def test_few(x, name, letter): ...


@pytest.mark.parametrize("x", range(40))
@pytest.mark.sampled(4)
def test_of_one_list(x): ...


@numbers
def test_one_list(x, name): ...
"""


class Thinned:
    """A plugin of pytest that holds the cases that are not slow."""

    def __init__(self) -> None:
        self.cases: dict[str, list[dict[str, Any]]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "sampled(share): as here")
        config.addinivalue_line("markers", "slow: as here")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        thin(items)
        for item in items:
            if not item.get_closest_marker("slow"):
                name = item.name.partition("[")[0]
                self.cases.setdefault(name, []).append(item.callspec.params)


def test_what_runs_every_time_has_each_value_of_each_parameter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    path = tmp_path / "test_of_sizes.py"
    path.write_text(CASES, encoding="utf-8")
    words = ["--collect-only", "-c", os.devnull, "--rootdir", str(tmp_path)]
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", str(path)]
    found = Thinned()
    assert pytest.main([*words, *options], [found]) == 0
    products = found.cases["test_products"]
    assert {c["x"] for c in products} == {*range(900, 909)}
    assert {c["letter"] for c in products} == {*"abc"}
    assert {c["given"] for c in products} == {True, False}
    assert len(products) == 9
    assert len(found.cases["test_all"]) == 27 and len(found.cases["test_one_list"]) == 9
    assert len(found.cases["test_of_one_list"]) == 10
    few = found.cases["test_few"]
    assert (
        len(few) == len({c["x"] for c in few}) == len({c["letter"] for c in few}) == 3
    )


def test_few_cases_cover_all_values() -> None:
    cases = [(x, y) for x in range(9) for y in range(3)] + [(9, 7)]
    found = covering(cases)
    assert found == covering(cases) and len(found) == 10
    assert {cases[i][0] for i in found} == {*range(10)}
    assert {cases[i][1] for i in found} == {0, 1, 2, 7}


def test_what_takes_long_is_there() -> None:
    root = LONG.parents[1]
    for name in LONG.read_text(encoding="utf-8").splitlines()[1:]:
        file, test = name.partition("[")[0].split("::")
        assert f"def {test}(" in (root / file).read_text(encoding="utf-8"), name


def test_some_are_the_same_whenever_a_test_runs() -> None:
    found = some(range(100), 3)
    assert found == some(range(100), 3) and len(found) == (100 if is_whole() else 3)
    assert is_whole() or found != some(range(100), 3, "others")


def test_what_is_made_of_one_text_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "FOLDER", tmp_path / "kept")
    runs = []

    def make(path: Path) -> None:
        runs.append(path)
        path.write_text("made", encoding="utf-8")

    first, again, other = (made.made(["by", text], make) for text in "xxy")
    assert first == again != other and len(runs) == 2
    assert first.read_text(encoding="utf-8") == "made"
    with pytest.raises(ZeroDivisionError):
        made.made(["fails"], lambda path: path.write_text(str(1 / 0)) and None)
    assert sorted(made.FOLDER.iterdir()) == sorted([first, other])
