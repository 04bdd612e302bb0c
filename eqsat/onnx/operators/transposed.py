"""Transposes of convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.onnx.operators.table import operator
from eqsat.onnx.operators.windows import check_kernels, convolved, pads_of, per_channel


@operator("ConvTranspose")
def conv_transpose(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str,
    dilations: Any = None,
    group: int,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """The transpose of a convolution: a convolution by the kernel in reverse.

    With a stride s, every s-th place of the result has the same elements of the kernel
    above elements of x. So the convolution gives s channels for each, of ⌈k / s⌉
    elements, and they are woven.
    """
    check_kernels(w, kernel_shape, b, w.shape[1] * group)
    d = x.ndim - 2
    steps, gaps = strides or [1] * d, dilations or [1] * d
    more = output_padding or [0] * d
    kernel = w.shape[2:]
    reach = [(k - 1) * g for k, g in zip(kernel, gaps, strict=True)]
    whole = [
        (n - 1) * s + r + 1 + o
        for n, s, r, o in zip(x.shape[2:], steps, reach, more, strict=True)
    ]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [
            n * s for n, s in zip(x.shape[2:], steps, strict=True)
        ]
        cut = []
        for i, (m, n) in enumerate(zip(whole, wanted[-d:], strict=True)):
            total = max(0, m - n)
            half = total // 2
            upper = auto_pad == "SAME_UPPER"
            cut.append((half, total - half) if upper else (total - half, half))
            if output_shape is not None:
                whole[i] = max(m, n)
    else:
        cut = pads_of(x.shape[2:], kernel, steps, gaps, pads, auto_pad)
    ends = [(p, m - q) for m, (p, q) in zip(whole, cut, strict=True)]
    kernels, gaps = _in_turns(w, steps, gaps, group)
    around, low = [], []
    for n, k, g, s, (start, stop) in zip(
        x.shape[2:], kernels.shape[2:], gaps, steps, ends, strict=True
    ):
        first, last = start // s, -(-stop // s)  # places of x above the kernel's end
        r = (k - 1) * g
        before, behind = r - first, last - n
        low.append(start - (r - max(before, 0)) * s)
        around.append((max(before, 0), max(behind, 0)))
    y = convolved(x, kernels, [1] * d, gaps, around, group)
    y = _woven(y, steps)
    sizes = [max(stop - start, 0) for start, stop in ends]
    key = [slice(a, a + n) for a, n in zip(low, sizes, strict=True)]
    if any(a or n != m for a, n, m in zip(low, sizes, y.shape[2:], strict=True)):
        y = y[(slice(None), slice(None), *key)]
    return y if b is None else y + per_channel(b, y.ndim)


def _in_turns(
    w: Any, steps: Sequence[int], gaps: Sequence[int], group: int
) -> tuple[Any, list[int]]:
    """Kernels in reverse, as those of a convolution: along axes with a stride, one for
    each place within it. And the gaps between their elements that are left."""
    c, each, *kernel = w.shape
    d = len(kernel)
    left = list(gaps)
    for i, (s, g) in enumerate(zip(steps, gaps, strict=True)):
        if s > 1 and g > 1:  # zeros between elements
            a = 2 + i
            w = np.expand_dims(w, a + 1)
            w = np.pad(w, [(0, 0)] * (a + 1) + [(0, g - 1)] + [(0, 0)] * (d - 1 - i))
            w = w.reshape(*w.shape[:a], -1, *w.shape[a + 2 :])
            left[i] = 1
    sizes = [-(-k // s) for k, s in zip(w.shape[2:], steps, strict=True)]
    widths = [(0, u * s - k) for k, u, s in zip(w.shape[2:], sizes, steps, strict=True)]
    w = np.pad(w, [(0, 0), (0, 0), *widths])
    w = w.reshape(
        c, each, *(n for pair in zip(sizes, steps, strict=True) for n in pair)
    )
    turns, places = range(3, 3 + 2 * d, 2), range(2, 2 + 2 * d, 2)
    w = np.flip(
        np.transpose(w, (0, 1, *turns, *places)), tuple(range(2 + d, 2 + 2 * d))
    )
    several = each * math.prod(steps)
    w = np.swapaxes(w.reshape(group, c // group, several, *sizes), 1, 2)
    return w.reshape(group * several, c // group, *sizes), left


def _woven(y: Any, steps: Sequence[int]) -> Any:
    """Channels of all places within strides beside each other, n × c ∏s × sizes, as
    one image, n × c × sizes · s."""
    if all(s == 1 for s in steps):
        return y
    n, c, *sizes = y.shape
    d = len(sizes)
    y = y.reshape(n, c // math.prod(steps), *steps, *sizes)
    order = [a for i in range(d) for a in (2 + d + i, 2 + i)]
    y = np.transpose(y, (0, 1, *order))
    whole = (m * s for m, s in zip(sizes, steps, strict=True))
    return y.reshape(n, c // math.prod(steps), *whole)
