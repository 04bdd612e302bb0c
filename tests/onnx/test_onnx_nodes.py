"""The cases of the package onnx: models of one node, and others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sizes import some

import eqsat as eq

onnx = pytest.importorskip("onnx")

DRAWN = "bernoulli"
"""Cases that hold what another generator has drawn."""
REFUSED = "Gradient"
ROUNDED = "bf16", "bfloat16"
"""Cases of bfloat16 with tolerances below one unit in its last place: chains are
rounded once, unless numerics are exact."""


def test_models_of_one_node() -> None:
    from bench.standards.onnx_cases import cases, outcome

    wrong = {}
    for case in some(cases(), 25):
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
