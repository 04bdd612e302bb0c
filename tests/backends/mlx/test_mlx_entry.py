"""The entry of calls with arrays of MLX: which it serves, and as what MLX sees them."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import ops
from eqsat.trace.call_arguments import flatten_arguments
from eqsat.trace.trace import trace

mx = pytest.importorskip("mlx.core")
entries = pytest.importorskip("eqsat.backends.mlx.entry")
layout = pytest.importorskip("eqsat.backends.mlx.array_struct")
transforms = pytest.importorskip("eqsat.backends.mlx.transforms")

X = mx.array(np.arange(24, dtype="f4").reshape(4, 6) / 24)
Y = mx.cos(X)
W = mx.sin(X[0])
XS = mx.stack([X, Y, X + Y])
mx.eval(X, Y, W, XS)


def test_arrays_lie_as_expected_and_a_wrong_offset_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert layout.is_known()
    for record, name, by in (
        ("Instance", "held", 4),
        ("Description", "shape", 8),
        ("Description", "dtype", 4),
    ):
        kind, offset = layout.FIELDS[record][name]
        moved = {**layout.FIELDS[record], name: (kind, offset + by)}
        monkeypatch.setitem(layout.FIELDS, record, moved)
        assert not layout.is_known.__wrapped__(), name
        monkeypatch.undo()
    monkeypatch.setattr(layout, "IS_TRACER", "_ZNK3mlx4core5array9no_tracerEv")
    assert layout.watched.__wrapped__() is None


def test_an_array_that_marks_no_transformation_is_refused() -> None:
    found = layout.watched()
    assert layout._tells(found)
    assert not layout._tells(layout.Watched(mx.ones(1) * 2, found.function))
    assert not layout._tells(layout.Watched(found.array, lambda place: False))

    def inside(x: Any) -> Any:
        again = layout.watched.__wrapped__()
        assert again is not None and again.is_tracer()
        made.append(again)
        return x.sum()

    made: list[Any] = []
    mx.grad(inside)(X)
    mx.compile(inside)(X)
    assert not any(m.is_tracer() for m in made) and all(map(layout._tells, made))


def test_another_layout_is_served_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "is_known", lambda: False)
    f = Watched(lambda x, w: x * w)
    assert type(f.jit._entry) is entries.PlainEntry
    assert not f.is_served(X, W) and f.is_served(Y, W)
    assert not f.is_served(X, w=W)


class Watched:
    """A jit, and whether its entry served a call, which is compared with the plain
    function."""

    def __init__(self, fn: Callable[..., Any], **settings: Any) -> None:
        self.fn = fn
        self.jit = eq.jit(fn, backend="mlx", **settings)
        self.slow = 0
        self.jit._entry.ask(self._slow)

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        self.slow += 1
        return self.jit._call(*args, **kwargs)

    def is_served(self, *args: Any, **kwargs: Any) -> bool:
        before = self.slow
        got, want = self.jit(*args, **kwargs), self.fn(*args, **kwargs)
        assert np.array(got).dtype == np.array(want).dtype
        np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-6)
        return self.slow == before


def test_the_second_call_does_without_python() -> None:
    f = Watched(lambda x, w: x * w + 1)
    assert not f.is_served(X, W) and f.is_served(X, W)
    assert f.is_served(Y, X[1]) and f.is_served(X + 1, W * 2)
    assert f.is_served(mx.array(np.ones((4, 6), "f4")), W)
    for x in (
        X[:1],
        X.astype(mx.float16),
        X[None],
        np.array(X),
        X[0],
        mx.zeros((0, 6)),
    ):
        assert not f.is_served(x, W)
    assert not f.is_served(X, 2.0) and f.is_served(Y, 2.0)
    assert not f.is_served(X, 3.0)
    for x in (X[:1], X.astype(mx.float16), X[None], X[0], mx.zeros((0, 6))):
        assert f.is_served(x, W)


def test_arrays_of_many_axes_and_of_none() -> None:
    f = Watched(lambda x: x * 2)
    for x in (mx.ones((1,) * 13), mx.ones((1,) * 12), mx.array(3.0)):
        assert not f.is_served(x) and f.is_served(x + 1)


@pytest.mark.filterwarnings("ignore::eqsat.RecompileWarning")
def test_every_dtype_is_told_from_the_others() -> None:
    f = Watched(lambda x: x + x)
    names = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32".split()
    given = [mx.ones((2, 3)).astype(getattr(mx, n)) for n in names]
    assert not any(f.is_served(x) for x in given)
    assert all(f.is_served(x) for x in given)


def test_keywords_and_nested_arguments() -> None:
    f = Watched(lambda p, *, scale: p["x"] * p["w"][0] * scale)
    for p in ({"x": X, "w": [W]}, {"w": (W,), "x": X}):
        assert not f.is_served(p, scale=2) and f.is_served(p, scale=2)
        assert not f.is_served(p, scale=3) and f.is_served(p, scale=3)
    assert f.is_served({"x": Y, "w": [W + 1]}, scale=2)
    assert not f.is_served({"x": Y, "w": [np.array(W)]}, scale=2)
    with pytest.raises(TypeError, match="missing"):
        f.jit({"x": X, "w": [W]})


def test_what_is_closed_over_or_constant() -> None:
    factor = np.ones(6, "f4")
    f = Watched(lambda x: x * mx.array(factor) if type(x) is mx.array else x * factor)
    assert not f.is_served(X) and f.is_served(Y)
    factor *= 2
    assert not f.is_served(X) and f.is_served(Y)
    g = Watched(lambda x, w: x @ w, constants=["w"])
    a, b = mx.ones((6, 2)), mx.zeros((6, 2))
    for w in (a, b):
        assert not g.is_served(X, w) and g.is_served(Y, w)


def test_results_in_structures() -> None:
    two = eq.jit(lambda x: (x + 1, x), backend="mlx")
    named = eq.jit(lambda x: {"y": [x + 1], "n": 3}, backend="mlx")
    for _ in range(3):
        y, x = two(X)
        assert mx.array_equal(y, X + 1) and mx.array_equal(x, X)
        found = named(X)
        assert found["n"] == 3 and mx.array_equal(found["y"][0], X + 1)


def test_numpy_and_mlx_in_turns() -> None:
    f = eq.jit(lambda x, w: x * w)
    n = np.array(X), np.array(W)
    slow: list[int] = []
    f(*n), f(X, W)
    f._mlx[0]._entry.ask(lambda *a, **k: slow.append(1) or f._call(*a, **k))
    for _ in range(3):
        assert type(f(*n)) is np.ndarray and type(f(Y, W)) is mx.array
    assert not slow
    assert type(f(n[0], W)) is mx.array and slow == [1]
    g = eq.jit(lambda x: f(x, x) + 1)  # a jit that is traced by another
    assert mx.allclose(g(X), X * X + 1) and mx.allclose(g(X), X * X + 1)
    plain = eq.jit(lambda x: x + 1, backend="numpy")
    assert type(plain(X)) is np.ndarray


# -- derivatives -----------------------------------------------------------------------


def opaque(y: Any) -> Any:
    """``y`` as of a generated kernel: MLX can neither map nor differentiate it."""
    strides = [1]
    for n in y.shape[:0:-1]:
        strides.insert(0, strides[0] * n)
    return mx.as_strided(mx.stop_gradient(y), y.shape, strides)


@dataclass
class Kernel:
    """x w + sin x as a kernel that MLX cannot transform, and an entry that calls it."""

    kind: Any
    bare_calls: int = 0
    function: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        call = flatten_arguments(self.plain, (X, W), {})
        program = SimpleNamespace(bare=self.bare, run=self.transformable())
        entry = self.kind(lambda *xs: pytest.fail("not served"))
        entry.learn(call, trace(lambda x, w: x * w, call), program)
        self.function = entry.function

    @staticmethod
    def plain(x: Any, w: Any) -> Any:
        return x * w + mx.sin(x)

    def bare(self, x: Any, w: Any) -> tuple[Any, ...]:
        self.bare_calls += 1
        return (opaque(self.plain(x, w)),)

    def transformable(self) -> Any:
        return transforms.transformable(
            lambda x, w: (opaque(self.plain(x, w)),),
            lambda: lambda x, w: (self.plain(x, w),),
        )


def ways(f: Callable[..., Any]) -> dict[str, Any]:
    """Derivatives of ``f(x, w)`` in all ways that MLX has."""

    def loss(x: Any, w: Any) -> Any:
        return (f(x, w) ** 2).sum()

    def of_a_closure(x: Any) -> Any:
        h = x * 2
        return mx.grad(lambda w: loss(h, w))(W).sum() + loss(h, W)

    def in_place(x: Any) -> Any:
        y = mx.ones(X.shape)
        y[:] = x
        return loss(y, W)

    return {
        "grad": mx.grad(loss, (0, 1))(X, W),
        "of one": mx.grad(loss, 1)(X, W),
        "value and grad": mx.value_and_grad(loss)(X, W),
        "vjp": mx.vjp(f, [X, W], [Y])[1],
        "grad of compiled": mx.grad(mx.compile(loss))(X, W),
        "compiled before": [g(X, W) for g in [mx.compile(loss)] for _ in range(2)],
        "compiled grad": mx.compile(mx.grad(loss))(X, W),
        "checkpoint": mx.grad(mx.checkpoint(loss))(X, W),
        "in place": mx.grad(in_place)(X),
        "second": mx.grad(of_a_closure)(X),
        "nested": mx.grad(lambda p: loss(p["x"], p["w"]))({"x": X, "w": W}),
    }


def near(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(near(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return all(near(x, y) for x, y in zip(a, b, strict=True))
    return bool(mx.allclose(a, b, rtol=1e-4, atol=1e-5))


def forward(f: Callable[..., Any]) -> dict[str, Any]:
    """``f(x, w)`` mapped, and its derivatives along a direction, in all ways."""

    def loss(x: Any, w: Any) -> Any:
        return (f(x, w) ** 2).sum()

    over = mx.vmap(f, (0, None))
    ws = mx.stack([W, W + 1, 2 * W])
    return {
        "vmap": over(XS, W),
        "of both": mx.vmap(f)(XS, ws),
        "along another axis": mx.vmap(f, (1, None), 2)(mx.moveaxis(XS, 0, 1), W),
        "twice": mx.vmap(over, (0, None))(XS[None], W),
        "of grad": mx.vmap(mx.grad(loss, (0, 1)), (0, None))(XS, W),
        "grad of it": mx.grad(lambda w: (over(XS, w) ** 2).sum())(W),
        "compiled": [g(XS, W) for g in [mx.compile(over)] for _ in range(2)],
        "of compiled": mx.vmap(mx.compile(f), (0, None))(XS, W),
        "of what is not mapped": mx.vmap(lambda x: x + f(X, W))(XS),
        "grad in it": mx.vmap(lambda x: x * mx.grad(loss)(X, W))(XS),
        "jvp": mx.jvp(f, [X, W], [Y, W])[1],
        "jvp of one": mx.jvp(lambda x: f(x, W), [X], [Y])[1],
        "jvp of grad": mx.jvp(lambda x: mx.grad(loss)(x, W), [X], [Y])[1],
        "jvp of vmap": mx.jvp(lambda w: over(XS, w), [W], [W])[1],
        "vmap of jvp": mx.vmap(lambda x: mx.jvp(f, [x, W], [Y, W])[1][0])(XS),
    }


@pytest.mark.parametrize("of", [ways, forward])
@pytest.mark.parametrize("kind", [entries.MLXEntry, entries.PlainEntry])
def test_kernels_are_transformed_in_all_ways(kind: Any, of: Any) -> None:
    kernel = Kernel(kind)
    got, want = of(kernel.function), of(Kernel.plain)
    for name in want:
        assert near(got[name], want[name]), name


def test_where_maps_cannot_be_told_kernels_refuse_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []
    mx.vmap(lambda x: kept.append(transforms._callers.__wrapped__()) or x)(X)
    assert kept == [transforms._callers()] and kept[0]
    monkeypatch.setattr(transforms, "_running", lambda: [])
    assert not transforms._callers.__wrapped__()
    kernel = Kernel(entries.MLXEntry)
    assert mx.allclose(mx.compile(kernel.function)(X, W), Kernel.plain(X, W))
    with pytest.raises(ValueError, match="vmap"):
        mx.vmap(kernel.function, (0, None))(XS, W)


def test_custom_functions_are_for_transformations() -> None:
    kernel = Kernel(entries.MLXEntry)
    y = kernel.function(X, W)
    assert kernel.bare_calls == 1 and mx.allclose(y, Kernel.plain(X, W))
    left: list[Any] = []

    def loss(x: Any) -> Any:
        left.append(kernel.function(x, W))
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        mx.grad(loss)(X)
    slope = mx.grad(lambda x: kernel.function(x, W).sum())(X)
    mx.compile(kernel.function)(X, W)
    assert kernel.bare_calls == 1
    for x in (X, left[0], slope):
        assert mx.allclose(kernel.function(x, W), Kernel.plain(x, W))
    assert kernel.bare_calls == 4


def test_gradients_of_what_was_optimised() -> None:
    f = eq.jit(lambda x, w: ops.rms_norm(x, w) * 2)
    want = mx.grad(lambda x: (mx.fast.rms_norm(x, W, 1e-5) * 2).sum())(X)
    for _ in range(3):
        assert mx.allclose(f(X, W), mx.fast.rms_norm(X, W, 1e-5) * 2, atol=1e-5)
        got = mx.grad(lambda x: f(x, W).sum())(X)
        assert mx.allclose(got, want, atol=1e-4)


# -- lifetimes -------------------------------------------------------------------------


def test_calls_keep_nothing() -> None:
    f = eq.jit(lambda p: {"y": p["x"] * 2}, backend="mlx")
    x = X + 1
    f({"x": x}), f({"x": x})
    before = sys.getrefcount(x), sys.getrefcount(mx.array)
    for _ in range(100):
        f({"x": x})
    assert (sys.getrefcount(x), sys.getrefcount(mx.array)) == before


def test_what_a_program_raises_passes() -> None:
    def refuse(x: Any, w: Any) -> Any:
        raise ValueError("no")

    kernel = Kernel(entries.MLXEntry)
    call = flatten_arguments(Kernel.plain, (Y, X), {})
    entry = entries.MLXEntry(lambda *xs: pytest.fail("not served"))
    entry.learn(
        call,
        trace(lambda x, w: x * w, call),
        SimpleNamespace(bare=refuse, run=kernel.bare),
    )
    before = sys.getrefcount(X)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            entry.function(Y, X)
    assert sys.getrefcount(X) == before


@pytest.mark.parametrize("backend", [None, "mlx", "numpy"])
def test_a_jit_and_its_entries_are_collected(backend: str | None) -> None:
    f = eq.jit(lambda x: x * 2 + 1, backend=backend)
    f(X), f(X)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None
