"""What a model is run on: arrays of files, images, and random ones by signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from eqsat.command.functions import parse_spec
from eqsat.support import Array, EqsatError, counted, nearest

Given = list[tuple[str | None, Any]]
"""Names, None for what is given in order, and arrays or :class:`eqsat.Spec`."""
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's names of images by their channels."""
LAYOUTS = ("nchw", "nhwc", "chw", "hwc", "hw")


class InputType(NamedTuple):
    """An input, as a model or a function declares it."""

    name: str
    dtype: Any = None
    """None for any."""
    sizes: tuple[int | str, ...] | None = None
    """Of each axis, or the axis's name where any will do; None for any shape."""

    def __str__(self) -> str:
        shape = "any shape" if self.sizes is None else "×".join(map(str, self.sizes))
        return f"input {self.name!r} ({self.dtype or 'any dtype'}, {shape})"


@dataclass(frozen=True)
class ImageOptions:
    """How numbers are made of an image: (pixel × scale - mean) / deviation."""

    layout: str | None
    scale: float | None
    """None for 1/255 where the input is of floats, else 1."""
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        named = zip(fields(self), astuple(self), strict=True)
        return [f"--{field.name}" for field, value in named if value not in (None, ())]


def read_specs(texts: Sequence[str]) -> Given:
    """What ``--arg`` describes."""
    return [*map(parse_spec, texts)]


def read_files(
    texts: Sequence[str], wanted: Sequence[InputType], images: ImageOptions
) -> Given:
    """What ``--input [NAME=]FILE`` names. ``wanted`` are the inputs in order, for
    images that fit them; those of a function may be more."""
    found: Given = []
    has_images = False
    by_name = {w.name: w for w in wanted}
    free = [w for w in wanted if not any(t.startswith(f"{w.name}=") for t in texts)]
    for text in texts:
        name, path = _split(text)
        if path.suffix == ".npz":
            if name is not None:
                raise _bad(f"{text!r}: an .npz has names of its own; give the file")
            found += _archive(path).items()
            continue
        target = by_name.get(name) if name is not None else next(iter(free), None)
        free = free[1:] if name is None else free
        if path.suffix == ".npy":
            found.append((name, _numpy(path)))
        else:
            has_images = True
            found.append((name, image(path, target or InputType(name or "it"), images)))
    if not has_images and (unused := images.given):
        raise click.BadParameter("no --input is an image", param_hint=unused[0])
    return found


def _split(text: str) -> tuple[str | None, Path]:
    """The name, if any, and the file that there is."""
    whole = Path(text)
    name, equals, rest = text.rpartition("=")
    path = Path(rest) if equals and not whole.is_file() else whole
    if not path.is_file():
        raise _bad(f"there is no file {str(path)!r}; expected [NAME=]FILE")
    return (name if path is not whole else None), path


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--input")


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise EqsatError(f"{path} does not load as an array: {error}") from error


def _archive(path: Path) -> dict[str, Array]:
    found = _numpy(path)
    try:
        with found:
            return {name: found[name] for name in found.files}
    except (AttributeError, ValueError, OSError) as error:
        raise EqsatError(f"{path} does not load as arrays: {error}") from error


# -- images ----------------------------------------------------------------------------


def image(path: Path, wanted: InputType, options: ImageOptions) -> Array:
    """An image as the input wants it: in its layout, channels and dtype, and resized to
    its height and width where these are fixed.

    Raises :class:`EqsatError` for what is no image and for inputs that take none.
    """
    layout, sizes = _layout(wanted, options.layout)
    wished = sizes.get("c", None if "c" in layout else 1)
    channels = 3 if isinstance(wished, str) else wished
    if channels is not None and channels not in _MODES:
        raise EqsatError(
            f"{path}: {wanted} has {counted(channels, 'channel')}; images have 1, 3 or "
            "4"
        )
    pixels = _pixels(path, channels, sizes.get("h"), sizes.get("w"))
    channels = pixels.shape[-1]
    dtype = np.dtype(np.float32 if wanted.dtype is None else wanted.dtype)
    is_float = dtype.kind not in "iub"
    scale = options.scale
    scale = (1 / 255 if is_float else 1.0) if scale is None else scale
    values = pixels.astype(np.float64) * scale
    values = values - _each_channel(options.mean, channels, 0.0, "--mean")
    deviation = _each_channel(options.std, channels, 1.0, "--std")
    if not deviation.all():
        raise EqsatError("--std is 0, and numbers are divided by it")
    values = values / deviation
    order = tuple("hwc".index(a) for a in layout if a != "n")
    values = values.transpose(order) if "c" in layout else values[..., 0]
    if not is_float:
        values = np.round(values)
        _refuse_beyond(values, dtype, path, wanted)
    made: Array = (values[None] if "n" in layout else values).astype(dtype)
    return made


def _refuse_beyond(values: Array, dtype: Any, path: Path, wanted: InputType) -> None:
    """Raise :class:`EqsatError` for integers that the input does not hold."""
    least, most = 0, 1
    if dtype.kind != "b":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = values.min(initial=0), values.max(initial=0)
    if low < least or high > most:
        raise EqsatError(
            f"{path}: {wanted} holds {least} to {most}, and the numbers are {low:g} to "
            f"{high:g}; --scale, --mean and --std make others"
        )


def _layout(wanted: InputType, given: str | None) -> tuple[str, dict[str, int | str]]:
    """What the axes of an input are, and their sizes by that."""
    sizes = wanted.sizes
    if sizes is None:
        if given is None:
            raise EqsatError(
                f"{wanted}: the layout of an image is not known; say --layout "
                f"{', '.join(LAYOUTS)}"
            )
        return given, {}
    fits = [
        layout
        for layout in ([given] if given else LAYOUTS)
        if len(layout) == len(sizes) and _may_be(layout, sizes)
    ]
    if len(fits) != 1:
        known = (
            f"may be {' or '.join(fits)}; say --layout"
            if fits
            else (
                f"takes no image{f' in {given}' if given else ''}; an image has axes "
                f"{', '.join(LAYOUTS)} with 1, 3 or 4 channels"
            )
        )
        raise EqsatError(f"{wanted} {known}")
    return fits[0], dict(zip(fits[0], sizes, strict=True))


def _may_be(layout: str, sizes: tuple[int | str, ...]) -> bool:
    by_axis = dict(zip(layout, sizes, strict=True))
    one = by_axis.get("n", 1)
    channels = by_axis.get("c", 1)
    return (isinstance(one, str) or one == 1) and channels in _MODES


def _each_channel(
    given: tuple[float, ...], channels: int, default: float, option: str
) -> Array:
    values = given or (default,)
    if len(values) not in (1, channels):
        raise EqsatError(
            f"{option} has {counted(len(values), 'number')}; expected 1, or "
            f"{channels}: one for each channel"
        )
    return np.array(values, np.float64)


def _pixels(path: Path, channels: int | None, height: Any, width: Any) -> Array:
    """Rows, columns and channels; None for as many as the image has."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise EqsatError("images need Pillow: pip install pillow") from error
    try:
        with Image.open(path) as file:
            own, bands = file.mode, len(file.getbands())
            if channels is None:  # colours of a table are three
                channels = 3 if own == "P" else bands if bands in _MODES else 1
            found = file.convert(_MODES[channels])
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise EqsatError(
            f"{path} is no .npy, no .npz and no image that Pillow reads: {error}"
        ) from error
    if own.startswith(("I", "F")):
        raise EqsatError(
            f"{path}: its pixels have more than 8 bits (Pillow's mode {own}); give "
            "them as .npy"
        )
    size = tuple(
        n if isinstance(n, int) else own
        for n, own in zip((width, height), found.size, strict=True)
    )
    if size != found.size:
        found = found.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(found).reshape(*size[::-1], channels)


# -- by signature ----------------------------------------------------------------------


def read_dims(texts: Sequence[str]) -> dict[str, int]:
    """Sizes of axes by name, of ``--dim NAME=SIZE``."""
    found = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdigit():
            raise click.BadParameter(
                f"{text!r}: expected NAME=SIZE, such as batch=1", param_hint="--dim"
            )
        found[name] = int(size)
    return found


def fill(
    wanted: Sequence[InputType], given: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[str, Any]:
    """``given`` with a :class:`eqsat.Spec` for each input that is missing. Axes of one
    name have one size: that of ``dims``, else that of what is given."""
    from eqsat.trace import Spec

    known = {
        axis: size
        for w in wanted
        if w.name in given and w.sizes is not None
        for axis, size in zip(w.sizes, given[w.name].shape, strict=False)
        if isinstance(axis, str)
    }
    axes = {a for w in wanted for a in w.sizes or () if isinstance(a, str)}
    for name in dims:
        if name not in axes:
            there = f"; there are {', '.join(sorted(axes))}" if axes else ""
            raise click.BadParameter(
                f"there is no axis {name!r} without a size"
                f"{nearest(name, axes) or there}",
                param_hint="--dim",
            )
        if known.get(name, dims[name]) != dims[name]:
            raise click.BadParameter(
                f"{name}={dims[name]}, but what is given has {known[name]} there",
                param_hint="--dim",
            )
    known |= dims
    values = dict(given)
    for w in wanted:
        if w.name in given:
            continue
        missing = [a for a in w.sizes or () if isinstance(a, str) and a not in known]
        if missing or w.sizes is None:
            raise click.UsageError(_lacking(w, missing))
        sizes = (known[a] if isinstance(a, str) else a for a in w.sizes)
        values[w.name] = Spec(sizes, w.dtype)
    return values


def _lacking(wanted: InputType, missing: Sequence[str]) -> str:
    sizes = wanted.sizes
    if sizes is None:
        return f"{wanted} has no shape; give --arg {wanted.name}=SHAPE:DTYPE"
    axes = "axis" if len(missing) == 1 else "axes"
    named = " ".join(f"--dim {a}=1" for a in dict.fromkeys(missing))
    shape = "x".join("1" if isinstance(a, str) else str(a) for a in sizes)
    return (
        f"{wanted}: {axes} {', '.join(dict.fromkeys(missing))} "
        f"{'has' if len(missing) == 1 else 'have'} no size; give {named}, or "
        f"--arg {wanted.name}={shape}:{wanted.dtype}, or a file by --input"
    )


def drawn(spec: Any, rng: np.random.Generator | None = None) -> Any:
    """An array like ``spec``, a :class:`eqsat.Spec`: floats from the normal
    distribution, bools, and integers of 0 and 1, which are indices of most axes.
    Anything else as it is."""
    from eqsat.trace import Spec

    if not isinstance(spec, Spec):
        return spec
    rng = rng or np.random.default_rng(0)
    if spec.dtype.kind in "biu":
        return rng.integers(0, 2, spec.shape).astype(spec.dtype)
    return rng.standard_normal(spec.shape).astype(spec.dtype)
