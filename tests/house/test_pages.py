"""The examples of README.md and eqsat/GUIDE.md run, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_page(page: str, folder: Path) -> dict[str, Any]:
    """The names that the examples of a page leave behind.

    They are a file, since an explanation shows lines of the source.
    """
    text = "\n\n".join(PYTHON.findall((ROOT / page).read_text(encoding="utf-8")))
    path = folder / "example.py"
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    return names


def test_the_example_of_the_readme_is_what_numpy_computes(tmp_path: Path) -> None:
    gate = run_page("README.md", tmp_path)["gate"]
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.standard_normal(65536, np.float32) for _ in range(4))
    expected = np.maximum(a * b + c, 0) / (1 + np.exp(-d))
    np.testing.assert_allclose(gate(a, b, c, d), expected, rtol=1e-5, atol=1e-6)
    assert len(gate.explain(a, b, c, d).kernels) == 1


def test_the_examples_of_the_guide_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_page("eqsat/GUIDE.md", tmp_path)
    said = capsys.readouterr().out
    assert "linear_0" in said and "1 kernel, " in said and "lu" in said
    k, y = names["k"], np.sin(np.arange(200))
    expected = y @ np.linalg.solve(k, y) + np.linalg.slogdet(k)[1]
    np.testing.assert_allclose(names["value"], expected, rtol=1e-9)
