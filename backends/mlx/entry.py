"""Calls of arrays of MLX that do without the flattening of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from eqsat.trace import Arguments, Trace
from eqsat.tree import ArrayAt, Node


class Entry:
    """Serves calls with arrays of MLX as positional arguments that are like those of an
    earlier call, and asks ``slow`` for the others."""

    def __init__(self, slow: Callable[..., Any]) -> None:
        known: dict[Any, Callable[..., Any]] = {}
        array = mx.array

        def function(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                return slow(*args, **kwargs)
            key: list[Any] = []
            for a in args:
                if type(a) is not array:
                    return slow(*args)
                key += (a.shape, a.dtype)
            run = known.get(tuple(key))
            return slow(*args) if run is None else run(*args)

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
        key = tuple(part for a in arrays for part in (a.shape, a.dtype))
        run, unflatten = program.run, trace.unflatten
        if trace.out_tree == ArrayAt():
            self.known[key] = lambda *xs: run(*xs)[0]
        else:
            self.known[key] = lambda *xs: unflatten(run(*xs))
