"""The entry of native programs: which calls it takes, and that it takes no other."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
from entering import Backend, add_relu, entered
from memory_use import needs_proc, resident

import eqsat as eq
from eqsat.backends.native.machine import c_layouts
from eqsat.backends.native.runtime.entry import (
    MOST_VARIANTS,
    NativeEntry,
    ProgramCode,
    variant_of,
)
from eqsat.trace.call_arguments import flatten_arguments
from eqsat.trace.trace import trace

rng = np.random.default_rng(5)
X = rng.standard_normal((4, 6)).astype(np.float32)
Y = rng.standard_normal((4, 6)).astype(np.float32)


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a, b, strict=True)


def test_objects_lie_as_expected_and_a_wrong_offset_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert c_layouts.is_as_expected()
    for record, field in (("Array", "ndim"), ("Tuple", "items"), ("Dtype", "number")):
        kind, offset = c_layouts.OBJECTS[record][field]
        moved = {**c_layouts.OBJECTS[record], field: (kind, offset + 4)}
        monkeypatch.setitem(c_layouts.OBJECTS, record, moved)
        assert not c_layouts.is_as_expected.__wrapped__()
        monkeypatch.undo()


def test_the_second_call_does_without_python() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, y: x * y + 1)
    same(f(X, Y), X * Y + 1)
    assert backend.calls == (0, 1)
    same(f(Y, X), X * Y + 1)
    assert backend.calls == (1, 0)


def held(x: Any) -> bool:
    """Whether a call with ``x`` is native after one with X."""
    with entered() as backend:
        f = eq.jit(lambda x, y: x["a"][0] * y if isinstance(x, dict) else x * y)
    f(X, Y)
    return went_native(backend, f, x, Y)


def went_native(backend: Backend, f: Any, *args: Any, **kwargs: Any) -> bool:
    """Calls ``f``, checks what it computes, and whether Python was needed."""
    _ = backend.calls
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(f(*args, **kwargs), f.fn(*args, **kwargs))
    native, slow = backend.calls
    assert native + slow == 1
    return native == 1


def unaligned(x: Any) -> Any:
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    y = raw.view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def test_arrays_that_are_not_alike_are_for_python() -> None:
    assert held(Y) and held(X[:]) and held(np.array(X))
    assert held(pickle.loads(pickle.dumps(X)))  # an equal dtype, another object
    for other in (X.T.copy().T, X[::-1], np.repeat(X, 2, 1)[:, ::2], unaligned(X)):
        assert not held(other)
    for other in (X.astype("f8"), X[:1], X[0], X[None], X.view("i4"), np.float32(2)):
        assert not held(other)
    frozen = X.copy()
    frozen.flags.writeable = False
    assert not held(frozen) and not held({"a": [X]}) and not held(2.0)


def test_subclasses_and_foreign_byte_orders_are_still_refused() -> None:
    with entered():
        f = eq.jit(lambda x: x * 2)
    f(X)
    with pytest.raises(eq.DTypeError, match="its bytes are swapped"):
        f(X.astype(">f4"))
    with pytest.raises(eq.TraceError, match="masked"):
        f(np.ma.masked_array(X))
    with pytest.raises(eq.TraceError, match="Spec"):
        f(eq.Spec(X.shape, X.dtype))


def test_nested_arguments_by_place_key_and_order() -> None:
    with entered() as backend:
        f = eq.jit(
            lambda p, *more, **named: p["w"][1] * p["b"] - sum(more) - named["z"]
        )
    p = {"w": [X, Y], "b": X}
    for args, kwargs in (((p,), {"z": X}), ((p, Y), {"z": X}), ((p, Y), {"z": 2})):
        assert not went_native(backend, f, *args, **kwargs)
        assert went_native(backend, f, *args, **kwargs)
        assert went_native(backend, f, {**p, "b": Y}, *args[1:], **kwargs)
    fresh = {"".join(("", k)): v for k, v in p.items()}  # equal keys, other objects
    assert went_native(backend, f, fresh, z=X)
    for other in (
        {"b": X, "w": [X, Y]},
        {"w": (X, Y), "b": X},
        {"w": [X, Y, Y], "b": X},
        {**p, "extra": X},
        OrderedDict(p),
    ):
        assert not went_native(backend, f, other, z=X)
    with pytest.raises(KeyError, match="w"):
        f({"v": [X, Y], "b": X}, z=X)
    with pytest.raises(KeyError, match="z"):
        f(p, y=X)


def test_keywords_count_by_name_and_order() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, y: x - y)
    for kwargs in ({"x": X, "y": Y}, {"y": Y, "x": X}):
        assert not went_native(backend, f, **kwargs)
        assert went_native(backend, f, **kwargs)
    assert not went_native(backend, f, X, Y)
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(X, z=Y)


def test_static_values_count_by_type_and_value() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, s: x * (1 if s is None else len(s) if s == "ab" else s))
    big = 10**12
    values = (2, 2.0, True, None, 0.0, -0.0, "ab", big, float("inf"))
    for s in values:
        assert not went_native(backend, f, X, s), s
    for s in values:
        assert went_native(backend, f, X, s), s
    assert went_native(backend, f, X, int("1" + "0" * 12))
    assert went_native(backend, f, X, "".join(["a", "b"]))
    assert not went_native(backend, f, X, 3)


def test_a_dtype_and_a_function_are_static_values() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, t, g: g(x).astype(t))
    for args in ((np.dtype("f8"), np.exp), (np.float64, np.tanh), ("f4", abs)):
        assert not went_native(backend, f, X, *args)
    assert went_native(backend, f, X, np.float64, np.tanh)
    assert went_native(backend, f, X, "f4", abs)


def test_read_only_arrays_are_constants_for_as_long_as_they_are() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, w: x * w)
    w = Y.copy()
    w.flags.writeable = False
    assert not went_native(backend, f, X, w)
    assert went_native(backend, f, X, w)
    assert not went_native(backend, f, X, Y)  # not the constant
    w.flags.writeable = True
    w += 1
    went_native(backend, f, X, w)
    w.flags.writeable = False
    went_native(backend, f, X, w)


def test_a_view_is_constant_while_what_it_shows_is() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, w: x * w)
    base = Y.copy()
    base.flags.writeable = False
    view = base[:]
    assert not went_native(backend, f, X, view) and went_native(backend, f, X, view)
    base.flags.writeable = True
    base += 1  # through the view, which is read-only still
    assert not view.flags.writeable
    assert not went_native(backend, f, X, view)
    base += 1
    assert went_native(backend, f, X, view)


def test_many_read_only_arrays_count_as_arrays_that_change() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, w: x * w)
    for i in range(8):
        w = Y + i
        w.flags.writeable = False
        native = went_native(backend, f, X, w)
    assert native


def test_declared_constants_count_by_identity() -> None:
    with entered() as backend:
        f = eq.jit(lambda x, w: x * w, constants=["w"])
    assert not went_native(backend, f, X, Y) and went_native(backend, f, X, Y)
    assert not went_native(backend, f, X, Y.copy())


@pytest.mark.parametrize("shape", [(4, 6), (1,), (), (300, 6)])
def test_a_closed_over_array_that_changes_compiles_anew(shape: tuple[int, ...]) -> None:
    w = np.ones(shape, np.float32)
    shown = w.T
    x = np.ones(shape[::-1], np.float32)
    with entered() as backend:
        f = eq.jit(lambda x: x * shown)
    for turn in range(3):
        assert not went_native(backend, f, x)
        assert went_native(backend, f, x)
        w += turn + 1


def test_memory_behind_a_read_only_view_that_changes_compiles_anew() -> None:
    w = np.ones(6, np.float32)
    shown = np.broadcast_to(w, (4, 6))
    with entered() as backend:
        f = eq.jit(lambda x: x * shown)
    for _ in range(2):
        assert not went_native(backend, f, np.ones((4, 6), np.float32))
        assert went_native(backend, f, np.ones((4, 6), np.float32))
        w += 1


class Named(NamedTuple):
    x: Any
    y: Any


class Swapped(NamedTuple):
    x: Any
    y: Any

    def __iter__(self) -> Any:
        return iter((self.y, self.x))


def test_named_tuples_are_told_apart_by_their_type() -> None:
    with entered() as backend:
        f = eq.jit(lambda p: p[0] * (2 if isinstance(p, Named) else 3) + p[1])
    assert not went_native(backend, f, Named(X, Y))
    assert went_native(backend, f, Named(X, Y))
    assert not went_native(backend, f, (X, Y))
    assert went_native(backend, f, (X, Y)) and went_native(backend, f, Named(X, Y))


def test_named_tuples_may_have_an_iter_of_their_own() -> None:
    with entered() as backend:
        f = eq.jit(lambda p: p.x / p.y)
    assert not went_native(backend, f, Swapped(X, Y))
    assert went_native(backend, f, Swapped(Y, X))


def test_results_in_any_structure() -> None:
    with entered() as backend:
        f = eq.jit(lambda x: {"y": x * 2, "n": 3, "z": [x + 1, (x - 1,)]})
        g = eq.jit(lambda x: (x * 2, x + 1))
        h = eq.jit(lambda x: (x.sum(), x[:0] * 2, None))
    for _ in range(3):
        out = f(X)
        same(out["y"], X * 2)
        same(out["z"][1][0], X - 1)
        assert out["n"] == 3 and type(out["z"]) is list
        a, b = g(X)
        same(a, X * 2)
        same(b, X + 1)
        total, nothing, none = h(X)
        assert total.shape == () and nothing.shape == (0, 6) and none is None
    assert backend.calls == (6, 3)


def test_results_own_their_memory() -> None:
    with entered():
        f = eq.jit(lambda x: x * 2)
    f(X)
    y = f(X)
    assert y.base is None and y.flags.owndata and y.flags.writeable
    assert y.flags.c_contiguous and y.dtype is np.dtype(np.float32)


def test_errors_of_python_pass_through() -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise LookupError(args, kwargs)

    entry = NativeEntry(fails)
    with pytest.raises(LookupError, match="hello"):
        entry.function("hello")
    with pytest.raises(LookupError, match="name"):
        entry.function(name=1)


def test_a_failing_packer_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with entered():
        f = eq.jit(lambda x: [x * 2])
    f(X)
    monkeypatch.setattr("eqsat.support.pytree.unflatten", mock_failure)
    with pytest.raises(ZeroDivisionError):
        f(X)
    monkeypatch.undo()
    same(f(X)[0], X * 2)


def mock_failure(*args: Any) -> Any:
    raise ZeroDivisionError


def test_a_traced_call_is_a_part_of_the_other_function() -> None:
    with entered() as backend:
        f = eq.jit(lambda x: x * 2)
        g = eq.jit(lambda x: f(x) + 1)
    f(X)
    f(X)
    _ = backend.calls
    same(g(X), X * 2 + 1)
    same(g(X), X * 2 + 1)
    assert backend.calls == (1, 1)


@pytest.mark.filterwarnings("ignore:.*shapes of:eqsat.RecompileWarning")
def test_the_latest_programs_are_kept() -> None:
    with entered() as backend:
        f = eq.jit(lambda x: x * 2)
    arrays = [np.ones(n, np.float32) for n in range(1, MOST_VARIANTS + 3)]
    for x in arrays:
        f(x)
    assert went_native(backend, f, arrays[-1])
    assert not went_native(backend, f, arrays[0]) and went_native(backend, f, arrays[0])
    f._entry.clear()
    assert not went_native(backend, f, arrays[0]) and went_native(backend, f, arrays[0])


def test_a_jit_that_nobody_holds_goes_away() -> None:
    with entered():
        f = eq.jit(lambda x: x * 2)
    f(X)
    f(X)
    function, gone = f.__call__, weakref.ref(f)
    del f
    gc.collect()
    same(function(X), X * 2)
    del function
    gc.collect()
    assert gone() is None


def test_copies_pickles_and_names() -> None:
    with entered():
        f = eq.jit(unaligned)
        assert pickle.loads(pickle.dumps(eq.jit(unaligned))).fn is unaligned
    assert f.__name__ == "unaligned" and callable(f)


def test_reference_counts_stay() -> None:
    f = add_relu()
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    objects = (x, y, x.dtype, None, f.fn)
    f(x, y)
    f(x, y)
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(1000):
        same(f(x, y), np.maximum(x + y, 0))
    kept = [f(x, y) for _ in range(3)]
    count = sys.getrefcount(kept[0])
    assert count == 2
    after = [sys.getrefcount(o) for o in objects]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


@pytest.mark.filterwarnings("ignore:.*shapes of:eqsat.RecompileWarning")
@needs_proc
@pytest.mark.parametrize(
    "count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
)
def test_calls_leave_no_memory(count: int) -> None:
    f = add_relu()
    with entered():
        g = eq.jit(lambda p, s: {"y": p["a"] * s})
    x = np.ones(1000, np.float32)
    shapes = [np.ones(n, np.float32) for n in range(1, 40)]

    def calls(n: int) -> None:
        for i in range(n):
            f(x, x)
            if i % 20 == 0:
                g({"a": shapes[i % 39]}, 2.0)
                g({"a": shapes[i % 39], "b": 1}, 2.0) if i % 2000 == 0 else None

    calls(4000)
    gc.collect()
    before = resident()
    calls(count)
    gc.collect()
    assert resident() - before < 2 * 2**20


@pytest.mark.filterwarnings("ignore:.*shapes of:eqsat.RecompileWarning")
@pytest.mark.parametrize("release", [False, True])
def test_threads_call_one_function_and_many(release: bool) -> None:
    with entered(release=release):
        one = eq.jit(lambda x, y: x * y + 1)
        many = [eq.jit(lambda x, y, k=k: x * y + k) for k in range(8)]
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = np.full((3, k + 1), k, np.float32)
        for turn in range(60):
            y = np.full(x.shape, turn, np.float32)
            if (one(x, y) != x * y + 1).any() or (many[k](x, y) != x * y + k).any():
                wrong.append((k, turn))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_arguments_live_while_a_program_runs_without_the_lock() -> None:
    """Another thread takes the array out of the dict meanwhile."""
    started, go = threading.Event(), threading.Event()
    with entered() as backend:
        f = eq.jit(lambda p: p["x"] * 2)
    p = {"x": np.ones(5000, np.float32)}
    f(p)
    (made,) = backend.made
    run, alive = made.slow, weakref.ref(p["x"])
    seen = []

    def slow(*arrays: Any) -> Any:
        started.set()
        go.wait()
        seen.append(alive() is not None)
        return run(*arrays)

    made.slow = slow  # type: ignore[assignment]
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(f(p)))
    thread.start()
    started.wait()
    del p["x"]
    go.set()
    thread.join()
    assert seen == [True] and alive() is None
    same(results[0], np.full(5000, 2, np.float32))


def test_no_memory_is_an_error_and_leaves_nothing() -> None:
    def f(x: Any) -> Any:
        return x * 2, x + 1

    call = flatten_arguments(f, (X,), {})
    kinds = ((np.dtype("f4"), (4, 6)), (np.dtype("f4"), (2**55,)))
    entry = NativeEntry(f)
    entry.add(
        0, variant_of(call, trace(f, call), ProgramCode(1, kinds)) or pytest.fail()
    )
    gc.collect()
    before = sys.getrefcount(np.dtype("f4"))
    for _ in range(1000):
        with pytest.raises(MemoryError, match=f"no memory for {2**57} bytes"):
            entry.function(X)
    assert abs(sys.getrefcount(np.dtype("f4")) - before) < 500
    small = ProgramCode(1, kinds[:1] * 2, arena_bytes=2**60)
    entry.add(0, variant_of(call, trace(f, call), small) or pytest.fail())
    with pytest.raises(MemoryError, match=f"no memory for {2**60} bytes"):
        entry.function(X)
