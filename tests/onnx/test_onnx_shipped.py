"""Models with the weights that packages ship, on inputs of their kind, against float64
and against ONNX Runtime. Each is skipped where its package is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat as eq

pytest.importorskip("onnx")
pytest.importorskip("PIL")
pytest.importorskip("sklearn")
shipped = pytest.importorskip("bench.standards.shipped_models")


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped.MODELS)
def test_a_model_that_a_package_ships(name: str) -> None:
    from eqsat.checking import Evaluated, bound, relative

    model = shipped.MODELS[name]
    path = model.path
    if path is None:
        pytest.skip(f"{model.package} is not installed")
    f, inputs = eq.from_onnx(path), model.inputs()
    made: list[Evaluated] = []

    def evaluated(exact: bool) -> dict[str, Any]:
        def make(fn: Any) -> Any:
            made.append(Evaluated(fn, exact))
            return made[-1]

        return f.compiled_by(make).run(inputs)

    exact, plain, got = evaluated(True), evaluated(False), f.run(inputs)
    terms = max(e.longest_sum for e in made)
    for key, value in got.items():
        assert (value.dtype, value.shape) == (plain[key].dtype, plain[key].shape)
        off = relative(plain[key], exact[key])
        assert relative(value, exact[key]) <= bound(off, value.dtype, terms), key
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for key, want in zip(f.outputs, session.run(None, inputs), strict=True):
        assert relative(want, exact[key]) <= shipped.NEAR, key
        assert np.asarray(got[key]).dtype == want.dtype
