"""A backend whose code is called as machine code is, and computes with NumPy: what the
entry does can be tested with any program."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

import eqsat as eq
import eqsat.backends.numpy as numpy_backend
from eqsat.backends.native.machine.processor import LoadedObject, compile_ir, load
from eqsat.backends.native.runtime.entry import NativeEntry, ProgramCode
from eqsat.backends.native.runtime.shared_runtime import program_imports
from eqsat.kernels.program import Program

PROGRAM = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)

ADD_RELU = """
declare <4 x float> @llvm.maximum.v4f32(<4 x float>, <4 x float>)
define void @program(ptr %buffers, i64 %thread, i64 %threads, i64 %turn) {
  %p1 = getelementptr ptr, ptr %buffers, i64 1
  %p2 = getelementptr ptr, ptr %buffers, i64 2
  %x = load ptr, ptr %buffers
  %y = load ptr, ptr %p1
  %out = load ptr, ptr %p2
  br label %loop
loop:
  %i = phi i64 [0, %0], [%i1, %loop]
  %xp = getelementptr float, ptr %x, i64 %i
  %yp = getelementptr float, ptr %y, i64 %i
  %op = getelementptr float, ptr %out, i64 %i
  %a = load <4 x float>, ptr %xp, align 4
  %b = load <4 x float>, ptr %yp, align 4
  %s = fadd <4 x float> %a, %b
  %r = call <4 x float> @llvm.maximum.v4f32(<4 x float> %s, <4 x float> zeroinitializer)
  store <4 x float> %r, ptr %op, align 4
  %i1 = add i64 %i, 4
  %done = icmp sge i64 %i1, 1000
  br i1 %done, label %end, label %loop
end:
  ret void
}
"""
"""relu(x + y) of 1000 float32."""


def loaded(ir: str, *names: str) -> LoadedObject:
    return load(compile_ir(ir), names or ("program",), program_imports())


@dataclass
class Executable:
    """A program that runs as ``code`` or, without one, calls the NumPy backend."""

    program: Program
    release: bool = True
    code: ProgramCode | None = None
    native_calls: int = 0
    source: str = ""
    slow_calls: int = 0
    arena: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slow = numpy_backend.lower(self.program)

    def __call__(self, *arrays: Any) -> list[Any]:
        self.slow_calls += 1
        return self.slow(*arrays)

    def code_for(self, arrays: Sequence[Any]) -> ProgramCode | None:
        if self.code is None:
            function = PROGRAM(self._run)
            self.code = ProgramCode(
                ctypes.cast(function, ctypes.c_void_p).value or 0,
                tuple((r.dtype, r.shape) for r in self.program.roots),
                arena_bytes=1000,
                release=self.release,
                keep=function,
            )
        return self.code

    def _run(self, buffers: int, thread: int, threads: int, turn: int) -> None:
        self.native_calls += 1
        terms = [*self.program.inputs, *self.program.roots]
        pointers = iter((ctypes.c_size_t * (len(terms) + 1)).from_address(buffers))
        arrays = [
            np.ndarray(t.shape, t.dtype, (ctypes.c_byte * t.nbytes).from_address(p))
            for t, p in zip(terms, itertools.islice(pointers, len(terms)), strict=True)
        ]
        n = len(self.program.inputs)
        for out, value in zip(arrays[n:], self.slow(*arrays[:n]), strict=True):
            out[...] = value
        arena = next(pointers)
        assert arena % 64 == 0
        ctypes.memset(arena, 7, 1000)


@dataclass
class Backend:
    """Programs that are entered natively."""

    code: ProgramCode | None = None
    release: bool = True
    name: str = "native-test"
    model: Any = numpy_backend.backend.model
    made: list[Executable] = field(default_factory=list)

    def lower(self, program: Program, options: object = None) -> Executable:
        self.made.append(Executable(program, self.release, self.code))
        return self.made[-1]

    def entry(self, slow: Any) -> NativeEntry | None:
        return NativeEntry.if_available(slow)

    @property
    def calls(self) -> tuple[int, int]:
        """Native calls and those through Python since the last time."""
        found = (
            sum(e.native_calls for e in self.made),
            sum(e.slow_calls for e in self.made),
        )
        for e in self.made:
            e.native_calls = e.slow_calls = 0
        return found


@contextmanager
def entered(**settings: Any) -> Iterator[Backend]:
    """Every jit that is made here runs on a new :class:`Backend`."""
    made = Backend(**settings)
    with mock.patch("eqsat.jit.default_backend", lambda: made):
        yield made


def add_relu(options: eq.Options | None = None) -> Any:
    """A jit of relu(x + y) over 1000 float32 that runs :data:`ADD_RELU`."""
    library = loaded(ADD_RELU)
    outputs = ((np.dtype(np.float32), (1000,)),)
    code = ProgramCode(library.address("program"), outputs, keep=library)
    with entered(code=code):
        return eq.jit(lambda x, y: np.maximum(x + y, 0))
