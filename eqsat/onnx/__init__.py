"""Models in the format of ONNX, as functions.

Knows how a file is read and checked, which operators there are, and how a graph becomes
functions of NumPy that :func:`eqsat.jit` takes. Start with ``model.py``, then
``operators/table.py``; each family of operators has a file there. The package ``onnx``
is imported when a model is opened, which one whose calls are on disk is not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.onnx.backend import OnnxBackend
    from eqsat.onnx.model import OnnxModel

__all__ = ["OnnxBackend", "OnnxModel", "from_onnx"]

__getattr__ = lazy_room(__name__, __file__)


def from_onnx(
    source: str | os.PathLike[str] | bytes | Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    **options: Any,
) -> OnnxModel:
    """A model of ONNX as a function of its inputs, by position or by name.

    ``source`` is a path, the bytes of a file or a ``ModelProto``. External data are
    read from the folder of the path, or from ``folder``, and from no place outside.
    ``options`` are those of :func:`eqsat.jit`, such as ``backend``. Opsets 7 to 28.
    A model in one file that was called before is opened when a call is not kept on disk
    (``howto/compile_time.md``); its file must be the same then.

    Raises :class:`OnnxError` for a damaged file, tensors whose bytes are not those of
    their shapes, and for an operator, an opset or an attribute that is not known, with
    the name of the node. Nothing in a file is run as code. It needs the extra ``onnx``.
    """
    from eqsat.onnx.model import read

    return read(source, folder, options)
