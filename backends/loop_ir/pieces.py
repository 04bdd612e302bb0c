"""What kernels are made of: nests, and the products, convolutions and factorisations
between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from eqsat.terms import Shape

from .index_maps import (
    Affine,
    Layout,
    LoopVar,
)
from .nest import (
    Compute,
    Const,
    DType,
    Load,
    Nest,
    Operand,
)


@dataclass(frozen=True)
class Mapped:
    """A matrix in float32, :attr:`rows` rows of a column at a time."""

    operands: tuple[Operand, ...]
    """What is read: the buffers that loads number."""
    sizes: tuple[int, int]
    """k, n."""
    body: tuple[Const | Load | Compute, ...]
    """Arguments first."""
    rows: tuple[int, ...]
    """The value of each row."""
    block: Affine
    """Which rows, divided by their number."""
    factor: int = -1
    """What each of the rows is to be multiplied by, where that is one number."""

    @property
    def column(self) -> LoopVar:
        """The variable that numbers columns."""
        return LoopVar("j", self.sizes[1])


@dataclass(frozen=True)
class Loops:
    """A nest over operands."""

    nest: Nest
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Contraction:
    """``out[b] = x[b] y[b]``, matrices of ``m`` rows, ``n`` columns and inner ``k``.

    Strides and offsets are in elements. What is read may be halves where the product
    is in float32.
    """

    x: Operand
    y: Operand
    out: Operand
    dtype: DType
    sizes: tuple[int, int, int]
    """m, n, k."""
    batch: Shape
    at: tuple[Layout, Layout, Layout]
    """How ``x``, ``y`` and ``out`` lie: strides of the batch axes come first."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read, then the result."""
        return self.x, self.y, self.out

    @property
    def rows(self) -> int:
        """Of all matrices of the result."""
        return prod(self.batch) * self.sizes[0]

    @property
    def flops(self) -> float:
        return 2.0 * prod(self.batch) * prod(self.sizes)


@dataclass(frozen=True)
class Product(Contraction):
    """Of matrices in memory, one stride of each of which is 1."""

    mapped: Mapped | None = None
    """How ``y`` is computed where it is not in memory."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The left one, the right one or what it is made of, and the result."""
        right = (self.y,) if self.mapped is None else self.mapped.operands
        return self.x, *right, self.out


Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Where kernels lie on images; pairs are of h and w."""

    image: Pair
    kernel: Pair
    places: Pair
    """Rows of the result, and how long they are."""
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def area(self) -> int:
        """Elements of a kernel in one channel."""
        return prod(self.kernel)


@dataclass(frozen=True)
class Convolution(Contraction):
    """Kernels, the rows of ``x``, by images: column ``n`` of ``y`` has the ``k``
    elements of an image that are under a kernel at place ``n``.

    The batch is of images and groups. The last strides of kernels and results are of
    rows and elements, or channels where it is turned, those of images of channels and
    rows.
    """

    window: Window
    turned: bool = False
    """Whether what is under the kernels are rows of a product, and kernels columns."""
    is_finite: bool = False
    """Whether kernels are known to be finite, so that zeros around images add nothing.
    """

    @property
    def channels(self) -> int:
        """Of an image, in one group."""
        return self.sizes[2] // self.window.area


@dataclass(frozen=True)
class Factoring:
    """A routine of linear algebra for each matrix of a batch, of an op of
    :mod:`eqsat.ops.factor`."""

    routine: str
    """The name of the op, or of what it decomposes matrices into."""
    operands: tuple[Operand, ...]
    """What is read, the result, and what notes that there is none."""
    dtype: DType
    sizes: tuple[int, int]
    """Rows of the matrix, and columns of the result, of a decomposition of the matrix.
    """
    batch: Shape
    at: tuple[Layout, ...]
    """How each of what is read and the result lie: strides of the batch come first."""
    flags: tuple[tuple[str, float], ...] = ()
    """The attributes of the op."""
    flops: float = 0.0

    @property
    def matrices(self) -> int:
        """How many there are."""
        return prod(self.batch)


@dataclass(frozen=True)
class Ordering:
    """Rows side by side put in order."""

    operands: tuple[Operand, ...]
    """What is sorted in place; or what is read, and int64 positions of its elements in
    order. At last :data:`.nest.FAULT`."""
    dtype: DType
    """Of the elements."""
    rows: int
    size: int
    """Elements of a row."""
    kind: str
    """As of :func:`numpy.argsort`."""
    wanted: int = 0
    """How many of the first positions of a row are read, or of the last ones (below 0);
    0 where all are."""

    @property
    def is_positions(self) -> bool:
        """Whether positions are found and not the elements sorted."""
        return len(self.operands) == 3


@dataclass(frozen=True)
class Network:
    """Short rows put in order, many at a time; strides are in elements, of what is read
    and of the result."""

    x: Operand
    out: Operand
    size: int
    """Elements of a row."""
    along: Pair
    """From one of them to the next."""
    rows: tuple[tuple[int, Pair], ...]
    """Axes of rows: how many, and their strides; those of a vector come from the last
    axis."""
    offset: Pair = (0, 0)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read, and the result."""
        return self.x, self.out

    @property
    def dtype(self) -> DType:
        return self.x.dtype


Piece = Loops | Product | Convolution | Factoring | Ordering | Network


@dataclass
class Pieces:
    """What a kernel is made of, in order."""

    pieces: list[Piece] = field(default_factory=list)
    temporaries: list[tuple[DType, int]] = field(default_factory=list)
    """Dtype and number of elements of each."""
    tables: list[np.ndarray[Any, Any]] = field(default_factory=list)
