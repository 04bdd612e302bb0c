"""Functions of NumPy that need the values of arrays: lazy ones have them to give."""

from __future__ import annotations

from typing import Any

import numpy as np


def _functions(names: str) -> frozenset[Any]:
    return frozenset(getattr(np, name) for name in names.split())


SHOW = _functions(
    "array2string array_repr array_str may_share_memory save savetxt savez "
    "savez_compressed shares_memory"
)
"""Those that show arrays, write them into files or ask where they are."""
WRITE = _functions("copyto fill_diagonal place put put_along_axis putmask")
"""Those that write into their first argument."""


def are_of_numpy(written: Any) -> bool:
    """Whether what is to be written to is an array of NumPy or several of them."""
    several = written if isinstance(written, tuple) else (written,)
    given = [a for a in several if a is not None]
    return bool(given) and all(isinstance(a, np.ndarray) for a in given)
