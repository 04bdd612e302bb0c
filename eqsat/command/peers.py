"""Runtimes of others that run models of ONNX, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Run = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Outputs by name, of inputs by name."""


def onnx_runtime(path: Path, threads: int) -> Run:
    """ONNX Runtime's CPU provider with all graph optimisations.

    Raises ``ImportError``, and what it raises for models that it does not run.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # an error is raised as well
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]

    def run(values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(names, session.run(None, values), strict=True))

    return run


def openvino(path: Path, threads: int) -> Run:
    """OpenVINO's CPU plugin for the shortest call, in float32.

    Raises ``ImportError``, and what it raises for models that it does not run.
    """
    import openvino

    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads})
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    model = core.read_model(path)
    names = [o.any_name for o in model.outputs]
    compiled = core.compile_model(model, "CPU", hints)
    request = compiled.create_infer_request()

    def run(values: Mapping[str, Any]) -> dict[str, Any]:
        found = request.infer(dict(values), share_inputs=True)
        return {n: found[i] for i, n in enumerate(names)}

    return run


PEERS: dict[str, Callable[[Path, int], Run]] = {
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": openvino,
}
