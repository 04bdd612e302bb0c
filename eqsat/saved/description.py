"""What a file says of its program: its calls, its code, and what that code asks for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from eqsat.saved.processor import LEVELS, NATIVE
from eqsat.saved.saved_file import Section
from eqsat.saved.trees import Tree
from eqsat.support import DTypeError, counted

PROGRAM = "program"
"""The function of a program: ``void program(ptr buffers, i64 thread, i64 threads, i64
turn)``. Buffers are pointers to the inputs, results, constants and scratch, in this
order."""
DTYPES = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 "
    "float64 complex64 complex128".split()
)
MOST_BYTES = 1 << 47
"""Of anything that lies in memory: addresses are no longer."""
_MOST_AXES = 64
"""Of NumPy's arrays."""


@dataclass(frozen=True)
class ArrayType:
    """Dtype and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Raises :class:`DTypeError` for bfloat16 where ``ml_dtypes`` is missing."""
        if self.dtype == "bfloat16":
            try:
                from ml_dtypes import bfloat16
            except ImportError:
                raise DTypeError(
                    "the saved program takes or gives arrays of bfloat16, which NumPy "
                    "does not have; install ml_dtypes"
                ) from None
            kind: type = bfloat16
            return np.dtype(kind)
        return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * _ITEM[self.dtype]

    def check(self) -> None:
        """Raise :class:`ValueError` for what no array is."""
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r}")
        if len(self.shape) > _MOST_AXES or min(self.shape, default=0) < 0:
            raise ValueError(f"shape {self.shape}")
        if self.nbytes > MOST_BYTES:
            raise ValueError(f"an array of {counted(self.nbytes, 'byte')}")

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape)) or 'number'} {self.dtype}"


_ITEM = {d: 2 if d == "bfloat16" else np.dtype(d).itemsize for d in sorted(DTYPES)}


@dataclass(frozen=True)
class SavedArgument:
    """An array among the arguments."""

    path: str
    type: ArrayType
    digest: str = ""
    """SHA-256 of the elements of one that is constant; empty for the others, which are
    the inputs of the program."""


@dataclass(frozen=True)
class SavedResult:
    """An array that the program computes."""

    type: ArrayType
    is_number: bool
    """Whether the caller is given one of NumPy's numbers."""


@dataclass(frozen=True)
class NamedTree:
    """An argument and its name."""

    name: str
    tree: Tree


@dataclass(frozen=True)
class SavedCalls:
    """How the program is called, and what it returns."""

    name: str
    positional: tuple[NamedTree, ...]
    named: tuple[NamedTree, ...]
    arguments: tuple[SavedArgument, ...]
    returns: Tree
    results: tuple[SavedResult, ...]
    """Those that are returned, and then those that become arguments of ``writes``."""
    writes: tuple[int, ...] = ()
    """The inputs that are written to, by their positions."""
    returned: tuple[tuple[int, int], ...] = ()
    """Results that are one of these inputs itself, and which."""

    @property
    def inputs(self) -> tuple[SavedArgument, ...]:
        """The arrays that may change between calls."""
        return tuple(a for a in self.arguments if not a.digest)

    def check(self) -> None:
        """Raise :class:`ValueError` where parts do not fit each other."""
        given = (*self.positional, *self.named)
        names = [a.name for a in given]
        if len(set(names)) != len(names):
            raise ValueError(f"an argument twice: {', '.join(names)}")
        for t in (*(a.tree for a in given), self.returns):
            t.check()
        for of in (*(a.type for a in self.arguments), *(r.type for r in self.results)):
            of.check()
        arrays = sum(a.tree.arrays for a in given)
        if arrays != len(self.arguments):
            raise ValueError(
                f"{counted(len(self.arguments), 'type')} of "
                f"{counted(arrays, 'argument')}"
            )
        own = len(self.results) - len(self.writes)
        if own != self.returns.arrays:
            raise ValueError(
                f"{counted(own, 'type')} of {counted(self.returns.arrays, 'result')}"
            )
        inputs = self.inputs
        for i, r in zip(self.writes, self.results[own:], strict=True):
            if not 0 <= i < len(inputs) or inputs[i].type != r.type:
                raise ValueError(f"a write to input {i}")
        if len(set(self.writes)) != len(self.writes):
            raise ValueError(f"writes to inputs {self.writes}")
        for k, i in self.returned:
            if not 0 <= k < own or i not in self.writes:
                raise ValueError(f"result {k} as input {i}")


@dataclass(frozen=True)
class SavedLibrary:
    """A shared library in the file."""

    section: int
    imports: tuple[str, ...]
    """Functions that it calls, in the order of its table of them."""
    exports: tuple[str, ...]

    def check(self, sections: int) -> None:
        """Raise :class:`ValueError` for what no library is."""
        if not 0 <= self.section < sections:
            raise ValueError(f"a library in section {self.section} of {sections}")
        for names in (self.imports, self.exports):
            if len(set(names)) != len(names) or not all(map(_is_symbol, names)):
                raise ValueError(f"functions {', '.join(names):.200}")


def _is_symbol(name: str) -> bool:
    return name.isascii() and name.replace(".", "_").isidentifier()


@dataclass(frozen=True)
class SavedCode:
    """The program as machine code for one kind of processor."""

    cpu: str
    needs: tuple[str, ...]
    """Features of a processor, as :func:`.processor.feature` spells them."""
    library: int
    constants: tuple[int, ...]
    """Sections, in the order of their pointers."""
    arena_bytes: int
    fault: int
    """Byte of scratch memory that is not 0 after a call whose arguments have no result;
    -1 where all have one."""
    threads: int
    """Threads that it runs on at most."""
    if_awake: bool
    """Whether only threads are called that do not sleep."""
    blas: int
    """:attr:`.BlasLibrary.convention`; 0 where it calls no BLAS."""

    def check(self, libraries: int, sections: int) -> None:
        """Raise :class:`ValueError` for what no code is."""
        if self.cpu != NATIVE and self.cpu not in LEVELS:
            raise ValueError(f"code for {self.cpu!r}")
        if not 0 <= self.library < libraries:
            raise ValueError(f"code in library {self.library} of {libraries}")
        if not all(0 <= c < sections for c in self.constants):
            raise ValueError(f"constants in sections {self.constants} of {sections}")
        if not 0 <= self.arena_bytes <= MOST_BYTES:
            raise ValueError(f"{counted(self.arena_bytes, 'byte')} of scratch memory")
        if not -1 <= self.fault < self.arena_bytes:
            raise ValueError(f"a fault at byte {self.fault} of scratch memory")
        if not 1 <= self.threads <= 1 << 16:
            raise ValueError(f"{counted(self.threads, 'thread')}")


@dataclass(frozen=True)
class Description:
    """All that a file says."""

    made_by: str
    system: str
    """:func:`.processor.system` of the machine that it was made on."""
    calls: SavedCalls
    codes: tuple[SavedCode, ...]
    """The best one first."""
    libraries: tuple[SavedLibrary, ...]
    sections: tuple[Section, ...]

    def check(self) -> None:
        """Raise :class:`ValueError` where parts do not fit each other."""
        self.calls.check()
        for nbytes, _ in self.sections:
            if not 0 <= nbytes <= MOST_BYTES:
                raise ValueError(f"a section of {counted(nbytes, 'byte')}")
        for library in self.libraries:
            library.check(len(self.sections))
        for code in self.codes:
            code.check(len(self.libraries), len(self.sections))
        names = [c.cpu for c in self.codes]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"code for {', '.join(names) or 'no processor'}")

    def to_json(self) -> bytes:
        """The text of the file."""
        return _json(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Description:
        """The inverse of :meth:`to_json`. Raises :class:`ValueError` for a text that
        describes no program."""
        try:
            made: Description = _read(cls, json.loads(text), "the description")
            made.check()
        except (RecursionError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return made


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii")


def seal_of_code(
    calls: SavedCalls, code: SavedCode, constants: Iterable[Section]
) -> bytes:
    """What machine code carries in it: a digest of all that must be as it was when the
    code was made."""
    own = dataclasses.replace(code, library=0, constants=())
    parts = dataclasses.asdict(calls), dataclasses.asdict(own), [*constants]
    return hashlib.sha256(_json(parts)).digest()


def seal_of_library(imports: Iterable[str], rest: bytes = b"") -> bytes:
    """The seal of a library, with that of the code in it, if it holds a program."""
    return hashlib.sha256(_json([*imports]) + rest).digest()


def _read(kind: Any, value: Any, where: str) -> Any:
    """``value`` of a JSON text as an object of a type. Raises :class:`ValueError`."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{where} is {value!r:.80}, expected {', '.join(hints)}")
        return kind(**{k: _read(h, value[k], f"{where}.{k}") for k, h in hints.items()})
    if get_origin(kind) is tuple:
        of = get_args(kind)
        if not isinstance(value, list) or (of[-1] is not ... and len(value) != len(of)):
            raise ValueError(f"{where} is {value!r:.80}, expected a list")
        each = [of[0]] * len(value) if of[-1] is ... else of
        pairs = enumerate(zip(each, value, strict=True))
        return tuple(_read(k, v, f"{where}[{i}]") for i, (k, v) in pairs)
    if type(value) is not kind:
        raise ValueError(f"{where} is {value!r:.80}, expected {kind.__name__}")
    return value
