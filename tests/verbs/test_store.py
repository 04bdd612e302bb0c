"""Programs kept on disk: found again where nothing differs, and only there."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import ops
from eqsat.ops import STOCK, exp
from eqsat.program_store import place_of
from eqsat.serialise import NotPortableError, canonical, decode_terms, encode_terms
from eqsat.support import disk_cache
from eqsat.support.options import Options
from eqsat.terms.op import CONSTANT, Op
from eqsat.terms.op_factories import composite
from eqsat.terms.term import postorder

F4 = np.float32
X = np.linspace(-2, 2, 24, dtype=F4).reshape(4, 6)
W = np.linspace(-1, 1, 30, dtype=F4).reshape(6, 5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("EQSAT_CACHE", raising=False)
    return tmp_path / "compiled"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every search."""
    made: list[int] = []
    rooms = importlib.import_module("eqsat.search")
    search = rooms.optimise

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        return search(*args, **kwargs)

    monkeypatch.setattr(rooms, "optimise", counted)
    return made


def block(x: Any, w: Any) -> Any:
    h = x - x.mean(-1, keepdims=True)
    h = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5)
    y = np.maximum(h @ w, 0)
    return {"y": y, "e": np.exp(y - y.max(-1, keepdims=True))}, x.T[1:]


def test_programs_of_all_ops_that_come_with_eqsat_are_kept(
    searches: list[int],
) -> None:
    for name in ("heaviside", "nextafter", "degrees", "logaddexp2"):
        f = getattr(np, name)
        for _ in range(2):
            eq.jit(lambda x, f=f: f(*[x] * f.nin) * 2)(X)
    assert len(searches) == 4
    assert all(id(o) in STOCK for o in vars(ops).values() if isinstance(o, Op))


FUNCTIONS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: np.maximum(x + 1, 0), (X,)),
    (block, (X, W)),
    (lambda x, w: eq.gelu(x @ w + 2), (X, W)),
    (lambda x: x * np.inf + -0.0 + np.nan, (X,)),
    (lambda x: x, (X,)),
    (lambda x: (x, x + 1, 3, None), (X,)),
    (lambda x: x.astype(np.float16).sum(0, dtype=F4), (X,)),
    (lambda x: np.zeros(3), (X,)),
    (lambda x: x + W[:4, :1], (X,)),
    (lambda x: np.where(np.tri(6, dtype=bool), x.T @ x, -np.inf), (X,)),
]


@pytest.mark.parametrize("fn, args", FUNCTIONS)
def test_a_program_is_found_again(
    fn: Callable[..., Any], args: tuple[Any, ...], searches: list[int]
) -> None:
    first, second = eq.jit(fn).lower(*args), eq.jit(fn).lower(*args)
    assert len(searches) == 1
    assert "cache" in second.seconds and "saturate" not in second.seconds
    assert str(first.program) == str(second.program)
    for a, b in zip(first.executable(*args), second.executable(*args), strict=True):
        np.testing.assert_array_equal(a, b)
    told, again = first.explain().record(), second.explain().record()
    assert told | {"phases_s": {}} == again | {"phases_s": {}}
    assert second.optimised.cost_s == first.optimised.cost_s


@pytest.mark.parametrize("fn, args", FUNCTIONS)
def test_terms_survive(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    low = eq.jit(fn).lower(*args)
    for roots in (low.trace.outputs, low.term):
        graph = low.trace.graph
        arrays = [t.attrs[0] for t in postorder(roots) if t.op is CONSTANT]
        numbers: Any = {a: i for i, a in enumerate(arrays)}
        data = encode_terms(roots, numbers)
        back = decode_terms(data, graph, arrays, low.trace.inputs)  # type: ignore[arg-type]
        assert all(a is b for a, b in zip(back, roots, strict=True))


def test_what_differs_is_searched_anew(searches: list[int]) -> None:
    rule = eq.rule("...", name="doubles")(lambda x: (x + x, x * 2))
    other = eq.rule("...", name="doubles")(lambda x: (x + x, 2 * x))
    more = eq.default_rules() + eq.RuleSet((rule,))
    asked = [
        (lambda x: x + 1, X, {}),
        (lambda x: x - 1, X, {}),
        (lambda x: x + 1.5, X, {}),
        (lambda x: x + 0.0, X, {}),
        (lambda x: x + -0.0, X, {}),
        (lambda x: x + 1, X.astype("f8"), {}),
        (lambda x: x + 1, X[1:], {}),
        (lambda x: x + 1, X, {"options": Options(fusion=False)}),
        (lambda x: x + 1, X, {"options": Options(numerics="exact")}),
        (lambda x: x + 1, X, {"backend": "numpy"}),
        (lambda x: x + 1, X, {"rules": more}),
        (lambda x: x + 1, X, {"rules": eq.RuleSet((rule,))}),
        (lambda x: x + 1, X, {"rules": eq.RuleSet((other,))}),
        (lambda x: x + 1, X, {"rules": eq.RuleSet()}),
    ]
    for _ in range(2):
        for fn, x, settings in asked:
            eq.jit(fn, **settings).lower(x)
    assert len(searches) == len(asked)
    eq.jit(lambda x: x + 1, options=Options(threads=2)).lower(X)
    eq.jit(lambda x: x + 1, rules=eq.default_rules()).lower(X)
    assert len(searches) == len(asked)


def test_integers_and_floats_are_different_numbers(searches: list[int]) -> None:
    x = np.arange(4)
    results = [eq.jit(lambda x, k=k: x * k)(x) for k in (1, 1.0, True)]
    assert [r.dtype for r in results] == [np.int64, np.float64, np.int64]
    assert len(searches) >= 2


def test_values_of_constants_do_not_count(searches: list[int]) -> None:
    results = []
    for scale in (1, 2, 3):
        w = W * scale
        w.flags.writeable = False
        results.append(eq.jit(lambda x, w: x @ w + (w * 2).sum(0))(X, w))
    assert len(searches) == 1
    for scale, r in zip((1, 2, 3), results, strict=True):
        np.testing.assert_allclose(r, scale * results[0], rtol=1e-5, atol=1e-5)


def test_facts_of_constants_count(searches: list[int]) -> None:
    def attend(mask: Any) -> Any:
        def f(q: Any, k: Any) -> Any:
            s = np.where(mask, q @ k.T, -np.inf)
            e = np.exp(s - s.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True)

        return f

    causal = np.tri(4, dtype=bool)
    full = causal.copy()
    full[0, 3] = True
    for mask in (causal, full, causal.copy(), full.copy()):
        f = attend(mask)
        np.testing.assert_allclose(eq.jit(f)(X, X), f(X, X), rtol=1e-5)
    assert len(searches) == 2


def test_ops_of_users_are_not_kept(searches: list[int], folder: Path) -> None:
    @composite("... -> ...")
    def squared_twice(x: Any) -> Any:
        return exp(x) * exp(x)

    try:
        for _ in range(2):
            eq.jit(lambda x: squared_twice(x) + 1).lower(X)
        assert len(searches) == 2
        rules = eq.default_rules() + eq.recognition(squared_twice)
        for _ in range(2):
            eq.jit(lambda x: x + 1, rules=rules).lower(X)
        assert len(searches) == 4
    finally:
        del Op.registry["squared_twice"]


def test_lowerings_of_users_count(searches: list[int]) -> None:
    eq.jit(lambda x: np.exp(x)).lower(X)
    try:
        exp.lowering("numpy", seconds=lambda *_: 1e-9)(lambda x, out: None)
        eq.jit(lambda x: np.exp(x)).lower(X)
        assert len(searches) == 2
    finally:
        del exp.lowerings["numpy"]
    eq.jit(lambda x: np.exp(x)).lower(X)
    assert len(searches) == 2


def test_a_search_that_was_cut_short_is_not_kept(searches: list[int]) -> None:
    for _ in range(2):
        with pytest.warns(eq.BudgetWarning):
            eq.jit(lambda x: x + 1, options=Options(deadline_s=0)).lower(X)
    assert len(searches) == 2


@pytest.mark.parametrize(
    "data",
    [b"", b"x", bytes(100), canonical([1, 2]), canonical([[("add", (9,), (), (18,))]])],
)
def test_bytes_that_are_no_program(data: bytes, searches: list[int]) -> None:
    f = lambda x: np.maximum(x + 1, 0)  # noqa: E731
    low = eq.jit(f).lower(X)
    place = place_of(low.trace.outputs, None, low.options, low.model)
    assert place is not None and disk_cache.get(place.name)
    disk_cache.put(place.name, data)
    np.testing.assert_array_equal(eq.jit(f)(X), f(X))
    assert len(searches) == 2
    eq.jit(f).lower(X)
    assert len(searches) == 2


def test_a_program_of_other_types_is_none(searches: list[int]) -> None:
    low = eq.jit(lambda x: x + 1).lower(X)
    place = place_of(low.trace.outputs, None, low.options, low.model)
    assert place is not None
    place.keep([low.trace.inputs[0].graph.terms[-1], *low.term])
    eq.jit(lambda x: x + 1).lower(X)
    assert len(searches) == 2


_KEY = """
import numpy as np, eqsat as eq
from eqsat import program_store as store
x = np.ones((4, 6), np.float32)
rule = eq.rule("...", name="doubles")(lambda x: (x + x, x * 2))
mine = eq.RuleSet((rule,))
for rules in (None, mine, eq.default_rules() + mine):
    low = eq.jit(lambda x: np.exp(x) * 2 + x.sum(), rules=rules).lower(x)
    print(store.place_of(low.trace.outputs, rules, low.options, low.model).name)
"""


def test_keys_are_the_same_in_every_process() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", _KEY],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        for seed in ("1", "2")
    ]
    assert told[0].stdout == told[1].stdout and told[0].stdout.count("program-") == 3


def test_settings_that_cannot_be_told_apart_are_refused() -> None:
    assert canonical({"b": {2, 1}, "a": 1.0}) == canonical({"a": 1.0, "b": {1, 2}})
    assert canonical(1) != canonical(1.0) != canonical(True)
    with pytest.raises(NotPortableError):
        canonical(object())


CALLED = """
import sys
import numpy as np
import eqsat as eq

def f(x, w):
    h = np.maximum(x @ w, 0)
    return np.sort(h / (1 + np.exp(-h.sum(1, keepdims=True))))

eq.jit(f, "native")(np.ones((32, 64), np.float32), np.ones((64, 16), np.float32))
rooms = {".".join(m.split(".")[1:]) for m in sys.modules if m.startswith("eqsat.")}
backends = {r.removeprefix("backends.") for r in rooms}
seen = ["search", "rulelang", "egraph", "to_loops", "native.loops", "loop_ir.nest"]
print(sorted(backends & {*seen}), "egglog" in sys.modules)
"""


def test_a_program_from_disk_loads_neither_search_nor_what_writes_code() -> None:
    def called() -> str:
        done = subprocess.run(
            [sys.executable, "-c", CALLED], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert "search" in called()
    assert called() == "[] False"
