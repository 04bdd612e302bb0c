"""The axis grammar: ``"... m k, ... k n -> ... m n"``.

Arguments are separated by commas, axes by spaces. An axis is a name, a literal size, or
``...`` for any number of axes. A name stands for one size wherever it appears; the axes
of every ``...`` broadcast together, as NumPy's do. An empty argument is a scalar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from eqsat.support import ShapeError, at, caller_line, counted

Axis = str | int
Shape = tuple[int, ...]
Bindings = dict[str, int | Shape]
ELLIPSIS = "..."


@dataclass(frozen=True)
class Axes:
    """The axes of one argument."""

    tokens: tuple[Axis, ...]

    @property
    def before(self) -> tuple[Axis, ...]:
        """The axes before the ellipsis; all of them when there is none."""
        return (
            self.tokens[: self.tokens.index(ELLIPSIS)] if self.variadic else self.tokens
        )

    @property
    def after(self) -> tuple[Axis, ...]:
        """The axes after the ellipsis."""
        return self.tokens[self.tokens.index(ELLIPSIS) + 1 :] if self.variadic else ()

    @property
    def variadic(self) -> bool:
        """Whether there is an ellipsis."""
        return ELLIPSIS in self.tokens

    @property
    def rank(self) -> int:
        """The rank, or the least rank when there is an ellipsis."""
        return len(self.tokens) - self.variadic

    def __str__(self) -> str:
        return " ".join(map(str, self.tokens)) or "(scalar)"


@dataclass(frozen=True)
class Signature:
    """A parsed signature; ``outputs`` is empty when the text has no arrow."""

    text: str
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]

    def bind(
        self, shapes: Sequence[Shape], who: str, names: Sequence[str] | None = None
    ) -> Bindings:
        """Axis sizes that make ``shapes`` fit; the key ``"..."`` holds the broadcast
        ellipsis.

        Raises :class:`ShapeError` that names the argument, what was expected, and the
        sizes bound so far.
        """
        if len(shapes) != len(self.inputs):
            raise ShapeError(
                f"{who}: takes {counted(len(self.inputs), 'array')} ({self.text}), got "
                f"{len(shapes)}{at(caller_line())}"
            )
        bound: Bindings = {}
        for i, (axes, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            name = names[i] if names else str(i)
            self._bind_one(axes, tuple(shape), bound, f"{who}: argument {name!r}")
        return bound

    def _bind_one(self, axes: Axes, shape: Shape, bound: Bindings, what: str) -> None:
        head, tail = axes.before, axes.after
        if len(shape) < axes.rank or (not axes.variadic and len(shape) > axes.rank):
            least = "at least " if axes.variadic else ""
            raise self._error(
                what, axes, shape, bound, f"needs {least}{counted(axes.rank, 'axis')}"
            )
        fixed = list(zip(head, shape, strict=False))
        if tail:
            fixed += zip(tail, shape[len(shape) - len(tail) :], strict=True)
        for axis, size in fixed:
            want = axis if isinstance(axis, int) else bound.setdefault(axis, size)
            if want != size:
                raise self._error(
                    what, axes, shape, bound, f"axis {axis} is {size}, not {want}"
                )
        if axes.variadic:
            rest = shape[len(head) : len(shape) - len(tail)]
            so_far = bound.get(ELLIPSIS, ())
            assert isinstance(so_far, tuple)
            joined = broadcast(so_far, rest)
            if joined is None:
                raise self._error(
                    what, axes, shape, bound, f"{rest} does not broadcast with {so_far}"
                )
            bound[ELLIPSIS] = joined

    def _error(
        self, what: str, axes: Axes, shape: Shape, bound: Mapping[str, object], why: str
    ) -> ShapeError:
        so_far = ", ".join(f"{k}={v}" for k, v in bound.items()) or "nothing"
        return ShapeError(
            f"{what} has shape {shape}, expected {axes}: {why}\n"
            f"  signature {self.text}\n  bound so far: {so_far}{at(caller_line())}"
        )

    def output(self, bound: Bindings, i: int = 0) -> Shape:
        """The shape of result ``i`` under ``bound``."""
        out: list[int] = []
        for axis in self.outputs[i].tokens:
            size = axis if isinstance(axis, int) else bound[axis]
            if isinstance(size, tuple):
                out.extend(size)
            else:
                out.append(size)
        return tuple(out)


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The NumPy broadcast of two shapes, or None."""
    if a == b:
        return a
    n = max(len(a), len(b))
    a = (1,) * (n - len(a)) + a
    b = (1,) * (n - len(b)) + b
    if any(x != y and x != 1 and y != 1 for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


_TOKEN = re.compile(r"\.\.\.|[A-Za-z_][A-Za-z_0-9]*|[0-9]+")


@cache
def parse(text: str) -> Signature:
    """Parse a signature. Raises :class:`ShapeError` that shows the wrong part."""
    sides = text.split("->")
    if len(sides) > 2:
        raise ShapeError(f"signature {text!r}: more than one '->'")
    inputs = (
        tuple(_parse_axes(p, text) for p in sides[0].split(","))
        if sides[0].strip()
        else ()
    )
    if not sides[0].strip() and len(sides) == 1:
        inputs = (Axes(()),)
    outputs = (
        tuple(_parse_axes(p, text) for p in sides[1].split(","))
        if len(sides) == 2
        else ()
    )
    known = {a for axes in inputs for a in axes.tokens if isinstance(a, str)}
    for axes in outputs:
        for a in axes.tokens:
            if isinstance(a, str) and a not in known:
                raise ShapeError(
                    f"signature {text!r}: result axis {a!r} is in no argument"
                )
    return Signature(text, inputs, outputs)


def _parse_axes(part: str, text: str) -> Axes:
    tokens: list[Axis] = []
    for word in part.split():
        if not _TOKEN.fullmatch(word):
            raise ShapeError(
                f"signature {text!r}: {word!r} is not an axis (a name, a size or '...')"
            )
        tokens.append(int(word) if word.isdigit() else word)
    if tokens.count(ELLIPSIS) > 1:
        raise ShapeError(
            f"signature {text!r}: {part.strip()!r} has more than one '...'"
        )
    return Axes(tuple(tokens))
