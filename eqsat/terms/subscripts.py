"""The letters of einsum: ``"...ij,...jk->...ik"``."""

from __future__ import annotations

import operator
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eqsat.support import ShapeError, TraceError, at, caller_line, counted

Labels = tuple[str, ...]


def of_lists(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The letters and the operands of ``x, [0, 1], y, [1, 2], [0, 2]``, the form of
    ``np.einsum`` with a list of numbers behind every operand."""
    operands, lists = given[0::2], list(given[1::2])
    text = ",".join(map(_letters, lists))
    if len(operands) > len(lists):
        *operands, last = operands
        text += f"->{_letters(last)}"
    return text, tuple(operands)


def _letters(axes: Any) -> str:
    """A list of axes as letters: 0 is the first of the alphabet."""
    try:
        return "".join(
            "..." if a is Ellipsis else string.ascii_letters[operator.index(a)]
            for a in axes
        )
    except (TypeError, IndexError):
        raise TraceError(
            "einsum: expected a string of letters, or a list of axes from 0 to 51 "
            f"after each operand, got {axes!r:.60}{at(caller_line())}"
        ) from None


def parse_subscripts(
    text: str, ranks: Sequence[int | None]
) -> tuple[list[Labels], Labels]:
    """Names of the axes of every operand and of the result.

    An ellipsis stands for axes named ``"-1"``, ``"-2"``, … from its end, so that they
    meet as in broadcasting. Raises :class:`ShapeError` that shows the wrong part.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise _error(
            text, f"it names {counted(len(parts), 'operand')}, got {len(ranks)}"
        )
    inputs = [_labels(text, p, r) for p, r in zip(parts, ranks, strict=True)]
    count = Counter(label for labels in inputs for label in labels)
    broadcast = sorted((x for x in count if x.startswith("-")), key=int)
    if not arrow:
        once = sorted(x for x, n in count.items() if n == 1 and not x.startswith("-"))
        return inputs, (*broadcast, *once)
    output = _labels(text, right, len(right.replace("...", "")) + len(broadcast))
    for label in output:
        if output.count(label) > 1 or label not in count:
            raise _error(
                text, f"the result names {label!r} twice, or no operand has it"
            )
    return inputs, output


def _labels(text: str, part: str, rank: int | None) -> Labels:
    head, dots, tail = part.partition("...")
    letters = head + tail
    if letters and not (letters.isalpha() and letters.isascii()):
        raise _error(text, f"{part!r} holds more than letters and one ellipsis")
    if rank is None:
        if dots:
            raise TraceError(
                f"einsum: {text!r}: a pattern of any rank cannot have an ellipsis"
            )
        return tuple(letters)
    more = rank - len(letters)
    if more < 0 or (more and not dots):
        raise _error(text, f"{part!r} names {counted(len(letters), 'axis')} of {rank}")
    return (*head, *(str(i) for i in range(-more, 0)), *tail)


def _error(text: str, why: str) -> ShapeError:
    return ShapeError(f"einsum: {text!r}: {why}{at(caller_line())}")
