"""What a rule and the body of an op may not ask, and bounds that integers do not
keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import rule
from eqsat.condition import at_least
from eqsat.define import pointwise

BRANCHES = [
    "x * 2 if x.shape[0] == 5 else x * 3",
    "x * 2 if x.shape[0] != 4 else x * 3",
    "x * 2 if x.shape[0] % 2 == 0 else x * 3",
    "x * 2 if 1 in x.shape else x * 3",
    "x * 2 if not x.size % 2 else x * 3",
    "x * 2 if x.shape[0] else x * 3",
    "x * 2 if x.shape[0] > 16 else x * 3",
]


@pytest.mark.parametrize("body", BRANCHES)
@pytest.mark.parametrize("kind", ["composite", "rule"])
def test_a_branch_on_a_size_is_refused(body: str, kind: str, tmp_path: Path) -> None:
    """It would be taken one way for all sizes."""
    path = tmp_path / "branching.py"
    if kind == "rule":
        text = f'from eqsat import rule\n@rule("n")\ndef f(x): return ({body}), x + x\n'
    else:
        text = (
            "from eqsat.define import composite\n"
            '@composite("n -> n")\n'
            f"def branching_{BRANCHES.index(body)}(x): return {body}\n"
        )
    path.write_text(text)
    with pytest.raises(eq.RuleError, match="is not known when the rule is built"):
        eq.load_rules(path)


def test_sizes_that_are_the_same_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "same.py"
    body = "x * 2.0 if x.shape[0] == x.size and x.size != x.size + 1 else x * 3.0"
    text = f'from eqsat import rule\n@rule("n")\ndef f(x): return x + x, {body}\n'
    path.write_text(text)
    (made,) = eq.load_rules(path)
    assert eq.check(made).findings[0].verdict in ("proved", "tested")


@rule("...", where=lambda x: at_least(x, 0), dtypes="any")
def abs_of_what_is_not_negative(x: Any) -> Any:
    return np.abs(x), x


@rule("...", where=lambda x: at_least(x, 0.5), dtypes="any")
def abs_of_what_is_positive(x: Any) -> Any:
    return np.abs(x), x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "square": lambda v: np.abs(v * v),
    "sum": lambda v: np.abs(np.abs(v) + np.abs(v + v)),
    "absolute": lambda v: np.abs(np.abs(v)),
    "total": lambda v: np.abs((v * v).sum(0, dtype=v.dtype)),
    "product": lambda v: np.abs(np.abs(v) * np.abs(v)),
}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_integers_that_wrap_around_are_not_taken_for_positive(
    name: str, dtype: str
) -> None:
    f = PROGRAMS[name]
    most = np.iinfo(dtype).max if dtype != "float32" else 100
    v = np.array([most, most // 2 + 1, -most, 11, 90, -most - 1], dtype)
    rules = eq.default_rules() + eq.RuleSet((abs_of_what_is_not_negative,))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(eq.jit(f, rules=rules)(v), f(v))


@pytest.mark.parametrize("made", [abs_of_what_is_not_negative, abs_of_what_is_positive])
def test_bounds_are_numbers_of_any_dtype(made: Any) -> None:
    (finding,) = eq.check(made).findings
    assert finding.verdict in ("proved", "tested"), finding


def test_how_many_arrays_an_op_takes_is_in_its_signature() -> None:
    op = pointwise("of_three_arrays", lambda x, y, z: x * y + z)
    x = np.arange(4.0)
    np.testing.assert_array_equal(eq.jit(lambda x: op(x, x, x))(x), x * x + x)
