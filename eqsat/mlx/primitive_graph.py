"""What ``mx.export_function`` writes down of a function, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from eqsat.terms import BF16


class ArraySpec(NamedTuple):
    """One array of a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(eq=False)
class Primitive:
    """One primitive, applied to arrays."""

    op: str
    inputs: tuple[ArraySpec, ...]
    arguments: tuple[Any, ...]
    """What belongs to the primitive, such as axes."""
    outputs: tuple[ArraySpec, ...]


@dataclass
class PrimitiveGraph:
    """The primitives of a function in order, for one signature."""

    inputs: tuple[ArraySpec, ...] = ()
    outputs: tuple[ArraySpec, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)
    """Arrays of MLX by name."""
    primitives: list[Primitive] = field(default_factory=list)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype for one of MLX."""
    name = str(dtype).rpartition(".")[2].rstrip("_")
    return np.dtype(BF16) if name == "bfloat16" else np.dtype(name)


def read(fn: Callable[..., Any], arrays: Sequence[Any]) -> PrimitiveGraph:
    """The graph of ``fn``, a function that takes arrays like ``arrays`` and gives a
    tuple of arrays.

    Raises what ``fn`` and MLX raise: MLX cannot write down all its primitives.
    """
    graph = PrimitiveGraph()

    def take(part: dict[str, Any]) -> None:
        kind = part["type"]
        if kind == "inputs":
            graph.inputs = _specs(part["inputs"])
        elif kind == "outputs":
            graph.outputs = _specs(part["outputs"])
        elif kind == "constants":
            graph.constants = dict(part["constants"])
        elif kind == "primitive":
            graph.primitives.append(
                Primitive(
                    part["name"],
                    _specs(part["inputs"]),
                    tuple(part["arguments"]),
                    _specs(part["outputs"]),
                )
            )

    with _uncompiled():
        mx.export_function(take, fn, *arrays)
    _see_through_flatten(graph)
    return graph


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Have functions of ``mx.compile`` give their primitives: what that makes of them
    cannot be written down."""
    was_compiling = _is_compiling()
    mx.disable_compile()
    try:
        yield
    finally:
        if was_compiling:
            mx.enable_compile()


def _is_compiling() -> bool:
    seen = []

    def look(x: Any) -> Any:
        seen.append(x)
        return x

    compiled, x = mx.compile(look), mx.zeros(())
    compiled(x), compiled(x)
    return len(seen) == 1


def _specs(rows: Sequence[Any]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(n, tuple(s), numpy_dtype(t)) for n, s, t in rows)


def _see_through_flatten(graph: PrimitiveGraph) -> None:
    """Give ``AsStrided`` the array that MLX flattened for it: windows are found by its
    axes, and their elements lie in the same order."""
    flattened: dict[str, ArraySpec] = {}
    for node in graph.primitives:
        *_, first = node.inputs or (None,)
        if first is None:
            continue
        if node.op == "Flatten" and len(node.outputs[0].shape) == 1:
            flattened[node.outputs[0].name] = first
        elif node.op == "AsStrided":
            node.inputs = (flattened.get(first.name, first),)
