"""Why a rule is not in the program: a case of each kind, and what they say is true."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat import rule
from eqsat.demo import block
from eqsat.egraph.normal_form import normal_forms
from eqsat.egraph.snapshot import Budget
from eqsat.explain.explanation import Explanation
from eqsat.explain.forced_choice import Forcing
from eqsat.explain.near_miss import Overlay
from eqsat.explain.why_not import KINDS, WhyNot
from eqsat.ops import cos, exp, log, sin, softmax, where
from eqsat.rulelang.condition import causal, constant, equal, normal
from eqsat.rulelang.rule import Rule
from eqsat.search.extraction.cover import FOLDED_S
from eqsat.search.provenance import nodes_of

ROOT = Path(__file__).resolve().parents[2]
rng = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


X, W, B = draw(64, 48), draw(48, 32), draw(32)


def ffn(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


def shared(x: Any, w: Any, b: Any) -> Any:
    h = x @ w + b
    y = np.tanh(h)
    return y, h.sum(axis=0)


def factored(x: Any, y: Any, z: Any) -> Any:
    return x * (y + z)


def wrong_constant(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.044715 * x**3)))


def long_chain(x: Any) -> Any:
    """The border between the regions falls between sin and cos."""
    for _ in range(109):
        x = np.tanh(x)
    x = np.sin(x)
    x = np.cos(x)
    for _ in range(30):
        x = np.tanh(x)
    return x


@rule("..., ..., ...")
def distributes(x, y, z):  # type: ignore[no-untyped-def]
    """x (y + z) = x y + x z."""
    return x * (y + z), x * y + x * z


@rule("...", numerics="approximate(1e-2)")
def sine_of_small(x):  # type: ignore[no-untyped-def]
    """sin x ≈ x."""
    return sin(x), x * 1.0


@rule("..., ...")
def onto_itself(x, y):  # type: ignore[no-untyped-def]
    """x + y = (x + y) 1, which needs its own value."""
    return x + y, (x + y) * 1.0


@rule("...")
def cos_of_sin(x):  # type: ignore[no-untyped-def]
    """Not true: only where it matches is of interest."""
    return cos(sin(x)), exp(x)


@rule("n n")
def square_only(x):  # type: ignore[no-untyped-def]
    """For square matrices."""
    return exp(x), exp(x) * 1.0


@rule("m k, k n, n")
def with_bias(x, w, b):  # type: ignore[no-untyped-def]
    """A bias has one axis, that of the columns."""
    return x @ w + b, (x @ w + b) * 1.0


@rule("...")
def masked(mask: bool):  # type: ignore[no-untyped-def]
    """Of a mask."""
    return ~~mask, mask


@rule("..., ...", where=lambda x, w: constant(w))
def of_constant(x, w):  # type: ignore[no-untyped-def]
    """For a known w."""
    return exp(x) * w, w * exp(x)


@rule("... n", where=lambda x: equal(x.shape[-1] // 2 * 2, x.shape[-1]))
def of_even_rows(x):  # type: ignore[no-untyped-def]
    """For rows of even length."""
    return exp(x), exp(x) * 1.0


@rule("...", where=lambda x, a: normal(a))
def of_normal_factor(x, a: float):  # type: ignore[no-untyped-def]
    """For factors that are not tiny."""
    return sin(x) * a, sin(x) * (1.0 * a)


@rule("m n, m n", where=lambda x, mask: causal(mask))
def of_causal_mask(x, mask: bool):  # type: ignore[no-untyped-def]
    """For causal masks."""
    return where(mask, x, 0.0), x * 1.0


@rule("... n")
def log_of_softmax_here(x):  # type: ignore[no-untyped-def]
    """ln softmax(x) over the last axis."""
    return log(softmax(x)), x - log(exp(x).sum(-1, keepdims=True))


@rule("... n")
def mean_written_out(x):  # type: ignore[no-untyped-def]
    """Σ x / n."""
    n = x.shape[-1]
    return (exp(x) * (1.0 / n)).sum(-1, keepdims=True), exp(x).mean(-1, keepdims=True)


@rule("..., ...")
def two_at_once(x, y):  # type: ignore[no-untyped-def]
    """Both at once."""
    return (exp(x), sin(y)), (exp(x) * 1.0, sin(y) * 1.0)


@dataclass(frozen=True)
class Case:
    kind: str
    f: Callable[..., Any]
    args: Sequence[Any]
    rule: str | Rule
    options: dict[str, Any] = field(default_factory=dict)
    rules: Sequence[Rule] | None = None
    """None for the stock rules."""

    def explain(self) -> Explanation:
        fast = eq.jit(self.f, rules=self.rules, options=eq.Options(**self.options))
        return fast.explain(*self.args)

    def answer(self) -> WhyNot:
        return self.explain().why_not(self.rule)


def alone(
    kind: str, f: Callable[..., Any], args: Sequence[Any], r: Rule, **options: Any
) -> Case:
    """A rule of one's own beside the stock rules."""
    return Case(kind, f, args, r, options, [*eq.default_rules(), r])


CASES = {
    "returned as well": Case(
        "consumer",
        lambda x, w, b: (h := x @ w + b, np.tanh(h)),
        (X, W, B),
        "linear[tanh]",
    ),
    "in the winner": Case("winner", ffn, (X, W, B), "linear[relu]"),
    "behind the winner": Case("winner", ffn, (X, W, B), "relu"),
    "misspelt": Case("absent", ffn, (X, W, B), "linear[rely]"),
    "not added": Case("absent", ffn, (X, W, B), distributes),
    "turned off": Case("disabled", ffn, (X, W, B), "relu", {"disable": {"relu"}}),
    "fusions off": Case("disabled", ffn, (X, W, B), "linear[relu]", {"fusion": False}),
    "numerics": alone("numerics", np.sin, (X,), sine_of_small),
    "dearer": alone("cost", factored, (X, X + 1, X + 2), distributes, fusion=False),
    "second consumer": Case("consumer", shared, (X, W, B), "linear[tanh]"),
    "says that two are one": Case(
        "nothing new", lambda x: np.exp(x * 1.0), (X,), "times_one"
    ),
    "written already": Case(
        "nothing new", lambda x: (eq.relu(x), np.maximum(x, 0)), (X,), "relu"
    ),
    "needs its own value": Case(
        "unused", lambda x: x + x, (X,), onto_itself, {}, [onto_itself]
    ),
    "out of nodes": Case(
        "budget", wrong_constant, (X,), "matmul_factors", {"max_nodes": 4}
    ),
    "across a border": alone("region", long_chain, (X,), cos_of_sin),
    "another op": Case("op", wrong_constant, (X,), "gelu"),
    "no op above": Case("op", lambda x: np.exp(np.exp(-x) + 1), (X,), "sigmoid_of_exp"),
    "none of its ops": Case("op", ffn, (X, W, B), "logsumexp_shifted"),
    "no second left side": alone("op", np.exp, (X,), two_at_once),
    "not square": alone("shape", np.exp, (X,), square_only),
    "bias of another size": alone("shape", ffn, (X, W, B[:1]), with_bias),
    "bias of rank 2": alone("rank", ffn, (X, W, X[:, :32]), with_bias),
    "mask of integers": alone("dtype", lambda x: ~~x, (X.astype(int),), masked),
    "integers": alone("dtype", lambda x: x * (x + x), (X.astype(int),), distributes),
    "two values for x": Case(
        "variable", lambda x, y: x / (1 + np.exp(-y)), (X, X + 1), "silu_of_quotient"
    ),
    "two values for a part": Case(
        "variable",
        lambda x, y: (
            np.exp(x - x.max(-1, keepdims=True))
            / np.exp(y - y.max(-1, keepdims=True)).sum(-1, keepdims=True)
        ),
        (X, X + 1),
        "softmax",
    ),
    "another number": Case("constant", wrong_constant, (X,), "gelu_tanh"),
    "a number of sizes": alone(
        "constant",
        lambda x: (np.exp(x) * 0.25).sum(-1, keepdims=True),
        (X,),
        mean_written_out,
    ),
    "another axis": alone(
        "attribute",
        lambda x: np.log(eq.softmax(x, axis=0)),
        (X,),
        log_of_softmax_here,
    ),
    "no bound known": Case("condition", lambda x: np.power(x, 0.5), (X,), "power_half"),
    "odd sizes": alone("condition", np.exp, (X[:, :47],), of_even_rows),
    "a tiny number": alone(
        "condition", lambda x: np.sin(x) * 1e-40, (X,), of_normal_factor
    ),
    "another mask": alone(
        "condition",
        lambda x: np.where(np.triu(np.ones((8, 8), bool)), x, 0.0),
        (X[:8, :8],),
        of_causal_mask,
    ),
    "an array, no number": Case(
        "not constant", lambda x, s: x / s, (X, X), "divide_by_number"
    ),
    "an argument": alone(
        "not constant", lambda x, w: np.exp(x) * w, (X, X), of_constant
    ),
}


def answers() -> dict[str, WhyNot]:
    with pytest.warns(eq.BudgetWarning):
        return {name: case.answer() for name, case in CASES.items()}


def portable(text: str) -> str:
    """Without the folders of this machine, and without line numbers of this file."""
    text = text.replace(f"{ROOT}/", "")
    text = re.sub(r"(tests/explain/test_whynot\.py):\d+", r"\1", text)
    return re.sub(r"(rule (?:eqsat|rules)/\S+\.py):\d+", r"\1", text)


def test_messages(golden: Callable[[str, str], None]) -> None:
    found = answers()
    assert {n: a.kind for n, a in found.items()} == {
        n: case.kind for n, case in CASES.items()
    }
    assert {a.kind for a in found.values()} == set(KINDS), "a case for every kind"
    blocks = [f"## {n}: {a.kind}\n{portable(str(a))}\n" for n, a in found.items()]
    golden("why_not.txt", "\n".join(blocks))


@pytest.mark.parametrize("name", ["dearer", "another number"])
def test_records_hold_what_is_said(name: str) -> None:
    answer = CASES[name].answer()
    record = json.loads(answer.to_json())
    assert record == answer.record()
    assert record["rule"] and record["kind"] == CASES[name].kind
    assert record["line"] == str(answer.line) and answer.place == record["place"]


def test_what_fits_is_counted() -> None:
    answer = CASES["another number"].answer()
    assert (answer.matched, answer.parts, answer.fired) == (17, 18, 0)
    assert answer.line is not None and "0.8" in answer.line.text
    assert answer.classes == CASES["another op"].answer().classes > 0


# -- what is said of costs is true -----------------------------------------------------


def test_the_cost_lost_is_that_of_the_program_with_the_rule() -> None:
    case = CASES["dearer"]
    answer = case.answer()
    assert answer.cost_s is not None and answer.forced_cost_s is not None
    apart = eq.Options(fusion=False)
    kept = eq.jit(factored, rules=(), options=apart).lower(*case.args)
    spread = eq.jit(lambda x, y, z: x * y + x * z, rules=(), options=apart).lower(
        *case.args
    )
    assert answer.cost_s == pytest.approx(kept.optimised.cost_s, rel=1e-12)
    assert answer.forced_cost_s == pytest.approx(spread.optimised.cost_s, rel=1e-12)
    assert answer.lost_s == answer.forced_cost_s - answer.cost_s > 0


def test_the_cost_lost_is_that_of_turning_the_better_rule_off() -> None:
    """linear[relu] wins; without it, and without what else beats it, linear[plain] is
    the best, and costs what was said."""
    best = eq.jit(ffn).explain(X, W, B)
    answer = best.why_not("linear[plain]")
    assert answer.kind == "cost" and answer.forced_cost_s is not None
    assert best.cost_s == answer.cost_s
    off = {r.name for r in eq.default_rules() if r.name.endswith("[relu]")}
    second = eq.jit(ffn, options=eq.Options(disable=frozenset(off))).explain(X, W, B)
    assert second.why_not("linear[plain]").kind == "winner"
    assert answer.forced_cost_s == pytest.approx(second.cost_s, rel=1e-12)


def test_the_price_of_computing_a_shared_value_twice() -> None:
    answer = CASES["second consumer"].answer()
    assert answer.cost_s is not None and answer.forced_cost_s is not None

    def twice(x: Any, w: Any, b: Any, u: Any, c: Any) -> Any:
        return np.tanh(x @ w + b), (x @ u + c).sum(axis=0)

    args = (X, W, B, W + 1, B + 1)
    separate = eq.jit(twice).explain(*args)
    assert answer.forced_cost_s == pytest.approx(separate.cost_s, rel=1e-12)
    assert answer.line is not None and "h.sum" in answer.line.text


def test_a_forced_program_uses_the_node() -> None:
    """Over e-nodes of a block: the best program found with one has it, and costs what
    the program costs that is built of it."""
    config = block.Config(1, 8, 16, 2)
    model, x, _ = block.draw(config)
    done = eq.jit(model.forward).lower(x).derived
    search = done.search
    assert search is not None
    graph, (part,) = search.graph, search.parts
    budget = Budget.of(60, 10**9)
    forcing = Forcing(graph, search.weights, part.roots, part.used, search.cover)
    tried = range(0, len(graph.nodes), 5 if is_whole() else 25)
    found = 0
    for i in tried:
        cover = forcing.choice(i, budget)
        if cover is None or graph.nodes[i].op.kind == "leaf":
            continue
        found += 1
        assert any(i in nodes_of(cover, way) for _, way in cover.ways)
        folded = FOLDED_S * len(graph.nodes)  # what is known is priced, barely
        assert search.price([cover]) == pytest.approx(cover.cost_s, abs=folded)
    assert found > len(tried) / 3


# -- the nearest match agrees with the engine ------------------------------------------


def attend(x: Any, w: Any, b: Any) -> Any:
    s = x @ w
    e = np.exp(s - s.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return p @ w.T + b, np.log(p), x / (1 + np.exp(-x)), x**0.5 / 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (ffn, (X, W, B)),
        (wrong_constant, (X,)),
        (attend, (X, W, B[:1])),
        (block.draw(block.Config(1, 8, 16, 2))[0].forward, None),
    ],
    ids=["ffn", "gelu", "attention", "block"],
)
def test_a_rule_matches_whole_exactly_where_it_fired(f: Any, args: Any) -> None:
    if args is None:
        args = (block.draw(block.Config(1, 8, 16, 2))[1],)
    e = eq.jit(f).explain(*args)
    assert e._asked is not None
    derivations = e._asked.derivations
    search = derivations.search
    for r in search.rules:
        _, left, _ = normal_forms(search.rules)(r)
        overlay = Overlay(derivations.matcher, r, derivations.words)
        nearest = overlay.nearest(left)
        whole = nearest is not None and not nearest.failures
        assert whole == (e.rules.get(r.name) is not None), r.name
    for i, node in enumerate(search.graph.nodes):
        if node.rule:
            assert derivations.match(i) is not None, (node.rule, i)


# -- why -------------------------------------------------------------------------------


def test_why_lists_every_node_down_to_what_was_written(
    golden: Callable[[str, str], None],
) -> None:
    def f(x: Any, w: Any, b: Any) -> Any:
        h = x @ w + b
        return h / (1 + np.exp(-h))

    e = eq.jit(f).explain(X, W, B)
    (kernel,) = e.kernels
    golden("why.txt", portable(e.why(kernel.name)) + "\n")
    nodes = e.derivation(kernel.name)
    assert nodes[0].depth == 0 and all(n.place for n in nodes)
    for before, node in itertools.pairwise(nodes):
        assert node.depth <= before.depth + (1 if before.rule else 0)
    known = eq.default_rules()
    for n in nodes:
        assert not n.rule or n.place == known[n.rule].place
    own = [n for n in nodes if not n.rule]
    assert own and all(Path(n.place.rsplit(":", 1)[0]) == Path(__file__) for n in own)


# Long to search. Why small programs are what they are is asked every time.
@pytest.mark.slow
def test_why_among_thousands_of_merged_products() -> None:
    """Of 20 products of one array, 1140 triples can be one."""
    ws = [rng.standard_normal((8, 2 + i)) for i in range(20)]
    fast = eq.jit(lambda x: [x @ w for w in ws])
    e = fast.explain(np.ones((3, 8)))
    assert any("_merge" in e.why(kernel.name) for kernel in e.kernels)


def test_why_of_a_program_that_nothing_betters() -> None:
    e = eq.jit(lambda x: np.sin(x), rules=()).explain(X)
    (kernel,) = e.kernels
    (node,) = e.derivation(kernel.name)
    assert (node.text, node.rule, node.depth) == ("sin(x)", "", 0)
    assert f"as written  {node.place}" in e.why(kernel.name)
    assert node.place.startswith(__file__)


def test_commuting_and_back_is_as_written() -> None:
    """add_commutes builds b + x w, and from that x w + b, which was there."""
    e = eq.jit(lambda x, w, b: x @ w + b).explain(X, W, B)
    (kernel,) = e.kernels
    assert kernel.rules == ("linear[plain]",)
    assert [n.rule for n in e.derivation(kernel.name)] == ["linear[plain]", "", ""]


def test_a_rule_can_be_given_itself() -> None:
    e = CASES["dearer"].explain()
    assert e.why_not(distributes) == e.why_not("distributes")
