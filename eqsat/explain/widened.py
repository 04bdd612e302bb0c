"""Lines at which a program of float32 becomes one of float64.

Since NumPy 2 a scalar of NumPy counts like an array: ``x * np.sqrt(64)`` is float64
where ``x`` is float32, and all that follows from it takes twice the memory and time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.support import SourceLine
from eqsat.terms import INPUT, Op, Term, Weak, postorder

MEANT = re.compile(r"astype|float64(?!\()|double|f8|dtype")
"""Words of a line that asks for another dtype by itself; ``np.float64(2)`` is but a
number."""
NARROW = (np.dtype("f4"), np.dtype("f2"))


@dataclass(frozen=True)
class Widening:
    """A line that makes float64 of float32 or float16."""

    line: SourceLine
    narrow: str
    """The dtype before."""
    by: str
    """What the other operand is."""

    def __str__(self) -> str:
        return f"{self.line}  {self.narrow} becomes float64 by {self.by}" + (
            f": {self.line.text}" if self.line.text else ""
        )


def widenings(roots: Sequence[Term]) -> tuple[Widening, ...]:
    """The lines at which float32 or float16 meets float64 without being asked to, each
    once, in the order of the program. What follows from one of them is not listed."""
    found: dict[SourceLine, Widening] = {}
    for t in postorder(roots):
        if t.source is None or t.source in found:
            continue
        if _is_meant(t):
            continue
        for cast in t.args:
            if _is_widening(cast) and not _is_meant(cast):
                by = _other(t, cast)
                if by:
                    found[t.source] = Widening(t.source, str(cast.args[0].dtype), by)
    return tuple(found.values())


def _is_meant(term: Term) -> bool:
    """Whether the line of a term asks for a dtype by itself."""
    text = "" if term.source is None else term.source.text
    return MEANT.search(text) is not None


def _is_widening(term: Term) -> bool:
    op = term.op
    is_cast = isinstance(op, Op) and op.name == "cast" and bool(term.args)
    return is_cast and term.dtype == np.dtype("f8") and term.args[0].dtype in NARROW


def _other(reader: Term, cast: Term) -> str:
    """What an operand that comes in float64 is; empty where none does so by itself."""
    others = [
        a
        for a in reader.args
        if a is not cast and a.dtype != np.dtype(bool) and not _is_widening(a)
    ]
    if others and all(isinstance(a.dtype, Weak) for a in others):
        return "a scalar of NumPy; write float(…) around it"
    advice = f"give it dtype {cast.args[0].dtype}"
    for a in others:
        if a.op is INPUT:
            return f"argument {a.attrs[0]}, which is float64"
        whole = a.args[0] if a.args and a.op is cast.op else a
        dtype = whole.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            return f"integers of {dtype}; {advice}"
        if not _needs_arguments(a):
            return f"an array of float64, shape {a.shape}; {advice}"
    return ""


def _needs_arguments(term: Term) -> bool:
    return any(t.op is INPUT for t in postorder([term]))
