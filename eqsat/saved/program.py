"""Programs from files, which run with NumPy alone."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.saved import shared_object
from eqsat.saved.description import (
    PROGRAM,
    ArrayType,
    Description,
    SavedArgument,
    SavedCalls,
    SavedCode,
    SavedLibrary,
    seal_of_code,
    seal_of_library,
)
from eqsat.saved.numpy_functions import OF_BLAS, blas_library, sorts
from eqsat.saved.processor import features, processors, system
from eqsat.saved.saved_file import Bytes, SavedFile, aligned, memory_address
from eqsat.saved.shared_object import SharedObject, process_address
from eqsat.saved.trees import ARRAY, arrays_in, built, class_name
from eqsat.support import (
    TABLE,
    ArgumentError,
    BackendError,
    DTypeError,
    ForkLock,
    NoResultError,
    ReadOnlyError,
    SavedProgramError,
    ShapeError,
    an,
    counted,
    may_overlap,
)

Array = np.ndarray[Any, Any]
_IF_AWAKE = 1 << 32
"""Added to the threads that ``team_run`` is asked for: only those that do not sleep."""
_SHARED: dict[tuple[str, tuple[str, ...]], SharedObject] = {}
"""Libraries that all programs of a process have in common, by their digest and what
they call: the team of threads, and what holds BLAS to one thread."""
_LOCK = ForkLock()


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    cpu: str | None = None,
    classes: Iterable[type] = (),
) -> SavedProgram:
    """The program that :meth:`eqsat.Lowered.save` wrote to ``path``: a callable with
    the calling convention of the function. Neither the engine nor LLVM is needed.

    A file holds machine code. What is checked is that it is whole and as it was saved,
    not who made it: load files only from those whose programs you would run.

    ``threads``: how many run it at most (default: ``EQSAT_THREADS``, else all
    processors), but no more than it was saved for. ``cpu``: which code of the file to
    take (default: the best that this processor can run). ``classes``: named tuples and
    dataclasses that the results are made of.

    Raises :class:`SavedProgramError` for a file that is not whole, has changed, or is
    of another version; :class:`BackendError` where this machine cannot run it; and
    :class:`OSError` where there is no such file.
    """
    with open(os.fspath(path), "rb") as opened:
        file = SavedFile(path, opened)
        text = file.description()
        try:
            made = Description.from_json(text)
        except ValueError as error:
            raise file.refused(f"it describes {error}") from None
        code = _chosen(file.path, made, cpu)
        used = _used(made, code)
        wanted = {*code.constants, *(b.section for b in used)}
        sections = file.sections(made.sections, wanted)
    known = {class_name(c): c for c in classes}
    known |= _of_numpy(made.calls.returns.classes)
    for name in sorted(made.calls.returns.classes - known.keys()):
        raise SavedProgramError(
            f"{file.path}: {made.calls.name!r} returns objects of {name}; pass "
            f"classes=[{name.rpartition('.')[2]}]"
        )
    option = TABLE["threads"]
    most = option.from_environment() if threads is None else option.checked(threads)
    try:
        library, team = _linked(made, code, used, sections)
    except ValueError as error:
        raise file.refused(f"it has {error}") from None
    constants = [sections[c] for c in code.constants]
    return SavedProgram(
        made.calls, code, constants, library, team, most or processors(), known
    )


def _of_numpy(names: Iterable[str]) -> dict[str, type]:
    """Named tuples of NumPy's, such as that of ``np.linalg.slogdet``."""
    found = {}
    for name in names:
        module, _, own = name.rpartition(".")
        kind = getattr(sys.modules.get(module), own, None)
        if name.startswith("numpy.") and isinstance(kind, type):
            if issubclass(kind, tuple):
                found[name] = kind
    return found


def _chosen(path: str, made: Description, cpu: str | None) -> SavedCode:
    """The code for this processor. Raises :class:`BackendError`."""
    if made.system != system() or not shared_object.is_possible():
        raise BackendError(
            f"{path} holds machine code for {made.system}; this is {system()}"
        )
    here = features()
    named = [c for c in made.codes if cpu in (None, c.cpu)]
    for code in named:
        if here.issuperset(code.needs):
            return code
    if not named:
        there = ", ".join(c.cpu for c in made.codes)
        raise BackendError(f"{path} holds no code for {cpu!r}; it has {there}")
    lacking = (
        f"{c.cpu} (this processor lacks {', '.join(sorted({*c.needs} - here)[:6])})"
        for c in named
    )
    raise BackendError(
        f"{path} holds code for {'; '.join(lacking)}; this processor has "
        f"{', '.join(sorted(here))}"
    )


def _used(made: Description, code: SavedCode) -> list[SavedLibrary]:
    """The library of the code, and those with functions that it calls, or that the team
    of threads is in."""
    own = made.libraries[code.library]
    asked = {*own.imports} | ({"team_run"} if code.threads > 1 else set())
    others = (b for b in made.libraries if b is not own and asked & {*b.exports})
    return [own, *others]


def _linked(
    made: Description,
    code: SavedCode,
    used: Sequence[SavedLibrary],
    sections: Mapping[int, Bytes],
) -> tuple[SharedObject, SharedObject | None]:
    """The program's library, and the one with the team of threads. Raises
    :class:`ValueError` for libraries that are none, and :class:`BackendError` where
    this machine does not have what they call."""
    own, *others = used
    if code.blas and code.blas != blas_library().convention:
        raise BackendError(
            f"{made.calls.name!r} was saved with products by a BLAS of "
            f"{_said(code.blas)}, but NumPy's here has "
            f"{_said(blas_library().convention)}; save it again with EQSAT_PRODUCTS=own"
        )
    at: dict[str, SharedObject] = {}
    for b in others:
        shared = _shared(made, b, sections[b.section])
        at |= dict.fromkeys(b.exports, shared)
    sizes = [made.sections[c] for c in code.constants]
    inner = seal_of_code(made.calls, code, sizes)
    library = SharedObject(sections[own.section], seal_of_library(own.imports, inner))
    library.fill(own.imports, lambda n: at[n].address(n) if n in at else _function(n))
    return library, at.get("team_run")


def _said(convention: int) -> str:
    held = "can" if convention > 0 else "cannot"
    return f"{abs(convention)}-bit integers that {held} be held to one thread"


def _shared(made: Description, b: SavedLibrary, data: Bytes) -> SharedObject:
    """A library that is loaded once: each team would have threads of its own."""
    key = made.sections[b.section][1], b.imports
    with _LOCK():
        found = _SHARED.get(key)
        if found is None:
            found = SharedObject(data, seal_of_library(b.imports))
            found.fill(b.imports, _function)
            if "team_forget" in b.exports:  # its threads are not in the child of a fork
                forget = ctypes.PYFUNCTYPE(None)(found.address("team_forget"))
                os.register_at_fork(after_in_child=forget)
            _SHARED[key] = found
        return found


def _function(name: str) -> int:
    """Where a function of NumPy's or of the C library starts. Raises
    :class:`BackendError`."""
    if name.startswith("numpy_"):
        found = sorts().get(name, 0)
    elif name in OF_BLAS:  # another BLAS of the process may have the same names
        found = blas_library().addresses.get(name, 0)
    else:
        found = process_address(name)
    if not found:
        raise BackendError(
            f"a saved program calls {name!r}, which neither NumPy {np.__version__} nor "
            "the C library has here"
        )
    return found


class SavedProgram:
    """A program that was loaded from a file; made by :func:`load`. A call computes what
    the function did for the signature that it was saved for.

    Arguments may be given by name, too. Arrays must have the dtypes and shapes of that
    signature; any strides will do. What was constant when the program was saved may be
    given as ``...``; if it is given, its elements must be what they were. Numbers,
    texts and None must be those of that signature.

    Calls raise :class:`ArgumentError`, :class:`DTypeError` and :class:`ShapeError` for
    other arguments, and :class:`NoResultError` where an argument has no result.
    """

    def __init__(
        self,
        calls: SavedCalls,
        code: SavedCode,
        constants: Sequence[Bytes],
        library: SharedObject,
        team: SharedObject | None,
        threads: int,
        classes: Mapping[str, type],
    ) -> None:
        self.calls, self.cpu = calls, code.cpu
        self.threads = min(threads, code.threads) if team is not None else 1
        self._code, self._constants, self._classes = code, constants, classes
        self._inputs = calls.inputs
        self._results = [(r.type, r.type.numpy_dtype) for r in calls.results]
        self._dtypes = [a.type.numpy_dtype for a in calls.arguments]
        self._arena: list[Bytes] = []
        """Scratch memory for the next call, if none has it."""
        self._seen: dict[str, Array] = {}
        """Constants that were given, and are what they were."""
        self._plain = self._plain_types()
        self._library, self._team = library, team
        outside = [0] * (len(self._inputs) + len(self._results))
        held = map(memory_address, constants)
        every = *outside, *held, 0
        self._buffers = (ctypes.c_void_p * len(every))(*every)
        """Addresses of a call, of which the constants' are known."""
        kinds = ctypes.c_void_p, *[ctypes.c_int64] * 3
        self._program = ctypes.CFUNCTYPE(None, *kinds)(library.address(PROGRAM))
        if team is not None:
            kinds = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
            self._team_run = ctypes.CFUNCTYPE(None, *kinds)(team.address("team_run"))

    @property
    def name(self) -> str:
        """What the function was called."""
        return self.calls.name

    def __repr__(self) -> str:
        given = (*self.calls.positional, *self.calls.named)
        inputs = ", ".join(f"{a.path}: {a.type}" for a in self.calls.arguments)
        names = ", ".join(a.name for a in given)
        return f"<saved program {self.name}({names}) for {self.cpu}; {inputs}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The results, in fresh arrays."""
        if self._plain is not None and not kwargs and len(args) == len(self._plain):
            if all(map(_is_plain, args, self._plain)):
                found = [_fresh(t, dtype) for t, dtype in self._results]
                self._run(args, found)
                return found[0] if self.calls.returns.kind == ARRAY else tuple(found)
        arrays = self._arrays(args, kwargs)
        results = [_fresh(t, dtype) for t, dtype in self._results]
        if self.calls.writes:
            self._check_writes(arrays)
        self._run([_packed(a) for a in arrays], results)
        own = len(results) - len(self.calls.writes)
        for i, value in zip(self.calls.writes, results[own:], strict=True):
            arrays[i][...] = value
        values: list[Any] = [
            a[()] if r.is_number else a
            for a, r in zip(results[:own], self.calls.results, strict=False)
        ]
        for k, i in self.calls.returned:
            values[k] = arrays[i]
        return built(self.calls.returns, iter(values), self._classes)

    # -- arguments ---------------------------------------------------------------------

    def _plain_types(self) -> list[tuple[Any, tuple[int, ...]]] | None:
        """Dtypes and shapes of arguments that are arrays by position, if all are and
        nothing is constant or written to, and results are an array or a tuple of them;
        None otherwise. Small calls of such take a third of the time."""
        calls, returns = self.calls, self.calls.returns
        trees = [a.tree for a in calls.positional]
        if returns.kind != ARRAY:
            trees += returns.children
        are_arrays = all(t.kind == ARRAY for t in trees)
        is_plain = are_arrays and returns.kind in (ARRAY, "tuple") and not calls.named
        is_plain &= not (calls.writes or calls.returned)
        is_plain &= not any(r.is_number for r in calls.results)
        if not is_plain or any(a.digest for a in calls.arguments):
            return None
        pairs = zip(self._dtypes, calls.arguments, strict=True)
        return [(dtype, tuple(a.type.shape)) for dtype, a in pairs]

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The inputs of a call, in order. Raises what :class:`SavedProgram` says."""
        found: list[tuple[str, Any]] = []
        for (name, tree), value in self._bound(args, kwargs):
            if value is ...:
                found += [(name, ...)] * tree.arrays
            else:
                found += arrays_in(tree, value, name)
        triples = zip(found, self.calls.arguments, self._dtypes, strict=True)
        arrays = []
        for (where, value), argument, dtype in triples:
            if argument.digest and value is ...:
                continue
            _check_array(where, value, argument.type, dtype)
            if argument.digest:
                self._check_constant(where, value, argument)
            else:
                arrays.append(value)
        return arrays

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[tuple[str, Any], Any]]:
        """Each argument's name and tree, and what is given for it."""
        positional, named = self.calls.positional, self.calls.named
        if len(args) > len(positional):
            raise ArgumentError(
                f"{self.name} takes {counted(len(positional), 'argument')} by "
                f"position, but was given {len(args)}"
            )
        given = dict(kwargs)
        for a, value in zip(positional, args, strict=False):
            if a.name in given:
                raise ArgumentError(f"{self.name}: argument {a.name} is given twice")
            given[a.name] = value
        every = (*positional, *named)
        missing = [a.name for a in every if a.name not in given]
        more = [name for name in given if name not in {a.name for a in every}]
        if missing or more:
            said = [f"{n} is missing" for n in missing] + [
                f"{n} is given" for n in more
            ]
            raise ArgumentError(
                f"{self.name}: argument {', '.join(said)}; the program was saved for "
                f"a call with {', '.join(a.name for a in every) or 'no arguments'}"
            )
        for a in every:
            yield (a.name, a.tree), given[a.name]

    def _check_constant(
        self, where: str, value: Array, argument: SavedArgument
    ) -> None:
        """Refuse an array that is constant and has other elements than it had."""
        is_fixed = isinstance(value, np.ndarray) and not value.flags.writeable
        if is_fixed and self._seen.get(argument.path) is value:
            return
        if digest_of(value) != argument.digest:
            raise ArgumentError(
                f"argument {where} has other elements than when the program was saved, "
                "which made it a constant; give ... to use what the file holds"
            )
        if is_fixed:
            self._seen[argument.path] = value

    def _check_writes(self, arrays: Sequence[Array]) -> None:
        for i in self.calls.writes:
            one, where = arrays[i], self._inputs[i].path
            if not (isinstance(one, np.ndarray) and one.flags.writeable):
                raise ReadOnlyError(
                    "assignment destination is read-only: the function writes to "
                    f"argument {where}"
                )
            if may_overlap(one):
                raise ArgumentError(
                    f"elements of argument {where} share memory, and the function "
                    f"writes to {where}\n  pass a copy: np.array(x)"
                )
            for k, other in enumerate(arrays):
                if k != i and np.may_share_memory(one, other):
                    raise ArgumentError(
                        f"arguments {where} and {self._inputs[k].path} share memory, "
                        f"and the function writes to {where}\n"
                        "  pass a copy of one of them"
                    )

    # -- the code ----------------------------------------------------------------------

    def _run(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        code = self._code
        try:
            arena = self._arena.pop()
        except IndexError:
            arena = aligned(code.arena_bytes)
        buffers = type(self._buffers).from_buffer_copy(self._buffers)
        for i, a in enumerate((*arrays, *results)):
            buffers[i] = memory_address(a)
        buffers[len(buffers) - 1] = memory_address(arena)
        if self.threads > 1:
            asked = self.threads | (_IF_AWAKE if code.if_awake else 0)
            self._team_run(self._program, buffers, asked)
        else:
            self._program(buffers, 0, 1, 0)
        failed = code.fault >= 0 and bool(arena[code.fault])
        self._arena[:] = [arena]
        if failed:
            raise NoResultError(
                f"{self.name}: an argument has no result: an index is outside of its "
                "array, or a matrix cannot be factored"
            )


def digest_of(array: Array) -> str:
    """SHA-256 of the elements of an array, in order."""
    packed = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(packed.data).hexdigest()


def _is_plain(value: Any, wanted: tuple[Any, tuple[int, ...]]) -> bool:
    """Whether a program reads an array where it lies."""
    if type(value) is not np.ndarray or (value.dtype, value.shape) != wanted:
        return False
    flags = value.flags
    return bool(flags.c_contiguous and flags.aligned)


def _check_array(where: str, value: Any, type_: ArrayType, dtype: Any) -> None:
    """Raise where ``value`` is no array of that dtype and shape."""
    kind = type(value)
    if kind not in (np.ndarray, np.memmap) and not issubclass(kind, np.generic):
        raise ArgumentError(
            f"argument {where} is {an(repr(kind.__name__))}, expected an array of "
            f"NumPy: {type_}"
        )
    if value.dtype != dtype:
        raise DTypeError(
            f"argument {where} has dtype {value.dtype}, expected {type_.dtype}: the "
            "program was saved for that alone"
        )
    if value.shape != type_.shape:
        raise ShapeError(
            f"argument {where} has shape {value.shape}, expected {type_.shape}: the "
            "program was saved for that alone"
        )


def _packed(value: Any) -> Array:
    """The elements in order, each where its size wants it."""
    array = np.asarray(value)
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.array(array, order="C")


def _fresh(type_: ArrayType, dtype: np.dtype[Any]) -> Array:
    return aligned(type_.nbytes).view(dtype).reshape(type_.shape)
