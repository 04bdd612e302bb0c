"""The errors of tracing, word for word, as ``messages.txt`` beside this file has them.

A block of that file is a line of a user's code and the error that it raises, with ``x``
traced, float32 of shape (3, 4). After a change on purpose ``python test_messages.py``
writes the file anew; read the difference.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

from eqsat.support.errors import TraceError
from eqsat.trace.trace import Spec, trace

GOLDEN = Path(__file__).resolve().parents[1].joinpath("messages.txt")
X = np.ones((3, 4), np.float32)


def identity(x: Any) -> Any:
    return x


def generator(x: Any) -> Any:
    yield x


def replaces_a_weight(params: dict[str, Any]) -> Any:
    params["w"] = params["w"] + 1
    return params["w"]


def appends(items: list[Any]) -> Any:
    items.append(1)
    return items[0]


def circular() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def deep(depth: int) -> list[Any]:
    return [deep(depth - 1)] if depth else []


def message(code: str) -> str:
    """The error of one line of code: inside a traced function unless it calls trace."""
    known = {"np": np, "math": math, "sp": sp, "trace": trace, "Spec": Spec}
    known |= {f.__name__: f for f in (identity, generator, appends, circular, deep)}
    known |= {"replaces_a_weight": replaces_a_weight, "OUTSIDE": np.ones((3, 4))}
    text = f"lambda x: {code}" if not code.startswith("trace(") else f"lambda: {code}"
    f = eval(compile(text, "user.py", "eval"), known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            f() if code.startswith("trace(") else trace(f, [X])
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "no error"


def blocks() -> dict[str, str]:
    """Lines of code to their messages."""
    found = {}
    for block in GOLDEN.read_text(encoding="utf-8").strip().split("\n\n"):
        code, _, text = block.partition("\n")
        found[code.removeprefix(">>> ")] = text
    return found


@pytest.mark.parametrize(("code", "text"), blocks().items(), ids=list(blocks()))
def test_message(code: str, text: str) -> None:
    assert message(code) == text


def test_the_users_line_is_shown() -> None:
    def f(x: Any) -> Any:
        return 1 if x.sum() > 0 else 2

    with pytest.raises(TraceError) as caught:
        trace(f, [X])
    assert str(caught.value) == (
        "the truth value of a traced array (bool, shape ()) is not known while "
        "tracing\n"
        "  if, while, and, or, not, in, max() and min() need it. Use "
        "np.where(condition, a, b), & and |, np.maximum and np.minimum\n"
        f"  at {__file__}:{f.__code__.co_firstlineno + 1}\n"
        "     return 1 if x.sum() > 0 else 2"
    )


def test_a_changed_constant_is_shown_where_it_was_used() -> None:
    buffer = np.zeros(4)

    def f(x: Any) -> Any:
        y = x + buffer
        buffer[0] = 1
        return y

    with pytest.raises(TraceError) as caught:
        trace(f, [X])
    assert str(caught.value) == (
        "an array of shape (4,) was changed in place after the program used it as a "
        "constant\n"
        "  make a copy there: x.copy()\n"
        f"  at {__file__}:{f.__code__.co_firstlineno + 1}\n"
        "     y = x + buffer"
    )


def test_large_constants_are_compared_too() -> None:
    buffer = np.zeros((1000, 100))

    def f(x: Any) -> Any:
        y = x + buffer[0, 0] + buffer.sum() + (x.sum() * buffer).sum()
        buffer[:] = 1
        return y

    with pytest.raises(TraceError, match="changed in place"):
        trace(f, [X])


def test_what_is_counted_is_in_its_plural() -> None:
    """``f"{len(x)} rules"`` says "1 rules": :func:`eqsat.support.counted` does not."""
    root, found = GOLDEN.parents[1], []
    for folder in ("eqsat", "backends", "rules", "bench"):
        for path in sorted((root / folder).rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            for text in ast.walk(ast.parse(code)) if "{len(" in code else ():
                parts = text.values if isinstance(text, ast.JoinedStr) else []
                for value, after in pairwise(parts):
                    is_length = isinstance(value, ast.FormattedValue) and (
                        ast.unparse(value.value).startswith("len(")
                    )
                    words = after.value if isinstance(after, ast.Constant) else ""
                    if is_length and re.match(r" [a-z-]+s\b", str(words)):
                        found.append(f"{path}:{text.lineno}: {ast.unparse(text)}")
    assert not found, "\n".join(found)


if __name__ == "__main__":
    written = [f">>> {code}\n{message(code)}\n" for code in blocks()]
    GOLDEN.write_text("\n".join(written), encoding="utf-8")
