"""Machine code of the functions that products and convolutions call, from disk where
it was made before."""

from __future__ import annotations

from eqsat.support import cached_once, disk_cache

from .machine import Host, LoadedObject, compile_ir, load
from .sorting import library_sorts


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
    """Where that function, or that of a library which sorts, starts."""
    return library_sorts.address(name) or function(name, host).address(name)
