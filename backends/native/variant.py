"""Programs with the guards of their calls, as tables that the native code of
:mod:`.entry_code` goes through."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from eqsat import tree
from eqsat.arguments import Arguments, Leaf
from eqsat.trace import Trace

from .guard_code import KINDS
from .layout import words

_MOST_WORDS = 4096
"""Room on the stack for one call, in eight-byte words: arrays in, twice out, and
constants."""
KIND = {name: i for i, name in enumerate(KINDS)}
"""Kinds of nodes to their numbers."""


class NoVariantError(Exception):
    """A call that only Python can check."""


@dataclass(frozen=True, eq=False)
class Variant:
    """A program and the guards of the calls that it serves. Made by
    :meth:`Tables.variant`."""

    record: Any = field(repr=False)
    """The Variant or Recorder of :data:`.layout.RECORDS`."""
    words: int
    """Room that a call needs on the stack."""
    keep: tuple[Any, ...] = field(repr=False)


class Tables:
    """Records in memory, and what keeps them and the objects they point to alive.
    :meth:`array` and :meth:`program` say what the arrays and the programs are."""

    def __init__(self) -> None:
        self.keep: list[Any] = []

    def array(self, leaf: Leaf) -> list[int]:
        """The guard of an array, which is read from the next leaf. Raises
        :class:`NoVariantError`."""
        raise NotImplementedError

    def program(self, program: Any) -> tuple[str, dict[str, int]]:
        """The record of a program, and the fields that are its own."""
        raise NotImplementedError

    def variant(
        self, call: Arguments, trace: Trace, room: int, program: Any
    ) -> Variant:
        """A variant of ``room`` words. Raises :class:`NoVariantError`."""
        positional, named = _parameters(call)
        leaves = iter(call.leaves)
        nodes: list[int] = []
        for part in (*positional.children, *named.children):
            nodes += self._nodes(part, leaves)
        probes = [w for now, held in trace.probes for w in self._probe(now, held)]
        if room > _MOST_WORDS:
            raise NoVariantError
        self.keep += [program, trace]
        kind, own = self.program(program)
        pack, packer = _packing(trace)
        record = self.block(
            words(
                kind,
                owner=id(self.keep),
                nargs=len(positional.children),
                nkw=len(named.children),
                kwnames=self.at([self.key(k) for k in named.keys]),
                nodes=self.at(nodes),
                probes=len(probes) // 3,
                probe=self.at(probes),
                leaves=len(call.arrays),
                pack=pack,
                packer=self.own(packer),
                **own,
            )
        )
        return Variant(record, room, (record, self.keep))

    def block(self, values: Sequence[int]) -> Any:
        """Words in memory that this object keeps."""
        made = (ctypes.c_int64 * len(values))(*values)
        self.keep.append(made)
        return made

    def at(self, values: Sequence[int]) -> int:
        """The address of such words."""
        return ctypes.addressof(self.block(values)) if values else 0

    def own(self, value: object) -> int:
        """The address of an object that this one keeps alive."""
        self.keep.append(value)
        return id(value)

    def key(self, key: Hashable) -> int:
        if type(key) not in (str, int):
            raise NoVariantError
        return self.own(key)

    def _nodes(self, part: tree.Structure, leaves: Iterator[Leaf]) -> list[int]:
        """The guards of one part of an argument, and of those in it."""
        if isinstance(part, tree.ArrayAt):
            leaf = next(leaves)
            return self._constant(leaf) if leaf.constant else self.array(leaf)
        if isinstance(part, tree.Static):
            return self._static(part.value)
        kind: Any = part.type
        # Named tuples lie in memory as tuples do.
        is_tuple = issubclass(kind, tuple) and kind.__iter__ is tuple.__iter__
        if not is_tuple and kind not in (list, dict):
            raise NoVariantError
        keys = [self.key(k) for k in part.keys] if kind is dict else []
        node = words(
            "Node",
            kind=KIND["tuple" if is_tuple else kind.__name__],
            count=len(part.children),
            object=self.own(kind),
            data=self.at(keys),
        )
        for child in part.children:
            node += self._nodes(child, leaves)
        return node

    def _constant(self, leaf: Leaf) -> list[int]:
        chain = []
        array = leaf.value
        while not leaf.declared and isinstance(array, np.ndarray):
            chain.append(self.own(array))
            array = array.base
        return words(
            "Node",
            kind=KIND["constant"],
            count=len(chain),
            object=self.own(leaf.value),
            data=self.at(chain),
        )

    def _static(self, value: object) -> list[int]:
        kind = type(value)
        if kind is float:
            name = "float"
        elif kind in (int, str, bytes):
            name = "equal"
        elif (
            value is None
            or isinstance(value, (bool, type, np.dtype, FunctionType))
            or kind in (BuiltinFunctionType, type(...))
        ):
            name = "same"
        else:
            raise NoVariantError
        return words("Node", kind=KIND[name], object=self.own(value))

    def _probe(self, now: np.ndarray[Any, Any], held: bytes) -> list[int]:
        """Runs of bytes of the array, and what they held."""
        kept = ctypes.create_string_buffer(held, len(held))
        self.keep += [now, kept]
        start, size = ctypes.addressof(kept), now.itemsize
        steps = np.indices(now.shape).reshape(now.ndim, now.size).T
        places = steps @ np.array(now.strides, np.int64) if now.ndim else [0]
        runs: list[int] = []
        for i, place in enumerate(places):
            at = now.ctypes.data + int(place)
            if runs and at == runs[-3] + runs[-2]:
                runs[-2] += size
            else:
                runs += [at, size, start + i * size]
        return runs


def _parameters(call: Arguments) -> tuple[tree.Node, tree.Node]:
    """The positional arguments and those by name."""
    if call.owner is not None:
        raise NoVariantError  # what the object holds is looked at in every call
    assert isinstance(call.structure, tree.Node)
    positional, named = call.structure.children
    assert isinstance(positional, tree.Node) and isinstance(named, tree.Node)
    return positional, named


def _packing(trace: Trace) -> tuple[int, Callable[..., Any]]:
    """How results are handed back: 0 as the only array, 1 as a tuple of arrays, 2 by a
    function of that tuple."""
    made = trace.out_tree
    if isinstance(made, tree.ArrayAt):
        return 0, trace.unflatten
    if isinstance(made, tree.Node) and made.type is tuple:
        if all(isinstance(c, tree.ArrayAt) for c in made.children):
            return 1, trace.unflatten
    return 2, trace.unflatten
