"""Arrays that a traced function makes of numbers alone: known, until it writes to them
what is not.

NumPy computes with their values as ever. The first write of a traced value makes such
an array, and all that share its memory, traced ones.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import operator
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any
from weakref import ref

import numpy as np

from eqsat.numpy_api import AtEnd, call_traced, operands, settled
from eqsat.support import (
    ReadOnlyError,
    at,
    caller_line,
    made_elsewhere,
    untraceable,
)
from eqsat.terms import Op, TermGraph, constant
from eqsat.trace import aliasing, in_place
from eqsat.trace.call_arguments import Arguments
from eqsat.trace.contents import Contents, is_immutable
from eqsat.trace.error_kinds import of_numpys_kinds
from eqsat.trace.outside import is_of_user
from eqsat.trace.tracer import Tracer
from eqsat.trace.written_places import WRITES, FlatView, flat_of

_TRACING = threading.local()
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_WRITING = frozenset("fill put sort partition".split())
"""Methods that change an array."""


class UsedArrays(dict[int, Contents]):
    """Arrays of NumPy that known ones show, by their ``id``, with what they held when
    the program last used them."""

    cached: Collection[CodeType] = ()
    """Code of functions whose results are kept for calls to come."""
    package = ""
    """The package of the function that is traced."""

    def __init__(self) -> None:
        self.passed: dict[FrameType, list[ref[np.ndarray[Any, Any]]]] = {}
        """Arguments of the calls of the user's functions that go on."""

    def held_by_calls(self, array: np.ndarray[Any, Any]) -> int:
        """References to ``array`` of the calls that it is an argument of."""
        each = _of_argument()
        if not each:
            return 0
        calls = self.passed.items()
        frames = [f for f, refs in calls if any(r() is array for r in refs)]
        return each * sum(not _is_default(f, array) for f in frames)

    def kept(self) -> list[Contents]:
        """Those that somebody keeps who may change them, once the function has
        returned."""
        found = []
        views = Counter(id(c.array.base) for c in self.values())
        for contents in self.values():
            owner = owner_of(contents.array)
            known = views[id(owner)] + (id(owner) in self)
            known += 2  # the name here, the argument below
            if sys.getrefcount(owner) > known or _shows_other_memory(owner):
                found.append(contents)
        return found


def _references(x: object) -> int:
    return sys.getrefcount(x)


def _of_argument() -> int:
    """References that the interpreter keeps to an argument beside its name: one where
    something else evaluates frames, as PyTorch's compiler does once it was used."""
    named = object()
    return _references(object()) - sys.getrefcount(named)


def _is_default(frame: FrameType, array: np.ndarray[Any, Any]) -> bool:
    """Whether the function in a frame keeps ``array`` for calls that do not give it."""
    functions = gc.get_referrers(frame.f_code)
    kept = (f for f in functions if isinstance(f, FunctionType))
    return any(
        array is value
        for f in kept
        for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values())
    )


def note_arguments(frame: FrameType, event: str) -> None:
    """A function of the user's begins or ends: its arguments are held by its caller
    until then, those of a generator are not."""
    passed = _TRACING.used[-1].passed
    code = frame.f_code
    if event == "call" and not code.co_flags & _SUSPENDED:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = (frame.f_locals.get(name) for name in names)
        passed[frame] = [ref(a) for a in given if type(a) is np.ndarray]
    elif event == "return":
        passed.pop(frame, None)


def makes_known(frame: FrameType | None) -> bool:
    """Whether the code in a frame makes known arrays: the user's, and that of the
    package of the function that is traced, unless a function keeps the results for
    calls to come."""
    used: UsedArrays = _TRACING.used[-1]
    if frame is None or not is_of_user(frame.f_code, frame.f_globals):
        name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        if not used.package or name.partition(".")[0] != used.package:
            return False
    while used.cached and frame is not None:
        if frame.f_code in used.cached:
            return False
        frame = frame.f_back
    return True


def is_tracing() -> bool:
    """Whether a function is traced in this thread, so that it may make arrays."""
    return bool(getattr(_TRACING, "used", None))


@contextmanager
def tracing() -> Iterator[UsedArrays]:
    """A function is traced inside, in this thread. Gives what it uses."""
    before = getattr(_TRACING, "used", ())
    now = UsedArrays()
    _TRACING.used = (*before, now)
    try:
        yield now
    finally:
        _TRACING.used = before


@of_numpys_kinds
class KnownArray(Tracer):
    """An array whose values are known while tracing, with NumPy's functions, methods
    and operators. It shows :attr:`known`, an array of NumPy."""

    __slots__ = ()

    has_value = True
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        super().__init__(None, True)  # type: ignore[arg-type]  # it has none yet
        self.known = array

    def settled(self) -> np.ndarray[Any, Any]:
        """What it holds now, in an array that nobody can change; the same one for as
        long as it holds that."""
        now = self.known
        bits = now.tobytes()
        if is_tracing():
            _TRACING.used[-1][id(now)] = Contents(now)
        if self.used is None or self.used[0] != (bits, now.shape, now.dtype):
            kept = np.frombuffer(bits, now.dtype) if bits else now.copy()
            self.used = (bits, now.shape, now.dtype), kept.reshape(now.shape)
        return self.used[1]  # type: ignore[no-any-return]

    def within(self, graph: TermGraph) -> Any:
        """Its values."""
        return self.settled()

    def assigned(self, value: Any, how: str) -> Any:
        """This array, once a function of NumPy has written its result to it."""
        become_traced(self, value.term.graph)
        return in_place.assigned(self, value, how)

    def traced(self, graph: TermGraph) -> Tracer:
        """A traced array of what it holds now."""
        return Tracer(constant(graph, self.settled()), True)

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """``op(*args, **attrs)`` with the values."""
        return op(*settled(list(args)), **attrs)

    def __getitem__(self, key: Any) -> Any:
        graph = graph_in(key)
        if graph is not None:
            return self.traced(graph)[key]
        found = self.known[live(key)]
        if not isinstance(found, np.ndarray):
            return found
        if is_tracing() and found.shape and aliasing.is_basic(live(key)):
            return aliasing.shown(self, KnownArray(found), aliasing.view_at, live(key))
        return made(found, (self,), np.ndarray.__getitem__)

    def __setitem__(self, key: Any, value: Any) -> None:
        graph = graph_in((key, value))
        if graph is None:
            self.known[live(key)] = live(value)
        else:
            become_traced(self, graph)
            self[key] = value

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self.known)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.known, dtype=dtype, copy=copy)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        target: Any = inputs[:1] if method == "at" else kwargs.get("out")
        return call(getattr(ufunc, method), inputs, kwargs, target)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        written = args[:1] if function in WRITES else kwargs.get("out")
        return call(function, args, kwargs, written)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.known.__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        return made(self.known.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return made(copy.deepcopy(self.known, memo))


def with_known_as_arrays(call: Arguments) -> Any:
    """The arguments of a call by position and by name, with arrays of NumPy for known
    ones; None where there is no known array, or a traced one too."""
    traced = {type(leaf.value) for leaf in call.leaves}
    if KnownArray not in traced or graph_in([leaf.value for leaf in call.leaves]):
        return None
    return call.given(live)


class _FlatView(FlatView):
    """``x.flat`` of a known array."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        graph = graph_in((key, value))
        if graph is None:
            self.array.known.flat[live(key)] = live(value)
        else:
            become_traced(self.array, graph)
            self.array.flat[key] = value


KnownArray.flat = flat_of(_FlatView)


def live(value: Any) -> Any:
    """``value``, nested as it may be, with the arrays of NumPy that known ones show."""
    if isinstance(value, KnownArray):
        return value.known
    if type(value) in (list, tuple):
        return type(value)(map(live, value))
    if type(value) is dict:
        return {k: live(v) for k, v in value.items()}
    return value


def graph_in(value: Any) -> TermGraph | None:
    """The graph of a traced array in ``value``, nested as it may be, whose values are
    not known; None where there is none."""
    if isinstance(value, Tracer):
        return None if value.has_value else value.term.graph
    if isinstance(value, AtEnd):
        return graph_in(operands(value.step))
    if type(value) is dict:
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return next((g for v in value if (g := graph_in(v)) is not None), None)
    return None


def known_in(value: Any) -> Iterator[KnownArray]:
    """The known arrays in ``value``, nested as it may be."""
    if isinstance(value, KnownArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from known_in(v)
    elif type(value) is dict:
        yield from known_in(list(value.values()))


def call(
    function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], written: Any
) -> Any:
    """``function(*args, **kwargs)``, which writes to ``written``: by NumPy where all
    values are known, else traced."""
    args, kwargs = tuple(args), dict(kwargs)
    graph = graph_in((args, kwargs))
    if graph is None:
        found = function(*live(args), **live(kwargs))
        return made(found, tuple(known_in((args, kwargs))), function)
    for x in known_in(written):
        become_traced(x, graph)
    return call_traced(function, settled(args), settled(kwargs))


def made(
    found: Any, sources: Sequence[KnownArray] = (), function: Any = np.array
) -> Any:
    """What a function of NumPy has ``found`` of ``sources``: known arrays for
    arrays."""
    if type(found) is np.ndarray:
        for x in sources:
            if x.known is found:
                return x
        if not is_tracing():
            return found
        one = KnownArray(found)
        for x in sources:
            if owner_of(x.known) is owner_of(found):
                view = aliasing.view_by_places, function, x.known, found
                return aliasing.shown(x, one, *view)
        return one
    if isinstance(found, tuple) and any(type(f) is np.ndarray for f in found):
        parts = [made(f, sources, function) for f in found]
        kind: Any = type(found)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    if type(found) is list:
        return [made(f, sources, function) for f in found]
    return found


def owner_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that owns the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _shows_other_memory(owner: np.ndarray[Any, Any]) -> bool:
    """Whether the memory is an object's that is no array of NumPy, such as a tensor,
    and can change."""
    base = owner.base
    of_numpy = base is None or type(base).__module__.partition(".")[0] == "numpy"
    return not of_numpy and not is_immutable(owner)


_CLASS = vars(object)["__class__"]


def become_traced(x: KnownArray, graph: TermGraph) -> None:
    """Make ``x`` and the arrays that share its memory traced ones: a value that is not
    known is to be written to it.

    Raises :class:`ReadOnlyError`, and :class:`TraceError` where an array of NumPy
    shares the memory, which would not change.
    """
    if not x.known.flags.writeable:
        raise ReadOnlyError(f"assignment destination is read-only{at(caller_line())}")
    memory = x.memory
    members = [x] if memory is None else list(memory.alive())
    _check_private(members)
    if memory is not None:
        held = KnownArray(memory.held).settled()
        memory.layout = aliasing.MemoryLayout.of(memory.held)
        memory.held, memory.make, memory.term = None, Tracer, constant(graph, held)
    for y in members:
        y.layout = aliasing.MemoryLayout.of(y.known) if memory is None else None
        y.term = constant(graph, y.settled())
        y.known = y.used = None
        _CLASS.__set__(y, Tracer)


def _check_private(members: Sequence[KnownArray]) -> None:
    """Raise :class:`TraceError` unless ``members`` are all that share their memory."""
    owner = owner_of(members[0].known)
    memory = members[0].memory
    shown = [y.known for y in members] + ([] if memory is None else [memory.held])
    used = [c.array for u in _TRACING.used for c in u.values()]
    views = {id(a) for a in (*shown, *used) if a is not owner and a.base is owner}
    known = len(views) + 2 * sum(a is owner for a in (*shown, *used))
    known += 2  # the name here and the argument below
    known += sum(u.held_by_calls(owner) for u in _TRACING.used)
    if sys.getrefcount(owner) > known:
        raise made_elsewhere(
            "a traced value is written to an array whose memory another array of NumPy "
            "shows, which would not see it\n  make that one a copy, or make it after "
            f"the write{at(caller_line())}"
        )


# -- operators, methods and attributes -------------------------------------------------


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: KnownArray, *others: Any) -> Any:
        return call(function, (self, *others), {}, ())

    return method


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: KnownArray, other: Any) -> Any:
        return call(function, (other, self), {}, ())

    return method


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: KnownArray, other: Any) -> Any:
        graph = graph_in(other)
        if graph is not None:
            become_traced(self, graph)
            return function(self, settled(other))
        function(self.known, live(other))
        return self

    return method


def _of_array(name: str) -> Any:
    """The method or the attribute that an array of NumPy has."""

    def get(self: KnownArray) -> Any:
        found = getattr(self.known, name)
        if callable(found):
            return functools.partial(_call_method, self, name)
        return made(found, (self,), getattr(np.ndarray, name))

    def put(self: KnownArray, value: Any) -> None:
        if self.memory is not None:
            raise untraceable(
                f"x.{name} = y of an array that shares memory cannot be traced\n"
                f"  write x = x.reshape(y), or x = x.astype(y){at(caller_line())}"
            )
        setattr(self.known, name, live(value))

    return property(get, put)


def _call_method(x: KnownArray, name: str, *args: Any, **kwargs: Any) -> Any:
    graph = graph_in((args, kwargs))
    if graph is None:
        found = getattr(x.known, name)(*live(args), **live(kwargs))
        sources = (x, *known_in((args, kwargs)))
        return made(found, sources, getattr(np.ndarray, name))
    if name in _WRITING:
        become_traced(x, graph)
        return getattr(x, name)(*args, **kwargs)
    for out in known_in(kwargs.get("out")):
        become_traced(out, graph)
    return getattr(x.traced(graph), name)(*settled(args), **settled(kwargs))


for _name in "lt le gt ge eq ne neg pos abs invert contains index".split():
    setattr(KnownArray, f"__{_name}__", _operator(getattr(operator, _name)))
for _function in (bool, float, int, complex, repr, str, format, len, bytes, divmod):
    setattr(KnownArray, f"__{_function.__name__}__", _operator(_function))
KnownArray.__rdivmod__ = _reflected(divmod)  # type: ignore[method-assign]
_BINARY = "add sub mul truediv floordiv mod matmul and_ or_ xor pow lshift rshift"
for _name in _BINARY.split():
    _short = _name.rstrip("_")
    setattr(KnownArray, f"__{_short}__", _operator(getattr(operator, _name)))
    setattr(KnownArray, f"__r{_short}__", _reflected(getattr(operator, _name)))
    setattr(KnownArray, f"__i{_short}__", _in_place(getattr(operator, f"i{_short}")))
for _name in dir(np.ndarray):
    if not _name.startswith("_") and _name != "flat":
        setattr(KnownArray, _name, _of_array(_name))
