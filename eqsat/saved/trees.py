"""What is around the arrays of a call, as plain data without classes of a user's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from eqsat.support import ArgumentError, SavedProgramError, an, counted, pytree

ARRAY, VALUE = "array", "value"
_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple}
_MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict}
_NAMESPACE, _OBJECT = "SimpleNamespace", "object"
_KINDS = {*_SEQUENCES, *_MAPPINGS, _NAMESPACE, _OBJECT, ARRAY, VALUE}


@dataclass(frozen=True)
class PlainValue:
    """A number, a text, None or a dtype, as text."""

    kind: str
    text: str = ""

    @property
    def value(self) -> Any:
        """What it stands for. Raises :class:`ValueError` for what stands for
        nothing."""
        if self.kind not in _PLAIN:
            raise ValueError(f"a value of kind {self.kind!r}")
        return _PLAIN[self.kind][1](self.text)


def _numpy_type(name: str) -> Any:
    found = getattr(np, name, None)
    if not (isinstance(found, type) and issubclass(found, np.generic)):
        raise ValueError(f"numpy has no number type {name!r}")
    return found


_PLAIN: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "NoneType": (lambda v: "", lambda text: None),
    "bool": (str, lambda text: {"True": True, "False": False}[text]),
    "int": (str, int),
    "float": (float.hex, float.fromhex),
    "complex": (
        lambda v: f"{v.real.hex()} {v.imag.hex()}",
        lambda text: complex(*map(float.fromhex, text.split(" "))),
    ),
    "str": (str, str),
    "bytes": (bytes.hex, bytes.fromhex),
    "type": (lambda v: v.__name__, _numpy_type),
    "dtype": (lambda v: v.name, lambda text: np.dtype(_numpy_type(text))),
}
"""How values of a type are written, and read."""


def plain(value: Any, where: str) -> PlainValue:
    """``value`` as text. Raises :class:`SavedProgramError` for what no file can
    hold."""
    kind = "dtype" if isinstance(value, np.dtype) else type(value).__name__
    if kind in _PLAIN:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            made = PlainValue(kind, _PLAIN[kind][0](value))
            again = made.value
            if type(again) is type(value) and repr(again) == repr(value):
                return made
    raise SavedProgramError(
        f"{where} is {an(repr(type(value).__name__))}, which a file of a saved program "
        "cannot hold; expected None, numbers, texts, bytes, dtypes, arrays, or lists, "
        "tuples and dicts of them"
    )


@dataclass(frozen=True)
class Tree:
    """A container: of which kind, what tells its children apart, and the children. An
    array and a plain value are trees without children."""

    kind: str
    keys: tuple[PlainValue, ...] = ()
    children: tuple[Tree, ...] = ()
    name: str = ""
    """The class of an object with fields, a named tuple or a dataclass, with its
    module."""

    @property
    def arrays(self) -> int:
        """How many arrays there are in it."""
        return int(self.kind == ARRAY) + sum(c.arrays for c in self.children)

    @property
    def classes(self) -> set[str]:
        """The classes of the objects in it."""
        own = {self.name} if self.kind == _OBJECT else set()
        return own.union(*(c.classes for c in self.children))

    def paths(self, where: str) -> list[str]:
        """How one writes the way to each array, from ``where``."""
        if self.kind in (ARRAY, VALUE):
            return [where] * self.arrays
        pairs = zip(self.keys, self.children, strict=True)
        return [p for k, c in pairs for p in c.paths(where + self.step(k.value))]

    @property
    def has_fields(self) -> bool:
        """Whether its children are attributes."""
        return self.kind in (_NAMESPACE, _OBJECT)

    def step(self, key: Any) -> str:
        """How one writes the way to a child: ``['w']``."""
        return f".{key}" if self.has_fields else f"[{key!r}]"

    def check(self, depth: int = 0) -> None:
        """Raise :class:`ValueError` for a tree that stands for nothing."""
        if depth > pytree.MOST_DEPTH:
            raise ValueError(f"more than {pytree.MOST_DEPTH} containers in each other")
        if self.kind not in _KINDS:
            raise ValueError(f"a container of kind {self.kind!r}")
        if bool(self.name) != (self.kind == _OBJECT):
            raise ValueError(f"{an(self.kind)} of class {self.name!r}")
        keys = [k.value for k in self.keys]
        if self.kind in (ARRAY, VALUE):
            if self.children or len(keys) != (self.kind == VALUE):
                raise ValueError(f"{an(self.kind)} with children")
            return
        if len(keys) != len(self.children):
            raise ValueError(
                f"{counted(len(keys), 'key')} of {len(self.children)} children"
            )
        if len({(type(k), k) for k in keys}) != len(keys):
            raise ValueError("a key twice")
        if self.kind in _SEQUENCES and keys != list(range(len(keys))):
            raise ValueError(f"{an(self.kind)} with keys {keys}")
        if self.has_fields and not all(isinstance(k, str) for k in keys):
            raise ValueError(f"fields {keys}")
        for c in self.children:
            c.check(depth + 1)


def class_name(kind: type) -> str:
    """A class with its module, as :attr:`Tree.name` has it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def tree_of(structure: pytree.Structure, where: str) -> Tree:
    """The structure of a call's arguments or results. ``where`` is what it is called.
    Raises :class:`SavedProgramError` for what a file cannot hold."""
    if isinstance(structure, pytree.ArrayAt):
        return Tree(ARRAY)
    if isinstance(structure, pytree.Static):
        return Tree(VALUE, (plain(structure.value, where),))
    kind, name = structure.type, ""
    known = {k: n for n, k in {**_SEQUENCES, **_MAPPINGS}.items()}
    known[SimpleNamespace] = _NAMESPACE
    if structure.extra is not None or structure.assigned:
        raise SavedProgramError(
            f"{where} is {an(repr(kind.__name__))} with more than its items, which a "
            "file of a saved program cannot hold; pass or return a dict"
        )
    if kind not in known:
        if issubclass(kind, dict):
            raise SavedProgramError(
                f"{where} is {an(repr(kind.__name__))}, which a file of a saved "
                "program cannot hold; pass or return a dict"
            )
        name = class_name(kind)
    keys = tuple(plain(k, f"a key of {where}") for k in structure.keys)
    of = Tree(known.get(kind, _OBJECT), keys, name=name)
    pairs = zip(structure.keys, structure.children, strict=True)
    children = tuple(tree_of(c, f"{where}{of.step(k)}") for k, c in pairs)
    return replace(of, children=children)


def arrays_in(tree: Tree, value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The arrays of an argument that must be as ``tree`` is, with their paths. Raises
    :class:`ArgumentError` where it is not."""
    if tree.kind == ARRAY:
        yield where, value
        return
    if tree.kind == VALUE:
        expected = tree.keys[0]
        fixed = expected.value
        if type(value) is not type(fixed) or repr(value) != repr(fixed):
            raise ArgumentError(
                f"argument {where} is {value!r:.60}, expected {fixed!r:.60}: the "
                "program was saved for this value alone"
            )
        return
    children = _children(tree, value, where)
    for k, c in zip(tree.keys, tree.children, strict=True):
        key = k.value
        yield from arrays_in(c, children[key], f"{where}{tree.step(key)}")


def _children(tree: Tree, value: Any, where: str) -> Mapping[Any, Any]:
    """The parts of a container of a call, by their keys."""
    keys = [k.value for k in tree.keys]
    wanted = tree.name or tree.kind
    actual = class_name(type(value)) if tree.kind == _OBJECT else type(value).__name__
    found: dict[Any, Any] | None = None
    if actual != wanted:
        pass
    elif tree.kind in _SEQUENCES:
        found = dict(enumerate(value))
    elif tree.kind in _MAPPINGS:
        found = dict(value)
    elif isinstance(value, tuple):
        found = dict(zip(getattr(type(value), "_fields", ()), value, strict=False))
    elif tree.kind == _NAMESPACE or is_dataclass(value):
        found = {k: getattr(value, k) for k in keys if hasattr(value, k)}
        found |= getattr(value, "__dict__", {})
    if found is None:
        raise ArgumentError(
            f"argument {where} is {an(repr(actual))}, expected {an(repr(wanted))}"
        )
    missing = [k for k in keys if k not in found]
    more = [k for k in found if k not in keys]
    if missing or more:
        said = [f"lacks {k!r}" for k in missing[:3]] + [f"has {k!r}" for k in more[:3]]
        raise ArgumentError(
            f"argument {where} {', '.join(said)}; the program was saved for "
            f"{an(repr(wanted))} with {', '.join(map(repr, keys)) or 'nothing in it'}"
        )
    return found


def built(
    tree: Tree, arrays: Iterator[Any], classes: Mapping[str, type] | None = None
) -> Any:
    """The result, with ``arrays`` in their places. ``classes``: those of objects in it,
    by :func:`class_name`."""
    if tree.kind == ARRAY:
        return next(arrays)
    if tree.kind == VALUE:
        return tree.keys[0].value
    children: Sequence[Any] = [built(c, arrays, classes) for c in tree.children]
    if tree.kind in _SEQUENCES:
        return _SEQUENCES[tree.kind](children)
    keys = [k.value for k in tree.keys]
    if tree.kind in _MAPPINGS:
        return _MAPPINGS[tree.kind](zip(keys, children, strict=True))
    fields = dict(zip(keys, children, strict=True))
    if tree.kind == _NAMESPACE:
        return SimpleNamespace(**fields)
    kind: Any = (classes or {})[tree.name]
    if issubclass(kind, tuple):
        return kind(*children)
    made = object.__new__(kind)
    for name, child in fields.items():
        object.__setattr__(made, name, child)
    return made
