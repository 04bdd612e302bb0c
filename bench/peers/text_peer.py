"""numexpr and Numba, for maps and reductions: expressions written as text."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np

from bench.peers import Candidate, UnsupportedWorkload
from bench.peers.net import Net
from bench.workloads import Workload, leaves

SAME_SHAPE_TAGS = {"map", "reduce", "small"}


class ExpressionText:
    """An expression as source text; ``over``: how it is reduced at the end."""

    def __init__(self, text: str, over: str = "") -> None:
        self.text, self.over = text, over

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedWorkload("only maps, and reductions of maps")


def _operator(sign: str, mirrored: bool) -> Any:
    def method(self: ExpressionText, other: Any) -> ExpressionText:
        if self.over or getattr(other, "over", ""):
            raise UnsupportedWorkload("an operation after a reduction")
        a = other.text if isinstance(other, ExpressionText) else repr(other)
        pair = (a, self.text) if mirrored else (self.text, a)
        return ExpressionText(f"({pair[0]} {sign} {pair[1]})")

    return method


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.items():
    setattr(ExpressionText, f"__{_name}__", _operator(_sign, mirrored=False))
    setattr(ExpressionText, f"__r{_name}__", _operator(_sign, mirrored=True))


def _reduced(over: str) -> Any:
    return lambda self, x: ExpressionText(x.text, over)


class TextNet(Net):
    """Pointwise functions as text, by templates."""

    def __init__(self, **templates: str) -> None:
        self.templates = templates

    def __getattr__(self, name: str) -> Any:
        if name not in vars(self).get("templates", ()):
            return super().__getattr__(name)
        return lambda x: ExpressionText(self.templates[name].format(x.text))

    total = _reduced("total")
    column_sum = _reduced("column_sum")
    column_max = _reduced("column_max")

    def write(
        self, w: Workload, inputs: list[Any], weights: list[Any]
    ) -> ExpressionText:
        """The expression of ``w`` over ``x0``, ``x1``, …

        Raises :class:`UnsupportedWorkload` for what is no map or reduction of a map.
        """
        if w.dtype != "float32":
            raise UnsupportedWorkload(f"no {w.dtype}")
        if w.argnums:
            raise UnsupportedWorkload("no gradients")
        if not SAME_SHAPE_TAGS & set(w.tags):
            raise UnsupportedWorkload("only maps, and reductions of maps")
        if any(isinstance(a, dict) for a in weights):
            raise UnsupportedWorkload("only arrays")
        args = [ExpressionText(f"x{i}") for i in range(len(inputs) + len(weights))]
        found = w.fn(self, *args)
        assert isinstance(found, ExpressionText)
        return found


class NumExpr:
    """numexpr, with its expression parsed before the calls."""

    def __init__(self, threads: int) -> None:
        import numexpr

        numexpr.set_num_threads(threads)
        self.ne = numexpr
        self.net = TextNet(
            relu="where({0} > 0, {0}, 0)", sigmoid="(1 / (1 + exp(-{0})))"
        )
        self.versions = {"numexpr": numexpr.__version__}

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` as one expression of its virtual machine."""
        found = self.net.write(w, inputs, weights)
        text = {
            "": "{}",
            "total": "sum({})",
            "column_sum": "sum({}, axis=0)",
            "column_max": "max({}, axis=0)",
        }[found.over].format(found.text)
        named = {f"x{i}": a for i, a in enumerate([*inputs, *leaves(weights)])}
        for i, number in enumerate(dict.fromkeys(re.findall(r"\d+\.\d+", text))):
            # A bare 0.5 would be a float64, and make all that it meets one.
            text = text.replace(number, f"k{i}")
            named[f"k{i}"] = np.float32(number)
        kinds = [(name, float) for name in named]  # its name for float32
        compiled = self.ne.NumExpr(text, signature=kinds)
        return Candidate(partial(compiled, *named.values()), np.asarray)


_KERNELS = {
    "": """
@nb.vectorize([{types}], target={target!r}, fastmath={{"contract"}})
def kernel({args}):
    return {text}
""",
    "total": """
@nb.njit(parallel={parallel}, fastmath={{"contract", "reassoc"}})
def kernel({arrays}):
    total = np.float32(0)
    {views}
    for i in nb.prange(f0.size):
        {loads}
        total += {text}
    return total
""",
    "column_sum": """
@nb.njit(fastmath={{"contract"}})
def kernel({arrays}):
    out = np.zeros(a0.shape[1], np.float32)
    for i in range(a0.shape[0]):
        for j in range(a0.shape[1]):
            {items}
            out[j] += {text}
    return out
""",
    "column_max": """
@nb.njit(fastmath={{"contract"}})
def kernel({arrays}):
    out = np.full(a0.shape[1], -np.inf, np.float32)
    for i in range(a0.shape[0]):
        for j in range(a0.shape[1]):
            {items}
            out[j] = max(out[j], {text})
    return out
""",
}
"""Maps as ufuncs, reductions as loops; columns are walked by rows."""


class Numba:
    """Numba: vectorize for maps, loops under njit for reductions."""

    def __init__(self, threads: int) -> None:
        import numba

        numba.set_num_threads(threads)
        self.nb, self.threads = numba, threads
        self.net = TextNet(
            relu="max({0}, f(0))",
            sigmoid="(f(1) / (f(1) + math.exp(-{0})))",
            gelu="(f(0.5) * {0} * (f(1) + math.erf({0} * f(0.70710678))))",
        )
        self.versions = {"numba": numba.__version__}

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` as one kernel."""
        found = self.net.write(w, inputs, weights)
        args = [*inputs, *leaves(weights)]
        n = range(len(args))
        source = _KERNELS[found.over].format(
            text=found.text,
            args=", ".join(f"x{i}" for i in n),
            arrays=", ".join(f"a{i}" for i in n),
            types=repr(f"float32({', '.join('float32' for _ in n)})"),
            target="parallel" if self.threads > 1 else "cpu",
            parallel=self.threads > 1,
            views="; ".join(f"f{i} = a{i}.ravel()" for i in n),
            loads="; ".join(f"x{i} = f{i}[i]" for i in n),
            items="; ".join(f"x{i} = a{i}[i, j]" for i in n),
        )
        scope = {"nb": self.nb, "np": np, "math": math, "f": np.float32}
        exec(compile(source, "<numba kernel>", "exec"), scope)
        return Candidate(partial(scope["kernel"], *args), np.asarray)
