"""What ops say of wrong arguments: op, argument, what was expected, the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import traced

from eqsat import ops
from eqsat.support.errors import DTypeError, EqsatError, ShapeError, TraceError

F4 = np.dtype("f4")
ERRORS: list[
    tuple[Callable[..., Any], list[tuple[int, ...]], type[EqsatError], str]
] = [
    (
        lambda x, y: x @ y,
        [(2, 3), (4, 5)],
        ShapeError,
        "matmul: argument 'y' has shape (4, 5), expected ... k n: axis k is 4, not 3\n"
        "  signature ... m k, ... k n -> ... m n\n  bound so far: m=2, k=3, ...=()",
    ),
    (
        lambda x, w: ops.layer_norm(x, w, w),
        [(2, 3), (4,)],
        ShapeError,
        "layer_norm: argument 'w' has shape (4,), expected n: axis n is 4, not 3",
    ),
    (
        lambda x, y: x + y,
        [(2, 3), (4, 3)],
        ShapeError,
        "add: argument 1 of shape (4, 3) does not broadcast with (2, 3)",
    ),
    (
        lambda x: ops.sum(x, 2),
        [(2, 3)],
        ShapeError,
        "axis 2 is out of bounds for 2 dim",
    ),
    (
        lambda x: ops.max(x, 1),
        [(2, 0)],
        ShapeError,
        "zero-size array to reduction operation",
    ),
    (
        lambda x: ops.softmax(x, axis=(-2,)),
        [(0, 2)],
        ShapeError,
        "softmax: axis -2 of shape (0, 2) is empty",
    ),
    (
        lambda q, k: ops.attention(q, k, k),
        [(2, 3), (0, 3)],
        ShapeError,
        "attention_scaled: axis n is empty, expected a key to attend to",
    ),
    (lambda x: ops.reshape(x, (4, -1)), [(2, 3)], ShapeError, "cannot become (4, -1)"),
    (lambda x: ops.reshape(x, (5,)), [(2, 3)], ShapeError, "cannot become (5,)"),
    (lambda x: ops.transpose(x, (0, 0)), [(2, 3)], ShapeError, "does not permute"),
    (lambda x: ops.squeeze(x, 0), [(2, 3)], ShapeError, "has size 2, not 1"),
    (lambda x: ops.split(x, 2, 1), [(2, 3)], ShapeError, "equal division"),
    (
        lambda x, y: ops.concatenate([x, y]),
        [(2, 3), (2, 4)],
        ShapeError,
        "concatenate: argument 1 of shape (2, 4) does not join (2, 3) along axis -2",
    ),
    (
        lambda x, w: ops.conv2d(x, w),
        [(1, 3, 5, 5), (2, 4, 3, 3)],
        ShapeError,
        "conv2d: argument 'w' has shape (2, 4, 3, 3), expected (o, c/groups, i, j)",
    ),
    (
        lambda x, w: ops.conv2d(x, w),
        [(1, 3, 2, 2), (2, 3, 3, 3)],
        ShapeError,
        "does not fit",
    ),
    (
        lambda x, w: ops.conv2d(x, w, padding=2, dilation=2),
        [(1, 3, 4, 4), (2, 3, 0, 3)],
        ShapeError,
        "a kernel of (0, 3) does not fit",
    ),
    (
        lambda x, c: ops.rope(x, c, c),
        [(2, 3), (2, 3)],
        ShapeError,
        "expected an even size",
    ),
    (
        lambda x, w: ops.group_norm(x, w, w, groups=2),
        [(1, 3, 2, 2), (3,)],
        ShapeError,
        "axis c is 3, expected a multiple of groups=2",
    ),
    (
        lambda x, y: ops.einsum("ij,jk", x, y),
        [(2, 3), (4, 5)],
        ShapeError,
        "einsum: axis 'j' is 3 in one operand and 4 in another",
    ),
    (
        lambda x: ops.einsum("ij,jk", x),
        [(2, 3)],
        ShapeError,
        "it names 2 operands, got 1",
    ),
    (lambda x: ops.einsum("ijk", x), [(2, 3)], ShapeError, "names 3 axes of 2"),
    (lambda x: ops.einsum("ij->kk", x), [(2, 3)], ShapeError, "names 'k' twice"),
    (lambda x: ops.take(x, 0.5), [(2, 3)], DTypeError, "expected integers"),
    (lambda x: x & x, [(2, 3)], DTypeError, "bitwise_and: no loop for dtypes"),
    (lambda x: ops.pad(x, 1, "mean"), [(2, 3)], TraceError, "mode 'mean'"),
    (lambda x: ops.repeat(x, [1, 2], 0), [(2, 3)], TraceError, "must be one int"),
    (
        lambda x: ops.softmax(x, axes=-1),
        [(2, 3)],
        TraceError,
        "softmax: no argument 'axes'",
    ),
    (
        lambda x: ops.layer_norm(x, x[0]),
        [(2, 3)],
        TraceError,
        "argument 'b' is missing",
    ),
]


@pytest.mark.parametrize(("call", "shapes", "kind", "message"), ERRORS)
def test_an_error_names_what_is_wrong(
    call: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    kind: type[EqsatError],
    message: str,
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        call(*traced(*(np.zeros(s, F4) for s in shapes)))
    if "axes" not in message and "missing" not in message:
        assert "test_ops_errors.py" in str(caught.value)
