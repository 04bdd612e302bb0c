"""The engine: the only module that loads egglog.

``egglog.bindings`` is loaded alone: running ``egglog/__init__.py`` costs 0.3 to 0.7 s,
the bindings 30 ms.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat.errors import EngineError


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module ``egglog.bindings``, loaded without running the package around it."""
    loaded = sys.modules.get("egglog.bindings")
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location("egglog.bindings", _file())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["egglog.bindings"] = module
    spec.loader.exec_module(module)
    return module


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
