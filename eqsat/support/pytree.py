"""Nested arguments: the arrays inside dicts, lists, tuples and dataclasses, and what
holds them.

``flatten`` splits a value into its arrays, in order and each with its path, and a
hashable :class:`Structure` with everything else; ``unflatten`` puts arrays back.
``None``, numbers, strings and other hashable objects belong to the structure: they are
static, an object with all that is assigned to its attributes.
"""

from __future__ import annotations

import dataclasses
import sys
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType, MemberDescriptorType, SimpleNamespace
from typing import Any, NamedTuple, cast

from eqsat.support.errors import TraceError, at, caller_line
from eqsat.support.library_objects import PROXIES, Parts, is_weak, parts, referent
from eqsat.support.wording import an

MOST_DEPTH = 128
"""Containers in containers. Python compares and hashes structures by recursion."""


class Found(NamedTuple):
    """One array and where it was: ``x['w'][0]``."""

    path: str
    value: Any


@dataclass(frozen=True)
class ArrayAt:
    """The place of an array."""


@dataclass(frozen=True)
class Static:
    """A value that is part of the structure; 1, 1.0 and True are different ones."""

    key: Hashable
    attributes: Attributes | None
    value: Any = dataclasses.field(compare=False)


@dataclass(frozen=True)
class TreeNode:
    """A container: its type, what tells its children apart, and the children."""

    type: type
    keys: tuple[Hashable, ...]
    children: tuple[Structure, ...]
    extra: Hashable = None
    """The factory of a ``defaultdict``."""
    attributes: Attributes | None = None
    """What is assigned to a mapping beside its items."""
    assigned: dict[str, Any] | None = dataclasses.field(default=None, compare=False)
    told_apart: tuple[Static, ...] = ()
    """The keys, where they are not all strings: those that Python calls equal may be
    different ones."""


@dataclass(frozen=True)
class Attributes:
    """What an object holds: its arrays by identity, its numbers by value."""

    key: Hashable
    held: tuple[Any, ...] = dataclasses.field(compare=False)
    """Kept alive, so that an identity in the key is not given to another object."""


Structure = ArrayAt | Static | TreeNode
ARRAY = ArrayAt()


def flatten(
    value: Any,
    is_array: Callable[[Any], bool],
    path: str = "",
    most_depth: int = MOST_DEPTH,
) -> tuple[list[Found], Structure]:
    """The arrays in ``value``, depth first, and the structure around them.

    ``path`` is the name of ``value`` in error messages. Raises :class:`TraceError` for
    a container that holds itself, for more than ``most_depth`` containers in each
    other, and for a static value that is not hashable.
    """
    if is_array(value):
        return [Found(path, value)], ARRAY
    found: list[Found] = []
    return found, _walk(value, path, is_array, found, [], most_depth)


def _walk(
    value: Any,
    where: str,
    is_array: Callable[[Any], bool],
    found: list[Found],
    open_: list[int],
    most: int,
) -> Structure:
    """The structure of ``value``, whose arrays go to ``found``; ``open_`` are the
    containers around it. (A function inside ``flatten`` that calls itself is a cycle,
    which would hold the arrays until the collector runs.)"""
    if is_array(value):
        found.append(Found(where, value))
        return ARRAY
    parts = _parts(value)
    if parts is None:
        return _static(value, where, is_array)
    if id(value) in open_:
        raise TraceError(f"{where or 'the value'} contains itself{at(caller_line())}")
    if len(open_) == most:
        raise _too_deep(where)
    open_.append(id(value))
    children = tuple(
        _walk(child, where + step, is_array, found, open_, most)
        for _, step, child in parts
    )
    open_.pop()
    keys = tuple(key for key, _, _ in parts)
    if not isinstance(value, dict):
        return TreeNode(type(value), keys, children)
    extra = value.default_factory if isinstance(value, defaultdict) else None
    named = all(type(key) is str for key in keys)
    apart = () if named else tuple(_static(k, where, is_array) for k in keys)
    held, assigned = _beside_items(value, is_array)
    return TreeNode(type(value), keys, children, extra, held, assigned, apart)


def _too_deep(where: str) -> TraceError:
    short = where if len(where) <= 40 else f"{where[:40]}…"
    return TraceError(
        f"{short or 'the value'} is nested too deep: at most {MOST_DEPTH} containers "
        f"in each other; put what lies in it into one array{at(caller_line())}"
    )


def _beside_items(
    value: dict[Any, Any], is_array: Callable[[Any], bool]
) -> tuple[Attributes | None, dict[str, Any] | None]:
    """What is assigned to a dictionary of a class of its own beside its items."""
    own = getattr(value, "__dict__", None)
    if not own or own is value:
        return None, None
    held: list[Any] = [value]
    seen = {id(value): 0}
    key = tuple((k, _attributes(v, is_array, held, seen)) for k, v in own.items())
    return Attributes(key, tuple(held[1:])), dict(own)


def is_other(value: Any) -> bool:
    """Whether ``value`` is neither a container of arrays nor hashable."""
    known = isinstance(value, (Hashable, set)) or _parts(value) is not None
    return not known


def unflatten(structure: Structure, arrays: Iterable[Any]) -> Any:
    """The value with ``arrays`` in the places of its arrays; the inverse of
    :func:`flatten`."""
    return _build(structure, iter(arrays))


def statics(structure: Structure, path: str = "") -> Iterator[Found]:
    """Every static value of ``structure`` with its path."""
    if isinstance(structure, Static):
        yield Found(path, structure.value)
    elif isinstance(structure, TreeNode):
        for key, child in zip(structure.keys, structure.children, strict=True):
            yield from statics(child, path + _step(structure.type, key))


def classes(structure: Structure) -> Iterator[type]:
    """The classes of containers and of static values, and of what these hold."""
    if isinstance(structure, ArrayAt):
        return
    if isinstance(structure, TreeNode):
        yield structure.type
        for child in (*structure.told_apart, *structure.children):
            yield from classes(child)
    else:
        yield type(structure.value)
    if structure.attributes is not None:
        yield from map(type, structure.attributes.held)


def _parts(value: Any) -> list[tuple[Hashable, str, Any]] | None:
    """Keys, steps of the path and children of a container; None for anything else."""
    kind = type(value)
    items: Iterable[tuple[Hashable, Any]]
    if isinstance(value, dict):
        items = value.items()
    elif kind in (list, tuple):
        items = enumerate(value)
    elif isinstance(value, tuple) and hasattr(kind, "_fields"):
        # A class may have an __iter__ of its own.
        items = zip(kind._fields, tuple.__iter__(value), strict=True)
    elif kind is SimpleNamespace:
        items = vars(value).items()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = dict.fromkeys(
            [*(f.name for f in dataclasses.fields(value)), *_own(value)]
        )
        items = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    else:
        return None
    return [(key, _step(kind, key), child) for key, child in items]


def _own(value: Any) -> list[str]:
    """Attributes that are no fields and not computed from them."""
    return [
        name
        for name in getattr(value, "__dict__", ())
        if not isinstance(getattr(type(value), name, None), cached_property)
    ]


def _step(kind: type, key: Hashable) -> str:
    if not issubclass(kind, (dict, list)) and kind is not tuple:
        return f".{key}"
    try:
        return f"[{key!r}]"
    except RecursionError as error:
        raise _too_deep(f"a key of {an(repr(kind.__name__))}") from error


class Made:
    """A function made of another one, ``fn``: it reads what that one reads, and what
    else it holds decides no result."""

    __slots__ = ()
    fn: Any


def owner(fn: Any) -> Any:
    """The object whose attributes a function can read; None for a plain function."""
    while isinstance(fn, Made):
        fn = fn.fn
    return None if isinstance(fn, FunctionType) else getattr(fn, "__self__", fn)


def attributes(value: Any, is_array: Callable[[Any], bool]) -> Attributes | None:
    """What an object and the objects in it hold now; None for one that holds nothing.

    Equal for as long as nothing is assigned: arrays and what else cannot be looked into
    count by identity.
    """
    held: list[Any] = []
    try:
        if held_by(value) is None and type(value) not in CONTENT:
            return None
        return Attributes(_attributes(value, is_array, held, {}), tuple(held))
    except RecursionError as error:  # of what sets and queues of Python's own hold
        raise _too_deep(type(value).__name__) from error


def _attributes(
    value: Any,
    is_array: Callable[[Any], bool],
    held: list[Any],
    seen: dict[int, int],
) -> tuple[Hashable, ...]:
    """One entry for each object, each before what it holds. (Neither nested nor
    recursive: lists may be linked to any length.)"""
    found: list[Hashable] = []
    ahead = [value]
    while ahead:
        v = ahead.pop()
        kind = type(v)
        if kind in (bool, int, str, type(None)):
            found.append((kind, v))
            continue
        if kind is float:
            found.append((kind, repr(v)))
            continue
        is_leaf = kind not in PROXIES and is_array(v)
        items = None if is_leaf else held_by(v)
        if id(v) in seen:
            found.append(("again", seen[id(v)]))
            continue
        held.append(v)
        if items is None:
            found.append((id(v), CONTENT[kind](v)) if kind in CONTENT else id(v))
            continue
        seen[id(v)] = len(seen)
        keys = tuple(key for key, _ in items)
        found.append((kind, None if is_value(v) else id(v), keys))
        ahead += [child for _, child in reversed(items)]
    return tuple(found)


def is_value(value: Any) -> bool:
    """Whether an object counts by what it holds, and not by its identity: its class
    says when two are equal, as those of bound methods do."""
    kind: Any = type(value)
    own = kind.__eq__ is not object.__eq__ and kind.__hash__ is not None
    return own and not is_weak(kind)


def held_by(value: Any) -> Parts | None:
    """Keys and values of a container or of an object of a class that is not Python's
    own, the owner of a function that is :class:`Made`, the parts of a bound method, a
    view and what else is in ``library_objects``; None for anything else."""
    kind = type(value)
    if kind in PROXIES:
        return _held_weakly(referent(value))
    if isinstance(value, Made):
        found = owner(value)
        return None if found is None else [("fn", found)]
    if isinstance(value, dict):
        return [*value.items(), *_beside(value)]
    if isinstance(value, (list, tuple)):
        return [*enumerate(value), *_beside(value)]
    if isinstance(value, (set, frozenset)):
        is_own = kind in (set, frozenset)
        if is_own and all(type(v) in _NOTHING_IN for v in value):
            return None
        return _unnested(value)
    if isinstance(value, deque):
        return _unnested(value)
    if is_weak(kind):
        return _held_weakly(referent(value))
    known = parts(value)
    if known is not None:
        return known
    own = getattr(value, "__dict__", None)
    if isinstance(value, type) or _is_of_python(kind):
        return None
    held: Parts = [
        (name, getattr(value, name)) for name in slots(kind) if hasattr(value, name)
    ]
    if isinstance(own, dict):
        held += own.items()
        return held
    return held or None


_NOTHING_IN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_BARE = frozenset({dict, list, tuple, deque, set, frozenset})


def _unnested(value: Any) -> Parts:
    """What a set or a queue holds. Raises ``RecursionError`` for containers in it that
    Python's own recursion cannot follow."""
    for part in value:
        if type(part) in _BARE:
            repr(part)
    return [*enumerate(value), *_beside(value)]


def _beside(value: Any) -> Parts:
    """What a container of a class of its own holds beside its items."""
    if type(value) in _BARE:
        return []
    own = getattr(value, "__dict__", None)
    beside = own if isinstance(own, dict) and own is not value else {}
    found: Parts = [((".", name), part) for name, part in beside.items()]
    found += [((".", k), getattr(value, k, None)) for k in slots(type(value))]
    if isinstance(value, defaultdict):
        found.append(((".", "default_factory"), value.default_factory))
    return found


def _held_weakly(target: Any) -> Parts:
    """What the target of a weak reference holds. It is not held itself where it can be
    told by its parts."""
    held = None if target is None else held_by(target)
    if held is None:
        return [("()", target)]
    return [("()", True), *held]


CONTENT: dict[type, Callable[[Any], Hashable]] = {
    set: lambda v: frozenset((type(x), _key(x)) for x in v),
    bytearray: bytes,
    array: lambda v: v.tobytes(),
}
"""Types of Python's own whose objects change and hold no attributes; what they hold."""


def _is_of_python(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def slots(kind: type) -> list[str]:
    """Attributes that objects of a class hold in slots; none of Python's own ones."""
    found: dict[str, None] = {}
    for base in reversed(kind.__mro__):
        own = vars(base)
        if "__slots__" in own and not _is_of_python(base):
            found.update(
                (k, None) for k, v in own.items() if type(v) is MemberDescriptorType
            )
    return list(found)


def _static(value: Any, where: str, is_array: Callable[[Any], bool]) -> Static:
    if isinstance(value, (float, complex)):
        return Static((type(value), _key(value)), None, value)
    try:
        key = _key(value)
        hash(key)
    except TraceError:
        raise
    except RecursionError as error:
        raise _too_deep(where) from error
    except TypeError:
        raise TraceError(
            f"{where or 'the value'} is {an(repr(type(value).__name__))}, neither an "
            "array nor hashable; pass arrays, or dicts, lists, tuples and dataclasses "
            f"of arrays{at(caller_line())}"
        ) from None
    return Static((type(value), key), attributes(value, is_array), value)


def _key(value: Any) -> Hashable:
    """What tells a static value from others that Python calls equal."""
    if isinstance(value, (set, frozenset)):
        return frozenset((type(v), _key(v)) for v in value)
    if type(value) is range:
        return value.start, value.stop, value.step
    if isinstance(value, (float, complex)):
        return repr(value)
    if type(value) is tuple:
        return tuple((type(v), _key(v)) for v in value)
    return cast(Hashable, value)


def _build(structure: Structure, arrays: Iterator[Any]) -> Any:
    if isinstance(structure, Static):
        return structure.value
    if isinstance(structure, ArrayAt):
        return next(arrays)
    children = [_build(c, arrays) for c in structure.children]
    kind = structure.type
    if issubclass(kind, dict):
        return _mapping(structure, children)
    if kind in (list, tuple):
        return kind(children)
    if issubclass(kind, tuple):
        return kind(*children)
    if kind is SimpleNamespace:
        return kind(**dict(zip(map(str, structure.keys), children, strict=True)))
    made = object.__new__(kind)
    for name, child in zip(structure.keys, children, strict=True):
        object.__setattr__(made, str(name), child)
    return made


def _mapping(structure: TreeNode, children: list[Any]) -> Any:
    kind: Any = structure.type
    items = zip(structure.keys, children, strict=True)
    if issubclass(kind, defaultdict):
        made = kind(structure.extra, items)
    else:
        made = kind(
            items if kind is dict or issubclass(kind, OrderedDict) else dict(items)
        )
    if structure.assigned is not None:
        vars(made).clear()
        vars(made).update(structure.assigned)
    return made
