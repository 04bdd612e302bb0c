"""The random numbers of MLX. Salmon et al. 2011, Parallel random numbers: as easy as
1, 2, 3, doi:10.1145/2063384.2063405: Threefry of two words and 20 rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.mlx.table import primitive
from eqsat.operator_table import UnsupportedError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry(key: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The hash of counters, in two words, by a key of two: uint32."""
    words = key[0], key[1], key[0] ^ key[1] ^ _PARITY
    first, second = first + words[0], second + words[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            first = first + second
            turned = (second << np.uint32(r)) | (second >> np.uint32(32 - r))
            second = turned ^ first
        first = first + words[(i + 1) % 3]
        second = second + (words[(i + 2) % 3] + np.uint32(i + 1))
    return first, second


@primitive("RandomBits")
def random_bits(key: Any, sizes: Any, width: int, *, shape: tuple[int, ...]) -> Any:
    """Random uint32. The counters of a pair of words are half their number apart."""
    if key.ndim != 1 or width != 4:
        raise UnsupportedError("random numbers by several keys, or not of 32 bits")
    n = int(np.prod(shape))
    half = (n + 1) // 2
    first = np.arange(half, dtype=np.uint32)
    second = np.where(first + half < n, first + half, 0).astype(np.uint32)
    words = threefry(key, first, second)
    return np.reshape(np.concatenate(words)[:n], shape)
