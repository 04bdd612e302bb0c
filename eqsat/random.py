"""Random numbers that are a function of a key: ``eq.random``.

Threefry-2x32 with 20 rounds (Salmon et al. 2011, doi:10.1145/2063384.2063405) maps a
key and a counter to random bits. It is written with NumPy on ``uint32``, so it can be
jitted, and gives the same bits eagerly, jitted, and on every backend.

A key is used once. :func:`split` and :func:`fold_in` make new ones of it.

>>> from eqsat import random
>>> k1, k2 = random.split(random.key(0))
>>> random.uniform(k1, (2,)) == random.uniform(k1, (2,))
array([ True,  True])
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from eqsat.ops import take
from eqsat.support import DTypeError, OptionError, ShapeError, at, caller_line

__all__ = [
    *("bits", "choice", "fold_in", "integers", "key", "normal", "permutation"),
    *("split", "uniform"),
]

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = np.uint32(0x1BD11BDA)
_BITS, _SPLIT, _FOLD = 0, 1, 2
"""Second words of counters, so that no two functions give the same bits."""
Shape = int | Sequence[int]


def key(seed: int) -> np.ndarray[Any, Any]:
    """The key of a seed: ``uint32``, shape ``(2,)``, the lowest 64 bits of ``seed``.

    Raises ``TypeError`` for a seed that is no integer.
    """
    n = operator.index(seed) & (1 << 64) - 1
    return np.array([n >> 32, n & 0xFFFFFFFF], np.uint32)


def split(key: Any, count: int = 2) -> Any:
    """``count`` new keys of ``key``: ``uint32``, shape ``(count, 2)``.

    Raises :class:`ShapeError` and :class:`DTypeError` for what is no key, and
    :class:`ShapeError` for a size that is no integer of 0 or more.
    """
    words = _counter(_size("split: count", count))
    a, b = _threefry(_checked(key), words, np.uint32(_SPLIT))
    return np.stack([a, b], axis=1)


def fold_in(key: Any, data: Any) -> Any:
    """A new key of ``key`` and an integer, such as the number of a step: ``uint32``,
    shape ``(2,)``. ``data`` counts by its lowest 32 bits; a traced integer is one, too.

    Raises :class:`ShapeError` and :class:`DTypeError` for what is no integer; errors as
    of :func:`split`.
    """
    if isinstance(data, int):
        data = np.uint32(data & 0xFFFFFFFF)
    dtype = np.dtype(getattr(data, "dtype", type(data)))
    if dtype.kind not in "iub":
        raise DTypeError(
            f"random.fold_in: data is of {dtype}, expected an integer"
            f"{at(caller_line())}"
        )
    if np.size(data) != 1:
        raise ShapeError(
            f"random.fold_in: data has shape {np.shape(data)}, expected one integer"
            f"{at(caller_line())}"
        )
    word = np.reshape(data, (1,)).astype(np.uint32)
    return np.concatenate(_threefry(_checked(key), word, np.uint32(_FOLD)))


def bits(key: Any, shape: Shape = ()) -> Any:
    """Random ``uint32`` of ``shape`` from ``key``: each bit is 1 with probability ½.

    Errors as of :func:`split`.
    """
    sizes = _sizes(shape)
    n = math.prod(sizes)
    pair = _threefry(_checked(key), _counter(-(-n // 2)), np.uint32(_BITS))
    return np.reshape(np.concatenate(pair)[:n], sizes)


def uniform(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Random numbers of ``shape`` and ``dtype`` from ``key``, in [0, 1).

    They are multiples of 2⁻⁵³ (``float64``) or 2⁻²⁴ (``float32``).

    Raises :class:`DTypeError` for other dtypes; errors as of :func:`split`.
    """
    if _dtype(dtype) == np.float32:
        high = bits(key, shape) >> np.uint32(8)
        return high.astype(np.float32) * np.float32(2.0**-24)
    return (_words(key, shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Random numbers of ``shape`` and ``dtype`` from ``key``, of the normal
    distribution of mean 0 and variance 1.

    Φ⁻¹ of 32 random bits: tables, straight between 65,536 quantiles, and every quantile
    beyond them, up to 6.3σ. Products in it are exact, so that no backend rounds
    otherwise. Errors as of :func:`uniform`.
    """
    asked = _dtype(dtype)
    start, step, tail = _quantiles()
    word = bits(key, shape)
    j = (word >> np.uint32(16)).astype(np.int64)
    f = (word & np.uint32(0xFFFF)).astype(np.int64)
    middle = (2 * f + 1).astype(np.float64)
    inner = take(start, j, axis=0) + middle * take(step, j, axis=0)
    z = np.where(j == 0, take(tail, f, axis=0), inner)
    z = np.where(j == 0xFFFF, -take(tail, 0xFFFF - f, axis=0), z)
    return z.astype(asked)


def integers(key: Any, shape: Shape, low: int, high: int) -> Any:
    """Random ``int64`` of ``shape`` from ``key``, from ``low`` to ``high`` - 1:
    ⌊r (high - low) / 2⁶⁴⌋ + low of 64 random bits r.

    Raises :class:`OptionError` unless 0 < ``high`` - ``low`` ≤ 2³²; errors as of
    :func:`split`.
    """
    span = operator.index(high) - operator.index(low)
    if not 0 < span <= 1 << 32:
        raise OptionError(
            f"random.integers: high - low is {span}, expected 1 to 2**32"
            f"{at(caller_line())}"
        )
    r, by, half = _words(key, shape), np.uint64(span), np.uint64(32)
    upper, lower = r >> half, r & np.uint64(0xFFFFFFFF)
    found = (upper * by + (lower * by >> half)) >> half
    return found.astype(np.int64) + np.int64(low)


def permutation(key: Any, n: int) -> Any:
    """0 to ``n`` - 1 in a random order by ``key``: ``int64``, shape ``(n,)``.

    ``np.take(x, order, axis)`` shuffles an array. Errors as of :func:`split`.
    """
    return np.argsort(_words(key, _size("permutation: n", n)), kind="stable")


def choice(key: Any, n: int, shape: Shape = (), replace: bool = True) -> Any:
    """Random ``int64`` of ``shape`` from ``key``, from 0 to ``n`` - 1, each equally
    likely; without ``replace`` no two are equal.

    Raises :class:`OptionError` for more different numbers than there are; errors as of
    :func:`integers`.
    """
    if replace:
        return integers(key, shape, 0, n)
    sizes = _sizes(shape)
    if math.prod(sizes) > n:
        raise OptionError(
            f"random.choice: {math.prod(sizes)} different numbers of {n} are asked for"
            f"\n  pass replace=True{at(caller_line())}"
        )
    return np.reshape(permutation(key, n)[: math.prod(sizes)], sizes)


def _sizes(shape: Shape) -> tuple[int, ...]:
    given = shape.tolist() if isinstance(shape, np.ndarray) else shape
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(_size("shape", n) for n in given)
    return (_size("shape", shape),)


def _size(what: str, n: Any) -> int:
    try:
        size = operator.index(n)
    except TypeError:
        size = -1
    if size < 0:
        raise ShapeError(
            f"random.{what} is {n!r}, expected integers of 0 or more{at(caller_line())}"
        )
    return size


def _dtype(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(dtype)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise DTypeError(
            f"random: dtype is {found}, expected float32 or float64\n"
            f"  convert the result: .astype({found.name!r}){at(caller_line())}"
        )
    return found


def _checked(key: Any) -> Any:
    """``key``. Raises for what is no key."""
    shape, dtype = getattr(key, "shape", None), getattr(key, "dtype", None)
    if shape is None or str(dtype).rpartition(".")[2] != "uint32":
        raise DTypeError(
            f"random: the key is of {dtype or type(key).__name__}, expected uint32: "
            f"eq.random.key(seed){at(caller_line())}"
        )
    if tuple(shape) != (2,):
        raise ShapeError(
            f"random: the key has shape {tuple(shape)}, expected (2,); split gives "
            f"one in each row{at(caller_line())}"
        )
    return key


def _counter(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.uint32)


def _words(key: Any, shape: Shape) -> Any:
    """Random ``uint64``."""
    sizes = _sizes(shape)
    pair = _threefry(_checked(key), _counter(math.prod(sizes)), np.uint32(_BITS))
    a, b = (w.astype(np.uint64) for w in pair)
    return np.reshape(a << np.uint64(32) | b, sizes)


def _threefry(key: Any, a: Any, b: np.uint32) -> tuple[Any, Any]:
    """Two words for each counter ``a, b``."""
    k0, k1 = key[0:1], key[1:2]
    keys = k0, k1, k0 ^ k1 ^ _PARITY
    x, y = a + k0, np.full_like(a, b) + k1
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = x + y
            y = (y << np.uint32(r) | y >> np.uint32(32 - r)) ^ x
        x = x + keys[(i + 1) % 3]
        y = y + (keys[(i + 2) % 3] + np.uint32(i + 1))
    return x, y


@functools.cache
def _quantiles() -> tuple[np.ndarray[Any, Any], ...]:
    """Quantiles: k/2¹⁶, the steps between them divided by 2¹⁷, and (k + ½)/2³².
    Steps have 36 bits, so that 17 bits times one are exact."""
    of = NormalDist().inv_cdf
    inner = np.array([0.0, *(of(k / 65536) for k in range(1, 65536)), 0.0])
    step = np.diff(inner)
    step[[0, -1]] = 0
    mantissa, exponent = np.frexp(step / 131072)
    step = np.ldexp(np.round(mantissa * 2.0**36), exponent - 36)
    tail = np.array([of((k + 0.5) * 2.0**-32) for k in range(65536)])
    # What shows bytes never changes, so that no call compares it.
    return tuple(np.frombuffer(t.tobytes()) for t in (inner[:-1], step, tail))
