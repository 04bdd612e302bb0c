"""The user's folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_folder(kind: str, chosen: str) -> Path:
    """The folder that the variable ``chosen`` names, or else that for eqsat among the
    user's (``kind``: ``cache`` or ``config``). Raises :class:`RuntimeError` when the
    user has none."""
    named = os.environ.get(chosen)
    if named:
        return Path(named)
    if sys.platform == "linux":  # platformdirs says the same, and takes 10 ms to import
        above = os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
        return Path(above or Path.home() / f".{kind}") / "eqsat"
    import platformdirs

    find = platformdirs.user_cache_path, platformdirs.user_config_path
    return find[kind == "config"]("eqsat")
