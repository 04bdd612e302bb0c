"""Products of float32 as kernels of ours, in the text of a program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from eqsat.term import Term

from ..gpu import wide_products as wide
from ..numpy.emit import Names

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
    """A kernel as a call of :func:`eqsat.backends.mlx.ops.kernel`."""
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
    splits: dict[str, str] = field(default_factory=dict)
    """Lines that split operands, to the names that they bind: what several kernels
    begin with is to be written once."""

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
        product is as fast."""
        left, right = operands
        if not self.are_ours or left.ndim < 2 or right.ndim < 2:
            return None
        product = wide.Product(tuple(left.shape), tuple(right.shape))
        if not product.is_faster:
            return None
        parts = []
        for of, text in enumerate(texts):
            shape = tuple(operands[of].shape)
            line = self._split(shape, text, of == 1, product.is_one)
            out.append(line)
            parts.append(self.splits[line])
        lead = product.shape[:-2]
        whole = [
            text
            if product.is_one or x.shape[:-2] == lead
            else f"mx.broadcast_to({text}, {(*lead, *x.shape[-2:])})"
            for text, x in zip(texts, operands, strict=True)
        ]
        more = [f"mx.broadcast_to({added}, {product.shape})"] * bool(added)
        kernel = wide.multiplying(product, bool(added), factor)
        name = self.define(_text(kernel, "float32", "result"), "product_kernel")
        return f"{name}([{', '.join([*parts, *whole, *more])}])[0]"

    def _split(
        self, shape: tuple[int, ...], text: str, right: bool, folded: bool
    ) -> str:
        kernel = wide.splitting(shape, right, folded)
        name = self.define(_text(kernel, "bfloat16", "y"), "split_kernel")
        made = f" = {name}([{text}])[0]"
        for line in self.splits:
            if line.endswith(made):
                return line
        fresh = self.names.fresh(f"{text}_parts")
        self.splits[fresh + made] = fresh
        return fresh + made


def _text(kernel: wide.Kernel, dtype: str, output: str) -> str:
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
