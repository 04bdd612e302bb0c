"""Sums of products over named axes: einsum, tensordot and their kin.

Traced, they become matrix products: ``"bhqd,bhkd->bhqk"`` is exactly ``q @ k.mT``. Axes
are permuted and merged only where the letters do not have that form already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.complex_numbers import holds_complex, numpy_call
from eqsat.ops.contract import matmul, matrix_product, sum_of_products
from eqsat.ops.pointwise import cast, multiply
from eqsat.ops.reduce import sum_op
from eqsat.ops.support import (
    as_int,
    dtype_of,
    in_float32,
    is_traced,
    known_sizes,
    rank,
    sizes,
)
from eqsat.ops.view import matrix_transpose, permute, ravel, reshape, window
from eqsat.support import ShapeError, TraceError, at, caller_line
from eqsat.terms import Labels, of_lists, parse_subscripts

# -- public functions ------------------------------------------------------------------


def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    """Sum of products of the operands over the axes whose letters the result lacks.

    Letters as of ``np.einsum``: explicit (``"ij,jk->ik"``) or implicit, with ellipses
    and repeated letters, or as lists of numbers behind the operands. Traced, the
    operands are multiplied from left to right. Raises :class:`ShapeError` when letters
    or sizes do not fit.

    >>> import numpy as np
    >>> einsum("mk,nk->mn", np.ones((2, 3)), np.ones((4, 3))).shape
    (2, 4)
    """
    if not isinstance(subscripts, str):
        subscripts, operands = of_lists((subscripts, *operands))
    if not is_traced(*operands):
        return in_float32(_einsum)(*operands, subscripts=subscripts, optimize=optimize)
    operands = tuple(x if is_traced(x) else np.asarray(x) for x in operands)
    inputs, output = parse_subscripts(subscripts, [rank(x) for x in operands])
    named = [Named(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    return contract(named, output)


def _einsum(*operands: Any, subscripts: Any, optimize: Any) -> Any:
    return np.einsum(subscripts, *operands, optimize=optimize)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum of products over ``axes``: the last and first n, or a pair of lists."""
    if not is_traced(a, b):
        return in_float32(np.tensordot)(a, b, axes=axes)
    a, b = (np.asarray(x) if type(x) in (int, float) else x for x in (a, b))
    ra, rb = len(known_sizes("tensordot", a)), len(known_sizes("tensordot", b))
    try:
        np.tensordot(np.ones((1,) * ra), np.ones((1,) * rb), axes)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise (TraceError if isinstance(error, TypeError) else ShapeError)(
            f"tensordot: axes {axes} do not pair those of {a.shape} and {b.shape}"
            f"{at(caller_line())}"
        ) from None
    count = as_int(axes)
    if count is not None:
        left, right = list(range(ra - count, ra)), list(range(count))
    else:
        ones = [(row, as_int(row)) for row in axes]
        left, right = (list(row) if one is None else [one] for row, one in ones)
    la, lb = [f"a{i}" for i in range(ra)], [f"b{i}" for i in range(rb)]
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {a.shape} and axis {j} of {b.shape} differ"
                f"{at(caller_line())}"
            )
        lb[j] = la[i]
    gone = set(la) & set(lb)
    output = tuple(label for label in (*la, *lb) if label not in gone)
    return contract([Named(a, tuple(la)), Named(b, tuple(lb))], output)


def dot(a: Any, b: Any) -> Any:
    """Sum of products over the last axis of ``a`` and the last but one of ``b``."""
    if not is_traced(a, b):
        return in_float32(np.dot)(a, b)
    ra, rb = rank(a), rank(b)
    if ra == 0 or rb == 0:
        return multiply(a, b)
    if rb in (None, 1, 2):
        return matmul(a, b)
    return tensordot(a, b, ((-1,), (-2,)))


def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axes of both."""
    if not is_traced(a, b):
        return in_float32(np.inner)(a, b)
    if rank(a) == 0 or rank(b) == 0:
        return multiply(a, b)
    return tensordot(a, b, ((-1,), (-1,)))


def vdot(a: Any, b: Any) -> Any:
    """Sum of the products of all elements."""
    if not is_traced(a, b):
        return in_float32(np.vdot)(a, b)
    if holds_complex(a) or holds_complex(b):
        return numpy_call("vdot", (a, b), {})
    return matmul(ravel(a), ravel(b))


def outer(a: Any, b: Any) -> Any:
    """z[i, j] = a[i] b[j] of the ravelled arrays."""
    if not is_traced(a, b):
        return np.outer(a, b)
    return multiply(reshape(a, (-1, 1)), ravel(b))


# -- operands --------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A value whose axes have names."""

    value: Any
    labels: Labels

    @property
    def size(self) -> dict[str, Any]:
        """Sizes by name."""
        return dict(zip(self.labels, known_sizes("einsum", self.value), strict=True))

    def arranged(self, labels: Sequence[str]) -> Any:
        """The value with its axes in the order of ``labels``."""
        n = len(labels)
        return permute(self.value, [self.labels.index(label) - n for label in labels])

    def aligned(self, labels: Sequence[str]) -> Any:
        """The value with axes ``labels`` where it has them, and else of size 1."""
        mine = [label for label in labels if label in self.labels]
        value = self.arranged(mine)
        first = labels.index(mine[0]) if mine else len(labels)
        if len(labels) - first == len(mine):
            return value
        size = self.size
        return reshape(value, [size.get(label, 1) for label in labels[first:]])

    def summed(self, keep: set[str]) -> Named:
        """The sum over the axes that are not in ``keep``."""
        gone = [i for i, label in enumerate(self.labels) if label not in keep]
        if not gone:
            return self
        n = len(self.labels)
        total = sum_op(self.value, axis=tuple(i - n for i in gone))
        return Named(total, self.labels).without({self.labels[i] for i in gone})

    def without(self, labels: set[str]) -> Named:
        """The value without those axes, which have size 1."""
        if not labels & {*self.labels}:
            return self
        kept = [(label, s) for label, s in self.size.items() if label not in labels]
        return Named(
            reshape(self.value, [s for _, s in kept]), tuple(label for label, _ in kept)
        )

    def diagonal(self) -> Named:
        """The value where axes of one name have one index."""
        twice = [label for label in self.labels if self.labels.count(label) > 1]
        if not twice:
            return self
        i = self.labels.index(twice[0])
        j = self.labels.index(twice[0], i + 1)
        shape = known_sizes("einsum", self.value)
        n = shape[i]
        if shape[j] != n:
            raise ShapeError(
                f"einsum: axis {twice[0]!r} is {n} and {shape[j]} in shape {shape}"
                f"{at(caller_line())}"
            )
        rest = [k for k in range(len(shape)) if k not in (i, j)]
        value = permute(self.value, [k - len(shape) for k in (*rest, i, j)])
        flat = reshape(value, (*(shape[k] for k in rest), n * n))
        labels = (*(self.labels[k] for k in rest), twice[0])
        return Named(window(flat, (0,), (n,), (n + 1,)), labels).diagonal()


# -- contraction -----------------------------------------------------------------------


def contract(operands: Sequence[Named], output: Labels) -> Any:
    """The operands multiplied from left to right, summed to the axes ``output``."""
    operands = _of_one_dtype([x.diagonal() for x in operands])
    _check_sizes(operands)
    result = operands[0]
    for i, x in enumerate(operands[1:], 2):
        later = {label for y in operands[i:] for label in y.labels}
        known = dict.fromkeys((*output, *result.labels, *x.labels))
        order = [label for label in known if label in later or label in output]
        both = {*result.labels, *x.labels}
        result = _pair(result, x, [label for label in order if label in both])
    return result.summed(set(output)).arranged(output)


def _of_one_dtype(operands: Sequence[Named]) -> list[Named]:
    dtypes = [d for d in (dtype_of(x.value) for x in operands) if d is not None]
    if len(dtypes) < len(operands) or len(set(dtypes)) == 1:
        return list(operands)
    dtype = np.result_type(*dtypes)
    return [Named(cast(x.value, dtype), x.labels) for x in operands]


def _check_sizes(operands: Sequence[Named]) -> None:
    found: dict[str, Any] = {}
    for x in operands:
        for label, size in zip(x.labels, sizes(x.value) or (), strict=False):
            known = found.setdefault(label, size)
            if known == 1:
                found[label] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"einsum: axis {label!r} is {known} in one operand and {size} in "
                    f"another{at(caller_line())}"
                )


def _pair(a: Named, b: Named, order: Sequence[str]) -> Named:
    """The product of two operands, summed over the axes that are not in ``order``."""
    shared = [x for x in a.labels if x in b.labels and x not in order]
    if shared and sizes(a.value) is not None and sizes(b.value) is not None:
        a, b = (
            x.without({s for s in shared if x.size[s] == 1 != y.size[s]})
            for x, y in ((a, b), (b, a))
        )
    a = a.summed({*order, *b.labels})
    b = b.summed({*order, *a.labels})
    plans = list(_plans(a, b, order))
    if plans:
        return min(plans, key=lambda plan: plan.permutations(order)).run(order)
    inner = [x for x in a.labels if x in b.labels and x not in order]
    if not inner:
        return Named(multiply(a.aligned(order), b.aligned(order)), tuple(order))
    wide = [*order, *inner]
    z = sum_of_products(a.aligned(wide), b.aligned(wide), len(inner))
    return Named(z, tuple(order))


def _plans(a: Named, b: Named, order: Sequence[str]) -> Iterator[_Plan]:
    """Ways to compute a product as one matrix product; none where it has no matrix."""
    only_b = any(x not in a.labels for x in order)
    if only_b and order[-1] in a.labels and order[-1] not in b.labels:
        a, b = b, a
    mine = [x for x in order if x not in b.labels]
    other = [x for x in order if x not in a.labels]
    inner = [x for x in a.labels if x in b.labels and x not in order]
    by_b = [x for x in b.labels if x in inner]
    if not inner:
        return
    tail = list(order)
    while tail and tail[-1] in other:
        tail.pop()
    run = list(order[len(tail) :])
    if mine and other:
        splits = [(mine[-1:], run or other[-1:])]
        if len(mine) + len(other) == len(order):
            splits.insert(0, (mine[-1:], other))
    elif other and run:
        splits = [([], run)]
    elif mine and order[-1] in mine:
        splits = [(mine[-1:], [])]
    else:
        return
    for rows, columns in splits:
        batch = [x for x in order if x not in rows and x not in columns]
        for k in (inner, by_b):
            yield _Plan(a, b, batch, rows, k, columns)


@dataclass(frozen=True)
class _Plan:
    """``a`` as (batch, rows, inner) times ``b`` as (batch, inner, columns)."""

    a: Named
    b: Named
    batch: Sequence[str]
    rows: Sequence[str]
    inner: Sequence[str]
    columns: Sequence[str]

    @property
    def order(self) -> list[str]:
        return [*self.batch, *self.rows, *self.columns]

    def permutations(self, order: Sequence[str]) -> int:
        """How many of the operands and the result need their axes permuted."""
        left, _ = self._layout(self.a, self.rows, self.inner)
        right, _ = self._layout(self.b, self.inner, self.columns)
        moved = (tuple(left) != self.a.labels) + (tuple(right) != self.b.labels)
        return moved + (self.order != list(order))

    def run(self, order: Sequence[str]) -> Named:
        """The product, with axes in the given order."""
        left = self._matrix(self.a, self.rows, self.inner)
        z = matrix_product(left, self._matrix(self.b, self.inner, self.columns))
        if len(self.rows) != 1 or len(self.columns) != 1:
            size = self.a.size | self.b.size
            tail = [size[x] for x in (*self.rows, *self.columns)]
            z = reshape(z, (*known_sizes("einsum", z)[:-2], *tail))
        return Named(Named(z, tuple(self.order)).arranged(order), tuple(order))

    def _layout(
        self, x: Named, rows: Sequence[str], columns: Sequence[str]
    ) -> tuple[list[str], bool]:
        """The order of axes that gives ``x``, and whether it is to be transposed."""
        batch = [label for label in self.batch if label in x.labels]
        if rows and columns and x.labels.index(rows[0]) > x.labels.index(columns[0]):
            return [*batch, *columns, *rows], True
        return [*batch, *rows, *columns], False

    def _matrix(self, x: Named, rows: Sequence[str], columns: Sequence[str]) -> Any:
        """``x`` as a batch of matrices, of size 1 along batch axes that it lacks."""
        arranged, transposed = self._layout(x, rows, columns)
        value = x.arranged(arranged)
        present = [i for i, label in enumerate(self.batch) if label in x.labels]
        batch = self.batch[present[0] :] if present else []
        if len(batch) > len(present) or len(rows) != 1 or len(columns) != 1:
            size = x.size
            matrix = [math.prod(size[y] for y in axes) for axes in (rows, columns)]
            tail = matrix[::-1] if transposed else matrix
            value = reshape(value, (*(size.get(y, 1) for y in batch), *tail))
        return matrix_transpose(value) if transposed else value
