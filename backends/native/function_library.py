"""Machine code of the functions that products and convolutions call, from disk where
it was made before."""

from __future__ import annotations

import functools

from eqsat import cache

from .machine import Host, Library, compile_ir, load


@functools.cache
def function(name: str, host: Host) -> Library:
    """The function of that name in memory, as :mod:`.function_names` names it."""
    key = cache.key("object", "product", name, host.key)
    code = cache.get(key)
    if code is None:
        from .function_code import text_of  # 30 ms to import

        code = compile_ir(text_of(name, host), host)
        cache.put(key, code)
    return load(code, [name])
