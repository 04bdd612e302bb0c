"""A program as Python source that calls MLX, and the function compiled from exactly
that text. Nothing is evaluated by it: MLX records the whole program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx

from eqsat.kernels import (
    MAP,
    ROW,
    Device,
    Kernel,
    Program,
    View,
    decided,
    inner,
    show_type,
)
from eqsat.support import cached_property, log_fallback
from eqsat.terms import CONSTANT, Op, Term

from ..gpu import (
    Generated,
    KernelOperand,
    LibraryCall,
    Part,
    layouts_of,
    maps_of_rows,
    one_kernel,
    parts_of,
    with_sums,
)
from ..gpu.c_code import DIALECTS
from ..interpret import evaluate
from ..loop_ir import (
    Unsupported,
)
from ..numpy import Names
from . import device_costs, numpy_semantics, spell
from .arrays import Array, any_mlx, to_mlx, to_numpy
from .causal_blocks import count_of, opened
from .cuda_compiler import runs
from .hopper_calls import WIDE, Products, are_ours, defined
from .hosted import Hosted
from .mlx_calls import (
    C128,
    F64,
    KernelWriter,
    is_one_call,
    kernel_writer,
    no_complex128,
    no_float64,
    own_sum,
)
from .numpy_semantics import GeneratedKernel
from .transforms import transformable

INDENT = "    "
RESERVED = frozenset("mx ops program".split())
AS_FAST_S = 5e-6
"""Work up to which MLX's maps and reductions, sums of float32 as fast as ours on an
H200, are taken since they start sooner."""


PRODUCTS = frozenset(["mx.matmul", "mx.addmm"])
TURNS = frozenset(["mx.swapaxes", "mx.transpose"])


@dataclass(frozen=True)
class MLXProgram:
    """A program that runs on MLX."""

    source: str
    """The Python text."""
    run: Callable[..., Sequence[Array]]
    """``program`` of that text, over arrays of MLX, with derivatives."""
    bare: Callable[..., Sequence[Array]]
    """The same without derivatives of generated kernels: what MLX can export."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Kernels of which NumPy computes a part, and why."""

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results: arrays of MLX, not evaluated, where an argument is one; else
        arrays of NumPy."""
        found = self.run(*map(to_mlx, arrays))
        return list(found) if any_mlx(arrays) else [to_numpy(y) for y in found]

    def timed(self, *arrays: Any) -> tuple[list[Any], float]:
        """The results, and the seconds (s) from arguments that are there, on MLX's
        device, to results that are. Raises :class:`ValueError` inside of functions that
        MLX transforms."""
        given = [to_mlx(a) for a in arrays]
        mx.eval(*given)
        start = time.perf_counter()
        found = list(self.run(*given))
        mx.eval(*found)
        spent = time.perf_counter() - start
        return (found if any_mlx(arrays) else [to_numpy(y) for y in found]), spent


def lower(program: Program, language: str | None = None) -> MLXProgram:
    """``program`` as Python that calls MLX, with kernels in ``language``: ``metal``,
    ``cuda``, or none where it is empty; by default as MLX's default device is.

    Raises :class:`BackendError` for float64 on a GPU, also between the ops of a kernel,
    and for complex128. What is known beforehand, as numbers and what constants give,
    may be float64.
    """
    language = language_here() if language is None else language
    _refuse(program, bool(language))
    writer = _Writer(with_sums(program) if language else program, language)
    source = writer.source()
    for made in writer.namespace.values():
        if isinstance(made, Hosted):
            made.lower = lower
    scope = {**writer.namespace, "mx": mx, "ops": numpy_semantics}
    exec(compile(source, "<eqsat mlx program>", "exec"), scope)
    if language == "cuda" == language_here():
        _compile_ahead([v for v in scope.values() if type(v) is GeneratedKernel])
    run = bare = scope["program"]
    if writer.kernels:
        run = transformable(bare, lambda: lower(program, "").run)
    return MLXProgram(source, run, bare, writer.reasons)


def _compile_ahead(kernels: Sequence[GeneratedKernel]) -> None:
    """Have kernels compiled at once, before MLX would compile one after another."""
    known = [k for k in kernels if k.text is not None]
    for kernel, run in zip(known, runs(k.text for k in known if k.text), strict=True):
        if run is not None:
            kernel.compiled(run)


def language_here() -> str:
    """The language of kernels for MLX's default device; empty on a CPU."""
    if mx.default_device().type != mx.gpu:
        return ""
    return "metal" if mx.metal.is_available() else "cuda"


def _refuse(program: Program, on_gpu: bool) -> None:
    """Raise :class:`BackendError` for dtypes that MLX has not."""
    terms = [*program.inputs, *program.constants, *program.folded]
    for kernel in program.kernels:
        terms += kernel.results
    for t in terms:
        if t.dtype == F64 and on_gpu:
            raise no_float64(program.names[t], t)
        if t.dtype == C128:
            raise no_complex128(program.names[t], t)


def _without_views(calls: Sequence[str]) -> list[str]:
    """``calls`` without the last ones that are views of what precedes them: MLX turns
    axes in place, and gives memory other axes where these are as they were made."""
    kept = [*calls]
    while kept[-1] in TURNS:
        kept.pop()
    return kept[:-1] if kept[-1] == "mx.reshape" else kept


@dataclass
class _Writer:
    program: Program
    language: str
    namespace: dict[str, Any] = field(default_factory=dict)
    """What the text names beyond MLX and itself."""

    def __post_init__(self) -> None:
        self.called = self.program.names
        self.views = layouts_of(self.program) if self.language else {}
        self.decided = decided(self.program)
        self.pairs = maps_of_rows(self.program) if self.language else {}
        self.paired: dict[Kernel, list[str]] = {}
        """Lines of maps of rows that reduce these, too."""
        self.by_mlx: dict[Kernel, list[str]] = {}
        self.own_parts: dict[Kernel, tuple[Sequence[Term], Sequence[Part]]] = {}
        """What is asked for of a kernel and, where it reduces rows, of its map."""
        self.kernels: dict[str, str] = {}
        """Definitions of generated kernels to their names."""
        self.reasons: dict[str, str] = {}
        """Kernels of which NumPy computes a part, and why."""
        self.names = Names({*RESERVED, *self.called.values()})
        self.products = Products(self.names, self._defined, are_ours(self.language))
        fixed = [*self.program.constants, *self.program.folded]
        values = evaluate(fixed, {})
        self.namespace |= {self.called[t]: to_mlx(values[t]) for t in fixed}

    @cached_property
    def device(self) -> Device:
        """What the kernels are taken to run on, of a GPU."""
        return device_costs.typical(self.language)

    @cached_property
    def brief_s(self) -> float:
        """Work below which MLX's composites are taken."""
        return device_costs.brief_s(self.program.kernels, self.device)

    def source(self) -> str:
        """The whole text."""
        program, called = self.program, self.called
        lines = [f"# {called[t]}: {show_type(t)}" for t in program.inputs]
        for t in (*program.constants, *program.folded):
            kind = "constant" if t.op is CONSTANT else f"{t.op.name} of constants"
            lines.append(f"# {called[t]}: {show_type(t)}, {kind}")
        for step in program.steps:
            lines += self._step(step)
        lines = self._once(lines)
        names = [called[r] for r in program.roots]
        lines.append(f"return ({', '.join(names)}{',' if len(names) == 1 else ''})")
        head = f"def program({', '.join(called[t] for t in program.inputs)}):"
        body = "\n".join(INDENT + line for line in lines)
        imports = (
            "import mlx.core as mx\n"
            "from eqsat.backends.mlx import numpy_semantics as ops"
        )
        made = [
            f"{name} = {text}"
            for text, name in self.kernels.items()
            if f"{name}(" in body
        ]
        return "\n\n\n".join([imports, *made, f"{head}\n{body}\n"])

    def _once(self, lines: Sequence[str]) -> list[str]:
        """``lines``, those that split an operand of products where it is met first."""
        seen: set[str] = set()
        kept = []
        for line in lines:
            if line not in seen:
                kept.append(line)
            if line in self.products.splits:
                seen.add(line)
        return kept

    def _step(self, step: Kernel | View) -> list[str]:
        if isinstance(step, View):
            term = step.term
            text = spell.view(term, self.called[term.args[0]])
            return [f"{step.name} = {text}  # {show_type(term)}, a view"]
        known = {*self.namespace}
        then = self.pairs.get(step)
        if then is not None and (both := self._both(step, then)):
            self.paired[then] = both
            return []
        lines = self.paired[step] if step in self.paired else self._kernel(step)
        for name in self.namespace.keys() - known:
            if isinstance(hosted := self.namespace[name], Hosted):
                self._note(step, "NumPy", hosted.reason)
                self.reasons[step.name] = hosted.reason
        if len(lines) > 1:
            types = ", ".join(show_type(r) for r in step.results)
            lines.insert(0, f"# {step.name}: {step.kind}, {types}")
        return lines

    def _both(self, rows: Kernel, then: Kernel) -> list[str]:
        """The lines of one kernel for what reduces rows and a map of them; empty where
        two are as good, or one is MLX's."""
        if self._by_mlx(rows) or self._by_mlx(then):
            return []
        _, first = self._own_parts(rows)
        bodies, second = self._own_parts(then)
        inputs = *rows.inputs, *then.inputs
        layouts = {t: self.views[t][1] for t in inputs if t in self.views}
        exact = not self.decided.isdisjoint((rows.term, then.term))
        dialect = DIALECTS[self.language]
        both = one_kernel(first, second, dialect, then, layouts, exact)
        return self._parts(then, bodies, [both], rows.inputs) if both else []

    def _new(self, step: Kernel) -> KernelWriter:
        return kernel_writer(
            step,
            self.called,
            self.names,
            self.namespace,
            self.language,
            self.products,
            self.views,
            step.term in self.decided,
        )

    def _kernel(self, step: Kernel) -> list[str]:
        if self.language:
            own = self._by_mlx(step)
            if own:
                return own
            bodies, parts = self._own_parts(step)
            if parts:
                return self._parts(step, bodies, parts)
        return self._new(step).lines()

    def _own_parts(self, step: Kernel) -> tuple[Sequence[Term], Sequence[Part]]:
        """The bodies of a kernel and what computes them; nothing where only MLX
        does."""
        if step not in self.own_parts:
            layouts = {t: self.views[t][1] for t in step.inputs if t in self.views}
            bodies = opened(step, self._new(step).is_attention, self._blocks)
            parts: Sequence[Part] = ()
            try:
                dialect, exact = DIALECTS[self.language], step.term in self.decided
                parts = parts_of(step, dialect, layouts, bodies, exact)
            except Unsupported as why:
                self._note(step, "calls of MLX", str(why))
            self.own_parts[step] = bodies, parts
        return self.own_parts[step]

    def _note(self, step: Kernel, how: str, reason: str) -> None:
        log_fallback("mlx", step.name, how, reason)

    def _blocks(self, term: Term) -> int:
        """In how many blocks of queries attention runs: in steps only on CUDA, of
        float32."""
        wide = self.language == "cuda" and term.dtype == WIDE
        return count_of(term, self.device) if wide else 1

    def _by_mlx(self, step: Kernel) -> list[str]:
        """What :meth:`_mlx_lines` finds, which is asked for twice of some."""
        if step not in self.by_mlx:
            self.by_mlx[step] = self._mlx_lines(step, self._new(step))
        return self.by_mlx[step]

    def _mlx_lines(self, step: Kernel, writer: KernelWriter) -> list[str]:
        """The lines of a kernel that MLX has calls for, where no generated kernel would
        be faster: products with what they can add, ours for them too, views, which MLX
        need not copy where memory lies well, and single calls that are brief."""
        if step.kind not in (MAP, ROW):
            lines = writer.lines()
            calls = [t.partition(" = ")[2].partition("(")[0] for t in lines]
            ours = {*self.kernels.values()}
            if not ours.isdisjoint(calls):
                calls = _without_views(calls)
            return lines if ours.union(PRODUCTS).issuperset(calls) else []
        nodes = inner(step.bodies, step.term.args)
        views = all(cast(Op, t.op).kind == "view" for t in nodes)
        if views or (is_one_call(writer) and self._is_quick(step)):
            return writer.lines()
        packed = not any(t in self.views for t in step.inputs)
        brief = self._is_over_in(step, AS_FAST_S)
        total = own_sum(writer) if packed and brief else None
        return [f"{self.called[step.results[0]]} = {total}"] if total else []

    def _is_quick(self, step: Kernel) -> bool:
        """Whether no kernel of ours would end before a call of MLX that does the same:
        its composites are slower than ours, but start sooner."""
        slower = step.term.op.name in spell.FAST
        return self._is_over_in(step, self.brief_s if slower else AS_FAST_S)

    def _is_over_in(self, step: Kernel, seconds: float) -> bool:
        """Whether memory gives and takes all of a kernel in so little time."""
        return step.bytes < self.device.bandwidths[-1][1] * seconds

    def _parts(
        self,
        step: Kernel,
        bodies: Sequence[Term],
        parts: Sequence[Part],
        more: Sequence[Term] = (),
    ) -> list[str]:
        """The lines of a kernel that is generated, in whole or in part, and reads
        ``more`` than its inputs. What MLX makes in between is read by kernels, and has
        the dtype that they expect."""
        made: dict[Any, str] = {}
        writer = self._new(step)
        writer.wide = False

        def name_of(m: KernelOperand) -> str:
            if m.kind == "table":
                return made.setdefault(m.key, writer.tables.table(m.key.array))
            if m.kind == "temporary":
                return made.setdefault(m.key, self.names.fresh("parts"))
            if m.key in writer.texts:
                return writer.texts[m.key]
            if m.key in step.results:
                return self.called[m.key]
            if m.key in step.inputs or m.key in more:
                return self.called[self.views.get(m.key, (m.key,))[0]]
            return made.setdefault(m.key, self.names.fresh("t"))

        for part in parts:
            if isinstance(part, LibraryCall):
                writer.value(part.term)
                continue
            given = [self._with_axes(m, name_of(m)) for m in part.inputs]
            results = [name_of(m) for m in part.outputs]
            kernel = self._generated(step, part)
            writer.out.append(f"{', '.join(results)}, = {kernel}([{', '.join(given)}])")
            for m, text in zip(part.outputs, results, strict=True):
                if m.kind == "term":
                    writer.texts[m.key] = text
        for body, r in zip(bodies, step.results, strict=True):
            if r not in writer.texts:
                writer.bind(self.called[r], writer.value(body))
        return writer.out

    def _with_axes(self, m: KernelOperand, text: str) -> str:
        """What a kernel is given: Metal shows the body an array without axes as a
        number, not as a pointer."""
        term = m.kind == "term"
        shape = self.views.get(m.key, (m.key,))[0].shape if term else m.shape
        return text if shape else f"mx.reshape({text}, (1,))"

    def _generated(self, step: Kernel, part: Generated) -> str:
        """The name of a generated kernel; equal ones have one."""
        source, buffers = part.source, part.buffers
        dtypes, takes = (
            ", ".join(spell.dtype_text(m.dtype) for m in memory)
            for memory in (part.outputs, part.inputs)
        )
        text = defined(
            self.language,
            source.name,
            [buffers[i].name for i in source.inputs],
            [buffers[i].name for i in source.outputs],
            source.header,
            source.body,
            threads=str(source.threads),
            group=str(source.group),
            shapes=str([m.shape for m in part.outputs]),
            dtypes=f"[{dtypes}]",
            takes=f"[{takes}]",
        )
        return self._defined(text, f"{step.name}_kernel")

    def _defined(self, text: str, stem: str) -> str:
        """The name of the kernel that ``text`` defines; equal ones have one."""
        if text not in self.kernels:
            self.kernels[text] = self.names.fresh(stem)
        return self.kernels[text]
