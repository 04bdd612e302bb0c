"""Whether drawn programs do by eqsat what they do by NumPy, or the least that differs.

Compared are results by type, dtype, shape and value, the caller's arrays after the
call, and errors. Floats are equal bit for bit in *small* programs, where only the sign
of a zero may differ, and in *bits* programs under ``exact``. Otherwise they differ by
the bounds of :mod:`eqsat.testing` at most, which count roundings. Integers and bools
are equal everywhere but in *loose* programs, where bounds say which are decided.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy_programs import NumpyProgram, numpy_program

import eqsat as eq
from eqsat.support.errors import VerifyError
from eqsat.testing.agreement import Computed, agreement
from eqsat.trace.call_arguments import flatten_arguments

HOWS = {
    "native": ("native", "reassociate"),
    "native exact": ("native", "exact"),
    "numpy": ("numpy", "reassociate"),
    "mlx": ("mlx", "reassociate"),
}
"""Backends and numerics."""


@dataclass
class Tally:
    """What a number of programs did."""

    agreed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    different: dict[str, str] = field(default_factory=dict)
    """Reduced programs, and what is different, by a key."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.agreed + other.agreed,
            self.refused + other.refused,
            self.different | other.different,
        )

    @property
    def ran(self) -> int:
        return self.agreed + self.refused.total() + len(self.different)

    def __str__(self) -> str:
        said = f"{self.ran} ran, {self.agreed} agree, {self.refused.total()} refused"
        return f"{said}, {len(self.different)} differ"


def tally(seeds: Sequence[int], how: str) -> Tally:
    """Run the programs of ``seeds``, each difference reduced."""
    total = Tally()
    for seed in seeds:
        program = numpy_program(seed)
        if (found := verdict(program, how)) == "":
            total.agreed += 1
        elif found.startswith("refused: "):
            total.refused[found.removeprefix("refused: ")] += 1
        else:
            least = reduced(program, how)
            said = f"{how}, seed {seed}, {program.kind}: {verdict(least, how)}"
            total.different[f"{how} {seed}"] = f"{said}\n{least}"
    return total


def verdict(program: NumpyProgram, how: str) -> str:
    """Empty if eqsat agrees; ``refused: …``; or what is different."""
    backend, numerics = HOWS[how]
    f, theirs, ours = program.function, program.made(), program.made()
    fast = eq.jit(f, backend=backend, options=eq.Options(numerics=numerics))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = _outcome(f, theirs)
        got = _outcome(fast, ours)
        if isinstance(want, Exception) or isinstance(got, Exception):
            dropped = how == "mlx" and isinstance(want, IndexError)
            return "" if dropped else _errors(want, got)
        pairs = [*_pairs(want, got), *zip(theirs, ours, strict=True)]
        for a, b in pairs:
            if reason := _of_another_type(a, b):
                return reason
        if program.kind != "loose":
            strict = numerics == "exact" and program.kind == "bits"
            bits = numerics == "exact" or program.kind == "small"
            for a, b in pairs:
                if bits or np.asarray(a).dtype.kind in "biu":
                    if reason := _unequal(np.asarray(a), np.asarray(b), strict):
                        return reason
            if bits:
                return ""
        pairs = pairs[: len(program.results)]
        return _beyond_bounds(program, fast, pairs, flushes=how == "mlx")


def _outcome(f: Any, args: Any) -> Any:
    try:
        return f(*args)
    except Exception as error:
        return error


def _pairs(want: Any, got: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(want, tuple) and isinstance(got, tuple):
        yield from zip(want, got, strict=True)
    else:
        yield want, got


def _errors(want: Any, got: Any) -> str:
    if not isinstance(got, Exception):
        return f"NumPy raises {want!r}, eqsat gives {got!r}"
    if isinstance(got, VerifyError):
        return f"eqsat made what its verifier refuses: {got}"
    if isinstance(want, Exception):
        fits = isinstance(got, type(want) | eq.EqsatError)
        return "" if fits else f"NumPy raises {want!r}, eqsat {got!r}"
    if not isinstance(got, eq.EqsatError):
        return f"eqsat raises {got!r}"
    first = str(got).splitlines()[0]
    return "refused: " + re.sub(r"\d+", "0", first)[:110]


def _of_another_type(a: Any, b: Any) -> str:
    x, y = np.asarray(a), np.asarray(b)
    if _is_like(a, b) and (x.dtype, x.shape) == (y.dtype, y.shape):
        return ""
    return f"{type(a)} {x.dtype} {x.shape} by NumPy, {type(b)} {y.dtype} {y.shape}"


def _is_like(a: Any, b: Any) -> bool:
    """Whether two values are of a type: NumPy has two for unsigned integers of 64 bits,
    of one dtype."""
    numbers = isinstance(a, np.generic) and isinstance(b, np.generic)
    return numbers or type(a) is type(b)


def _unequal(x: Any, y: Any, signs: bool) -> str:
    """Values that are not the same bits, but for what a NaN holds; ``signs``: of 0."""
    same = x == y
    if x.dtype.kind in "fV":
        same = same | ((x != x) & (y != y))
        if signs:
            zero = np.signbit(x) == np.signbit(y)
            same = same & (zero | (x != 0) | (x != x))
    if np.all(same):
        return ""
    return f"{x[~same][:4]} by NumPy, {y[~same][:4]}"


def _beyond_bounds(
    program: NumpyProgram, fast: Any, pairs: list[tuple[Any, Any]], flushes: bool
) -> str:
    """What is different beyond the roundings of the program as it is written and as it
    was optimised. ``flushes``: 0 stands for numbers below the least normal one."""
    f, args = program.function, program.made()
    arrays = flatten_arguments(f, args, {}).arrays
    low = fast.lower(*program.made())
    written, optimised = (t[: len(pairs)] for t in (low.trace.outputs, low.term))
    left, right = zip(*pairs, strict=True)
    if flushes:
        left, right = map(flushed, left), map(flushed, right)
    theirs = Computed((*left,), written, arrays, halves=True)
    found = agreement(theirs, Computed((*right,), optimised, arrays))
    return found.reason


def flushed(value: Any) -> Any:
    """``value`` as MLX may compute it: 0 for numbers below the least normal one."""
    a = np.asarray(value)
    if a.dtype.kind != "f":
        return value
    return np.where(abs(a) < np.finfo(a.dtype).tiny, a.dtype.type(0), a)


def reduced(program: NumpyProgram, how: str) -> NumpyProgram:
    """The program with as few lines, results and elements as differ still."""

    def differs(p: NumpyProgram) -> bool:
        try:
            names = p.run()
            if not names.keys() >= {*p.results} - {"x * 1"}:
                return False
            found = verdict(p, how)
        except Exception:
            return program.raises and p is program
        return found != "" and not found.startswith("refused: ")

    if program.raises:
        return program
    smaller = True
    while smaller:
        smaller = False
        for less in _less(program):
            if differs(less):
                program, smaller = less, True
                break
    return program


def _less(program: NumpyProgram) -> Iterator[NumpyProgram]:
    if len(program.results) > 1:
        for name in program.results:
            yield replace(program, results=(name,))
    for i in range(len(program.lines)):
        rest = program.lines[:i] + program.lines[i + 1 :]
        yield replace(program, lines=rest)
    for i, a in enumerate(program.arguments):
        if a.layout != "plain":
            less = replace(a, layout="plain")
            arguments = (*program.arguments[:i], less, *program.arguments[i + 1 :])
            yield replace(program, arguments=arguments)
