"""Images: sizes, samples and boxes."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.onnx.operators.table import axes_of, ints, known, number, operator, sized
from eqsat.support import EqsatError

# -- files -----------------------------------------------------------------------------


@operator("ImageDecoder", on_host=True)
def image_decoder(data: Any, *, pixel_format: str) -> Any:
    """The pixels of a file of an image, height × width × channels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise EqsatError("ImageDecoder needs the package pillow") from error
    with Image.open(io.BytesIO(data.tobytes())) as image:
        width, height = image.size
        sized((height, width, 4), np.uint8)
        pixels = np.asarray(
            image.convert("L" if pixel_format == "Grayscale" else "RGB")
        )
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


# -- resizing --------------------------------------------------------------------------

WHOLE_CORNERS = "align_whole_corners"
"""What PyTorch means by ``align_corners``, and ONNX Runtime computes for all: the first
and the last result are the first and the last element. By the tests of the standard the
last result may be a part of one, where scales make sizes that are not whole."""


def _places(
    how: str, n: int, m: int, scale: np.floating | Fraction, roi: tuple[float, float]
) -> Any:
    """Where in an axis of size n the m elements lie that are read, in the dtype of the
    scale. A fraction of two sizes meets whole numbers: of 56 elements of 24 the 17th is
    the 7th."""
    is_exact = isinstance(scale, Fraction)
    i = np.arange(m, dtype=np.float64 if is_exact else type(scale))
    if not m:
        return i

    def scaled(place: Any) -> Any:
        if isinstance(scale, Fraction):
            return place * scale.denominator / scale.numerator
        return place / scale

    if how == "asymmetric":
        return scaled(i)
    if how == "align_corners":
        whole = float(scale * n) - 1  # of results, of which the last may be a part
        return i * (n - 1) / whole if whole else np.zeros(m)
    if how == WHOLE_CORNERS:
        return i * (n - 1) / (m - 1) if m > 1 else np.zeros(m)
    if how == "pytorch_half_pixel":
        return scaled(i + 0.5) - 0.5 if m > 1 else np.zeros(m)
    if how == "tf_half_pixel_for_nn":
        return scaled(i + 0.5)
    if how == "half_pixel_symmetric":
        adjustment = m / (scale * n)
        offset = n * (1 - adjustment) / 2
        return i.dtype.type(offset) + scaled(i + 0.5) - 0.5
    if how == "tf_crop_and_resize":
        start, end = roi
        if m > 1:
            return start * (n - 1) + i * (end - start) * (n - 1) / (m - 1)
        return np.full(m, 0.5 * (start + end) * (n - 1))
    if how == "half_pixel":
        return scaled(i + 0.5) - 0.5
    raise ValueError(f"unknown coordinate_transformation_mode {how!r}")


def _nearest(x: Any, how: str) -> Any:
    if how == "floor":
        return np.floor(x)
    if how == "ceil":
        return np.ceil(x)
    if how == "round_prefer_ceil":
        return np.floor(x + 0.5)
    if how == "round_prefer_floor":
        return np.ceil(x - 0.5)
    raise ValueError(f"unknown nearest_mode {how!r}")


def _kernel(mode: str, distance: Any, a: float) -> Any:
    """How much an element counts at a distance."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(0, 1 - d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _taps(
    mode: str,
    places: Any,
    n: int,
    scale: float,
    attrs: dict[str, Any],
) -> tuple[Any, Any]:
    """Which elements of an axis of size n count for each result, and how much: a row
    of indices and one of weights for each tap."""
    shrink = min(1.0, scale) if attrs["antialias"] else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    first = np.floor(places - reach).astype(int) + 1
    at = first + np.arange(int(np.ceil(2 * reach)) + 1)[:, None]
    weights = _kernel(mode, (at - places) * shrink, attrs["cubic_coeff_a"])
    if attrs["exclude_outside"]:
        weights = np.where((at < 0) | (at >= n), 0, weights)
    if attrs["exclude_outside"] or attrs["antialias"]:
        total = weights.sum(0)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(at, 0, n - 1), weights


def _mixed(x: Any, axis: int, taps: tuple[Any, Any]) -> Any:
    """Sums of elements along an axis by weights. What has a weight of 0 is in no sum,
    were it infinite."""
    total: Any = None
    for index, weights in zip(*taps, strict=True):
        if not weights.any():
            continue
        shape = [1] * x.ndim
        shape[axis] = len(index)
        part = np.take(x, index, axis=axis) * weights.astype(x.dtype).reshape(shape)
        if not weights.all():
            part = np.where((weights == 0).reshape(shape), 0, part).astype(x.dtype)
        total = part if total is None else total + part
    return np.zeros_like(np.take(x, taps[0][0], axis=axis)) if total is None else total


def _resized(
    x: Any,
    sizes: Sequence[int],
    scales: Sequence[float | Fraction],
    roi: Any,
    mode: str,
    how: str,
    extrapolation: float,
    attrs: dict[str, Any],
) -> Any:
    """x with its axes resized one after another."""
    sized(sizes, x.dtype)
    y, outside = x, []
    for a, (n, m, scale) in enumerate(zip(x.shape, sizes, scales, strict=True)):
        if n == m and scale == 1 and how != "tf_crop_and_resize":
            continue
        part = (roi[a], roi[x.ndim + a]) if roi is not None else (0.0, 1.0)
        # PyTorch and ONNX Runtime meet whole numbers so: 3 / 0.6 is 5.
        kind = np.float32 if mode == "nearest" else np.float64
        by = scale if isinstance(scale, Fraction) else kind(scale)
        places = _places(how, n, m, by, part)
        if how == "tf_crop_and_resize":
            shape = [1] * x.ndim
            shape[a] = m
            outside.append(((places < 0) | (places > n - 1)).reshape(shape))
        if mode == "nearest":
            near = attrs["nearest_mode"]
            if near == "":  # of opset 10
                near = "ceil" if scale < 1 else "floor"
            found = _nearest(places, near)
            y = np.take(y, np.clip(found, 0, n - 1).astype(np.int64), axis=a)
            continue
        own = y.dtype if y.dtype in (np.float32, np.float64) else np.float32
        y = _mixed(y.astype(own), a, _taps(mode, places, n, float(scale), attrs))
    for mask in outside:
        y = np.where(mask, extrapolation, y)
    if y.dtype == x.dtype:
        return y
    if x.dtype.kind in "iu":
        held = np.iinfo(x.dtype)
        y = np.clip(np.trunc(y), held.min, held.max)
    return y.astype(x.dtype)


@operator("Resize", until=10)
@operator("Upsample", since=9)
def resize_by_scales(x: Any, scales: Any, *, mode: str) -> Any:
    """x resized by scales, from places i / scale."""
    return _by_scales(x, [float(s) for s in known(scales)], mode)


@operator("Upsample", until=8)
def upsample_fixed(x: Any, *, mode: str, scales: Any) -> Any:
    """x resized by scales, from places i / scale."""
    return _by_scales(x, scales, mode)


def _by_scales(x: Any, scales: Sequence[float], mode: str) -> Any:
    sizes = [
        math.floor(np.float32(n) * np.float32(s))  # as PyTorch and ONNX Runtime
        for n, s in zip(x.shape, scales, strict=True)
    ]
    attrs = {
        "nearest_mode": "",
        "exclude_outside": 0,
        "antialias": 0,
        "cubic_coeff_a": -0.75,
    }
    mode = "linear" if mode == "bilinear" else mode
    return _resized(x, sizes, scales, None, mode, "asymmetric", 0.0, attrs)


@operator("Resize", since=11)
def resize(
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str,
    nearest_mode: str,
) -> Any:
    """x resized by scales or to sizes."""
    chosen = list(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    factors: list[float | Fraction] = [1.0] * x.ndim
    wanted = list(x.shape)
    if scales is not None and known(scales).size:
        for a, s in zip(chosen, known(scales), strict=True):
            factors[a] = float(s)
            wanted[a] = math.floor(np.float32(x.shape[a]) * np.float32(s))
    else:
        given = ints(sizes) or []
        pairs = zip(chosen, given, strict=True)
        ratios = [Fraction(n, max(x.shape[a], 1)) for a, n in pairs]
        if keep_aspect_ratio_policy != "stretch":
            choose = min if keep_aspect_ratio_policy == "not_larger" else max
            ratios = [choose(ratios)] * len(ratios)
            given = [
                math.floor(float(r) * x.shape[a] + 0.5)
                for r, a in zip(ratios, chosen, strict=True)
            ]
        for a, n, r in zip(chosen, given, ratios, strict=True):
            if n and not x.shape[a]:
                raise ValueError(f"axis {a} has no elements, and {n} are wanted")
            wanted[a], factors[a] = n, r
    region = None
    if roi is not None and known(roi).size:
        values = [float(v) for v in known(roi)]
        region = [0.0] * x.ndim + [1.0] * x.ndim
        for i, a in enumerate(chosen):
            region[a], region[x.ndim + a] = values[i], values[len(chosen) + i]
    attrs = {
        "nearest_mode": nearest_mode,
        "exclude_outside": exclude_outside,
        "antialias": antialias,
        "cubic_coeff_a": cubic_coeff_a,
    }
    how = coordinate_transformation_mode
    return _resized(x, wanted, factors, region, mode, how, extrapolation_value, attrs)


# -- samples ---------------------------------------------------------------------------


def _reflected(x: Any, low: float, high: float) -> Any:
    span = high - low
    if span <= 0:
        return np.zeros_like(x)
    d = np.abs(x - low)
    turns = np.floor(d / span)
    rest = d - turns * span
    return np.where(np.remainder(turns, 2) == 0, rest + low, high - rest)


def _pixel(x: Any, places: Sequence[Any], padding: str, align: int) -> Any:
    """Elements of images n c … at integer places n …; 0 outside unless the padding
    says otherwise."""
    sizes = x.shape[2:]
    inside: Any = True
    flat: Any = 0
    for p, n in zip(places, sizes, strict=True):
        if padding == "border":
            p = np.clip(p, 0, n - 1)
        elif padding == "reflection":
            low, high = (0.0, n - 1.0) if align else (-0.5, n - 0.5)
            p = np.clip(_reflected(p, low, high), 0, n - 1)
        else:
            inside = inside & (p >= 0) & (p <= n - 1)
            p = np.clip(p, 0, n - 1)
        flat = flat * n + np.where(np.isnan(p), 0, p)
    count, channels = x.shape[:2]
    shape = flat.shape[1:]
    index = flat.astype(np.int64).reshape(count, 1, -1)
    index = np.broadcast_to(index, (count, channels, index.shape[-1]))
    found = np.take_along_axis(x.reshape(count, channels, -1), index, -1)
    found = found.reshape(count, channels, *shape)
    return found if inside is True else np.where(np.expand_dims(inside, 1), found, 0)


@operator("GridSample")
def grid_sample(
    x: Any, grid: Any, *, align_corners: int, mode: str, padding_mode: str
) -> Any:
    """Images read at places from -1 to 1."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes = x.shape[2:]
    places = []
    for i, n in enumerate(sizes):
        p = grid[..., len(sizes) - 1 - i]
        p = (p + 1) / 2 * (n - 1) if align_corners else ((p + 1) * n - 1) / 2
        places.append(p)
    if padding_mode == "border" and mode != "cubic":
        places = [np.clip(p, 0, n - 1) for p, n in zip(places, sizes, strict=True)]
    if padding_mode == "reflection" and mode != "cubic":
        ends = [(0.0, n - 1.0) if align_corners else (-0.5, n - 0.5) for n in sizes]
        places = [
            np.clip(_reflected(p, *e), 0, n - 1)
            for p, e, n in zip(places, ends, sizes, strict=True)
        ]
    if mode == "nearest":
        return _pixel(
            x, [np.rint(p) for p in places], padding_mode, align_corners
        ).astype(x.dtype)
    steps = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    firsts = [np.floor(p) for p in places]
    total: Any = None
    for corner in itertools.product(*[steps] * len(sizes)):
        at = [f + c for f, c in zip(firsts, corner, strict=True)]
        weight: Any = 1
        for a, p in zip(at, places, strict=True):
            weight = weight * _kernel(mode, a - p, -0.75)
        part = _pixel(x, at, padding_mode, align_corners) * np.expand_dims(weight, 1)
        total = part if total is None else total + part
    return total.astype(x.dtype)


@operator("RoiAlign", until=15, on_host=True)
def roi_align_before_half_pixels(
    x: Any,
    rois: Any,
    batch: Any,
    *,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Any:
    """As :func:`roi_align`, without half a pixel's shift."""
    cells = output_height, output_width
    return _roi_align(x, rois, batch, 0.0, mode, cells, sampling_ratio, spatial_scale)


@operator("RoiAlign", since=16, on_host=True)
def roi_align(
    x: Any,
    rois: Any,
    batch: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Any:
    """The mean, or the largest, of samples in each cell of each region."""
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    cells = output_height, output_width
    return _roi_align(x, rois, batch, shift, mode, cells, sampling_ratio, spatial_scale)


def _roi_align(
    x: Any,
    rois: Any,
    batch: Any,
    shift: float,
    mode: str,
    cells: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
) -> Any:
    output_height, output_width = cells
    height, width = x.shape[2:]
    shape = sized((len(rois), x.shape[1], output_height, output_width), x.dtype)
    made = np.zeros(shape, x.dtype)
    kind = rois.dtype.type  # in which the number of samples is computed
    for r, (roi, b) in enumerate(zip(rois, batch, strict=True)):
        x0, y0, x1, y1 = roi * kind(spatial_scale) - kind(shift)
        w, h = x1 - x0, y1 - y0
        if not shift:
            w, h = max(w, kind(1)), max(h, kind(1))
        sizes = h / output_height, w / output_width
        rows = sampling_ratio or math.ceil(sizes[0])
        columns = sampling_ratio or math.ceil(sizes[1])
        if rows <= 0 or columns <= 0:
            continue  # a region without samples
        ys = y0 + (np.arange(output_height * rows) + 0.5) * sizes[0] / rows
        xs = x0 + (np.arange(output_width * columns) + 0.5) * sizes[1] / columns
        wy, ly = _linear_at(ys, height)
        wx, lx = _linear_at(xs, width)
        image = x[int(b)]
        corners = [
            image[:, ly[i]][:, :, lx[j]] * (wy[i][:, None] * wx[j])
            for i in (0, 1)
            for j in (0, 1)
        ]
        parts = (x.shape[1], output_height, rows, output_width, columns)
        if mode == "avg":
            made[r] = sum(corners).reshape(parts).mean((2, 4))
        else:
            made[r] = np.max(corners, axis=0).reshape(parts).max((2, 4))
    return made


def _linear_at(places: Any, n: int) -> tuple[Any, Any]:
    """Weights and indices of the two neighbours of each place; none beyond the
    image."""
    inside = (places >= -1) & (places <= n)
    p = np.maximum(places, 0)
    low = np.minimum(p.astype(int), n - 1)
    p = np.where(low >= n - 1, low, p)
    high = np.minimum(low + 1, n - 1)
    rest = p - low
    return (np.where(inside, 1 - rest, 0), np.where(inside, rest, 0)), (low, high)


@operator("MaxRoiPool", on_host=True)
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float) -> Any:
    """The largest element in each cell of each region."""
    height, width = x.shape[2:]
    rows, columns = pooled_shape
    made = np.zeros(sized((len(rois), x.shape[1], rows, columns), x.dtype), x.dtype)
    for r, roi in enumerate(rois):
        b = int(roi[0])
        x0, y0, x1, y1 = (round(float(v) * spatial_scale) for v in roi[1:])
        h, w = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for i, j in itertools.product(range(rows), range(columns)):
            ys = (math.floor(i * h / rows) + y0, math.ceil((i + 1) * h / rows) + y0)
            xs = (
                math.floor(j * w / columns) + x0,
                math.ceil((j + 1) * w / columns) + x0,
            )
            (a, c), (d, e) = (
                np.clip(v, 0, n).tolist() for v, n in ((ys, height), (xs, width))
            )
            if c > a and e > d:
                made[r, :, i, j] = x[b, :, a:c, d:e].max((1, 2))
    return made


@operator("NonMaxSuppression", on_host=True)
def non_max_suppression(
    boxes: Any,
    scores: Any,
    most: Any = None,
    overlap: Any = None,
    threshold: Any = None,
    *,
    center_point_box: int,
) -> Any:
    """Batch, class and box of the best boxes of each class that overlap no better
    one."""
    limit = 0 if most is None else number(most)
    least = -np.inf if threshold is None else number(threshold)
    share = 0.0 if overlap is None else number(overlap)
    if center_point_box:
        cx, cy, w, h = np.moveaxis(boxes, -1, 0)
        corners = np.stack([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2], -1)
    else:
        a, b = boxes[..., :2], boxes[..., 2:]
        corners = np.concatenate([np.minimum(a, b), np.maximum(a, b)], -1)
    found = []
    for n, c in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        order = np.argsort(-scores[n, c], kind="stable")
        order = order[scores[n, c][order] > least]
        kept = _apart(corners[n], order, limit, share)
        found += [(n, c, k) for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)


_AT_ONCE = 64
"""Boxes that are compared with each other at once."""


def _apart(corners: Any, order: Any, limit: int, share: float) -> list[int]:
    """The first boxes in an order, so many at most, that overlap none before."""
    kept: list[int] = []
    for start in range(0, len(order), _AT_ONCE):
        part = order[start : start + _AT_ONCE]
        part = part[(_iou(corners[kept], corners[part]) <= share).all(0)]
        far = _iou(corners[part], corners[part]) <= share
        left = np.ones(len(part), bool)
        for i in range(len(part)):
            if len(kept) >= limit:
                return kept
            if left[i]:
                kept.append(int(part[i]))
                left &= far[i]
    return kept


def _iou(a: Any, b: Any) -> Any:
    """The shared part of the areas of each of ``a`` and each of ``b``."""
    a, b = a[:, None], b[None]
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    sides = np.maximum(high - low, 0)
    areas = [np.prod(v[..., 2:] - v[..., :2], -1) for v in (a, b)]
    inside = sides[..., 0] * sides[..., 1]
    union = areas[0] + areas[1] - inside
    return np.divide(inside, union, out=np.zeros_like(union), where=union > 0)
