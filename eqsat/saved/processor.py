"""What the processor of this machine can do, asked without a compiler."""

from __future__ import annotations

import functools
import os
import platform
import sys
from pathlib import Path

import numpy as np

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of the control group of this process, as containers show it."""
_CPUINFO = Path("/proc/cpuinfo")
_V2 = frozenset("cx16 lahf popcnt sse3 sse41 sse42 ssse3".split())
_V3 = _V2 | frozenset("avx avx2 bmi bmi2 f16c fma lzcnt movbe".split())
_V4 = _V3 | frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split())
LEVELS = {
    **{"generic": frozenset[str](), "x86-64-v2": _V2, "x86-64-v3": _V3},
    "x86-64-v4": _V4,
}
"""Features that code for a level needs, the least level first."""
NATIVE = "native"
"""Code for all features of the processor that it was made on."""
_SAME = {
    **{"pni": "sse3", "abm": "lzcnt", "lahflm": "lahf", "sahf": "lahf", "bmi1": "bmi"},
    **{"fma3": "fma", "pclmulqdq": "pclmul", "rdrand": "rdrnd", "shani": "sha"},
    **{"3dnowprefetch": "prfchw", "asimd": "neon", "asimdhp": "fullfp16"},
    **{"asimddp": "dotprod", "atomics": "lse"},
}
"""Other names of features, those of Linux and NumPy among them."""


def feature(name: str) -> str:
    """One spelling for a feature that Linux, LLVM and NumPy spell in their ways."""
    plain = name.lower().translate({ord(c): None for c in "_.-"})
    return _SAME.get(plain, plain)


@functools.cache
def features() -> frozenset[str]:
    """The features of this processor, as :func:`feature` spells them: those that NumPy
    knows, and those that Linux does."""
    known = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
    found = {name for name, is_there in known.items() if is_there}
    try:
        lines = _CPUINFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        head, _, rest = line.partition(":")
        if head.strip() in ("flags", "Features"):
            found |= set(rest.split())
            break
    return frozenset(map(feature, found))


def system() -> str:
    """The system and the kind of processor: ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}"


@functools.cache
def processors() -> int:
    """Processors that this process may use: its affinity, and the quota of its
    container."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, quota(_QUOTA) or count))


def quota(path: Path) -> int | None:
    """Whole processors of ``path`` ("150000 100000": one and a half), at least 1; None
    without a quota."""
    try:
        allowed, period = path.read_text(encoding="ascii").split()
        return max(1, int(allowed) // int(period))
    except (OSError, ValueError):
        return None
