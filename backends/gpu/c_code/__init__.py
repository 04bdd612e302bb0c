"""Ops as expressions and functions of C++ that Metal and CUDA share.

Knows the dialects of both. Does not know kernels. Start with ``dialect.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .arithmetic import expression
    from .dialect import DIALECTS, SIMD, Dialect, number, value_type
    from .half_precision import fuse_erf
    from .helpers import NEAR, header_of

__getattr__ = lazy_room(__name__, __file__)
