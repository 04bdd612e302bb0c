"""Programs with the guards of their calls, as tables that the native code of
:mod:`.entry_code` goes through."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    NoneType,
    SimpleNamespace,
)
from typing import Any, Protocol, cast

import numpy as np

from eqsat.support import LastUse, library_objects, pytree
from eqsat.trace import (
    MISSING,
    Arguments,
    Contents,
    Leaf,
    Outside,
    OutsideName,
    Trace,
    is_array,
)

from ..machine import has_versions, member_offset, words
from .guard_code import KINDS
from .shared_runtime import objects

_MOST_WORDS = 4096
"""Room on the stack for one call, in eight-byte words: arrays in, twice out, and
constants."""
KIND = {name: i for i, name in enumerate(KINDS)}
"""Kinds of nodes to their numbers."""
_FIXED = frozenset(KIND[name] for name in ("tuple", "same", "equal", "float"))
"""Kinds whose guards of a held object always hold: it cannot change."""


_CLASS = object.__basicsize__ - 8
"""Where an object holds its class, from its start (bytes)."""
_PYTHON_ASKS = (*pytree.CONTENT, deque, frozenset)
"""Types whose objects only Python can look into."""


class NoVariantError(Exception):
    """A call that only Python can check."""


@dataclass(frozen=True, eq=False)
class Variant:
    """A program and the guards of the calls that it serves. Made by
    :func:`variant`."""

    record: Any = field(repr=False)
    """The Variant or Recorder of :data:`..machine.c_layouts.RECORDS`."""
    words: int
    """Room that a call needs on the stack."""
    keep: tuple[Any, ...] = field(repr=False)


class Records:
    """Words in memory, and what keeps them and the objects they point to alive."""

    def __init__(self) -> None:
        self.keep: list[Any] = []

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
        """The address of a key. Raises :class:`NoVariantError` for one that only Python
        can compare."""
        try:
            if not _compares_without_python(key):
                raise NoVariantError
        except RecursionError as error:
            raise NoVariantError from error
        return self.own(key)


class Programs(Protocol):
    """What the arrays and the programs of a backend are."""

    def array(self, leaf: Leaf, records: Records) -> list[int]:
        """The guard of an array, which is read from the next leaf. Raises
        :class:`NoVariantError`."""

    def program(self, program: Any, records: Records) -> tuple[str, dict[str, int]]:
        """The record of a program, and the fields that are its own."""


def variant(
    call: Arguments,
    trace: Trace,
    room: int,
    program: Any,
    programs: Programs,
    used: LastUse | None = None,
) -> Variant:
    """A variant of ``room`` words, whose calls tell ``used``. Raises
    :class:`NoVariantError`."""
    used = used or LastUse()
    positional, named = _parameters(call)
    leaves, records = iter(call.leaves), Records()
    guards = Guards(records, programs)
    nodes: list[int] = []
    for part in (*positional.children, *named.children):
        nodes += guards.nodes(part, leaves)
    if call.owner is not None:
        owner = call.owner.held[0]
        _unchanged(owner, call.owner)
        if id(owner) not in trace.outside.objects:  # whose guards are the same
            guards.owners.append(owner)
    spaces = guards.outside(trace.outside)
    inside = [w for _, guard in spaces for w in guard]
    inside += [w for owner in guards.owners for w in guards.held(owner, set())]
    looked_at = [*(space for space, _ in spaces), *guards.owners]
    arrays = {id(c.array): c for c in trace.contents}
    forms = {k: formed for k, (formed, *_) in trace.outside.arrays.items()}
    arrays |= {k: f.contents for k, f in forms.items() if f.contents is not None}
    probes = [w for f in forms.values() for w in _form_probe(f.array, records)]
    probes += [w for c in arrays.values() for w in _probe(c, records)]
    if trace.outside.memory:  # only Python asks for it
        raise NoVariantError
    if not trace.is_current():  # it changed while the program was made
        raise NoVariantError
    if room > _MOST_WORDS:
        raise NoVariantError
    records.keep += [program, trace, used]
    kind, own = programs.program(program, records)
    pack, packer = _packing(trace)
    record = records.block(
        words(
            kind,
            owner=id(records.keep),
            used=used.address,
            nargs=len(positional.children),
            nkw=len(named.children),
            kwnames=records.at([records.key(k) for k in named.keys]),
            nodes=records.at(nodes),
            pins=len(guards.pins) // 2,
            pin=records.at(guards.pins),
            held=len(looked_at),
            objects=records.at([records.own(x) for x in looked_at]),
            inside=records.at(inside),
            probes=len(probes) // 4,
            probe=records.at(probes),
            leaves=len(call.arrays),
            pack=pack,
            packer=records.own(packer),
            **own,
        )
    )
    return Variant(record, room, (record, records.keep))


class Guards:
    """Writes the guards of arguments, and of objects that a program has read."""

    def __init__(self, records: Records, programs: Programs) -> None:
        self.records, self.programs = records, programs
        self.owners: list[Any] = []
        """Objects whose attributes the program has read, beside the arguments."""
        self.pins: list[int] = []
        """Addresses in objects outside, each with the address of what is held there."""

    def nodes(self, part: pytree.Structure, leaves: Iterator[Leaf]) -> list[int]:
        """The guards of one part of an argument, and of those in it."""
        if isinstance(part, pytree.ArrayAt):
            leaf = next(leaves)
            return (
                self._constant(leaf)
                if leaf.constant
                else self.programs.array(leaf, self.records)
            )
        if isinstance(part, pytree.Static):
            return self._static(part)
        node = self._container(part.type, part.keys)
        for child in part.children:
            node += self.nodes(child, leaves)
        if issubclass(part.type, defaultdict):
            factory = self._same(part.extra)
            node = _both(
                [*self._members("fields", part.type, ["default_factory"]), *factory],
                node,
            )
        if part.assigned is not None:
            node = _both(self._assigned(part.type, part.assigned), node)
        return node

    def _container(self, kind: Any, keys: Sequence[Hashable]) -> list[int]:
        """The guard of a container, which those of what is in it follow."""
        # Named tuples lie in memory as tuples do.
        if issubclass(kind, tuple):
            return self._around("tuple", kind, keys)
        if kind is list:
            return self._around("list", kind, keys)
        if issubclass(kind, dict):
            return self._mapping(kind, keys)
        if _holds_as_written(kind, keys):
            return self._around("record", kind, keys)
        if is_dataclass(kind):
            names = [f.name for f in fields(kind)]
            slots: Any = pytree.slots(cast(type, kind))
            has_all = names == [*keys] and set(names) <= {*slots}
            if has_all and not cast(type, kind).__dictoffset__:
                return self._members("fields", kind, names)
        raise NoVariantError

    def _mapping(self, kind: Any, keys: Sequence[Hashable]) -> list[int]:
        if kind.items is dict.items:
            return self._around("dict", kind, keys)
        is_ordered = (
            issubclass(kind, OrderedDict)
            and kind.items is OrderedDict.items
            and kind.__iter__ is OrderedDict.__iter__
            and kind.__getitem__ is dict.__getitem__
        )
        # What hashes without Python.
        if is_ordered and all(type(k) in (str, int, bytes) for k in keys):
            return self._around("ordered", kind, keys)
        raise NoVariantError

    def _assigned(self, kind: type, held: dict[str, Any]) -> list[int]:
        """The guard of what is assigned to objects of a class."""
        node = self._around("record", kind, [*held])
        seen: set[int] = set()
        for child in held.values():
            node += self.held(child, seen)
        return node

    def _members(self, name: str, of: Any, names: Sequence[str]) -> list[int]:
        """A node of kind ``name`` around what objects hold at fixed places: those of a
        class, or the object ``of`` alone."""
        kind = of if name == "fields" else type(of)
        return words(
            "Node",
            kind=KIND[name],
            count=len(names),
            object=self.records.own(of),
            data=self.records.at([_offset(kind, n) for n in names]),
        )

    def _around(self, name: str, of: object, keys: Sequence[Hashable]) -> list[int]:
        """A node of kind ``name``, and the keys of those that follow it."""
        return words(
            "Node",
            kind=KIND[name],
            count=len(keys),
            object=self.records.own(of),
            data=self.records.at([self.records.key(k) for k in keys]),
        )

    def _constant(self, leaf: Leaf) -> list[int]:
        chain = []
        array = leaf.value
        while not leaf.declared and isinstance(array, np.ndarray):
            chain.append(self.records.own(array))
            array = array.base
        return words(
            "Node",
            kind=KIND["constant"],
            count=len(chain),
            object=self.records.own(leaf.value),
            data=self.records.at(chain),
        )

    def _static(self, part: pytree.Static) -> list[int]:
        value = part.value
        kind: Any = type(value)
        if kind in (float, int, str, bytes):
            return self._value(value)
        if (
            value is None
            or isinstance(value, (bool, type, np.dtype, FunctionType))
            or kind in (BuiltinFunctionType, type(...))
        ):
            return self._same(value)
        if kind is range:
            names = ("start", "stop", "step")
            node = self._members("fields", kind, names)
            return node + [w for n in names for w in self._value(getattr(value, n))]
        if kind in (set, frozenset) and _is_simple(value):
            return self._value(kind([*value]))  # a set may change
        if part.attributes is None:
            if isinstance(value, (pytree.Made, Hashable)):  # cannot change
                return self._same(value)
            raise NoVariantError
        _unchanged(value, part.attributes)
        return self.held(value, set())

    def held(self, value: Any, seen: set[int], depth: int = 0) -> list[int]:
        """The guard of what an object holds, by
        :func:`eqsat.support.pytree.attributes`. ``depth`` objects are around it."""
        if depth > pytree.MOST_DEPTH:
            raise NoVariantError
        kind = type(value)
        if kind in (float, int, str):
            return self._value(value)
        if kind in library_objects.PROXIES or isinstance(value, _PYTHON_ASKS):
            raise NoVariantError
        items = None if is_array(value) else pytree.held_by(value)
        if items is None or id(value) in seen:
            return self._same(value)
        if isinstance(value, pytree.Made):
            self._also(pytree.owner(value))
            return self._same(value)
        seen.add(id(value))
        keys = [key for key, _ in items]
        if isinstance(value, (dict, list, tuple)):
            node = self._items(value, keys)
        else:
            node = self._object(value, [str(key) for key in keys])
        inside = items[: len(value)] if isinstance(value, defaultdict) else items
        for _, child in inside:
            node += self.held(child, seen, depth + 1)
        return node

    def _items(self, value: Any, keys: Sequence[Hashable]) -> list[int]:
        """The guard of a container, and of the factory that a ``defaultdict`` has."""
        n = len(value)
        if len(keys) == n:
            return self._container(type(value), keys)
        if not isinstance(value, defaultdict) or len(keys) > n + 1:
            raise NoVariantError  # more is assigned to it
        factory = self._same(value.default_factory)
        member = self._members("fields", type(value), ["default_factory"])
        return _both([*member, *factory], self._container(type(value), keys[:n]))

    def outside(self, outside: Outside) -> list[tuple[Any, list[int]]]:
        """The guards of what a function reads outside of its arguments, and the objects
        to look at: dictionaries and objects. What cells, functions and slots hold goes
        to :attr:`pins`."""
        found: list[tuple[Any, list[int]]] = []
        by_space: dict[tuple[int, str], list[OutsideName]] = defaultdict(list)
        for name in outside.names.values():
            by_space[id(name.space), name.kind].append(name)
        for names in by_space.values():
            values = [self._named(name.value) for name in names]
            pinned = self._pinned(names, values)
            self.pins += pinned
            if not pinned:
                node = self._names(names) + [w for value in values for w in value]
                found.append((names[0].space, node))
        for held in outside.objects.values():
            node = self.held(held.value, set())
            if not _FIXED.issuperset(node[:: len(words("Node"))]):
                found.append((held.value, node))
        return found

    def _pinned(
        self, names: Sequence[OutsideName], values: Sequence[Sequence[int]]
    ) -> list[int]:
        """Pins of names at fixed places of one object that all stand for objects; none
        for others."""
        space, kind = names[0].space, names[0].kind
        same = all(value[0] == KIND["same"] for value in values)
        if not same or kind in ("dict", "attribute"):
            return []
        start = self.records.own(space)
        return [
            word
            for name in names
            for word in (start + _place(name), self.records.own(name.value))
        ]

    def _names(self, names: Sequence[OutsideName]) -> list[int]:
        """The guard around what some names stand for in one space."""
        space, kind = names[0].space, names[0].kind
        keys = [n.name for n in names]
        if kind == "attribute" and not _is_plain(space):
            raise NoVariantError
        if kind in ("dict", "attribute"):
            return words(
                "Node",
                kind=KIND["names" if kind == "dict" else "attributes"],
                count=len(keys),
                object=self.records.own(space),
                data=self.records.at([self.records.key(k) for k in keys]),
                need=-has_versions(of_object=kind == "attribute"),
            )
        return words(
            "Node",
            kind=KIND["slots"],
            count=len(names),
            object=self.records.own(space),
            data=self.records.at([_place(n) for n in names]),
        )

    def _named(self, value: Any) -> list[int]:
        """The guard of what a name stands for: a number or a text, or an object."""
        if value is MISSING:
            return words("Node", kind=KIND["absent"])
        if type(value) in (float, int, str):
            return self._value(value)
        return self._same(value)

    def _object(self, value: Any, names: Sequence[str]) -> list[int]:
        """The guard of an object, which those of what it holds follow."""
        is_value = pytree.is_value(value)
        kind = type(value)
        if not is_value:
            self.pins += [id(value) + _CLASS, self.records.own(kind)]
        is_member = kind in (MethodType, partial)
        if not is_member and _is_plain(value) and [*names] == [*vars(value)]:
            if is_value:
                return self._around("record", kind, names)
            return self._around("instance", value, names)
        slots = pytree.slots(kind)
        if is_member or (slots == [*names] and _is_bare(value)):
            name, of = ("fields", kind) if is_value else ("slots", value)
            return self._members(name, of, names)
        raise NoVariantError

    def _also(self, owner: object) -> None:
        """Guard what this object holds as well."""
        if all(owner is not o for o in self.owners):
            self.owners.append(owner)

    def _value(self, value: object) -> list[int]:
        """The guard of an equal number or text of the same type."""
        name = "float" if type(value) is float else "equal"
        return words("Node", kind=KIND[name], object=self.records.own(value))

    def _same(self, value: object) -> list[int]:
        return words("Node", kind=KIND["same"], object=self.records.own(value))


def _both(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The guard of what two guards hold for."""
    return [*words("Node", kind=KIND["both"]), *one, *other]


def _unchanged(value: Any, then: pytree.Attributes) -> None:
    """Raise unless an object is still what it was ``then``, before the trace."""
    if pytree.attributes(value, is_array) != then:
        raise NoVariantError


def _form_probe(array: np.ndarray[Any, Any], records: Records) -> list[int]:
    """Runs of bytes that tell the shape, the strides and the dtype of an array."""
    start = id(array) + object.__basicsize__  # PyArrayObject_fields of NumPy
    ndim, places, dtype = start + 8, start + 16, start + 40
    runs = [(ndim, 4), (places, 16), (dtype, 8)]
    if array.ndim:
        both = ctypes.c_int64.from_address(places).value
        runs.append((both, 16 * array.ndim))  # asked where the pointer is the same
    found: list[int] = []
    for place, size in runs:
        kept = ctypes.create_string_buffer(ctypes.string_at(place, size), size)
        records.keep.append(kept)
        found += [place, size, ctypes.addressof(kept), 0]
    return found


def _probe(contents: Contents, records: Records) -> list[int]:
    """Runs of bytes of the array, and what they held; the checksum of a large one.
    Raises :class:`NoVariantError` for a large one that does not lie in one run."""
    array, held = contents.array, contents.held
    records.keep.append(array)
    if not isinstance(held, bytes):
        flags = array.flags
        if not (flags.c_contiguous or flags.f_contiguous):
            raise NoVariantError
        place = array.ctypes.data, array.nbytes
        return [*place, 0, _checksum()(*place)]
    kept = ctypes.create_string_buffer(held, len(held))
    records.keep.append(kept)
    start, size = ctypes.addressof(kept), array.itemsize
    if array.flags.c_contiguous:
        return [array.ctypes.data, len(held), start, 0]
    steps = np.indices(array.shape).reshape(array.ndim, array.size).T
    runs: list[int] = []
    for i, place_of in enumerate(steps @ np.array(array.strides, np.int64)):
        at = array.ctypes.data + int(place_of)
        if runs and at == runs[-4] + runs[-3]:
            runs[-3] += size
        else:
            runs += [at, size, start + i * size, 0]
    return runs


@functools.cache
def _checksum() -> Any:
    """The checksum of bytes: ``(address, count)``."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64)
    return kind(objects().address("checksum"))


def _place(name: OutsideName) -> int:
    """Where a cell, a function or an object with slots holds what a name stands for,
    from its start (bytes)."""
    if name.kind == "class":
        return _CLASS
    if name.kind == "slot":
        return _offset(type(name.space), name.name)
    return _place_of(name.space, name.value)


def _place_of(holder: Any, member: Any) -> int:
    """Where a cell or a function holds a member, from its start (bytes)."""
    size = type(holder).__basicsize__
    held = ctypes.string_at(id(holder), size)
    for place in range(16, size - 7, 8):
        if int.from_bytes(held[place : place + 8], sys.byteorder) == id(member):
            return place
    raise NoVariantError


def _parameters(call: Arguments) -> tuple[pytree.TreeNode, pytree.TreeNode]:
    """The positional arguments and those by name."""
    assert isinstance(call.structure, pytree.TreeNode)
    positional, named = call.structure.children
    assert isinstance(positional, pytree.TreeNode) and isinstance(
        named, pytree.TreeNode
    )
    return positional, named


def _compares_without_python(key: Hashable) -> bool:
    """Whether comparing a key with another of its type runs no code of Python, and
    keys that are equal are the same: -0.0 and 0.0 are not."""
    kind: Any = type(key)
    if kind is tuple:
        return all(map(_compares_without_python, cast("tuple[Any, ...]", key)))
    if isinstance(key, Enum):
        return kind.__eq__ in (object.__eq__, int.__eq__, str.__eq__)
    if kind is float:
        return key != 0
    if kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__:
        return True  # a class, a function: equal to itself alone
    return kind in (str, int, bytes, bool, NoneType)


def _is_simple(values: Iterable[Any]) -> bool:
    """Whether members of a set that are equal are so in their types, too."""
    return {type(v) for v in values} <= {str, bytes, NoneType}


def _offset(kind: type, name: str) -> int:
    """Where objects of a class hold a member, from their start (bytes)."""
    for base in kind.__mro__:
        member = vars(base).get(name)
        if type(member) is MemberDescriptorType:
            return member_offset(member)
    raise NoVariantError


def _is_bare(value: Any) -> bool:
    """Whether an object has no dictionary."""
    return not hasattr(value, "__dict__")


def _is_plain(value: Any) -> bool:
    """Whether an object keeps its attributes in a dictionary, as most do."""
    if _is_bare(value) or isinstance(value, threading.local):
        return False
    generic = ctypes.pythonapi.PyObject_GenericGetDict
    generic.restype, generic.argtypes = ctypes.py_object, (ctypes.py_object,)
    return type(vars(value)) is dict and generic(value) is vars(value)


def _holds_as_written(kind: type, keys: Sequence[Hashable]) -> bool:
    """Whether objects of a class show as these attributes what their dictionary has."""
    if kind is SimpleNamespace:
        return True
    return (
        is_dataclass(kind)
        and kind.__dictoffset__ != 0
        and kind.__getattribute__ is object.__getattribute__
        and not any(hasattr(getattr(kind, str(k), None), "__set__") for k in keys)
    )


def _packing(trace: Trace) -> tuple[int, Callable[..., Any]]:
    """How results are handed back: 0 as the only array, 1 as a tuple of arrays, 2 by a
    function of that tuple."""
    made = trace.out_tree
    if trace.ends:
        return 2, trace.unflatten
    if isinstance(made, pytree.ArrayAt):
        return 0, trace.unflatten
    if isinstance(made, pytree.TreeNode) and made.type is tuple:
        if all(isinstance(c, pytree.ArrayAt) for c in made.children):
            return 1, trace.unflatten
    return 2, trace.unflatten
