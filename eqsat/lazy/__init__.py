"""Lazy arrays: operations are recorded, then optimised and run together.

Knows what is recorded, and the programs that were compiled for it. Does not know how a
program is found: that is :func:`eqsat.jit`'s. Start with ``lazy_array.py``.
"""

from eqsat.lazy.lazy_array import LazyArray, array, array_with, evaluate, setting_of
from eqsat.lazy.programs import LOCK

__all__ = ["LOCK", "LazyArray", "array", "array_with", "evaluate", "setting_of"]
