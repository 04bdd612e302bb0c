"""Models in the format of ONNX, as functions.

Knows how a file is read and checked, which operators there are, and how a graph becomes
functions of NumPy that :func:`eqsat.jit` takes. Start with ``model.py``, then
``table.py``; each family of operators has a file. The package ``onnx`` is imported when
a model is.
"""

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.onnx.backend import Backend
    from eqsat.onnx.model import Model, from_onnx

__getattr__ = lazy_room(__name__, __file__)
