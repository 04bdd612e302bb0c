"""The extension ``linalg`` of the standard: a table of NumPy's functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.array_api.delegates import of_numpy

cholesky = of_numpy(np.linalg.cholesky)
cross = of_numpy(np.linalg.cross)
det = of_numpy(np.linalg.det)
diagonal = of_numpy(np.linalg.diagonal)
eigh = of_numpy(np.linalg.eigh)
eigvalsh = of_numpy(np.linalg.eigvalsh)
inv = of_numpy(np.linalg.inv)
matmul = of_numpy(np.linalg.matmul)
matrix_norm = of_numpy(np.linalg.matrix_norm)
matrix_power = of_numpy(np.linalg.matrix_power)
matrix_rank = of_numpy(np.linalg.matrix_rank)
matrix_transpose = of_numpy(np.linalg.matrix_transpose)
outer = of_numpy(np.linalg.outer)
qr = of_numpy(np.linalg.qr)
slogdet = of_numpy(np.linalg.slogdet)
solve = of_numpy(np.linalg.solve)
svd = of_numpy(np.linalg.svd)
svdvals = of_numpy(np.linalg.svdvals)
tensordot = of_numpy(np.linalg.tensordot)
trace = of_numpy(np.linalg.trace)
vecdot = of_numpy(np.linalg.vecdot)
vector_norm = of_numpy(np.linalg.vector_norm)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverse; singular values up to ``rtol`` times the largest count as
    zero, by default the longer side times the rounding of the dtype."""
    return _pinv(x, rtol=rtol)


_pinv = of_numpy(np.linalg.pinv)
