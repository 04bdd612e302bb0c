"""The interface ``onnx.backend.base``, by which test suites and tools run models."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep

from eqsat.onnx.model import OnnxModel, read


def _as_array(value: Any) -> Any:
    """Test suites hand over types that NumPy lacks as tensors of ONNX."""
    is_tensor = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_tensor else value


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that is read."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs in order."""
        arrays = [_as_array(v) for v in inputs]
        found = self.model(*arrays)
        return found if isinstance(found, tuple) else (found,)


class OnnxBackend(Backend):  # type: ignore[misc]
    """eqsat as a backend of ONNX, on the CPU."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Prepared:
        """The model as a function; ``kwargs`` are those of :func:`eqsat.from_onnx`."""
        return Prepared(read(model, None, kwargs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is known: the CPU."""
        return device.split(":")[0] == "CPU"
