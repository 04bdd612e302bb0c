"""Each kind of piece is known to every table of the native backend, others to none."""

from __future__ import annotations

from typing import get_args

import pytest

from eqsat.backends.loop_ir import (
    Piece,
    Unsupported,
)
from eqsat.backends.native.plan import groups, piece_kinds
from eqsat.backends.native.products import Mirroring, Packing
from eqsat.backends.native.writing import group_code

PIECES = get_args(Piece)


def has(table: dict[type, object], kind: type) -> bool:
    return any(base in table for base in kind.__mro__)


def test_there_are_pieces() -> None:
    assert len(PIECES) == 6


@pytest.mark.parametrize("kind", [*PIECES, Packing, Mirroring])
def test_every_kind_is_priced_planned_and_written(kind: type) -> None:
    assert has({**piece_kinds.KINDS}, kind)
    assert has({**group_code._SHARES}, kind)


@pytest.mark.parametrize("kind", PIECES)
def test_every_piece_of_a_kernel_begins_a_group_or_follows(kind: type) -> None:
    assert has({**groups._BEGINS}, kind)
    assert has({**groups._FOLLOWS}, kind)


def test_another_kind_is_unsupported() -> None:
    class Other:
        """A piece of a back end to come."""

    with pytest.raises(Unsupported, match="Other"):
        piece_kinds.kind_of(Other())  # type: ignore[arg-type]
    for table in (groups._BEGINS, groups._FOLLOWS, group_code._SHARES):
        with pytest.raises(Unsupported, match="Other"):
            piece_kinds.of_kind({**table}, Other())
