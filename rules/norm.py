"""Norms over groups and channels from their parts."""

from eqsat import rule
from eqsat.ops import batch_norm, group_norm, mean, reshape_op, rsqrt, sqrt, standardize
from eqsat.rulelang import equal

PHASE = "recognise"
GROUP = (-3, -2, -1)


@rule("b g i h v, ")
def standardize_over_three_axes(x, eps):
    """(x - mean) / √(var + eps) over three axes is that over one axis of all three."""
    b, g, i, h, v = x.shape
    d = x - mean(x, axis=GROUP, keepdims=True)
    flat = standardize(reshape_op(x, shape=(b, g, i * h * v)), eps)
    return (
        d * rsqrt(mean(d * d, axis=GROUP, keepdims=True) + eps),
        reshape_op(flat, shape=(b, g, i, h, v)),
    )


def _group_norm(lead):
    def divides(x, w, c, eps, g):
        k = x.shape[1]
        return equal(k // g * g, k)

    def sides(x, w, c, eps, g: int):
        """standardize(x in g groups) w + c = group_norm(x)."""
        b, k, h, v = x.shape
        flat = standardize(reshape_op(x, shape=(b, g, k * h * v // g)), eps)
        whole = reshape_op(flat, shape=(b, k, h, v))
        w1, c1 = reshape_op(w, shape=(k,)), reshape_op(c, shape=(k,))
        return whole * w + c, group_norm(x, w1, c1, eps, groups=g)

    signature = f"b k h v, {lead}k 1 1, {lead}k 1 1, "
    name = f"group_norm_{'1' if lead else '0'}"
    return rule(signature, where=divides, phase=PHASE, name=name)(sides)


def _batch_norm(lead, spelling, form):
    def sides(x, m, s, w, c, eps):
        """(x - mean) / √(var + eps) w + b = batch_norm(x)."""
        flat = [reshape_op(y, shape=(x.shape[1],)) for y in (m, s, w, c)]
        return form(x - m, s + eps, w) + c, batch_norm(*(x, *flat, eps))

    k = f"{lead}k 1 1"
    signature = f"b k h v, {k}, {k}, {k}, {k}, "
    name = f"batch_norm_{spelling}_{'1' if lead else '0'}"
    return rule(signature, phase=PHASE, name=name)(sides)


SPELLINGS = {
    "quotient_first": lambda d, s, w: d / sqrt(s) * w,
    "weight_first": lambda d, s, w: d * w / sqrt(s),
    "reciprocal": lambda d, s, w: d * (1.0 / sqrt(s)) * w,
    "weight_over_root": lambda d, s, w: d * (w / sqrt(s)),
}
group_norms = [_group_norm(lead) for lead in ("", "1 ")]
batch_norms = [
    _batch_norm(lead, name, form)
    for lead in ("", "1 ")
    for name, form in SPELLINGS.items()
]
