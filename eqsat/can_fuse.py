"""Whether two functions become one kernel when one is applied to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eqsat.explain import Explanation
from eqsat.jit import jit
from eqsat.rulelang import Rule
from eqsat.support import OptionError, Options
from eqsat.trace import Spec


@dataclass(frozen=True)
class CanFuse:
    """The answer of :func:`can_fuse`; true when the two share a kernel."""

    fused: bool
    reason: str
    """What sharing saves, or why they stay apart."""
    kernels: tuple[str, ...]
    """The kernels of the two together."""
    apart_s: float
    """Seconds of the two, each by itself."""
    together_s: float
    """Seconds of the two as one program."""
    explanation: Explanation
    """Of the one program."""

    @property
    def speedup(self) -> float:
        """How many times as long the two take by themselves."""
        return self.apart_s / self.together_s if self.together_s else 1.0

    def __bool__(self) -> bool:
        return self.fused

    def __str__(self) -> str:
        word = "fused" if self.fused else "not fused"
        return f"{word}: {self.reason} ({', '.join(self.kernels)})"


def can_fuse(
    producer: Callable[..., Any],
    consumer: Callable[..., Any],
    *args: Any,
    backend: str | None = None,
    rules: Iterable[Rule] | None = None,
    options: Options | None = None,
) -> CanFuse:
    """Whether ``consumer(producer(*args))`` takes fewer kernels than the two apart.

    ``args``: arrays, :class:`Spec` values, or shapes, which stand for float32 arrays.
    ``consumer`` is given what ``producer`` returns: one array, or the arrays of a
    tuple. Nothing is run. ``backend``, ``rules`` and ``options`` are those of
    :func:`jit`. Raises what :func:`jit` does, and :class:`OptionError` for an
    argument that is none of these.

    >>> import numpy as np, eqsat as eq
    >>> bool(eq.can_fuse(np.exp, np.tanh, (64, 64)))
    True
    """
    specs = [_spec(a) for a in args]

    def both(*xs: Any) -> Any:
        made = producer(*xs)
        return consumer(*made) if isinstance(made, tuple) else consumer(made)

    first = jit(producer, backend, rules, options).lower(*specs)
    between = [Spec(t.shape, str(t.dtype)) for t in (first.program.roots or first.term)]
    second = jit(consumer, backend, rules, options).lower(*between)
    together = jit(both, backend, rules, options).explain(*specs)
    apart_s = first.optimised.cost_s + second.optimised.cost_s
    apart = len(first.program.kernels) + len(second.program.kernels)
    fused = len(together.kernels) < apart
    return CanFuse(
        fused,
        _reason(together, apart_s, fused),
        tuple(k.name for k in together.kernels),
        apart_s,
        together.cost_s,
        together,
    )


def _spec(arg: Any) -> Any:
    if isinstance(arg, tuple):
        if not all(isinstance(d, int) and d >= 0 for d in arg):
            raise OptionError(
                f"can_fuse: {arg!r} is no shape: expected sizes that are not negative"
            )
        return Spec(arg, "float32")
    return arg


def _reason(together: Explanation, apart_s: float, fused: bool) -> str:
    if fused:
        return f"saves {(apart_s - together.cost_s) * 1e6:.1f} µs"
    missed = [f for f in together.fusions if not f.taken]
    return missed[0].reason if missed else "each is one kernel, and so are both"
