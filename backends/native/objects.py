"""Object code on disk, by the LLVM IR that it was compiled from."""

from __future__ import annotations

from eqsat import cache

from .machine import Host, compile_ir


def compiled(text: str, host: Host) -> bytes:
    """Object code of LLVM IR, from disk where it was compiled before."""
    name = cache.key("object", text, host.key)
    code = cache.get(name)
    if code is None:
        code = compile_ir(text, host)
        cache.put(name, code)
    return code
