"""The cases of the package onnx: models of one node, and others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eqsat as eq

onnx = pytest.importorskip("onnx")

DRAWN = "bernoulli"
"""Cases that hold what another generator has drawn."""
REFUSED = "Gradient"
ROUNDED = "bf16", "bfloat16"
"""Cases of bfloat16 with tolerances below one unit in its last place: chains are
rounded once, unless numerics are exact."""


# To read these cases takes long. Models of the other files of this folder run every
# time, and what these refuse is named.
@pytest.mark.slow
def test_models_of_one_node() -> None:
    from bench.standards.onnx_cases import cases, outcome

    wrong = {}
    for case in cases():
        found, why, _ = outcome(case)
        refused = found == "refused" and REFUSED in why
        rounded = any(r in case.name for r in ROUNDED) and "Mismatched" in why
        if found != "passed" and not (refused or rounded or DRAWN in case.name):
            wrong[case.name] = why
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50"])
def test_networks_that_the_package_has(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    path = folder / f"light_{name}.onnx"
    f = eq.from_onnx(path)
    rng = np.random.default_rng(0)
    x = {
        n: rng.standard_normal(
            [d.dim_value for d in t.tensor_type.shape.dim], np.float32
        )
        for n, t in f.inputs.items()
    }
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for got, want in zip(f.run(x).values(), session.run(None, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert not f.on_host()


@pytest.mark.slow  # as above
def test_each_refusal_names_the_node() -> None:
    from bench.standards.onnx_cases import cases, outcome

    refused = [
        c for c in cases() if any(n.op_type == REFUSED for n in c.model.graph.node)
    ]
    assert refused
    for case in refused:
        found, why, _ = outcome(case)
        assert found == "refused"
        assert f"({REFUSED} of " in why and "opset" in why


@pytest.mark.parametrize("op", ["Elu", "Celu", "Selu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_exponentials_less_one_keep_the_digits_of_what_is_small(
    op: str, dtype: str
) -> None:
    from onnx import TensorProto, helper

    kind = getattr(
        TensorProto, {"float64": "DOUBLE", "float32": "FLOAT"}.get(dtype, dtype.upper())
    )
    value = [helper.make_tensor_value_info(n, kind, [9]) for n in "xy"]
    node = helper.make_node(
        op, ["x"], ["y"], **({"alpha": 2.0} if op != "Selu" else {})
    )
    graph = helper.make_graph([node], op, value[:1], value[1:])
    opsets = [helper.make_opsetid("", 22 if op != "Celu" else 28)]
    f = eq.from_onnx(helper.make_model(graph, opset_imports=opsets))
    held = (
        np.dtype(dtype)
        if dtype != "bfloat16"
        else helper.tensor_dtype_to_np_dtype(kind)
    )
    x = np.array([-5, -1, -0.3, -1e-2, -1e-3, -1e-6, 0, 0.7, 3]).astype(held)
    exact = x.astype("f8")
    alpha, gamma, inner = {
        "Elu": (2.0, 1.0, 1.0),
        "Celu": (2.0, 1.0, 2.0),
        "Selu": (1.67326319217681884765625, 1.05070102214813232421875, 1.0),
    }[op]
    want = gamma * np.where(exact < 0, alpha * np.expm1(exact / inner), exact)
    got = np.asarray(f(x)).astype("f8")
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, np.finfo("f4").eps)
    least = {"float16": 2.0**-24}.get(dtype, 0.0)
    assert (np.abs(got - want) <= 3 * unit * np.abs(want) + least).all()
