"""The extension ``fft`` of the standard: a table of NumPy's functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.array_api.delegates import check_device, of_numpy
from eqsat.lazy import LazyArray, array

fft = of_numpy(np.fft.fft)
ifft = of_numpy(np.fft.ifft)
fftn = of_numpy(np.fft.fftn)
ifftn = of_numpy(np.fft.ifftn)
rfft = of_numpy(np.fft.rfft)
irfft = of_numpy(np.fft.irfft)
rfftn = of_numpy(np.fft.rfftn)
irfftn = of_numpy(np.fft.irfftn)
hfft = of_numpy(np.fft.hfft)
ihfft = of_numpy(np.fft.ihfft)
fftshift = of_numpy(np.fft.fftshift)
ifftshift = of_numpy(np.fft.ifftshift)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> LazyArray:
    """Frequencies of the elements of :func:`fft` of ``n`` samples ``d`` apart."""
    check_device(device)
    return array(np.fft.fftfreq(n, d), dtype)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> LazyArray:
    """Frequencies of the elements of :func:`rfft` of ``n`` samples ``d`` apart."""
    check_device(device)
    return array(np.fft.rfftfreq(n, d), dtype)
