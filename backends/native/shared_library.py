"""Object code as shared libraries, by the linker of the system.

What a library calls goes through a table of addresses in it, which whoever loads it
fills: so it needs no other library, and none of a certain version.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eqsat.saved import (
    CONSTANTS,
    IMPORTS,
    OF_BLAS,
    SEAL,
    PortableProgram,
    UnlinkedLibrary,
    is_possible,
    system,
)
from eqsat.support import BackendError

from .machine import Host, compile_ir, host

_DATA = """\
.section .rodata
.balign 64
.globl {name}
.hidden {name}
{name}:
.incbin "{file}"
.byte 0
.section .note.GNU-stack,"",%progbits
"""
_RUNTIME = "__"
"""What names of the compiler's own functions start with; its library has them."""


def unlinked(objects: Sequence[bytes], exports: Sequence[str]) -> UnlinkedLibrary:
    """A library of object code. Raises :class:`BackendError` where there is no
    linker."""
    imports = undefined(objects)

    def link(seal: bytes) -> bytes:
        return linked([*objects, _table(imports, seal)])

    return UnlinkedLibrary(tuple(objects), imports, tuple(exports), link)


def undefined(objects: Sequence[bytes]) -> tuple[str, ...]:
    """The functions that ``objects`` call and do not have."""
    with _files(objects) as paths:
        wanted = _names("--undefined-only", paths)
        own = _names("--defined-only", paths)
    return tuple(
        sorted(n for n in wanted - own if not n.startswith((_RUNTIME, "_GLOBAL_")))
    )


def linked(objects: Sequence[bytes]) -> bytes:
    """A shared library that needs no other one."""
    with _files(objects) as paths:
        return _linked(["-nostdlib", *paths, "-lgcc"], Path(paths[0]).parent)


def c_library(
    p: PortableProgram, function: str, source: str, constants: bytes
) -> bytes:
    """A shared library of a program and of the C text of ``function``, which alone can
    be called. ``constants`` start at :data:`CONSTANTS`. Raises :class:`BackendError`
    for code that calls what the C library does not have."""
    libraries = (p.library, *p.shared)
    made = {name for b in libraries for name in b.exports}
    for name in sorted({n for b in libraries for n in b.imports} - made):
        if name in OF_BLAS or name.startswith("numpy_"):
            raise BackendError(
                f"a C library calls no functions of NumPy's, but this program calls "
                f"{name.removeprefix('numpy_')!r}; Lowered.save writes such programs"
            )
    with _files([code for b in libraries for code in b.objects]) as paths:
        folder = Path(paths[0]).parent
        texts = {
            "glue.c": source,
            "data.s": _DATA.format(name=CONSTANTS, file=folder / "data.bin"),
            "names.txt": f"{{ global: {function}; local: *; }};",
        }
        (folder / "data.bin").write_bytes(constants)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="ascii")
        own = [str(folder / file) for file in ("glue.c", "data.s")]
        options = ["-O2", "-fPIC", f"-Wl,--version-script={folder / 'names.txt'}"]
        return _linked([*options, *own, *paths, "-lm", "-lpthread"], folder)


@functools.cache
def c_macros() -> frozenset[str]:
    """Names that the headers of C's library replace by something else, and those of the
    compiler's own."""
    headers = "complex errno inttypes limits math signal stdio stdlib string time"
    asked = [f for name in headers.split() for f in ("-include", f"{name}.h")]
    text = _run([tool("cc"), "-dM", "-E", *asked, "-x", "c", os.devnull])
    names = (line.split(maxsplit=2)[1] for line in text.splitlines())
    return frozenset(name for name in names if "(" not in name)


def _linked(given: Sequence[str], folder: Path) -> bytes:
    out = str(folder / "out.so")
    options = ["-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,-z,noexecstack"]
    _run([tool("cc"), *options, "-Wl,-s", "-o", out, *given])
    return Path(out).read_bytes()


def _table(imports: Sequence[str], seal: bytes) -> bytes:
    """Functions that go to those of a table, and the seal."""
    text = "".join(f"\\{byte:02x}" for byte in seal)
    lines = [f'@{SEAL} = constant [{len(seal)} x i8] c"{text}"']
    lines += [f"@{IMPORTS} = global [{max(len(imports), 1)} x ptr] zeroinitializer"]
    for i, name in enumerate(imports):
        lines += [
            f'define hidden i64 @"{name}"(...) {{',
            f"  %at = getelementptr ptr, ptr @{IMPORTS}, i64 {i}",
            "  %function = load ptr, ptr %at",
            "  %result = musttail call i64 (...) %function(...)",
            "  ret i64 %result\n}",
        ]
    return compile_ir("\n".join(lines), plain_host())


def plain_host() -> Host:
    """The least processor of the kind that this one is."""
    return host("generic")


@contextmanager
def _files(objects: Sequence[bytes]) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        paths = []
        for i, code in enumerate(objects):
            path = Path(folder, f"{i}.o")
            path.write_bytes(code)
            paths.append(str(path))
        yield paths


def _names(which: str, paths: Sequence[str]) -> set[str]:
    text = _run([tool("nm"), which, "--extern-only", "--format=posix", *paths])
    lines = (line.split() for line in text.splitlines())
    return {words[0] for words in lines if len(words) > 1}


def tool(name: str) -> str:
    """Where a tool of the system's compiler is: the variables ``CC`` and ``NM`` say so,
    or the path. Raises :class:`BackendError`."""
    if not is_possible():
        raise BackendError(
            f"machine code is saved on Linux, for x86-64 and arm64; this is {system()}"
        )
    asked = os.environ.get(name.upper(), name)
    found = shutil.which(asked)
    if found is None:
        raise BackendError(
            f"saving machine code needs {asked!r} of a C compiler, which is not there; "
            "install gcc or clang, with binutils"
        )
    return found


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n  ".join(done.stderr.strip().splitlines()[-8:])
        name = Path(command[0]).name
        raise BackendError(f"{name} does not link machine code:\n  {said}")
    return done.stdout
