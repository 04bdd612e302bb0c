"""Cases of the package onnx: models of one node, and others, with inputs and
results."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import eqsat as eq
from eqsat.onnx import OnnxModel
from eqsat.support import counted

TINY = frozenset("float8 float4 int4 uint4 int2 uint2".split())
"""Starts of the names of types that no program of eqsat holds; NumPy computes them."""


class OnnxCase(NamedTuple):
    """A model, and what it gives for some inputs."""

    name: str
    model: Any
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def op(self) -> str:
        """The operator that it is about, as far as its name tells: of an expanded
        model that of the other one."""
        nodes = self.model.graph.node
        if "_expanded" in self.name:
            return operators().get(self.name.partition("_expanded")[0], "other")
        return nodes[0].op_type if len(nodes) == 1 else "several"


@cache
def cases() -> tuple[OnnxCase, ...]:
    """All cases of kinds ``node`` and ``simple``. Some seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [c for k in ("node", "simple") for c in load_model_tests(kind=k)]
    return tuple(_read(c) for c in found)


@cache
def operators() -> dict[str, str]:
    """The operator of each case of one node, by the name of the case."""
    found = (c for c in cases() if "_expanded" not in c.name)
    return {c.name: c.op for c in found}


def _read(case: Any) -> OnnxCase:
    model = case.model
    if model is None:
        model = onnx.load(Path(case.model_dir) / "model.onnx")
    sets = case.data_sets
    if sets is None:
        folders = sorted(Path(case.model_dir).glob("test_data_set_*"))
        sets = [_from_files(model, folder) for folder in folders]
    arrays = [([_array(v) for v in i], [_array(v) for v in o]) for i, o in sets]
    return OnnxCase(case.name, model, arrays, case.rtol, case.atol)


def _from_files(model: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    initial = {t.name for t in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in initial]
    return (
        [_of_file(folder / f"input_{i}.pb", v.type) for i, v in enumerate(inputs)],
        [
            _of_file(folder / f"output_{i}.pb", v.type)
            for i, v in enumerate(model.graph.output)
        ],
    )


def _of_file(path: Path, type_: Any) -> Any:
    data = path.read_bytes()
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _array(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [*map(_array, value)]
    is_tensor = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_tensor else value


def holds_tiny(value: Any) -> bool:
    """Whether a value has a type of fewer than 8 bits, or one of floats of 8."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_tiny, value))
    name = str(getattr(value, "dtype", ""))
    return any(re.fullmatch(rf"{t}(_.*)?", name) for t in TINY)


def differences(case: OnnxCase, model: OnnxModel) -> Iterator[str]:
    """What of the results of a model is not what the case says."""
    for inputs, outputs in case.sets:
        found = model(*inputs)
        found = found if len(model.outputs) > 1 else (found,)
        for name, got, want in zip(model.outputs, found, outputs, strict=True):
            why = apart(got, want, case.rtol, case.atol)
            if why:
                yield f"output {name!r}: {why}"


def apart(got: Any, want: Any, rtol: float, atol: float) -> str:
    """How a result differs from another; empty where it does not."""
    if want is None or got is None:
        return "" if want is got else f"{type(got).__name__}, not {type(want).__name__}"
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f"{counted(len(got), 'array')}, not {len(want)}"
        pairs = zip(got, want, strict=True)
        return next(filter(None, (apart(a, b, rtol, atol) for a, b in pairs)), "")
    want = np.asarray(want)
    text = want.dtype.kind in "OUS"
    if got.shape != want.shape or not (text or got.dtype == want.dtype):
        return f"{got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    if text:
        same = got.astype(str).tolist() == want.astype(str).tolist()
        return "" if same else "other texts"
    if want.dtype.kind == "V":
        got, want = got.astype(np.float32), want.astype(np.float32)
    try:
        np.testing.assert_allclose(got, want, rtol, atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def outcome(case: OnnxCase, **options: Any) -> tuple[str, str, OnnxModel | None]:
    """``passed``, ``failed`` or ``refused``, why, and the model if it was read."""
    try:
        model = eq.from_onnx(case.model, **options)
    except eq.OnnxError as error:
        return "refused", str(error), None
    try:
        why = next(differences(case, model), "")
    except Exception as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return ("failed" if why else "passed"), why, model
