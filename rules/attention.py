"""Attention from its parts. Vaswani et al. 2017, arXiv:1706.03762, eq. 1.

The keys are taken as they come: any right operand kt of the first product is the
transpose of keys ktᵀ, and the rules of views remove the two transposes when the user
wrote one.
"""

from eqsat import rule
from eqsat.ops import (
    attention_causal,
    attention_masked,
    attention_padded,
    attention_scaled,
    attention_where,
    logical_not,
    softmax,
    where,
)
from eqsat.rulelang import at_most, causal, causal_bias, hides_future

PHASE = "recognise"
Q_KT_V = "... m d, ... d n, ... n e"


@rule(f"{Q_KT_V}, ")
def attention_of_scaled(q, kt, v, s):
    """softmax(s q kᵀ) v."""
    return softmax((q @ kt) * s) @ v, attention_scaled(q, kt.mT, v, s)


@rule(Q_KT_V)
def attention_of_unscaled(q, kt, v):
    """softmax(q kᵀ) v."""
    return softmax(q @ kt) @ v, attention_scaled(q, kt.mT, v, 1.0)


@rule(f"{Q_KT_V}, , ... m n")
def attention_of_masked(q, kt, v, s, mask):
    """softmax(s q kᵀ + mask) v."""
    return softmax((q @ kt) * s + mask) @ v, attention_masked(q, kt.mT, v, s, mask)


@rule(f"{Q_KT_V}, ... m n")
def attention_of_masked_unscaled(q, kt, v, mask):
    """softmax(q kᵀ + mask) v."""
    return softmax(q @ kt + mask) @ v, attention_masked(q, kt.mT, v, 1.0, mask)


@rule(f"{Q_KT_V}, , ... 1 n")
def attention_of_padded(q, kt, v, s, bias):
    """softmax(s q kᵀ + bias) v with one bias for each key."""
    return softmax((q @ kt) * s + bias) @ v, attention_padded(q, kt.mT, v, s, bias)


@rule(f"{Q_KT_V}, ... 1 n")
def attention_of_padded_unscaled(q, kt, v, bias):
    """softmax(q kᵀ + bias) v with one bias for each key."""
    return softmax(q @ kt + bias) @ v, attention_padded(q, kt.mT, v, 1.0, bias)


@rule(f"{Q_KT_V}, , ... m n, ")
def attention_of_where(q, kt, v, s, keep: "bool", fill):
    """softmax(s q kᵀ where kept, else fill) v."""
    return (
        softmax(where(keep, (q @ kt) * s, fill)) @ v,
        attention_where(q, kt.mT, v, s, keep, fill),
    )


@rule(f"{Q_KT_V}, , ... m n, ")
def attention_of_hidden(q, kt, v, s, hide: "bool", fill):
    """softmax(fill where hidden, else s q kᵀ) v."""
    return (
        softmax(where(hide, fill, (q @ kt) * s)) @ v,
        attention_where(q, kt.mT, v, s, logical_not(hide), fill),
    )


@rule(
    f"{Q_KT_V}, , m n",
    where=lambda q, kt, v, s, mask, f: (causal(mask), at_most(f, -1e30)),
)
def attention_of_causal(q, kt, v, s, mask: "bool", f: float):
    """softmax(s q kᵀ on and below the diagonal, else -∞) v."""
    return (
        softmax(where(mask, (q @ kt) * s, f)) @ v,
        attention_causal(q, kt.mT, v, s),
    )


@rule(
    f"{Q_KT_V}, , m n",
    where=lambda q, kt, v, s, mask, f: (hides_future(mask), at_most(f, -1e30)),
)
def attention_of_hidden_future(q, kt, v, s, mask: "bool", f: float):
    """softmax(-∞ above the diagonal, else s q kᵀ) v."""
    return (
        softmax(where(mask, f, (q @ kt) * s)) @ v,
        attention_causal(q, kt.mT, v, s),
    )


@rule(f"{Q_KT_V}, , m n", where=lambda q, kt, v, s, mask: causal_bias(mask))
def attention_of_causal_bias(q, kt, v, s, mask):
    """softmax(s q kᵀ + mask) v, where mask is 0 on and below the diagonal and -∞
    above. What the mask hides is hidden whole: a NaN in a key, which the sum NaN - ∞
    would show in every row, shows in the rows that see the key."""
    return softmax((q @ kt) * s + mask) @ v, attention_causal(q, kt.mT, v, s)
