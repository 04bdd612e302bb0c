"""Ops that NumPy computes inside of programs for MLX: their values, their derivatives
by ``mx.grad``, and errors where MLX withholds the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np

from eqsat.kernels import Program
from eqsat.ops import sum as total
from eqsat.reverse import gradients
from eqsat.support import BackendError
from eqsat.terms import INPUT, Op, Term, TermGraph
from eqsat.trace import Tracer

from .array_struct import watched
from .arrays import Array, is_float, numpy_dtype, to_mlx, to_numpy
from .transforms import is_pushed_forward


class Hosted:
    """The reference of an op, over arrays of MLX, which are evaluated.

    ``mx.grad`` and its like take the derivative that the op has. Raises
    :class:`BackendError` inside ``mx.compile``, ``mx.vmap`` and ``mx.jvp``, which know
    no values, and NumPy's errors.
    """

    def __init__(self, term: Term, dtype: np.dtype[Any]) -> None:
        self.op = cast(Op, term.op)
        self.attrs = self.op.attr_dict(term)
        self.shape, self.dtype = term.shape, dtype
        """Of the result, whatever the reference gives."""
        self.lower: Callable[[Program], Any]
        """Compiles the derivative; set by what writes calls of this."""

    @property
    def reason(self) -> str:
        """Why NumPy computes it."""
        return f"{self.op.name}: {self.op.opaque or 'MLX has no call for it'}"

    def __call__(self, *args: Any) -> Array:
        places = [i for i, a in enumerate(args) if isinstance(a, mx.array)]

        def computed(*arrays: Array) -> Array:
            known = dict(zip(places, self._values(arrays), strict=True))
            found = [known.get(i, a) for i, a in enumerate(args)]
            with np.errstate(all="ignore"):
                value = np.asarray(self.op.reference(*found, **self.attrs))
            typed = value.astype(self.dtype, copy=False)
            return to_mlx(np.broadcast_to(typed, self.shape))

        arrays = [args[i] for i in places]
        seen = watched()
        if seen is not None and not seen.is_tracer():
            return computed(*arrays)
        if is_pushed_forward():
            raise BackendError(self._refusal(arrays, "mx.vmap and mx.jvp"))
        made: Any = mx.custom_function(computed)

        @made.vjp
        def vjp(primals: Any, cotangent: Any, output: Any) -> Any:
            several = isinstance(primals, (tuple, list))
            given = list(primals) if several else [primals]
            parts = self._pulled_back(args, given, cotangent)
            return tuple(parts) if several else parts[0]

        result: Array = made(*arrays)
        return result

    def _values(self, arrays: Sequence[Array]) -> list[np.ndarray[Any, Any]]:
        try:
            mx.eval(*arrays)
        except ValueError as error:
            if "transformation" not in str(error):
                raise
            refusal = self._refusal(arrays, "mx.compile and mx.vmap")
            raise BackendError(refusal) from None
        return [*map(to_numpy, arrays)]

    def _refusal(self, arrays: Sequence[Array], what: str) -> str:
        given = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in arrays)
        return (
            f"{self.op.name}: arguments {given} inside of {what}, which know no "
            "values, expected arrays with values: NumPy computes it\n  call the jitted "
            "function outside of them; it is compiled already, and mx.grad takes it"
        )

    # -- derivatives -------------------------------------------------------------------

    def _pulled_back(
        self, args: Sequence[Any], arrays: Sequence[Array], cotangent: Array
    ) -> list[Array]:
        """Derivatives by all ``arrays``, which are those of ``args``, of a scalar whose
        derivative by the result is ``cotangent``."""
        if any(
            mx.issubdtype(x.dtype, mx.complexfloating) for x in (*arrays, cotangent)
        ):
            raise BackendError(
                f"{self.op.name}: mx.grad through complex numbers that NumPy computes\n"
                "  use eq.grad of the function"
            )
        graph, left = TermGraph(), iter(arrays)
        leaves: list[Term] = []
        values: list[Any] = []
        for a in args:
            if isinstance(a, mx.array):
                leaves.append(_leaf(graph, len(leaves), next(left)))
            values.append(Tracer(leaves[-1]) if isinstance(a, mx.array) else a)
        y: Any = self.op(*values, **self.attrs)
        g = _leaf(graph, len(leaves), cotangent)
        moving = [i for i, x in enumerate(arrays) if is_float(x)]
        loss = total(y * Tracer(g), None, keepdims=False)
        _, *found = gradients(loss.term, [leaves[i] for i in moving])
        run = self.lower(Program.of(found, [*leaves, g])).run
        by = dict(zip(moving, run(*arrays, cotangent), strict=True))
        return [by.get(i, mx.zeros_like(x)) for i, x in enumerate(arrays)]


def _leaf(graph: TermGraph, number: int, like: Array) -> Term:
    return graph.node(INPUT, (), (number,), (numpy_dtype(like), tuple(like.shape)))
