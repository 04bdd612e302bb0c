"""Nodes of a graph of ATen operators, as eqsat sees them."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from eqsat.operator_table import UnsupportedError, is_array
from eqsat.pytorch import (  # enter the table
    creation,
    indexing,
    norms,
    pointwise,
    products,
    reductions,
    views,
    windows,
)
from eqsat.pytorch.refusals import refusal
from eqsat.pytorch.table import DTYPES, OF_MEMORY, Handler, entry_for, is_view
from eqsat.support import counted

FAMILIES = (
    creation,
    indexing,
    norms,
    pointwise,
    products,
    reductions,
    views,
    windows,
)
"""The files of the table."""

Values = dict[Node, Any]


def value_of(node: Node) -> Any:
    """What a node gives: a tensor without data, a number, or several of them."""
    return node.meta.get("val")


def is_number(node: Node) -> bool:
    """Whether a node gives a number that is known."""
    return isinstance(value_of(node), (bool, int, float, complex))


def name_of(node: Node) -> str:
    """The name of an operator, without its namespace where that is ATen's."""
    return str(node.target).removeprefix("aten.")


def is_item(node: Node) -> bool:
    """Whether a node takes one of several results."""
    return node.target is operator.getitem


def is_plain(value: Any) -> bool:
    """Whether a tensor is one that NumPy can show."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in DTYPES
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and _has_sizes(value)
    )


def handler_of(node: Node) -> Handler:
    """The function of the table for a node.

    Raises :class:`UnsupportedError` where there is none, or where tensors are of kinds
    that NumPy does not know.
    """
    handler = entry_for(name_of(node)) if node.op == "call_function" else None
    if handler is None:
        raise UnsupportedError("the table has no such operator")
    if name_of(node) in OF_MEMORY and not all(map(_lies_in_order, read_by(node))):
        raise UnsupportedError("it reads memory in which elements are not in order")
    found = value_of(node)
    for value in found if isinstance(found, (tuple, list)) else [found]:
        if value is not None and not is_plain(value):
            raise UnsupportedError(_kind_of_result(value))
    _check_numbers(node)
    args, named = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
    said = refusal(node.target, args, named)
    if said is not None:
        raise UnsupportedError(f"PyTorch refuses it: {said}")
    return handler


def _check_numbers(node: Node) -> None:
    """Raise :class:`UnsupportedError` for numbers beyond the dtype of the result, or of
    a comparison: they wrap in some operators of PyTorch, and others refuse them."""
    found = value_of(node)
    first = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(first, torch.Tensor):
        return
    tensors = [t for t in map(value_of, read_by(node)) if isinstance(t, torch.Tensor)]
    for x in _numbers(node):
        dtype = first.dtype
        if dtype == torch.bool and tensors:
            dtype = torch.result_type(tensors[0], x)
        if not _holds(dtype, x):
            raise UnsupportedError(f"the number {x}, which {dtype} does not hold")


def _numbers(node: Node) -> Iterator[float]:
    """Numbers that an operator computes with."""
    schema: Any = getattr(node.target, "_schema", None)
    taken = {a.name: a for a in schema.arguments}
    for name, x in (*zip(taken, node.args, strict=False), *node.kwargs.items()):
        value = value_of(x) if isinstance(x, Node) and is_number(x) else x
        kind = str(taken[name].type)
        if type(value) in (int, float) and ("number" in kind or "Tensor" in kind):
            yield value


def _holds(dtype: torch.dtype, x: float) -> bool:
    if dtype == torch.bool:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(x) or bool(abs(x) <= torch.finfo(dtype).max)
    return bool(torch.iinfo(dtype).min <= x <= torch.iinfo(dtype).max)


def _lies_in_order(node: Node) -> bool:
    value = value_of(node)
    return is_plain(value) and value.is_contiguous() and not value.storage_offset()


def _kind_of_result(value: Any) -> str:
    """Why no program has a result."""
    if not isinstance(value, torch.Tensor):
        return f"a result that is {type(value).__name__}"
    if value.dtype in DTYPES and not _has_sizes(value):
        return "the shape of a result depends on values"
    return f"a result of {value.dtype}, {value.layout} on {value.device}"


def is_seen_through(node: Node) -> bool:
    """Whether a node shows the tensor of another, or parts of it, which a program does
    as well."""
    if node.op != "call_function" or not isinstance(node.args[0], Node):
        return False
    if is_item(node):
        return is_seen_through(node.args[0])
    if name_of(node) in OF_MEMORY and not _lies_in_order(node.args[0]):
        return False
    found = value_of(node)
    shown = found if isinstance(found, (tuple, list)) else [found]
    return is_view(name_of(node)) and all(map(is_plain, shown))


def read_by(node: Node) -> list[Node]:
    """Nodes whose tensors a node reads."""
    return [n for n in node.all_input_nodes if not is_number(n)]


def computed(node: Node, values: Callable[[Node], Any]) -> Any:
    """What a node gives, on arrays or traced values.

    Raises what the functions of the table raise, and :class:`UnsupportedError` where a
    result has another shape than PyTorch's.
    """
    if is_item(node):
        source, place = node.args
        assert isinstance(source, Node) and isinstance(place, int)
        return values(source)[place]
    args, named = torch.fx.node.map_arg((node.args, node.kwargs), values)
    args, named = _as_numpy_says(args), _as_numpy_says(named)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = handler_of(node)(*args, **named)
    return _fitted(found, value_of(node))


def _as_numpy_says(x: Any) -> Any:
    """Arguments with NumPy's dtypes and lists."""
    if isinstance(x, torch.dtype):
        if x not in DTYPES:
            raise UnsupportedError(f"the dtype {x}")
        return DTYPES[x]
    if isinstance(x, (list, tuple)):
        return tuple(map(_as_numpy_says, x))
    if isinstance(x, dict):
        return {k: _as_numpy_says(v) for k, v in x.items()}
    return x


def _fitted(found: Any, like: Any) -> Any:
    """What a function gave, in the dtypes of PyTorch's results."""
    if isinstance(like, (tuple, list)):
        if not isinstance(found, tuple) or len(found) != len(like):
            raise UnsupportedError(f"{counted(len(like), 'result')}")
        return tuple(map(_fitted, found, like))
    if like is None:
        return None
    if not is_array(found):
        raise UnsupportedError(f"a result that is {type(found).__name__}")
    if tuple(found.shape) != tuple(like.shape):
        raise UnsupportedError(
            f"a result of shape {tuple(found.shape)}, expected {tuple(like.shape)}"
        )
    dtype = DTYPES[like.dtype]
    if found.dtype.kind == "c" and dtype.kind != "c":
        raise UnsupportedError("a complex result where PyTorch has a real one")
    return found if found.dtype == dtype else found.astype(dtype)


def is_symbolic(graph: Graph) -> bool:
    """Whether a graph takes sizes that are not known before it is called."""
    for node in graph.nodes:
        value = value_of(node)
        if node.op != "placeholder":
            continue
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
        if isinstance(value, torch.Tensor) and not _has_sizes(value):
            return True
    return False


def _has_sizes(value: torch.Tensor) -> bool:
    strides = value.stride() if value.layout is torch.strided else ()
    return all(isinstance(n, int) for n in (*value.shape, *strides))


def constants_of(owner: Any, nodes: Sequence[Node]) -> Mapping[Node, Any]:
    """What attributes of a module are that its graph reads."""
    found = {}
    for node in nodes:
        if node.op == "get_attr":
            assert isinstance(node.target, str)
            found[node] = operator.attrgetter(node.target)(owner)
    return found
