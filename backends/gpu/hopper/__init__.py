"""Products and attention of float32 on Hopper's tensor cores.

Knows instructions of compute capability 9.0. Start with ``products.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import products
    from .attention import Attention, attending
    from .tensor_cores import HopperKernel, told

__getattr__ = lazy_room(__name__, __file__)
