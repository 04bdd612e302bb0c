"""Calls of arrays of MLX that do without the flattening of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from eqsat.trace import Arguments, Trace
from eqsat.tree import ArrayAt, Node


class Entry:
    """Serves calls with arrays of MLX as positional arguments that are like those of an
    earlier call, and asks ``slow`` for the others.

    Shapes are looked up and dtypes compared: hashing a dtype of MLX takes longer than
    all the rest.
    """

    def __init__(self, slow: Callable[..., Any]) -> None:
        known: dict[Any, list[tuple[tuple[Any, ...], Callable[..., Any]]]] = {}
        array = mx.array

        def function(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                return slow(*args, **kwargs)
            shapes = []
            for a in args:
                if type(a) is not array:
                    return slow(*args)
                shapes.append(a.shape)
            for dtypes, run in known.get(tuple(shapes), ()):
                for a, dtype in zip(args, dtypes):  # noqa: B905  (as many as shapes)
                    if a.dtype != dtype:
                        break
                else:
                    return run(*args)
            return slow(*args)

        self.known, self.function = known, function

    def learn(self, call: Arguments, trace: Trace, program: Any) -> None:
        """Note what serves calls like ``call``, if they can be told by their arrays
        alone: none nested or constant, and nothing closed over that may change."""
        assert isinstance(call.structure, Node)
        positional, named = call.structure.children
        assert isinstance(positional, Node) and isinstance(named, Node)
        plain = all(c == ArrayAt() for c in positional.children) and not named.children
        arrays = [leaf.value for leaf in call.leaves]
        if not plain or call.owner is not None or trace.probes or not arrays:
            return
        if any(leaf.constant for leaf in call.leaves):
            return
        if any(type(a) is not mx.array for a in arrays):
            return
        alike = self.known.setdefault(tuple(a.shape for a in arrays), [])
        dtypes = tuple(a.dtype for a in arrays)
        if any(d == dtypes for d, _ in alike):
            return
        run, unflatten = program.run, trace.unflatten
        if trace.out_tree == ArrayAt():
            alike.append((dtypes, lambda *xs: run(*xs)[0]))
        else:
            alike.append((dtypes, lambda *xs: unflatten(run(*xs))))
