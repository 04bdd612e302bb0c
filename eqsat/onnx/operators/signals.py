"""Signals: Fourier transforms, and weights for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.onnx.operators.table import (
    AXIS,
    axis_of,
    expect_shape,
    known,
    number,
    operator,
)
from eqsat.onnx.operators.tensors import dtype_of
from eqsat.support import AxisBoundsError


def _transformed(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    n = x.shape[axis] if length is None else number(length)
    if length is None and inverse and onesided:
        n = 2 * (n - 1)
    whole = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if whole.dtype not in (np.complex64, np.complex128, np.float32, np.float64):
        whole = whole.astype(np.float32)
    if inverse and onesided:
        y: Any = np.fft.irfft(whole, n, axis=axis)[..., None]
        return y.astype(x.dtype)
    if onesided and x.shape[-1] == 1:
        y = np.fft.rfft(whole, n, axis=axis)
    else:
        y = (np.fft.ifft if inverse else np.fft.fft)(whole, n, axis=axis)
        if onesided:
            y = y[(slice(None),) * axis + (slice(0, n // 2 + 1),)]
    return np.stack([np.real(y), np.imag(y)], axis=-1).astype(x.dtype)


@operator("DFT", until=19)
def dft_fixed(
    x: Any, length: Any = None, *, axis: int, inverse: int, onesided: int
) -> Any:
    """The discrete Fourier transform along an axis; the last holds real and imaginary
    parts."""
    return _transformed(x, length, _signal_axis(x, axis, AXIS), inverse, onesided)


@operator("DFT", since=20)
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int, onesided: int
) -> Any:
    """The discrete Fourier transform along an axis; the last holds real and imaginary
    parts."""
    a = -2 if axis is None else number(axis)
    a = _signal_axis(x, a, "input 'axis'")
    return _transformed(x, length, a, inverse, onesided)


def _signal_axis(x: Any, axis: int, what: str) -> int:
    """An axis from 0, which is not the last."""
    a = axis_of(axis, x.ndim, what)
    if a == x.ndim - 1:
        raise AxisBoundsError(f"{what} is {axis}, the last, which holds real parts")
    return a


@operator("STFT")
def stft(
    x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int
) -> Any:
    """Fourier transforms of windows of a signal, whose last axis may be left out where
    it is real: torch writes it so."""
    x = x[..., None] if x.ndim == 2 else x
    hop = number(step)
    n = number(length) if length is not None else window.shape[0]
    expect_shape("window", window, n)
    count = (x.shape[1] - n) // hop + 1
    places = np.arange(count)[:, None] * hop + np.arange(n)
    frames = np.take(x, places, axis=1)
    if window is not None:
        frames = frames * window[:, None]
    return _transformed(frames, None, 2, 0, onesided)


@operator("MelWeightMatrix")
def mel_weight_matrix(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int
) -> Any:
    """Weights that take a spectrum to the mel scale."""
    count, n, hertz = number(bins), number(length), number(rate)
    known((bins, length))
    edges = [2595 * np.log10(1 + float(number(v)) / 700) for v in (low, high)]
    step = (edges[1] - edges[0]) / (count + 2)
    mels = edges[0] + np.arange(count + 2) * step
    places = np.floor((n + 1) * (700 * (10 ** (mels / 2595) - 1)) / hertz).astype(int)
    made = np.zeros((n // 2 + 1, count))
    for i in range(count):
        a, b, c = places[i : i + 3]
        if b == a:
            made[b, i] = 1
        else:
            made[a : b + 1, i] = (np.arange(a, b + 1) - a) / (b - a)
        if c > b:
            made[b:c, i] = (c - np.arange(b, c)) / (c - b)
    return made.astype(dtype_of(output_datatype, "output_datatype"))
