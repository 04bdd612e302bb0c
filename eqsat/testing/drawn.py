"""A drawn program: Python source over NumPy and eqsat, with the arrays it is run on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking import array_code
from eqsat.rulelang import evaluate
from eqsat.support import Array, cached_property
from eqsat.terms import BF16
from eqsat.trace import trace

HEADER = (
    "import numpy as np",
    "import eqsat as eq",
    "from eqsat import ops",
    "from eqsat.op import Op",
)
_NAME = re.compile(r"\b[a-z]\d+\b")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of NumPy, which programs have reason to cause."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def scope() -> dict[str, Any]:
    """The names that the code of a program may use."""
    found: dict[str, Any] = {"bfloat16": BF16}
    exec("\n".join(HEADER), found)
    return found


@dataclass(frozen=True)
class DrawnStep:
    """One assignment of a program."""

    name: str
    code: str
    rule: str = ""
    """The stock rule whose side the step is a part of."""

    @property
    def reads(self) -> list[str]:
        """Names of the values that it uses."""
        return _NAME.findall(self.code)


@dataclass(frozen=True, eq=False)
class DrawnProgram:
    """A program drawn by :func:`programs`, with arguments to run it on.

    Arguments called ``c0``, ``c1`` … are read-only, so eqsat takes them for constants.

    ``program(*arrays)`` is what the references of its ops compute of NumPy arrays;
    ``program.function`` is the Python function to trace. ``str(program)`` is Python
    code that builds the same function and arguments.
    """

    steps: tuple[DrawnStep, ...]
    results: tuple[str, ...]
    arguments: Mapping[str, Array]

    @classmethod
    def of(
        cls,
        steps: Sequence[DrawnStep],
        results: Sequence[str],
        arguments: Mapping[str, Array],
    ) -> DrawnProgram:
        """The program of those ``steps`` that ``results`` need."""
        needed = set(results)
        kept: list[DrawnStep] = []
        for step in reversed(steps):
            if step.name in needed:
                kept.append(step)
                needed.update(step.reads)
        return cls(
            tuple(reversed(kept)),
            tuple(results),
            {n: a for n, a in arguments.items() if n in needed},
        )

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays to call it with."""
        return tuple(self.arguments.values())

    @property
    def variables(self) -> tuple[Array, ...]:
        """Those of the inputs that are no constants."""
        return tuple(a for a in self.inputs if a.flags.writeable)

    @property
    def rules(self) -> frozenset[str]:
        """Stock rules of which it holds a side."""
        return frozenset(s.rule for s in self.steps if s.rule)

    @property
    def source(self) -> str:
        """The function alone."""
        lines = [f"def program({', '.join(self.arguments)}):"]
        lines += [f"    {s.name} = {s.code}" for s in self.steps]
        end = "," if len(self.results) == 1 else ""
        return "\n".join([*lines, f"    return {', '.join(self.results)}{end}"])

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function, as ``source`` defines it; it returns a tuple."""
        found = scope()
        exec(compile(self.source, "<program>", "exec"), found)
        made: Callable[..., Any] = found["program"]
        return made

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Its results, traced and then evaluated through the references of the ops."""
        with quiet():
            traced = trace(self.function, arrays)
            variables = [a for a in arrays if a.flags.writeable]
            return tuple(evaluate(traced.outputs, variables))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield from HEADER
        arrays = self.arguments.items()
        if any(a.dtype == BF16 for _, a in arrays) or "bfloat16" in self.source:
            yield "from ml_dtypes import bfloat16"
        yield from ("", "", self.source, "", "")
        for name, array in arrays:
            yield f"{name} = {array_code(array)}"
            if not array.flags.writeable:
                yield f"{name}.flags.writeable = False"
