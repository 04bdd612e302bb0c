"""Products and attention of float32 as kernels of ours, in the text of a program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from eqsat.terms import Term, Weak

from ..gpu.hopper import Attention, HopperKernel, attending
from ..gpu.hopper import products as wide
from ..interpret import evaluate
from ..numpy import Names

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


@dataclass
class Products:
    """Those of one program, whose operands are split once."""

    names: Names
    define: Callable[[str, str], str]
    """The name of a kernel, given its definition and what its name starts with."""
    are_ours: bool
    """Whether any is a kernel of ours."""
    parts: dict[tuple[str, str], str] = field(default_factory=dict)
    """Names of parts, by the kernel that splits and the operand."""
    splits: set[str] = field(default_factory=set)
    """Lines that split: what several kernels begin with is to be written once."""

    def spelled(
        self,
        operands: Sequence[Term],
        texts: Sequence[str],
        out: list[str],
        factor: float = 1.0,
        added: str = "",
    ) -> str | None:
        """An expression of ``factor`` times the product of two terms, named ``texts``,
        and what is ``added``; ``out`` is given the lines before. None where MLX's own
        product is as fast, and where ours does not serve: for vectors, and factors
        beyond float32."""
        left, right = operands
        factor = _as_float32(factor)
        if not self.are_ours or not np.isfinite(factor):
            return None
        if left.ndim < 2 or right.ndim < 2:
            return None
        product = wide.HopperProduct(tuple(left.shape), tuple(right.shape))
        if not product.is_faster:
            return None
        parts = []
        for of, text in enumerate(texts):
            shape = tuple(operands[of].shape)
            parts.append(self._split(shape, text, of == 1, product.is_one, out))
        lead = product.shape[:-2]
        whole = [
            (
                text
                if product.is_one
                else _broadcast(text, x.shape[:-2], lead, x.shape[-2:])
            )
            for text, x in zip(texts, operands, strict=True)
        ]
        more = [f"mx.broadcast_to({added}, {product.shape})"] * bool(added)
        kernel = wide.multiplying(product, bool(added), factor)
        name = self.define(_text(kernel, "float32", "result"), "product_kernel")
        return f"{name}([{', '.join([*parts, *whole, *more])}])[0]"

    def attention(self, term: Term, texts: Sequence[str], out: list[str]) -> str:
        """An expression of an attention :meth:`has_attention` holds of, its arguments
        named ``texts``; ``out`` is given the lines before."""
        formula = _attention_of(term)
        assert formula is not None
        splits = ((False, 0), (False, 1), (True, 2))
        parts = []
        for right, i in splits:
            shape = tuple(term.args[i].shape)
            parts.append(self._split(shape, texts[i], right, False, out))
        whole = [
            _broadcast(t, x.shape[:-2], formula.lead, x.shape[-2:])
            for t, x in zip(texts[:3], term.args, strict=False)
        ]
        if formula.bias is not None:
            rest = formula.shape[-2], formula.keys[-2]
            wanted = (*formula.lead, rest[0])
            whole.append(_broadcast(texts[4], formula.bias[:-1], wanted, rest[1:]))
        if formula.is_causal:
            lead = formula.values[:-2]
            total = f"mx.sum({texts[2]}, axis=-2, keepdims=True)"
            size = (1, formula.values[-1])
            whole.append(_broadcast(total, lead, formula.lead, size))
        kernel = attending(formula, _scale_of(term))
        name = self.define(_text(kernel, "float32", "result"), "attention_kernel")
        return f"{name}([{', '.join([*parts, *whole])}])[0]"

    def has_attention(self, term: Term) -> bool:
        """Whether attention ``term`` is best one kernel of ours."""
        formula = _attention_of(term) if self.are_ours else None
        if formula is None or not np.isfinite(_scale_of(term)):
            return False
        return formula.is_faster

    def _split(
        self,
        shape: tuple[int, ...],
        text: str,
        right: bool,
        folded: bool,
        out: list[str],
    ) -> str:
        """The name of the parts of an operand; ``out`` is given what makes them."""
        kernel = wide.splitting(shape, right, folded)
        name = self.define(_text(kernel, "bfloat16", "y"), "split_kernel")
        if (name, text) not in self.parts:
            self.parts[name, text] = self.names.fresh(f"{text}_parts")
        line = f"{self.parts[name, text]} = {name}([{text}])[0]"
        self.splits.add(line)
        out.append(line)
        return self.parts[name, text]


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


def _broadcast(
    text: str, given: Sequence[int], wanted: Sequence[int], rest: Sequence[int]
) -> str:
    """``text`` with leading axes ``wanted`` instead of ``given``."""
    if tuple(given) == tuple(wanted):
        return text
    return f"mx.broadcast_to({text}, {(*wanted, *rest)})"


def _text(kernel: HopperKernel, dtype: str, output: str) -> str:
    settings: dict[str, Any] = {
        "threads": kernel.groups * wide.GROUP,
        "group": wide.GROUP,
        "shapes": [kernel.shape],
        "dtypes": f"[mx.{dtype}]",
        "strided": True,
        **({"shared_bytes": kernel.shared_bytes} if kernel.shared_bytes else {}),
    }
    words = {n: str(v) for n, v in settings.items()}
    inputs, name = kernel.inputs, kernel.name
    return defined("cuda", name, inputs, [output], kernel.header, kernel.body, **words)
