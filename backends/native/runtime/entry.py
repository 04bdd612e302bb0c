"""The entry of a jit: a builtin function that knows its programs and when they fit.

A :class:`.guard_tables.Variant` is a program with the guards of its calls. What no
variant fits goes to Python."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from eqsat.support import ForkLock, LastUse
from eqsat.trace import Arguments, Leaf, Trace

from ..machine import ALIGNED, C_CONTIGUOUS, words
from .argument_writes import WRITTEN, write_fields
from .guard_tables import KIND, NoVariantError, Records, Variant, variant
from .shared_runtime import is_available, objects

READ = (np.ndarray, np.memmap)
"""Types of arrays that programs read; they are alike in this."""
_TP_ALLOC = 47
"""``Py_tp_alloc`` of Python's stable interface."""
MOST_VARIANTS = 64
"""Programs of one function that are tried without Python; the latest ones."""


@dataclass(frozen=True, eq=False)
class ProgramCode:
    """A program in memory: ``void program(ptr buffers, i64 thread, i64 threads, i64
    turn)``. ``buffers`` are pointers to the inputs, outputs, constants and scratch,
    in this order."""

    address: int
    outputs: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]
    """Types and shapes. The memory of one of ``Tuning.pooled_bytes`` or more starts on
    a cache line, as that of every array of :func:`.result_pool.fresh`."""
    constants: tuple[np.ndarray[Any, Any], ...] = ()
    arena_bytes: int = 0
    """Scratch, aligned to 64 bytes."""
    fault: int = -1
    """Byte of it that is not 0 after a call that Python has to make, since an argument
    has no result; -1 where there are none such."""
    threads: int = 1
    """Threads that it runs on at most."""
    release: bool = False
    """Whether other threads of Python may run meanwhile: worth it from some 10 µs."""
    strided: tuple[bool, ...] = ()
    """For each input whether it is made for the strides that the array has, rather than
    for any C-contiguous one; none are when empty."""
    keep: Any = None
    """What must stay alive for as long as the code may run: its library."""


class Learnable(Protocol):
    """What :meth:`NativeEntry.learn` asks of a program."""

    def code_for(self, arrays: Sequence[Any]) -> ProgramCode | None:
        """The code that runs on arrays of these strides; None when only Python can."""


class _Compiled:
    """Of arrays of NumPy and :class:`ProgramCode`."""

    def __init__(self, strided: Sequence[bool], call: Arguments, trace: Trace) -> None:
        self.call, self.trace = call, trace
        written = set(trace.writes.places)
        self.arrays = iter([(s, i in written) for i, s in enumerate(strided)])

    def array(self, leaf: Leaf, records: Records) -> list[int]:
        array, (strided, written) = leaf.value, next(self.arrays)
        kind: Any = type(array)
        if isinstance(array, np.generic) and _is_scalar(kind):
            return words("Node", kind=KIND["scalar"], object=records.own(kind))
        if kind not in READ or not array.flags.aligned:
            raise NoVariantError
        if (written or not strided) and not array.flags.c_contiguous:
            raise NoVariantError
        need = ALIGNED if strided else ALIGNED | C_CONTIGUOUS
        return words(
            "Node",
            kind=KIND["array"],
            count=array.ndim,
            object=records.own(array.dtype),
            data=records.at(array.shape),
            need=WRITTEN if written else need,
            strides=records.at(array.strides) if strided else 0,
            # A read-only array is a constant, with a program of its own.
            thawed=_is_written(array),
        )

    def program(
        self, program: ProgramCode, records: Records
    ) -> tuple[str, dict[str, int]]:
        code = program
        count = len(code.outputs)
        numbers = (*self.trace.numbers, *(False for _ in self.trace.writes.places))
        outputs = [
            w
            for (dtype, shape), number in zip(code.outputs, numbers, strict=True)
            for w in _output(dtype, shape, number, records)
        ]
        return "Variant", {
            "outputs": count,
            "output": records.at(outputs),
            "constants": len(code.constants),
            "constant": records.at([a.ctypes.data for a in code.constants]),
            "arena": code.arena_bytes,
            "fault": code.fault,
            "program": code.address,
            "threads": code.threads,
            "release": code.release,
            **write_fields(self.call, self.trace, count, records),
        }


def _is_written(array: Any) -> bool:
    """Whether one may write to an array, or to one that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _output(
    dtype: np.dtype[Any], shape: tuple[int, ...], number: bool, records: Records
) -> list[int]:
    return words(
        "Output",
        dtype=records.own(dtype),
        ndim=len(shape),
        shape=records.at(shape),
        nbytes=dtype.itemsize * prod(shape),
        kind=records.own(dtype.type) if number else 0,
        make=_maker(dtype.type) if number else 0,
    )


def _maker(kind: Any) -> int:
    """The function of C that makes an object of a type of numbers, into which a program
    may write; 0 for bools, of which there are two objects, and where none is known."""
    if kind is np.bool_ or not _is_scalar(kind):
        return 0
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    return slot(kind, _TP_ALLOC) or 0


@functools.cache
def _is_scalar(kind: Any) -> bool:
    """Whether the value of objects of this type of NumPy lies behind their head."""
    for number in (0, 1):
        scalar = kind(number)
        if ctypes.string_at(id(scalar) + 16, scalar.itemsize) != scalar.tobytes():
            return False
    return True


def variant_of(
    call: Arguments, trace: Trace, code: ProgramCode, used: LastUse | None = None
) -> Variant | None:
    """A variant for calls like ``call``, which ``trace`` came from, which tell
    ``used``; None for those that only Python can check: with other libraries' arrays,
    objects that do not keep their attributes in a plain dictionary."""
    arrays = len(call.arrays)
    strided = code.strided or (False,) * arrays
    room = 2 * arrays + 2 * len(code.outputs) + len(code.constants) + 1
    try:
        return variant(call, trace, room, code, _Compiled(strided, call, trace), used)
    except NoVariantError:
        return None


def _layout(value: Any) -> Hashable:
    """What the guards ask of an array besides its type."""
    if type(value) not in READ:
        return (type(value),)
    flags = value.flags
    return flags.aligned, flags.c_contiguous or value.strides, _is_written(value)


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL, _KEYWORDS = 0x0080, 0x0002
_NEVER = ctypes.c_int64(0)


@functools.cache
def _definition(address: int) -> _MethodDef:
    made = _MethodDef(b"jit", address, _FASTCALL | _KEYWORDS, None)
    # Functions point to it, and may be called while the interpreter goes down.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


class NativeEntry:
    """The entry of one jit. ``fallback`` is called with what no variant fits.

    Raises :class:`BackendError` where native code cannot look into objects.
    """

    @staticmethod
    def address() -> int:
        """Where the code of such entries starts. Raises :class:`BackendError` where
        native code cannot look into objects."""
        return objects().address("entry")

    def __init__(self, fallback: Callable[..., Any]) -> None:
        self._variants: dict[tuple[Hashable, Hashable], Variant] = {}
        self._known: dict[tuple[Hashable, Hashable], int] = {}
        """Calls that were learnt or refused, and the code that runs them."""
        self._lock = ForkLock()
        self._states: list[ctypes.Array[ctypes.c_int64]] = []
        self._asked = [fallback]
        self.function = self.watching(_NEVER, fallback)
        """The builtin function to call."""

    def watching(
        self, contexts: ctypes.c_int64, asking: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Another builtin function for the same calls. While ``contexts`` is not 0, all
        calls go to ``asking``."""
        numbers = 0, id(self._asked[-1]), ctypes.addressof(contexts), id(asking)
        state = (ctypes.c_int64 * 4)(*numbers)
        with self._lock():
            self._states.append(state)
            self._set_table()
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype = ctypes.py_object
        capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        # The collector sees through a tuple: a jit and its entry are a cycle.
        parts = capsule(ctypes.addressof(state), None, None), self, state, contexts
        held = (*parts, asking, self._asked)
        definition = ctypes.addressof(_definition(self.address()))
        function: Callable[..., Any] = new(definition, held, None)
        return function

    @classmethod
    def if_available(cls, fallback: Callable[..., Any]) -> NativeEntry | None:
        """An entry, or None where ``fallback`` itself must serve."""
        return cls(fallback) if is_available() else None

    def __len__(self) -> int:
        return len(self._variants)

    def ask(self, fallback: Callable[..., Any]) -> None:
        """Call ``fallback`` from now on with what no variant fits."""
        self._asked.append(fallback)  # the old one may be running
        for state in self._states:
            state[1] = id(fallback)

    def learn(
        self,
        call: Arguments,
        trace: Trace,
        program: Learnable,
        used: LastUse | None = None,
    ) -> None:
        """Serve calls like ``call`` with ``program``, if native code can tell them;
        they tell ``used``."""
        code = program.code_for(call.arrays)
        if code is None:
            return
        key = call.key, tuple(_layout(leaf.value) for leaf in call.leaves)
        if self.is_new(key, code.address):
            found = variant_of(call, trace, code, used)
            if found is not None:
                self.add(key, found)

    def is_new(self, key: tuple[Hashable, Hashable], program: int) -> bool:
        """Whether calls of ``key`` were not learnt or refused with ``program``; from
        now on they were."""
        if self._known.get(key) == program:
            return False
        if len(self._known) >= 16 * MOST_VARIANTS:
            self._known.clear()
        self._known[key] = program
        return True

    def add(self, key: tuple[Hashable, Hashable], variant: Variant) -> None:
        """Serve the calls of ``variant``; it takes the place of one with that key."""
        with self._lock():
            self._variants.pop(key, None)
            self._variants[key] = variant
            while len(self._variants) > MOST_VARIANTS:
                oldest = next(iter(self._variants))
                self._known.pop(oldest, None)
                del self._variants[oldest]
            self._set_table()

    def forget(self, call: Hashable) -> None:
        """Serve no call of that :attr:`Arguments.key` without Python."""
        with self._lock():
            for key in [*self._known, *self._variants]:
                if key[0] == call:
                    self._known.pop(key, None)
                    self._variants.pop(key, None)
            self._set_table()

    def clear(self) -> None:
        """Serve no call without Python."""
        with self._lock():
            self._variants.clear()
            self._known.clear()
            self._set_table()

    def _set_table(self) -> None:
        """Put the latest variants first. A call goes through the table without letting
        other threads of Python run, so the old one can go when the new one is set."""
        latest = [*self._variants.values()][::-1]
        most = max((v.words for v in latest), default=0)
        records = [ctypes.addressof(v.record) for v in latest]
        values = [*words("Table", count=len(records), words=most), *records]
        table = (ctypes.c_int64 * len(values))(*values)
        for state in self._states:
            state[0] = ctypes.addressof(table)
        self._table = table
