"""Programs whose generated kernels run on the model of a GPU, without MLX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from metal import model

import eqsat as eq
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.gpu_program import (
    Generated,
    KernelOperand,
    LibraryCall,
    parts_of,
)
from eqsat.backends.loop_ir.index_maps import (
    Unsupported,
)
from eqsat.backends.numpy import evaluate
from eqsat.kernels.kernel import Kernel
from eqsat.kernels.program import Program
from eqsat.terms.term import Term

Array = np.ndarray[Any, Any]


class Run:
    """A program whose generated kernels run on the model, the rest by references."""

    def __init__(self, program: Program, language: str) -> None:
        self.program, self.language = program, language
        self.parts: dict[Kernel, list[Any]] = {}
        for kernel in program.kernels:
            try:
                self.parts[kernel] = parts_of(kernel, DIALECTS[language], {})
            except Unsupported:
                continue

    @property
    def units(self) -> list[model.Unit]:
        return [
            unit_of(p, self.language)
            for parts in self.parts.values()
            for p in parts
            if isinstance(p, Generated)
        ]

    def __call__(
        self, arrays: Sequence[Array], functions: dict[model.Unit, Any], seed: int
    ) -> list[Array]:
        values: dict[Any, Array] = dict(zip(self.program.inputs, arrays, strict=True))
        fixed = [*self.program.constants, *self.program.folded]
        values |= {
            t: np.asarray(v) for t, v in evaluate(fixed, {}).items() if t in fixed
        }
        for step in self.program.steps:
            parts = self.parts.get(step) if isinstance(step, Kernel) else None  # type: ignore[arg-type]
            if parts is None:
                terms = step.results if isinstance(step, Kernel) else (step.term,)
                self._by_reference(terms, values)
                continue
            temporaries: dict[int, Array] = {}
            for p in parts:
                if isinstance(p, LibraryCall):
                    self._by_reference([p.term], values)
                else:
                    run_part(p, self.language, values, temporaries, functions, seed)
            for body, r in zip(step.bodies, step.results, strict=True):
                values.setdefault(r, values.get(body))  # type: ignore[arg-type]
        return [values[r] for r in self.program.roots]

    def _by_reference(self, terms: Sequence[Term], values: dict[Any, Array]) -> None:
        found = evaluate(
            list(terms), {t: v for t, v in values.items() if v is not None}
        )
        values |= {t: np.asarray(found[t]) for t in terms}


def kernel_of(program: Program, language: str = "cuda") -> Generated:
    """The only kernel of a program, which is one part."""
    (kernel,) = program.kernels
    (part,) = parts_of(kernel, DIALECTS[language], {})
    assert isinstance(part, Generated)
    return part


def unit_of(p: Generated, language: str) -> model.Unit:
    def described(memory: Sequence[KernelOperand], numbers: Sequence[int]) -> Any:
        return tuple(
            (p.buffers[i].name, m.dtype.name, int(np.prod(m.shape, dtype=int)))
            for m, i in zip(memory, numbers, strict=True)
        )

    s = p.source
    given = described(p.inputs, s.inputs), described(p.outputs, s.outputs)
    return model.Unit(language, s.header, s.body, *given)


def run_part(
    p: Generated,
    language: str,
    values: dict[Any, Array],
    temporaries: dict[int, Array],
    functions: dict[model.Unit, Any],
    seed: int,
) -> None:
    def array(m: KernelOperand) -> Array:
        if m.kind == "table":
            return np.asarray(m.key.array)
        return temporaries[m.key] if m.kind == "temporary" else values[m.key]

    outputs = [np.empty(m.shape, m.dtype) for m in p.outputs]
    function = functions[unit_of(p, language)]
    s = p.source
    model.launched(
        function, [array(m) for m in p.inputs], outputs, s.groups, s.group, seed
    )
    for m, y in zip(p.outputs, outputs, strict=True):
        (temporaries if m.kind == "temporary" else values)[m.key] = y


def optimised(f: Callable[..., Any], arrays: Sequence[Array]) -> Program:
    return eq.jit(f, backend="numpy").lower(*arrays).program
