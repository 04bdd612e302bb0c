"""Calls of models that are kept whole: a new process neither opens nor traces a model
that was called before, and computes the same; what differs is computed anew."""

import copy
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import eqsat as eq
from eqsat.backends.native import whole_program
from eqsat.onnx import kept_calls
from eqsat.support import disk_cache
from eqsat.support.errors import CacheWarning

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(23)
X = RNG.standard_normal((3, 40)).astype(np.float32)
W = RNG.standard_normal((40, 30)).astype(np.float32)
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EQSAT_CACHE", "1")
    # Verifiers look at what is made anew.
    monkeypatch.setattr(kept_calls, "verifying", lambda: False)
    return tmp_path


def value(name, sizes, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, sizes)


VALUE = value("y", None)


def model(nodes, inputs, outputs, initial=()):
    tensors = [numpy_helper.from_array(a, n) for n, a in dict(initial).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset).SerializeToString()


def layer(weights=W, rows="n"):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    inputs, outputs = [value("x", [rows, len(weights)])], [value("y", None)]
    return model(nodes, inputs, outputs, {"w": weights})


def called(data, *args, **options):
    """The result of a model that is read anew, and whether it had to be opened."""
    f = eq.from_onnx(data, **options)
    found = f(*args)
    for thread in threading.enumerate():
        if thread.name == "eqsat keeps a program":
            thread.join()
    return found, "_opened" in vars(f)


def check(data, *args, **options):
    """What is kept serves a second model, and gives the same bits."""
    first, opened = called(data, *args, **options)
    again, opened_again = called(data, *args, **options)
    assert opened and not opened_again
    for a, b in zip(
        first if isinstance(first, tuple) else [first],
        again if isinstance(again, tuple) else [again],
        strict=True,
    ):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    return again


def test_a_model_that_was_called_is_not_opened(folder):
    np.testing.assert_allclose(
        check(layer(), X), np.maximum(X.astype(float) @ W, 0), atol=1e-4
    )
    path = folder / "m.onnx"
    path.write_bytes(layer(W + 1))
    check(path, X)
    f = eq.from_onnx(path)
    assert f.outputs == ("y",) and f.input_names == ("x",)
    assert f.arrays() == {"x": (np.dtype(np.float32), ("n", 40))}
    assert f.run({"x": X})["y"].shape == (3, 30) and f.on_host() == {}
    assert "_opened" not in vars(f)
    assert [*f.inputs] == ["x"] and f.defaults == {}
    (explained,) = f.explain(X)
    assert len(explained.kernels) == 1


SCRIPT = """
import sys
import numpy as np
import eqsat as eq

f = eq.from_onnx(sys.argv[1])
found = f(np.load(sys.argv[2]))
sys.stdout.write(found.tobytes().hex())
rooms = "onnx", "eqsat.terms", "eqsat.trace", "eqsat.onnx.nodes", "eqsat.search"
sys.stderr.write(" ".join(m for m in rooms if m in sys.modules))
"""


def test_a_new_process_loads_neither_the_package_nor_the_engine(folder):
    (folder / "m.onnx").write_bytes(layer())
    np.save(folder / "x.npy", X)
    paths = [str(folder / "m.onnx"), str(folder / "x.npy")]

    def run():
        command = [sys.executable, "-c", SCRIPT, *paths]
        env = {**os.environ, "EQSAT_VERIFY": "0"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=env
        )
        return done.stdout, done.stderr

    first, loaded = run()
    assert "eqsat.search" in loaded
    again, loaded = run()
    assert loaded == "" and again == first


@pytest.mark.parametrize(
    "x",
    [
        X,
        X[:0],
        X[:1],
        np.ascontiguousarray(X[::-1]),
        np.frombuffer(X.tobytes(), np.float32).reshape(X.shape),
    ],
    ids=["three", "none", "one", "other", "read-only"],
)
def test_other_values_and_shapes_are_computed(x):
    data = layer()
    check(data, X.copy())
    found, _ = called(data, x)
    np.testing.assert_allclose(found, np.maximum(x @ W, 0), atol=1e-4)


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(X),
        np.repeat(X, 2, 1)[:, ::2],
        X.tolist(),
        np.ndarray(X.shape, np.float32, b"\0" + X.tobytes(), 1),
        X.view(np.recarray),
    ],
    ids=["fortran", "strided", "list", "unaligned", "subclass"],
)
def test_other_arrays_give_what_they_gave_before(x):
    data, want = layer(), np.maximum(X @ W, 0)
    if isinstance(x, list):
        x = np.array(x, np.float32)[:, ::1]
    first = outcome(data, x)
    called(data, X.copy())
    assert not called(data, X.copy())[1]
    again = outcome(data, x)
    assert type(first) is type(again)
    for found in (first, again):
        if isinstance(found, np.ndarray):
            np.testing.assert_allclose(found, want, atol=1e-4)
        else:
            assert str(found) == str(first)


def outcome(data, *args, **named):
    """What a new model gives or raises."""
    try:
        return eq.from_onnx(data)(*args, **named)
    except eq.EqsatError as error:
        return error


@pytest.mark.parametrize(
    "args, named",
    [
        ((), {}),
        ((X, X), {}),
        ((X,), {"x": X}),
        ((), {"y": X}),
        ((X.astype(np.float64),), {}),
        ((X[:, :5],), {}),
        ((X[0],), {}),
        ((None,), {}),
        (("text",), {}),
    ],
    ids="none two twice name dtype shape rank None text".split(),
)
def test_wrong_arguments_are_named_as_before(args, named):
    data = layer()
    before = outcome(data, *args, **named)
    check(data, X)
    after = outcome(data, *args, **named)
    assert isinstance(before, eq.EqsatError) and type(before) is type(after)
    assert str(before) == str(after)


def test_several_outputs_of_several_types_in_their_order():
    nodes = [
        helper.make_node("ReduceSum", ["b"], ["total"], keepdims=0),
        helper.make_node("Greater", ["a", "b"], ["more"]),
        helper.make_node("Cast", ["a"], ["half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Add", ["i", "i"], ["twice"]),
    ]
    inputs = [value("a", [2, 3]), value("i", [2], INT), value("b", [2, 3])]
    names = "total more twice half total".split()
    data = model(nodes, inputs, [value(n, None) for n in names[:4]])
    a, b = RNG.standard_normal((2, 2, 3)).astype(np.float32)
    i = np.array([1, -(2**62)])
    found = check(data, a, i, b)
    want = b.sum(), a > b, i + i, a.astype(np.float16)
    for x, y in zip(found, want, strict=True):
        assert x.dtype == y.dtype and x.shape == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=1e-6)
    kept = eq.from_onnx(data)
    named = kept(b=b, a=a, i=i)
    assert all(np.array_equal(x, y) for x, y in zip(named, found, strict=True))
    assert "_opened" not in vars(kept)


def test_an_input_that_is_an_output_and_one_that_is_not_read():
    nodes = [
        helper.make_node("Identity", ["a"], ["same"]),
        helper.make_node("Neg", ["a"], ["less"]),
    ]
    inputs = [value("unread", [4]), value("a", [2])]
    data = model(nodes, inputs, [value("same", None), value("less", None)])
    a, unread = np.float32([1, -2]), np.zeros(4, np.float32)
    for _ in range(3):
        (same, less), _ = called(data, unread, a)
        assert same.tolist() == [1, -2] and less.tolist() == [-1, 2]
        assert not np.shares_memory(same, a)
    assert isinstance(outcome(data, unread[:3], a), eq.ShapeError)


def test_models_that_compute_nothing():
    x = np.float32([1, 2])
    data = model([], [value("x", [2])], [value("x", [2])])
    for _ in range(2):
        assert called(data, x)[0].tolist() == [1, 2]
    data = model([], [value("x", [2])], [value("w", [3])], {"w": np.arange(3.0)})
    for _ in range(2):
        assert called(data, x)[0].tolist() == [0, 1, 2]


def test_results_are_arrays_of_their_own():
    check(layer(), X)
    f = eq.from_onnx(layer())
    first = f(X)
    held = first.copy()
    f(X + 1)
    first += 1
    assert np.array_equal(f(X), held) and "_opened" not in vars(f)


def test_an_index_out_of_bounds_is_named_as_before():
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    data = model(nodes, [value("x", [5]), value("i", [2], INT)], [value("y", None)])
    x, good, bad = np.arange(5, dtype=np.float32), np.array([1, 4]), np.array([1, 5])
    before = outcome(data, x, bad)
    check(data, x, good)
    f = eq.from_onnx(data)
    assert f(x, good).tolist() == [1, 4]
    with pytest.raises(IndexError) as caught:
        f(x, bad)
    assert str(caught.value) == str(before)
    assert f(x, good).tolist() == [1, 4]


def test_values_of_shapes_are_part_of_a_program():
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    inputs = [value("x", [6]), value("to", [2], INT)]
    data = model(nodes, inputs, [value("y", None)])
    x = np.arange(6, dtype=np.float32)
    for to in ([2, 3], [3, 2], [6, 1], [2, 3]):
        found, _ = called(data, x, np.array(to))
        assert found.shape == tuple(to)


def test_defaults_and_what_runs_on_the_host():
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    inputs = [value("x", [3]), value("w", [3])]
    data = model(nodes, inputs, [value("y", None)], {"w": np.float32([1, 2, 3])})
    x = np.float32([1, 1, 1])
    check(data, x)
    given = eq.from_onnx(data)(x, w=x)
    assert given.tolist() == [2, 2, 2]
    assert called(data, x)[0].tolist() == [2, 3, 4]
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    data = model(nodes, [value("x", [3])], [value("y", None, INT)])
    for _ in range(2):
        found, opened = called(data, np.float32([0, 1, 2]))
        assert found.tolist() == [[1, 2]] and opened


def changed_rules(_):
    return {"rules": []}


def of_numpy(_):
    return {"backend": "numpy"}


def with_stats(_):
    return {"options": eq.Options(stats=True)}


def without_cache(_):
    return {"options": eq.Options(cache=False)}


@pytest.mark.parametrize(
    "options", [changed_rules, of_numpy, with_stats, without_cache]
)
def test_calls_that_are_watched_or_differ_are_not_kept(options):
    data = layer()
    check(data, X)
    for _ in range(2):
        found, opened = called(data, X, **options(data))
        assert opened
        np.testing.assert_allclose(found, np.maximum(X @ W, 0), atol=1e-4)


def test_options_around_a_call_count():
    data = layer()
    check(data, X)
    with eq.options(progress=False):
        assert not called(data, X)[1]
    for other in ({"numerics": "exact"}, {"threads": 1}, {"stats": True}):
        with eq.options(**other):
            assert called(data, X)[1]
    assert not called(data, X)[1]


def test_the_environment_counts(monkeypatch):
    data = layer()
    f = eq.from_onnx(data)
    monkeypatch.setenv("EQSAT_NUMERICS", "exact")
    f(X)
    assert called(data, X)[1], "the call was made under other options"
    check(layer(W + 1), X)
    monkeypatch.setenv("EQSAT_NUMERICS", "reassociate")
    assert called(layer(W + 1), X)[1]
    monkeypatch.setenv("EQSAT_CACHE", "0")
    assert called(layer(W + 1), X)[1]


def test_a_program_that_was_measured_counts(monkeypatch):
    data = layer()
    names = []
    keep = whole_program.keep_whole

    def noted(name, record, code, other):
        names.append(other[0])
        keep(name, record, code, other)

    monkeypatch.setattr(whole_program, "keep_whole", noted)
    check(data, X)
    for tuned in (b"not the terms of a program", b"nor these"):
        disk_cache.put(names[0], tuned, asked=True)
        found, opened = called(data, X)
        assert opened
        np.testing.assert_allclose(found, np.maximum(X @ W, 0), atol=1e-4)


def test_what_is_measured_between_lowering_and_the_call_counts(monkeypatch):
    data, names = layer(), []
    keep = whole_program.keep_whole

    def noted(name, record, code, other):
        names.append(other[0])
        keep(name, record, code, other)

    monkeypatch.setattr(whole_program, "keep_whole", noted)
    called(data, X)
    disk_cache.clear()
    f = eq.from_onnx(data)
    f.explain(X)
    disk_cache.put(names[0], b"what was measured meanwhile", asked=True)
    f(X)
    assert len(names) == 2 and called(data, X)[1]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("first, second", [(1, 0), (0, 1), (1, 1)])
def test_arrays_that_cannot_be_written_to_are_in_no_program_that_is_kept(first, second):
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["h"]),
        helper.make_node("Exp", ["b"], ["g"]),
        helper.make_node("Add", ["h", "g"], ["y"]),
    ]
    inputs = [value("a", [300, 4]), value("b", [300, 4])]
    data = model(nodes, inputs, [value("y", None)])
    for fixed in (True, False, False, True):
        a, b = RNG.standard_normal((2, 300, 4)).astype(np.float32)
        want = a * b + np.exp(b)
        held = a.copy(), b.copy()
        given = read_only(a) if fixed and first else a
        found, _ = called(data, given, read_only(b) if fixed and second else b)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
        assert np.array_equal(a, held[0]) and np.array_equal(b, held[1])
    assert not called(data, a.copy(), b.copy())[1]


@pytest.mark.parametrize("channels, kernels, size", [(16, 32, 14), (64, 64, 8)])
def test_weights_that_are_not_finite_have_a_program_of_their_own(
    folder, channels, kernels, size
):
    def made(first):
        w = np.random.default_rng(1).standard_normal((kernels, channels, 3, 3))
        w[0, 0, 0, 0] = first
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
        inputs = [value("x", [1, channels, size, size])]
        outputs = [value("y", None)]
        return model([node], inputs, outputs, {"w": w.astype(np.float32)})

    x = RNG.standard_normal((1, channels, size, size)).astype(np.float32)
    plain, odd = made(0.5), made(np.inf)
    want = {data: called(data, x)[0] for data in (odd, plain)}
    assert np.isfinite(want[plain]).all() and not np.isfinite(want[odd]).all()
    for data in (odd, plain, odd, odd, plain, plain):
        assert called(data, x)[0].tobytes() == want[data].tobytes()
        for path in entries(folder, "code") if data is odd else ():
            path.unlink()


def test_a_lowering_of_a_user_counts():
    from eqsat.terms import Op

    data = model([helper.make_node("Tanh", ["x"], ["y"])], [value("x", [3])], [VALUE])
    x = np.float32([-1, 0, 1])
    check(data, x)
    op = Op.registry["tanh"]
    before = dict(op.lowerings)

    @op.lowering("numpy")
    def mine(v, out):
        out[...] = 7

    try:
        assert called(data, x)[0].tolist() == [7, 7, 7]
    finally:
        op.lowerings.clear()
        op.lowerings.update(before)
    np.testing.assert_allclose(called(data, x)[0], np.tanh(x), rtol=1e-6)


def test_a_search_that_was_cut_short_is_told_each_time(monkeypatch):
    monkeypatch.setenv("EQSAT_MAX_NODES", "0")
    nodes, last = [], "x"
    for i in range(12):
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"]),
            helper.make_node("Tanh", [f"h{i}"], [f"t{i}"]),
            helper.make_node("Add", [f"t{i}", last], [f"s{i}"]),
        ]
        last = f"s{i}"
    weights = {
        f"w{i}": RNG.standard_normal((40, 40)).astype(np.float32) for i in range(12)
    }
    data = model(nodes, [value("x", [3, 40])], [value(last, None)], weights)
    for _ in range(2):
        with pytest.warns(eq.BudgetWarning, match="cut short"):
            assert called(data, X)[1]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_a_model_that_runs_from_disk(copied, folder):
    path = folder / "m.onnx"
    path.write_bytes(layer())
    want = check(path, X)
    f = eq.from_onnx(path)
    f(X)
    g = copied(f)
    assert np.array_equal(g(X), want) and np.array_equal(f(X), want)
    other = g.compiled_by(lambda fn: lambda *args: fn(*args))
    np.testing.assert_allclose(other(X), want, atol=1e-4)


def test_the_file_may_be_gone_when_its_model_is_opened(folder, monkeypatch):
    (folder / "inside").mkdir()
    path = folder / "m.onnx"
    path.write_bytes(layer())
    check(path, X)
    monkeypatch.chdir(folder)
    f, g = eq.from_onnx("m.onnx"), eq.from_onnx("m.onnx")
    monkeypatch.chdir(folder / "inside")
    np.testing.assert_allclose(f(X[:2]), np.maximum(X[:2] @ W, 0), atol=1e-4)
    path.unlink()
    with pytest.raises(eq.DTypeError, match="float32, got float64"):
        g(X.astype(float))


def entries(folder: Path, kind: str) -> list[Path]:
    return [*(folder / "cache" / "compiled").glob(f"{kind}-*")]


@pytest.mark.parametrize("kind", ["arrays", "whole", "code", "model"])
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "remove", "zeros"])
def test_damaged_entries_are_not_used(folder, kind, harm):
    data = layer()
    first, _ = called(data, X)
    (path,) = entries(folder, kind)
    held = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    else:
        held[len(held) // 2] ^= 1
        cut = {"cut": held[: len(held) // 2], "empty": b"", "zeros": bytes(len(held))}
        path.write_bytes(bytes(cut.get(harm, held)))
    again, opened = called(data, X)
    assert opened and np.array_equal(again, first)
    assert not called(data, X)[1], "it is kept again"


def test_what_others_can_change_is_not_used(folder):
    data = layer()
    called(data, X)
    (path,) = entries(folder, "arrays")
    path.chmod(0o666)
    with pytest.warns(CacheWarning, match="others can change"):
        assert called(data, X)[1]


def test_large_weights_are_written_beside_the_caller(folder, monkeypatch):
    monkeypatch.setattr(whole_program, "MOST_AT_ONCE", 0)
    check(layer(), X)
    assert len(entries(folder, "arrays")) == 1


def test_the_same_weights_are_kept_once_for_all_shapes(folder):
    data = layer()
    for n in (16, 24, 32):
        called(data, np.tile(X, (12, 1))[:n])
    assert len(entries(folder, "whole")) == 3
    assert len(entries(folder, "arrays")) == 1


def test_few_shapes_are_kept(folder):
    data = layer()
    f = eq.from_onnx(data)
    for n in range(1, 21):
        x = RNG.standard_normal((n, 40)).astype(np.float32)
        np.testing.assert_allclose(f(x), np.maximum(x @ W, 0), atol=1e-4)
    assert len(entries(folder, "whole")) == 16
    f = eq.from_onnx(data)
    for n in range(1, 21):
        x = RNG.standard_normal((n, 40)).astype(np.float32)
        np.testing.assert_allclose(f(x), np.maximum(x @ W, 0), atol=1e-4)


def test_weights_that_the_cache_cannot_hold_are_not_kept(folder, monkeypatch):
    monkeypatch.setenv("EQSAT_CACHE_BYTES", str(3 * W.nbytes))
    data = layer()
    for _ in range(2):
        found, opened = called(data, X)
        assert opened and not entries(folder, "arrays")
        np.testing.assert_allclose(found, np.maximum(X @ W, 0), atol=1e-4)


def test_a_file_that_has_changed_is_not_mixed_with_what_was_read(folder):
    path = folder / "m.onnx"
    path.write_bytes(layer())
    check(path, X)
    f = eq.from_onnx(path)
    path.write_bytes(layer(W * 2))
    np.testing.assert_allclose(f(X), np.maximum(X @ W, 0), atol=1e-4)
    with pytest.raises(eq.OnnxError, match="has changed since it was read"):
        f(X[:2])
    np.testing.assert_allclose(called(path, X)[0], np.maximum(X @ W * 2, 0), atol=2e-4)


def test_a_cache_that_is_cleared_while_a_model_runs():
    data = layer()
    want = check(data, X)
    f = eq.from_onnx(data)
    assert np.array_equal(f(X), want)
    assert disk_cache.clear()
    assert np.array_equal(f(X), want)
    assert np.array_equal(eq.from_onnx(data)(X), want)


def test_threads_share_what_is_kept():
    data = layer()
    want = check(data, X)
    f, found = eq.from_onnx(data), []

    def work():
        for _ in range(50):
            found.append(np.array_equal(f(X), want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 200 and all(found) and "_opened" not in vars(f)


def test_traced_calls_and_gradients_open_the_model():
    data = layer()
    check(data, X)
    f = eq.from_onnx(data)
    f(X)
    both = eq.jit(lambda x: f(x) + 1)(X)
    np.testing.assert_allclose(both, np.maximum(X @ W, 0) + 1, atol=1e-4)
    assert eq.grad(lambda x: f(x).sum())(X).shape == X.shape


def test_external_data_are_read_anew(folder):
    names = {"w": W}
    proto = onnx.ModelProto.FromString(layer())
    onnx.external_data_helper.convert_model_to_external_data(
        proto, location="w.bin", size_threshold=0
    )
    onnx.save(proto, folder / "m.onnx")
    for scale in (1, 3):
        (folder / "w.bin").write_bytes((names["w"] * scale).tobytes())
        found, opened = called(folder / "m.onnx", X)
        assert opened
        np.testing.assert_allclose(found, np.maximum(X @ W * scale, 0), atol=3e-4)
