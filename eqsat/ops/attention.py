"""Attention: softmax of scaled scores times values, in four forms.

q is ``... m d``, k is ``... n d``, v is ``... n e``; the axes before broadcast.
Vaswani et al. 2017, arXiv:1706.03762, equation 1.
"""

from __future__ import annotations

import math
from typing import Any

from eqsat.ops.contract import matmul
from eqsat.ops.nn import softmax
from eqsat.ops.pointwise import logical_and, where
from eqsat.ops.position import diagonal_band
from eqsat.ops.support import dtype_of, known_sizes
from eqsat.ops.view import broadcast_to, matrix_transpose, reshape
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import BOOL, Bindings, composite


def some_keys(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    """What is wrong with attention to no keys: there is no largest score."""
    return "axis n is empty, expected a key to attend to" if bound["n"] == 0 else None


def _scores(q: Any, k: Any, scale: Any) -> Any:
    return scale * matmul(q, matrix_transpose(k))


def causal_scores(q: Any, k: Any, scale: Any, ahead: int) -> Any:
    """scale q kᵀ where j ≤ i + ahead, else -∞."""
    keep = diagonal_band(q.shape[-2], k.shape[-2], ahead, like=q)
    return where(keep, _scores(q, k, scale), -math.inf)


@composite("... m d, ... n d, ... n e,  -> ... m e", recognised=False, check=some_keys)
def attention_scaled(q: Any, k: Any, v: Any, scale: Any) -> Any:
    """softmax(scale q kᵀ) v."""
    return matmul(softmax(_scores(q, k, scale)), v)


@composite(
    "... m d, ... n d, ... n e, , ... m n -> ... m e", recognised=False, check=some_keys
)
def attention_masked(q: Any, k: Any, v: Any, scale: Any, mask: Any) -> Any:
    """softmax(scale q kᵀ + mask) v."""
    return matmul(softmax(_scores(q, k, scale) + mask), v)


@composite(
    "... m d, ... n d, ... n e, , ... 1 n -> ... m e", recognised=False, check=some_keys
)
def attention_padded(q: Any, k: Any, v: Any, scale: Any, bias: Any) -> Any:
    """softmax(scale q kᵀ + bias) v, with one bias for each key: a padding mask."""
    return matmul(softmax(_scores(q, k, scale) + bias), v)


@composite("... m d, ... n d, ... n e,  -> ... m e", check=some_keys, recognised=False)
def attention_causal(q: Any, k: Any, v: Any, scale: Any) -> Any:
    """softmax(scale q kᵀ where j ≤ i + n - m, else -∞) v: no query sees later keys."""
    return matmul(softmax(causal_scores(q, k, scale, k.shape[-2] - q.shape[-2])), v)


@composite(
    "... m d, ... n d, ... n e, , ... m n,  -> ... m e",
    recognised=False,
    check=some_keys,
)
def attention_where(q: Any, k: Any, v: Any, scale: Any, keep: bool, fill: Any) -> Any:
    """softmax(scale q kᵀ where keep, else fill) v."""
    return matmul(softmax(where(keep, _scores(q, k, scale), fill)), v)


def attention(
    q: Any, k: Any, v: Any, scale: Any = None, mask: Any = None, causal: bool = False
) -> Any:
    """Attention of q ``... m d`` over k ``... n d`` and v ``... n e``: ``... m e``.

    ``scale`` is 1/√d by default. A bool ``mask`` keeps the scores where it is true,
    another is added to them; both broadcast to ``... m n``. ``causal`` drops keys
    j > i + n - m. Where k and v have fewer heads (axis -3) than q, each serves as many
    neighbours of q. Raises :class:`ShapeError` when shapes do not fit.
    """
    sq, sk, sv = (known_sizes("attention", x) for x in (q, k, v))
    scale = 1 / math.sqrt(sq[-1]) if scale is None else scale
    if mask is not None:
        sm = known_sizes("attention", mask)
        mask = broadcast_to(mask, (*sm[:-2], sq[-2], sk[-2]))
    heads = _group_size(sq, sk, sv)
    if heads > 1:
        q = reshape(q, (*sq[:-3], sq[-3] // heads, heads, *sq[-2:]))
        k = reshape(k, (*sk[:-2], 1, *sk[-2:]))
        v = reshape(v, (*sv[:-2], 1, *sv[-2:]))
        mask = None if mask is None else _grouped_mask(mask, heads)
    y = _dispatch(q, k, v, scale, mask, causal)
    return reshape(y, (*y.shape[:-4], sq[-3], *y.shape[-2:])) if heads > 1 else y


def _dispatch(q: Any, k: Any, v: Any, scale: Any, mask: Any, causal: bool) -> Any:
    if mask is None:
        form = attention_causal if causal else attention_scaled
        return form(q, k, v, scale)
    m, n = q.shape[-2], k.shape[-2]
    band = diagonal_band(m, n, n - m, like=q) if causal else None
    if dtype_of(mask) == BOOL:
        keep = mask if band is None else logical_and(mask, band)
        return attention_where(q, k, v, scale, keep, -math.inf)
    bias = mask if band is None else where(band, mask, -math.inf)
    return attention_masked(q, k, v, scale, bias)


def _group_size(sq: Any, sk: Any, sv: Any) -> int:
    """How many heads of q share a head of k and v."""
    if min(len(sq), len(sk), len(sv)) < 3 or sk[-3] == sq[-3] or sk[-3] in (0, 1):
        return 1
    if sk[-3] != sv[-3] or sq[-3] % sk[-3]:
        raise ShapeError(
            f"attention: arguments 'k' of shape {sk} and 'v' of shape {sv} need heads "
            f"(axis -3) that divide the {sq[-3]} of 'q'{at(caller_line())}"
        )
    return int(sq[-3] // sk[-3])


def _grouped_mask(mask: Any, heads: int) -> Any:
    """A mask over ``h m n`` as one over ``h/heads heads m n``."""
    *lead, m, n = mask.shape
    if not lead:
        return mask
    *batch, h = lead
    return reshape(mask, (*batch, *((1, 1) if h == 1 else (h // heads, heads)), m, n))
