"""Convolutions of terms as those of memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from eqsat.terms import Shape

from ..loop_ir import (
    LOOPS,
    Convolution,
    Layout,
    Operand,
    Product,
    Window,
)


def convolution(
    operands: tuple[Operand, Operand, Operand],
    layouts: tuple[Layout, Layout, Layout],
    shapes: tuple[Shape, Shape, Shape],
    attrs: Mapping[str, Any],
) -> Convolution:
    """The convolution of images n c h w with kernels o c/groups i j into n o h w, in
    this order, where :func:`is_image`, :func:`is_kernel` and :func:`is_result` hold.
    The layout of images has an axis of groups before that of channels."""
    (images, _, *image), (o, each, *kernel), (_, _, *places) = shapes
    of_y, of_x, of_out = layouts
    groups = attrs["groups"]
    m = o // groups
    window = Window(
        (image[0], image[1]),
        (kernel[0], kernel[1]),
        (places[0], places[1]),
        *(attrs[name] for name in ("stride", "padding", "dilation")),
    )
    y_n, y_g, y_c, y_h, _ = of_y.strides
    if _is_plain(window) and (y_h == image[1] or image[0] == 1):
        line = (1, prod(image))
        window = Window(line, (1, 1), line, (1, 1), (0, 0), (1, 1))
    (x_o, x_c, *_), (out_n, out_o, *_) = of_x.strides, of_out.strides
    turned = kernels_are_columns(*shapes)
    return Convolution(
        operands[1],
        operands[0],
        operands[2],
        operands[2].dtype,
        (m, prod(places), each * prod(kernel)),
        (images, groups),
        (
            Layout((0, m * x_o, x_o, x_c if turned else 1), of_x.offset),
            Layout((y_n, y_g, y_c, y_h), of_y.offset),
            Layout((out_n, m * out_o, out_o, 1), of_out.offset),
        ),
        window,
        turned,
    )


def product_of_whole_images(
    operands: tuple[Operand, Operand, Operand],
    layouts: tuple[Layout, Layout, Layout],
    shapes: tuple[Shape, Shape, Shape],
    attrs: Mapping[str, Any],
) -> Product | None:
    """As :func:`convolution`, where a kernel is as large as an image, such as one of
    1×1 that is left: a product of matrices with a row for each. None elsewhere."""
    (images, *image), (o, *kernel), (_, _, *places) = shapes
    (y_n, _, y_c, y_h, _), (x_o, *_), (out_n, out_o, *_) = (
        at.strides for at in layouts
    )
    k = prod(image)
    lies = (image[0] == 1 or y_c == prod(image[1:])) and (
        image[1] == 1 or y_h == image[2]
    )
    whole = image == kernel and attrs["padding"] == (0, 0) and places == [1, 1]
    rows_lie = (images == 1 or y_n >= k) and (o == 1 or out_o == 1)
    if not (whole and lies and rows_lie):
        return None
    (y, x, out), (at_y, at_x, at_out) = operands, layouts
    return Product(
        y,
        x,
        out,
        out.dtype,
        (images, o, k),
        (),
        (
            Layout((y_n, 1), at_y.offset),
            Layout((1, x_o), at_x.offset),
            Layout((out_n, 1), at_out.offset),
        ),
        None,
    )


def kernels_are_columns(images: Shape, kernels: Shape, result: Shape) -> bool:
    """Whether kernels are large, and lie in few places."""
    area, places = prod(kernels[2:]), prod(result[2:])
    enough = images[0] * places >= LOOPS.turned_places
    is_worth_it = enough or kernels[0] <= LOOPS.turned_kernels
    return area >= max(LOOPS.turned_area, places) and is_worth_it


def _is_plain(window: Window) -> bool:
    """Whether each element of an image is a place."""
    one, none = (1, 1), (0, 0)
    return (window.kernel, window.stride, window.padding) == (one, one, none)


def is_image(strides: Shape, shape: Shape) -> bool:
    """Whether images can be read where they lie: their rows are in order."""
    return shape[-1] == 1 or strides[-1] == 1


def is_kernel(strides: Shape, shape: Shape) -> bool:
    """Whether the elements of each kernel are in order."""
    step = 1
    for n, s in zip(shape[:0:-1], strides[:0:-1], strict=True):
        if n > 1 and s != step:
            return False
        step *= n
    return True


def has_whole_channels(strides: Shape, shape: Shape) -> bool:
    """Whether the elements of each channel of a kernel are in order."""
    return is_kernel((0, *strides[2:]), (1, *shape[2:]))


def is_result(strides: Shape, shape: Shape) -> bool:
    """Whether the rows of each channel follow one another."""
    h, v = shape[2:]
    return (v == 1 or strides[3] == 1) and (h == 1 or strides[2] == v)
