"""Special functions of float32 for bodies of kernels, in C++ that both languages have.

No GPU of Apple has float64, so that what the native backend computes in it is in
float32 here: its algorithms where they are of float32, its coefficients everywhere.
Exponentials and logarithms are of sums of two numbers, and our own: those of Metal are
within 4 units in the last place. Errors, in these, with and without products fused
into sums: 1 for cbrt, 2 for hypot, 4 for erfc, erfcx, erfinv, gammaln, i0, i0e, i1 and
i1e, 6 for log_ndtr, ndtri, digamma, trigamma and gamma. Of gammaln, digamma and
trigamma below 0, and of logaddexp2, in the last place of the largest of what is added
(trigamma 8); so are 6 for betaln of positive numbers and 12 else, and times it for
beta. Of j0 and j1 8, of 1 or beyond it of √(2 / πx) (:mod:`.bessel`). Where a device
flushes denormals to 0, these count as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...native.math import coefficients as c
from .dialect import number

SINGLE = np.dtype(np.float32)


def literal(value: float) -> str:
    """A number of float32."""
    return number(value, SINGLE)


def horner(coefficients: Sequence[float], x: str) -> str:
    """Σ cₖ xᵏ, the lowest power first."""
    *rest, last = coefficients
    text = literal(last)
    for k in reversed(rest):
        text = f"({text} * {x} + {literal(k)})"
    return text


def halves(value: float) -> tuple[str, str]:
    """``value`` as a sum of two float32."""
    high = float(np.float32(value))
    return literal(high), literal(value - high)


_HALF_LOG = 0.5 * math.log(2 * math.pi)
_LN2 = [literal(v) for v in c.LN2_32]
_ROOT = halves(c.DIGAMMA_ROOT[0])
_LOG2E = [literal(v) for v in c.LOG2E_32]

_ELEMENTARY = {
    "EqTwo": """// A sum of two numbers.
struct EqTwo {
  float high, low;
};""",
    "eq_sum": """EQ_FN EqTwo eq_sum(float x, float y) {  // exactly. Knuth 1969, 4.2.2
  const float s = x + y, v = s - x;
  return EqTwo{s, (x - (s - v)) + (y - v)};
}""",
    "eq_product": """EQ_FN EqTwo eq_product(float x, float y) {  // exactly
  const float p = x * y;
  return EqTwo{p, eq_fma(x, y, -p)};
}""",
    "eq_scaled": """// x 2ⁿ, rounded once; n from -300 to 300.
EQ_FN float eq_scaled(float x, int n) {
  const int part = n / 3;
  const float step = EQ_FLOAT((part + 127) << 23);
  const float last = EQ_FLOAT((n - 2 * part + 127) << 23);
  return n < 0 ? x * last * step * step : x * step * step * last;
}""",
    "eq_exp_of": f"""// y exp(x + low), y moderate; x from -200 to 200, or NaN.
EQ_FN float eq_exp_of(float x, float low, float y) {{
  const float n = eq_rint(x * {_LOG2E[0]});
  const float r = eq_fma(n, -{_LN2[1]}, eq_fma(n, -{_LN2[0]}, x)) + low;
  const float p = {horner((1.0, 1.0, *c.EXP32), "r")};
  return x != x ? x : eq_scaled(p * y, int(n));
}}""",
    "eq_log_of": f"""// ln(x + low) as a sum of two; low is 0 unless x is 1/2 to 4.
EQ_FN EqTwo eq_log_of(float x, float low) {{
  if (!(x > 0.0f)) return EqTwo{{x == 0.0f ? -EQ_INF : EQ_NAN, 0.0f}};
  if (x == EQ_INF) return EqTwo{{x, 0.0f}};
  const bool tiny = x < 1.17549435e-38f;
  const int bits = EQ_BITS(int, tiny ? x * 8388608.0f : x);
  const int n = (bits - 0x3f400000) >> 23;
  const float m = EQ_FLOAT(bits - (n << 23)) - 1.0f;
  const float f = low == 0.0f ? m : m + low * EQ_FLOAT((127 - n) << 23);
  const float e = float(tiny ? n - 23 : n);
  const EqTwo s = eq_sum(e * {_LN2[0]}, f);
  const float rest = f * f * {horner(c.LOG32, "f")};
  return EqTwo{{s.high, s.low + (rest + e * {_LN2[1]})}};
}}""",
    "eq_log_near": """EQ_FN float eq_log_near(float x, float low) {
  const EqTwo l = eq_log_of(x, low);
  return l.high + l.low;
}""",
    "eq_log_above": """// ln(1 + x), x from -1/2 to 2.
EQ_FN float eq_log_above(float x) {
  const EqTwo u = eq_sum(1.0f, x);
  return eq_log_near(u.high, u.low);
}""",
    "eq_cbrt": """EQ_FN float eq_cbrt(float x) {
  const float a = eq_fabs(x);
  if (!(a > 0.0f && a < EQ_INF)) return x;
  const bool tiny = a < 1e-30f, huge = a > 1e30f;
  const float q = tiny ? a * 16777216.0f : huge ? a * 5.96046448e-08f : a;
  float y = EQ_FLOAT(EQ_BITS(int, q) / 3 + 0x2a5119f2);
  for (int i = 0; i < 2; ++i) y -= (y - q / (y * y)) * 0.333333343f;
  // The error of y³ exactly, for the last step.
  const EqTwo s = eq_product(y, y), t = eq_product(s.high, y);
  y -= ((t.high - q) + (t.low + s.low * y)) / (3.0f * s.high);
  return eq_copysign(tiny ? y * 0.00390625f : huge ? y * 256.0f : y, x);
}""",
    "eq_hypot": """EQ_FN float eq_hypot(float x, float y) {
  const float a = eq_fabs(x), b = eq_fabs(y);
  if (a == EQ_INF || b == EQ_INF) return EQ_INF;
  const float size = eq_max(a, b);
  const bool huge = size > 1e18f, tiny = size < 1e-18f;
  const float up = huge ? 5.42101086e-20f : tiny ? 1.26765060e+30f : 1.0f;
  const float p = a * up, q = b * up;
  const float down = huge ? 1.84467441e+19f : tiny ? 7.88860905e-31f : 1.0f;
  return eq_sqrt(p * p + q * q) * down;
}""",
    "eq_logaddexp2": f"""EQ_FN float eq_logaddexp2(float x, float y) {{
  if (x == y) return x + 1.0f;
  const float e = eq_exp2(-eq_fabs(x - y));
  return eq_max(x, y) + eq_log1p(e) * {_LOG2E[0]};
}}""",
    "eq_heaviside": """EQ_FN float eq_heaviside(float x, float y) {
  return x != x ? x : x == 0.0f ? y : float(x > 0.0f);
}""",
    "eq_nextafter": """EQ_FN float eq_nextafter(float x, float y) {
  if (x != x || y != y || x == y) return x == y ? y : x + y;
  const int bits = EQ_BITS(int, x);
  if (x == 0.0f) return EQ_FLOAT((y < 0.0f ? int(0x80000000u) : 0) | 1);
  return EQ_FLOAT((y > x) == (x > 0.0f) ? bits + 1 : bits - 1);
}""",
}

_ERRORS = {
    "eq_erfc_over": f"""// e^(a²) erfc a, a ≥ 0.
EQ_FN float eq_erfc_over(float a) {{
  const float t = 1.0f - 6.0f / (a + 3.0f);
  return {horner(c.ERFCX32, "t")} / (a * 0.5625f + 0.5f);
}}""",
    "eq_erfc": """EQ_FN float eq_erfc(float x) {
  const float a = eq_min(eq_fabs(x), 11.0f);
  const EqTwo s = eq_product(a, a);
  const float y = eq_exp_of(-s.high, -s.low, eq_erfc_over(a));
  return x < 0.0f ? 2.0f - y : y;
}""",
    "eq_erfcx": """EQ_FN float eq_erfcx(float x) {
  const float y = eq_erfc_over(eq_fabs(x)), a = eq_min(-x, 10.5f);
  if (!(x < 0.0f)) return y;
  const EqTwo s = eq_product(a, a);
  return eq_exp_of(s.high, s.low, 2.0f) - y;
}""",
    "eq_log_ndtr": f"""EQ_FN float eq_log_ndtr(float x) {{
  const float a = eq_fabs(x), near = eq_min(a, 15.0f);
  const float half = 0.5f * eq_erfc_over(eq_min(a, 1e18f) * {literal(math.sqrt(0.5))});
  const EqTwo s = eq_product(near, near);
  const float less = -eq_exp_of(-0.5f * s.high, -0.5f * s.low, half);
  if (x < 0.0f) return eq_log_near(half, 0.0f) - x * 0.5f * x;
  const EqTwo u = eq_sum(1.0f, less);
  return x != x ? x : -less < 1e-30f ? less : eq_log_near(u.high, u.low);
}}""",
    "eq_erfinv": f"""EQ_FN float eq_erfinv(float x) {{
  const float a = eq_fabs(x);
  if (!(a < 1.0f)) return a == 1.0f ? eq_copysign(EQ_INF, x) : EQ_NAN;
  const float w = -eq_log_near((1.0f - a) * (a + 1.0f), 0.0f);
  if (w < 6.25f) {{
    const float t = w - 3.125f;
    return x * {horner(c.ERFINV_32, "t")} + 0.0f;
  }}
  const float t = eq_sqrt(w) - 3.375f;
  return x * {horner(c.ERFINV_FAR_32, "t")};
}}""",
    "eq_ndtri": f"""EQ_FN float eq_ndtri(float p) {{
  if (!(p >= 0.0f && p <= 1.0f)) return EQ_NAN;
  const float u = p > 0.5f ? 1.0f - p : p;
  if (u == 0.0f) return p > 0.5f ? EQ_INF : -EQ_INF;
  if (u >= 0.25f) return {literal(math.sqrt(2))} * eq_erfinv(2.0f * p - 1.0f);
  const float t = eq_sqrt(-2.0f * eq_log_near(u, 0.0f));
  const float r = 1.0f / t - 0.34f;
  return (p > 0.5f ? t : -t) * {horner(c.NDTRI_32, "r")};
}}""",
}

_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30)
"""ψ′(x) = 1/x + 1/(2x²) + Σ Bₖ / x^(2k + 1). Abramowitz & Stegun 6.4.12."""

_GAMMA = {
    "eq_lgamma_near": f"""// ln Γ(x + 1), x from -¼ to 1¼.
EQ_FN float eq_lgamma_near(float x) {{
  const float t = x - 0.5f;
  return x * (x - 1.0f) * {horner(c.LGAMMA_32, "t")};
}}""",
    "eq_stirling": f"""EQ_FN float eq_stirling(float x) {{
  const float r = 1.0f / x, z = r * r;
  return r * {horner(c.STIRLING_32, "z")};
}}""",
    "eq_lgamma": f"""// ln Γ(a), a > 0.
EQ_FN float eq_lgamma(float a) {{
  if (a < 0.75f) return eq_lgamma_near(a) - eq_log_near(a, 0.0f);
  if (a >= 8.0f) {{
    const EqTwo l = eq_log_of(a, 0.0f);
    const float k = (l.high - 1.0f) + l.low;
    const float rest = eq_stirling(a) + {literal(_HALF_LOG - 0.5)};
    return (a - 0.5f) * k + rest;
  }}
  float y = a, factors = 1.0f;
  while (y > 2.25f) {{
    y -= 1.0f;
    factors *= y;
  }}
  return eq_lgamma_near(y - 1.0f) + eq_log_near(factors, 0.0f);
}}""",
    "EqTurn": """// sin πx / π and cos πx.
struct EqTurn {
  float sine, cosine;
};""",
    "eq_turn": f"""// Of x + low.
EQ_FN EqTurn eq_turn(float x, float low) {{
  const float n = eq_rint(x), r = (x - n) + low, a = eq_fabs(r);
  const bool steep = a > 0.25f;
  const float k = steep ? 0.5f - a : a, y = k * {literal(math.pi)}, z = y * y;
  const float s = k + k * (z * {horner(c.SIN32, "z")});
  const float o = 1.0f - (0.5f * z - z * z * {horner(c.COS32, "z")});
  const float sign = eq_fmod(n, 2.0f) == 0.0f ? 1.0f : -1.0f;
  const float sine = steep ? o * {literal(1 / math.pi)} : s;
  const float cosine = steep ? s * {literal(math.pi)} : o;
  return EqTurn{{sign * eq_copysign(sine, r), sign * cosine}};
}}""",
    "eq_gammaln": """EQ_FN float eq_gammaln(float x) {
  const float a = eq_fabs(x);
  if (x != x || a == EQ_INF) return x;
  if (!(x < 0.0f)) return eq_lgamma(a);
  const float s = eq_fabs(eq_turn(a, 0.0f).sine);
  if (a < 0.75f) return -eq_log_near(s, 0.0f) - eq_lgamma_near(a);
  return s == 0.0f ? EQ_INF : -eq_log_near(a * s, 0.0f) - eq_lgamma(a);
}""",
    "eq_digamma": f"""EQ_FN float eq_digamma(float x) {{
  if (x == 0.0f) return eq_copysign(EQ_INF, -x);
  if (x == -EQ_INF) return EQ_NAN;
  const float a = x < 0.0f ? 1.0f - x : x;
  float found;
  if (a >= 8.0f) {{
    const float r = 1.0f / a, z = r * r;
    found = eq_log_near(a, 0.0f) - r * 0.5f - z * {horner(c.DIGAMMA_FAR_32, "z")};
  }} else {{
    const bool small = a < 1.0f;
    float y = small ? a : a - 1.0f, sum = small ? -1.0f / a : 0.0f;
    while (y > 1.0f) {{
      sum += 1.0f / y;
      y -= 1.0f;
    }}
    const float t = y - 0.5f, d = (y - ({_ROOT[0]} - 1.0f)) - {_ROOT[1]};
    found = d * {horner(c.DIGAMMA_32, "t")} + sum;
  }}
  if (!(x < 0.0f)) return found;
  const EqTurn t = eq_turn(x, 0.0f);
  return t.sine == 0.0f ? EQ_NAN : found - t.cosine / t.sine;
}}""",
    "eq_trigamma": f"""EQ_FN float eq_trigamma(float x) {{
  if (x == -EQ_INF) return EQ_NAN;
  const float a = x < 0.0f ? 1.0f - x : x;
  float y = a, sum = 0.0f;
  while (y < 6.0f) {{
    sum += 1.0f / y * (1.0f / y);
    y += 1.0f;
  }}
  const float r = 1.0f / y, z = r * r;
  const float tail = r + 0.5f * z + r * z * {horner(_TRIGAMMA, "z")};
  const float s = eq_turn(x, 0.0f).sine;
  return x < 0.0f ? 1.0f / (s * s) - (sum + tail) : sum + tail;
}}""",
    "eq_sign_of_gamma": """EQ_FN float eq_sign_of_gamma(float x) {
  return x < 0.0f && eq_fmod(eq_floor(x), 2.0f) != 0.0f ? -1.0f : 1.0f;
}""",
    "eq_gamma": f"""EQ_FN float eq_gamma(float x) {{
  if (x == 0.0f) return eq_copysign(EQ_INF, x);
  if (x > 36.0f || x != x) return x > 36.0f ? EQ_INF : x;
  if (x < 0.0f && x == eq_floor(x)) return EQ_NAN;
  if (x < -46.0f) return eq_sign_of_gamma(x) * 0.0f;
  // The product of all from x to [1, 2], as a sum of two, 2⁻⁶⁴ times if it is large.
  const bool large = eq_fabs(x) > 30.0f;
  float y = x, high = large ? 5.42101086e-20f : 1.0f, low = 0.0f;
  while (y > 2.0f || y < 1.0f) {{
    const bool above = y > 2.0f;
    if (above) y -= 1.0f;
    const EqTwo p = eq_product(high, y);
    low = low * y + p.low;
    high = p.high;
    if (!above) y += 1.0f;
  }}
  const float t = y - 1.5f, of = {horner(c.GAMMA_32, "t")};
  if (x > 1.0f) return (of * high + of * low) * (large ? 1.84467441e+19f : 1.0f);
  return of / (high + low) * (large ? 5.42101086e-20f : 1.0f);
}}""",
}

_BETA = {
    "EqBeta": """// B(x, y) = up / down B(a, b), or up / down over it; or a pole.
struct EqBeta {
  float a, b, up, down;
  bool over, pole;
};""",
    "eq_beta_of": """// By Γ(z) Γ(1 - z) = π / sin πz; of integers up to 0 as SciPy.
EQ_FN EqBeta eq_beta_of(float x, float y) {
  const bool first = x <= 0.0f && x == eq_floor(x);
  const bool second = y <= 0.0f && y == eq_floor(y);
  if (first || second) {
    const float n = first ? x : y, m = first ? y : x, z = 1.0f - n - m;
    const bool whole = n > -2147483648.0f && m > -2147483648.0f && m == eq_floor(m);
    const bool turned = whole && z > 0.0f;
    const float sign = turned && eq_fmod(m, 2.0f) != 0.0f ? -1.0f : 1.0f;
    return EqBeta{z, m, sign, 1.0f, false, !turned || m <= 0.0f};
  }
  const float a = x < y ? x : y, b = x < y ? y : x;
  const bool near = b >= 8.0f && a > -30.0f && a > -0.5f * b;
  if (!(a < 0.0f) || near) return EqBeta{x, y, 1.0f, 1.0f, false, false};
  if (b == EQ_INF) return EqBeta{x, y, eq_sign_of_gamma(a), 1.0f, false, true};
  const EqTwo s = eq_sum(a, b);
  const float above = (1.0f - s.high) - s.low, down = eq_turn(a, 0.0f).sine;
  if (s.high >= 1.0f) return EqBeta{1.0f - a, s.high, 1.0f / b, down, true, false};
  const float up = eq_turn(s.high, s.low).sine;
  if (b > 0.0f) return EqBeta{above, b, up, down, false, false};
  const float other = eq_turn(b, 0.0f).sine;
  return EqBeta{1.0f - a, 1.0f - b, up / (down * above), other, true, false};
}""",
    "eq_algdiv": """// ln Γ(b) / Γ(a + b), b ≥ 8, -b/2 ≤ a ≤ b.
// Didonato & Morris 1992, TOMS 708.
EQ_FN float eq_algdiv(float a, float b) {
  if (b == EQ_INF) return a < 0.0f ? EQ_INF : -EQ_INF;
  const float w = eq_stirling(b) - eq_stirling(a + b);
  const float u = (b + (a - 0.5f)) * eq_log_above(a / b);
  return (w - (u - a)) - a * eq_log_near(b, 0.0f);
}""",
    "eq_lbeta": f"""// ln |B(x, y)|, both positive, or the larger one 8 at least.
EQ_FN float eq_lbeta(float x, float y) {{
  const float a = x < y ? x : y, b = x < y ? y : x;
  if (a != a || a == EQ_INF) return EQ_NAN;
  if (!(b >= 8.0f)) return (eq_lgamma(a) - eq_lgamma(a + b)) + eq_lgamma(b);
  if (a < 8.0f || b == EQ_INF) return eq_gammaln(a) + eq_algdiv(a, b);
  const float h = a / b, l = eq_log_above(h);
  const float w = eq_stirling(a) + (eq_stirling(b) - eq_stirling(a + b));
  const float rest = w + {literal(_HALF_LOG)};
  const float k = (a - 0.5f) * (eq_log_near(h, 0.0f) - l) - b * l;
  return (rest - 0.5f * eq_log_near(b, 0.0f)) + k;
}}""",
    "eq_betaln": """EQ_FN float eq_betaln(float x, float y) {
  const EqBeta k = eq_beta_of(x, y);
  if (k.pole) return EQ_INF;
  const float l = eq_lbeta(k.a, k.b);
  if (eq_fabs(k.up) == 1.0f && k.down == 1.0f) return l;
  const float up = eq_log_near(eq_fabs(k.up), 0.0f);
  return (up - eq_log_near(eq_fabs(k.down), 0.0f)) + (k.over ? -l : l);
}""",
    "eq_beta": """EQ_FN float eq_beta(float x, float y) {
  const EqBeta k = eq_beta_of(x, y);
  if (k.pole) return k.up * EQ_INF;
  const EqTwo s = eq_sum(k.a, k.b);
  const float a = k.a < k.b ? k.a : k.b, b = k.a < k.b ? k.b : k.a;
  const float factor = k.up / k.down;
  if (eq_max(s.high, b) <= 34.0f) {
    const float p = eq_gamma(a), q = eq_gamma(b), r = eq_gamma(s.high);
    const float of = q / r * p;
    if (p == EQ_INF || of == EQ_INF) return factor * EQ_INF;
    const float w = s.low == 0.0f ? of : of - of * s.low * eq_digamma(s.high);
    return k.over ? factor / w : factor * w;
  }
  const bool few = a < 8.0f && a > -30.0f;
  const float g = few ? eq_gamma(a) : 1.0f;
  const float l = few ? eq_algdiv(a, b) : eq_lbeta(a, b);
  if (l == -EQ_INF && !k.over) return 0.0f;
  const float bounded = eq_max(eq_min(k.over ? -l : l, 190.0f), -190.0f);
  return eq_exp_of(bounded, 0.0f, k.over ? factor / g : factor * g);
}""",
}


SPECIAL: dict[str, str] = {
    **_ELEMENTARY,
    **_ERRORS,
    **_GAMMA,
    **_BETA,
}
"""Definitions in an order in which each comes after what it calls."""
