"""A rule that breaks is set aside and named; the others go on."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sizes import is_whole, some

import eqsat as eq
from eqsat.command.cli import main

HEAD = """from eqsat import rule
from eqsat.condition import at_least, nonzero
from eqsat.op import Ints
from eqsat.ops import absolute, cos, exp, expm1, log, log1p, matmul, maximum
from eqsat.ops import negative, sin, sqrt, tanh
from eqsat.ops.view import reshape_op, transpose_op
from eqsat.rulelang.pattern import entry


"""
RIGHT = {
    "exponents": ("...", "x", "exp(x) + exp(x), exp(x) * 2.0"),
    "logarithms": ("...", "x", "log(x) + log(x), log(x) * 2.0"),
    "less_one": ("...", "x", "exp(x) - 1.0, expm1(x)"),
    "plus_one": ("...", "x", "log(1.0 + x), log1p(x)"),
    "odd_sine": ("...", "x", "sin(x * -1.0), sin(x) * -1.0"),
    "even_cosine": ("...", "x", "cos(x * -1.0), cos(x)"),
    "odd_tanh": ("...", "x", "tanh(x * -1.0), tanh(x) * -1.0"),
    "root_of_square": ("...", "x", "sqrt(x * x), absolute(x)"),
    "twice": ("...", "x", "negative(negative(x)), x"),
    "distributes": ("... m k, k n, k n", "x, a, b", "x @ a + x @ b, x @ (a + b)"),
}
ANY = {"twice"}
"""Right rules of ``dtypes="any"``."""


def source(name: str, signature: str, params: str, sides: str, more: str = "") -> str:
    return (
        f'@rule("{signature}"{more})\ndef {name}({params}):\n    return {sides}\n\n\n'
    )


BROKEN = {
    # the kind of fault: signature, parameters, sides, more of @rule, what is said
    "raises": ("...", "x", "1 / 0, x", "", "ZeroDivisionError"),
    "raises on one side": ("...", "x", "exp(x), [x][1]", "", "IndexError"),
    "misspelt": ("...", "x", "exq(x), x", "", "NameError"),
    "asserts": ("...", "x", "exp(x), int(x)", "", "TypeError"),
    "unbound": ("..., ...", "x, y", "exp(x), y", "", "the left side lacks"),
    "bad signature": ("n n-1", "x", "exp(x), x", "", "is not an axis"),
    "condition raises": (
        "...",
        "x",
        "exp(x), x",
        ", where=lambda x: 1 / 0",
        "division",
    ),
    "condition is none": ("...", "x", "exp(x), x", ", where=lambda x: 3", "conditions"),
    "entry beyond the end": (
        "...",
        "x, p: Ints",
        "transpose_op(x, perm=p), transpose_op(x, perm=(entry(p, 5), entry(p, 0)))",
        "",
        "vec-get",
    ),
    "division by a number": (
        "...",
        "x, a: float",
        "sin(x) * a, sin(x) * (1.0 / (a - 2.0))",
        "",
        "call of primitive /",
    ),
    "another shape": (
        "... n",
        "x",
        "tanh(x), tanh(x).sum(-1, keepdims=True)",
        "",
        "different shape or dtype",
    ),
    "two shapes are one": (
        "... n",
        "x",
        "tanh(x).sum(-1, keepdims=True), tanh(x)",
        "",
        "different shape or dtype",
    ),
    "a product that cannot be": (
        "m n",
        "x",
        "tanh(x) + tanh(x), exp(matmul(x, exp(x)))",
        "",
        "cannot be",
    ),
    "a shape of other size": (
        "m n",
        "x",
        "tanh(x), reshape_op(exp(x), shape=(7, 11))",
        "",
        "",
    ),
    "a fusion of another shape": (
        "m n",
        "x",
        "tanh(tanh(x)), transpose_op(x, perm=(-1, -2))",
        ', phase="fuse"',
        "cannot be",
    ),
}


def program(x: Any, y: Any, a: Any, b: Any) -> tuple[Any, ...]:
    """Where all the left sides occur."""
    turned = np.transpose(np.sin(x) * 2.0)
    tanhs = np.tanh(x) + np.tanh(x), np.tanh(np.tanh(x)), np.tanh(x).sum(-1)
    return (
        np.exp(x) + np.exp(x),
        np.log(x) + np.log(x),
        np.exp(x) - 1.0,
        np.log(1.0 + x),
        np.sin(x * -1.0),
        np.cos(x * -1.0),
        np.tanh(x * -1.0),
        np.sqrt(x * x),
        np.negative(-x),
        x @ a + x @ b,
        turned,
        np.exp(x * 3.0),
        *tanhs,
        np.tanh(x).sum(-1, keepdims=True),
    )


def written(path: Path, kinds: list[str]) -> dict[str, int]:
    """Write the ten right rules with broken ones in between; the lines of those."""
    text, lines = HEAD, {}
    broken = [BROKEN[k] for k in kinds]
    for i, (name, (signature, params, sides)) in enumerate(RIGHT.items()):
        more = ', dtypes="any"' if name in ANY else ""
        text += source(name, signature, params, sides, more)
        for k, (s, p, two, m, _) in list(zip(kinds, broken, strict=True))[i::10]:
            lines[k] = text.count("\n") + 1
            text += source(f"broken_{kinds.index(k)}", s, p, two, m)
    path.write_text(text.rstrip() + "\n")
    return lines


def drawn() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.uniform(0.5, 1.5, s) for s in [(3, 4), (3, 4), (4, 5), (4, 5)])


def used(path: Path) -> tuple[set[str], list[warnings.WarningMessage]]:
    """The rules that matched in the program, and what was warned of; the program
    computes what NumPy does."""
    args = drawn()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rules = eq.default_rules() + eq.load_rules(path)
        fast = eq.jit(program, rules=rules, backend="numpy")
        for got, want in zip(fast(*args), program(*args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)
        fired = set(fast.lower(*args).optimised.fired)
        again = eq.jit(lambda *a: program(*a)[:12], rules=rules, backend="numpy")
        np.testing.assert_allclose(again(*args)[0], program(*args)[0])
    return fired, caught


@pytest.mark.sampled(16)
@pytest.mark.parametrize("kind", BROKEN)
def test_ten_rules_work_beside_a_broken_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    lines = written(path, [kind])
    fired, caught = used(path)
    assert set(RIGHT) <= fired
    (warned,) = caught
    assert warned.category is eq.RuleWarning
    assert (warned.filename, warned.lineno) == (str(path), lines[kind])
    message = str(warned.message)
    assert f"{path}:{lines[kind]}: rule 'broken_0'" in message
    assert BROKEN[kind][-1] in message
    assert "test_isolation" not in message


# One broken rule is beside them every time.
@pytest.mark.slow
def test_ten_rules_work_beside_many_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    lines = written(path, some([*BROKEN], 3))
    fired, caught = used(path)
    assert set(RIGHT) <= fired
    assert sorted(w.lineno for w in caught) == sorted(lines.values())


# A broken rule is named every time where it is used.
@pytest.mark.slow
def test_the_check_names_all_that_are_broken(tmp_path: Path) -> None:
    path, kinds = tmp_path / "mine.py", some([*BROKEN], 3)
    lines = written(path, kinds)
    few = [] if is_whole() else ["--no-lints"]
    ask = ["check", str(path), "--json", "--examples", "2" if few else "20", *few]
    done = CliRunner().invoke(main, ask)
    assert done.exit_code == 1, done.output
    if is_whole():
        assert CliRunner().invoke(main, [*ask, "--jobs", "2"]).stdout == done.stdout
    found = {f["rule"]: f for f in json.loads(done.stdout)["rules"]}
    assert {n for n, f in found.items() if f["verdict"] != "refused"} == set(RIGHT)
    for i, kind in enumerate(kinds):
        bad = found[f"broken_{i}"]
        assert (bad["line"], bad["reason"] != "") == (lines[kind], True)


def test_a_check_that_fails_is_the_verdict_of_its_rule_alone(tmp_path: Path) -> None:
    """What fails only when the rule is run on arrays is met by the check alone."""
    path = tmp_path / "mine.py"
    lost = "(exp(x), exp(x)) if not hasattr(x, 'term') else 1 // 0"
    text = HEAD + source("late", "...", "x", lost)
    text += source("fine", "...", "x", "exp(x) - 1.0, expm1(x)")
    path.write_text(text)
    report = eq.check(eq.load_rules(path), examples=20)
    assert report["late"].verdict == "refused" and report["late"].reason
    assert report["fine"].verdict != "refused"


def test_an_integer_form_is_matched_beside_the_normal_form() -> None:
    """-x is x · -1 of floats alone."""

    @eq.rule("...", dtypes="any")
    def twice(x: Any) -> Any:
        return np.negative(np.negative(x)), x

    @eq.rule("..., ...", dtypes="any")
    def difference(x: Any, y: Any) -> Any:
        return x + np.negative(y), x - y

    rules = eq.default_rules() + eq.RuleSet((twice, difference))
    for dtype in ("f8", "f2", "i8", "u1"):
        x, y = np.arange(3).astype(dtype), np.ones(3, dtype)
        fast = eq.jit(
            lambda x, y: (np.negative(-x), x + -y), rules=rules, backend="numpy"
        )
        fired = fast.lower(x, y).optimised.fired
        assert fired["twice"] >= 1 and fired["difference"] >= 1, dtype
        np.testing.assert_array_equal(fast(x, y)[0], x)
        np.testing.assert_array_equal(fast(x, y)[1], x + -y)


def test_a_fault_of_stock_rules_alone_is_raised(monkeypatch: Any) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no fault of a rule")

    @eq.rule("...")
    def mine(x: Any) -> Any:
        return np.exp(x) - 1.0, np.expm1(x)

    monkeypatch.setattr(sys.modules["eqsat.search.optimise"], "_cover_all", broken)
    rules = eq.default_rules() + eq.RuleSet((mine,))
    with pytest.raises(RuntimeError, match="no fault of a rule"):
        eq.jit(lambda x: np.exp(x) - 1.0, rules=rules).lower(np.ones(3))
