"""Rule files: what is wrong with one is said by name, and nothing of it stays."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import held_by

import eqsat as eq
from eqsat.terms.op import Op

HEAD = "from eqsat import rule\nfrom eqsat.ops import exp, softmax\n\n\n"
BROKEN = {
    "unbound": '@rule("n, n")\ndef f(x, y):\n    return x + x, x + y\n',
    "unused": '@rule("n, n")\ndef f(x, y):\n    return exp(x), exp(x) * 1.0\n',
    "arity": '@rule("n")\ndef f(x, y):\n    return x + y, y + x\n',
    "numerics": '@rule("n", numerics="close")\ndef f(x):\n    return x + x, x * 2.0\n',
    "phase": '@rule("n", phase="late")\ndef f(x):\n    return x + x, x * 2.0\n',
    "left a variable": '@rule("n")\ndef f(x):\n    return x, x * 1.0\n',
    "not a pair": '@rule("n")\ndef f(x):\n    return x + x\n',
    "sides differ in number": (
        '@rule("n")\ndef f(x):\n    return (exp(x), x + x), x * 2.0\n'
    ),
    "branch on a value": (
        '@rule("n")\ndef f(x):\n    return (exp(x) if x else x), exp(x)\n'
    ),
    "shape of an expression": (
        '@rule("... n")\ndef f(x):\n    return exp(x), exp(x) * exp(x).shape[-2]\n'
    ),
    "axis not named": '@rule("... n")\ndef f(x):\n    return exp(x), x * x.shape[-2]\n',
    "array on a side": (
        'import numpy as np\n\n\n@rule("n")\ndef f(x):\n    return x + np.ones(3), x\n'
    ),
    "text on a side": '@rule("n")\ndef f(x):\n    return exp(x), "x"\n',
    "condition": (
        '@rule("n", where=lambda x: 3)\ndef f(x):\n    return x + x, x * 2.0\n'
    ),
    "signature": '@rule("n n-1")\ndef f(x):\n    return x + x, x * 2.0\n',
    "dtypes": '@rule("n", dtypes="complex")\ndef f(x):\n    return x + x, x * 2.0\n',
    "axes before the rest": '@rule("n ...")\ndef f(x):\n    return x + x, x * 2.0\n',
    "not a number": '@rule("n")\ndef f(x):\n    return x + x, x * float("nan")\n',
    "no signature": "@rule\ndef f(x):\n    return x + x, x * 2.0\n",
    "fusion of two ops": (
        '@rule("n", phase="fuse")\ndef f(x):\n    return x + x, exp(x) * 2.0\n'
    ),
    "fusion with a condition": (
        "from eqsat.condition import at_least\n\n\n"
        '@rule("n", phase="fuse", where=lambda x: at_least(x, 0))\n'
        "def f(x):\n    return x + x, exp(x)\n"
    ),
    "fusion that computes": (
        '@rule("n", phase="fuse")\ndef f(x):\n    return x + x, x * x.shape[0]\n'
    ),
    "condition fails": (
        '@rule("n", where=lambda x: 1 / 0)\ndef f(x):\n    return x + x, x * 2.0\n'
    ),
    "axis of any rank": (
        '@rule("...")\ndef f(x):\n    return x.sum(0, keepdims=True), x\n'
    ),
    "both ways, a variable": (
        '@rule("...", both_ways=True)\ndef f(x):\n    return x * 1.0, x\n'
    ),
    "both ways, unbound": (
        '@rule("n, n", both_ways=True)\ndef f(x, y):\n'
        "    return exp(x) + y * 0.0, exp(x) * 1.0\n"
    ),
    "both ways, computed": (
        "from eqsat.op import Ints\nfrom eqsat.ops.view import transpose_op\n"
        "from eqsat.rulelang.pattern import entry\n\n\n"
        '@rule("m n", both_ways=True)\ndef f(x, p: Ints):\n'
        "    turned = (entry(p, 1), entry(p, 0))\n"
        "    return transpose_op(x, perm=p), transpose_op(x, perm=turned)\n"
    ),
    "both ways, numbers": (
        '@rule("n", both_ways=True)\ndef f(x, a: float, b: float):\n'
        "    return x * a * b, x * (a * b)\n"
    ),
    "both ways, normal form": (
        '@rule("n", phase="canonicalise", both_ways=True)\ndef f(x):\n'
        "    return x + x, x * 2.0\n"
    ),
    "both ways, fusion": (
        '@rule("n", phase="fuse", both_ways=True)\ndef f(x):\n'
        "    return exp(x + x), softmax(x)\n"
    ),
    "attribute that is computed": (
        "from eqsat.ops.view import reshape_op\n\n\n"
        '@rule("n")\ndef f(x, g: int):\n'
        "    return reshape_op(x, shape=(g * 2, 3)), x\n"
    ),
    "condition of an array": (
        "from eqsat.condition import at_most\n\n\n"
        '@rule("n", where=lambda x: at_most(x, 2))\n'
        "def f(x):\n    return x + x, exp(x)\n"
    ),
    "no rule": "x = 1\n",
    "syntax": "def f(:\n",
    "exception": "1 / 0\n",
    "name": '@rule("n")\ndef f(x):\n    return sqrt(x), x\n',
    "import": "from eqsat.ops import nothing\n",
    "name twice": (
        '@rule("n")\ndef f(x):\n    return x + x, x * 2.0\n\n\n'
        '@rule("n")\ndef f(x):\n    return x * 2.0, x + x\n'
    ),
    "condition is none": (
        '@rule("n", where=lambda x: None)\ndef f(x):\n    return x + x, x * 2.0\n'
    ),
    "tolerance": (
        '@rule("n", numerics="approximate(-1)")\ndef f(x):\n    return x + x, x * 2.0\n'
    ),
    "rule name": '@rule("n", name=3)\ndef f(x):\n    return x + x, x * 2.0\n',
    "twice": (
        '@rule("n", name="one")\ndef f(x):\n    return x + x, x * 2.0\n\n\n'
        '@rule("n", name="one")\ndef g(x):\n    return x * 2.0, x + x\n'
    ),
}


def refusal(path: Path, text: str) -> str:
    path.write_text(HEAD + text)
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules(path)
    said = str(caught.value).replace(str(path.parent), "folder")
    return re.sub(r" \(/.*\)", "", said)  # where Python found a module is no matter


def test_messages(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    blocks = [
        f"## {name}\n{refusal(tmp_path / 'mine.py', text)}\n"
        for name, text in BROKEN.items()
    ]
    golden("rule_messages.txt", "\n".join(blocks))


OPTIONS: dict[str, list[Any]] = {
    "where": [3, "n > 2", True, ()],
    "numerics": [
        *("", "close", "exact(1)", "fast(2)", "approximate", "approximate()"),
        *("approximate(-1)", "approximate(0)", "approximate(nan)", "approximate(inf)"),
        *("approximate(lots)", "approximate(1e-3", "approximate(1)(2)", "Exact"),
        *("approximate(1e400)", " exact", 3, 1e-3, True, ("exact",)),
    ],
    "phase": ["", "late", 3, True, ("user",)],
    "dtypes": ["", "int32", None, 3, np.float32, np.dtype("f8"), ("float32",)],
    "name": ["", 3, True, b"f", ("f",)],
    "both_ways": [None, 1, 0, "no", np.True_],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_a_wrong_kind_are_refused(option: str) -> None:
    for value in OPTIONS[option]:
        with pytest.raises(eq.RuleError) as caught:
            eq.rule("n", **{option: value})(two_x)
        said = str(caught.value)
        assert re.match(r".*test_rule_files.py:\d+: rule 'two_x': ", said), said
        assert f"{option}={value!r}" in said and "expected" in said


def two_x(x: Any) -> Any:
    return x + x, x * 2.0


def test_a_rule_is_made_of_a_function() -> None:
    for value in (3, "f", None, np.exp, partial(two_x), eq.rule("n")(two_x), int):
        with pytest.raises(eq.RuleError, match="a rule is made of a function, got"):
            eq.rule("n")(value)  # type: ignore[arg-type]


def test_rules_whose_names_in_the_file_mean_others_later_are_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + 'for n in (1.0, 2.0):\n    @rule("n", name=f"times {n}")\n'
        "    def f(x):\n        return exp(x) * n * 1.0, exp(x) * n\n\n\n"
        'NAMED = {"a": rule("n", name="kept")(lambda x: (exp(x) * 1.0, exp(x)))}\n'
    )
    assert {r.name for r in eq.load_rules(path)} == {"times 1.0", "times 2.0", "kept"}


def test_nothing_stays_of_a_broken_file(tmp_path: Path) -> None:
    ops, modules = dict(Op.registry), set(sys.modules)
    text = (
        "from eqsat.define import composite\n\n\n"
        '@composite("... -> ...", recognised=False)\ndef doubled(x):\n'
        '    """2 x."""\n'
        "    return x + x\n\n\n"
    )
    for wrong in BROKEN.values():
        refusal(tmp_path / "mine.py", text + wrong)
    assert Op.registry == ops
    assert not [m for m in set(sys.modules) - modules if "mine" in m]
    x = np.ones((3, 4))
    assert np.array_equal(eq.jit(lambda x: x + x)(x), x + x)


def test_lines_are_known_of_relative_paths_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HEAD + "1 / 0\n")
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules("mine.py")
    assert str(caught.value) == "mine.py:5: ZeroDivisionError: division by zero"


def test_folders(tmp_path: Path) -> None:
    """A folder is its rule files in order; one that fails takes all along."""
    assert len(eq.load_rules(tmp_path)) == 0
    sides = "(x):\n    return x + x, x * 2.0\n"
    for name in "ba":
        (tmp_path / f"{name}.py").write_text(f'{HEAD}@rule("n")\ndef {name}{sides}')
    (tmp_path / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "notes.txt").write_text("no rules\n")
    (tmp_path / "ab.egg").write_text('(rewrite (Exp x) (Exp x) :name "text")\n')
    (tmp_path / "old.egg").mkdir()
    assert [r.name for r in eq.load_rules(tmp_path)] == ["a", "text", "b"]
    modules = set(sys.modules)
    (tmp_path / "c.py").write_text(f'{HEAD}@rule("n")\ndef a{sides}')
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'c.py'}:5: rule 'a' is already defined at {tmp_path / 'a.py'}:5"
    )
    assert set(sys.modules) == modules


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for name in ("first", "second"):
        path.write_text(
            f'{HEAD}@rule("n")\ndef {name}(x):\n    return x + x, x * 2.0\n'
        )
        os.utime(path, (0, 0) if name == "first" else None)
        assert [r.name for r in eq.load_rules(path)] == [name]


def test_only_rules_of_the_wanted_numerics_are_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + "from eqsat.ops import cos, sin, tanh\n\n\n"
        '@rule("...", numerics="exact")\ndef one(x):\n    return sin(x), exp(x)\n\n\n'
        '@rule("...")\ndef two(x):\n    return cos(x), exp(x)\n\n\n'
        '@rule("...", numerics="approximate(1e-3)")\ndef three(x):\n'
        "    return tanh(x), exp(x)\n"
    )
    rules = eq.load_rules(path)
    assert [r.numerics for r in rules] == ["exact", "reassociate", "approximate(1e-3)"]

    def f(x: np.ndarray) -> tuple[np.ndarray, ...]:
        return np.sin(x), np.cos(x), np.tanh(x)

    for numerics, fired in (("exact", 1), ("reassociate", 2), ("approximate", 3)):
        fast = eq.jit(f, rules=rules, options=eq.Options(numerics=numerics))
        assert len(fast.lower(np.ones(3)).optimised.fired) == fired


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules(tmp_path / "none.py")
    assert str(caught.value) == (
        f"rule file {str(tmp_path / 'none.py')!r} does not exist "
        f"(working folder {Path.cwd()})"
    )
    (tmp_path / "rules.txt").write_text("")
    with pytest.raises(eq.RuleError, match=r"expected a \.py or an \.egg file"):
        eq.load_rules(tmp_path / "rules.txt")


def test_a_rule_of_ones_own_is_used_and_can_be_turned_off(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + '@rule("..., ..., ...")\ndef factor(x, y, z):\n'
        '    """x y + x z = x (y + z)."""\n    return x * y + x * z, x * (y + z)\n'
    )
    rules = eq.default_rules() + eq.load_rules(path)
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal((64, 64)) for _ in range(3))

    def f(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return x * y + x * z

    def kernels(**options: object) -> list[str]:
        fast = eq.jit(f, **options)
        np.testing.assert_allclose(fast(x, y, z), f(x, y, z), rtol=1e-12, atol=1e-12)
        return held_by(fast.lower(x, y, z).program)

    assert kernels() == ["multiply", "multiply", "add"]
    assert kernels(rules=rules) == ["add", "multiply"]
    off = eq.Options(disable=frozenset({"factor"}))
    assert kernels(rules=rules, options=off) == ["multiply", "multiply", "add"]
    with pytest.raises(eq.RuleError, match="no rule 'factr'; did you mean 'factor'"):
        kernels(rules=rules, options=eq.Options(disable=frozenset({"factr"})))


def test_two_rules_of_one_name_do_not_join(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + '@rule("n")\ndef add_commutes(x):\n'
        '    """x + x = 2 x."""\n    return x + x, x * 2.0\n'
    )
    mine = eq.load_rules(path)
    with pytest.raises(eq.RuleError, match="'add_commutes' is already defined at"):
        eq.default_rules() + mine


OPS = "import numpy as np\nfrom eqsat.define import composite, pointwise, reduction\n"
DEFINED = {
    "composite": (
        '@composite("... -> ...")\ndef own(x):\n    """own."""\n'
        "    return np.exp(x) + {} * x\n"
    ),
    "composite that is no rule": (
        '@composite("... -> ...", recognised=False)\ndef own(x):\n    """own."""\n'
        "    return np.exp(x) + {} * x\n"
    ),
    "reduction": (
        "@reduction(combine=np.add, identity=0)\ndef own(x):\n"
        '    """own."""\n    return x * {}\n'
    ),
    "pointwise": 'own = pointwise("own", lambda x: x * {})\n',
}
"""Definitions of an op, of a number."""
A_RULE = (
    '\nfrom eqsat import rule\n\n\n@rule("n", name="{}")\ndef f(x):\n'
    '    """x + x = 2 x."""\n    return x + x, x * 2.0\n'
)


@pytest.fixture
def own_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops that a test makes are gone after it."""
    monkeypatch.setattr(Op, "registry", dict(Op.registry))


def defining(path: Path, *ops: str) -> Path:
    path.write_text(OPS + "".join(ops) + A_RULE.format(path.stem))
    return path


@pytest.mark.usefixtures("own_ops")
@pytest.mark.parametrize("kind", DEFINED)
def test_two_ops_of_one_name_are_refused_in_a_file(kind: str, tmp_path: Path) -> None:
    ops = DEFINED[kind].format(2.0), DEFINED[kind].format(3.0)
    mine = defining(tmp_path / "mine.py", *ops)
    first, second = 3, 3 + ops[0].count("\n")
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules(mine)
    said = str(caught.value)
    assert said == f"{mine}:{second}: op 'own' is already defined at {mine}:{first}"
    assert "own" not in Op.registry


@pytest.mark.usefixtures("own_ops")
@pytest.mark.parametrize("kind", DEFINED)
def test_two_ops_of_one_name_are_refused_in_two_files(
    kind: str, tmp_path: Path
) -> None:
    a = defining(tmp_path / "a.py", DEFINED[kind].format(2.0))
    b = defining(tmp_path / "b.py", "\n", DEFINED[kind].format(3.0))
    said = re.escape(f"{b}:4: op 'own' is already defined at {a}:3")
    with pytest.raises(eq.RuleError, match=said):
        eq.load_rules(a, b)
    eq.load_rules(a)
    with pytest.raises(eq.RuleError, match=said):
        eq.load_rules(b)


@pytest.mark.usefixtures("own_ops")
@pytest.mark.parametrize("kind", DEFINED)
def test_two_sets_with_ops_of_one_name_do_not_join(kind: str, tmp_path: Path) -> None:
    """Also where they are what one file has been."""
    path = tmp_path / "mine.py"
    old = eq.load_rules(defining(path, DEFINED[kind].format(2.0)))
    new = eq.load_rules(defining(path, "\n\n", DEFINED[kind].format(3.0)))
    said = re.escape(f"{path}:5: op 'own' is already defined at {path}:3")
    with pytest.raises(eq.RuleError, match=said):
        eq.RuleSet(ops=old.ops) + eq.RuleSet(ops=new.ops)
    assert (old + old).ops == old.ops


@pytest.mark.usefixtures("own_ops")
def test_a_composite_that_is_defined_twice_alike_is_one(tmp_path: Path) -> None:
    same = DEFINED["composite"].format(2.0)
    a = defining(tmp_path / "a.py", same, same)
    b = defining(tmp_path / "b.py", same.replace('"""own."""', '"""Mine."""'))
    together = eq.load_rules(a, b)
    joined = eq.load_rules(a) + eq.load_rules(b)
    for rules in (together, joined):
        assert sorted(r.name for r in rules) == ["a", "b", "own"]
        assert [op.name for op in rules.ops] == ["own"]
    x = np.array([1.0, 2.0])
    own = eq.jit(lambda x: (np.exp(x) + 2.0 * x) * 3.0, rules=joined)
    np.testing.assert_allclose(own(x), (np.exp(x) + 2 * x) * 3)


@pytest.mark.usefixtures("own_ops")
def test_a_file_does_not_replace_an_op_of_eqsat(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = """
import numpy as np
import eqsat as eq
from eqsat.define import pointwise

own = pointwise("exp", np.cbrt)

@eq.rule("...")
def doubled(x):
    return own(x) + own(x), own(x) * 2.0
"""
    path.write_text(text)
    stock = Op.registry["exp"]
    with pytest.raises(eq.RuleError, match="op 'exp' is already defined in eqsat"):
        eq.load_rules(path)
    assert Op.registry["exp"] is stock
    x = np.array([1.0, 8.0])
    np.testing.assert_allclose(eq.jit(lambda x: np.exp(x))(x), np.exp(x))


@pytest.mark.usefixtures("own_ops")
def test_composites_that_say_something_else_are_not_one(tmp_path: Path) -> None:
    own = DEFINED["composite"].format(2.0)
    a = defining(tmp_path / "a.py", own)
    for said in ('"... -> ...", promotion="common"', '"... n -> ... n"'):
        b = defining(tmp_path / "b.py", own.replace('"... -> ..."', said))
        with pytest.raises(eq.RuleError, match="op 'own' is already defined at"):
            eq.load_rules(a, b)


def test_a_rule_that_contradicts_the_types_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + '@rule("... n")\ndef sum_is_nothing(x):\n'
        '    """Σ x is not x."""\n    return x.sum(-1, keepdims=True), x\n'
    )
    rules = eq.default_rules() + eq.load_rules(path)
    x = np.ones((3, 4))
    fast = eq.jit(lambda x: np.exp(x).sum(-1, keepdims=True), rules=rules)
    with pytest.warns(eq.RuleWarning, match="different shape or dtype") as caught:
        assert fast(x).tolist() == [[4.0 * np.e]] * 3
    assert "'sum_is_nothing'" in str(caught[0].message)
    assert eq.jit(lambda x: x.sum(-1))(x).tolist() == [4.0] * 3


def test_it_is_named_wherever_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found without it is not kept for others, who would not be told."""
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + '@rule("... n")\ndef no_sum(x):\n'
        "    return x.sum(-1, keepdims=True), x\n"
    )
    for _ in range(2):
        rules = eq.default_rules() + eq.load_rules(path)
        fast = eq.jit(lambda x: np.tan(x).sum(-1, keepdims=True), rules=rules)
        with pytest.warns(eq.RuleWarning, match="no_sum"):
            fast(np.ones((3, 4)))


def test_a_rule_whose_right_side_cannot_be_is_left_out() -> None:
    """``m n`` does not say that x x exists; the user's line is not to blame."""

    @eq.rule("m n")
    def twice_is_square(x):  # type: ignore[no-untyped-def]
        """x + x is not x x."""
        return x + x, x @ x

    rules = eq.default_rules() + eq.RuleSet((twice_is_square,))
    fast = eq.jit(lambda x: np.exp(x + x), rules=rules)
    with pytest.warns(eq.RuleWarning, match="built a term that cannot be") as caught:
        assert np.allclose(fast(np.ones((3, 4))), np.exp(2))
    assert "'twice_is_square'" in str(caught[0].message)


def test_a_file_that_changed_at_once_is_read_again(tmp_path: Path) -> None:
    """Byte code on disk is of a text of the same second and length."""
    file = tmp_path / "mine.py"
    for number in ("2.0", "3.0", "4.0"):
        text = f'@rule("n")\ndef f(x):\n    return x + x, x * {number}\n'
        file.write_text(f"from eqsat import rule\n\n\n{text}")
        (f,) = eq.load_rules(file)
        assert f.function(np.ones(1))[1] == float(number)
