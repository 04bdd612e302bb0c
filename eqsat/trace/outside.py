"""What a function reads outside of its arguments, and whether it has changed.

The bytecode of a function tells which names of modules, closures, classes and objects
it may read; functions that it may call are read as well. :class:`Outside` is what they
held before the trace.
"""

from __future__ import annotations

import dis
import functools
import gc
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from io import BytesIO, StringIO
from types import (
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, NamedTuple

import numpy as np

from eqsat.numpy_api import kind_of, memory_of
from eqsat.support import LIBRARIES, SourceLine, library_objects, pytree
from eqsat.terms import Op
from eqsat.trace.call_arguments import is_array
from eqsat.trace.contents import (
    ArrayFlags,
    Formed,
    LazyNow,
    Seen,
    ShownMemory,
    has_pointer,
    is_buffer,
)
from eqsat.trace.random_state import has_state, owner_of, state_of

MISSING: Final[Any] = object()
"""Stands for the value of a name that is not there."""
_PLAIN = (bool, int, float, str, type(None))
_DISPATCH = vars(functools)["singledispatch"](abs).__code__
"""The code of functions with an implementation for each type."""
_MOST_KEPT = 16
"""Results in a cache that are looked at."""
_WRITERS = frozenset("append add extend insert discard update".split())
"""Methods that write to a container and read nothing of it."""


class OutsideName(NamedTuple):
    """One name, where it is looked up, and what it stood for."""

    space: Any
    """A dictionary (``kind`` "dict"), a cell ("cell"), an object ("attribute" of its
    dictionary, "slot", "class") or a function ("function")."""
    kind: str
    name: Any
    """A text, or the key of a result that was kept."""
    value: Any
    written: str
    """How one writes it: ``Cfg.lr``."""
    line: SourceLine

    def now(self) -> Any:
        """What it stands for now; :data:`MISSING` where it is not there."""
        if self.kind == "dict":
            return self.space.get(self.name, MISSING)
        if self.kind == "attribute":
            return vars(self.space).get(self.name, MISSING)
        if self.kind == "class":
            return type(self.space)
        if self.kind == "cell":
            return _in_cell(self.space)
        return getattr(self.space, self.name, MISSING)

    def is_current(self) -> bool:
        """Whether it stands for the same object, or for an equal number or text."""
        now, then = self.now(), self.value
        if now is then:
            return True
        kind = type(then)
        return kind in _PLAIN and type(now) is kind and repr(now) == repr(then)


class HeldObject(NamedTuple):
    """An object that a function reads as a whole, and what it held."""

    value: Any
    attributes: pytree.Attributes
    written: str
    line: SourceLine

    def is_current(self) -> bool:
        """Whether it holds the same."""
        return pytree.attributes(self.value, is_array) == self.attributes


class Stateful(NamedTuple):
    """An object with a state that drawing from it changes: a random generator."""

    value: Any
    written: str
    line: SourceLine | None


@dataclass(eq=False)
class Outside:
    """What a function read outside of its arguments, as it was before the trace."""

    names: dict[tuple[int, str, Any], OutsideName] = field(default_factory=dict)
    objects: dict[int, HeldObject] = field(default_factory=dict)
    arrays: dict[int, tuple[Formed, str, SourceLine]] = field(default_factory=dict)
    memory: dict[Any, tuple[ShownMemory | ArrayFlags | LazyNow, str, SourceLine]] = (
        field(default_factory=dict)
    )
    """What shows memory and is no array, flags of arrays, and lazy arrays."""
    stateful: dict[int, Stateful] = field(default_factory=dict)
    unknown: dict[str, SourceLine] = field(default_factory=dict)
    """What nothing can watch, as one writes it."""
    cached: set[CodeType] = field(default_factory=set)
    """Code of functions whose results are kept for calls to come."""

    def __bool__(self) -> bool:
        return bool(self.names or self.objects or self.arrays or self.memory)

    def changed(self) -> tuple[str, SourceLine] | None:
        """What has changed and where it is read; None where nothing has."""
        for name in self.names.values():
            if not name.is_current():
                return name.written, name.line
        for held in self.objects.values():
            if not held.is_current():
                return held.written, held.line
        if self.arrays or self.memory:
            seen: Seen = {}
            shown = (*self.arrays.values(), *self.memory.values())
            for memory, written, line in shown:
                if not memory.is_current(seen):
                    return written, line
        return None


# -- reading bytecode ------------------------------------------------------------------


class _Read(NamedTuple):
    """A name in bytecode, and the attributes that are asked of it."""

    kind: str
    name: str
    attributes: tuple[str, ...]
    line: int
    stored: bool
    """Whether an attribute of it is set, which reads nothing."""


_ROOTS = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), "global"),
    "LOAD_FROM_DICT_OR_GLOBALS": "global",
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF"), "free"),
    "LOAD_FROM_DICT_OR_DEREF": "free",
}
_LOCAL = "LOAD_FAST"
"""What the names of steps contain that read local names: of one, or of several at once,
such as ``STORE_FAST_LOAD_FAST`` of Python 3.13."""
_OPERATORS = frozenset(
    f"__{side}{name}__"
    for side in ("", "r", "i")
    for name in (
        *"add sub mul matmul truediv floordiv mod divmod pow lshift rshift and".split(),
        *"or xor neg pos abs invert lt le gt ge eq ne call len iter next".split(),
        *"contains getitem setitem bool int float index round getattr array".split(),
    )
)
"""Methods that operators and functions of Python call."""
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "PUSH_NULL", "NOP"})


@functools.lru_cache(maxsize=4096)
def _reads(code: CodeType) -> tuple[_Read, ...]:
    """The names that the code reads, attributes as far as they are written out."""
    found: list[_Read] = []
    open_: _Read | None = None
    line = code.co_firstlineno
    cells = frozenset(code.co_cellvars + code.co_freevars)
    for step in dis.get_instructions(code):
        line = (step.positions and step.positions.lineno) or line
        op = step.opname
        if op in _NOTHING:
            continue
        if open_ is not None:
            if op in ("LOAD_ATTR", "LOAD_METHOD"):
                asked = (*open_.attributes, str(step.argval))
                open_ = open_._replace(attributes=asked)
                continue
            is_super = op == "LOAD_SUPER_ATTR"  # from Python 3.12 on
            if is_super and found[-1:] and found[-1].name == "__class__":
                del found[-1]  # super(), which is noted as a whole
            else:
                stored = op in ("STORE_ATTR", "DELETE_ATTR")
                found.append(open_._replace(stored=stored))
            open_ = None
            if _is_asking(found[-2:], step):
                asked = (*found[-1].attributes, str(step.argval))
                found.append(found[-1]._replace(attributes=asked))
        for kind, name in _roots(step, cells):
            found += [open_] if open_ is not None else []
            open_ = _Read(kind, name, (), line, False)
    return tuple(dict.fromkeys(found))


def _roots(step: dis.Instruction, cells: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The names that a step reads, and of which kind each is. Of ``cells``, which have
    steps of their own, ``LOAD_FAST`` gives what a function inside closes over."""
    if _LOCAL in step.opname:
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        names = names[-step.opname.count(_LOCAL) :]
        yield from (("free", str(n)) for n in names if n not in cells)
    elif step.opname in _ROOTS:
        yield _ROOTS[step.opname], str(step.argval)


def _is_asking(reads: list[_Read], step: dis.Instruction) -> bool:
    """Whether a step has the name that ``hasattr`` or ``getattr``, the first of
    ``reads``, asks the other one for."""
    asker = reads[0]
    if asker.kind != "global" or asker.name not in ("hasattr", "getattr"):
        return False
    is_text = step.opname == "LOAD_CONST" and isinstance(step.argval, str)
    return is_text and not asker.attributes and len(reads) > 1


_OWN = LIBRARIES - sys.stdlib_module_names
_GENERATED = ("<frozen ", "<__array_function__", "<eqsat ")
"""How the names of files begin that nobody has written."""

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
"""Folders that packages are installed in, of whatever environment."""


@functools.cache
def _library_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (*{sysconfig.get_path(n) for n in names}, *_GENERATED)


@functools.lru_cache(maxsize=4096)
def _is_library(module: object, file: str = "") -> bool:
    """Whether code or a module is of a library, whose names nobody changes."""
    top = str(module).partition(".")[0]
    if top in LIBRARIES or file.startswith(_library_folders()):
        return True
    if _INSTALLED.search(file):  # of a user, of the system, on PYTHONPATH
        return True
    return file == "<string>" and top.startswith("namedtuple_")  # written by Python


def is_of_user(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether the code, with the globals ``names``, is the user's own."""
    return not _is_library(str(names.get("__name__", "")), code.co_filename)


def functions_of(op: Op) -> Iterator[FunctionType]:
    """The functions that a user has given for an op, also what eqsat's own functions
    hold of the user's in closures: the ``combine`` of a reduction."""
    stack: list[Any] = [op]
    seen: set[int] = set()
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            if is_of_user(value.__code__, value.__globals__):
                yield value
                continue
            stack += map(_in_cell, value.__closure__ or ())
            stack += value.__defaults__ or ()
        elif isinstance(value, MethodType):
            stack += value.__func__, value.__self__
        elif isinstance(value, functools.partial):
            stack += value.func, value.args, value.keywords
        elif isinstance(value, (tuple, list)):
            stack += value
        elif isinstance(value, dict):
            stack += value.values()
        elif is_dataclass(value) and not isinstance(value, type):
            stack += vars(value).values()  # an op, its type rule, a lowering


def package_of(fn: Any) -> str:
    """The package that a function is of; empty where that is a library."""
    top = str(getattr(fn, "__module__", "")).partition(".")[0]
    return "" if top in LIBRARIES else top


def _is_users_module(value: ModuleType) -> bool:
    file = getattr(value, "__file__", None) or ""
    return not _is_library(value.__name__, file)


def _is_users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    return not _is_library(kind.__module__, file)


def _in_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _dictionary(kind: type) -> dict[str, Any]:
    """The dictionary behind ``vars`` of a class."""
    found: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return found


def _kept_by(function: Any) -> dict[Any, Any]:
    """The results that a function of ``functools.lru_cache`` keeps."""
    dictionaries = (d for d in gc.get_referents(function) if type(d) is dict)
    return next(d for d in dictionaries if d is not vars(function))


# -- finding what is read --------------------------------------------------------------


class NameReader:
    """Notes what functions read. ``outside`` is what was found."""

    def __init__(self) -> None:
        self.outside = Outside()
        self.codes: dict[int, CodeType] = {}
        """Code that was read, or need not be, by its ``id``."""
        self._seen: set[Any] = set()
        self._held: Seen = {}
        self.caches: list[tuple[Any, str, SourceLine]] = []
        """Functions whose results are kept for calls to come."""
        self._line = SourceLine("<unknown>", 0)

    def function(self, f: FunctionType, first: Any = MISSING) -> None:
        """Note what ``f`` reads, called with ``first`` as its first argument where that
        is known."""
        code = f.__code__
        key = f, id(first)
        if key in self._seen or not is_of_user(code, f.__globals__):
            return
        self._seen.add(key)
        self._line = SourceLine(code.co_filename, code.co_firstlineno)
        self._note(f, "function", "__code__", code, f.__name__)
        for name in ("__defaults__", "__kwdefaults__"):
            held = getattr(f, name)
            if held is not None:
                self._note(f, "function", name, held, f"{f.__name__}.{name}")
                self.whole(held, f"{f.__name__}.{name}")
        cells = dict(zip(code.co_freevars, f.__closure__ or (), strict=True))
        bound = {}
        if first is not MISSING and code.co_argcount:
            bound[code.co_varnames[0]] = first
        self.code(code, f.__globals__, cells, bound)

    def code(
        self,
        code: CodeType,
        names: dict[str, Any],
        cells: Mapping[str, CellType],
        bound: Mapping[str, Any],
    ) -> None:
        """Note what code reads: of its globals ``names``, of ``cells`` around it, and
        of local names whose values are known."""
        self.codes[id(code)] = code
        for read in _reads(code):
            self._line = SourceLine(code.co_filename, read.line)
            value = MISSING
            if read.kind == "global":
                if read.name in names:  # else it is one of Python's own
                    value = self._name(names, read.name, read.name)
            elif read.name in bound:
                value = bound[read.name]
            elif read.name in cells:
                cell = cells[read.name]
                value = _in_cell(cell)
                self._note(cell, "cell", read.name, value, read.name)
            if value is not MISSING:
                self._follow(value, read)
        below = _in_cell(cells["__class__"]) if "__class__" in cells else MISSING
        if isinstance(below, type) and "super" in code.co_names:
            _note_super(self, below, next(iter(bound.values()), MISSING), code)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self.code(inner, names, cells, bound)

    def _follow(self, value: Any, read: _Read) -> None:
        """Note the attributes that are read of ``value``, one after the other."""
        written, owner = read.name, MISSING
        for name in read.attributes:
            if isinstance(value, ModuleType):
                own = vars(value)
                if _is_users_module(value):
                    found = self._name(own, name, f"{written}.{name}")
                else:
                    found = own.get(name, MISSING)
            elif isinstance(value, type):
                found = self._of_class(value, name, f"{written}.{name}")
                if isinstance(found, classmethod):
                    owner = value
                if isinstance(found, (staticmethod, classmethod)):
                    found = found.__func__
            elif isinstance(value, (FunctionType, pytree.Made)):
                self.whole(value, written)
                found = vars(value).get(name, MISSING)
                self._note(value, "attribute", name, found, f"{written}.{name}")
            elif not _is_users_class(type(value)):
                if has_state(owner_of(value)):
                    self.whole(value, f"{written}.{name}")
                elif name not in _WRITERS:
                    self.whole(value, written)
                if name == "flags" and isinstance(value, np.ndarray):
                    noted = ArrayFlags(value), f"{written}.{name}", self._line
                    self.outside.memory.setdefault((id(value), name), noted)
                return
            else:
                owner, found = value, self._of_object(value, name, f"{written}.{name}")
            if found is MISSING:
                return
            value, written = found, f"{written}.{name}"
        if isinstance(value, FunctionType) and owner is not MISSING:
            self.function(value, owner)
        elif not read.stored:
            self.whole(value, written)

    def _of_class(self, kind: type, name: str, written: str) -> Any:
        """What a class or a base of it has under a name, as it is written there."""
        found = self._bases(kind.__mro__, name, written)
        meta: type = type(kind)
        if found is MISSING and _is_users_class(meta):
            found = self._bases(meta.__mro__, name, written)
            if found is MISSING or hasattr(found, "__get__"):  # which it may compute
                self.outside.unknown.setdefault(written, self._line)
                return MISSING
        return found

    def _bases(self, bases: Iterable[type], name: str, written: str) -> Any:
        """What the first of some classes to have a name has under it."""
        for base in bases:
            own = vars(base)
            if _is_users_class(base):
                self._name(_dictionary(base), name, written)
            if name in own:
                return own[name]
        return MISSING

    def _of_object(self, value: Any, name: str, written: str) -> Any:
        """What an object of a class of the user has under a name: a value, or a
        function that is called with the object."""
        kind = type(value)
        self._note(value, "class", "__class__", kind, written)
        there = next((vars(b)[name] for b in kind.__mro__ if name in vars(b)), MISSING)
        if isinstance(kind.__getattribute__, FunctionType):
            self.outside.unknown.setdefault(written, self._line)
            return MISSING
        if isinstance(there, MemberDescriptorType):
            found = getattr(value, name, MISSING)
            self._note(value, "slot", name, found, written)
            return found
        asked = there.fget if isinstance(there, property) else None
        asked = getattr(there, "func", None) if asked is None else asked
        if isinstance(asked, FunctionType):  # of a property, or a cached one
            self._of_class(kind, name, written)
            self.function(asked, value)
            if isinstance(there, property):
                return MISSING
        elif hasattr(type(there), "__set__"):
            if _is_users_class(type(there)):
                self.outside.unknown.setdefault(written, self._line)
            else:  # a field of a named tuple, the value of an Enum
                self.whole(value, written.rpartition(".")[0])
            return MISSING
        own = getattr(value, "__dict__", None)
        if type(own) is dict:
            found = own.get(name, MISSING)
            self._note(value, "attribute", name, found, written)
            if found is not MISSING:
                return found
        if there is MISSING:
            self._bases(kind.__mro__, name, written)
            more = getattr(kind, "__getattr__", None)
            if isinstance(more, FunctionType):
                self.function(more, value)
            return MISSING
        self._of_class(kind, name, written)
        if isinstance(there, staticmethod):
            self.whole(there.__func__, written)
            return MISSING
        if isinstance(there, classmethod):
            self.whole(MethodType(there.__func__, kind), written)
            return MISSING
        return there

    def _name(self, space: dict[Any, Any], name: Any, written: str) -> Any:
        value = space.get(name, MISSING)
        self._note(space, "dict", name, value, written)
        return value

    def _note(self, space: Any, kind: str, name: Any, value: Any, written: str) -> None:
        noted = OutsideName(space, kind, name, value, written, self._line)
        self.outside.names.setdefault((id(space), kind, name), noted)

    def whole(self, value: Any, written: str) -> None:
        """Note all that can be read of a value, and what functions in it read."""
        key = "whole", id(value)
        if isinstance(value, _PLAIN) or key in self._seen:
            return
        self._seen.add(key)
        state = owner_of(value)
        if has_state(state):
            noted = Stateful(state, written, self._line)
            self.outside.stateful.setdefault(id(state), noted)
            if isinstance(state, (StringIO, BytesIO)):
                self._object(state, written)
        elif library_objects.is_known(type(value)):
            self._object(value, written)
        elif isinstance(value, np.ndarray):
            self._array(value, written)
        elif _is_lazy(value):
            lazy = LazyNow(value), written, self._line
            self.outside.memory.setdefault(id(value), lazy)
        elif is_buffer(value):
            self._buffer(value, written)
        elif kind_of(value) is not None and not _is_users_class(type(value)):
            array = memory_of(value)
            if array is not None:
                self.whole(array, written)
        elif isinstance(value, FunctionType):
            if value.__code__ is _DISPATCH:
                self.whole(gc.get_referents(vars(value)["registry"])[0], written)
            self.function(value)
        elif isinstance(value, functools.singledispatchmethod):
            self.whole(value.dispatcher, written)
        elif isinstance(value, MethodType):
            self.callable(value)
        elif isinstance(value, pytree.Made):
            self.callable(value.fn)
        elif isinstance(value, type):
            self._class(value, written)
        elif isinstance(value, ModuleType):
            self._module(value, written)
        elif isinstance(value, Op):
            for f in functions_of(value):
                self.function(f)
        elif state is not value:  # a method of Python's own
            if value.__name__ not in _WRITERS:
                self.whole(state, written)
        elif type(value).__module__.partition(".")[0] in _OWN or is_array(value):
            return
        else:
            self._object(value, written)

    def _array(self, array: np.ndarray[Any, Any], written: str) -> None:
        """Note an array: its bytes, the objects in it and what is assigned to it."""
        noted = Formed(array, self._held), written, self._line
        self.outside.arrays.setdefault(id(array), noted)
        if array.dtype.hasobject:
            self.whole(array.tolist(), written)
        kind = type(array)
        if kind is not np.ndarray:
            self.whole(getattr(array, "_mask", None), written)  # of np.ma
            if _is_users_class(kind):
                self._class(kind, kind.__name__)
                self.whole(getattr(array, "__dict__", None), written)

    def _buffer(self, value: Any, written: str) -> None:
        """Note an object that shows memory and is no array."""
        noted = ShownMemory(value), written, self._line
        self.outside.memory.setdefault(id(value), noted)
        if isinstance(value, np.void) and value.dtype.hasobject:
            self.whole(value.item(), written)
        elif has_pointer(type(value)):
            self.outside.unknown.setdefault(written, self._line)
        if _is_users_class(type(value)):
            self._object(value, written)

    def callable(self, fn: Callable[..., Any]) -> None:
        """Note what a function reads, or a method, or an object that is called."""
        while isinstance(fn, pytree.Made):
            fn = fn.fn
        if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
            self.function(fn.__func__, fn.__self__)
        elif isinstance(fn, FunctionType):
            self.function(fn)
        else:
            self.whole(fn, getattr(fn, "__name__", type(fn).__name__))

    def _class(self, kind: type, written: str) -> None:
        """Note what stands in a class of the user, and what its methods read."""
        for base in filter(_is_users_class, kind.__mro__):
            for name, value in list(vars(base).items()):
                functions = [*_functions_of(getattr(value, "__func__", value))]
                for f in functions:
                    self.function(f)
                if functions or _is_data(value):
                    self._name(_dictionary(base), name, f"{written}.{name}")
                if _is_data(value):
                    self.whole(value, f"{written}.{name}")

    def classes(self, kinds: Iterable[type]) -> None:
        """Note what the code that was read may ask of the classes of arguments: what
        stands in them under the names in it, and how they take part in operations."""
        spaces = {
            kind: {n for b in kind.__mro__ if _is_users_class(b) for n in vars(b)}
            for kind in kinds
        }
        asked: set[str] = set()
        while new := self._asked() - asked:
            asked |= new
            for kind, own in spaces.items():
                for name in sorted(own & new):
                    self._of_argument(kind, name)
        # Operators are not written by their names. What they read is noted when they
        # run: others may be there that nobody calls.
        for kind, own in spaces.items():
            for name in sorted(own & _OPERATORS):
                self._of_class(kind, name, f"{kind.__name__}.{name}")

    def _asked(self) -> set[str]:
        """The names, and texts that may be names, in the user's code."""
        found: set[str] = set()
        for code in self.codes.values():
            if not _is_library("", code.co_filename):
                found |= {*code.co_names}
                found |= {c for c in code.co_consts if isinstance(c, str)}
        return found

    def _of_argument(self, kind: type, name: str) -> None:
        written = f"{kind.__name__}.{name}"
        found = self._of_class(kind, name, written)
        functions = [*_functions_of(getattr(found, "__func__", found))]
        for f in functions:
            self.function(f)
        if not functions and found is not MISSING and not hasattr(found, "__get__"):
            self.whole(found, written)

    def _module(self, module: ModuleType, written: str) -> None:
        if _is_users_module(module):
            for name, value in list(vars(module).items()):
                if not name.startswith("__") and _is_data(value):
                    self._name(vars(module), name, f"{written}.{name}")
                    self.whole(value, f"{written}.{name}")

    def _object(self, value: Any, written: str) -> None:
        """Note what an object or a container holds."""
        line = self._line
        if isinstance(value, functools._lru_cache_wrapper):
            code = getattr(value.__wrapped__, "__code__", None)
            if isinstance(code, CodeType):
                self.outside.cached.add(code)
            self.caches.append((value, written, line))
            self.whole(value.__wrapped__, written)
        for one in (value, library_objects.referent(value)):
            if _is_users_class(type(one)):
                self._class(type(one), type(one).__name__)
        self._line = line
        attributes = pytree.attributes(value, is_array)
        if attributes is None:
            return
        self.outside.objects.setdefault(
            id(value), HeldObject(value, attributes, written, line)
        )
        for held in attributes.held:
            if held is not value:
                self._line = line
                self._part(held, written)

    def _part(self, held: Any, written: str) -> None:
        """Note what is read of a part of an object that is noted."""
        state = owner_of(held)
        if has_state(state) and state_of(state) is None:
            return  # nobody knows whether it is asked
        one = (
            library_objects.referent(held)
            if library_objects.is_weak(type(held))
            else held
        )
        if one is held and (_is_whole(held) or pytree.held_by(held) is None):
            self.whole(held, written)
        elif _is_users_class(type(one)):
            self._class(type(one), type(one).__name__)


def _note_super(reader: NameReader, below: type, first: Any, code: CodeType) -> None:
    """Note what the names in code may be of ``super()`` in the class ``below``, in a
    call with ``first``."""
    kind = below
    if first is not MISSING:
        kind = first if isinstance(first, type) else type(first)
    order = kind.__mro__
    bases = order[order.index(below) + 1 :] if below in order else ()
    known = {name for base in filter(_is_users_class, bases) for name in vars(base)}
    for name in sorted(known.intersection(code.co_names)):
        found = reader._bases(bases, name, f"super().{name}")
        functions = [*_functions_of(getattr(found, "__func__", found))]
        for f in functions:
            reader.function(f, first)
        if not functions and not hasattr(found, "__get__"):
            reader.whole(found, f"super().{name}")


def note_kept(reader: NameReader) -> None:
    """Note some results that functions have kept, after they were called: whether a
    cache is cleared is seen by these. None of a full cache, which drops results for
    others at any time."""
    for function, written, line in reader.caches:
        reader._line = line
        most = function.cache_parameters()["maxsize"]
        kept = _kept_by(function)
        if most is None or len(kept) < most:
            latest = 1 if most else _MOST_KEPT
            for key in [*kept][-latest:]:
                reader._name(kept, key, f"{written}.cache_info()")


def _is_whole(value: Any) -> bool:
    """Whether more counts of a value than its attributes."""
    known = isinstance(value, (pytree.Made, np.ndarray)) or is_buffer(value)
    return known or _is_lazy(value) or kind_of(value) is not None


def _is_lazy(value: Any) -> bool:
    return getattr(type(value), "has_value", False) is True


def _is_data(value: Any) -> bool:
    kinds = (*_PLAIN, list, tuple, dict, set, np.ndarray, np.generic, complex)
    return isinstance(value, kinds) or _is_lazy(value)


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions behind what stands in the body of a class."""
    for f in (value, getattr(value, "fget", None), getattr(value, "func", None)):
        if isinstance(f, FunctionType):
            yield f
