"""The convolution of images, one image at a time, so that its columns stay in cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..interpret import Array

Pair = Sequence[int]


def conv2d(
    x: Array,
    w: Array,
    out: Array,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> None:
    """``out[n, o] = Σ w[o] · columns of x[n]``: x n c h w, w o c/groups i j.

    The columns of an image are c i j × h w, copied in runs of a row of the image; those
    of a 1×1 kernel are the image itself. ``out`` is n o h w in C order.
    """
    o, each, kh, kw = w.shape
    h, v = out.shape[2:]
    kernels = w.reshape(groups, o // groups, each * kh * kw)
    plain = (kh, kw, *padding) == (1, 1, 0, 0) and tuple(stride) == (1, 1)
    (ph, pw), (height, width) = padding, x.shape[2:]
    image = np.zeros((x.shape[1], height + 2 * ph, width + 2 * pw), x.dtype)
    columns = np.empty((groups, each, kh, kw, h, v), x.dtype)
    windows = _windows(image, (kh, kw), stride, dilation)
    for xn, yn in zip(x, out, strict=True):
        if plain:
            flat = xn.reshape(groups, each, h * v)
        else:
            image[:, ph : ph + height, pw : pw + width] = xn
            np.copyto(columns, windows.reshape(columns.shape))
            flat = columns.reshape(groups, each * kh * kw, h * v)
        np.matmul(kernels, flat, out=yn.reshape(groups, o // groups, h * v))


def _windows(image: Array, size: Pair, stride: Pair, dilation: Pair) -> Array:
    """Views c i j h w of an image c h w: what is under each element of the kernel."""
    (sh, sw), (dh, dw) = stride, dilation
    reach = ((size[0] - 1) * dh + 1, (size[1] - 1) * dw + 1)
    views = sliding_window_view(image, reach, axis=(1, 2))
    views = views[:, ::sh, ::sw, ::dh, ::dw]
    return views.transpose(0, 3, 4, 1, 2)
