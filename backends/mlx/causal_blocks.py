"""Causal attention in blocks of queries: each multiplies with the keys up to the last
that one of its queries sees."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from eqsat.kernels import Device, Kernel, inner
from eqsat.ops import (
    attention_causal,
    causal_scores,
    concatenate,
    matmul,
    reduce,
    softmax,
)
from eqsat.terms import Term
from eqsat.trace import Tracer, primitives

MOST_BLOCKS = 8
"""The share of the scores that b blocks compute is (b + 1) / 2b: 3/4 of two, 5/8 of
four, 9/16 of eight, and never less than half."""
LEAST_QUERIES = 256
"""Of a block: products of fewer rows are slower."""
ROWS = 64
"""Blocks begin at multiples: MLX's products want operands on 256 bytes."""
PRODUCTS = 5e13
"""Flops a second of products of float32 in the transformer block of the benchmarks, on
an H200."""
WIDE_BYTES = 4
KERNELS = 5
"""That each further block takes: two products and a softmax between them, one for what
is dropped, and a copy."""
Closed = Callable[[Term], bool]


def opened(
    kernel: Kernel, one_call: Closed, count: Callable[[Term], int]
) -> tuple[Term, ...]:
    """The results of ``kernel`` over its arguments: in primitives and what is best
    ``one_call``, causal attention in as many blocks as ``count`` says."""
    found = kernel.opened(lambda t: one_call(t) or count(t) > 1)
    done = {a: a for a in kernel.term.args}
    for t in inner(found, kernel.term.args):
        if not one_call(t) and (blocks := count(t)) > 1:
            done[t] = primitives(in_blocks(t, blocks), done, one_call)
    return tuple(primitives(t, done, one_call) for t in found)


def in_blocks(term: Term, count: int) -> Term:
    """``attention_causal`` as that of ``count`` blocks of its queries, joined.

    What is not finite in a value that is dropped makes NaN of a sum, as it does where
    0 times it is added.
    """
    q, k, v, scale = (Tracer(a) for a in term.args)
    m, n = q.shape[-2], k.shape[-2]
    parts = []
    for start, stop in _ranges(m, count):
        seen = _seen(stop, m, n)
        scores = causal_scores(
            q[..., start:stop, :], k[..., :seen, :], scale, start + n - m
        )
        y = matmul(softmax(scores), v[..., :seen, :])
        if seen < n:
            y = y + reduce.sum(v[..., seen:, :] * 0.0, -2, keepdims=True)
        parts.append(y)
    joined = concatenate(parts, -2)
    assert isinstance(joined, Tracer)
    return joined.term


def count_of(term: Term, device: Device) -> int:
    """Blocks in which attention of float32, step by step, is done first on ``device``.

    The scores, B of m by n, are moved four times: out of the first product, into the
    softmax and out of it, into the second product. Against what is not computed of them
    stand kernels to start, and results that are moved twice to be joined, twice more
    beside the values that are dropped, which are read.
    """
    if term.op is not attention_causal:
        return 1
    q, k, v = (a.shape for a in term.args[:3])
    m, n = q[-2], k[-2]
    rate = device.bandwidths[-1][1]
    score_s = 4 * WIDE_BYTES / rate + 2 * (q[-1] + v[-1]) / PRODUCTS

    def spent(blocks: int) -> float:
        parts = _ranges(m, blocks)
        scores = sum((b - a) * _seen(b, m, n) for a, b in parts)
        more_s = 5 * term.nbytes / rate + KERNELS * (blocks - 1) * device.launch_s
        more_s = more_s if len(parts) > 1 else 0.0
        return prod(term.shape[:-2]) * scores * score_s + more_s

    most = min(MOST_BLOCKS, m // LEAST_QUERIES)
    return min(range(1, most + 1), key=spent, default=1)


def _ranges(m: int, count: int) -> list[tuple[int, int]]:
    """First and last queries of blocks."""
    each = -(-m // (count * ROWS)) * ROWS
    return [(i, min(i + each, m)) for i in range(0, m, each)]


def _seen(stop: int, m: int, n: int) -> int:
    """Keys of n that the queries before ``stop`` of m see: one where they see none,
    which makes their softmax NaN."""
    return max(stop + n - m, 1)
