"""Programs drawn by a seed alone, and the smallest of those that fail a test.

Hypothesis prefers small draws and repeats parts of earlier ones, which is right for a
test of one's own; a long search over the whole catalogue wants every program anew.
Failures shrink in two ways: first the choices that a program was drawn with, then the
program itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.checking import INSIDE, PRECISION, VALUES, Pick, one_of
from eqsat.support import OptionError
from eqsat.terms import BF16, Op, dtype_code
from eqsat.testing.builder import Builder
from eqsat.testing.drawn import DrawnProgram
from eqsat.testing.layers import Layers
from eqsat.testing.steps import STEPS

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int32",
    "int64",
    "int8",
    "uint8",
)
"""Dtypes of the arguments of drawn programs."""
KINDS = ("integers", "uniform", "uniform", "uniform", "repeated", "zeros", "tiny")
"""Kinds of values of the arguments of drawn programs."""
MOST_OPS = 12
"""Steps that a drawn program starts from."""
MOST_TRIES = 600
"""Runs of a test that are spent on a smaller failure."""
Choices = tuple[tuple[int, ...], ...]
"""Those of the first argument, of each step, and of the results."""
Test = Callable[[DrawnProgram], None]


@dataclass(frozen=True)
class Wanted:
    """What programs are drawn of."""

    max_ops: int
    ops: Collection[str] | None
    dtypes: tuple[np.dtype[Any], ...]
    kinds: tuple[str, ...]
    layers: bool = False
    """Whether half of the steps are layers, and no fewer than half of ``max_ops``."""

    @classmethod
    def of(
        cls,
        max_ops: int,
        ops: Collection[str] | None,
        dtypes: Sequence[Any],
        elements: str | Sequence[str],
        layers: bool = False,
    ) -> Wanted:
        """Raises :class:`OptionError` for names of ops and kinds that do not exist."""
        if unknown := sorted(set(ops or ()) - Op.registry.keys()):
            raise OptionError(f"ops: there is no op {unknown[0]!r}")
        known = tuple(map(as_dtype, dtypes))
        return cls(max_ops, ops, known, kinds_of(elements), layers)

    def build(
        self, pick: Pick, repeat: Callable[[Callable[[], None]], None]
    ) -> DrawnProgram:
        """A program by the choices of ``pick``; ``repeat`` says how many steps."""
        wild = not set(self.kinds) <= set(INSIDE)
        if self.layers:
            return self._build_layers(pick, repeat, wild)
        b = Builder(pick, one_of(pick, self.dtypes), self.kinds, self.ops, wild)
        rank = one_of(pick, (2, 1, 3, 2, 0, 4))
        b.leaf(tuple(one_of(pick, b.sizes) for _ in range(rank)))
        repeat(lambda: one_of(pick, STEPS)(b))
        return b.program()

    def _build_layers(
        self, pick: Pick, repeat: Callable[[Callable[[], None]], None], wild: bool
    ) -> DrawnProgram:
        dtypes = [d for d in self.dtypes if d in PRECISION]
        b = Builder(pick, one_of(pick, dtypes), self.kinds, self.ops, wild)
        layers = Layers(b)
        others = () if layers.alike else STEPS
        steps = (*(layers.add,) * len(STEPS), *others)
        repeat(lambda: one_of(pick, steps)(b))
        layers.end()
        return b.program()


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """``dtype``, which may be the name ``bfloat16``. Raises :class:`DTypeError` when
    eqsat does not have it."""
    named = isinstance(dtype, str) and dtype == "bfloat16"
    found: np.dtype[Any] = BF16 if named else np.dtype(dtype)
    dtype_code(found)
    return found


def kinds_of(elements: str | Sequence[str]) -> tuple[str, ...]:
    """Kinds of values by name. Raises :class:`OptionError` for an unknown one."""
    kinds = (elements,) if isinstance(elements, str) else tuple(elements)
    for kind in kinds:
        if kind not in VALUES:
            raise OptionError(
                f"elements={kind!r}: expected one of {', '.join(map(repr, VALUES))}"
            )
    return kinds


def random_program(
    seed: Any,
    *,
    max_ops: int = MOST_OPS,
    ops: Collection[str] | None = None,
    dtypes: Sequence[Any] = DTYPES,
    elements: str | Sequence[str] = KINDS,
    layers: bool = False,
) -> DrawnProgram:
    """The program of a seed; the other arguments are those of :func:`programs`.

    ``layers``: from ``max_ops / 2`` steps, of which half are layers of 5 to 60 ops that
    repeat or almost do. ``max_ops``, ``ops``, ``dtypes`` and ``elements`` say how long
    it is at most, of which ops, dtypes and numbers.
    """
    wanted = Wanted.of(max_ops, ops, dtypes, elements, layers)
    return _drawn(wanted, _Random(seed, wanted))


def fuzz(
    test: Test,
    *,
    seed: Any = 0,
    count: int = 200,
    max_ops: int = MOST_OPS,
    ops: Collection[str] | None = None,
    dtypes: Sequence[Any] = DTYPES,
    elements: str | Sequence[str] = KINDS,
    layers: bool = False,
) -> None:
    """Run ``test`` on the programs of the seeds ``f"{seed}.{i}"``, ``i < count``.

    ``max_ops``, ``ops``, ``dtypes``, ``elements`` and ``layers`` are those of
    :func:`random_program`.

    ``test`` fails by an exception of any kind. Raises :class:`AssertionError` with the
    seed, the exception, and the smallest program found that fails with one of its type,
    as code.
    """
    wanted = Wanted.of(max_ops, ops, dtypes, elements, layers)
    for i in range(count):
        source = _Random(f"{seed}.{i}", wanted)
        program = _drawn(wanted, source)
        error = _failure(test, program)
        if error is not None:
            smaller = _Smaller(test, wanted, type(error))
            program = smaller.program(source.choices, program)
            error = _failure(test, program) or error
            raise AssertionError(
                f'program of seed "{seed}.{i}": {type(error).__name__}: {error}\n\n'
                f"{program}"
            ) from error


def _failure(test: Test, program: DrawnProgram) -> Exception | None:
    try:
        test(program)
    except Exception as error:
        return error
    return None


# -- sources of choices ----------------------------------------------------------------


class _Random:
    """Uniform choices by a seed, which are recorded."""

    def __init__(self, seed: Any, wanted: Wanted) -> None:
        self._random = random.Random(seed)
        self._parts: list[list[int]] = [[]]
        self._most = wanted.max_ops
        self._least = max(1, wanted.max_ops // 2) if wanted.layers else 1

    def pick(self, n: int) -> int:
        chosen = self._random.randrange(n) if n > 1 else 0
        self._parts[-1].append(chosen)
        return chosen

    def repeat(self, step: Callable[[], None]) -> None:
        for _ in range(self._random.randint(self._least, self._most)):
            self._parts.append([])
            step()
        self._parts.append([])

    @property
    def choices(self) -> Choices:
        return tuple(map(tuple, self._parts))


class _Replayed:
    """Given choices; the simplest where there are none left."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._rest = iter(choices[0])

    def pick(self, n: int) -> int:
        return min(next(self._rest, 0), n - 1)

    def repeat(self, step: Callable[[], None]) -> None:
        for part in self._choices[1:-1]:
            self._rest = iter(part)
            step()
        self._rest = iter(self._choices[-1])


def _drawn(wanted: Wanted, source: _Random | _Replayed) -> DrawnProgram:
    return wanted.build(source.pick, source.repeat)


# -- smaller failures ------------------------------------------------------------------


class _Smaller:
    """The search for the smallest program that fails in the same way."""

    def __init__(self, test: Test, wanted: Wanted, kind: type[Exception]) -> None:
        self.test = test
        self.wanted = wanted
        self.kind = kind
        self.tries = 0

    def program(self, choices: Choices, program: DrawnProgram) -> DrawnProgram:
        """The smallest found of a program and the choices it was drawn with."""
        while self.tries < MOST_TRIES // 2:
            for fewer in _simpler_choices(choices):
                candidate = _drawn(self.wanted, _Replayed(fewer))
                if self.fails(candidate):
                    choices, program = fewer, candidate
                    break
            else:
                break
        while self.tries < MOST_TRIES:
            for candidate in _parts(program):
                if self.fails(candidate):
                    program = candidate
                    break
            else:
                break
        return program

    def fails(self, program: DrawnProgram) -> bool:
        self.tries += 1
        return type(_failure(self.test, program)) is self.kind


def _simpler_choices(choices: Choices) -> Iterator[Choices]:
    """Without some steps, then with simpler choices."""
    steps = choices[1:-1]
    size = len(steps)
    while size:
        for i in range(len(steps) - size, -1, -size):
            yield (choices[0], *steps[:i], *steps[i + size :], choices[-1])
        size //= 2
    for k, part in enumerate(choices):
        for i, value in enumerate(part):
            for simple in sorted({0, value // 2, value - 1} & set(range(value))):
                changed = (*part[:i], simple, *part[i + 1 :])
                yield (*choices[:k], changed, *choices[k + 1 :])


def _parts(program: DrawnProgram) -> Iterator[DrawnProgram]:
    """With one result, then with an intermediate value as an argument, then with
    simpler arguments."""
    if len(program.results) > 1:
        for r in program.results:
            yield DrawnProgram.of(program.steps, (r,), program.arguments)
    for step in reversed(program.steps[:-1]):
        part = DrawnProgram.of(program.steps, (step.name,), program.arguments)
        (value,) = part(*part.inputs)
        rest = [s for s in program.steps if s is not step]
        arguments = {**program.arguments, step.name: np.array(value)}
        yield DrawnProgram.of(rest, program.results, arguments)
    for name, array in program.arguments.items():
        for simple in (np.zeros_like(array), np.ones_like(array), np.round(array)):
            if np.array_equal(simple, array):
                break
            simple.flags.writeable = array.flags.writeable
            yield replace(program, arguments={**program.arguments, name: simple})
