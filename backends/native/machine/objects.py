"""Object code on disk, by the LLVM IR that it was compiled from."""

from __future__ import annotations

from eqsat.support import disk_cache

from .processor import Host, compile_ir


def compiled(text: str, host: Host, passes: str = "short") -> bytes:
    """Object code of LLVM IR, from disk where it was compiled before."""
    name = disk_cache.key("object", text, host.key, passes)
    code = disk_cache.get(name)
    if code is None:
        code = compile_ir(text, host, passes)
        disk_cache.put(name, code)
    return code
