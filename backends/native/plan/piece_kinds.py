"""What the backend knows of each kind of piece: one row of :data:`KINDS` each.

A kind that has no row raises :class:`Unsupported`, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, TypeVar

from ...loop_ir import (
    Contraction,
    Convolution,
    Factoring,
    Gather,
    Load,
    Loops,
    Network,
    Operand,
    Ordering,
    Piece,
    Product,
    Store,
    Unsupported,
    weight,
)
from ..convolutions import conv_plan
from ..factors import eig_svd_qr, lanes_of, lapack_calls
from ..loops import shape_of
from ..machine import Host
from ..products import Mirroring, Packing, gemm_plan
from ..sorting import library_sorts, sort_networks

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class PieceKind:
    """The answers for pieces of one type."""

    seconds: Callable[[Any, Host], float]
    """About how long one thread takes (s)."""
    units: Callable[[Any, Host], int]
    """Parts for threads to share; of products matrices, which groups cut further."""
    ready: Callable[[Any, Host], Any]
    """The piece as its code computes it. Raises :class:`Unsupported` where there is no
    code."""
    scratch_bytes: Callable[[Any, Host], int]
    """Memory that a thread needs, beside that of a :class:`GemmPlan`."""
    is_call: Callable[[Any, Host], bool]
    """Whether BLAS or LAPACK computes it, where no code is planned."""
    code: Callable[[Any], object]
    """What tells its code from that of others: not which operands it has."""


def kind_of(piece: Piece | Packing | Mirroring) -> PieceKind:
    """The row of a piece. Raises :class:`Unsupported`."""
    return of_kind(KINDS, piece)


def of_kind(table: Mapping[type, Answer], piece: object) -> Answer:
    """What a table says of the type of a piece, or of what that is derived from. Raises
    :class:`Unsupported`."""
    for kind in type(piece).__mro__:
        if kind in table:
            return table[kind]
    raise Unsupported(f"a piece of kind {type(piece).__name__} in machine code")


# -- nests -----------------------------------------------------------------------------


def _seconds_of_nest(piece: Loops, host: Host) -> float:
    nest = piece.nest
    lanes = shape_of(nest, host).lanes
    rows = nest.rows // (nest.chunk.size if nest.chunk is not None else 1)
    total = 0.0
    for p in nest.passes:
        n = rows * prod(v.size for v in p.loops)
        work = sum(weight(getattr(s, "op", "")) for s in p.body)
        moved = sum(
            nest.buffers[s.buffer].dtype.itemsize * prod(v.size for v in s.at.variables)
            for s in p.body
            if isinstance(s, (Load, Gather, Store))
        )
        computing = n * work / (lanes * host.tuning.core_vectors_per_s)
        total += max(computing, moved / host.tuning.core_bytes_per_s)
    return total


# -- products and convolutions ---------------------------------------------------------


def _seconds_of_product(p: Product, host: Host) -> float:
    own = gemm_plan.is_better(host)
    known = host.tuning.core_flops_per_s
    computing = p.flops / (gemm_plan.flops_per_s(host) if own else known)
    if min(p.sizes[:2]) > 1:
        return computing
    # By a vector: it waits for the matrix.
    moved = p.flops / 2 * p.dtype.itemsize / host.tuning.core_bytes_per_s
    return max(computing, moved)


def _matrices(p: Contraction, host: Host) -> int:
    return prod(p.batch)


def _checked_convolution(p: Convolution, host: Host) -> Convolution:
    conv_plan.check(p)
    return p


def _packed_bytes(p: Packing) -> int:
    return p.panels.elements * p.product.dtype.itemsize


# -- linear algebra, sorts -------------------------------------------------------------


def _checked_factoring(p: Factoring, host: Host) -> Factoring:
    eig_svd_qr.check(p)
    return p


# -- what pieces have in common --------------------------------------------------------


def _as_it_is(piece: Any, host: Host) -> Any:
    return piece


def _no_bytes(piece: Any, host: Host) -> int:
    return 0


def _never(piece: Any, host: Host) -> bool:
    return False


def _without_operands(piece: Any) -> Any:
    return type(piece)(**{f.name: _bare(getattr(piece, f.name)) for f in fields(piece)})


def _bare(value: Any) -> Any:
    """A field of a piece, without which operands it names."""
    if isinstance(value, Operand):
        return replace(value, key=None)
    return tuple(map(_bare, value)) if isinstance(value, tuple) else value


KINDS: dict[type, PieceKind] = {
    Loops: PieceKind(
        seconds=_seconds_of_nest,
        units=lambda p, host: shape_of(p.nest, host).units,
        ready=_as_it_is,
        scratch_bytes=lambda p, host: shape_of(p.nest, host).keep_bytes,
        is_call=_never,
        code=lambda p: p.nest,
    ),
    Product: PieceKind(
        seconds=_seconds_of_product,
        units=_matrices,
        ready=lambda p, host: gemm_plan.merged(p) if gemm_plan.is_better(host) else p,
        scratch_bytes=_no_bytes,
        is_call=lambda p, host: True,
        code=_without_operands,
    ),
    Convolution: PieceKind(
        seconds=lambda p, host: p.flops / gemm_plan.flops_per_s(host),
        units=_matrices,
        ready=_checked_convolution,
        scratch_bytes=_no_bytes,
        is_call=_never,
        code=_without_operands,
    ),
    Packing: PieceKind(
        seconds=lambda p, host: _packed_bytes(p) / host.tuning.packed_per_s,
        units=Packing.units,
        ready=_as_it_is,
        scratch_bytes=_no_bytes,
        is_call=_never,
        code=lambda p: (_without_operands(p.product), p.panels),
    ),
    Mirroring: PieceKind(
        seconds=Mirroring.seconds,
        units=Mirroring.units,
        ready=_as_it_is,
        scratch_bytes=_no_bytes,
        is_call=_never,
        code=lambda p: Mirroring(_without_operands(p.product)),
    ),
    Factoring: PieceKind(
        seconds=eig_svd_qr.seconds,
        units=lapack_calls.units,
        ready=_checked_factoring,
        scratch_bytes=eig_svd_qr.scratch_bytes,
        is_call=lambda p, host: not lanes_of(p, host),
        code=_without_operands,
    ),
    Ordering: PieceKind(
        seconds=lambda p, host: library_sorts.seconds_of(p),
        units=lambda p, host: p.rows,
        ready=_as_it_is,
        scratch_bytes=_no_bytes,
        is_call=_never,
        code=_without_operands,
    ),
    Network: PieceKind(
        seconds=sort_networks.seconds_of,
        units=sort_networks.units,
        ready=_as_it_is,
        scratch_bytes=_no_bytes,
        is_call=_never,
        code=_without_operands,
    ),
}
