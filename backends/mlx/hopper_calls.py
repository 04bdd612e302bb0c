"""Products and attention of float32 as kernels of ours, in the text of a program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from eqsat.kernels import packed
from eqsat.ops import VIEWS
from eqsat.terms import Term, Weak

from ..gpu import view_layout
from ..gpu.hopper import Attention, HopperKernel, attending, told
from ..gpu.hopper import products as wide
from ..interpret import evaluate
from ..loop_ir import Layout
from ..numpy import Names

Array = np.ndarray[Any, Any]
WIDE = np.dtype(np.float32)
CAPABILITY = 9, 0
"""Of devices that have the instructions, and on which they are faster."""


def are_ours(language: str) -> bool:
    """Whether large products of float32 run as kernels of ours: on NVIDIA's Hopper,
    where MLX is told not to round them to TF32. Where there is no such device the text
    is that for one."""
    if language != "cuda" or _rounds_to_tf32():
        return False
    if mx.default_device().type != mx.gpu:
        return True
    info = mx.device_info()
    words = "compute_capability_major", "compute_capability_minor"
    return tuple(info.get(w) for w in words) == CAPABILITY


def _rounds_to_tf32() -> bool:
    """What MLX makes of ``MLX_ENABLE_TF32``: C's ``atoi``."""
    number = re.match(r"\s*[+-]?\d+", os.environ.get("MLX_ENABLE_TF32", "1"))
    return number is not None and int(number[0]) != 0


def defined(
    language: str,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    header: str,
    body: str,
    **settings: str,
) -> str:
    """A kernel as a call of :func:`eqsat.backends.mlx.numpy_semantics.kernel`."""
    words = [repr(language), repr(name), repr([*inputs]), repr([*outputs])]
    words += [f"{n}={text}" for n, text in settings.items()]
    words += [f'header="""\n{header}"""', f'body="""\n{body}"""']
    return "ops.kernel(\n" + "".join(f"    {w},\n" for w in words) + ")"


@dataclass(frozen=True)
class Lying:
    """An expression of an array, packed when a kernel gets it, and how a term lies
    there."""

    text: str
    shape: tuple[int, ...]
    layout: Layout

    def broadcast(self, shape: Sequence[int]) -> Lying:
        """The same with axes of ``shape``, with which its own broadcast."""
        lead = (0,) * (len(shape) - len(self.shape))
        own = zip(self.shape, self.layout.strides, strict=True)
        strides = (*lead, *(s if n > 1 else 0 for n, s in own))
        return Lying(self.text, tuple(shape), Layout(strides, self.layout.offset))

    def turned(self) -> Lying:
        """The same, the last two axes exchanged."""
        *axes, last = range(len(self.shape))
        order = (*axes[:-1], last, axes[-1])
        shape, strides = self.shape, self.layout.strides
        layout = Layout(tuple(strides[a] for a in order), self.layout.offset)
        return Lying(self.text, tuple(shape[a] for a in order), layout)


@dataclass(frozen=True)
class Operands:
    """What a kernel reads, in the text of a program."""

    value: Callable[[Term], str]
    """An expression of a term."""
    table: Callable[[Array], str]
    """A name for an array that is known beforehand."""
    leaves: Set[Term]
    """Arguments of the kernel."""
    views: Mapping[Term, tuple[Term, Layout]]
    """Of the program: what they show, and where."""
    called: Mapping[Term, str]

    def lying(self, term: Term) -> Lying:
        """Where the elements of ``term`` lie in an array that is packed."""
        shown, base = [], term
        while base.op in VIEWS and base not in self.leaves:
            shown.append(base)
            (base,) = base.args
        whole, layout = self.views.get(base, (base, Layout(packed(base.shape))))
        text = self.value(base) if whole is base else self.called[whole]
        for view in reversed(shown):
            found = view_layout(view, layout)
            text = text if found else self.value(view)
            layout = found or Layout(packed(view.shape))
        return Lying(text, tuple(term.shape), layout)


@dataclass
class Products:
    """Those of one program, whose operands are split once."""

    names: Names
    define: Callable[[str, str], str]
    """The name of a kernel, given its definition and what its name starts with."""
    are_ours: bool
    """Whether any is a kernel of ours."""
    parts: dict[str, str] = field(default_factory=dict)
    """Names of parts, by the call that splits."""
    splits: set[str] = field(default_factory=set)
    """Lines that split: what several kernels begin with is to be written once."""
    told: dict[tuple[int, ...], str] = field(default_factory=dict)
    """Names of what kernels are told of how their inputs lie."""

    def spelled(
        self,
        operands: Sequence[Term],
        by: Operands,
        out: list[str],
        factor: float = 1.0,
        added: Term | None = None,
    ) -> str | None:
        """An expression of ``factor`` times the product of two terms, and what is
        ``added``; ``out`` is given the lines before. None where MLX's own product is as
        fast, and where ours does not serve: for vectors, and factors beyond float32."""
        left, right = operands
        factor = _as_float32(factor)
        if not self.are_ours or not np.isfinite(factor):
            return None
        if left.ndim < 2 or right.ndim < 2:
            return None
        product = wide.HopperProduct(tuple(left.shape), tuple(right.shape))
        if not product.is_faster:
            return None
        given = [by.lying(t) for t in operands]
        turned = (given[0], given[1].turned())
        parts = [self._split(x, product.is_one, by, out) for x in turned]
        if not product.is_one:
            lead = product.shape[:-2]
            given = [x.broadcast((*lead, *x.shape[-2:])) for x in given]
        if added is not None:
            given.append(by.lying(added).broadcast(product.shape))
        kernel = wide.multiplying(product, added is not None, factor)
        return self._call(kernel, parts, given, by)

    def attention(self, term: Term, by: Operands, out: list[str]) -> str:
        """An expression of an attention :meth:`has_attention` holds of; ``out`` is
        given the lines before."""
        formula = _attention_of(term)
        assert formula is not None
        lead = formula.lead
        given = [by.lying(t) for t in term.args[:3]]
        turned = (*given[:2], given[2].turned())
        parts = [self._split(x, False, by, out) for x in turned]
        whole = [x.broadcast((*lead, *x.shape[-2:])) for x in given]
        if formula.bias is not None:
            wanted = *lead, formula.shape[-2], formula.keys[-2]
            whole.append(by.lying(term.args[4]).broadcast(wanted))
        if formula.is_causal:
            total = f"mx.sum({by.value(term.args[2])}, axis=-2, keepdims=True)"
            shape = (*formula.values[:-2], 1, formula.values[-1])
            sums = Lying(total, shape, Layout(packed(shape)))
            whole.append(sums.broadcast((*lead, *shape[-2:])))
        return self._call(attending(formula, _scale_of(term)), parts, whole, by)

    def has_attention(self, term: Term) -> bool:
        """Whether attention ``term`` is best one kernel of ours."""
        formula = _attention_of(term) if self.are_ours else None
        if formula is None or not np.isfinite(_scale_of(term)):
            return False
        return formula.is_faster

    def _split(self, x: Lying, folded: bool, by: Operands, out: list[str]) -> str:
        """The name of the parts of an operand; ``out`` is given what makes them."""
        kernel = wide.splitting(x.shape, folded)
        call = self._call(kernel, [], [x], by)
        if call not in self.parts:
            self.parts[call] = self.names.fresh(f"{x.text}_parts")
        name = self.parts[call]
        self.splits.add(f"{name} = {call}")
        out.append(f"{name} = {call}")
        return name

    def _call(
        self,
        kernel: HopperKernel,
        parts: Sequence[str],
        arrays: Sequence[Lying],
        by: Operands,
    ) -> str:
        """An expression of the result of a kernel, given its inputs."""
        name = self.define(_text(kernel), f"{kernel.stem}_kernel")
        lies = told((x.shape, x.layout.strides, x.layout.offset) for x in arrays)
        known = self.told.get(tuple(lies))
        if known is None:
            known = self.told[tuple(lies)] = by.table(np.array(lies))
        texts = [*parts, *(x.text for x in arrays), known]
        return f"{name}([{', '.join(texts)}])[0]"


def _attention_of(term: Term) -> Attention | None:
    """What ``term`` computes, where it is attention of float32 with a known scale."""
    name, args = term.op.name, term.args
    biased = name in ("attention_masked", "attention_padded")
    if not biased and name not in ("attention_causal", "attention_scaled"):
        return None
    arrays = (*args[:3], *args[4:])
    if any(a.dtype != WIDE for a in arrays) or not isinstance(args[3].dtype, Weak):
        return None
    q, k, v = (tuple(a.shape) for a in args[:3])
    bias = tuple(args[4].shape) if biased else None
    return Attention(q, k, v, name == "attention_causal", bias)


def _scale_of(term: Term) -> float:
    """The number by which attention ``term`` multiplies scores, as float32 has it."""
    scale = term.args[3]
    return _as_float32(evaluate([scale], {})[scale])


def _as_float32(number: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _text(kernel: HopperKernel) -> str:
    """Its definition."""
    dtype, output = ("float32", "result") if kernel.parts else ("bfloat16", "y")
    takes = ["bfloat16"] * len(kernel.parts) + ["float32"] * len(kernel.arrays)
    settings: dict[str, Any] = {
        "threads": kernel.groups * wide.GROUP,
        "group": wide.GROUP,
        "shapes": [kernel.shape],
        "dtypes": f"[mx.{dtype}]",
        "takes": f"[{', '.join(f'mx.{t}' for t in (*takes, 'int64'))}]",
        **({"shared_bytes": kernel.shared_bytes} if kernel.shared_bytes else {}),
    }
    words = {n: str(v) for n, v in settings.items()}
    inputs, name = kernel.inputs, kernel.name
    return defined("cuda", name, inputs, [output], kernel.header, kernel.body, **words)
