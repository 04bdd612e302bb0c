"""Rules as egglog text: the same rules as in Python, and errors that say where."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat.checking.report import Finding
from eqsat.command.cli import main
from eqsat.ops import conv2d, gelu, log_softmax
from eqsat.ops.view import reshape_op, transpose_op
from eqsat.terms.op import Op

FOLDER = Path(__file__).resolve().parents[1].joinpath("rule_language")
EGG = eq.load_rules(FOLDER / "rules.egg")
PYTHON = eq.load_rules(FOLDER / "rules.py")
NAMES = [r.name for r in EGG]


def array(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers in (0, 1), the same for the same shape."""
    return np.random.default_rng(sum(shape)).random(shape)


MASK = array(6) > 0.5
LIFTED = {"w": array(4, 3, 2, 2)}
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "both_ways": (
        lambda x, a, b: x @ a + x @ b,
        (array(2, 64, 32), array(32, 48), array(32, 48)),
    ),
    "any_axes": (lambda x: x + x, (array(3, 4),)),
    "size_as_number": (lambda x: x.sum(-1, keepdims=True) / 8, (array(5, 8),)),
    "literal_size": (lambda x, y: x @ y, (array(2, 6, 1), array(1, 4))),
    "repeated_axis": (lambda x: x.mT @ x.mT, (array(2, 6, 6),)),
    "number": (lambda x, y: x / 3.0 + y / 3.0, (array(3, 4), array(4))),
    "two_numbers": (lambda x: x + 5.0 - 3.0, (array(3, 4),)),
    "axis": (lambda x: np.exp(log_softmax(x, axis=(-2,))), (array(3, 4),)),
    "entries": (
        lambda x: transpose_op(transpose_op(x, perm=(-1, -3, -2)), perm=(-2, -3, -1)),
        (array(2, 3, 4),),
    ),
    "tuples": (
        lambda x: reshape_op(reshape_op(x, shape=(12,)), shape=(2, 6)),
        (array(3, 4),),
    ),
    "integers": (
        lambda x, s: conv2d(x, LIFTED["w"], (1, 1), (1, 1), (1, 1), 1) * s,
        (array(1, 3, 5, 5), array(4, 1, 1)),
    ),
    "mask": (
        lambda x, y, z: np.where(MASK, np.where(MASK, x, y), z),
        (array(6), array(6) + 1, array(6) + 2),
    ),
    "domain": (lambda x: np.sqrt(np.exp(x) * np.exp(x)), (array(3, 4),)),
    "results": (
        lambda x: (x @ array(8, 5), x @ array(8, 6)),
        (array(2, 4, 8),),
    ),
    "fusion": (
        lambda x, w, b: gelu(x @ w + b),
        (array(64, 32), array(32, 48), array(48)),
    ),
    "near": (lambda x: gelu(x), (array(3, 4),)),
    "scalar": (
        lambda x, s: np.tanh(x) * s,
        (array(3, 4), np.float64(2.0)),
    ),
    "wrong": (
        lambda x, y: np.sinh(x) * np.cosh(y) + np.cosh(y) * np.sinh(x),
        (array(3, 4), array(4)),
    ),
}
"""For each rule a program that it rewrites."""


# -- the same rules as in Python -------------------------------------------------------


def test_the_two_files_hold_the_same_rules() -> None:
    assert len(NAMES) >= 12 and NAMES == [r.name for r in PYTHON] == list(PROGRAMS)


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_in_egglog_text_is_the_rule_in_python(name: str) -> None:
    egg, python = EGG[name], PYTHON[name]
    assert str(egg) == str(python)
    assert egg.signature.inputs == python.signature.inputs
    own = {"function", "signature", "where", "file", "line", "column"}
    plain = [f for f in egg.__dataclass_fields__ if f not in own]
    assert len(plain) >= 10
    for field in (*plain, "sides", "doc"):
        assert getattr(egg, field) == getattr(python, field), field


def record(found: Finding, rule: eq.Rule) -> dict[str, Any]:
    """A finding without the place of its rule."""
    row = json.loads(eq.Report((found,)).to_json())["rules"][0]
    assert (row.pop("file"), row.pop("line")) == (rule.file, rule.line)
    assert row.pop("column") == rule.column
    row["counterexample"] = row["counterexample"].replace(rule.file, "rules")
    return row


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", NAMES)
def test_both_are_checked_alike(name: str) -> None:
    rows = [
        record(eq.check(rules[name], examples=40)[name], rules[name])
        for rules in (EGG, PYTHON)
    ]
    assert rows[0] == rows[1]
    assert (rows[0]["verdict"] == "refused") == (name == "wrong")
    assert rows[0]["examples"] > 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_both_give_the_same_program(name: str) -> None:
    fn, args = PROGRAMS[name]
    options = eq.Options(numerics="approximate")
    lows = [
        eq.jit(fn, rules=rules, options=options).lower(*args) for rules in (EGG, PYTHON)
    ]
    egg, python = lows
    assert egg.optimised.fired[name] > 0
    assert egg.optimised.fired == python.optimised.fired
    assert egg.source("numpy") == python.source("numpy")
    assert str(egg.program) == str(python.program)
    assert egg.optimised.dump() == python.optimised.dump()
    told = egg.explain().record() | {"phases_s": {}}
    assert told == python.explain().record() | {"phases_s": {}}


def test_a_counterexample_loads_the_file() -> None:
    code = eq.check(EGG["wrong"])["wrong"].counterexample
    assert f'eq.load_rules({str(FOLDER / "rules.egg")!r})["wrong"]' in code
    names: dict[str, Any] = {}
    exec(code, names)
    assert not np.allclose(names["left"], names["right"])


def test_a_rule_has_a_line_a_column_and_the_comment_above_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(
        "; About this file.\n\n"
        ";; 2 x: the formula.\n  ; Its source.\n"
        "(rewrite (Add x x) (Multiply x 2.0))\n\n"
        "(ruleset user) (rewrite (Exp x) (Exp x)) (rewrite (Log x) (Log x))\n"
    )
    rules = list(eq.load_rules(path))
    assert [r.name for r in rules] == ["mine:5", "mine:7", "mine:7:42"]
    assert rules[0].doc == "2 x: the formula.\nIts source."
    assert [r.doc for r in rules[1:]] == ["", ""]
    assert [r.place for r in rules] == [
        f"{path}:{at}" for at in ("5:1", "7:16", "7:42")
    ]
    assert eq.check(rules[0])["mine:5"].place == f"{path}:5:1"


def test_letters_of_any_alphabet(tmp_path: Path) -> None:
    """Columns count characters, not bytes."""
    path = tmp_path / "mine.egg"
    line = '(rewrite (Sqrt größe) größe :name "√größe")(rewrite (Exp µ) ν :name "µ")'
    path.write_text(f"; Größe\n{line}\n", encoding="utf-8")
    at = line.index("ν") + 1
    with pytest.warns(eq.RuleWarning):
        rules = eq.load_rules(path)
    assert [r.name for r in rules] == ["√größe"]
    (broken,) = rules.broken
    assert broken.reason == f"{path}:2:{at}: rule 'µ': 'ν' is not in the left side"


def test_the_command_checks_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text("(rewrite (Add x x) (Multiply x 2.0))\n")
    done = CliRunner().invoke(main, ["check", str(path), "--examples", "20"])
    assert done.exit_code == 0 and "mine.egg:1:1" in done.output
    path.write_text("(rewrite (Add x x) (Multiply x 3.0))\n")
    done = CliRunner().invoke(main, ["check", str(path), "--json"])
    (row,) = json.loads(done.output)["rules"]
    assert done.exit_code == 1 and (row["line"], row["column"]) == (1, 1)
    path.write_text("\n (rewrite (Add x x) (Mul x 3.0))\n")
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == 1
    assert done.output == (
        f"Error: {path}:2:21: rule 'mine:2': no op 'Mul'; did you mean 'Multiply'?\n"
    )


def test_an_op_of_a_python_file_is_known(tmp_path: Path) -> None:
    """Files of a folder load in order, and an op of the first is known to the next."""
    (tmp_path / "a_ops.py").write_text(
        "from eqsat import rule\nfrom eqsat.define import composite\n\n\n"
        '@composite("... -> ...")\ndef twice_of(x):\n    """2 x."""\n'
        '    return x + x\n\n\n@rule("...")\ndef again(x):\n    return x + x, 2.0 * x\n'
    )
    (tmp_path / "b_rules.egg").write_text(
        '(rewrite (TwiceOf x) (Add x x) :name "unfold")\n'
    )
    registered = dict(Op.registry)
    try:
        rules = eq.load_rules(tmp_path)
        assert [r.name for r in rules] == ["again", "twice_of", "unfold"]
        assert str(rules["unfold"]) == "twice_of(x)  →  add(x, x)"
    finally:
        Op.registry.clear()
        Op.registry.update(registered)


# -- broken files ----------------------------------------------------------------------

SAME = "(rewrite (Add x x) (Multiply x 2.0)"
BROKEN = {
    "never closed": "(rewrite (Add x x) (Multiply x 2.0)\n\n(rewrite (Exp x) x)",
    "closed twice": SAME + "))",
    "text never closed": SAME + ' :name "double)\n',
    "no command": "rewrite (Add x x) (Multiply x 2.0)",
    "usage": "(rewrite (Add x x))",
    "option": SAME + " :cost 3)",
    "option twice": SAME + " :when ((not-scalar x))\n  :when ((constant x)))",
    "subsume": SAME + " :subsume)",
    "name without quotes": SAME + " :name double)",
    "too deep": "(rewrite " + "(Exp " * 120 + "x" + ")" * 120 + " x)",
    "a rule": "(ruleset user)\n  (rule ((= e (Add x x))) ((union e x)))",
    "a sort": "(sort T)\n",
    "a term": "(Add x x)\n",
    "empty brackets": "()\n",
    "unknown ruleset": "(ruleset late)\n",
    "rule of an unknown ruleset": SAME + " :ruleset late)",
    "unknown op": "(rewrite (Exp (Sotfmax x)) x)",
    "op in short": "(rewrite (Sub x x) 0.0)",
    "number of arrays": "(rewrite (Add x x x) (Multiply x 3.0))",
    "missing attribute": "(rewrite (Sum x) x)",
    "arrays of concatenate": "(rewrite (Concatenate x y -1) x)",
    "too few of concatenate": "(rewrite (Concatenate3 x y -1) x)",
    "unbound": "(rewrite (Add x x)\n  (Add x y))",
    "unbound in a condition": SAME + " :when ((at-least y 0)))",
    "axes of nothing": SAME + ' :when ((axes y "n")))',
    "unknown condition": SAME + " :when ((nonzeros x)))",
    "equation": SAME + " :when ((== n 2)))",
    "condition's arguments": SAME + " :when ((at-least x)))",
    "condition's literal": SAME + ' :when ((at-least x "0")))',
    "condition of a number": SAME + " :when ((at-most x 2.0)))",
    "axes": SAME + ' :when ((axes x "n n-1")))',
    "axes of several": SAME + ' :when ((axes x "m k, k n")))',
    "axes without quotes": SAME + " :when ((axes x n)))",
    "axes twice": SAME + ' :when ((axes x "n") (axes x "m")))',
    "axes before the rest": SAME + ' :when ((axes x "n ...")))',
    "axis as an array": '(rewrite (Add x n) x :when ((axes x "n")))',
    "axis and attribute": '(rewrite (Sum x n) x :when ((axes x "m n")))',
    "numerics": SAME + ' :when ((numerics "close")))',
    "numerics twice": SAME + ' :when ((numerics "exact") (numerics "exact")))',
    "dtypes": SAME + ' :when ((dtypes "complex")))',
    "array as an attribute": "(rewrite (Sum x x) x)",
    "number as an array": "(rewrite (Add x (Scalar a)) (Add x a))",
    "attribute as a number": "(rewrite (Sum x a) (Multiply x (Scalar a)))",
    "axis from the front": "(rewrite (Sum x (vec-of 0)) x)",
    "axis of a variable": '(rewrite (Sum x (vec-of n)) x :when ((axes x "n")))',
    "shape with a float": "(rewrite (Reshape x (vec-of 2 2.5)) x)",
    "attribute without vec-of": "(rewrite (Sum x -1) x)",
    "activation": '(rewrite (Exp x) (MatmulAct x x "glu"))',
    "dtype": '(rewrite (Cast x "float23") x)',
    "text as a term": '(rewrite (Add x "y") x)',
    "arithmetic": "(rewrite (Add x (Scalar (sqrt a))) x)",
    "variable": "(rewrite (Add x lambda) x)",
    "nameless variable": "(rewrite (Add x _) x)",
    "left a variable": "(rewrite x (Add x 0.0))",
    "sides differ in number": "(rewrite (Results (Exp x) (Log x)) (Exp x))",
    "division by zero": "(rewrite (Exp x) (Multiply x (Scalar (/ 1 0))))",
    "not a number": "(rewrite (Exp x) (Add x NaN))",
    "fusion of two ops": "(rewrite (Add x x) (Exp (Exp x)) :ruleset fuse)",
    "both ways, a variable": "(birewrite (Add x 0.0) x)",
    "both ways, unbound": "(birewrite (Add (Multiply y 0.0) x) (Add x x))",
    "both ways, computed": (
        "(birewrite (Transpose x p)\n"
        "           (Transpose x (vec-of (vec-get p 1) (vec-get p 0))))"
    ),
    "both ways, normal form": "(birewrite (Add x x) (Exp x) :ruleset canonicalise)",
    "two of one name": (f'{SAME} :name "double")\n{SAME} :name "double")'),
    "no rule": "(ruleset user) ; and nothing else\n",
}


def refusal(path: Path, text: str) -> str:
    path.write_text("; Sums.\n\n" + text)
    with pytest.raises(eq.RuleError) as caught:
        eq.load_rules(path)
    return str(caught.value).replace(str(path.parent), "folder")


def test_messages(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    assert len(BROKEN) >= 20
    said = {n: refusal(tmp_path / "mine.egg", text) for n, text in BROKEN.items()}
    blocks = [f"## {name}\n{BROKEN[name]:.70}\n\n{m}\n" for name, m in said.items()]
    golden("egg_messages.txt", "\n".join(blocks))


def test_a_broken_file_leaves_everything_as_it_was(tmp_path: Path) -> None:
    ops, modules = dict(Op.registry), set(sys.modules)
    (tmp_path / "a.py").write_text(
        "from eqsat import rule\nfrom eqsat.define import composite\n\n\n"
        '@composite("... -> ...")\ndef doubled(x):\n    """2 x."""\n'
        '    return x + x\n\n\n@rule("...")\ndef again(x):\n    return x + x, 2.0 * x\n'
    )
    x = array(3, 4)
    before = eq.jit(lambda x: x + x).lower(x).source("numpy")
    for text in BROKEN.values():
        (tmp_path / "b.egg").write_text(text)
        with pytest.raises(eq.RuleError):
            eq.load_rules(tmp_path)
        assert Op.registry == ops
    assert not [m for m in set(sys.modules) - modules if "eqsat_rules" in m]
    assert eq.jit(lambda x: x + x).lower(x).source("numpy") == before
    assert np.array_equal(eq.jit(lambda x: x + x, rules=EGG)(x), x + x)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_bytes(b"\xff\xfe(")
    with pytest.raises(eq.RuleError, match="expected UTF-8"):
        eq.load_rules(path)
