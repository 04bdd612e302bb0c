"""Tensors of a file as arrays of NumPy, checked before memory is taken."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from eqsat.onnx.operators.table import MOST_BYTES
from eqsat.support import OnnxError, counted

_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}


def dtype_of(element: int, what: str) -> np.dtype[Any]:
    """The dtype of NumPy for a type of elements of ONNX; ``object`` for strings."""
    try:
        found: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(element)
    except (KeyError, TypeError, ValueError) as error:
        raise OnnxError(f"{what}: unknown type of elements {element}") from error
    return np.dtype(found)


def lasting(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values in memory that nobody can write to, so that no call compares
    them."""
    if array.dtype.kind == "O" or not array.size:
        return array
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def array_of(tensor: Any, folder: Path | None, what: str) -> np.ndarray[Any, Any]:
    """The array of a ``TensorProto``.

    Raises :class:`OnnxError` where the bytes present are not those of the shape, and
    for data outside of ``folder``, the model's.
    """
    dtype = dtype_of(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0 or len(shape) > 64:
        raise OnnxError(f"{what}: a tensor of shape {shape} cannot be made")
    count = math.prod(shape)
    name = TensorProto.DataType.Name(tensor.data_type)
    if tensor.HasField("segment"):
        raise OnnxError(f"{what}: a tensor in segments is not supported")
    bits = _BITS.get(name, 8 * dtype.itemsize)
    expected = (count * bits + 7) // 8
    if dtype.kind == "O":
        _expect(what, "strings", len(tensor.string_data), count)
        texts = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
        made = np.empty(count, object)
        made[:] = texts
        return made.reshape(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, folder, expected, what)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
        _expect(what, "bytes", len(data), expected)
    else:
        return lasting(_typed(tensor, name, count, what))
    if bits == 8 * dtype.itemsize:
        plain = np.frombuffer(
            data, dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype
        )
        return plain.astype(dtype, copy=False).reshape(shape)
    whole = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=data)
    return lasting(numpy_helper.to_array(whole))


def _expect(what: str, unit: str, found: int, expected: int) -> None:
    if found != expected:
        raise OnnxError(f"{what}: {found} {unit} are there, expected {expected}")


def _typed(tensor: Any, name: str, count: int, what: str) -> np.ndarray[Any, Any]:
    """Values in a field for their type."""
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    values = getattr(tensor, field)
    per_byte = 8 // _BITS.get(name, 8)
    each = 2 if name.startswith("COMPLEX") else 1
    packed = -(-count // per_byte)
    if per_byte > 1 and len(values) == count:
        packed = count
    _expect(what, f"values in {field}", len(values), packed * each)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (OverflowError, TypeError, ValueError) as error:
        raise OnnxError(f"{what}: {field}: {error}") from error


def has_external_data(message: Any) -> bool:
    """Whether a message, such as a model, holds a tensor whose data lies in another
    file: as an initializer, as an attribute of a node, or inside a graph or a
    function."""
    if getattr(message, "external_data", ()):
        return True
    nested = (
        part
        for field, value in message.ListFields()
        if field.type == field.TYPE_MESSAGE
        for part in (value if isinstance(value, Sequence) else (value,))
    )
    return any(map(has_external_data, nested))


def _external(tensor: Any, folder: Path | None, expected: int, what: str) -> bytes:
    """The bytes of a tensor in another file of the model's folder."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(
            f"{what}: its data lie in the file {location!r}, and the folder is not "
            "known\n  give from_onnx the path of the model"
        )
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", expected))
    except ValueError as error:
        raise OnnxError(f"{what}: external data: {error}") from error
    _expect(what, "bytes in external data", length, expected)
    top = os.path.realpath(folder)
    whole = os.path.realpath(os.path.join(top, location))
    parts = location.replace("\\", "/").split("/")
    outside = os.path.isabs(location) or ".." in parts or "\0" in location
    if not location or outside or os.path.commonpath([top, whole]) != top:
        raise OnnxError(f"{what}: external data at {location!r} is outside of {top}")
    try:
        with open(whole, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise OnnxError(f"{what}: external data at {location!r} is no file")
            if offset < 0 or offset + length > about.st_size:
                raise OnnxError(
                    f"{what}: {location!r} has {counted(about.st_size, 'byte')}, and "
                    f"the tensor needs those from {offset} to {offset + length}"
                )
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise OnnxError(f"{what}: external data at {location!r}: {error}") from error


def dense(sparse: Any, folder: Path | None, what: str) -> np.ndarray[Any, Any]:
    """The array of a ``SparseTensorProto``, with its zeros."""
    values = array_of(sparse.values, folder, what)
    places = array_of(sparse.indices, folder, what)
    shape = tuple(sparse.dims)
    size = math.prod(shape)
    if min(shape, default=0) < 0 or size * values.dtype.itemsize > MOST_BYTES:
        raise OnnxError(f"{what}: a sparse tensor of shape {shape} cannot be made")
    flat = places
    if places.ndim == 2:
        if places.shape != (len(values), len(shape)):
            raise OnnxError(f"{what}: indices of shape {places.shape} do not fit")
        inside = ((places >= 0) & (places < np.array(shape))).all()
        if not inside:
            raise OnnxError(f"{what}: an index is outside of shape {shape}")
        flat = np.ravel_multi_index(tuple(places.T), shape)
    if flat.shape != values.shape or (
        flat.size and not 0 <= flat.min() <= flat.max() < size
    ):
        raise OnnxError(f"{what}: an index is outside of shape {shape}")
    made = np.zeros(size, values.dtype)
    made[flat] = values
    return lasting(made.reshape(shape))
