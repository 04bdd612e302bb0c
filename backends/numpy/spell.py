"""How each op is written as a NumPy call: the only place that knows their spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.support import BackendError
from eqsat.terms import BF16, HALF, Op

from .conv import conv2d
from .kernel_nodes import BodyNode
from .sigmoid import sigmoid


@dataclass(frozen=True)
class NumpyCall:
    """A node to be written: expressions of its arguments, and the array it goes to."""

    node: BodyNode
    args: tuple[str, ...]
    out: str
    over: tuple[bool, ...]
    """Which arguments are in the memory of ``out``, element by element."""
    flat: tuple[str, str] | None = None
    """For a product: its shape with all leading axes as one, where they can be one."""

    @property
    def attrs(self) -> Any:
        return self.node.attrs


def statements(call: NumpyCall, namespace: dict[str, Any]) -> list[str]:
    """Lines that compute ``call``; what else they name goes into ``namespace``."""
    node = call.node
    assert node.op is not None
    own = own_lowering(node.op, namespace)
    if own is not None:
        return [own_call(own, call.args, call.attrs, call.out, any(call.over))]
    rule = _RULES.get(node.name)
    lines = rule(call) if rule else None
    if lines is not None:
        return lines
    if node.name in _FUNCTIONS and node.dtype not in HALF:
        namespace[node.name] = _FUNCTIONS[node.name]
        args = [*call.args, call.out, *_attrs(call)]
        return [f"{node.name}({', '.join(args)})"]
    ufunc = _ufunc(node.op, node, namespace)
    if ufunc is not None:
        return [f"{ufunc}({', '.join(call.args)}, out={call.out})"]
    return [f"{call.out}[...] = {_by_reference(call, namespace)}"]


def own_lowering(op: Op, namespace: dict[str, Any]) -> str | None:
    """The name of the lowering that the author of ``op`` gave, if one was."""
    own = op.lowerings.get("numpy")
    if own is None:
        return None
    name = f"{op.name}_lowering"
    namespace[name] = own.function
    namespace["fresh"] = _fresh
    return name


def own_call(
    name: str, args: Sequence[str], attrs: Any, out: str, over: bool = False
) -> str:
    """A call of an op's own lowering; ``over``: an argument is in the memory of
    ``out``."""
    words = [*args, *(f"{n}={v!r}" for n, v in attrs.items())]
    if over:
        return f"{out}[...] = fresh({', '.join([name, out, *words])})"
    return f"{name}({', '.join([*words, f'out={out}'])})"


def _fresh(function: Callable[..., Any], like: Any, *args: Any, **attrs: Any) -> Any:
    """What a lowering gives, in an array of its own."""
    out = np.empty_like(like)
    function(*args, out=out, **attrs)
    return out


def number(value: float, dtype: np.dtype[Any], namespace: dict[str, Any]) -> str:
    """A bare number; for bfloat16 rounded first, as NumPy does for its own dtypes."""
    if math.isnan(value):
        text = "np.nan"
    elif math.isinf(value):
        text = "np.inf" if value > 0 else "-np.inf"
    else:
        text = repr(value)
    if dtype == BF16 and isinstance(value, float):
        namespace["bfloat16"] = BF16.type
        return f"bfloat16({text})"
    return text


RESERVED = frozenset(
    "np special bfloat16 conv2d sigmoid fresh program out range min".split()
)
"""Names that generated text uses for something else."""


def _ufunc(op: Op, node: BodyNode, namespace: dict[str, Any]) -> str | None:
    """The ufunc of ``op``, where its loops are those of the reference."""
    wide = all(a.dtype not in HALF for a in node.nodes)
    if op.special and wide:
        import scipy.special

        namespace["special"] = scipy.special
        return f"special.{op.special}"
    if op.ufunc is None:
        return None
    name = op.ufunc.__name__
    if getattr(np, name, None) is op.ufunc:
        return f"np.{name}"
    namespace[f"{name}_ufunc"] = op.ufunc
    return f"{name}_ufunc"


def _by_reference(call: NumpyCall, namespace: dict[str, Any]) -> str:
    op = call.node.op
    assert op is not None
    name = f"{op.name}_reference"
    namespace[name] = op.reference
    return f"{name}({', '.join([*call.args, *_attrs(call)])})"


def _attrs(call: NumpyCall) -> list[str]:
    return [f"{n}={v!r}" for n, v in call.attrs.items()]


# -- views -----------------------------------------------------------------------------


def view(node: BodyNode, arg: str, shape: Sequence[str]) -> str:
    """The expression of a view of ``arg``; ``shape`` is that of the result."""
    spell = _VIEWS.get(node.name)
    if spell is None:
        raise BackendError(f"{node.name}: no view that NumPy spells")
    return spell(node, arg, shape)


def _slice(node: BodyNode, arg: str, shape: Sequence[str]) -> str:
    parts = [
        _part(start, size, step)
        for start, size, step in zip(
            node.attrs["starts"], node.attrs["sizes"], node.attrs["steps"], strict=True
        )
    ]
    lead = len(node.shape) - len(parts)
    return f"{arg}[{', '.join([':'] * lead + parts)}]"


def dims(shape: Sequence[str]) -> str:
    """A shape as a tuple."""
    return f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"


def transposed(arg: str, ndim: int, perm: Sequence[int]) -> str:
    """``arg`` with its trailing axes in the order ``perm``."""
    if tuple(perm) == (-1, -2):
        return f"{arg}.mT"
    lead = ndim - len(perm)
    order = [*range(lead), *(ndim + p for p in perm)]
    return f"{arg}.transpose({', '.join(map(str, order))})"


def _part(start: int, size: int, step: int) -> str:
    stop = start + size * step
    end = "" if stop < 0 else str(stop)
    return f"{start}:{end}" + (f":{step}" if step != 1 else "")


# -- statements ------------------------------------------------------------------------


def _cast(call: NumpyCall) -> list[str]:
    return [f'np.copyto({call.out}, {call.args[0]}, casting="unsafe")']


def _copy(call: NumpyCall) -> list[str]:
    return [f"np.copyto({call.out}, {call.args[0]})"]


def _where(call: NumpyCall) -> list[str] | None:
    condition, x, y = call.args
    mask = call.node.args[0]
    if call.over[0] or not isinstance(mask, BodyNode) or mask.dtype != np.dtype(bool):
        return None
    if call.over[1]:
        return [f"np.copyto({call.out}, {y}, where=np.logical_not({condition}))"]
    first = [] if call.over[2] else [f"np.copyto({call.out}, {y})"]
    return [*first, f"np.copyto({call.out}, {x}, where={condition})"]


def _negative(call: NumpyCall) -> list[str]:
    """As a product: NumPy 2.4 negates strided arrays into strided ones wrongly."""
    if call.node.dtype.kind == "u":
        return [f"np.subtract(0, {call.args[0]}, out={call.out})"]
    return [f"np.multiply({call.args[0]}, -1, out={call.out})"]


def _rsqrt(call: NumpyCall) -> list[str] | None:
    if call.node.dtype in HALF:
        return None
    out = call.out
    return [f"np.sqrt({call.args[0]}, out={out})", f"np.divide(1, {out}, out={out})"]


def _matmul(call: NumpyCall) -> list[str]:
    x, y = call.args
    if call.flat is None:
        return [f"np.matmul({x}, {y}, out={call.out})"]
    rows, columns = call.flat
    k = call.node.nodes[0].shape[-1]
    return [
        f"np.matmul({x}.reshape({rows}, {k}), {y}, "
        f"out={call.out}.reshape({rows}, {columns}))"
    ]


def _reduction(name: str) -> Callable[[NumpyCall], list[str]]:
    def lines(call: NumpyCall) -> list[str]:
        return [
            f"np.{name}({call.args[0]}, {_axes(call)}, keepdims=True, out={call.out})"
        ]

    return lines


def _mean(call: NumpyCall) -> list[str]:
    (arg,) = call.node.nodes
    count = math.prod(arg.shape[a] for a in call.attrs["axis"])
    return [
        *_reduction("sum")(call),
        f"np.divide({call.out}, {count}, out={call.out})",
    ]


def _position(name: str) -> Callable[[NumpyCall], list[str]]:
    def lines(call: NumpyCall) -> list[str]:
        axis = call.attrs["axis"][0]
        return [
            f"np.{name}({call.args[0]}, axis={axis}, keepdims=True, out={call.out})"
        ]

    return lines


def _axes(call: NumpyCall) -> str:
    axes = call.attrs["axis"]
    return f"axis={axes[0] if len(axes) == 1 else tuple(axes)}"


def _concatenate(call: NumpyCall) -> list[str] | None:
    if len(call.node.nodes) < len(call.args):
        return None
    return [
        f"np.concatenate(({', '.join(call.args)},), axis={call.attrs['axis']}, "
        f"out={call.out})"
    ]


def _take(call: NumpyCall) -> list[str]:
    x, indices = call.args
    return [f"np.take({x}, {indices}, axis={call.attrs['axis']}, out={call.out})"]


def _pad(call: NumpyCall) -> list[str]:
    x, value = call.args
    arg, *_ = call.node.nodes
    low = call.attrs["low"]
    sizes = arg.shape[len(arg.shape) - len(low) :]
    parts = [f"{a}:{a + n}" for a, n in zip(low, sizes, strict=True)]
    return [
        f'np.copyto({call.out}, {value}, casting="unsafe")',
        f"{call.out}[..., {', '.join(parts)}] = {x}",
    ]


_FUNCTIONS: dict[str, Callable[..., Any]] = {"conv2d": conv2d, "sigmoid": sigmoid}
"""Functions of this backend. Half precision does not go through them."""
_VIEWS: dict[str, Callable[[BodyNode, str, Sequence[str]], str]] = {
    "reshape": lambda node, arg, shape: f"{arg}.reshape({dims(shape)})",
    "broadcast_to": lambda node, arg, shape: f"np.broadcast_to({arg}, {dims(shape)})",
    "transpose": lambda node, arg, shape: transposed(
        arg, len(node.shape), node.attrs["perm"]
    ),
    "slice": _slice,
}
_RULES: dict[str, Callable[[NumpyCall], list[str] | None]] = {
    "cast": _cast,
    "copy": _copy,
    "where": _where,
    "negative": _negative,
    "rsqrt": _rsqrt,
    "matmul": _matmul,
    "sum": _reduction("sum"),
    "prod": _reduction("prod"),
    "max": _reduction("max"),
    "min": _reduction("min"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "mean": _mean,
    "argmax": _position("argmax"),
    "argmin": _position("argmin"),
    "concatenate": _concatenate,
    "take": _take,
    "pad": _pad,
}
