"""Programs over an op, compiled as users compile theirs, on each backend that is here:
the op by itself, and with steps around it that may share its kernel."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.checking.op_agreement import Expected
from eqsat.checking.op_draws import CallTypes, Drawn, traced
from eqsat.jit import jit
from eqsat.kernels import backend_named
from eqsat.rulelang import failure
from eqsat.support import BackendError, DTypeError, Options
from eqsat.terms import Lowering, Op

BACKENDS = ("numpy", "native", "mlx")


@dataclass(frozen=True)
class Mode:
    """A way to compile a program over calls of the op."""

    name: str
    options: Options
    strict: bool
    """Whether NaN and infinities must be where the reference has them: rules of the
    default class may exchange them."""
    wrap: Callable[[CallTypes], Callable[..., Any]]


MODES = (
    Mode(
        "op by op",
        Options(fusion=False, numerics="exact"),
        True,
        lambda call: call.alone,
    ),
    Mode(
        "fused",
        Options(numerics="reassociate"),
        False,
        lambda call: call.inside,
    ),
)


@dataclass
class Batch:
    """Calls of one op over arrays of the same dtypes, and what they are given: a row of
    values, one for each call, at each turn."""

    calls: list[CallTypes]
    turns: list[list[Drawn]]
    modes: Sequence[Mode] = MODES
    left_out: dict[str, str] = field(default_factory=dict)
    """Backends that refuse these dtypes, and why."""
    _expected: dict[str, list[list[Expected]]] = field(default_factory=dict)

    @property
    def dtypes(self) -> str:
        return ", ".join(dict.fromkeys(str(d) for d, _ in self.calls[0].types))

    def expected(self, mode: Mode) -> list[list[Expected]]:
        """What the references make of each turn under ``mode``."""
        if mode.name not in self._expected:
            terms = [traced(c, mode.wrap(c)) for c in self.calls]
            self._expected[mode.name] = [
                [Expected(d, t) for d, t in zip(turn, terms, strict=True)]
                for turn in self.turns
            ]
        return self._expected[mode.name]


def absent(op: Op) -> dict[str, str]:
    """Backends that are not here, and why; a GPU is one of them."""
    found = {}
    for name in dict.fromkeys((*BACKENDS, *op.lowerings)):
        try:
            device = backend_named(name).model.device.name
        except BackendError as error:
            found[name] = str(error).partition("\n")[0]
            continue
        if name == "mlx" and device.startswith("cpu"):
            found["a GPU"] = "mlx has none here"
    return found


@contextmanager
def observed(op: Op) -> Iterator[set[str]]:
    """Within this block the author's kernels of ``op`` cost nothing, so that programs
    call them; the names of backends whose kernels were called."""
    kept, called = dict(op.lowerings), set[str]()

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def kernel(*args: Any, **named: Any) -> Any:
            called.add(name)
            return function(*args, **named)

        return kernel

    for name, own in kept.items():
        op.lowerings[name] = Lowering(watched(name, own.function), lambda *_: 0.0)
    try:
        yield called
    finally:
        op.lowerings.clear()
        op.lowerings.update(kept)


def program_fault(batch: Batch, backend: str, mode: Mode) -> str:
    """What is wrong with what a program of all calls computes; empty for nothing."""
    where = f"on {backend}, {mode.name}"
    try:
        program = _program(batch.calls, backend, mode)
        for turn in batch.expected(mode):
            for e, got in zip(turn, _run(program, turn), strict=True):
                fault = e.fault(np.asarray(got), mode.strict, backend == "mlx")
                if fault:
                    return f"{where}: {e.drawn}: {fault}"
    except DTypeError as error:
        batch.left_out[backend] = failure(error)
    except Exception as error:
        return f"{where}: {_alone_fails(batch, backend, mode, error)}"
    return ""


def _program(
    calls: Sequence[CallTypes], backend: str, mode: Mode
) -> Callable[..., Any]:
    steps = [(len(c.inputs), mode.wrap(c)) for c in calls]

    def function(*arrays: Any) -> Any:
        rest = iter(arrays)
        return tuple(f(*(next(rest) for _ in range(n))) for n, f in steps)

    return jit(function, backend=backend, options=mode.options)


def _run(program: Callable[..., Any], turn: Sequence[Expected]) -> Any:
    arrays = [a for e in turn for a in e.drawn.arrays]
    before = [a.tobytes() for a in arrays]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = program(*arrays)
    if [a.tobytes() for a in arrays] != before:
        raise ValueError("an argument was changed")
    return found


def _alone_fails(batch: Batch, backend: str, mode: Mode, error: Exception) -> str:
    """Which call of a program that fails does so by itself."""
    for i, call in enumerate(batch.calls):
        for turn in batch.expected(mode):
            try:
                _run(_program([call], backend, mode), [turn[i]])
            except Exception as own:
                return f"{turn[i].drawn}: it raises {failure(own)}"
    return f"it raises {failure(error)}"
