"""ONNX Runtime and OpenVINO on the CPU, over the same ONNX graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import Candidate, UnsupportedWorkload
from bench.workloads import Workload
from eqsat.command.peers import Run, onnx_runtime, openvino


class OnnxRuntime:
    """ONNX Runtime's CPU provider with all graph optimisations."""

    def __init__(self, threads: int) -> None:
        import onnx
        import onnxruntime

        self.ort = onnxruntime
        self.threads = threads
        onnxruntime.set_default_logger_severity(3)
        self.versions = {
            "onnxruntime": onnxruntime.__version__,
            "onnx": onnx.__version__,
        }

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """A session, fed the arrays by name."""
        from bench.peers.onnx_graph import graph

        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Products of quantised weights in float32, as the workload says: by default
        # the other operand is rounded to 8 bits.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        model = graph(w, inputs, weights)
        try:
            session = self.ort.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # a class of its own for each kind of error
            raise UnsupportedWorkload(str(error).splitlines()[0][:200]) from error
        feed = {f"x{i}": a for i, a in enumerate(inputs)}
        return Candidate(lambda: session.run(None, feed), np.asarray)

    def model(self, path: Path) -> Run:
        """A model of ONNX as a function of inputs by name."""
        return onnx_runtime(path, self.threads)


class OpenVino:
    """OpenVINO's CPU plugin, in the precision of the workload."""

    def __init__(self, threads: int) -> None:
        import onnx
        import openvino

        self.ov, self.threads = openvino, threads
        self.core = openvino.Core()
        self.core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads})
        self.versions = {
            "openvino": openvino.__version__,
            "onnx": onnx.__version__,
        }

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """A compiled model with one request; results lie in the request's memory."""
        from bench.peers.onnx_graph import graph

        precision = {"float32": "f32", "float16": "f16"}.get(w.dtype)
        if precision is None:
            raise UnsupportedWorkload(f"no {w.dtype} input")
        try:
            compiled = self.core.compile_model(
                self.core.read_model(graph(w, inputs, weights)),
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": precision,
                    "PERFORMANCE_HINT": "LATENCY",
                    # Else operands of quantised weights are rounded to 8 bits.
                    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
                },
            )
        except RuntimeError as error:
            raise UnsupportedWorkload(str(error).splitlines()[-1][:200]) from error
        request = compiled.create_infer_request()
        shared = [np.ascontiguousarray(a) for a in inputs]
        for i, a in enumerate(shared):
            tensor = self.ov.Tensor(a, shared_memory=True)
            request.set_input_tensor(i, tensor)

        def call(held: Any = shared) -> Any:  # the request does not keep its inputs
            return request.infer()

        return Candidate(call, lambda y: np.array(y[0]))

    def model(self, path: Path) -> Run:
        """A model of ONNX as a function of inputs by name."""
        return openvino(path, self.threads)
