"""Lazy arrays that say how they are computed: ``eq.array(x, backend=…)``."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from lazily import X, near

import eqsat as eq
from eqsat import rule
from eqsat.jit import Jit
from eqsat.lazy import programs

xp = eq.array_api


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The backends of the programs that were compiled."""
    found: list[str] = []
    compiled = Jit._compiled

    def spy(self: Jit, *args: Any, **kwargs: Any) -> Any:
        found.append(self.backend.name)
        return compiled(self, *args, **kwargs)

    monkeypatch.setattr(Jit, "_compiled", spy)
    for kept in "_found", "_programs":
        monkeypatch.setattr(programs, kept, OrderedDict())
    monkeypatch.setattr(programs, "_spelled", Counter())
    yield found


def on(backend: str, data: Any = X) -> eq.LazyArray:
    return eq.array(data, backend=backend)


def backend(x: eq.LazyArray) -> str:
    return str(x.lower().backend.name)


KEEPING: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: (x + 1) @ x.T * 2 - X[:, 0],
    "functions": lambda x: np.concatenate([x, np.zeros_like(x), X]),
    "functions of the standard": lambda x: xp.sum(xp.where(x > 0, x, 0.0), axis=0),
    "ops": lambda x: eq.softmax(x) + 1,
    "methods": lambda x: x.astype("float32").sum(0).copy(),
    "parts": lambda x: x[1:, ::2][0] * 1,
    "masks": lambda x: x[x > 0] * 2,
    "masks of values": lambda x: x[X > 0] * 2,
    "what values tell": lambda x: xp.unique_values(x) + 1,
    "what NumPy makes of values": lambda x: np.nonzero(x)[0] * 2,
    "functions of jit": lambda x: eq.jit(np.tanh)(x) + 1,
    "what a function makes of values": lambda x: eq.jit(np.flatnonzero)(x) * 2,
    "values that are known": lambda x: x.eval() is not None and x + 1,
    "results that are known": lambda x: (y := np.tanh(x)).eval().sum() and y + 1,
    "a pickle": lambda x: pickle.loads(pickle.dumps(x)) + 1,
    "a copy": lambda x: eq.array(x) * 3,
    "numbers": lambda x: x.sum() * 2.5,
    "views as arrays": lambda x: np.asarray([1.0, 2.0])[:, None, None] + x,
}


@pytest.mark.parametrize("kind", KEEPING)
def test_what_is_computed_of_an_array_has_its_backend(
    kind: str, ran: list[str]
) -> None:
    f = KEEPING[kind]
    got, want = f(on("numpy")), np.asarray(f(eq.array(X)))
    assert backend(got) == "numpy"
    ran.clear()
    near(got.eval(), want)
    assert {*ran} <= {"numpy"}
    near((got + 0.5).eval(), want + 0.5)
    assert {*ran} == {"numpy"}


def test_writes_keep_the_backend() -> None:
    x, y, z = on("numpy"), on("numpy"), on("numpy")
    x[0] = 1
    y += X
    z[z > 0] *= 2
    for a in x, y, z:
        assert backend(a * 2) == "numpy"
    w = eq.array(X)
    w += on("numpy")
    assert backend(w * 2) == "numpy"


def test_each_backend_computes_the_same(ran: list[str]) -> None:
    names = ["native", "numpy"]
    want = np.tanh(X).sum(0)
    for name in names:
        near((np.tanh(on(name)).sum(0)).eval(), want)
    assert ran == names
    near(np.tanh(eq.array(X)).sum(0).eval(), want)  # which says nothing
    assert ran == [*names, eq.jit(np.tanh).backend.name]


def test_it_is_stronger_than_the_options_around() -> None:
    with eq.options(backend="native"):
        assert backend(on("numpy") + 1) == "numpy"
        assert backend(eq.array(X) + 1) == "native"
    with eq.options(backend="numpy", threads=3):
        low = (on("native") + 1).lower()
    assert low.backend.name == "native" and low.options.threads == 3


def test_arrays_that_say_nothing_go_along() -> None:
    said, none = on("numpy"), eq.array(X)
    assert backend(none + said) == backend(said + none) == "numpy"
    assert backend(none + 1) != "numpy"


def test_two_backends_in_one_expression() -> None:
    a, b = on("numpy"), on("native")
    for f in (
        lambda: a + b,
        lambda: np.concatenate([X, b, a]),
        lambda: a @ np.tanh(b).T,
        lambda: a[b > 0],
        lambda: np.add(a + 1, b[0]),
        lambda: eq.jit(np.add)(a, b),
        lambda: xp.unique_values(a + b),
        lambda: a.__iadd__(b),
        lambda: a.__setitem__(0, b[0]),
    ):
        with pytest.raises(
            eq.OptionError, match=r"(?s)of backends '\w+' and '\w+' in.*at .*\.py:\d+"
        ):
            f()
    near((a + eq.array(b * 2, backend="numpy")).eval(), X + X * 2)
    near(np.asarray(a), X)  # as it was


def test_several_backends_are_evaluated_at_once(ran: list[str]) -> None:
    a, b = np.tanh(on("numpy")), np.tanh(on("native"))
    both = eq.evaluate({"a": a, "b": b, "c": a + 1})
    near(both["a"], np.tanh(X))
    near(both["b"], np.tanh(X))
    near(both["c"], np.tanh(X) + 1)
    assert sorted(ran) == ["native", "numpy"]


def test_long_graphs_keep_the_backend_in_all_parts(ran: list[str]) -> None:
    few = eq.Options(lazy_limit=10)
    x = eq.array(X, backend="numpy", options=few)
    for i in range(30):
        x = np.tanh(x) + eq.zeros(()) + i % 2
    x.eval()
    assert len(ran) > 1 and {*ran} == {"numpy"}


def test_rules_and_options() -> None:
    @rule("n, n, n")
    def common_factor_of_lazy_arrays(x: Any, y: Any, z: Any) -> Any:
        return x * y + x * z, x * (y + z)

    rules = eq.default_rules() + eq.RuleSet((common_factor_of_lazy_arrays,))
    x = eq.array(X[0], rules=rules)
    y, z = eq.array(X[1]), eq.array(X[2])
    found = (x * y + x * z).explain()
    assert found.why_not("common_factor_of_lazy_arrays").kind == "winner"
    apart = eq.array(X, options=eq.Options(fusion=False))
    assert len((np.tanh(apart) + 1).lower().program.kernels) == 2
    same = eq.array(X, options=eq.Options(fusion=False))
    assert len((apart + same).lower().program.kernels) == 1
    other = eq.array(X, options=eq.Options(fusion=True))
    with pytest.raises(eq.OptionError, match="two options in one expression"):
        apart + other
    with pytest.raises(eq.OptionError, match="two rules in one expression"):
        x + eq.array(X[0], rules=eq.RuleSet())
    joined = np.tanh(on("numpy")) + apart
    assert backend(joined) == "numpy" and len(joined.lower().program.kernels) == 2


def test_arrays_of_mlx() -> None:
    mx = pytest.importorskip("mlx.core")
    x = eq.array(mx.array(X), backend="numpy")
    assert backend(x + 1) == "numpy" and type((x + 1).eval()) is np.ndarray
    assert backend(on("mlx") + 1) == "mlx"
    near((on("mlx", X.astype("float32")) + 1).eval(), X.astype("float32") + 1)


def test_what_is_refused() -> None:
    with pytest.raises(eq.BackendError, match="no backend 'numpi'; installed"):
        on("numpi")
    with pytest.raises(eq.OptionError, match=r"eq\.array: rules=3, expected RuleSet"):
        eq.array(X, rules=3)  # type: ignore[arg-type]
    with pytest.raises(eq.OptionError, match=r"eq\.array: options='x', expected Opt"):
        eq.array(X, options="x")  # type: ignore[arg-type]
    with pytest.raises(eq.OptionError, match="are those of the function"):
        eq.jit(lambda x: eq.array(x, backend="numpy"))(X)
