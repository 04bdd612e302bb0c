"""How much memory this process has."""

from __future__ import annotations

import resource
import sys

import pytest


def resident() -> int:
    """Resident memory of this process (bytes)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
