"""The host machine: what its processor can do, LLVM IR to object code, and object code
to functions in memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

from eqsat.support import (
    TABLE,
    BackendError,
    ForkLock,
    OptionError,
    cached_property,
    hold_during_fork,
    phase,
    setting,
)

from .tuning import AMD, ARM, AVX512, X86, Tuning

_LEVELS = {
    "generic": ("generic", ""),
    "x86-64-v2": ("x86-64-v2", "+sse4.2"),
    "x86-64-v3": ("x86-64-v3", "+sse4.2,+avx,+avx2,+fma,+f16c"),
    "x86-64-v4": (
        "x86-64-v4",
        "+sse4.2,+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512cd,+avx512dq,"
        "+avx512vl",
    ),
}
"""What ``EQSAT_CPU`` may say besides ``native``: LLVM's name and the features that
code generation asks for."""
_WIDE = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
hold_during_fork(getattr(ffi.lib, "_lock", nullcontext()))  # of all calls of LLVM
_options = ForkLock()
_llvm = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
"""The lock of all calls of LLVM, which a thread may take again; None if llvmlite has
another one."""


@dataclass(frozen=True)
class Host:
    """The processor that code is made for."""

    triple: str
    cpu: str
    features: str
    """As LLVM takes them: ``+avx2,+fma,-avx512f``."""
    products: str = "best"
    """Who computes matrix products: ``own`` code, ``blas``, or the ``best`` of both."""
    saves_memory: bool = False
    """Whether right operands are read where they lie, if they can be, and not brought
    into panels."""
    is_elsewhere: bool = False
    """Whether the code is for other processes, whose BLAS may be another one."""

    @cached_property
    def flags(self) -> frozenset[str]:
        """The features that are there: ``avx2``."""
        parts = self.features.split(",")
        return frozenset(f[1:] for f in parts if f.startswith("+"))

    @property
    def is_arm(self) -> bool:
        """Whether this is a 64-bit ARM, which always has NEON."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def is_mac(self) -> bool:
        """Whether the system is macOS."""
        return "apple" in self.triple

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register (bits)."""
        if not self.is_arm and self.flags.issuperset(_WIDE):
            return 512
        return 256 if not self.is_arm and "avx2" in self.flags else 128

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return self.is_arm or "fma" in self.flags

    @property
    def tuning(self) -> Tuning:
        """The numbers that were chosen by measuring, for its family of processors."""
        if self.is_arm:
            return ARM
        if self.cpu.startswith("znver"):
            return AMD
        return AVX512 if self.vector_bits == 512 else X86

    @property
    def has_bfloat_pairs(self) -> bool:
        """Whether to multiply and sum pairs of bfloat16 by one instruction: where there
        is one that is fast, or where products are to be ``own``."""
        is_there = self.vector_bits == 512 and "avx512bf16" in self.flags
        return is_there and (
            self.tuning.has_fast_bfloat_pairs or self.products == "own"
        )

    @property
    def has_gathers(self) -> bool:
        """Whether one instruction reads the elements of a vector from anywhere, sooner
        than as many reads."""
        return self.vector_bits == 512 and self.tuning.has_fast_gathers

    @property
    def key(self) -> str:
        """Text that differs wherever the object code may differ."""
        llvm_version = ".".join(map(str, llvm.llvm_version_info))
        return "|".join(
            (
                *(self.triple, self.cpu, self.features, self.products),
                *(f"llvmlite {llvmlite.__version__}", f"LLVM {llvm_version}"),
            )
        )


def host(cpu: str | None = None, products: str | None = None) -> Host:
    """This machine, or a lesser one: ``cpu`` (default ``EQSAT_CPU``) is ``native``,
    ``generic``, or ``x86-64-v2`` to ``v4``; ``products`` (``EQSAT_PRODUCTS``) is
    :attr:`Host.products`. Raises :class:`OptionError` for others."""
    who = TABLE["products"].checked(products) if products else setting("products")
    found = _host(cpu or setting("cpu"))
    return found if who == found.products else replace(found, products=who)


@functools.cache
def _host(cpu: str) -> Host:
    _initialise()
    triple = llvm.get_process_triple()
    if cpu == "native":
        features = llvm.get_host_cpu_features()
        return Host(triple, llvm.get_host_cpu_name(), features.flatten())
    if cpu not in _LEVELS or (cpu != "generic" and not triple.startswith("x86_64")):
        raise OptionError(
            f"EQSAT_CPU={cpu!r}: expected native, {', '.join(_LEVELS)} (levels of "
            f"x86-64 on x86-64 alone); this is {triple}"
        )
    return Host(triple, *_LEVELS[cpu])


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _target_machine(machine: Host, opt: int = 2) -> llvm.TargetMachine:
    """Position-independent code: it may lie far from what it calls."""
    _initialise()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=opt,
        reloc="pic",
        codemodel="small",
    )


def compile_ir(
    module: Any, machine: Host | None = None, passes: str = "short"
) -> bytes:
    """Object code of LLVM IR: text, or a module whose ``str`` is the text.

    ``passes``: ``short`` cleans up explicit code in half a millisecond (inlining of
    ``alwaysinline`` functions, scalars in registers); the code generator finds the
    common subexpressions of a block, and LLVM's NewGVN, which would find more, aborts
    the process on functions of a hundred loops. ``full`` is what ``clang -O2`` does
    without vectorisation, ten times as long. ``quick`` makes code that is slower in a
    seventh of the time, of what was written as it was written; so does ``calls``, of
    what hardly does more than to call functions.
    Raises :class:`BackendError` with LLVM's message for IR that is wrong.
    """
    with phase("machine code"):
        return optimised_object(str(module), machine or host(), passes)


def optimised_object(text: str, machine: Host, passes: str) -> bytes:
    """Object code, which follows from the arguments alone: see :func:`compile_ir`."""
    target = _target_machine(machine, 0 if passes in ("quick", "calls") else 2)
    try:
        parsed = llvm.parse_assembly(text)
        parsed.verify()
    except RuntimeError as error:
        raise BackendError(f"native: LLVM refuses the IR: {error}") from None
    # All of LLVM's is freed here: what its finalisers raise, an interrupt from the
    # keyboard too, Python swallows. A builder is used once: it keeps analyses by
    # addresses, and the next module may lie where this one did.
    with (
        parsed,
        _tuning_options() as tuning,
        llvm.create_pass_builder(target, tuning) as builder,
    ):
        manager = _pass_manager(builder, passes)
        try:
            manager.run(parsed, builder)
        finally:
            # Its own `close` frees nothing: ObjectRef, which has no resource, is the
            # first of its bases. Its passes are 13 KB.
            NewPassManager._dispose(manager)
            manager.detach()
        with _addresses_as_written():
            code: bytes = target.emit_object(parsed)
    return code


def holds_llvm() -> bool:
    """Whether this thread holds the lock of LLVM, or may: no other thread gets on. It
    is inside of a call, or an interrupt came between taking the lock and the call."""
    owned = getattr(_llvm, "_is_owned", None)
    return owned is None or bool(owned())


def let_go_of_llvm() -> None:
    """Let go of the lock of LLVM, outside of calls."""
    while _llvm is not None and holds_llvm():
        _llvm.release()


def forget(module: Any) -> None:
    """Take a module apart that has been compiled. Its parts know what they lie in, and
    Python's collector takes half as long as LLVM to find that nobody else does."""
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                vars(instruction).clear()
            vars(block).clear()
        vars(function).clear()
    vars(module).clear()


@contextmanager
def _addresses_as_written() -> Iterator[None]:
    """Code generation without the reduction of strength in loops, which took 0.4 of its
    time and gained nothing (a small model's first call 0.62 s, 0.88 with it; running
    times 0.994 to 1.0 of 40 programs and 8 models): addresses are written as they are
    to be computed. Others in the process have it as before. LLVM 14 warns of an option
    that is given twice. One thread at a time: the option is the whole process's, and
    the first to end would give it back while another one's code is made."""
    if llvm.llvm_version_info < (15,):
        yield
        return
    with _options():
        llvm.set_option("eqsat", "-disable-lsr=true")
        try:
            yield
        finally:
            llvm.set_option("eqsat", "-disable-lsr=false")


def _tuning_options() -> Any:
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = tuning.loop_interleaving = False
    return tuning


def _pass_manager(builder: Any, passes: str) -> Any:
    if passes == "full":
        return builder.getModulePassManager()
    manager = llvm.create_new_module_pass_manager()
    manager.add_always_inliner_pass()
    manager.add_global_dead_code_eliminate_pass()
    manager.add_sroa_pass()
    if passes == "short":
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.add_aggressive_dce_pass()
    return manager


@dataclass(frozen=True, eq=False)
class LoadedObject:
    """Object code in memory, for as long as this object is alive."""

    exports: Mapping[str, int]
    tracker: Any = field(repr=False)
    linker: Any = field(repr=False)

    def address(self, name: str) -> int:
        """Where the function ``name`` starts. Raises :class:`BackendError` for a name
        that :func:`load` was not asked for."""
        if name not in self.exports:
            raise BackendError(
                f"native: no function {name!r}; exported: {', '.join(self.exports)}"
            )
        return self.exports[name]


def load(
    code: bytes | Sequence[bytes],
    exports: Iterable[str],
    imports: Mapping[str, int] | None = None,
) -> LoadedObject:
    """``code`` of :func:`compile_ir`, or several that call each other, in memory, with
    the addresses of its functions ``exports``. What else it calls is in ``imports``
    (name to address) or a symbol of the process. Raises :class:`BackendError` for names
    that are in neither."""
    names = tuple(exports)
    builder = llvm.JITLibraryBuilder().add_current_process()
    for part in (code,) if isinstance(code, bytes) else code:
        builder.add_object_img(part)
    for name in names:
        builder.export_symbol(name)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    # A linker of its own for each library: one for all keeps 9 KB of every library for
    # ever. RuntimeDyld, the other way to link, may place the sections of one object so
    # far apart that their references overflow, which aborts the process.
    linker = llvm.create_lljit_compiler(
        _target_machine(host()), use_jit_link=True, suppress_errors=True
    )
    try:
        tracker = builder.link(linker, "eqsat")
    except RuntimeError as error:
        raise BackendError(f"native: object code does not link: {error}") from None
    return LoadedObject({name: tracker[name] for name in names}, tracker, linker)
