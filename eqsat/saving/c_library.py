"""A program as a shared library for C, and its header."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.kernels import Program, backend_named
from eqsat.saved import (
    CONSTANTS,
    PROGRAM,
    ArrayType,
    PortableProgram,
    SavedCalls,
    replaced,
)
from eqsat.saving.calls import best_first, calls_of, made_by
from eqsat.support import Options, SavedProgramError
from eqsat.trace import Trace

_TYPES = {
    **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
    **{"float32": "float", "float64": "double", "bool": "uint8_t"},
    **{"float16": "uint16_t", "bfloat16": "uint16_t"},
    **{"complex64": "float", "complex128": "double"},
}
"""Types of C for elements; of halves the bits, of complex numbers two each."""
_KEYWORDS = set(
    "auto break case char const continue default do double else enum extern float for "
    "goto if inline int long register restrict return short signed sizeof static "
    "struct switch typedef union unsigned void volatile while bool true false class "
    "new delete this template private public protected namespace using try catch "
    "throw".split()
)
"""Of C and C++."""
_OWN = set(
    "whole arena block buffers failed place memcpy free posix_memalign pthread_atfork "
    "team_run team_forget at_start".split()
) | {PROGRAM, CONSTANTS}  # fmt: skip
"""Names in the text of the function."""
_LINE = 64
"""Bytes of a cache line, where memory of results starts."""
_ASKED = frozenset(
    "avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi "
    "avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq bmi bmi2 fma popcnt".split()
)
"""Features that every C compiler can ask a processor for."""
_HEADER = """\
/* {function}: a program that {maker} wrote.

{about}
   Arrays lie in memory in the order of C, and their elements where their size wants
   them; memory of results is that of no other array. The function may be called from
   several threads at once.

   Returns 0, or
     1  there is no memory for intermediate values: {bytes} bytes at most
     2  an argument has no result, such as an index outside of its array
     3  this processor lacks instructions of the program ({cpu}) */

#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{declaration};

#ifdef __cplusplus
}}
#endif

#endif
"""
_GLUE = """\
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void {program}(void **buffers, int64_t thread, int64_t threads, int64_t turn);
extern const char {constants}[];
{team}
static char *place(void *out, char **block, int64_t nbytes) {{
    char *at = out;
    if ((uintptr_t)at % {line}) at = *block;
    *block += nbytes;
    return at;
}}

__attribute__((visibility("default")))
{declaration}
{{
    void *whole;
{check}    if (posix_memalign(&whole, {line}, {total})) return 1;
    char *arena = whole, *block = arena + {arena};
{places}
    void *buffers[] = {{{buffers}}};
    {call}
    int failed = {failed};
    if (!failed) {{
{copies}    }}
    free(whole);
    return failed ? 2 : 0;
}}
"""
_TEAM = """\
void team_run(void *program, void **buffers, int64_t asked);
void team_forget(void);
__attribute__((constructor)) static void at_start(void) {
    pthread_atfork(0, 0, team_forget);  /* its threads are not in a child */
}
"""


@dataclass(frozen=True)
class _Parameter:
    name: str
    path: str
    type: ArrayType
    way: str
    """``in``, ``out`` or ``in and out``."""

    @property
    def text(self) -> str:
        const = "const " if self.way == "in" else ""
        return f"{const}{_TYPES[self.type.dtype]} *{self.name}"


def save_library(
    path: str | os.PathLike[str],
    trace: Trace,
    program: Program,
    name: str,
    cpu: str,
    options: Options,
) -> None:
    """Write the library and its header, as :meth:`eqsat.Lowered.save_library` says."""
    library = Path(path)
    function = library.name.removesuffix(".so").removeprefix("lib")
    backend: Any = backend_named("native")
    macros = backend.c_macros()
    if library.suffix != ".so" or not _is_name(function, macros) or function in _OWN:
        raise SavedProgramError(
            f"{path}: expected a name such as libffn.so, of which the function is "
            "called ffn"
        )
    if function == "main" or hasattr(ctypes.CDLL(None), function):
        raise SavedProgramError(
            f"{path}: C has a function {function!r} of its own; expected another name, "
            "such as libffn.so"
        )
    calls = calls_of(trace, name)
    (cpu,) = best_first([cpu])
    made = backend.portable(program, options, cpu, alone=True)
    inputs = [program.names[t] for t in program.inputs]
    parameters = _parameters(calls, inputs, macros)
    declaration = f"int {function}({', '.join(p.text for p in parameters) or 'void'})"
    constants, offsets = _joined(made.constants)
    source = _glue(made, calls, parameters, declaration, offsets)
    data = backend.c_library(made, function, source, constants)
    with replaced(library) as file:  # another process may have the old one loaded
        file.write(data)
    header = _HEADER.format(
        function=function,
        maker=made_by(),
        about="".join(f"     {_about(p)}\n" for p in parameters),
        bytes=_block(made, calls),
        cpu=cpu,
        guard=f"{function.upper()}_H",
        declaration=declaration,
    )
    library.with_name(f"{function}.h").write_text(header, encoding="utf-8")


def _is_name(name: str, macros: Set[str]) -> bool:
    """Whether C has no other use for a name."""
    is_one = name.isidentifier() and name.isascii() and not name.startswith("__")
    is_taken = name in _KEYWORDS or name in macros or name.endswith("_t")  # a type
    return is_one and not is_taken


def _about(p: _Parameter) -> str:
    said = f"{p.name}: {p.type}, {p.way}"
    path = p.path.replace("*/", "* /")
    return f"{said}: {path}" if p.path != p.name else said


def _parameters(
    calls: SavedCalls, inputs: Sequence[str], macros: Set[str]
) -> list[_Parameter]:
    """The inputs and then the results, those that are an argument aside."""
    taken = _OWN | {f"r{k}" for k in range(len(calls.results))}

    def named(wanted: str) -> str:
        name = wanted if _is_name(wanted, macros) else f"{wanted}_"
        while name in taken or not name.isascii():
            name = f"a{len(taken)}" if not name.isascii() else f"{name}_"
        taken.add(name)
        return name

    found = [
        _Parameter(
            named(n), a.path, a.type, "in and out" if i in calls.writes else "in"
        )
        for i, (n, a) in enumerate(zip(inputs, calls.inputs, strict=True))
    ]
    own, paths = _returned(calls), calls.returns.paths("result")
    for k in own:
        name = named("out" if len(own) == 1 else f"out{k}")
        found.append(_Parameter(name, paths[k], calls.results[k].type, "out"))
    return found


def _returned(calls: SavedCalls) -> list[int]:
    """Results that the caller gives memory for."""
    same = dict(calls.returned)
    return [k for k in range(len(calls.results) - len(calls.writes)) if k not in same]


def _joined(constants: Sequence[np.ndarray[Any, Any]]) -> tuple[bytes, list[int]]:
    """Constants one behind the other, each on a cache line, and where they start."""
    whole, offsets = bytearray(), []
    for a in constants:
        whole += b"\0" * (-len(whole) % _LINE)
        offsets.append(len(whole))
        whole += np.ascontiguousarray(a).tobytes()
    return bytes(whole), offsets


def _glue(
    made: PortableProgram,
    calls: SavedCalls,
    parameters: Sequence[_Parameter],
    declaration: str,
    offsets: Sequence[int],
) -> str:
    """The C text of the function. Results lie where the program wants them, and are
    copied to where the caller does."""
    count = len(calls.inputs)
    targets: dict[int, str] = {
        k: p.name for k, p in zip(_returned(calls), parameters[count:], strict=True)
    }
    first = len(calls.results) - len(calls.writes)
    written = {first + n: parameters[i].name for n, i in enumerate(calls.writes)}
    places, copies, buffers = [], [], [f"(void *){p.name}" for p in parameters[:count]]
    for k, r in enumerate(calls.results):
        size = _up(r.type.nbytes)
        if k in targets:
            places.append(f"    char *r{k} = place({targets[k]}, &block, {size});")
        else:  # no argument is written to while the program reads it
            places.append(f"    char *r{k} = block; block += {size};")
        out = targets.get(k) or written.get(k)
        if out is not None and r.type.nbytes:
            line = f"if ((char *){out} != r{k}) "
            copies.append(f"        {line}memcpy({out}, r{k}, {r.type.nbytes});\n")
        buffers.append(f"r{k}")
    buffers += [f"(void *)({CONSTANTS} + {offset})" for offset in offsets]
    buffers.append("arena")
    asked = made.threads | (1 << 32 if made.if_awake else 0)
    call = f"{PROGRAM}(buffers, 0, 1, 0);"
    if made.threads > 1:
        call = f"team_run((void *){PROGRAM}, buffers, {asked});"
    supported = [f'__builtin_cpu_supports("{n}")' for n in made.needs if n in _ASKED]
    check = f"    if (!({' && '.join(supported)})) return 3;\n" if supported else ""
    return _GLUE.format(
        program=PROGRAM,
        constants=CONSTANTS,
        team=_TEAM if made.threads > 1 else "",
        line=_LINE,
        declaration=declaration,
        check=check,
        total=max(_block(made, calls), 1),
        arena=_up(made.arena_bytes),
        places="\n".join(places),
        buffers=", ".join(buffers),
        call=call,
        failed="0" if made.fault < 0 else f"arena[{made.fault}] != 0",
        copies="".join(copies),
    )


def _block(made: PortableProgram, calls: SavedCalls) -> int:
    """Bytes of a call: intermediate values, and results until they are copied."""
    return _up(made.arena_bytes) + sum(_up(r.type.nbytes) for r in calls.results)


def _up(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE
