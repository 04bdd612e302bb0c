"""Convolutions and pooling."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.operator_table import writable
from eqsat.pytorch.table import aten, kind_of
from eqsat.support import counted

Sizes = tuple[int, ...]


def _each(value: Any, rank: int, default: Sequence[int] = ()) -> Sizes:
    """One number for each axis of an image."""
    found = [value] if isinstance(value, int) else list(value) or list(default)
    return tuple(found * rank if len(found) == 1 else found)


# -- convolutions ----------------------------------------------------------------------


def _as_2d(x: Any) -> Any:
    return np.expand_dims(x, 2) if x.ndim == 3 else x


def _attributes(w: Any, how: Sequence[Any], groups: int) -> dict[str, Any]:
    """Stride, padding and dilation of two axes. An image of one axis is one of height
    1."""
    rank = w.ndim - 2
    if rank not in (1, 2):
        raise TypeError(f"a convolution over {counted(rank, 'axis')}")
    names = ("stride", "padding", "dilation")
    flat = [_each(v, rank) for v in how]
    if rank == 1:
        flat = [(d, *v) for d, v in zip((1, 0, 1), flat, strict=True)]
    return {**dict(zip(names, flat, strict=True)), "groups": groups}


@aten("convolution.default")
def convolution(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """The convolution of x with w, or its transpose, plus a bias."""
    how = _attributes(w, (stride, padding, dilation), groups)
    flat, kernel = _as_2d(x), _as_2d(w)
    if x.size == 0 or w.size == 0:
        raise TypeError("a convolution without elements")
    if transposed:
        y = _transposed(flat, kernel, how, _each(output_padding, w.ndim - 2))
    else:
        y = ops.conv2d(flat, kernel, **how)
    if x.ndim == 3:
        y = np.squeeze(y, 2)
    return y if bias is None else y + np.reshape(bias, (-1,) + (1,) * (x.ndim - 2))


def _transposed(x: Any, w: Any, how: dict[str, Any], extra: Sizes) -> Any:
    """The gradient of a convolution by its images, for x as the gradient of y."""
    extra = (0, *extra) if len(extra) == 1 else extra
    rows = zip(
        *(x.shape[2:], w.shape[2:], how["stride"], how["padding"], how["dilation"]),
        extra,
        strict=True,
    )
    image = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in rows]
    like = np.zeros((x.shape[0], w.shape[1] * how["groups"], *image), x.dtype)
    return _by_image(x, like, w, how)


def _by_image(g: Any, x: Any, w: Any, how: dict[str, Any]) -> Any:
    return _slopes()[0](g, x, w, None, *how.values())


def _slopes() -> Any:
    """The gradients of a convolution by images and by kernels."""
    return ops.conv2d_op.vjp


@aten("convolution_backward.default")
def convolution_backward(
    g: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
) -> Any:
    """The gradients of a convolution by x, w and bias."""
    how = _attributes(w, (stride, padding, dilation), groups)
    if transposed or x.size == 0 or w.size == 0:
        raise TypeError("the gradient of a transposed or empty convolution")
    flat, image, kernel = _as_2d(g), _as_2d(x), _as_2d(w)
    by_x = by_w = by_bias = None
    if wanted[0]:
        by_x = np.reshape(_by_image(flat, image, kernel, how), x.shape)
    if wanted[1]:
        by_w = _slopes()[1](flat, image, kernel, None, *how.values())
        by_w = np.reshape(by_w, w.shape)
    if wanted[2]:
        by_bias = np.sum(g, axis=(0, *range(2, g.ndim)))
    return by_x, by_w, by_bias


# -- pooling ---------------------------------------------------------------------------


class ImageWindows:
    """Where windows of an image lie, over its last axes."""

    def __init__(
        self,
        x: Any,
        size: Any,
        stride: Any,
        padding: Any,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> None:
        rank = 2
        self.size = _each(size, rank)
        self.stride = _each(stride, rank, self.size)
        self.padding = _each(padding, rank)
        self.dilation = _each(dilation, rank)
        self.image: Sizes = tuple(x.shape[-rank:])
        rows = zip(self.image, self.size, *self.around, strict=True)
        self.count = tuple(_count(*row, ceil_mode) for row in rows)
        """How many windows there are along each axis."""

    @property
    def around(self) -> tuple[Sizes, Sizes, Sizes]:
        """Stride, padding and dilation."""
        return self.stride, self.padding, self.dilation

    def padded(self, x: Any, fill: Any) -> Any:
        """The image with ``fill`` wherever windows reach beyond it."""
        widths = [(0, 0)] * (x.ndim - len(self.size))
        rows = zip(self.image, self.size, *self.around, self.count, strict=True)
        for n, k, s, p, d, m in rows:
            widths.append((p, max(0, (m - 1) * s + d * (k - 1) + 1 - n - p)))
        return np.pad(x, widths, constant_values=fill)

    def places(self) -> Iterator[tuple[Sizes, tuple[Any, ...]]]:
        """For every place in a window, that place and the index of what windows have
        there in a padded image."""
        for at in itertools.product(*map(range, self.size)):
            rows = zip(at, self.stride, self.dilation, self.count, strict=True)
            yield (
                at,
                (
                    ...,
                    *(slice(i * d, i * d + (m - 1) * s + 1, s) for i, s, d, m in rows),
                ),
            )

    def numbers(self, at: Sizes) -> tuple[Any, Any]:
        """The places in the flat image of what windows have at one of theirs, and
        whether these are inside of it."""
        rows = zip(at, *self.around, self.count, strict=True)
        first, second = (np.arange(m) * s - p + i * d for i, s, p, d, m in rows)
        h, w = self.image
        inside = np.logical_and.outer(
            (first >= 0) & (first < h), (second >= 0) & (second < w)
        )
        return first[:, None] * w + second, inside


def _count(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    reach = n + 2 * p - d * (k - 1) - 1
    count = (-(-reach // s) if ceil_mode else reach // s) + 1
    if ceil_mode and (count - 1) * s >= n + p:
        count -= 1  # a window must begin in the image or in the padding before it
    return count


@aten("max_pool2d_with_indices.default", in_float32=False)
def max_pool2d(
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """The largest element of every window, and its place in the flat image."""
    windows = ImageWindows(x, size, stride, padding, dilation, ceil_mode)
    lowest = np.iinfo(x.dtype).min if kind_of(x) == "i" else -math.inf
    padded = windows.padded(x, lowest)
    best: Any = None
    place: Any = None
    seen = np.zeros(windows.count, bool)
    for at, key in windows.places():
        here = padded[key]
        number, inside = windows.numbers(at)
        number = np.broadcast_to(number, here.shape)
        if best is None:
            best, place = here, number
        else:
            # the first place in the image is chosen also where it holds -∞
            is_more = (here > best) | (here != here) | (inside & ~seen)
            best, place = (
                np.where(is_more, here, best),
                np.where(is_more, number, place),
            )
        seen |= inside
    return best, place


@aten("max_pool2d_with_indices_backward.default", in_float32=False)
def max_pool2d_backward(
    g: Any,
    x: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    places: Any,
) -> Any:
    """Elements of g, added up where the largest elements were."""
    flat = math.prod(x.shape[-2:])
    lead = math.prod(x.shape[:-2])
    made = writable(np.zeros(lead * flat, g.dtype), g, places)
    rows = np.reshape(places, (lead, -1)) + np.arange(lead)[:, None] * flat
    np.add.at(made, np.reshape(rows, -1), np.reshape(g, -1))
    return np.reshape(made, x.shape)


@aten("avg_pool2d.default")
def avg_pool2d(
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of every window."""
    windows = ImageWindows(x, size, stride, padding, 1, ceil_mode)
    padded = windows.padded(x, 0)
    if windows.count == (1, 1):
        rows, columns = windows.size
        total = np.sum(padded[..., :rows, :columns], axis=(-2, -1), keepdims=True)
    else:
        total = functools.reduce(np.add, (padded[key] for _, key in windows.places()))
    if divisor_override is not None:
        return total / divisor_override
    return total / _divisors(windows, count_include_pad)


def _divisors(windows: ImageWindows, count_include_pad: bool) -> Any:
    """How many elements of each window count."""
    each = []
    rows = zip(
        *(windows.image, windows.size, windows.stride, windows.padding, windows.count),
        strict=True,
    )
    for n, k, s, p, m in rows:
        start = np.arange(m) * s - p
        end = np.minimum(start + k, n + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        each.append(end - start)
    divisors = np.multiply.outer(*each)
    value = divisors.flat[0] if divisors.size else 1
    return int(value) if (divisors == value).all() else divisors.astype(np.float32)
