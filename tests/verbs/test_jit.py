"""The face: what ``jit`` takes and gives, its errors and its budgets."""

from __future__ import annotations

import importlib.metadata
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq

rng = np.random.default_rng(3)
X = rng.standard_normal((8, 6)).astype(np.float32)
W = rng.standard_normal((6, 4)).astype(np.float32)
B = rng.standard_normal(4).astype(np.float32)


def ffn(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


def near(a: Any, b: Any) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_backend_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = importlib.metadata.EntryPoint("broken", "eqsat.no_such", "eqsat.backends")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [broken])
    with pytest.raises(
        eq.BackendError, match=r"(?s)'broken' does not load.*pip install"
    ):
        eq.jit(ffn, backend="broken")


def test_decorators_and_methods() -> None:
    @eq.jit
    def one(x: Any) -> Any:
        """x + 1."""
        return x + 1

    @eq.jit(options=eq.Options(fusion=False))
    def two(x: Any) -> Any:
        return np.maximum(x + 1, 0)

    class Layer:
        def __init__(self) -> None:
            self.w = W

        @eq.jit
        def forward(self, x: Any) -> Any:
            return x @ self.w

    near(one(X), X + 1)
    assert one.__doc__ == "x + 1." and one.__name__ == "one"
    near(two(X), np.maximum(X + 1, 0))
    assert [k.op.name for k in two.lower(X).program.kernels] == ["add", "relu"]
    near(Layer().forward(X), X @ W)


@dataclass
class Params:
    w: Any
    b: Any


def test_nested_arguments_and_results() -> None:
    @eq.jit
    def f(p: Any, xs: Any, scale: float, *, flip: bool = False) -> Any:
        ys = [x @ p["lin"].w * scale + p["lin"].b for x in xs]
        return {"ys": tuple(ys), "n": len(ys), "last": -ys[-1] if flip else ys[-1]}

    out = f({"lin": Params(W, B)}, [X, X * 2], 2.0, flip=True)
    near(out["ys"][1], X * 2 @ W * 2 + B)
    near(out["last"], -(X * 2 @ W * 2 + B))
    assert out["n"] == 2 and isinstance(out["ys"], tuple)


def test_arguments_by_name_position_and_number() -> None:
    f = eq.jit(lambda x, *more, scale=2.0, **named: x * scale + sum(more) - named["z"])
    near(f(X, X, X + 1, z=X), X * 2 + (X + X + 1) - X)
    near(f(X, scale=3, z=X * 2), X * 3 - X * 2)
    g = eq.jit(lambda x, kind, axes: {"a": x.sum, "b": x.max}[kind](axes))
    near(g(X, "a", 1), X.sum(1))
    near(g(X, "b", (0, 1)), np.asarray(X.max()))


def test_arguments_may_be_called_self(tmp_path: Path) -> None:
    x = np.ones(3, np.float32)
    f = eq.jit(lambda self: self + 1)
    low = f.lower(self=x)
    low.save(tmp_path / "f.eqsat")
    results = (
        f(self=x),
        f.submit(self=x).result(),
        eq.load(tmp_path / "f.eqsat")(self=x),
    )
    for found in results:
        np.testing.assert_array_equal(found, x + 1)
    near(eq.grad(lambda self: (self * self).sum())(self=x), 2 * x)
    g = eq.Graph()
    g.output(g.add("exp", g.input("self", (3,), "float32")))
    np.testing.assert_allclose(g.run(self=x), np.exp(x), rtol=1e-6)


def test_results_without_work() -> None:
    """Constants, inputs and plain values come back as NumPy would give them."""
    f = eq.jit(lambda x: {"none": None, "n": 3.5, "w": W, "shape": x.shape, "x": x})
    got = f(X)
    assert (got["none"], got["n"], got["shape"]) == (None, 3.5, (8, 6))
    near(got["w"], W)
    near(got["x"], X)
    near(eq.jit(lambda: np.ones(3) * 2)(), np.full(3, 2.0))


def test_layouts_and_sizes() -> None:
    f = eq.jit(lambda x: np.exp(x) @ W + 1)
    for x in (X, np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2], X[::-1], X[:0]):
        near(f(x), np.exp(x) @ W + 1)
    number = np.float32(1.5)
    near(eq.jit(lambda x: np.exp(x) * 2)(number), np.asarray(np.exp(number) * 2))


def test_a_jitted_function_inside_another_is_a_part_of_it() -> None:
    layer = eq.jit(ffn)
    near(layer(X, W, B), ffn(X, W, B))
    both = eq.jit(lambda x, w, b: np.tanh(layer(x, w, b)) + layer(x, w, b))
    near(both(X, W, B), np.tanh(ffn(X, W, B)) + ffn(X, W, B))
    assert len(both.lower(X, W, B).program.kernels) == 1


def test_an_error_while_tracing_leaves_nothing() -> None:
    def f(x: Any) -> Any:
        if fails:
            raise KeyError("not yet")
        return x + 1

    fails = True
    fast = eq.jit(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="not yet"):
            fast(X)
    fails = False
    near(fast(X), X + 1)


def test_results_are_fresh() -> None:
    f = eq.jit(lambda x: (x, x.T, x, x.reshape(-1), W))
    results = f(X)
    for a in results:
        assert not np.shares_memory(a, X) and not np.shares_memory(a, W)
    for i, a in enumerate(results):
        assert not any(np.shares_memory(a, b) for b in results[i + 1 :])


def test_results_can_be_written_to() -> None:
    (y,) = eq.jit(lambda x: (np.broadcast_to(x * 2, (1, *x.shape)),))(X)
    assert y.flags.writeable
    y[...] = 0


def test_signatures_are_compiled_once_each() -> None:
    calls = []

    def f(x: Any, n: int) -> Any:
        calls.append((x.shape, x.dtype, n))
        return x * n

    fast = eq.jit(f)
    for x in (X, X + 1, X[:3], X.astype(float)):
        near(fast(x, 2), x * 2)
        near(fast(x, 3), x * 3)
    assert len(calls) == 6


def test_constants_are_folded() -> None:
    frozen = W.copy()
    frozen.flags.writeable = False

    def f(x: Any, w: Any) -> Any:
        return x @ np.exp(w)

    def kernels(fast: Any, *args: Any) -> list[str]:
        near(fast(*args), f(*args))
        return [k.op.name for k in fast.lower(*args).program.kernels]

    assert kernels(eq.jit(f), X, W) == ["exp", "matmul"]
    assert kernels(eq.jit(f), X, frozen) == ["matmul"]
    assert kernels(eq.jit(f, constants=("w",)), X, W) == ["matmul"]
    assert kernels(eq.jit(f, constants=(1,)), X, W) == ["matmul"]
    near(eq.jit(lambda x: f(x, W))(X), f(X, W))


def test_lowering_without_data() -> None:
    low = eq.jit(ffn).lower(*(eq.Spec(a.shape, a.dtype) for a in (X, W, B)))
    assert [k.op.name for k in low.program.kernels] == ["linear"]
    assert "def program(x, w, b):" in low.source("numpy")
    assert low.source("llvm") == low.source("native")
    assert "define void" in low.source("llvm")
    (y,) = low.compile()(X, W, B)
    near(y, ffn(X, W, B))


def test_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "0")
    e = eq.jit(ffn).explain(X, W, B)
    (kernel,) = e.kernels
    assert kernel.kind == "contract" and "matmul" in kernel.ops
    assert kernel.rules[0] == "linear[relu]"
    assert kernel.lines[0].text == "return np.maximum(x @ w + b, 0)"
    assert e.cost_s < e.baseline_cost_s and e.baseline_kernels == 3
    assert e.rules["linear[relu]"].in_winner == 1
    record = json.loads(e.to_json())
    assert record["kernels"][0]["rules"] == list(kernel.rules)
    assert record["phases_s"].keys() >= {"trace", "saturate", "extract"}
    assert kernel.name in str(e)
    assert "rule linear[relu]" in e.why(kernel.name)
    with pytest.raises(eq.EqsatError, match=f"no kernel 'x'; there are {kernel.name}"):
        e.why("x")


def test_exact_extraction_reports_its_gap() -> None:
    exact = eq.jit(ffn, options=eq.Options(extract="exact"))
    near(exact(X, W, B), ffn(X, W, B))
    gap = exact.explain(X, W, B).optimal_gap
    assert gap is not None and gap < 1e-5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (eq.Options(deadline_s=0), "deadline_s=0 ran out"),
        (eq.Options(max_nodes=4), "the e-graph reached max_nodes=4"),
    ],
)
def test_a_budget_that_runs_out(options: eq.Options, said: str) -> None:
    fast = eq.jit(ffn, options=options)
    with pytest.warns(eq.BudgetWarning) as caught:
        near(fast(X, W, B), ffn(X, W, B))
    assert str(caught[0].message) == (
        f"eqsat: the search for 'ffn' was cut short: {said}; the program is correct, a "
        f"cheaper one may exist"
    )
    e = fast.explain(X, W, B)
    assert e.cut_short == said
    assert f"cut short: {said}; a cheaper program may exist" in str(e)


MESSAGES = [
    (
        lambda: eq.Options(deadline_s=-1),
        "deadline_s=-1: expected a number that is not ",
    ),
    (
        lambda: eq.Options(numerics="loose"),
        "numerics='loose': expected one of 'exact', ",
    ),
    (lambda: eq.Options(extract="ilp"), "extract='ilp': expected one of 'greedy', "),
    (lambda: eq.Options(fusion=1), "fusion=1: expected True or False"),  # type: ignore[arg-type]
    (lambda: eq.Options(disable="x"), "disable='x': expected a set of rule names"),  # type: ignore[arg-type]
    (lambda: eq.jit(3), "jit: expected a function, got 'int'"),
    (lambda: eq.jit(ffn, constants="w"), "jit: constants='w', expected a collection"),
    (lambda: eq.jit(ffn, backend="tpu"), "no backend 'tpu'; installed: "),
    (lambda: eq.jit(ffn, options={}), "jit: options={}, expected eqsat.Options(...)"),
    (lambda: eq.jit(ffn, rules="my.py"), "jit: rules='my.py', expected rules; eqsat."),
    (lambda: eq.jit(ffn, rules=3), "jit: rules=3, expected rules; eqsat.load_rules"),
    (
        lambda: eq.jit(ffn, constants=("v",))(X, W, B),
        "constants: 'v' is no parameter of ffn(x, w, b)",
    ),
    (
        lambda: eq.jit(ffn)(X, eq.Spec(W.shape, W.dtype), B),
        "argument w is a Spec, which has no data; use lower() or explain()",
    ),
    (lambda: eq.jit(ffn).lower(X, W, B).source("wgsl"), "no backend 'wgsl'; installed"),
    (
        lambda: eq.jit(ffn)(X, W.T, B),
        "matmul: argument 'y' has shape (4, 6), expected ... k n: axis k is 4, not 6",
    ),
    (
        lambda: eq.jit(ffn)(X.astype("G"), W, B),
        "argument x: dtype complex256 is not supported; supported are bool, ",
    ),
    (lambda: eq.jit(ffn)(X, W), "ffn() missing 1 required positional argument: 'b'"),
]


@pytest.mark.parametrize(("call", "said"), MESSAGES, ids=[m[1][:20] for m in MESSAGES])
def test_messages(call: Any, said: str) -> None:
    with pytest.raises((eq.EqsatError, TypeError)) as caught:
        call()
    assert said in str(caught.value)


def test_threads_share_one_function() -> None:
    fast = eq.jit(ffn)
    wrong: list[int] = []

    def work(i: int) -> None:
        x = X[: i + 1] * i
        for _ in range(5):
            if not np.allclose(fast(x, W, B), ffn(x, W, B), atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_programs_and_rules_are_short_in_a_session() -> None:
    low = eq.jit(ffn).lower(X, W, B)
    assert re.fullmatch(r"<lowered ffn of <input .*>: \d+ kernels?, native>", repr(low))
    count = len(low.rules.rules)
    assert repr(low.rules) == f"<RuleSet of {count} rules>"
