"""MLX programs whose generated kernels run on the model of a GPU, on any machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
from metal import model

from eqsat.backends.mlx import lower, numpy_semantics, to_mlx, to_numpy
from eqsat.kernels.program import Program

Array = np.ndarray[Any, Any]
Functions = dict[model.Unit, Any]
AT_ONCE = 100
"""Kernels of one run of the compiler."""


@dataclass
class Modelled:
    """A program as Python that calls MLX, which gives generated kernels to the model:
    where MLX calls one, the model runs one."""

    program: Program
    language: str
    functions: Functions = field(default_factory=dict)
    """Of all kernels once they are known: see :func:`compiled`."""
    units: list[model.Unit] = field(default_factory=list)
    """Kernels that were called."""
    seed: int = 0
    """Of the order of lanes."""

    def __post_init__(self) -> None:
        with mock.patch.object(numpy_semantics, "kernel", self._kernel):
            self.run = lower(self.program, self.language).bare

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, of the arrays' layouts as they are where they are MLX's."""
        return [to_numpy(y) for y in self.run(*map(to_mlx, arrays))]

    def _kernel(
        self,
        language: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        threads: int,
        group: int,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[Any],
        header: str,
        body: str,
        takes: Sequence[Any],
        shared_bytes: int = 0,
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """What stands for :func:`eqsat.backends.mlx.numpy_semantics.kernel`."""

        def call(given: Sequence[Any]) -> list[Any]:
            assert [x.dtype for x in given] == [*takes], (name, takes)
            made = [mx.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)]
            unit = model.Unit(
                language,
                header,
                body,
                described(inputs, given),
                described(outputs, made),
                shared_bytes,
            )
            self.units.append(unit)
            if unit not in self.functions:  # not compiled yet: only the types matter
                return [mx.random.normal(y.shape).astype(y.dtype) for y in made]
            arrays, results = [to_numpy(x) for x in given], [to_numpy(y) for y in made]
            function, self.seed = self.functions[unit], self.seed + 1
            model.launched(
                function, arrays, results, threads // group, group, self.seed
            )
            return [to_mlx(y) for y in results]

        return call


def described(names: Sequence[str], arrays: Sequence[Any]) -> Any:
    """Names, dtypes and numbers of elements, as units have them."""
    return tuple(
        (
            n,
            "bool" if x.dtype == mx.bool_ else str(x.dtype).split(".")[-1],
            math.prod(x.shape),
        )
        for n, x in zip(names, arrays, strict=True)
    )


def units_of(runs: Sequence[tuple[Modelled, Sequence[Any]]]) -> list[model.Unit]:
    """All kernels of programs, each of which is called once with its arrays."""
    for run, arrays in runs:
        run(*arrays)
    return list(dict.fromkeys(u for run, _ in runs for u in run.units))


def compiled(runs: Sequence[tuple[Modelled, Sequence[Any]]]) -> list[model.Unit]:
    """Compile all kernels of programs, for these arrays."""
    units = units_of(runs)
    functions: Functions = {}
    for i in range(0, len(units), AT_ONCE):
        functions |= model.compiled(units[i : i + AT_ONCE])
    for run, _ in runs:
        run.functions = functions
    return units
