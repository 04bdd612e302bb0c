"""Functions of NumPy that make arrays, called by a function while it is traced.

``np.zeros(3)`` is a call with plain numbers, which NumPy gives an array of its own for.
While a function is traced, the attribute ``zeros`` of the module ``numpy`` is another
one for the user's code in this thread: it gives a :class:`.KnownArray`, to which traced
values can be written. Other code and other threads have NumPy's own.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from eqsat.numpy_api import (
    held,
    judged,
    plain_number,
    settled,
    stacked,
    supported_functions,
)
from eqsat.support import (
    TraceValueError,
    at,
    caller_line,
    untraceable,
    unwatched_methods,
)
from eqsat.terms import check_range
from eqsat.trace.error_kinds import calls_of_numpys_kinds
from eqsat.trace.known_array import (
    KnownArray,
    UsedArrays,
    call,
    graph_in,
    is_tracing,
    known_in,
    live,
    made,
    makes_known,
    note_arguments,
    owner_of,
    tracing,
)
from eqsat.trace.tracer import Tracer
from eqsat.trace.written_places import WRITES

_OF_NUMBERS = (
    "arange array asanyarray asarray ascontiguousarray asfortranarray empty eye "
    "frombuffer fromfunction fromiter full geomspace identity indices ix_ linspace "
    "logspace ndarray ones require tri tril_indices triu_indices vander zeros"
).split()
"""Functions that make arrays of what need not be traced."""
_NUMBER_TYPES = (
    "bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 int_ uint intp uintp "
    "byte ubyte short ushort intc uintc long ulong longlong ulonglong half single "
    "double float16 float32 float64 complex64 complex128 csingle cdouble"
).split()
"""Types of numbers, called: ``np.float32(x.sum())``."""
_REDUCING = frozenset({"accumulate", "reduce"})
"""Methods of ufuncs that take an array in a list."""
_KEYED = "c_ mgrid ogrid r_".split()
_OF_SEVERAL = frozenset(
    {
        *(np.broadcast_arrays, np.choose, np.column_stack, np.concatenate),
        *(np.dstack, np.hstack, np.meshgrid, np.select, np.stack, np.vstack),
    }
)
"""Functions that take several arrays in a list."""


@unwatched_methods
@calls_of_numpys_kinds
class _Maker:
    """A function of NumPy that gives known arrays while a function is traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.__wrapped__
        if graph_in((args, kwargs)) is None:
            found = function(*live(args), **live(kwargs))
            return made(found, tuple(known_in((args, kwargs))), function)
        if function in _OF_TRACED:
            found = _OF_TRACED[function](*settled(args), **settled(kwargs))
            return made(found, (), function)  # np.full_like(x, 7) is known
        gather = _gathered_parts if function in _OF_SEVERAL else _gathered
        if args and function is not np.block:  # which tells lists from arrays
            args = tuple(map(gather, args))
        named = {k: gather(v) for k, v in kwargs.items()}
        written = args[:1] if function in WRITES else named.get("out")
        return call(function, args, named, written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __eq__(self, other: object) -> bool:
        own = other.__wrapped__ if isinstance(other, _Maker) else other
        return bool(self.__wrapped__ is own)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)


@unwatched_methods
class _KeyedMaker:
    """``np.r_`` and its like."""

    def __init__(self, keyed: Any) -> None:
        self._keyed = keyed

    def __getitem__(self, key: Any) -> Any:
        if graph_in(key) is None:
            return made(self._keyed[live(key)], tuple(known_in(key)))
        return _joined(self._keyed, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keyed, name)


@unwatched_methods
class _UfuncOfLists:
    """A ufunc of which a method is asked for that reduces: of lists, too, that hold
    traced values, at which NumPy does not look."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ufunc, name)
        return _Reduction(found) if name in _REDUCING else found


@calls_of_numpys_kinds
class _Reduction(_Maker):
    """The method ``reduce`` or ``accumulate`` of a ufunc."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = ("out", "keepdims", "initial", "where")
        named = dict(zip(names, args[3:], strict=False))
        return super().__call__(*args[:3], **named, **kwargs)


def _gathered(value: Any) -> Any:
    """A list that holds traced values as one array; any other value as it is."""
    lists = isinstance(value, (list, tuple)) and graph_in(value) is not None
    return stacked(value) if lists else value


def _gathered_parts(value: Any) -> Any:
    return [*map(_gathered, value)] if isinstance(value, (list, tuple)) else value


# -- of traced values ------------------------------------------------------------------


def _array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: str | None = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    judged("np.array", "order", order)
    if ndmin > 64 or isinstance(copy, str):
        said = f"np.array: ndmin={ndmin}, copy={copy!r}, which NumPy does not take"
        raise TraceValueError(f"{said}{at(caller_line())}")
    lists = isinstance(object, (list, tuple))
    found = stacked(_fits(object, dtype, "np.array") if lists else object)
    if dtype is not None and np.dtype(dtype) != found.dtype:
        if copy is False:
            said = f"np.array: copy=False of {found.dtype} as {np.dtype(dtype)}"
            raise TraceValueError(f"{said}, which needs a copy{at(caller_line())}")
        found = found.astype(dtype)
    elif copy and found is object:
        found = np.copy(found)
    elif found is object and found.shape and order in ("C", "F"):
        lie = np.ascontiguousarray if order == "C" else np.asfortranarray
        found = found.result_of(lie, (found,), {}, Tracer(found.term))
    if not getattr(found, "is_array", True):  # a number of NumPy
        found = Tracer(found.term, True)
    missing = ndmin - len(found.shape)
    return found.reshape((1,) * missing + found.shape) if missing > 0 else found


def _fits(value: Any, dtype: Any, how: str) -> Any:
    """``value`` with the numbers in it as ``dtype`` holds them: an error where an
    integer dtype does not."""
    if dtype is None or np.dtype(dtype).kind not in "iu":
        return value
    if isinstance(value, (list, tuple)):
        return [_fits(v, dtype, how) for v in value]
    value = plain_number(value, np.dtype(dtype))
    return held(value, dtype, how) if type(value) in (int, float) else value


def _asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    **kwargs: Any,
) -> Any:
    return _array(a, dtype, copy=copy, order=order)


def _in_order(order: str) -> Callable[..., Any]:
    """``np.ascontiguousarray`` or ``np.asfortranarray``: a copy where the elements lie
    otherwise in memory."""

    def in_order(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
        return _array(a, dtype, copy=None, order=order, ndmin=1)

    return in_order


def _has_negative(shape: Any) -> bool:
    sizes = np.ravel(np.asarray(shape))
    return sizes.dtype.kind == "i" and bool(np.any(sizes < 0))


def _full(shape: Any, fill_value: Any, dtype: Any = None, *args: Any, **kw: Any) -> Any:
    if type(fill_value) is int:
        if dtype is not None and np.dtype(dtype).kind == "b":
            check_range("np.full", fill_value, np.dtype(int))
        fill_value = _fits(fill_value, dtype, "np.full")
    fill = _array(fill_value, dtype, copy=None)
    if _has_negative(shape):
        said = f"np.full: shape {shape}, expected sizes from 0 on"
        raise TraceValueError(f"{said}{at(caller_line())}")
    return np.copy(np.broadcast_to(fill, shape))


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, *args: Any, shape: Any = None, **kw: Any
) -> Any:
    a = stacked(a)
    return _full(
        a.shape if shape is None else shape,
        fill_value,
        a.dtype if dtype is None else dtype,
    )


def _of_type(kind: type[np.generic]) -> Callable[[Any], Any]:
    """``kind(x)``: a number for an array without axes."""
    return lambda x: stacked(x).astype(kind)[()]


_OF_TRACED: dict[Any, Callable[..., Any]] = {
    **{kind: _of_type(kind) for kind in (vars(np)[n] for n in _NUMBER_TYPES)},
    np.isscalar: lambda element: not getattr(element, "is_array", True),
    np.array: _array,
    np.asarray: _asarray,
    np.asanyarray: _asarray,
    np.ascontiguousarray: _in_order("C"),
    np.asfortranarray: _in_order("F"),
    np.full: _full,
    np.full_like: _full_like,
}


def _joined(keyed: Any, key: Any) -> Any:
    """``np.r_[key]`` or ``np.c_[key]``, with traced values."""
    parts = key if isinstance(key, tuple) else (key,)
    columns = keyed is np.c_
    if (keyed is not np.r_ and not columns) or any(isinstance(p, str) for p in parts):
        raise untraceable(
            "np.r_ and np.c_ with a text, np.mgrid and np.ogrid of traced values "
            f"cannot be traced\n  write np.concatenate{at(caller_line())}"
        )
    joined, kinds = [], []
    for p in parts:
        if isinstance(p, slice):
            p = np.r_[p]
        plain = isinstance(p, (int, float))  # whose dtype the others decide
        one = stacked(p)
        kinds.append(p if plain else one.dtype)
        missing = (2 if columns else 1) - len(one.shape)
        if missing > 0:
            end = (1,) * missing
            one = one.reshape(one.shape + end if columns else end + one.shape)
        joined.append(one)
    dtype = np.result_type(*kinds)
    for kind in kinds:
        _fits(kind, dtype, "np.c_" if columns else "np.r_")
    return np.concatenate([j.astype(dtype) for j in joined], -1 if columns else 0)


# -- in the place of NumPy's -----------------------------------------------------------


class _Attribute:
    """An attribute of the module ``numpy`` that the user's code has another one of."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, module: ModuleType | None, kind: type | None = None) -> Any:
        if module is None:
            return self
        try:
            own = vars(module)[self.name]
        except KeyError:
            raise AttributeError(f"module 'numpy' has no {self.name!r}") from None
        frame = sys._getframe(1)
        if str(frame.f_globals.get("__name__")).startswith("eqsat."):
            return own
        if not is_tracing():
            return own
        if not makes_known(frame) or not _asks(frame, self.name):
            return own
        if isinstance(own, np.ufunc):
            reduces = _attribute_of(frame.f_code, frame.f_lasti) in _REDUCING
            return _UfuncOfLists(own) if reduces else own
        if isinstance(own, type) and not _calls(frame.f_code, frame.f_lasti):
            return own
        return (_KeyedMaker if self.name in _KEYED else _Maker)(own)

    def __set__(self, module: ModuleType, value: Any) -> None:
        vars(module)[self.name] = value

    def __delete__(self, module: ModuleType) -> None:
        del vars(module)[self.name]


def _asks(frame: FrameType, name: str) -> bool:
    """Whether the code in ``frame`` asks for the attribute itself: what it calls may be
    machine code, which has no frame and takes what it gets for NumPy's own."""
    code = frame.f_code
    if name not in code.co_names:
        return False
    steps, at_ = code.co_code, frame.f_lasti
    step = dis.opname[steps[at_]]
    if step not in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
        return False
    place, shift = steps[at_ + 1], 8
    while at_ >= 2 and steps[at_ - 2] == dis.EXTENDED_ARG:
        at_ -= 2
        place |= steps[at_ + 1] << shift
        shift += 8
    if step == "LOAD_ATTR" and sys.version_info >= (3, 12):
        place >>= 1
    return code.co_names[place] == name


@lru_cache(maxsize=1024)
def _calls(code: CodeType, place: int) -> bool:
    """Whether ``code`` calls the attribute of a name that it asks for at ``place``:
    ``np.ndarray(3)``, and not ``isinstance(x, np.ndarray)``."""
    steps = [s for s in dis.get_instructions(code) if s.opname != "EXTENDED_ARG"]
    here = next(i for i, s in enumerate(steps) if s.offset == place)
    before, module, asked, behind = steps[max(here - 2, 0) : here + 2]
    if behind.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return False
    with_null = module.opname == "LOAD_GLOBAL" and bool((module.arg or 0) & 1)
    if asked.opname == "LOAD_ATTR" and sys.version_info >= (3, 12):
        with_null = with_null or bool((asked.arg or 0) & 1)
    nulls = before.opname, behind.opname
    return with_null or "PUSH_NULL" in nulls or asked.opname == "LOAD_METHOD"


@lru_cache(maxsize=1024)
def _attribute_of(code: CodeType, place: int) -> str | None:
    """The attribute that ``code`` asks for of what it has got at ``place``."""
    steps = [s for s in dis.get_instructions(code) if s.opname != "EXTENDED_ARG"]
    here = next(i for i, s in enumerate(steps) if s.offset == place)
    behind = steps[here + 1]
    return behind.argval if behind.opname in ("LOAD_ATTR", "LOAD_METHOD") else None


def _names() -> Iterator[str]:
    supported = (n.removeprefix("np.") for n in supported_functions())
    writes = (f.__name__ for f in WRITES)
    for name in dict.fromkeys(
        [*_OF_NUMBERS, "isscalar", *_NUMBER_TYPES, *_KEYED, *supported, *writes]
    ):
        found = vars(np).get(name)
        reduces = isinstance(found, np.ufunc) and (found.nin, found.nout) == (2, 1)
        if found is not None and (reduces or not isinstance(found, np.ufunc)):
            yield name


class _Swap:
    """The attributes of ``numpy``, swapped for as long as some thread traces."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before: type[ModuleType] = ModuleType
        self._kind: type[ModuleType] | None = None

    def enter(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = type(np)
                if self._kind is None or self._kind.__base__ is not self._before:
                    attributes = {n: _Attribute(n) for n in _names()}
                    self._kind = type("module", (self._before,), attributes)
                np.__class__ = self._kind

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and type(np) is self._kind:
                np.__class__ = self._before

    def forget(self) -> None:
        """In a forked process no other thread traces, or holds the lock."""
        self.__init__()  # type: ignore[misc]


_SWAP = _Swap()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SWAP.forget)


class _NamedArrays:
    """What the interpreter calls at each step of a function: makes known arrays of the
    arrays of NumPy that have got a name in the user's code, whoever made them."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, KnownArray] = WeakValueDictionary()
        """By the ``id`` of the array that each one shows."""
        self._owners: list[KnownArray] = []
        """Those that have views."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _NamedArrays | None:
        if event == "call":
            is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
            if not is_function or not makes_known(frame):
                return None
            frame.f_trace_opcodes = True
        note_arguments(frame, event)
        names = frame.f_locals
        for name, value in list(names.items()):
            if type(value) is np.ndarray:
                names[name] = self._known_of(value)
        return self

    def _known_of(self, array: np.ndarray[Any, Any]) -> KnownArray:
        found = self._known.get(id(array))
        if found is None or found.known is not array:
            owner = owner_of(array)
            sources = () if owner is array else (self._known_of(owner),)
            self._owners.extend(sources)
            found = self._known[id(array)] = made(array, sources, np.ndarray.view)
        return found


@contextmanager
def named_arrays_known() -> Iterator[None]:
    """Run a function inside that is traced: arrays of NumPy become known ones where
    they get names. A debugger does not see it."""
    before = sys.gettrace()
    sys.settrace(_NamedArrays())
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def arrays_made_inside() -> Iterator[UsedArrays]:
    """Trace a function inside: arrays that it makes can be written to. Gives what the
    program uses of them."""
    _SWAP.enter()
    try:
        with tracing() as used:
            yield used
    finally:
        _SWAP.leave()
