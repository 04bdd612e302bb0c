"""The table of operators: which function computes which one, in which versions.

A function takes the inputs in order, None for one that is left out, and attributes by
their names. It computes with NumPy's functions, on arrays and on traced values, and
returns the output, or a tuple of several.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from eqsat.support import AxisBoundsError, EqsatError, ShapeError
from eqsat.terms import Traced

Handler = Callable[..., Any]
LATEST = 28
"""The opset of the domain ``ai.onnx`` up to which the table was written."""
EARLIEST = 7
MOST_BYTES = 2**31
"""Of an array that an operator makes of sizes alone."""


class Implementation(NamedTuple):
    """A function for the versions of an operator from ``since`` to ``until``."""

    domain: str
    name: str
    function: Handler
    since: int
    until: int
    on_host: bool
    drawn: bool
    parameters: frozenset[str]
    """Attributes that it takes, and what it asks for by name: ``call``."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return entry_for, (self.domain, self.name, self.since)


OPERATORS: dict[tuple[str, str], list[Implementation]] = {}
"""By domain and name."""


def operator(
    *names: str,
    since: int = 1,
    until: int = 10**6,
    domain: str = "",
    on_host: bool = False,
    drawn: bool = False,
) -> Callable[[Handler], Handler]:
    """Enter a function under ``names``. ``on_host``: NumPy runs it, since its results
    depend on values in a way that no program has; ``drawn``: on chance."""

    def enter(function: Handler) -> Handler:
        kinds = inspect.signature(function).parameters.values()
        asked = frozenset(p.name for p in kinds if p.kind is p.KEYWORD_ONLY)
        for name in names:
            key, host = (domain, name), on_host or drawn
            row = Implementation(*key, function, since, until, host, drawn, asked)
            OPERATORS.setdefault(key, []).append(row)
        return function

    return enter


def enter_all(table: dict[str, Handler], **versions: Any) -> None:
    """Enter each function of ``table`` under its name."""
    for name, function in table.items():
        operator(name, **versions)(function)


def entry_for(domain: str, name: str, version: int) -> Implementation | None:
    """The function for the version of an operator that began with opset ``version``."""
    for row in OPERATORS.get((domain, name), ()):
        if row.since <= version <= row.until:
            return row
    return None


_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_CHANNELS = ("DCR", "CRD")
_JOINS = ("none", "add", "mul", "max", "min")
_LOSSES = ("none", "sum", "mean")
_ROUNDINGS = ("up", "down", "nearest")
_SCALED = ("nearest", "linear", "bilinear", "cubic")
"""Ways to resize by scales alone: before opset 11."""
CHOICES: dict[tuple[str, str], tuple[Any, ...]] = {
    **{(op, "layout"): (0, 1) for op in ("RNN", "GRU", "LSTM")},
    **{(f"{op}Pool", "auto_pad"): _AUTO_PADS for op in ("Average", "Lp", "Max")},
    ("Attention", "qk_matmul_output_mode"): (0, 1, 2, 3),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Cast", "round_mode"): _ROUNDINGS,
    ("CastLike", "round_mode"): _ROUNDINGS,
    ("CausalConvWithState", "activation"): ("silu", "swish", "none"),
    ("Conv", "auto_pad"): _AUTO_PADS,
    ("ConvInteger", "auto_pad"): _AUTO_PADS,
    ("ConvTranspose", "auto_pad"): _AUTO_PADS,
    ("DepthToSpace", "mode"): _CHANNELS,
    ("GRU", "direction"): _DIRECTIONS,
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("nearest", "linear", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("LSTM", "direction"): _DIRECTIONS,
    ("LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    ("LpNormalization", "p"): (1, 2),
    ("MaxPool", "storage_order"): (0, 1),
    ("Momentum", "mode"): ("standard", "nesterov"),
    ("NegativeLogLikelihoodLoss", "reduction"): _LOSSES,
    ("NonMaxSuppression", "center_point_box"): (0, 1),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("QLinearConv", "auto_pad"): _AUTO_PADS,
    ("RNN", "direction"): _DIRECTIONS,
    ("Resize", "coordinate_transformation_mode"): (
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
        *("align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"),
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): (
        *("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ),
    ("ReverseSequence", "batch_axis"): (0, 1),
    ("ReverseSequence", "time_axis"): (0, 1),
    ("RoiAlign", "coordinate_transformation_mode"): (
        *("half_pixel", "output_half_pixel"),
    ),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("Scan", "directions"): (0, 1),
    ("Scan", "scan_input_directions"): (0, 1),
    ("Scan", "scan_output_directions"): (0, 1),
    ("ScatterElements", "reduction"): _JOINS,
    ("ScatterND", "reduction"): _JOINS,
    ("SoftmaxCrossEntropyLoss", "reduction"): _LOSSES,
    ("SpaceToDepth", "mode"): _CHANNELS,
    ("StringNormalizer", "case_change_action"): ("LOWER", "UPPER", "NONE"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("TreeEnsemble", "aggregate_function"): (0, 1, 2, 3),
    ("Upsample", "mode"): _SCALED,
}
"""Values of attributes that have a few, by operator and attribute; of each element of
one that is a list."""


def choices(op: str, attribute: str, opset: int) -> tuple[Any, ...] | None:
    """The values that an attribute may have; None where a table does not say."""
    if (op, attribute) == ("Resize", "mode") and opset < 11:
        return _SCALED
    return CHOICES.get((op, attribute))


class UnknownValueError(EqsatError):
    """An operator needs the value of an input, which is not known while tracing."""

    def __init__(self, value: Any) -> None:
        super().__init__("the value of an input is not known while tracing")
        self.value = value
        self.node = ""
        """The node, as messages name it."""


def known(value: Any) -> Any:
    """``value``, an array of NumPy; raises :class:`UnknownValueError` for a traced
    one."""
    if isinstance(value, Traced):
        raise UnknownValueError(value)
    return value


def host_array(value: Any) -> Any:
    """``value``, an array of NumPy; raises :class:`EqsatError` for a traced one, so
    that the node runs on the host."""
    if isinstance(value, Traced):
        raise EqsatError("NumPy computes it")
    return value


def ints(value: Any) -> list[int] | None:
    """Integers that must be known while tracing; None for an input that is left out."""
    if value is None:
        return None
    return [int(v) for v in np.asarray(known(value)).reshape(-1)]


def number(value: Any) -> Any:
    """One number that must be known while tracing; None for an input left out. Raises
    :class:`ShapeError` for several."""
    if value is None:
        return None
    array = np.asarray(known(value))
    if array.size != 1:
        raise ShapeError(f"an input has shape {array.shape}, expected one number")
    return array.item()


AXIS = "attribute 'axis'"


def axis_of(axis: int, rank: int, what: str = AXIS, more: int = 0) -> int:
    """An axis of an array of ``rank`` axes, counted from 0; ``more`` are allowed behind
    its last. Raises :class:`AxisBoundsError`, which names ``what`` holds the axis."""
    if not -rank <= axis < rank + more:
        allowed = f"{-rank} to {rank + more - 1}" if rank + more else "none"
        raise AxisBoundsError(
            f"{what} is {axis}, and allowed are {allowed} for an input of rank {rank}"
        )
    return axis + rank if axis < 0 else axis


def axes_of(axes: Iterable[int], rank: int, what: str = "axes") -> list[int]:
    """Axes of an array of ``rank`` axes, counted from 0. Raises
    :class:`AxisBoundsError` for one that the array does not have, and
    :class:`ShapeError` for one that is there twice."""
    given = [*axes]
    found = [axis_of(a, rank, f"one of {what} {given}") for a in given]
    if len({*found}) < len(found):
        raise ShapeError(f"{what} {given} hold an axis twice, for rank {rank}")
    return found


def expect_shape(name: str, value: Any, *expected: int | None) -> None:
    """Raise :class:`ShapeError` where an input that is not left out has another shape;
    None stands for any size."""
    if value is None:
        return
    found = tuple(value.shape)
    same = len(found) == len(expected) and all(
        n is None or n == m for n, m in zip(expected, found, strict=True)
    )
    if not same:
        sizes = ", ".join("any" if n is None else str(n) for n in expected)
        comma = "," if len(expected) == 1 else ""
        raise ShapeError(f"input {name!r} has shape {found}, expected ({sizes}{comma})")


def expect_broadcast(name: str, value: Any, shape: Iterable[int]) -> None:
    """Raise :class:`ShapeError` for an input that does not broadcast to a shape."""
    found, wanted = tuple(value.shape), tuple(shape)
    behind = wanted[len(wanted) - len(found) :]
    if len(found) > len(wanted) or any(
        n not in (1, m) for n, m in zip(found, behind, strict=True)
    ):
        raise ShapeError(
            f"input {name!r} has shape {found}, expected one that broadcasts to "
            f"{wanted}"
        )


def is_known(*values: Any) -> bool:
    """Whether none of the values is traced, nested in lists as they may be."""
    return not any(
        isinstance(v, Traced) or (isinstance(v, (list, tuple)) and not is_known(*v))
        for v in values
    )


def sized(shape: Iterable[int], dtype: Any) -> tuple[int, ...]:
    """``shape``, of an array that an operator may make. Raises :class:`EqsatError` for
    sizes below 0 and arrays of more than ``MOST_BYTES``."""
    sizes = tuple(int(n) for n in shape)
    size = np.dtype(dtype).itemsize
    for n in sizes:
        size *= n
    if min(sizes, default=0) < 0 or size > MOST_BYTES or len(sizes) > 64:
        raise EqsatError(
            f"an array of shape {sizes} and {np.dtype(dtype)} is not made: the most is "
            f"{MOST_BYTES} bytes"
        )
    return sizes


def kind_of(x: Any) -> str:
    """``b``, ``i``, ``u``, ``f``, ``c`` or ``O``: what kind of numbers an array
    holds."""
    kind = str(np.dtype(x.dtype).kind)
    if kind == "V":  # of ml_dtypes
        name = np.dtype(x.dtype).name
        return "u" if name.startswith("uint") else "i" if "int" in name else "f"
    return kind
