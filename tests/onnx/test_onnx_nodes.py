"""The cases of the package onnx: models of one node, and others."""

from __future__ import annotations

import pytest
from sizes import some

pytest.importorskip("onnx")

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
