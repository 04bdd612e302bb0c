"""Calls of arrays of MLX that do without the flattening of arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import mlx.core as mx

from eqsat.support import ArrayAt, LastUse, TreeNode
from eqsat.trace import Arguments, Leaf, Trace

from ..native.machine import words
from ..native.runtime import NativeEntry, NoVariantError, Records, variant
from . import entry_code
from .array_struct import dtype_number, is_known


class MLXEntry(NativeEntry):
    """Machine code that knows the programs of one jit and when they fit: which
    arguments, nested as they may be, are arrays of MLX of which shapes and dtypes, and
    whether a transformation of MLX is going on."""

    @staticmethod
    def address() -> int:
        """Where the code of such entries starts."""
        return entry_code.library().address("entry")

    def learn(
        self,
        call: Arguments,
        trace: Trace,
        program: Any,
        used: LastUse | None = None,
    ) -> None:
        """Serve calls like ``call``, whose arrays are all of MLX, with ``program``."""
        key = call.key, tuple(type(leaf.value) for leaf in call.leaves)
        if trace.writes:  # NumPy writes what MLX has made
            return
        if call.are_mlx and self.is_new(key, id(program)):
            try:
                room = len(call.arrays) + 1
                made = variant(call, trace, room, program, _Recorders(), used)
                self.add(key, made)
            except NoVariantError:
                return


class _Recorders:
    """Of arrays of MLX and :class:`.lower.MLXProgram`."""

    def array(self, leaf: Leaf, records: Records) -> list[int]:
        x = leaf.value
        if type(x) is not mx.array:
            raise NoVariantError
        shape = (ctypes.c_int32 * x.ndim)(*x.shape)
        records.keep.append(shape)
        return words(
            "Node",
            count=x.ndim,
            object=records.own(mx.array),
            data=ctypes.addressof(shape),
            need=dtype_number(x.dtype),
        )

    def program(self, program: Any, records: Records) -> tuple[str, dict[str, int]]:
        plain, traced = records.own(program.bare), records.own(program.run)
        return "Recorder", {"plain": plain, "traced": traced}


class _Learnt(NamedTuple):
    """What a call must be for a program."""

    key: Hashable
    dtypes: tuple[Any, ...]
    trace: Trace
    used: LastUse


class PlainEntry:
    """The same in Python, for arrays as positional arguments.

    Shapes are looked up and dtypes compared: hashing a dtype of MLX takes longer than
    all the rest.
    """

    def __init__(self, slow: Callable[..., Any]) -> None:
        known: dict[Any, list[tuple[_Learnt, Callable[..., Any]]]] = {}
        array = mx.array

        def function(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                return self.slow(*args, **kwargs)
            shapes = []
            for a in args:
                if type(a) is not array:
                    return self.slow(*args)
                shapes.append(a.shape)
            for one, run in known.get(tuple(shapes), ()):
                pairs = zip(args, one.dtypes)  # noqa: B905  (as many as shapes)
                for a, dtype in pairs:
                    if a.dtype != dtype:
                        break
                else:
                    if one.trace.is_current():
                        one.used.now()
                        return run(*args)
            return self.slow(*args)

        self.known, self.function, self.slow = known, function, slow

    def watching(
        self, contexts: ctypes.c_int64, asking: Callable[..., Any]
    ) -> Callable[..., Any]:
        """``asking``: what Python asks, it asks each time."""
        return asking

    def ask(self, fallback: Callable[..., Any]) -> None:
        """Call ``fallback`` from now on with what was not learnt."""
        self.slow = fallback

    def learn(
        self,
        call: Arguments,
        trace: Trace,
        program: Any,
        used: LastUse | None = None,
    ) -> None:
        """Note what serves calls like ``call``, if they can be told by their arrays:
        none nested or constant."""
        assert isinstance(call.structure, TreeNode)
        positional, named = call.structure.children
        assert isinstance(positional, TreeNode) and isinstance(named, TreeNode)
        plain = all(c == ArrayAt() for c in positional.children) and not named.children
        arrays = [leaf.value for leaf in call.leaves]
        if not plain or call.owner is not None or not arrays or trace.writes:
            return
        if any(leaf.constant for leaf in call.leaves):
            return
        if any(type(a) is not mx.array for a in arrays):
            return
        alike = self.known.setdefault(tuple(a.shape for a in arrays), [])
        dtypes = tuple(a.dtype for a in arrays)
        alike[:] = [known for known in alike if known[0].dtypes != dtypes]
        one = _Learnt(call.key, dtypes, trace, used or LastUse())
        run, unflatten = program.run, trace.unflatten
        if trace.out_tree == ArrayAt() and not trace.ends:
            alike.append((one, lambda *xs: run(*xs)[0]))
        else:
            alike.append((one, lambda *xs: unflatten(run(*xs))))

    def forget(self, key: Hashable) -> None:
        """Serve no call of this :attr:`Arguments.key` without asking."""
        for alike in list(self.known.values()):
            alike[:] = [known for known in alike if known[0].key != key]


def entry(slow: Callable[..., Any]) -> MLXEntry | PlainEntry:
    """What serves calls that it has learnt; ``slow`` is called for the others."""
    return MLXEntry(slow) if is_known() else PlainEntry(slow)
