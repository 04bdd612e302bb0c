"""Programs that nobody tuned anything on: a few lines of NumPy, drawn from a seed.

``unseen/7/23`` is the program 23 of the seed 7. Each line continues with what the line
before it made. NumPy runs it while the program is drawn, and a line that NumPy refuses,
or whose numbers grow, is drawn again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np

from bench.workloads import Draw, Drawn, Workload
from bench.workloads.unseen_lines import FAMILIES, INTEGERS
from eqsat.support.errors import EqsatError

PREFIX = "unseen/"
LARGEST = 1 << 22
"""Elements of the largest value."""
VAST = 1 << 27
"""Elements of a value that is not even tried: not every machine has the memory."""
SORTED = 1 << 19
"""Elements of the largest value that is sorted."""
PRODUCT = 1 << 30
"""Most multiply-adds of a product."""
SIDE = 160
"""The longest side of a matrix that is factorised."""
GROWN = 1e5
"""The largest number."""
TRIES = 60
"""Lines that are drawn at most before a program ends early."""
TWICE = frozenset("ri")
"""Words that may stand for two arrays in a line."""
DTYPES = ("float32", "float32", "float32", "float64", "float64", "int32", "int64")


@dataclass(frozen=True)
class UnseenProgram:
    """A function of a few arrays, as text, and the arrays."""

    text: str
    families: tuple[str, ...]
    """Of its lines, in order, each once."""
    dtype: str
    inputs: tuple[Any, ...]
    weights: tuple[Any, ...]
    """Arrays that never change; they are the last arguments."""

    @property
    def function(self) -> Callable[..., Any]:
        names: dict[str, Any] = {"np": np}
        exec(compile(self.text, "<drawn>", "exec"), names)
        found: Callable[..., Any] = names["f"]
        return found


def unseen(seed: int, count: int) -> list[Workload]:
    """The first programs of a seed."""
    return [named(f"{PREFIX}{seed}/{number}") for number in range(count)]


def named(name: str) -> Workload:
    """The program of a name. Raises :class:`EqsatError` for other names."""
    if re.fullmatch(rf"{PREFIX}\d+/\d+", name) is None:
        raise EqsatError(f"{name!r} is no drawn program: unseen/SEED/NUMBER")
    program = drawn(name)

    def make(draw: Draw) -> Drawn:
        return list(program.inputs), list(program.weights)

    return Workload(
        name,
        lambda F, *arrays: program.function(*arrays),
        make,
        ("unseen", *program.families),
        program.dtype,
        numpy=program.function,
        decides=True,
    )


@cache
def drawn(name: str) -> UnseenProgram:
    """The program of a name, always the same."""
    rng = Random(name)
    made = _Drawing(rng, Draw(0, name, rng.choice(DTYPES)))
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        made.extend()
    return made.program()


@dataclass
class _Drawing:
    """A program that grows at its end."""

    rng: Random
    draw: Draw
    values: dict[str, Any] = field(default_factory=dict)
    """What each name is: arguments (a…), constants (w…), and results of lines (v…)."""
    lines: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = 2 ** self.rng.uniform(4, 22)
        ndim = self.rng.choice((1, 1, 1, 2, 2, 2, 2, 2, 2, 3))
        shape: list[int] = []
        for left in range(ndim, 0, -1):
            n = size if left == 1 else size ** self.rng.uniform(0.25, 1.5 / left)
            shape.append(max(2, round(n)))
            size = max(size / shape[-1], 2)
        if self.rng.random() < 0.5:
            shape = [max(2, 1 << (n.bit_length() - 1)) for n in shape]
        self.last = self._given(tuple(shape))

    def extend(self) -> None:
        """One more line, if one of some fits."""
        if np.ndim(self.values[self.last]) == 0:
            return
        for _ in range(TRIES):
            known = dict(self.values)
            family, text = self._line()
            if text is not None and self._ran(text):
                self.lines.append(text)
                self.families.append(family)
                return
            self.values = known

    def program(self) -> UnseenProgram:
        """What was drawn; it returns the last value, and maybe another one."""
        made = [v for v in self.values if v.startswith("v")]
        if not made:
            self.lines.append(f"v0 = {self.last} * 2")
            self.families.append("maps")
            made = ["v0"]
        text = "\n".join(self.lines)
        used = re.findall(r"\b[aw]\d+\b", text)
        inputs = [v for v in self.values if v[0] == "a" and v in used]
        weights = [v for v in self.values if v[0] == "w" and v in used]
        results = made[-1:]
        if len(made) > 1 and self.rng.random() < 0.3:
            results.append(made[0])
        body = [*text.splitlines(), f"return {', '.join(results)}"]
        head = f"def f({', '.join([*inputs, *weights])}):"
        return UnseenProgram(
            "\n    ".join([head, *body]) + "\n",
            tuple(dict.fromkeys(self.families)),
            str(self.draw.dtype),
            tuple(self.values[v] for v in inputs),
            tuple(self.values[v] for v in weights),
        )

    def _line(self) -> tuple[str, str | None]:
        """A line over the last value, and its family; None where that is too large."""
        x = self.values[self.last]
        family, lines = "integers", INTEGERS
        if x.dtype.kind == "f":
            family = self.rng.choice(sorted(FAMILIES))
            lines = FAMILIES[family]
        too_large = (
            (family == "sorts" and x.size > SORTED)
            or (family == "products" and x.size * max(x.shape) > PRODUCT)
            or (family == "factorisations" and max(x.shape) > SIDE)
            or (family == "statistics" and x.size * x.shape[-1] > PRODUCT)
        )
        line = self.rng.choice(lines)
        if too_large:
            return family, None
        output = f"v{sum(v.startswith('v') for v in self.values)}"
        filled: dict[str, str] = {"o": output, "x": self.last}
        text = re.sub(r"\{(\w+)\}", lambda m: self._filled(m[1], x, filled), line)
        if re.search(r"outer|None, :", line) and x.size * x.shape[-1] > VAST:
            return family, None
        return family, text if "{o}" in line else f"{output} = {text}"

    def _filled(self, what: str, x: Any, filled: dict[str, str]) -> str:
        """What stands for a word in braces: the same wherever it stands in a line, but
        for the words of :data:`TWICE`."""
        if what in filled and (what not in TWICE or self.rng.random() < 0.5):
            return filled[what]
        axes = [*range(x.ndim), -1]
        if what == "k":
            text = f"{self.rng.choice((0.1, 0.25, 0.5, 1.5, 2))}"
        elif what == "n":
            text = str(min(*x.shape, self.rng.randint(4, 24)))
        elif what == "axis":
            text = str(self.rng.choice(axes))
        elif what == "a":
            text = str(self.rng.choice([*axes, None]))
        elif what == "i":
            text = self._indices(len(x))
        else:
            text = self._array(what, x)
        filled[what] = text
        return text

    def _array(self, what: str, x: Any) -> str:
        """An array that fits ``x``: a value that is there, an argument, a constant."""
        if what == "y":
            same = [
                v
                for v, known in self.values.items()
                if np.shape(known) == x.shape and known.dtype == x.dtype
            ]
            others = [v for v in same if self.values[v] is not x]
            if others and self.rng.random() < 0.4:
                return self.rng.choice(others)
            return self._given(x.shape, x.dtype)
        columns = max(2, min(512, PRODUCT // x.size))
        shapes = {
            "r": x.shape[-1:],
            "c": (*x.shape[:-1], 1),
            "t": (64,),
            "w": (x.shape[-1], self.rng.randint(2, columns)),
            "p": (self.rng.randint(2, 40), x.shape[-1]),
        }
        is_fixed = what in "wtp" and self.rng.random() < 0.6
        scale = x.shape[-1] ** -0.5 if what == "w" else 1.0
        return self._given(shapes[what], x.dtype, scale, "w" if is_fixed else "a")

    def _given(
        self,
        shape: tuple[int, ...],
        dtype: Any = None,
        scale: float = 1,
        kind: str = "a",
    ) -> str:
        """A new argument or constant."""
        dtype = self.draw.dtype if dtype is None else dtype
        if dtype.kind == "f":
            array = self.draw.normal(*shape, scale=scale).astype(dtype)
        else:
            array = self.draw.rng.integers(0, 100, shape, dtype)
        return self._named(kind, array)

    def _indices(self, rows: int) -> str:
        many = max(2, int(rows * self.rng.choice((0.25, 1, 1))))
        return self._named("a", self.draw.rng.integers(0, rows, many))

    def _named(self, kind: str, array: Any) -> str:
        name = f"{kind}{sum(v.startswith(kind) for v in self.values)}"
        self.values[name] = array
        return name

    def _ran(self, text: str) -> bool:
        """Run a line; whether NumPy accepts it and its numbers are usual."""
        names = dict(self.values)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error")
            try:
                exec(text, {"np": np}, names)
            except (ValueError, IndexError, TypeError, MemoryError, Warning):
                return False
        output = f"v{sum(v.startswith('v') for v in self.values)}"
        found = np.asarray(names[output])
        if not 0 < found.size <= LARGEST or found.dtype.kind not in "fiu":
            return False
        with np.errstate(all="ignore"):
            if not np.abs(found).max() <= GROWN:
                return False
        self.values[output] = found
        self.last = output
        return True
