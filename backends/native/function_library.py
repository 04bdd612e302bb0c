"""Machine code of the functions that products and convolutions call, from disk where
it was made before."""

from __future__ import annotations

import numpy as np

from eqsat.saved import is_sort, sorts
from eqsat.support import BackendError, cached_once, disk_cache

from .machine import Host, LoadedObject, compile_ir, load


def code_of(name: str, host: Host) -> bytes:
    """Object code of the function of that name, as :mod:`.products.function_names`
    names it."""
    key = disk_cache.key("object", "product", name, host.key)
    code = disk_cache.get(key)
    if code is None:
        from .function_code import text_of  # 30 ms to import

        code = compile_ir(text_of(name, host), host)
        disk_cache.put(key, code)
    return code


@cached_once
def function(name: str, host: Host) -> LoadedObject:
    """That function in memory."""
    return load(code_of(name, host), [name])


def address_of(name: str, host: Host) -> int:
    """Where that function, or one of NumPy's that sort, starts. Raises
    :class:`BackendError` where NumPy has it not."""
    if not is_sort(name):
        return function(name, host).address(name)
    found = sorts().get(name, 0)
    if not found:
        raise BackendError(f"native: NumPy {np.__version__} has no {name}")
    return found
