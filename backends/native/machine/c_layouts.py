"""Where fields lie: records that native code and Python share, and the structs of
CPython and NumPy, which are checked against live objects before anything relies on
them."""

from __future__ import annotations

import ctypes
import functools
import platform
import re
import struct
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from functools import partial
from types import MemberDescriptorType, MethodType
from typing import Any

import numpy as np

_GUARDED = (
    *("ptr owner", "ptr used", "i64 nargs", "i64 nkw", "ptr kwnames", "ptr nodes"),
    *("i64 pins", "ptr pin", "i64 held", "ptr objects", "ptr inside"),
    *("i64 probes", "ptr probe", "i64 leaves"),
)
"""What every variant starts with: what keeps it alive, where the time of its last call
goes, and the guards of its calls: of arguments, of words and objects around the
function, of arrays that it closes over."""

RECORDS: dict[str, tuple[str, ...]] = {
    # A function of one jit: its programs, and what to call for anything else; and what
    # to call for everything while the number at "contexts" is not 0.
    "State": ("ptr table", "ptr fallback", "ptr contexts", "ptr asking"),
    # Programs, the most used first; the rest of the record is pointers to them. "words"
    # is the room on the stack that a call of any of them needs.
    "Table": ("i64 count", "i64 words"),
    "Variant": (
        *_GUARDED,
        *("i64 outputs", "ptr output", "i64 constants", "ptr constant", "i64 arena"),
        *("i64 fault", "ptr program", "i64 threads", "i64 release"),
        *("i64 pack", "ptr packer"),
        # Outputs that are returned; the others are what arguments become.
        *("i64 results", "i64 writes", "ptr write", "i64 aparts", "ptr apart"),
        *("i64 handed", "ptr hand"),
    ),
    # The output that argument "leaf" becomes.
    "Write": ("i64 leaf", "i64 output", "i64 nbytes"),
    # An output that is argument "leaf" itself.
    "Handed": ("i64 output", "i64 leaf"),
    # Memory that argument "leaf" must not share: from "start" to "end", of the argument
    # "other" counted from its data.
    "Apart": ("i64 leaf", "i64 nbytes", "i64 other", "i64 start", "i64 end"),
    # A program in Python: as it is, and as transformations of MLX ask for.
    "Recorder": (*_GUARDED, "ptr plain", "ptr traced", "i64 pack", "ptr packer"),
    # What one part of an argument must be; what is in containers and objects follows.
    "Node": (
        *("i64 kind", "i64 count", "ptr object", "ptr data", "i64 need"),
        *("i64 mask", "ptr strides", "i64 thawed"),
    ),
    # A word of memory that must be what it was when the function was traced.
    "Pin": ("ptr at", "i64 word"),
    # Bytes that must be what they were when the function was traced: those at "held",
    # or those of a checksum, where that is null.
    "Probe": ("ptr at", "i64 nbytes", "ptr held", "i64 checksum"),
    # Where a number is wanted of an array without axes, "kind" is not null. Where the
    # program writes into the number itself, "make" of that type makes it.
    "Output": (
        *("ptr dtype", "i64 ndim", "ptr shape", "i64 nbytes"),
        *("ptr kind", "ptr make"),
    ),
}
"""Records of eight-byte words, and the fields of each in order."""

Objects = dict[str, dict[str, tuple[str, int]]]
OBJECTS: Objects = {
    "Object": {"type": ("ptr", 8)},
    "Tuple": {"size": ("i64", 16), "items": ("at", 24)},
    "List": {"size": ("i64", 16), "items": ("ptr", 24)},
    "Float": {"bits": ("i64", 16)},
    "Dict": {"version": ("i64", 24)},
    "Ordered": {
        "first": ("ptr", dict.__basicsize__),
        "places": ("i64", dict.__basicsize__ + 24),
    },
    "Link": {"key": ("ptr", 0), "next": ("ptr", 16)},
    # PyMemberDescrObject and PyMemberDef.
    "Descriptor": {"member": ("ptr", 40)},
    "Member": {"type": ("i32", 8), "offset": ("i64", 16)},
    "Array": {
        "data": ("ptr", 16),
        "ndim": ("i32", 24),
        "shape": ("ptr", 32),
        "strides": ("ptr", 40),
        "base": ("ptr", 48),
        "dtype": ("ptr", 56),
        "flags": ("i32", 64),
        "handler": ("at", 88),
    },
    "Dtype": {"byteorder": ("i8", 26), "number": ("i32", 28)},
    # Where a worker of the team waits, 256 bytes: its ticket lies at the start.
    "Slot": {
        "asleep": ("at", 8),
        "seen": ("i64", 16),
        "mutex": ("at", 64),
        "wake": ("at", 128),
    },
}
"""Fields of objects: LLVM type and offset (bytes); ``at``: the field lies there itself.
"""

C_CONTIGUOUS, OWNDATA, ALIGNED, WRITEABLE = 0x0001, 0x0004, 0x0100, 0x0400
"""Bits of ``Array.flags``."""

_GET = re.compile(r"^(\s*)(%\w+) = get (\w+)\.(\w+), (%[\w.]+)$", re.M)


def expand(text: str, objects: Objects = OBJECTS) -> str:
    """IR with every line ``%x = get Record.field, %pointer`` as the address and the
    load that it stands for."""

    def load(match: re.Match[str]) -> str:
        indent, name, record, field, base = match.groups()
        kind, offset = _field(record, field, objects)
        at = f"getelementptr i8, ptr {base}, i64 {offset}"
        if kind == "at":
            return f"{indent}{name} = {at}"
        return f"{indent}{name}.at = {at}\n{indent}{name} = load {kind}, ptr {name}.at"

    return _GET.sub(load, text)


def each(head: str, one: str) -> str:
    """An IR function without a result that runs the lines ``one`` for each ``%i`` from
    0 to its parameter ``%n``."""
    return f"""
define internal void {head} {{
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %one]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %end, label %one
one:{one}
  %i1 = add i64 %i, 1
  br label %next
end:
  ret void
}}
"""


def every(head: str, one: str, before: str = "") -> str:
    """An IR function: whether ``%ok`` of the lines ``one`` is true for each ``%i`` from
    0 to ``%n``, a parameter or of the lines ``before``."""
    return f"""
define internal i1 {head} {{{before}
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %one]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %one
one:{one}
  %i1 = add i64 %i, 1
  br i1 %ok, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _field(record: str, field: str, objects: Objects = OBJECTS) -> tuple[str, int]:
    if record in objects:
        return objects[record][field]
    for i, text in enumerate(RECORDS[record]):
        kind, name = text.split()
        if name == field:
            return kind, 8 * i
    raise KeyError(f"{record}.{field}")


def words(record: str, **values: int) -> list[int]:
    """One record as its words; fields that are not named are 0."""
    names = [text.split()[1] for text in RECORDS[record]]
    unknown = values.keys() - set(names)
    if unknown:
        raise KeyError(f"{record} has no {', '.join(sorted(unknown))}")
    return [values.get(name, 0) for name in names]


@functools.cache
def is_as_expected() -> bool:
    """Whether objects of this Python and this NumPy lie in memory as written here."""
    if (
        platform.python_implementation() != "CPython"
        or struct.calcsize("P") != 8
        or sys.byteorder != "little"
        # An object has 32 in free-threaded builds, and where references are traced.
        or (object.__basicsize__, tuple.__basicsize__, float.__basicsize__)
        != (16, 24, 24)
        or list.__basicsize__ < 40
        or np.ndarray.__basicsize__ < 96
        or np.dtype.__basicsize__ < 40
    ):
        return False
    return (
        all(map(_lies_as_expected, _live_objects()))
        and _links_lie_as_expected()
        and _members_lie_as_expected()
    )


def _links_lie_as_expected() -> bool:
    """Of an OrderedDict whose order is not that in which keys came."""
    made = OrderedDict({str(i): i for i in range(5)})
    made.move_to_end("2")
    made.move_to_end("3", last=False)
    del made["1"]
    if _read(made, "Ordered", "places") != 8:  # before a pointer is followed
        return False
    link = _read(made, "Ordered", "first")
    for key in made:
        if not link or _read_at(link, "Link", "key") != id(key):
            return False
        link = _read_at(link, "Link", "next")
    return not link


def _members_lie_as_expected() -> bool:
    class Slotted:
        __slots__ = ("a", "b")

    made: Any = Slotted()
    made.a, made.b = object(), object()
    default: Any = defaultdict(list)
    parts: tuple[tuple[Any, str], ...] = (
        *((made, "a"), (made, "b"), (default, "default_factory")),
        *((MethodType(len, made), n) for n in ("__func__", "__self__")),
        *((partial(dict, (), x=2), n) for n in ("func", "args", "keywords")),
    )
    for value, name in parts:
        offset = member_offset(getattr(type(value), name))
        if _word(id(value) + offset) != id(getattr(value, name)):
            return False
    return True


_OBJECT, _OBJECT_EX = 6, 16
"""Members that are objects: None where there is none, and an error."""
_OFTEN = 40
"""Times after which an interpreter has specialised what sets an attribute."""


def member_offset(descriptor: MemberDescriptorType) -> int:
    """Where an object holds what a slot of its class, or a member of a class of C,
    shows (bytes from its start)."""
    member = _read(descriptor, "Descriptor", "member")
    if _read_at(member, "Member", "type") not in (_OBJECT, _OBJECT_EX):
        raise ValueError(f"{descriptor} is no object")
    return _read_at(member, "Member", "offset")


class _Held:
    a: int


@functools.cache
def has_versions(of_object: bool) -> bool:
    """Whether each change of a dictionary gives it another version, as in CPython
    3.11 and 3.12, and nothing else does. ``of_object``: of one behind an object, whose
    attributes are set; since 3.13 it keeps its version then."""
    held = _Held()
    d: dict[str, int] = vars(held) if of_object else {}
    seen = [_read({}, "Dict", "version"), _read(d, "Dict", "version")]
    for number in range(_OFTEN):
        if of_object:
            held.a = number
        else:
            d["a"] = number
        seen.append(_read(d, "Dict", "version"))
        again = d["a"], d.get("c"), len(d), list(d), _read(d, "Dict", "version")
        if again[-1] != seen[-1]:
            return False
    del d["a"]
    seen.append(_read(d, "Dict", "version"))
    return len({*seen}) == len(seen)


def _live_objects() -> Iterator[Any]:
    yield from ((), (1, "a", None), [], [None, 2.0], 1.5, -0.0)
    base = np.zeros((3, 4, 5))
    whole = [np.zeros((2, 3), t) for t in ("?", "i1", "u2", "i8", "f2", "f4", "c16")]
    yield from whole
    yield from (np.zeros(()), np.zeros((0, 3)), base, base.T, base[::-1, 1:, ::2])
    swapped = np.zeros(3, np.dtype("f8").newbyteorder())
    frozen = np.zeros(7)
    frozen.flags.writeable = False
    unaligned = np.zeros(9, "u1")[1:].view("f8")
    yield from (
        swapped,
        frozen,
        unaligned,
        frozen[2:],
        np.broadcast_to(base, (2, 3, 4, 5)),
    )
    yield from (a.dtype for a in (*whole, swapped))


def _lies_as_expected(value: Any) -> bool:
    if _read(value, "Object", "type") != id(type(value)):
        return False
    if isinstance(value, float):
        return struct.pack("<q", _read(value, "Float", "bits")) == struct.pack(
            "<d", value
        )
    if isinstance(value, (tuple, list)):
        kind = type(value).__name__.title()
        items = _read(value, kind, "items")
        found = (ctypes.c_int64 * len(value)).from_address(items) if value else ()
        return _read(value, kind, "size") == len(value) and [*found] == [
            *map(id, value)
        ]
    if isinstance(value, np.dtype):
        order = chr(_read(value, "Dtype", "byteorder"))
        return (_read(value, "Dtype", "number"), order) == (value.num, value.byteorder)
    return _array_lies_as_expected(value)


def _array_lies_as_expected(array: np.ndarray[Any, Any]) -> bool:
    rank = array.ndim
    where = (ctypes.c_int64 * rank).from_address
    flags = _read(array, "Array", "flags")
    base = 0 if array.base is None else id(array.base)
    found = [_read(array, "Array", f) for f in ("data", "ndim", "dtype", "base")]
    return (
        found == [array.ctypes.data, rank, id(array.dtype), base]
        and (
            not rank
            or (
                tuple(where(_read(array, "Array", "shape"))) == array.shape
                and tuple(where(_read(array, "Array", "strides"))) == array.strides
            )
        )
        and _handler_lies_as_expected(array)
        and bool(flags & C_CONTIGUOUS) == array.flags.c_contiguous
        and bool(flags & OWNDATA) == array.flags.owndata
        and bool(flags & ALIGNED) == array.flags.aligned
        and bool(flags & WRITEABLE) == array.flags.writeable
    )


def _handler_lies_as_expected(array: np.ndarray[Any, Any]) -> bool:
    """An array that owns its data has a capsule that frees them (NEP 49)."""
    handler = ctypes.c_int64.from_address(_read(array, "Array", "handler")).value
    if not array.flags.owndata:
        return handler == 0
    capsule = type(np._core.multiarray._ARRAY_API)  # type: ignore[attr-defined]
    return handler != 0 and _type_of(handler) == id(capsule)


def _type_of(address: int) -> int:
    return _word(address + OBJECTS["Object"]["type"][1])


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


_C = {
    "i8": ctypes.c_uint8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "ptr": ctypes.c_int64,
}


def _read(value: object, record: str, field: str) -> int:
    return _read_at(id(value), record, field)


def _read_at(start: int, record: str, field: str) -> int:
    kind, offset = _field(record, field)
    address = start + offset
    return address if kind == "at" else int(_C[kind].from_address(address).value)
