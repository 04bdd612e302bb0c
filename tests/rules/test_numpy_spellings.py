"""What a NumPy user writes in a rule. Each line of ``numpy_spellings.txt`` is a rule,
and its left side is also the program that the rule must match."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq

SIZES = {"m": 3, "n": 4, "k": 5, "p": 2, "i": 2, "j": 3}


def rows(file: str) -> list[list[str]]:
    """The cells of a table beside this file."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return [[cell.strip() for cell in row.split(" | ")] for row in text.splitlines()]


def spelt(signature: str, code: str) -> Callable[..., Any]:
    """A function of the arguments of a signature, by its code."""
    params = ", ".join("xyz"[: signature.count(",") + 1])
    return eval(f"lambda {params}: ({code})", {"np": np, "eq": eq})  # type: ignore[no-any-return]


def arrays(signature: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = [
        tuple(int(a) if a.isdigit() else SIZES[a] for a in part.split() if a != "...")
        for part in signature.split(",")
    ]
    return [rng.random((2, *s) if "..." in signature else s) + 0.5 for s in shapes]


def refusal(signature: str, code: str) -> str:
    """Why a rule with this side is refused."""
    with pytest.raises(eq.RuleError) as caught:
        eq.rule(signature, name="mine")(spelt(signature, f"{code}, x"))
    return str(caught.value).partition("rule 'mine': ")[2].splitlines()[0]


REFUSED = """
... n   | x.sum(0)
... n   | x.sum()
... n   | x.sum(-1)
... n   | x.T
... n   | x[0]
... n   | x[..., None]
... n   | x[..., 1:, :]
... n   | x.reshape(-1)
... n   | np.concatenate((x, x), 0)
... n   | np.swapaxes(x, 0, 1)
... n   | np.stack((x, x))
... n   | x * x.size
n       | x.sum(1)
m n     | x[:, :, 0]
m, n    | np.dot(x, y)
m, n    | (x + y)[1:]
n       | np.zeros(x.shape) + x
n       | x if x.shape[0] > 3 else -x
n       | x if x else -x
n       | x[0] * sum(row for row in x)
m n     | np.trace(x)
n       | x[5:3:1] + x[-1:-3]
n       | np.unique(x)
"""


def test_what_cannot_be_known_is_refused_by_name(
    golden: Callable[[str, str], None],
) -> None:
    rows = [row.split("|") for row in REFUSED.strip().splitlines()]
    blocks = [
        f"{axes.strip()} | {code.strip()}\n    {refusal(axes, code.strip())}\n"
        for axes, code in rows
    ]
    golden("spellings_refused.txt", "".join(blocks))


def check(signature: str, left: str, right: str, where: Any = None) -> None:
    sides = spelt(signature, f"{left}, {right}")
    rule = eq.rule(signature, name="mine", where=where, dtypes="any")(sides)
    args, program = arrays(signature), spelt(signature, left)
    fast = eq.jit(program, rules=[rule])
    assert fast.lower(*args).optimised.fired.get("mine", 0) >= 1, str(rule)
    np.testing.assert_allclose(fast(*args), program(*args), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(*sides(*args), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("signature", "left", "right"), rows("numpy_spellings.txt"), ids=str
)
def test_a_rule_takes_what_numpy_takes(signature: str, left: str, right: str) -> None:
    check(signature, left, right)
