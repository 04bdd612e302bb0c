"""A function for one signature: what was found, what it compiles to, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eqsat.kernels import (
    Backend,
    CostModel,
    Executable,
    Kernel,
    Program,
    backend_named,
    clock_of,
    printer,
)
from eqsat.saved import NATIVE
from eqsat.support import (
    BackendError,
    LastUse,
    Options,
    cached_property,
    collection_paused,
    once,
    phases_inside,
    pytree,
    seconds_of,
    tell_phase,
)
from eqsat.terms import Term
from eqsat.trace import Trace

if TYPE_CHECKING:
    from eqsat.explain import Explanation
    from eqsat.program_store import ProgramKey
    from eqsat.rulelang import RuleSet
    from eqsat.search import Optimised

CODE = "machine code"
"""The phase in which a backend's compiler, such as LLVM, runs."""
_PATIENCE_S = 60.0
"""Seconds for a search that found its program in time when it was first made."""


@dataclass(frozen=True)
class Lowered:
    """One function for one signature, from its terms to what runs."""

    trace: Trace
    term: tuple[Term, ...]
    """The chosen terms, one for each result."""
    program: Program
    backend: Backend
    rule_set: RuleSet | None
    """The rules; None for the stock rules, which may not be loaded yet."""
    options: Options
    model: CostModel
    seconds: dict[str, float]
    """Seconds of each phase so far."""
    search: Optimised | None
    """How the terms were found; None when an earlier process found them."""
    left_s: float
    """Seconds of the deadline that are left for machine code."""
    used: LastUse = field(default_factory=LastUse, repr=False, compare=False)
    """When it was called last."""
    name: str = "program"
    """What the function is called."""
    place: ProgramKey | None = field(default=None, repr=False, compare=False)
    """Where the terms are kept on disk."""

    def __repr__(self) -> str:
        count = sum(isinstance(step, Kernel) for step in self.program.steps)
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        given = ", ".join(map(repr, self.program.inputs))
        return f"<lowered {self.name} of {given}: {kernels}, {self.backend.name}>"

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        if self.rule_set is not None:
            return self.rule_set
        from eqsat.rulelang import default_rules

        return default_rules()

    @once
    def optimised(self) -> Optimised:
        """How the terms were found. Searches again when an earlier process found
        them."""
        return self._found_again() if self.search is None else self.search

    @once
    def executable(self) -> Executable:
        """The program, compiled by its backend."""
        options = replace(self.options, deadline_s=self.left_s)
        start = time.perf_counter()
        with collection_paused(), phases_inside() as inside:
            made = self.backend.lower(self.program, options)
        self.seconds[CODE] = seconds_of(CODE, inside)
        self.seconds["lower"] = tell_phase("lower", start) - self.seconds[CODE]
        return made

    @property
    def workspace_bytes(self) -> int:
        """Memory of intermediates in a call, as compiled, or as planned by a backend
        that does not know (bytes)."""
        known: int | None = getattr(self.executable, "workspace_bytes", None)
        return self.program.workspace_bytes if known is None else known

    @property
    def peak_bytes(self) -> int:
        """Most memory of a call: workspace and results (bytes)."""
        return self.workspace_bytes + self.program.result_bytes

    @property
    def gives_all(self) -> bool:
        """Whether the function returns a list of what the program gives, and does
        nothing else."""
        made = self.trace
        if made.writes or made.ends or made.strides:
            return False
        marks = [object() for _ in self.term]
        return bool(pytree.unflatten(made.out_tree, marks) == marks)

    def compile(self) -> Executable:
        """The program as a callable over flat arrays."""
        return self.executable

    def source(self, language: str | None = None) -> str:
        """The source of the program in ``language``: ``numpy``, ``llvm``, another
        backend's name, or ``metal`` or ``cuda`` for its kernels on a GPU, which need
        not be there.

        Raises :class:`BackendError` when no backend of that name is installed.
        """
        name = self.backend.name if language is None else language
        name = "native" if name == "llvm" else name
        if name == self.backend.name:
            return self.executable.source
        prints = printer(name)
        if prints is not None:
            return prints(self.program)
        return backend_named(name).lower(self.program, self.options).source

    def save(
        self, path: str | os.PathLike[str], cpu: str | Iterable[str] = (NATIVE,)
    ) -> None:
        """Write the program with its constants to a file that :func:`eqsat.load` makes
        a callable of, where neither the engine nor LLVM is needed.

        ``cpu``: the processors that it gets machine code for, one or more of
        ``native`` (this one), ``generic``, ``x86-64-v2``, ``x86-64-v3`` and
        ``x86-64-v4``. As many threads may run it as ``Options(threads)`` allows here.

        Raises :class:`BackendError` where NumPy runs a part of the program, on other
        systems than Linux, and without a C compiler, whose linker is used;
        :class:`SavedProgramError` for arguments or results that a file cannot hold.
        """
        from eqsat.saving import save  # few programs are saved

        save(path, self.trace, self.program, self.name, cpu, self.options)

    def save_module(self, path: str | os.PathLike[str]) -> None:
        """Write the program as a Python module, ``path``, that needs NumPy alone and
        not eqsat: the text of ``source("numpy")``, and a function ``run`` with the
        calling convention of the one that was traced. Its constants lie beside it, in
        a file of NumPy's with the ending ``.npz``.

        Raises :class:`SavedProgramError` for a program that NumPy alone does not run:
        one with bfloat16, with most functions of SciPy's, or with ops that the module
        cannot hold; and for arguments or results that no module can name.
        """
        from eqsat.saving import save_module

        save_module(path, self.trace, self.program, self.name)

    def save_library(self, path: str | os.PathLike[str], cpu: str = NATIVE) -> None:
        """Write the program with its constants as a shared library for C, ``path``, and
        its header beside it: ``libffn.so`` and ``ffn.h``, whose function ``ffn`` takes
        pointers to the inputs and to memory of the results. It needs the C library
        alone; products are computed by eqsat's own code.

        ``cpu`` is one of those of :meth:`save`. Raises :class:`BackendError` as that
        does, and where the program calls LAPACK or a sort of NumPy's;
        :class:`SavedProgramError` for a name that is none in C.
        """
        from eqsat.saving import save_library

        save_library(path, self.trace, self.program, self.name, cpu, self.options)

    def to_onnx(self) -> Any:
        """The program as a model of ONNX, a ``ModelProto`` of opset 18. Each kernel is
        a function of the model, called what :meth:`explain` calls it, with a body of
        standard operators; float16 and bfloat16 are computed in float32 in it. Outputs
        are the arrays of the result in order, and then what arguments become that the
        function writes to.

        Raises :class:`SavedProgramError` for ops that ONNX has no operator for, for
        results whose shape depends on values, and where something outside of the
        arguments has changed since; and :class:`OnnxError` where the package ``onnx``
        is missing.
        """
        from eqsat.saving import model_of, refuse_others

        refuse_others(self.trace, self.name)
        return model_of(self.program, self.name)

    def explain(self) -> Explanation:
        """What was done, and what it is estimated to save.

        The search is repeated with the provenance of every node kept, which compiling
        leaves out: it takes half as long again.
        """
        from eqsat.explain import explain
        from eqsat.search import optimise

        outputs, rules = self.trace.outputs, self.rules
        written = Program.of(outputs, self.trace.inputs)
        return explain(
            self.derived,
            self.program,
            written,
            rules,
            self.model,
            self.options,
            lambda options: optimise(outputs, rules, options, self.model),
            self._by_numpy,
            self._workspace,
            clock_of(self.backend, self.model),
            self.source,
            self.name,
        )

    def _workspace(self) -> int | None:
        """Memory of a call beside the results; None where the program cannot run."""
        try:
            return self.workspace_bytes
        except BackendError:
            return None

    def _by_numpy(self) -> Mapping[str, str]:
        """Kernels that the backend has NumPy run, and why."""
        try:
            found: Mapping[str, str] = getattr(self.executable, "reasons", {})
        except BackendError:  # the program can be explained where it cannot run
            return {}
        return found

    @cached_property
    def derived(self) -> Optimised:
        """The optimisation with the rules that built each node."""
        again = self._found_again(provenance=True)
        again.phases_s = dict(self.seconds)
        return again

    def _found_again(self, provenance: bool = False) -> Optimised:
        """The search for these terms; what the program is as it runs, where another
        search finds others: a deadline fell elsewhere."""
        from eqsat.rulelang import RuleSet
        from eqsat.search import optimise

        options = self.options
        if self.search is None:  # it had time enough
            deadline_s = max(_PATIENCE_S, options.deadline_s)
            options = replace(options, deadline_s=deadline_s)
        written = self.trace.outputs
        again = optimise(written, self.rules, options, self.model, provenance)
        if tuple(again.roots) == self.term:
            if self.search is not None:
                again.cut_short = self.search.cut_short
            return again
        if self.search is not None:
            return self.search
        options = replace(options, deadline_s=0)
        as_it_is = optimise(self.term, RuleSet(), options, self.model)
        as_it_is.cut_short = ""
        return as_it_is
