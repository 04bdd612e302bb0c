"""Ops of a user's own: their bodies as rules, their lowerings, and what these cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.numpy_api.table import FUNCTIONS, covers
from eqsat.ops import add, exp, multiply, sqrt
from eqsat.rulelang.recognition import recognition
from eqsat.terms.op import Op
from eqsat.terms.op_factories import composite, fused, op, pointwise

rng = np.random.default_rng(11)
X = rng.standard_normal((64, 48)).astype(np.float32)


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Ops that a test defines are gone after it."""
    before = dict(Op.registry)
    yield
    Op.registry.clear()
    Op.registry.update(before)


def squareplus_op() -> Op:
    @composite("... -> ...")
    def squareplus(x: Any) -> Any:
        """(x + √(x² + 4)) / 2."""
        return (x + sqrt(x * x + 4.0)) * 0.5

    return squareplus


def reads_after_it_writes(x: Any, *, out: Any) -> None:
    """Wrong where ``out`` is the memory of ``x``."""
    np.multiply(x, x, out=out)
    out += 4.0
    np.sqrt(out, out=out)
    out += x
    out *= 0.5


def test_a_lowering_is_what_runs() -> None:
    squareplus = squareplus_op()
    calls = []

    @squareplus.lowering("numpy")
    def kernel(x: Any, *, out: Any) -> None:
        calls.append((x.shape, out.shape, out.dtype, np.shares_memory(x, out)))
        reads_after_it_writes(x, out=out)

    low = eq.jit(lambda x: squareplus(x)).lower(X)
    assert "squareplus_lowering(x, out=squareplus_0)" in low.source("numpy")
    (y,) = low.compile()(X)
    assert calls == [(X.shape, X.shape, np.dtype("f4"), False)]
    np.testing.assert_allclose(y, squareplus(X), rtol=1e-6)


def test_a_lowering_never_writes_over_its_arguments() -> None:
    """The argument dies here, and a pointwise kernel would take its memory."""
    squareplus = squareplus_op()
    squareplus.lowering("numpy")(reads_after_it_writes)

    x = rng.standard_normal((8, 8))
    low = eq.jit(lambda x: squareplus(x @ x)).lower(x)
    assert not low.program.plan.in_place
    np.testing.assert_allclose(low.compile()(x)[0], squareplus(x @ x), rtol=1e-12)


def test_numbers_and_attributes_are_given_as_such() -> None:
    @composite("..., -> ...")
    def powered(x: Any, s: Any, *, k: int = 2) -> Any:
        """s xᵏ for k of 2 or 3."""
        return x * x * s if k == 2 else x * x * x * s

    seen = []

    @powered.lowering("numpy")
    def kernel(x: Any, s: Any, *, out: Any, k: int) -> None:
        seen.append((s, k))
        np.power(x, k, out=out)
        out *= s

    fast = eq.jit(lambda x: powered(x, 0.5, k=3))
    np.testing.assert_allclose(fast(X), X**3 * 0.5, rtol=1e-5)
    assert seen == [(0.5, 3)]


def test_an_op_of_a_reference_has_a_lowering_too() -> None:
    @op("... n -> ... n")
    def running_sum(x: Any) -> Any:
        """Sums of the first elements."""
        return np.cumsum(x, axis=-1)

    calls = []

    @running_sum.lowering("numpy")
    def kernel(x: Any, *, out: Any) -> None:
        calls.append(out.shape)
        np.cumsum(x, axis=-1, out=out)

    y = eq.jit(lambda x: running_sum(x) + 1.0)(X)
    np.testing.assert_allclose(y, np.cumsum(X, -1) + 1, rtol=1e-5)
    assert calls == [X.shape]


def test_a_pointwise_op_keeps_its_lowering_inside_another_kernel() -> None:
    """There its result may be in the memory of its argument."""
    halved = pointwise("halved", lambda x: x * 0.5)
    shared = []

    @halved.lowering("numpy")
    def kernel(x: Any, *, out: Any) -> None:
        shared.append(np.shares_memory(x, out))
        out[...] = 7.0  # whoever reads x after this sees it
        np.multiply(x, 0.5, out=out)

    @composite("... -> ...")
    def half_exp(x: Any) -> Any:
        """eˣ / 2."""
        return halved(exp(x))

    np.testing.assert_allclose(eq.jit(lambda x: half_exp(x))(X), np.exp(X) / 2, 1e-6)
    assert shared and not any(shared)


@pytest.mark.parametrize(("cheap", "ops"), [(True, ["plus_times"]), (False, None)])
def test_a_price_of_ones_own_decides(cheap: bool, ops: list[str] | None) -> None:
    @fused("..., ..., ... -> ...")
    def plus_times(x: Any, y: Any, z: Any) -> Any:
        """(x + y) z."""
        return multiply(add(x, y), z)

    seen = []

    def seconds(types: Any, attrs: Any, out: Any) -> float:
        seen.append((types[0], attrs, out))
        return 1e-9 if cheap else 1.0

    @plus_times.lowering("numpy", seconds=seconds)
    def kernel(x: Any, y: Any, z: Any, *, out: Any) -> None:
        np.add(x, y, out=out)
        out *= z

    rules = eq.default_rules() + recognition(plus_times)
    fast = eq.jit(lambda x, y, z: (x + y) * z, rules=rules)
    y, z = X + 1, X + 2
    low = fast.lower(X, y, z)
    found = [k.op.name for k in low.program.kernels]
    assert found == ops if ops else "plus_times" not in found
    assert seen[0] == ((np.dtype("f4"), (64, 48)), {}, (np.dtype("f4"), (64, 48)))
    if cheap:
        assert low.optimised.cost_s == 1e-9
    np.testing.assert_allclose(fast(X, y, z), (X + y) * z, rtol=1e-6)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_that_is_none(price: float) -> None:
    squareplus = squareplus_op()
    squareplus.lowering("numpy", seconds=lambda *_: price)(reads_after_it_writes)
    with pytest.raises(eq.EqsatError) as caught:
        eq.jit(lambda x: squareplus(x)).lower(X)
    assert str(caught.value) == (
        f"op squareplus: its lowering costs {price!r} s, expected a finite number that "
        f"is not negative"
    )


def test_an_attribute_called_out() -> None:
    @composite("... -> ...")
    def odd(x: Any, *, out: int = 1) -> Any:
        """x."""
        return x * 1.0

    with pytest.raises(eq.EqsatError, match="attribute 'out' is also what a lowering"):
        odd.lowering("numpy")


def test_a_lowering_of_another_module_is_not_replaced_in_silence() -> None:
    squareplus = squareplus_op()
    squareplus.lowering("numpy")(reads_after_it_writes)
    squareplus.lowering("numpy")(lambda x, *, out: None)  # as a cell that runs again
    other = partial(reads_after_it_writes)
    other.__module__ = "other"  # type: ignore[attr-defined]
    with pytest.raises(eq.EqsatError, match=r"for numpy in .*test_lowerings\n  write"):
        squareplus.lowering("numpy")(other)
    squareplus.lowering("native")(other)
    squareplus.lowering("numpy", replace=True)(other)
    assert squareplus.lowerings["numpy"].function is other


def test_a_handler_of_another_module_is_not_replaced_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mine(x: Any) -> Any:
        return x

    before = FUNCTIONS[np.vander]
    monkeypatch.setitem(FUNCTIONS, np.vander, before)
    with pytest.raises(eq.EqsatError, match=r"np\.vander has a handler in eqsat"):
        covers("vander")(mine)
    assert FUNCTIONS[np.vander] is before
    covers("vander", replace=True)(mine)
    assert FUNCTIONS[np.vander] is mine


# -- the bodies of composites as rules of their file -----------------------------------

FILE = '''
from eqsat import rule
from eqsat.define import composite
from eqsat.ops import sqrt, tanh


@composite("... -> ...")
def squareplus(x):
    """(x + √(x² + 4)) / 2."""
    return (x + sqrt(x * x + 4.0)) * 0.5
'''


# checking/test_op_checks.py loads files with ops of theirs every time.
@pytest.mark.slow
def test_loading_a_file_takes_the_bodies_of_its_composites(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    for _ in range(2):  # a file is read anew each time
        rules = eq.load_rules(file)
        assert [r.name for r in rules] == ["squareplus"]
        assert (rules["squareplus"].place, rules["squareplus"].phase) == (
            f"{file}:7",
            "recognise",
        )
        fast = eq.jit(
            lambda x: 0.5 * (np.sqrt(x**2 + 4) + x), rules=eq.default_rules() + rules
        )
        low = fast.lower(X)
        assert [k.op.name for k in low.program.kernels] == ["squareplus"]
        np.testing.assert_allclose(fast(X), (X + np.sqrt(X * X + 4)) / 2, rtol=1e-6)
    assert eq.check(rules).ok


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '@composite("... -> ...")\ndef odd(x, *, k: int):\n    """x k."""\n'
            "    return x * k\n",
            "{file}:13: the body of 'odd' cannot be a rule: attribute 'k' has no "
            "default and no choices=; recognised=False makes none of it",
        ),
        (
            '@composite("... n -> ... n")\ndef odd(x):\n    """x."""\n    return x\n',
            "{file}:13: rule 'odd': the left side is x, expected an operation\n"
            "  recognised=False makes no rule of the body of 'odd'",
        ),
    ],
)
def test_a_body_that_is_no_rule(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{FILE}\n\n{line}")
    with pytest.warns(eq.RuleWarning) as caught:
        assert [r.name for r in eq.load_rules(file)] == ["squareplus"]
    assert str(caught[0].message).startswith(said.format(file=file))
    unrecognised = line.replace('")\n', '", recognised=False)\n', 1)
    file.write_text(f"{FILE}\n\n{unrecognised}")
    assert [r.name for r in eq.load_rules(file)] == ["squareplus"]


def test_the_body_of_an_op_as_a_rule() -> None:
    squareplus = squareplus_op()
    rules = eq.recognition(squareplus)
    assert [r.name for r in rules] == ["squareplus"] and eq.check(rules).ok
    with pytest.raises(eq.RuleError) as caught:
        eq.recognition(exp)
    assert str(caught.value) == "the body of op 'exp' is no rule: it has no body"
    with pytest.raises(eq.RuleError, match="recognised=False, or has no axis sig"):
        eq.recognition(eq.rope)


def test_composites_that_a_file_imports_are_not_its_rules(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"from eqsat.ops import gelu, softmax\n{FILE}")
    assert [r.name for r in eq.load_rules(file)] == ["squareplus"]
