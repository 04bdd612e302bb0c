"""A program as Python source that calls MLX, and the function compiled from exactly
that text. Nothing is evaluated by it: MLX records the whole program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import mlx.core as mx
import numpy as np

from eqsat.body import KERNEL, RESULT, Body
from eqsat.domain import MAP, ROW
from eqsat.errors import BackendError
from eqsat.expand import body_of
from eqsat.kernel import Kernel, View, inner
from eqsat.op import CONSTANT, HALF, SCALAR, Op
from eqsat.program import Program, show_type
from eqsat.term import Term, Weak

from ..gpu.dialect import DIALECTS
from ..gpu.few_rows import with_sums
from ..gpu.parts import Generated, Library, Memory, Part, layouts_of, parts_of
from ..gpu.rows import FEW_ROWS
from ..interpret import evaluate
from ..kernels.affine import Unsupported
from ..numpy.emit import Names
from . import devices, ops, spell
from .arrays import Array, any_mlx, to_mlx, to_numpy
from .blocks import count_of, opened

INDENT = "    "
RESERVED = frozenset("mx ops program".split())
AS_FAST_S = 5e-6
"""Work up to which MLX's maps and reductions, sums of float32 as fast as ours on an
H200, are taken since they start sooner."""
LONG_ROW = 1024
"""Elements of a row from which on MLX's ``rms_norm`` is as fast as a copy."""
FEW_QUERIES = 4
"""Below which MLX has an attention for float32 on CUDA."""
WIDE = np.dtype(np.float32)
F64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Lowered:
    """A program that runs on MLX."""

    source: str
    """The Python text."""
    run: Callable[..., Sequence[Array]]
    """``program`` of that text, over arrays of MLX, with derivatives."""
    bare: Callable[..., Sequence[Array]]
    """The same without derivatives of generated kernels: what MLX can export."""

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results: arrays of MLX, not evaluated, where an argument is one; else
        arrays of NumPy."""
        found = self.run(*map(to_mlx, arrays))
        return list(found) if any_mlx(arrays) else [to_numpy(y) for y in found]


def lower(program: Program, language: str | None = None) -> Lowered:
    """``program`` as Python that calls MLX, with kernels in ``language``: ``metal``,
    ``cuda``, or none where it is empty; by default as MLX's default device is.

    Raises :class:`BackendError` for float64 on a GPU, also between the ops of a kernel.
    What is known beforehand, as numbers and what constants give, may be float64.
    """
    language = language_here() if language is None else language
    if language:
        _refuse_float64(program)
    writer = _Writer(with_sums(program) if language else program, language)
    source = writer.source()
    scope = {**writer.namespace, "mx": mx, "ops": ops}
    exec(compile(source, "<eqsat mlx program>", "exec"), scope)
    run = bare = scope["program"]
    if writer.kernels:
        run = ops.with_derivatives(bare, lambda: lower(program, "").run)
    return Lowered(source, run, bare)


def realises(op: Op) -> bool:
    """Whether this backend runs ``op``: all that have a reference, leaves have none."""
    return op.kind != "leaf"


def language_here() -> str:
    """The language of kernels for MLX's default device; empty on a CPU."""
    if mx.default_device().type != mx.gpu:
        return ""
    return "metal" if mx.metal.is_available() else "cuda"


def _refuse_float64(program: Program) -> None:
    terms = [*program.inputs, *program.constants, *program.folded]
    for kernel in program.kernels:
        terms += kernel.results
    for t in terms:
        if t.dtype == F64:
            raise _no_float64(program.names[t], t)


def _no_float64(what: str, term: Term) -> BackendError:
    return BackendError(
        f"{what} ({show_type(term)}) is float64, which MLX has on the CPU only; the "
        f"default device is {mx.default_device()}"
    )


@dataclass
class _Writer:
    program: Program
    language: str
    namespace: dict[str, Any] = field(default_factory=dict)
    """What the text names beyond MLX and itself."""

    def __post_init__(self) -> None:
        self.called = self.program.names
        self.views = layouts_of(self.program) if self.language else {}
        self.brief_s = 0.0
        if self.language:
            device = devices.typical(self.language)
            self.brief_s = devices.brief_s(self.program.kernels, device)
        self.kernels: dict[str, str] = {}
        """Definitions of generated kernels to their names."""
        self.names = Names({*RESERVED, *self.called.values()})
        fixed = [*self.program.constants, *self.program.folded]
        values = evaluate(fixed, {})
        self.namespace |= {self.called[t]: to_mlx(values[t]) for t in fixed}

    def source(self) -> str:
        """The whole text."""
        program, called = self.program, self.called
        lines = [f"# {called[t]}: {show_type(t)}" for t in program.inputs]
        for t in (*program.constants, *program.folded):
            kind = "constant" if t.op is CONSTANT else f"{t.op.name} of constants"
            lines.append(f"# {called[t]}: {show_type(t)}, {kind}")
        for step in program.steps:
            lines += self._step(step)
        names = [called[r] for r in program.roots]
        lines.append(f"return ({', '.join(names)}{',' if len(names) == 1 else ''})")
        head = f"def program({', '.join(called[t] for t in program.inputs)}):"
        body = "\n".join(INDENT + line for line in lines)
        imports = "import mlx.core as mx\nfrom eqsat.backends.mlx import ops"
        made = [f"{name} = {text}" for text, name in self.kernels.items()]
        return "\n\n\n".join([imports, *made, f"{head}\n{body}\n"])

    def _step(self, step: Kernel | View) -> list[str]:
        if isinstance(step, View):
            term = step.term
            text = spell.view(term, self.called[term.args[0]])
            return [f"{step.name} = {text}  # {show_type(term)}, a view"]
        lines = self._kernel(step)
        if len(lines) > 1:
            types = ", ".join(show_type(r) for r in step.results)
            lines.insert(0, f"# {step.name}: {step.kind}, {types}")
        return lines

    def _kernel(self, step: Kernel) -> list[str]:
        new = partial(
            _KernelWriter, step, self.called, self.names, self.namespace, self.language
        )
        if self.language:
            own = self._by_mlx(step, new())
            if own:
                return own
            writer = new()
            layouts = {t: self.views[t][1] for t in step.inputs if t in self.views}
            bodies = opened(step, writer.is_attention, self._blocks)
            with suppress(Unsupported):
                parts = parts_of(step, DIALECTS[self.language], layouts, bodies)
                return self._parts(step, bodies, parts, writer)
        return new().lines()

    def _blocks(self, term: Term) -> int:
        """In how many blocks of queries attention runs: in steps only on CUDA, of
        float32."""
        wide = self.language == "cuda" and term.dtype == WIDE
        return count_of(term, devices.typical(self.language)) if wide else 1

    def _by_mlx(self, step: Kernel, writer: _KernelWriter) -> list[str]:
        """The lines of a kernel that MLX has calls for, where no kernel of ours would
        be faster: products with what they can add, views, which MLX need not copy where
        memory lies well, and single calls that are brief."""
        if step.kind not in (MAP, ROW):
            lines = writer.lines()
            products = ("mx.matmul(", "mx.addmm(")
            whole = all(t.partition(" = ")[2].startswith(products) for t in lines)
            return lines if whole else []
        nodes = inner(step.bodies, step.term.args)
        views = all(cast(Op, t.op).kind == "view" for t in nodes)
        if views or (writer.is_one_call() and self._is_quick(step)):
            return writer.lines()
        packed = not any(t in self.views for t in step.inputs)
        brief = self._is_over_in(step, AS_FAST_S)
        total = writer.own_sum() if packed and brief else None
        return [f"{self.called[step.results[0]]} = {total}"] if total else []

    def _is_quick(self, step: Kernel) -> bool:
        """Whether no kernel of ours would end before a call of MLX that does the same:
        its ``rms_norm`` of long rows is as fast as a copy, its other composites are
        slower than ours."""
        name = step.term.op.name
        if name == "rms_norm" and step.term.shape[-1] >= LONG_ROW:
            return True
        slower = name in spell.FAST
        return self._is_over_in(step, self.brief_s if slower else AS_FAST_S)

    def _is_over_in(self, step: Kernel, seconds: float) -> bool:
        """Whether memory gives and takes all of a kernel in so little time."""
        rate = devices.typical(self.language).bandwidths[-1][1]
        return step.bytes < rate * seconds

    def _parts(
        self,
        step: Kernel,
        bodies: Sequence[Term],
        parts: Sequence[Part],
        writer: _KernelWriter,
    ) -> list[str]:
        """The lines of a kernel that is generated, in whole or in part. What MLX makes
        in between is read by kernels, and has the dtype that they expect."""
        made: dict[Any, str] = {}
        writer.wide = False

        def name_of(m: Memory) -> str:
            if m.kind == "table":
                return made.setdefault(m.key, writer.table(m.key.array))
            if m.kind == "temporary":
                return made.setdefault(m.key, self.names.fresh("parts"))
            if m.key in writer.texts:
                return writer.texts[m.key]
            if m.key in step.results:
                return self.called[m.key]
            if m.key in step.inputs:
                return self.called[self.views.get(m.key, (m.key,))[0]]
            return made.setdefault(m.key, self.names.fresh("t"))

        for part in parts:
            if isinstance(part, Library):
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

    def _with_axes(self, m: Memory, text: str) -> str:
        """What a kernel is given: Metal shows the body an array without axes as a
        number, not as a pointer."""
        term = m.kind == "term"
        shape = self.views.get(m.key, (m.key,))[0].shape if term else m.shape
        return text if shape else f"mx.reshape({text}, (1,))"

    def _generated(self, step: Kernel, part: Generated) -> str:
        """The name of a generated kernel; equal ones have one."""
        source, buffers = part.source, part.nest.buffers
        words = [
            repr(self.language),
            repr(source.name),
            repr([buffers[i].name for i in source.inputs]),
            repr([buffers[i].name for i in source.outputs]),
            f"threads={source.threads}",
            f"group={source.group}",
            f"shapes={[m.shape for m in part.outputs]}",
            f"dtypes=[{', '.join(spell.dtype_text(m.dtype) for m in part.outputs)}]",
            f'header="""\n{source.header}"""',
            f'body="""\n{source.body}"""',
        ]
        text = "ops.kernel(\n" + "".join(f"{INDENT}{w},\n" for w in words) + ")"
        if text not in self.kernels:
            self.kernels[text] = self.names.fresh(f"{step.name}_kernel")
        return self.kernels[text]


def roots_of(kernel: Kernel) -> list[Term]:
    """The results of a kernel as terms over its arguments, composites closed."""
    term = kernel.term
    if term.op is not KERNEL:
        return [term]
    body = cast(Body, term.attrs[0])
    values = body.apply(term.graph, term.args)
    places = [r.attrs[0] if r.op is RESULT else 0 for r in kernel.results]
    return [values[body.results[cast(int, i)]] for i in places]


class _KernelWriter:
    """The lines of one kernel. float16 and bfloat16 are computed in float32, unless one
    call rounds its own result."""

    def __init__(
        self,
        kernel: Kernel,
        called: Any,
        names: Names,
        namespace: dict[str, Any],
        language: str,
    ) -> None:
        self.kernel, self.called, self.names = kernel, called, names
        self.namespace, self.language = namespace, language
        self.roots = roots_of(kernel)
        self.leaves = set(kernel.term.args)
        self.texts: dict[Term, str] = {}
        self.out: list[str] = []
        self.known: dict[Term, bool] = {}
        self.wide = False
        library = kernel.kind not in (MAP, ROW)
        self.wide = not (language and library) and not self.is_one_call()
        self.uses = self._uses()

    def lines(self) -> list[str]:
        """Lines that bind the names of the results."""
        for root, result in zip(self.roots, self.kernel.results, strict=True):
            name = self.called[result]
            dtype = cast("np.dtype[Any]", result.dtype)
            if not result.size:
                shape, text = tuple(result.shape), spell.dtype_text(dtype)
                self.out.append(f"{name} = mx.zeros({shape}, dtype={text})")
                continue
            text = self.value(root)
            if isinstance(root.dtype, Weak):
                text = f"mx.full({tuple(result.shape)}, {text})"
            if self.dtype(root) != dtype:
                text = spell.cast_text(text, dtype)
            self.bind(name, text)
        return self.out

    def bind(self, name: str, text: str) -> None:
        """Give ``name`` to a value; the last line is renamed when it made it."""
        mine = self.out and self.out[-1].startswith(f"{text} = ")
        if mine and text not in self.called.values():
            made = self.out[-1].removeprefix(f"{text} = ")
            self.out[-1] = f"{name} = {made}"
            for t in [t for t, known in self.texts.items() if known == text]:
                self.texts[t] = name
        else:
            self.out.append(f"{name} = {text}")

    def is_one_call(self) -> bool:
        """Whether one call of MLX computes all of it, and rounds as we do."""
        if len(self.roots) != 1:
            return False
        (root,) = self.roots
        if root in self.leaves or any(a not in self.leaves for a in root.args):
            return False
        op = cast(Op, root.op)
        if op.name in spell.FAST or "mlx" in op.lowerings:
            between = op.name in spell.ROUND_BETWEEN and root.dtype in HALF
            if between and not self.language:
                return False
            return self._fast(root, self._plain) is not None
        moves = op.kind == "view" or op.name in ("cast", "copy", "where", "take")
        return (
            op.ufunc is not None or moves or op.name in ("max", "min", "matmul", "sort")
        )

    def own_sum(self) -> str | None:
        """All of it as one sum, where MLX takes as many threads for it as we do and
        adds in float32: halves it adds as halves, columns and long rows by few
        threads."""
        (root, *others) = self.roots
        kept = root.op.name == "sum"
        term = root if kept or root.op.name != "reshape" else root.args[0]
        if others or term.op.name != "sum" or term.args[0] not in self.leaves:
            return None
        (x,) = term.args
        axes = sorted(a % x.ndim for a in cast(Op, term.op).attr_dict(term)["axis"])
        lead = x.ndim - len(axes)
        trailing = axes == list(range(lead, x.ndim)) and len(axes) > 0
        whole = kept or root.shape == x.shape[:lead]
        many = x.size > 0 and (term.size == 1 or term.size >= FEW_ROWS)
        if not (trailing and whole and many and x.dtype == term.dtype == WIDE):
            return None
        return spell.reduced("sum", self._plain(x), axes, kept)

    def _uses(self) -> dict[Term, int]:
        """How many values read each term, above the leaves."""
        found: dict[Term, int] = dict.fromkeys(self.roots, 1)
        stack = [r for r in self.roots if r not in self.leaves]
        while stack:
            for a in stack.pop().args:
                found[a] = found.get(a, 0) + 1
                if found[a] == 1 and a not in self.leaves:
                    stack.append(a)
        return found

    # -- values ------------------------------------------------------------------------

    def dtype(self, term: Term) -> np.dtype[Any] | None:
        """What a term is computed in; None for a bare number."""
        if isinstance(term.dtype, Weak):
            return None
        dtype = term.dtype
        return WIDE if self.wide and dtype in HALF else dtype

    def value(self, term: Term) -> str:
        """An expression of ``term``, a name where it is computed."""
        if term not in self.texts:
            text = self._computed(term)
            if not text.isidentifier() and not isinstance(term.dtype, Weak):
                name = self.names.fresh(f"t{len(self.names.taken)}")
                self.out.append(f"{name} = {text}")
                text = name
            self.texts[term] = text
        return self.texts[term]

    def _computed(self, term: Term) -> str:
        if isinstance(term.dtype, Weak):
            return self._plain(term)
        if term in self.leaves or term.op is CONSTANT:
            text = self.called.get(term) or self._table(term)
            return self._widened(term, text)
        if self._is_known(term):
            return self._widened(term, self._table(term))
        op = cast(Op, term.op)
        if self.language and term.dtype == F64:
            inside = self.called[self.kernel.results[0]]
            raise _no_float64(f"{op.name} inside {inside}", term)
        own_lowering = op.lowerings.get("mlx")
        if own_lowering is not None:
            return self._by_author(term, own_lowering.function)
        if spell.has_own(op):
            found = self._fast(term, self.value)
            if found is not None:
                return found
        body = body_of(term)
        if body is not None:
            return self.value(body)
        joined = self._addmm(term)
        if joined is not None:
            return joined
        if op.name == "nextafter" and term.dtype in HALF and self.wide:
            return self._in_half(term)
        text = spell.expression(self._call(term, self.value))
        if op.name == "cast" and term.dtype in HALF and self.wide:
            narrow = spell.cast_text(self.value(term.args[0]), term.dtype)
            return spell.cast_text(narrow, WIDE)
        return text

    def _widened(self, term: Term, text: str) -> str:
        """``text``, of the dtype of ``term``, as it is computed with."""
        return text if self.dtype(term) == term.dtype else spell.cast_text(text, WIDE)

    def _plain(self, term: Term) -> str:
        """The text of a leaf or a number, no line written."""
        if not isinstance(term.dtype, Weak):
            return str(self.called.get(term, "_"))
        value = evaluate([term], {})[term]
        if isinstance(value, np.ndarray):
            return self._table(term)
        return repr(value) if np.isfinite(value) else spell.number(value, WIDE)

    def _call(self, term: Term, value: Callable[[Term], str]) -> spell.Call:
        args = []
        met = next((self.dtype(a) for a in term.args if self.dtype(a)), None)
        for a in term.args:
            text = value(a)
            if isinstance(a.dtype, Weak) and met is not None and "table" not in text:
                text = spell.number(cast(float, evaluate([a], {})[a]), met)
            args.append(text)
        dtype = self.dtype(term) or np.dtype(np.float64)
        dtypes = tuple(self.dtype(a) for a in term.args)
        return spell.Call(term, tuple(args), dtypes, dtype, self.namespace)

    def _fast(self, term: Term, value: Callable[[Term], str]) -> str | None:
        """A composite as one call of MLX. Attention only on a GPU: elsewhere it is the
        calls of its body, but for scores that are not finite. Log-sum-exp only on a
        CPU: MLX's for GPUs is ∞ of a row that holds both ∞ and NaN."""
        name = term.op.name
        elsewhere = (
            name == "logsumexp" if self.language else name.startswith("attention")
        )
        if elsewhere:
            return None
        return spell.fast(self._call(term, value))

    def is_attention(self, term: Term) -> bool:
        """Whether ``term`` is attention that is best one call of MLX."""
        if not term.op.name.startswith("attention") or self._is_in_steps(term):
            return False
        return self._fast(term, self._plain) is not None

    def _is_in_steps(self, term: Term) -> bool:
        """Whether MLX would compute attention step by step: on CUDA it has kernels for
        halves, and for float32 of fewer than 4 queries. Between two products, ours is
        one where it runs three."""
        wide = self.language == "cuda" and term.dtype == WIDE
        return wide and term.shape[-2] >= FEW_QUERIES

    def _by_author(self, term: Term, function: Callable[..., Any]) -> str:
        op = cast(Op, term.op)
        name = f"{op.name}_lowering"
        self.namespace[name] = function
        words = [self.value(a) for a in term.args]
        words += [f"{n}={v!r}" for n, v in op.attr_dict(term).items()]
        return f"{name}({', '.join(words)})"

    def _addmm(self, term: Term) -> str | None:
        """x w + b or number (x w) + b as one call, where the product is read nowhere
        else."""
        if term.op.name != "add" or self.dtype(term) not in (WIDE, F64, *HALF):
            return None
        ways = (term.args, term.args[::-1])
        for x, y in sorted(ways, key=lambda way: way[0].op.name == "matmul"):
            factor, product = self._scaled(x)
            if self._is_lone(x) and self._is_lone(product) and self._adds(product, y):
                a, b = product.args
                words = [self.value(y), self.value(a), self.value(b)]
                if factor != 1:
                    words.append(f"alpha={factor!r}")
                return f"mx.addmm({', '.join(words)})"
        return None

    def _scaled(self, term: Term) -> tuple[float, Term]:
        """The number and the product of ``number * (x w)``."""
        if term.op.name == "multiply":
            for x, number in (term.args, term.args[::-1]):
                if x.op.name == "matmul" and isinstance(number.dtype, Weak):
                    value = evaluate([number], {})[number]
                    if np.ndim(value) == 0 and np.isfinite(value):
                        return float(value), x
        return 1.0, term

    def _is_lone(self, term: Term) -> bool:
        """Whether an inner value is read once and not computed yet."""
        inside = term not in self.leaves and term not in self.texts
        return inside and self.uses.get(term, 1) == 1

    def _adds(self, product: Term, other: Term) -> bool:
        if product.op.name != "matmul":
            return False
        if isinstance(other.dtype, Weak) or other.dtype != product.dtype:
            return False
        same = np.broadcast_shapes(product.shape, other.shape) == product.shape
        return same and product.ndim >= 2 and product.args[0].size > 0

    def _in_half(self, term: Term) -> str:
        half = term.dtype
        assert isinstance(half, np.dtype)
        call = self._call(term, self.value)
        args = tuple(
            spell.cast_text(a, half) if d is not None else a
            for a, d in zip(call.args, call.dtypes, strict=True)
        )
        narrow = spell.Call(term, args, call.dtypes, half, self.namespace)
        return spell.cast_text(spell.expression(narrow), WIDE)

    # -- what is known beforehand ------------------------------------------------------

    def _is_known(self, term: Term) -> bool:
        """Whether ``term`` depends on no argument."""
        if term not in self.known:
            bare = term.op is SCALAR or term.op is CONSTANT
            inner = bool(term.args) and all(self._is_known(a) for a in term.args)
            made = not term.args and cast(Op, term.op).kind != "leaf"
            known = bare or inner or made
            self.known[term] = term not in self.leaves and known
        return self.known[term]

    def _table(self, term: Term) -> str:
        """A name for the value of a term that is known beforehand."""
        return self.table(evaluate([term], {})[term])

    def table(self, value: Any) -> str:
        """A name for an array that is known beforehand."""
        name = self.names.fresh("table")
        self.namespace[name] = to_mlx(value)
        return name
