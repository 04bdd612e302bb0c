"""Kernels of a native program that NumPy runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.kernels import Kernel, Program, kernel_alone
from eqsat.terms import Term

from ..interpret import Array


@dataclass(frozen=True, eq=False)
class Python:
    """A kernel that NumPy runs, and why."""

    kernel: Kernel
    run: Callable[..., Sequence[Array]]
    arguments: tuple[Term, ...]
    reason: str


class ByNumpy:
    """A whole program that NumPy runs, since there was no time for machine code."""

    def __init__(self, program: Program, reason: str) -> None:
        from ..numpy import lower as lower_to_numpy

        self.cut_short = reason
        self.reasons = {k.name: reason for k in program.kernels}
        self._run = lower_to_numpy(program)
        self.source = f"# {reason}\n{self._run.source}"

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results, in fresh arrays."""
        return self._run(*map(np.asarray, arrays))

    def code_for(self, arrays: Sequence[Any]) -> None:
        """There is no native function."""


def python_part(kernel: Kernel, reason: str) -> Python:
    """A kernel as a NumPy program of its own."""
    from ..numpy import lower as lower_to_numpy

    program, arguments = kernel_alone(kernel)
    return Python(kernel, lower_to_numpy(program), arguments, reason)
