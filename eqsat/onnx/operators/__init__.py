"""Operators of ONNX as functions of NumPy, by families.

Knows the table of operators and tensors of a file; nothing of nodes and graphs. Start
with ``table.py``. The families enter their functions when the room is imported.
"""

from eqsat.onnx.operators import (
    elementwise,
    images,
    indexing,
    learned,
    norms,
    quantised,
    reductions,
    sequences,
    shapes,
    signals,
    steps,
    transposed,
    windows,
)
from eqsat.onnx.operators.images import WHOLE_CORNERS
from eqsat.onnx.operators.steps import Repeated
from eqsat.onnx.operators.table import (
    EARLIEST,
    LATEST,
    Implementation,
    UnknownValueError,
    choices,
    entry_for,
    is_known,
)
from eqsat.onnx.operators.tensors import array_of, dense, dtype_of, has_external_data

FAMILIES = (
    *(elementwise, images, indexing, learned, norms, quantised),
    *(reductions, sequences, shapes, signals, steps, transposed, windows),
)

__all__ = [
    "EARLIEST",
    "FAMILIES",
    "LATEST",
    "WHOLE_CORNERS",
    "Implementation",
    "Repeated",
    "UnknownValueError",
    "array_of",
    "choices",
    "dense",
    "dtype_of",
    "entry_for",
    "has_external_data",
    "is_known",
]
