"""The user's folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from eqsat.support.option_table import setting


def user_folder(kind: str) -> Path:
    """The folder that ``EQSAT_CACHE_DIR`` or ``EQSAT_CONFIG_DIR`` names (``kind``:
    ``cache`` or ``config``), or else that for eqsat among the user's. Raises
    :class:`RuntimeError` when the user has none."""
    named = setting(f"{kind}_dir")
    if named:
        return Path(named)
    if sys.platform == "linux":  # platformdirs says the same, and takes 10 ms to import
        above = os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
        return Path(above or Path.home() / f".{kind}") / "eqsat"
    import platformdirs

    find = platformdirs.user_cache_path, platformdirs.user_config_path
    return find[kind == "config"]("eqsat")


def device_file() -> Path:
    """Where measured devices are kept. Raises :class:`RuntimeError` as
    :func:`user_folder`."""
    return user_folder("config") / "devices.json"
