"""The check of rules: wrong ones are refused with code that shows why, others pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sizes import is_whole

import eqsat as eq
from eqsat import ops
from eqsat.checking.bounds.error_bounds import Analysis
from eqsat.checking.check_rules import EMPTY
from eqsat.command.cli import main
from eqsat.ops import exp, log1p, sin, sqrt
from eqsat.rulelang.condition import LEAF_FACTS, facts_of
from eqsat.rulelang.rule_sides import sides, trace_sides
from eqsat.support.error_interval import Range
from eqsat.terms import TermGraph, constant
from eqsat.trace import trace

ROOT = Path(__file__).resolve().parents[2]
MENDED = "_mended"
RULES = eq.load_rules(Path(__file__).resolve().parents[1].joinpath("wrong_rules"))
WRONG = [r for r in RULES if not r.name.endswith(MENDED)]
SAMPLE = [
    *("times_one", "add_negative", "power_half", "divide_by_number", "matmul_factors"),
    *("attention_of_causal", "scale_into_kernel", "two_products_merge", "group_norm_1"),
    *("transpose_then_231", "reshape_to_same", "softmax_of_logsumexp", "rope"),
    *("linear[gelu]", "layer_norm_matmul[silu]", "lora", "batch_norm_reciprocal_0"),
]
"""Stock rules that are checked every time; the slow test checks them all."""
PARTS = 16


def checked(rule: eq.Rule) -> eq.Finding:
    return eq.check(rule, lints=False)[rule.name]


def test_there_are_enough_wrong_rules() -> None:
    assert len(WRONG) >= 50
    assert len(RULES) == 2 * len(WRONG)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("rule", WRONG, ids=lambda r: r.name)
def test_wrong_rules_are_refused_and_mended_ones_pass(rule: eq.Rule) -> None:
    found = checked(rule)
    assert found.verdict == "refused" and found.reason and found.counterexample
    mended = checked(RULES[rule.name + MENDED])
    assert mended.verdict != "refused", f"{mended.reason}\n{mended.counterexample}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", SAMPLE)
def test_stock_rules_pass(name: str) -> None:
    found = checked(eq.default_rules()[name])
    assert found.verdict != "refused", f"{found.reason}\n{found.counterexample}"
    assert found.examples >= 50


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_stock_rules_pass_without_lints(part: int) -> None:
    report = eq.check(list(eq.default_rules())[part::PARTS])
    assert report.ok, "\n".join(f"{f.reason}\n{f.counterexample}" for f in report)
    assert not report.lints


@pytest.mark.parametrize("name", ["sinh_of_sum", "ratio_to_itself", "sum_of_broadcast"])
def test_a_counterexample_runs_when_pasted(name: str) -> None:
    code = checked(RULES[name]).counterexample
    seen: dict[str, object] = {}
    with np.errstate(all="ignore"):
        exec(code, seen)
    assert not np.array_equal(np.asarray(seen["left"]), np.asarray(seen["right"]))
    assert "# left: " in code and "import eqsat as eq" in code


def test_a_counterexample_is_small() -> None:
    code = checked(RULES["softmax_without_max"]).counterexample
    (line,) = [x for x in code.splitlines() if x.startswith("x = ")]
    assert len(line) < 60, line


def test_a_class_is_inferred_where_none_is_declared() -> None:
    @eq.rule("..., ...", numerics=None)
    def commutes(x, y):  # type: ignore[no-untyped-def]
        """x + y = y + x."""
        return x + y, y + x

    @eq.rule("...", numerics=None)
    def log_spelled_out(x):  # type: ignore[no-untyped-def]
        """ln(1 + x) rounds."""
        return np.log(x + 1.0), log1p(x)

    @eq.rule("...", numerics=None)
    def neither(x):  # type: ignore[no-untyped-def]
        """eˣ is not x."""
        return exp(x), x + 0.0

    report = eq.check([commutes, log_spelled_out, neither], lints=False)
    assert report["commutes"].numerics == "exact"
    assert report["log_spelled_out"].numerics == "reassociate"
    assert report["neither"].verdict == "refused"
    assert commutes.numerics == "reassociate"


def test_a_rule_that_nothing_reaches_is_refused() -> None:
    from eqsat.rulelang.condition import equal

    @eq.rule("m n", where=lambda x: equal(x.shape[0], 5000))
    def never(x):  # type: ignore[no-untyped-def]
        """Only of five thousand rows."""
        return exp(x), exp(x)

    assert checked(never).reason == "no drawn arguments reach its left side"


def test_what_only_empty_arrays_reach_is_refused() -> None:
    @eq.rule("m n", where=lambda x: x.shape[0] * 3000 < x.shape[1] + 1)
    def of_nothing(x):  # type: ignore[no-untyped-def]
        """Of no rows, but for very many columns."""
        return x * 2.0, x * 3.0

    assert checked(of_nothing).reason == EMPTY


def test_a_rule_may_divide_by_a_size() -> None:
    @eq.rule("n")
    def rolled(x):  # type: ignore[no-untyped-def]
        """What is moved is scaled alike."""
        return np.roll(x, 1) * 2.0, np.roll(x * 2.0, 1)

    assert checked(rolled).verdict == "tested"


def test_an_approximation_must_say_how_good_it_is() -> None:
    with pytest.raises(eq.RuleError, match="expected a tolerance"):

        @eq.rule("...", numerics="approximate")
        def forgotten(x):  # type: ignore[no-untyped-def]
            """A tolerance is missing."""
            return sin(x), x + 0.0


# Reports that tests compare to the letter would show it, in another run.
@pytest.mark.slow
def test_findings_do_not_change_from_run_to_run() -> None:
    rules = list(RULES)[: 6 if is_whole() else 1]
    assert eq.check(rules).to_json() == eq.check(rules).to_json()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["softmax", "gelu_summed", "matmul_associates_right"])
def test_errors_stay_within_their_bounds(name: str, dtype: str) -> None:
    """What a dtype computes lies in the ball of the value in extended precision."""
    rule = eq.default_rules()[name]
    rng = np.random.default_rng(0)
    shapes = {"softmax": [(3, 40)], "gelu_summed": [(50,)]}
    drawn = [
        rng.uniform(-3, 3, s).astype(dtype)
        for s in shapes.get(name, [(4, 9), (9, 8), (8, 7)])
    ]
    args = [*drawn, *[(-1,) for _ in rule.numbers]]
    traced = trace_sides(rule, args)
    work = Analysis(traced.inputs, Range(1e4))
    for computed, term in zip(
        sides(rule, *args), traced.left + traced.right, strict=True
    ):
        ball = work.balls([term])[0]
        assert np.all(np.abs(computed.astype(np.longdouble) - ball.value) <= ball.error)
        size = np.abs(ball.value).max()
        assert np.all(ball.error <= 500 * np.finfo(dtype).eps * size)


TINY, INF = np.float32(1e-30), np.float32(np.inf)


@pytest.mark.parametrize(
    "f, x, w, decided",
    [
        (np.multiply, [TINY], [INF], False),
        (np.multiply, [1], [INF], True),
        (np.multiply, [0], [INF], True),
        (np.multiply, [TINY, 1], [1, INF], True),
        (np.matmul, [[TINY, 1]], [[INF], [0]], False),
        (np.matmul, [[TINY, 1]], [[0], [INF]], True),
        (lambda x, w: w @ x, [[TINY], [1]], [[0, INF], [INF, 0]], False),
        (lambda x, w: w @ x, [[TINY], [1]], [[0, INF], [0, 0]], True),
        (lambda x, w: x @ x, [[TINY, INF], [1, 1]], [1], False),
        (lambda x, w: x @ x, [[1, INF], [1, TINY]], [1], False),
        (lambda x, w: x @ x, [[1, INF], [1, 1]], [1], True),
    ],
)
def test_whether_an_infinity_meets_0_may_be_for_rounding_to_say(
    f: Any, x: Any, w: Any, decided: bool
) -> None:
    """x² of 1e-30 is 0 in float32, and 0·∞ is NaN; computed wider it is not, and the
    product is ∞."""
    x, w = np.array(x, np.float32), np.array(w, np.float32)
    (term,) = trace(lambda x, w: f(x * x, w), [x, w]).outputs
    span = Range(1e4)
    Analysis([x, w], span).balls([term])
    assert span.pole is not decided


@pytest.mark.parametrize(
    "nan",
    [
        lambda x: sqrt(-exp(x)),
        lambda x: ops.rsqrt(-exp(x)),
        lambda x: ops.log(-exp(x)),
        lambda x: log1p(-exp(x) - 1.0),
        lambda x: ops.power(-exp(x), 0.5),
        lambda x: ops.arccosh(-exp(x)),
        lambda x: ops.arcsin(exp(x) + 2.0),
        lambda x: ops.divide(sqrt(-exp(x)), exp(x)),
    ],
)
def test_what_is_outside_of_a_domain_for_certain_is_decided(nan: Any) -> None:
    """A right side that is NaN for all numbers is no other way to write eˣ."""

    def wrong(x: Any) -> Any:
        return exp(x), nan(x)

    found = checked(eq.rule("...")(wrong))
    assert found.verdict == "refused" and "not finite" in found.reason


LOST = [
    lambda x: exp(exp(x) + 20000.0),
    lambda x: ops.cosh(exp(x) + 20000.0),
    lambda x: (exp(x) - exp(x)) / (exp(x) - exp(x)),
    lambda x: ops.log(exp(x) - exp(x)),
    lambda x: exp(x) / (exp(x) * 1e-30) * 1e300 * 1e300,
]
"""What is beyond the working range, or decided by rounding, for all that is drawn."""


@pytest.mark.parametrize("lost", LOST)
def test_what_is_never_compared_is_refused(lost: Any) -> None:
    found = checked(eq.rule("...", name="wrong")(lambda x: (lost(x), exp(x))))
    assert found.verdict == "refused" and "finite" in found.reason
    both = checked(eq.rule("...", name="both")(lambda x: (lost(x), lost(x) + 0.0)))
    assert both.verdict != "refused", both.reason


@pytest.mark.parametrize("lost", LOST)
def test_what_the_right_side_alone_loses_is_refused(lost: Any) -> None:
    found = checked(eq.rule("...", name="wrong")(lambda x: (exp(x), lost(x))))
    assert found.verdict == "refused" and "one side alone" in found.reason


def test_facts_of_constants_warn_of_nothing() -> None:
    graph = TermGraph()
    for value in (np.inf, -np.inf, np.nan, 1e300):
        array = np.eye(3)
        array[1, 2] = array[2, 1] = value
        for held in (array, np.full((3, 3), value)):
            assert "orthonormal" not in facts_of(constant(graph, held), LEAF_FACTS)


FILE = '''
from eqsat import rule
from eqsat.ops import exp, sin


@rule("..., ...")
def right(x, y):
    """x + y = y + x."""
    return sin(x) * x + y, y + x * sin(x)


@rule("...")
def wrong(x):
    """e^-x is not eˣ."""
    return exp(-x), exp(x)
'''


def test_the_command_prints_json_or_a_table(tmp_path: Path) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(FILE, encoding="utf-8")
    words = ["check", str(file), "--examples", "20"]
    result = CliRunner().invoke(main, [*words, "--json"])
    assert result.exit_code == 1, result.output
    rows = json.loads(result.stdout)["rules"]
    assert [r["verdict"] for r in rows] == ["proved", "refused"]
    assert rows[0].keys() >= {"rule", "file", "line", "numerics", "verdict"}
    assert 0 < rows[0]["error_probability"] < 1e-30
    assert rows[0]["proved_for"] and rows[1]["error_probability"] is None
    assert [lint["kind"] for lint in rows[0]["lints"]] == ["derivable"]
    assert (rows[1]["rule"], rows[1]["line"]) == ("wrong", 12)
    table = CliRunner().invoke(main, words).stdout
    assert "2 rules: 1 proved, 0 tested, 1 refused, 1 warning" in table
    assert "left, right = sides(rule, x)" in table


def test_the_command_succeeds_when_no_rule_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(FILE.split('@rule("...")')[0], encoding="utf-8")
    words = ["check", str(file), "--examples", "5", "--no-lints"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "derivable" not in result.output


def test_importing_eqsat_does_not_import_hypothesis() -> None:
    code = "import sys, eqsat; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
