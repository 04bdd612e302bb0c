"""Rules broken on purpose are refused, or they are the rule in other words."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat.checking.mutants import mutations, try_mutants
from eqsat.command.cli import main

STOCK = list(eq.default_rules())
PARTS = 16


def test_mutants_of_stock_rules_are_refused_or_equivalent() -> None:
    rules = [r for r in STOCK if r.name in ("matmul_factors", "rms_norm", "times_one")]
    found = try_mutants(rules, examples=60, most=12)
    assert len(found) > 10
    alive = [m for m in found if m.fate == "alive"]
    assert not alive, alive


def test_changes_are_those_that_people_make() -> None:
    changes = {what for r in STOCK for _, what in mutations(r)}
    for word in (
        *("exchanged", "left out", "minus before", "without the condition"),
        *("is subtract", "is mean", "axis of", "perm of", "starts of", "is -1"),
    ):
        assert any(word in c for c in changes), word


FILE = '''
from eqsat import rule
from eqsat.ops import exp


@rule("..., ...")
def product_of_exponentials(x, y):
    """eˣ eʸ = e^(x + y)."""
    return exp(x) * exp(y), exp(x + y)
'''


def test_the_command_prints_what_passes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    done = CliRunner().invoke(main, ["check", str(file), "--mutants"])
    assert done.exit_code == 0, done.output
    assert "0 equivalent, 0 alive" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_mutants_of_stock_rules(part: int) -> None:
    found = try_mutants(STOCK[part::PARTS], examples=60)
    alive = {f"{m.rule}: {m.change}" for m in found if m.fate == "alive"}
    assert alive <= ALIVE.keys(), alive - ALIVE.keys()


ALIVE = {
    "log_determinant_of_transpose: minus before lu": "|det -a| is |det a|",
    "log_determinant_of_inverse: minus before lu": "|det -a| is |det a|",
    "log_of_absolute_determinant: minus before lu": "|det -a| is |det a|",
    "solution_by_product_of_factors: minus before cholesky": "(-l)(-l)ᵀ is l lᵀ",
    "log_of_determinant: log is log2": "of a sign: 0 of 1, NaN of -1, -∞ of 0",
    "log_of_determinant: minus before log": "0 of a sign 1, NaN of -1; -∞ + ∞ is NaN",
    **dict.fromkeys(
        (
            f"power_{n}: without the condition at least 0"
            for n in ("quarter", "three_quarters", "three_halves")
        ),
        "NaN of what is negative, on both sides; ∞ and NaN of -∞",
    ),
    "log_of_determinant: add is subtract": "0 of a sign 1, NaN of -1; -∞ + ∞ is NaN",
}
"""Mutants that no draw refutes and no proof covers, and why they are right: beside
NaN and ∞ a class promises that neither side is finite, and no more."""
