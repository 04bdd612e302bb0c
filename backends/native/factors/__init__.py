"""Factorisations of matrices: LAPACK, and vectors of small matrices.

Start with ``lapack_calls.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import eig_svd_qr, lapack_calls
    from .eig_svd_qr import Decompositions
    from .small_matrices import lanes_of, write_matrices

__getattr__ = lazy_room(__name__, __file__)
