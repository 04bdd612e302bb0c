"""One kernel of a program as calls of MLX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast

import mlx.core as mx
import numpy as np

from eqsat.kernels import MAP, ROW, Kernel, show_type
from eqsat.ops import (
    add,
    cast_op,
    matmul_op,
    multiply,
    reshape_op,
    sum_op,
)
from eqsat.support import BackendError
from eqsat.terms import CONSTANT, EXACT, HALF, Op, Term, Weak
from eqsat.trace import KERNEL, RESULT, KernelBody, body_of, pairs_of

from ..gpu.printing import FEW_ROWS
from ..interpret import evaluate
from ..loop_ir import Layout
from ..numpy import Names
from . import spell
from .hopper_calls import WIDE, Operands, Products
from .known_values import KnownValues

FEW_QUERIES = 4
"""Below which MLX has an attention for float32 on CUDA."""
F64 = np.dtype(np.float64)
C128 = np.dtype(np.complex128)


def no_float64(what: str, term: Term) -> BackendError:
    """The error of a ``term``, called ``what``, that no GPU has."""
    return BackendError(
        f"{what} ({show_type(term)}) is float64, which MLX has on the CPU only; the "
        f"default device is {mx.default_device()}"
    )


def no_complex128(what: str, term: Term) -> BackendError:
    """The error of a ``term``, called ``what``, that MLX cannot hold."""
    return BackendError(
        f"{what} ({show_type(term)}) is complex128, and MLX has complex64 only\n"
        "  write z.astype(np.complex64), or choose the native backend"
    )


def roots_of(kernel: Kernel) -> list[Term]:
    """The results of a kernel as terms over its arguments, composites closed."""
    term = kernel.term
    if term.op is not KERNEL:
        return [term]
    body = cast(KernelBody, term.attrs[0])
    values = body.apply(term.graph, term.args)
    places = [r.attrs[0] if r.op is RESULT else 0 for r in kernel.results]
    return [values[body.results[cast(int, i)]] for i in places]


class KernelWriter:
    """The lines of one kernel. Made by :func:`kernel_writer`."""

    def __init__(
        self,
        kernel: Kernel,
        called: Any,
        names: Names,
        namespace: dict[str, Any],
        language: str,
        products: Products,
        views: Mapping[Term, tuple[Term, Layout]],
    ) -> None:
        self.kernel, self.called, self.names = kernel, called, names
        self.namespace, self.language = namespace, language
        self.products = products
        self.roots = roots_of(kernel)
        self.leaves = set(kernel.term.args)
        self.texts: dict[Term, str] = {}
        self.out: list[str] = []
        self.tables = KnownValues(self.leaves, names, namespace)
        self.wide = False
        """Whether halves are computed in float32."""
        self.rounds = False
        """Whether they are rounded after each call all the same."""
        self.uses = uses_of(self.roots, self.leaves)
        self.operands = Operands(
            self.value, self.tables.table, self.leaves, views, called
        )

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
            return self.plain(term)
        if term in self.leaves or term.op is CONSTANT:
            text = self.called.get(term) or self.tables.of(term)
            return self._widened(term, text)
        if self.tables.holds(term):
            return self._widened(term, self.tables.of(term))
        op = cast(Op, term.op)
        if self.language and term.dtype == F64:
            inside = self.called[self.kernel.results[0]]
            raise no_float64(f"{op.name} inside {inside}", term)
        own_lowering = op.lowerings.get("mlx")
        if own_lowering is not None:
            return self._by_author(term, own_lowering.function)
        if op.name.startswith("attention") and self._has_own_attention(term):
            return self.products.attention(term, self.operands, self.out)
        if spell.has_own(op):
            found = self.fast(term, self.value)
            if found is not None:
                return found
        if op.name in spell.OF_FACTORS and not self.language:
            return spell.by_host(self._call(term, self.value))
        body = body_of(term) or pairs_of(term)
        if body is not None:
            return self.value(body)
        joined = self._addmm(term)
        if joined is not None:
            return joined
        if op is matmul_op:
            own = self._own_product(term)
            if own is not None:
                return own
        if op.in_own_dtype and term.dtype in HALF and self.wide:
            return self._in_half(term)
        text = spell.expression(self._call(term, self.value))
        if op is cast_op and term.dtype in HALF and self.wide:
            return self._rounded(self.value(term.args[0]), term)
        return self._rounded(text, term) if self._is_rounded(term) else text

    def _is_rounded(self, term: Term) -> bool:
        return self.rounds and self.wide and term.dtype in HALF

    def _rounded(self, text: str, term: Term) -> str:
        """``text`` in float32, rounded to the half that ``term`` is."""
        half = cast("np.dtype[Any]", term.dtype)
        return spell.cast_text(spell.cast_text(text, half), WIDE)

    def _widened(self, term: Term, text: str) -> str:
        """``text``, of the dtype of ``term``, as it is computed with."""
        return text if self.dtype(term) == term.dtype else spell.cast_text(text, WIDE)

    def plain(self, term: Term) -> str:
        """The text of a leaf or a number, no line written."""
        if not isinstance(term.dtype, Weak):
            return str(self.called.get(term, "_"))
        value = evaluate([term], {})[term]
        if isinstance(value, np.ndarray):
            return self.tables.of(term)
        return repr(value) if np.isfinite(value) else spell.number(value, WIDE)

    def _call(self, term: Term, value: Callable[[Term], str]) -> spell.MLXCall:
        args = []
        met = next((self.dtype(a) for a in term.args if self.dtype(a)), None)
        halves = (a.dtype for a in term.args if self._is_rounded(a))
        half = cast("np.dtype[Any] | None", next(halves, None))
        for a in term.args:
            text = value(a)
            if isinstance(a.dtype, Weak) and met is not None and "table" not in text:
                number = cast(float, evaluate([a], {})[a])
                number = number if half is None else float(half.type(number))
                text = spell.number(number, met)
            args.append(text)
        dtype = self.dtype(term) or np.dtype(np.float64)
        dtypes = tuple(self.dtype(a) for a in term.args)
        return spell.MLXCall(term, tuple(args), dtypes, dtype, self.namespace)

    def fast(self, term: Term, value: Callable[[Term], str]) -> str | None:
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
        """Whether ``term`` is attention that is best one call of MLX, or one kernel of
        ours."""
        if not term.op.name.startswith("attention"):
            return False
        if self._has_own_attention(term):
            return True
        if self._is_in_steps(term):
            return False
        return self.fast(term, self.plain) is not None

    def _has_own_attention(self, term: Term) -> bool:
        return self._is_in_steps(term) and self.products.has_attention(term)

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
        if term.op is not add or self.dtype(term) not in (WIDE, F64, *HALF):
            return None
        ways = (term.args, term.args[::-1])
        for x, y in sorted(ways, key=lambda way: way[0].op is matmul_op):
            factor, product = _scaled(x)
            if self._is_lone(x) and self._is_lone(product) and _adds(product, y):
                own = self._own_product(product, factor, y)
                if own is not None:
                    return own
                if self.dtype(term) == F64 and float(np.float32(factor)) != factor:
                    return None  # MLX takes the factor in float32
                a, b = product.args
                words = [self.value(y), self.value(a), self.value(b)]
                if factor != 1:
                    words.append(f"alpha={factor!r}")
                return f"mx.addmm({', '.join(words)})"
        return None

    def _own_product(
        self, term: Term, factor: float = 1.0, added: Term | None = None
    ) -> str | None:
        """``factor`` times a product of float32, and what is ``added``, as a kernel of
        ours where that is faster."""
        if any(t.dtype != WIDE for t in (term, *term.args)):
            return None
        return self.products.spelled(term.args, self.operands, self.out, factor, added)

    def _is_lone(self, term: Term) -> bool:
        """Whether an inner value is read once and not computed yet."""
        inside = term not in self.leaves and term not in self.texts
        return inside and self.uses.get(term, 1) == 1

    def _in_half(self, term: Term) -> str:
        half = term.dtype
        assert isinstance(half, np.dtype)
        call = self._call(term, self.value)
        args = tuple(
            spell.cast_text(a, half) if d is not None else a
            for a, d in zip(call.args, call.dtypes, strict=True)
        )
        narrow = spell.MLXCall(term, args, call.dtypes, half, self.namespace)
        return spell.cast_text(spell.expression(narrow), WIDE)


def kernel_writer(
    kernel: Kernel,
    called: Any,
    names: Names,
    namespace: dict[str, Any],
    language: str,
    products: Products,
    views: Mapping[Term, tuple[Term, Layout]],
    exact: bool,
) -> KernelWriter:
    """A writer of ``kernel``; ``views`` are those of its program. float16 and bfloat16
    are computed in float32, unless one call rounds its own result; with ``exact`` they
    are rounded after each call."""
    writer = KernelWriter(kernel, called, names, namespace, language, products, views)
    library = kernel.kind not in (MAP, ROW)
    writer.rounds = exact
    writer.wide = not (language and library) and not is_one_call(writer)
    return writer


def is_one_call(writer: KernelWriter) -> bool:
    """Whether one call of MLX computes all of it, and rounds as we do."""
    if len(writer.roots) != 1:
        return False
    (root,) = writer.roots
    if root in writer.leaves or any(a not in writer.leaves for a in root.args):
        return False
    op = cast(Op, root.op)
    if op.name in spell.FAST or "mlx" in op.lowerings:
        between = op.name in spell.ROUND_BETWEEN and root.dtype in HALF
        if between and not writer.language:
            return False
        return writer.fast(root, writer.plain) is not None
    once = op.ufunc is not None or op in (cast_op, matmul_op)
    return once or op.roundings == EXACT


def own_sum(writer: KernelWriter) -> str | None:
    """All of it as one sum, where MLX takes as many threads for it as we do and
    adds in float32: halves it adds as halves, columns and long rows by few
    threads."""
    root, *others = writer.roots
    kept = root.op is sum_op
    term = root if kept or root.op is not reshape_op else root.args[0]
    if others or term.op is not sum_op or term.args[0] not in writer.leaves:
        return None
    (x,) = term.args
    axes = sorted(a % x.ndim for a in term.op.attr_dict(term)["axis"])
    lead = x.ndim - len(axes)
    trailing = axes == list(range(lead, x.ndim)) and len(axes) > 0
    whole = kept or root.shape == x.shape[:lead]
    many = x.size > 0 and (term.size == 1 or term.size >= FEW_ROWS)
    if not (trailing and whole and many and x.dtype == term.dtype == WIDE):
        return None
    return spell.reduced("sum", writer.plain(x), axes, kept)


def uses_of(roots: Sequence[Term], leaves: Set[Term]) -> dict[Term, int]:
    """How many values read each term, above the leaves."""
    found: dict[Term, int] = dict.fromkeys(roots, 1)
    stack = [r for r in roots if r not in leaves]
    while stack:
        for a in stack.pop().args:
            found[a] = found.get(a, 0) + 1
            if found[a] == 1 and a not in leaves:
                stack.append(a)
    return found


def _scaled(term: Term) -> tuple[float, Term]:
    """The number and the product of ``number * (x w)``."""
    if term.op is multiply:
        for x, number in (term.args, term.args[::-1]):
            if x.op is matmul_op and isinstance(number.dtype, Weak):
                value = evaluate([number], {})[number]
                if np.ndim(value) == 0 and np.isfinite(value):
                    return float(value), x
    return 1.0, term


def _adds(product: Term, other: Term) -> bool:
    """Whether ``addmm`` adds ``other`` to a product."""
    if product.op is not matmul_op:
        return False
    if isinstance(other.dtype, Weak) or other.dtype != product.dtype:
        return False
    same = np.broadcast_shapes(product.shape, other.shape) == product.shape
    return same and product.ndim >= 2 and product.args[0].size > 0
