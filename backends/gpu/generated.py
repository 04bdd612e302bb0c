"""What computes a kernel on a GPU: generated kernels, and calls of a library between
them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.terms import Term

from ..loop_ir import (
    Buffer,
    DType,
    Nest,
)
from .printing import Source


@dataclass(frozen=True)
class KernelOperand:
    """What a generated kernel reads or writes: a ``term``, a ``temporary`` or a
    ``table`` (an array that is known beforehand)."""

    kind: str
    key: Any
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Generated:
    """A kernel of our own."""

    source: Source
    nests: tuple[Nest, ...]
    """With the same buffers; more than one in a kernel of several joined ones."""
    inputs: tuple[KernelOperand, ...]
    outputs: tuple[KernelOperand, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.nests[0].buffers

    @property
    def memory(self) -> list[KernelOperand]:
        """What each buffer is."""
        places = (*self.source.inputs, *self.source.outputs)
        held = dict(zip(places, (*self.inputs, *self.outputs), strict=False))
        return [held[i] for i in sorted(held)]


@dataclass(frozen=True)
class LibraryCall:
    """A term that a library computes from terms in memory and views of them."""

    term: Term


Part = Generated | LibraryCall
