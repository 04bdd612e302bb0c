"""Normalisations, written with other ops. eps is a scalar argument."""

from __future__ import annotations

from typing import Any

from eqsat.ops.reduce import mean, sum, var
from eqsat.ops.transcendental import rsqrt
from eqsat.ops.view import reshape
from eqsat.terms import Bindings, composite


def _by_standardized(g: Any, x: Any, eps: Any, y: Any) -> Any:
    """r (g - mean g - y mean g y), where r = 1 / √(σ² + eps)."""
    r = rsqrt(var(x, -1, keepdims=True) + eps)
    return r * (g - mean(g, -1, keepdims=True) - y * mean(g * y, -1, keepdims=True))


def _by_variance_eps(g: Any, x: Any, eps: Any, y: Any) -> Any:
    return sum(g * y * -0.5 / (var(x, -1, keepdims=True) + eps))


def _by_rms(g: Any, x: Any, eps: Any, y: Any) -> Any:
    """r (g - y mean g y), where r = 1 / √(mean x² + eps)."""
    r = rsqrt(mean(x * x, -1, keepdims=True) + eps)
    return r * (g - y * mean(g * y, -1, keepdims=True))


def _by_square_eps(g: Any, x: Any, eps: Any, y: Any) -> Any:
    return sum(g * y * -0.5 / (mean(x * x, -1, keepdims=True) + eps))


@composite("... n,  -> ... n", vjp=(_by_standardized, _by_variance_eps))
def standardize(x: Any, eps: Any = 1e-5) -> Any:
    """(x - μ) / √(σ² + eps), with mean μ and variance σ² over the last axis."""
    return (x - mean(x, -1, keepdims=True)) * rsqrt(var(x, -1, keepdims=True) + eps)


@composite("... n, n, n,  -> ... n")
def layer_norm(x: Any, w: Any, b: Any, eps: Any = 1e-5) -> Any:
    """standardize(x, eps) w + b. Ba et al. 2016, arXiv:1607.06450."""
    return standardize(x, eps) * w + b


@composite("... n,  -> ... n", vjp=(_by_rms, _by_square_eps))
def rms_normalize(x: Any, eps: Any = 1e-5) -> Any:
    """x / √(mean x² + eps) over the last axis."""
    return x * rsqrt(mean(x * x, -1, keepdims=True) + eps)


@composite("... n, n,  -> ... n")
def rms_norm(x: Any, w: Any, eps: Any = 1e-5) -> Any:
    """rms_normalize(x, eps) w. Zhang & Sennrich 2019, arXiv:1910.07467."""
    return rms_normalize(x, eps) * w


def _whole_groups(bound: Bindings, attrs: dict[str, Any]) -> str | None:
    c, groups = bound["c"], attrs["groups"]
    if isinstance(c, int) and groups > 0 and c % groups == 0:
        return None
    return f"axis c is {c}, expected a multiple of groups={groups}"


@composite("b c h w, c, c,  -> b c h w", recognised=False, check=_whole_groups)
def group_norm(x: Any, w: Any, b: Any, eps: Any = 1e-5, *, groups: int) -> Any:
    """standardize(x, eps) w + b over each of ``groups`` runs of channels, all h and w.

    Wu & He 2018, arXiv:1803.08494.
    """
    n, c, height, width = x.shape
    grouped = reshape(x, (n, groups, c // groups * height * width))
    y = reshape(standardize(grouped, eps), (n, c, height, width))
    return y * _per_channel(w, c) + _per_channel(b, c)


@composite("b c h w, c, c, c, c,  -> b c h w", recognised=False)
def batch_norm(x: Any, mean: Any, var: Any, w: Any, b: Any, eps: Any = 1e-5) -> Any:
    """(x - mean) w / √(var + eps) + b for every channel, as at inference.

    Ioffe & Szegedy 2015, arXiv:1502.03167.
    """
    c = x.shape[1]
    scale = _per_channel(w * rsqrt(var + eps), c)
    return (x - _per_channel(mean, c)) * scale + _per_channel(b, c)


def _per_channel(v: Any, c: Any) -> Any:
    """``v`` over c as an array over c h w, of size 1 along h and w."""
    return reshape(v, (c, 1, 1))
