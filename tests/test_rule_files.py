"""Rule files: what is wrong with one is said by name, and nothing of it stays."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import eqsat as eq
from eqsat.op import Op

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
        '@rule("... n")\ndef f(x):\n    return exp(x), exp(x) * exp(x).shape[-1]\n'
    ),
    "axis not named": '@rule("... n")\ndef f(x):\n    return exp(x), x * x.shape[-2]\n',
    "array on a side": (
        'import numpy as np\n\n\n@rule("n")\ndef f(x):\n    return x + np.ones(3), x\n'
    ),
    "text on a side": '@rule("n")\ndef f(x):\n    return exp(x), "x"\n',
    "condition": (
        '@rule("n", where=lambda x: True)\ndef f(x):\n    return x + x, x * 2.0\n'
    ),
    "signature": '@rule("n n-1")\ndef f(x):\n    return x + x, x * 2.0\n',
    "axis of any rank": (
        '@rule("...")\ndef f(x):\n    return x.sum(0, keepdims=True), x\n'
    ),
    "no rule": "x = 1\n",
    "syntax": "def f(:\n",
    "exception": "1 / 0\n",
    "name": '@rule("n")\ndef f(x):\n    return sqrt(x), x\n',
    "import": "from eqsat.ops import nothing\n",
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


def test_nothing_stays_of_a_broken_file(tmp_path: Path) -> None:
    ops, modules = dict(Op.registry), set(sys.modules)
    text = (
        "from eqsat.define import composite\n\n\n"
        '@composite("... -> ...")\ndef doubled(x):\n    """2 x."""\n'
        "    return x + x\n\n\n"
    )
    for wrong in BROKEN.values():
        refusal(tmp_path / "mine.py", text + wrong)
    assert Op.registry == ops
    assert not [m for m in set(sys.modules) - modules if "mine" in m]
    x = np.ones((3, 4))
    assert np.array_equal(eq.jit(lambda x: x + x)(x), x + x)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(eq.RuleError, match=r"rule file '.*none.py' does not exist"):
        eq.load_rules(tmp_path / "none.py")
    (tmp_path / "rules.txt").write_text("")
    with pytest.raises(eq.RuleError, match=r"expected a \.py file"):
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
        return [k.op.name for k in fast.lower(x, y, z).program.kernels]

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


def test_rules_that_contradict_each_other_are_an_error_not_a_number(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        HEAD + '@rule("... n")\ndef sum_is_nothing(x):\n'
        '    """Σ x is not x."""\n    return x.sum(-1, keepdims=True), x\n'
    )
    rules = eq.default_rules() + eq.load_rules(path)
    x = np.ones((3, 4))
    with pytest.raises(eq.EngineError, match="different shape or dtype") as caught:
        eq.jit(lambda x: np.exp(x).sum(-1, keepdims=True), rules=rules)(x)
    assert "sum_is_nothing" in str(caught.value)
    assert eq.jit(lambda x: x.sum(-1))(x).tolist() == [4.0] * 3
