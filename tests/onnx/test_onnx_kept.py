"""Traces of models that are kept on disk: a model that was run before is not traced
again, and one that differs is."""

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 40)).astype(np.float32)
W = RNG.standard_normal((40, 30)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("EQSAT_CACHE", "1")
    return tmp_path


def made(weights=W, more=0.5):
    """x W turned, times a constant of a shape, and the number of rows."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("Gemm", ["x", "turned"], ["h"], transB=1),
        helper.make_node(
            "ConstantOfShape",
            ["sizes"],
            ["fill"],
            value=numpy_helper.from_array(np.array([more], np.float32)),
        ),
        helper.make_node("Mul", ["h", "fill"], ["y"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["floats"], to=1),
        helper.make_node("ReduceSum", ["floats"], ["size"], keepdims=0),
        helper.make_node("Add", ["y", "size"], ["z"]),
    ]
    sizes = np.array([weights.shape[1]])
    initial = {"w": weights, "sizes": sizes}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 40])],
        [helper.make_tensor_value_info("z", 1, None)],
        [numpy_helper.from_array(a, n) for n, a in initial.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset).SerializeToString()


def expected(x, weights=W, more=0.5):
    return x.astype(np.float64) @ weights * more + sum(x.shape)


def check(data, x, *what, **options):
    # Sums of 40 products up to some 10, and rounded sizes of 43.
    got = eq.from_onnx(data, **options)(x)
    np.testing.assert_allclose(got, expected(x, *what), atol=1e-4)


@pytest.fixture
def traced(monkeypatch):
    """Nodes that were computed while a model was traced."""
    from eqsat.onnx import plan

    seen = []

    def computed(node, *rest):
        seen.append(node.op)
        return plan_computed(node, *rest)

    plan_computed = plan.computed
    monkeypatch.setattr(plan, "computed", computed)
    return seen


def test_a_model_is_traced_once(traced):
    data = made()
    check(data, X)
    assert "Gemm" in traced
    traced.clear()
    check(data, X)
    check(data, X + 1)
    assert not traced


@pytest.mark.parametrize("what", [(W + 1, 0.5), (W, 0.25), (W[:, :20], 0.5)])
def test_another_model_is_traced(traced, what):
    check(made(), X)
    traced.clear()
    check(made(*what), X, *what)
    assert "Gemm" in traced


def test_another_shape_is_traced(traced):
    check(made(), X)
    traced.clear()
    check(made(), X[:2])
    assert "Gemm" in traced


def test_large_constants_are_found_by_name(traced, folder):
    wide = RNG.standard_normal((40, 12_000)).astype(np.float32)
    what = wide, 0.5
    check(made(*what), X, *what)
    kept = [p for p in folder.rglob("trace-*") if p.is_file()]
    assert len(kept) == 1 and kept[0].stat().st_size < 20_000
    traced.clear()
    check(made(*what), X, *what)
    assert not traced


def test_a_damaged_entry_is_not_used(traced, folder):
    check(made(), X)
    (kept,) = (p for p in folder.rglob("trace-*") if p.is_file())
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(bytes(data))
    traced.clear()
    check(made(), X)
    assert "Gemm" in traced


def test_nothing_is_kept_without_a_cache(traced, folder):
    options = eq.Options(cache=False)
    for _ in range(2):
        traced.clear()
        check(made(), X, options=options)
        assert "Gemm" in traced
    assert not [*folder.rglob("trace-*")]


def test_views_of_constants_lie_in_their_arrays():
    from eqsat.program_store import _made, _Places

    base = np.frombuffer(np.arange(4000, dtype=np.float32).tobytes(), np.float32)
    base = base.reshape(40, 100)
    places = _Places({"base": base})
    for view in (base, base.T, base[3:, ::-2], base[::-1], base[:, None, 5:]):
        recipe = places.recipe(view)
        assert recipe[0] == "view"
        np.testing.assert_array_equal(_made(recipe, {"base": base}), view)
    other = base.copy()
    assert places.recipe(other)[0] == "bytes"
    row = np.broadcast_to(np.arange(5.0), (4000, 3, 5))
    recipe = places.recipe(row)
    assert recipe[0] == "bytes" and len(recipe[1]) == 40
    np.testing.assert_array_equal(_made(recipe, {}), row)
    with pytest.raises((ValueError, TypeError)):
        _made(places.recipe(base.T), {"base": base[:20]})


def beside(name):
    """A tensor of two numbers whose data lies in a file beside the model."""
    tensor = onnx.TensorProto(name=name, data_type=1, dims=[2], data_location=1)
    tensor.external_data.add(key="location", value="data.bin")
    return tensor


def branches():
    """``x`` plus a constant of a branch, in a graph inside a node."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["k"], value=beside("k"))],
        "branch",
        [],
        [helper.make_tensor_value_info("k", 1, [2])],
    )
    nodes = [
        helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "b"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("c", 9, []),
        helper.make_tensor_value_info("x", 1, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, [2])]
    return helper.make_graph(nodes, "g", inputs, outputs)


def constant():
    nodes = [
        helper.make_node("Constant", [], ["k"], value=beside("k")),
        helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [2])]
    outputs = [helper.make_tensor_value_info("y", 1, [2])]
    return helper.make_graph(nodes, "g", inputs, outputs)


@pytest.mark.parametrize("make", [branches, constant])
def test_data_in_another_file_is_read_anew(make, tmp_path):
    model = helper.make_model(make(), opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.ones(2, np.float32)
    given = {"x": x, "c": np.array(True)}
    for k in (1.0, 5.0):
        (tmp_path / "data.bin").write_bytes(np.full(2, k, np.float32).tobytes())
        run = eq.from_onnx(tmp_path / "m.onnx")
        found = run.run({n: given[n] for n in run.inputs})
        assert np.array_equal(found["y"], x + np.float32(k))
