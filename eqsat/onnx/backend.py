"""The interface ``onnx.backend.base``, by which test suites and tools run models."""

from __future__ import annotations

from typing import Any

from onnx.backend.base import Backend as Base
from onnx.backend.base import BackendRep

from eqsat.onnx.model import Model, from_onnx


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that is read."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs in order."""
        found = self.model(*inputs)
        return found if isinstance(found, tuple) else (found,)


class Backend(Base):  # type: ignore[misc]
    """eqsat as a backend of ONNX, on the CPU."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Prepared:
        """The model as a function; ``kwargs`` are those of :func:`eqsat.from_onnx`."""
        return Prepared(from_onnx(model, **kwargs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is known: the CPU."""
        return device.split(":")[0] == "CPU"


prepare = Backend.prepare
run_model = Backend.run_model
supports_device = Backend.supports_device
