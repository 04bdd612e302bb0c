"""What every run of the tests draws, and what is kept of what compilers made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made
import pytest
from sizes import is_whole, sample, some


@dataclass(frozen=True)
class Case:
    """What pytest makes of the parameters of a test."""

    x: int
    y: int = 0

    @property
    def callspec(self) -> Any:
        return SimpleNamespace(indices={"x": self.x, "y": self.y})


def test_a_sample_holds_each_value_of_each_parameter() -> None:
    cases = [Case(x, y) for x in range(9) for y in range(3)]
    found = sample(cases, 8)
    assert {c.x for c in found} == {*range(9)} and {c.y for c in found} == {*range(3)}
    assert len(found) == len(set(found)) < 14 and found == sample(cases, 8)


def test_of_one_list_a_sample_is_its_share() -> None:
    assert len(sample([Case(x, x) for x in range(40)], 4)) == 10


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
