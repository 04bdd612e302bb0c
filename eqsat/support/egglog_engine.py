"""The engine: the only module that loads egglog.

``egglog.bindings`` is loaded alone: running ``egglog/__init__.py`` costs 0.3 to 0.7 s,
the bindings 30 ms.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import struct
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat.support.errors import EngineError
from eqsat.support.once import cached_once


def bindings() -> Any:
    """The module ``egglog.bindings``, loaded without running the package around it."""
    return _bindings_of(os.getpid())


@cached_once
def _bindings_of(process: int) -> Any:
    """Loaded once for a process: objects of one copy are none of another."""
    loaded = sys.modules.get("egglog.bindings")
    if loaded is not None and not _orphaned:
        return loaded
    if _orphaned:
        with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
            return _load(_copied(_file(), Path(folder)))
    return _load(_file())


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("egglog.bindings", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["egglog.bindings"] = module
    spec.loader.exec_module(module)
    return module


def _copied(file: Path, folder: Path) -> Path:
    """A copy of a library. Of an ELF file it has what is loaded, which comes first: 11
    MB of 219, the rest being for debuggers."""
    with file.open("rb") as source:
        header = bytearray(source.read(64))
        if header[:6] != b"\x7fELF\x02\x01":  # of 64 bits, the low ones first
            return Path(shutil.copy(file, folder))
        (start,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        source.seek(start)
        end = 0
        for _ in range(count):
            segment = source.read(size)
            offset, length = (
                struct.unpack_from("<Q", segment, at)[0] for at in (8, 32)
            )
            end = max(end, offset + length)
        struct.pack_into("<Q", header, 40, 0)  # no table of sections
        struct.pack_into("<HH", header, 60, 0, 0)
        source.seek(64)
        copy = folder / file.name
        copy.write_bytes(header + source.read(end - 64))
    return copy


_orphaned = False
"""Whether this process was forked from one that had loaded the engine."""


def _after_fork() -> None:
    """The engine waits for threads of its own, which a child does not have: the child
    needs another copy of it."""
    global _orphaned
    _orphaned = _orphaned or "egglog.bindings" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@lru_cache(maxsize=1)
def version() -> str:
    """What tells this engine from others, without loading it."""
    state = _file().stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def _file() -> Path:
    package = importlib.util.find_spec("egglog")
    for place in (package and package.submodule_search_locations) or ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = Path(place) / f"bindings{suffix}"
            if file.exists():
                return file
    raise EngineError("egglog is not installed; eqsat needs egglog >=13.2,<14")
