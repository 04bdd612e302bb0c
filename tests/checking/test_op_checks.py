"""Kernels, prices and derivatives that authors of ops give: wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import eqsat as eq
from eqsat.terms import Op

HEAD = """import numpy as np
from eqsat.define import composite, op
from eqsat.ops import exp, sqrt

kept = []


"""
KERNEL = '\n\n@mine.lowering("numpy"{more})\ndef kernel({x}, *, out):\n    {lines}\n'

RIGHT = {
    "square": ("x", "x * x", "np.multiply(x, x, out=out)"),
    "in steps": ("x", "exp(x) + 1", "np.exp(x, out=out); out += 1"),
    "two arrays": ("x, y", "x * y + x", "np.multiply(x, y, out=out); out += x"),
    "another order": ("x", "x * 2 + 1", "np.add(x, 0.5, out=out); out *= 2"),
}
WRONG = {
    # kernel: parameters, body, lines, what is said
    "no minus": ("x", "-exp(x)", "np.exp(x, out=out)", "differ by"),
    "another function": ("x", "exp(x)", "np.expm1(x, out=out)", "differ by"),
    "too coarse": ("x", "exp(x)", "out[...] = np.exp(x.astype('f2'))", "differ by"),
    "no NaN": ("x", "x + 1", "out[...] = np.nan_to_num(x) + 1", "finite"),
    "no infinity": ("x", "x * 2", "out[...] = np.clip(x, -1e5, 1e5) * 2", ""),
    "operands swapped": ("x, y", "x - y", "np.subtract(y, x, out=out)", "differ by"),
    "first element": ("x", "x + 1", "out[...] = 0; out[:1] = x[:1] + 1", ""),
    "nothing": ("x", "x + 1", "pass", ""),
    "keeps out": ("x", "x + 1", "np.add(x, 1, out=out); kept.append(out)", "reference"),
    "keeps a view": (
        "x",
        "x + 1",
        "np.add(x, 1, out=out); kept.append(out.T)",
        "reference",
    ),
    "changes x": ("x", "x + 1", "x += 1; out[...] = x", "changes an argument"),
    "outside of out": (
        "x",
        "x + 1",
        "np.add(x, 1, out=out); base = out.base\n"
        "    while base.base is not None: base = base.base\n"
        "    base[:1] = 0",
        "outside of out",
    ),
    "takes strides for granted": (
        "x",
        "x + 1",
        "y = np.lib.stride_tricks.as_strided(x, out.shape, out.strides)\n"
        "    np.add(y, 1, out=out)",
        "",
    ),
    "raises": ("x", "x + 1", "raise KeyError('lost')", "it raises KeyError"),
}
PRICES = {
    "raises": ("lambda *a: 1 / 0", "raises ZeroDivisionError"),
    "negative": ("lambda *a: -1e-6", "expected a finite number"),
    "endless": ("lambda *a: float('inf')", "expected a finite number"),
    "no number": ("lambda *a: float('nan')", "expected a finite number"),
    "text": ("lambda *a: 'fast'", "raises ValueError"),
    "none": ("lambda *a: None", "raises TypeError"),
    "of three": ("lambda types: 1.0", "raises TypeError"),
}
SLOPES = {
    # body, its derivative by x: right where nothing is said
    "square": ("x * x", "g * x * 2.0", True),
    "by the result": ("exp(x)", "g * z", True),
    "root": ("sqrt(x * x + 1)", "g * x / z", True),
    "half of it": ("x * x", "g * x", False),
    "sign": ("exp(x)", "g * z * -1.0", False),
    "another function": ("exp(x)", "g * x", False),
    "no g": ("x * x", "x * 2.0", False),
    "one": ("x * x", "g", False),
    "nothing": ("exp(x)", "g * 0.0", False),
    "off by one": ("exp(x)", "g * (z + 1.0)", False),
    "slightly off": ("exp(x)", "g * z * 1.001", False),
    "squared": ("exp(x)", "g * z * z", False),
    "inverse": ("sqrt(x * x + 1)", "g * z / (x * x + 1.0)", False),
    "cube": ("x * x * x", "g * x * x", False),
}


def finding(path: Path, text: str) -> eq.Finding:
    path.write_text(HEAD + text)
    try:
        (found,) = eq.check(eq.load_rules(path), lints=False)
    finally:
        Op.registry.pop("mine", None)
    assert (found.kind, found.rule, found.file) == ("op", "mine", str(path))
    assert found.line == text[: text.index("def mine")].count("\n") + HEAD.count("\n")
    return found


def kernel(x: str, body: str, lines: str, more: str = "") -> str:
    axes = ", ".join(["..."] * len(x.split(", ")))
    given = f'@composite("{axes} -> ...", recognised=False)\ndef mine({x}):\n'
    return f"{given}    return {body}\n" + KERNEL.format(x=x, lines=lines, more=more)


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name: str, tmp_path: Path) -> None:
    found = finding(tmp_path / "ops.py", kernel(*RIGHT[name]))
    assert found.verdict == "tested" and found.examples >= 100, found.reason


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_refused(name: str, tmp_path: Path) -> None:
    *given, said = WRONG[name]
    found = finding(tmp_path / "ops.py", kernel(*given))
    assert found.verdict == "refused" and said in found.reason
    assert "its kernel for numpy" in found.reason


@pytest.mark.parametrize("name", PRICES)
def test_prices_that_are_none_are_named(name: str, tmp_path: Path) -> None:
    seconds, said = PRICES[name]
    text = kernel(*RIGHT["square"], f", seconds={seconds}")
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == "refused"
    assert "seconds of its kernel for numpy" in found.reason and said in found.reason


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_are_compared_with_differences(name: str, tmp_path: Path) -> None:
    body, slope, right = SLOPES[name]
    text = (
        f'@composite("... -> ...", recognised=False, vjp=lambda g, x, z: {slope})\n'
        f"def mine(x):\n    return {body}\n"
    )
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == ("tested" if right else "refused"), found.reason
    assert right or "central differences say" in found.reason


def test_a_kernel_that_is_not_run_is_named(tmp_path: Path) -> None:
    text = kernel(*RIGHT["square"]).replace('"numpy"', '"elsewhere"')
    (lint,) = finding(tmp_path / "ops.py", text).lints
    assert lint.kind == "not run" and "elsewhere" in lint.text
