"""What a function writes to its arguments: done when a call ends, or refused before it
runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.numpy_api import kind_of, type_name
from eqsat.support import ReadOnlyError, TraceError, an, may_overlap
from eqsat.terms import Term
from eqsat.trace.call_arguments import Leaf, is_mlx
from eqsat.trace.tracer import Tracer

_WORK = 10_000
"""Steps to find out whether arrays of steps share an element; then they count as if."""


@dataclass(frozen=True, eq=False)
class CallerWrites:
    """The arguments that a function writes to. It is false where it writes to none."""

    places: Sequence[int]
    """Their positions among the inputs. What they become are the last outputs."""
    returned: Mapping[int, int]
    """Outputs that are one of the inputs of ``places`` itself, and which."""

    @classmethod
    def found(
        cls, stand_ins: Sequence[Tracer], inputs: Sequence[Term], results: Sequence[Any]
    ) -> CallerWrites:
        """What was written to ``stand_ins``, those of ``inputs``, by a function that
        returned ``results``."""
        pairs = list(enumerate(zip(stand_ins, inputs, strict=True)))
        places = [i for i, (x, term) in pairs if x.term is not term]
        written = {id(stand_ins[i]): i for i in places}
        returned = {
            k: written[id(r)] for k, r in enumerate(results) if id(r) in written
        }
        return cls(places, returned)

    def __bool__(self) -> bool:
        return bool(self.places)

    def check(
        self, leaves: Iterable[Leaf], outside: Iterable[np.ndarray[Any, Any]]
    ) -> None:
        """Raise :class:`TraceError` where a call must not write to its arguments:
        one is read-only, has elements that share memory, or shares it with another one
        or with an array that the function reads ``outside`` of them."""
        every = list(leaves)
        inputs = [leaf for leaf in every if not leaf.constant]
        for i in self.places:
            one = inputs[i]
            _check_writeable(one)
            for other in every:
                if other is not one and _overlap(one.value, other.value):
                    raise TraceError(
                        f"arguments {one.path} and {other.path} share memory, and the "
                        f"function writes to {one.path}\n  pass a copy of one of them"
                    )
            if any(_overlap(one.value, a) for a in outside):
                raise TraceError(
                    f"argument {one.path}, which the function writes to, shares memory "
                    "with an array that it reads outside of its arguments\n"
                    "  pass that array as an argument too, or a copy"
                )

    def finish(self, leaves: Iterable[Leaf], results: Sequence[Any]) -> list[Any]:
        """Write to the caller's arrays, the ``leaves``, what the program made of them,
        the last of its ``results``. Gives the other results."""
        inputs = [leaf for leaf in leaves if not leaf.constant]
        n = len(results) - len(self.places)
        for i, value in zip(self.places, results[n:], strict=True):
            inputs[i].value[...] = value
            kind = kind_of(inputs[i].given)
            if kind is not None:
                kind.wrote(inputs[i].foreign)
        own = list(results[:n])
        for k, i in self.returned.items():
            own[k] = inputs[i].given
        return own


def _check_writeable(leaf: Leaf) -> None:
    value = leaf.value
    if isinstance(value, np.ndarray):
        if not value.flags.writeable and leaf.foreign is not None:
            raise ReadOnlyError(
                f"the function writes to argument {leaf.path}, which is "
                f"{an(type_name(leaf.foreign))} that cannot be written to\n"
                "  return the new value, or pass a copy: np.array(x)"
            )
        if not value.flags.writeable:
            raise ReadOnlyError(
                f"assignment destination is read-only: the function writes to argument "
                f"{leaf.path}"
            )
        if may_overlap(value):
            raise TraceError(
                f"elements of argument {leaf.path} share memory, and the function "
                f"writes to {leaf.path}\n  pass a copy: np.array(x)"
            )
    elif not is_mlx(value):
        raise TraceError(
            f"the function writes to argument {leaf.path}, which is "
            f"{an(type_name(value))}, expected an array of NumPy or MLX"
        )


def _overlap(a: Any, b: Any) -> bool:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return a is b
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
