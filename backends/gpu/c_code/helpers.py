"""What bodies of kernels call, in C++ that both languages have."""

from __future__ import annotations

import re

from ...native.math import ERF32, ERFC32
from .bessel import BESSEL
from .dialect import Dialect
from .special import SPECIAL, horner

NEAR = ("eq_exp", "eq_erf", "eq_powers")
"""Functions that have a cheaper form, ``_near``, within 2⁻¹⁵ of the result: for kernels
that write halves only, whose rounding is 16 times that."""
ERF_NEAR = (
    6.1673973e-06,
    -1.6281543,
    -0.91675925,
    -0.1528905,
    0.034231234,
    -0.0053393287,
    0.0005068215,
    -2.1776868e-05,
)
"""log₂ erfc t, 0 ≤ t ≤ 4, fitted at Chebyshev's points: error 2^-17.8. Beyond, it
falls to -∞ as it should: what it is of is below 2^-25."""


FUNCTIONS: dict[str, str] = {
    "EqPack": """// Neighbours in memory, read and written 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) EqPack {
  T v[N];
};""",
    "eq_load": """// Aligned as one element is: an array may be a slice of another.
template <int N, typename T>
EQ_FN EqPack<T, N> eq_load(const EQ_GLOBAL T* p) {
  EqPack<T, N> x;
  for (int i = 0; i < N; ++i) x.v[i] = p[i];
  return x;
}""",
    "eq_float": """template <typename T, int N>
EQ_FN float eq_float(EqPack<T, N> p, int j) {
  return float(p.v[j]);
}""",
    "eq_held": """template <typename T, int N>
EQ_FN EqPack<T, N> eq_held(EqPack<T, N> p) {
  return p;
}""",
    "eq_store": """template <int N, typename T>
EQ_FN void eq_store(EQ_GLOBAL T* p, EqPack<T, N> x) {
  *(EQ_GLOBAL EqPack<T, N>*)p = x;
}""",
    "eq_max": """template <typename T>
EQ_FN T eq_max(T x, T y) {  // NaN if one is
  return x > y || x != x ? x : y;
}""",
    "eq_min": """template <typename T>
EQ_FN T eq_min(T x, T y) {
  return x < y || x != x ? x : y;
}""",
    "eq_fmax": """EQ_FN float eq_fmax(float x, float y) {
  return x > y || y != y ? x : y;
}""",
    "eq_fmin": """EQ_FN float eq_fmin(float x, float y) {
  return x < y || y != y ? x : y;
}""",
    "eq_sign": """EQ_FN float eq_sign(float x) {
  return x != x ? x : float(x > 0.0f) - float(x < 0.0f);
}""",
    "eq_sigmoid": """EQ_FN float eq_sigmoid(float x) {
  const float e = eq_exp(-eq_fabs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}""",
    "eq_expm1": """EQ_FN float eq_expm1(float x) {  // Kahan: that of eˣ cancels
  const float u = eq_exp(x);
  if (u == 1.0f) return x;
  const float d = u - 1.0f;
  if (d == -1.0f || u > 1e30f) return d;
  return d * x / eq_log(u);
}""",
    "eq_log1p": """EQ_FN float eq_log1p(float x) {  // Kahan: that of 1 + x cancels
  const float u = 1.0f + x;
  if (u == 1.0f || u > 1e30f) return u == 1.0f ? x : eq_log(u);
  return eq_log(u) * x / (u - 1.0f);
}""",
    "eq_logaddexp": """EQ_FN float eq_logaddexp(float x, float y) {
  if (x == y) return x + 0.693147182f;
  return eq_max(x, y) + eq_log1p(eq_exp(-eq_fabs(x - y)));
}""",
    "eq_erf": f"""EQ_FN float eq_erf(float x) {{
  const float a = eq_fabs(x), s = x * x;
  if (a <= 1.0f) return x + x * {horner(ERF32, "s")};
  const float t = eq_min(a, 4.0f);
  const float y = 1.0f - eq_exp2({horner(ERFC32, "t")});
  return x != x ? x : eq_copysign(a < 4.0f ? y : 1.0f, x);
}}""",
    "eq_exp_near": """EQ_FN float eq_exp_near(float x) {
  return eq_exp2_near(1.44269502f * x);
}""",
    "eq_erf_near": f"""EQ_FN float eq_erf_near(float x) {{
  const float a = eq_fabs(x);
  const float y = 1.0f - eq_exp2_near({horner(ERF_NEAR, "a")});
  const float line = x * (1.12837917f - 0.376126389f * x * x);
  return a < 0.125f ? line : eq_copysign(y, x);
}}""",
    "eq_erf_plus_one": f"""EQ_FN float eq_erf_plus_one(float x) {{
  const float a = eq_fabs(x);
  const float e = eq_exp2_near({horner(ERF_NEAR, "a")});
  return x < 0.0f ? e : 2.0f - e;
}}""",
    "eq_half_erf_plus_one": f"""EQ_FN float eq_half_erf_plus_one(float x) {{
  const float a = eq_fabs(x);
  const float e = eq_exp2_near({horner((ERF_NEAR[0] - 1, *ERF_NEAR[1:]), "a")});
  return x < 0.0f ? e : 1.0f - e;
}}""",
    "eq_divisor_scale": """// 2ⁿ that takes |x| to [1/2, 1), or 1.
EQ_FN float eq_divisor_scale(float x) {
  const int size = EQ_BITS(int, x) & 0x7fffffff, e = size >> 23;
  if (size == 0 || e == 255) return 1.0f;
  return EQ_FLOAT(e < 253 ? (253 - e) << 23 : e == 253 ? 1 << 22 : 1 << 21);
}""",
    "eq_floor_divide_f": """EQ_FN float eq_floor_divide_f(float x, float y) {
  const float rest = eq_fmod(x, y);
  float q = (x - rest) / y;
  if (rest != 0.0f && (rest < 0.0f) != (y < 0.0f)) q -= 1.0f;
  float low = eq_floor(q);
  if (q - low > 0.5f) low += 1.0f;
  if (q == 0.0f) low = eq_copysign(0.0f, x / y);
  return y == 0.0f ? x / y : low;
}""",
    "eq_remainder_f": """EQ_FN float eq_remainder_f(float x, float y) {
  float rest = eq_fmod(x, y);
  if (rest != 0.0f && (rest < 0.0f) != (y < 0.0f)) rest += y;
  return rest == 0.0f ? eq_copysign(rest, y) : rest;
}""",
    "eq_divided": """template <typename T>
EQ_FN T eq_divided(T x, T y) {  // towards 0; 0 of division by 0, -1 wraps
  if (y == T(0)) return T(0);
  return T(-1) < T(0) && y == T(-1) ? T(T(0) - x) : T(x / y);
}""",
    "eq_rest": """template <typename T>
EQ_FN T eq_rest(T x, T y) {
  return y == T(0) ? T(0) : T(x - eq_divided(x, y) * y);
}""",
    "eq_floor_divide": """template <typename T>
EQ_FN T eq_floor_divide(T x, T y) {
  const T rest = eq_rest(x, y);
  const bool down = rest != T(0) && (rest < T(0)) != (y < T(0));
  return T(eq_divided(x, y) - T(down));
}""",
    "eq_remainder": """template <typename T>
EQ_FN T eq_remainder(T x, T y) {
  const T rest = eq_rest(x, y);
  return rest != T(0) && (rest < T(0)) != (y < T(0)) ? T(rest + y) : rest;
}""",
    "eq_left": """template <typename T>
EQ_FN T eq_left(T x, T y) {  // all bits go where y is negative, or the width
  return y < T(0) || y >= T(8 * sizeof(T)) ? T(0) : T(x << y);
}""",
    "eq_right": """template <typename T>
EQ_FN T eq_right(T x, T y) {
  if (y < T(0) || y >= T(8 * sizeof(T))) return x < T(0) ? T(-1) : T(0);
  return T(x >> y);
}""",
    "eq_shuffle": """template <typename T>
EQ_FN T eq_shuffle(T x, int d) {
  return T(EQ_SHUFFLE(int(x), d));
}
EQ_FN float eq_shuffle(float x, int d) { return EQ_SHUFFLE(x, d); }
EQ_FN uint32_t eq_shuffle(uint32_t x, int d) { return EQ_SHUFFLE(x, d); }
EQ_FN uint64_t eq_shuffle(uint64_t x, int d) {
  const uint32_t low = EQ_SHUFFLE(uint32_t(x), d);
  const uint32_t high = EQ_SHUFFLE(uint32_t(x >> 32), d);
  return uint64_t(high) << 32 | low;
}
EQ_FN int64_t eq_shuffle(int64_t x, int d) {
  return int64_t(eq_shuffle(uint64_t(x), d));
}""",
    "EqAt": """// A value and where it is.
template <typename T>
struct EqAt {
  T value;
  int place;
};
template <typename T>
EQ_FN EqAt<T> eq_shuffle(EqAt<T> x, int d) {
  return EqAt<T>{eq_shuffle(x.value, d), eq_shuffle(x.place, d)};
}""",
    "EqPower": """// Σ eᵛ of some v: the greatest of them, and the sum over its power.
struct EqPower {
  float top, sum;
};
EQ_FN EqPower eq_shuffle(EqPower x, int d) {
  return EqPower{eq_shuffle(x.top, d), eq_shuffle(x.sum, d)};
}""",
}


def _combiner(name: str, text: str) -> str:
    return (
        f"struct {name} {{\n  template <typename T>\n"
        f"  static EQ_FN T join(T x, T y) {{\n    return {text};\n  }}\n}};"
    )


def _extreme(name: str, sign: str) -> str:
    return _combiner(
        name,
        f"(y.value {sign} x.value || (y.value != y.value && x.value == x.value) || "
        f"((y.value == x.value || (y.value != y.value && x.value != x.value)) && "
        "y.place < x.place)) ? y : x",
    )


def _powers(suffix: str) -> str:
    return f"""EQ_FN EqPower eq_powers{suffix}(EqPower x, EqPower y) {{
  const float e = x.top == y.top ? 1.0f : eq_exp{suffix}(-eq_fabs(x.top - y.top));
  const bool more = y.top > x.top;
  const float sum = more ? x.sum * e + y.sum : x.sum + y.sum * e;
  return EqPower{{eq_max(x.top, y.top), sum}};
}}"""


FUNCTIONS |= {
    "eq_powers": _powers(""),
    "eq_powers_near": _powers("_near"),
    "EqSum": _combiner("EqSum", "T(x + y)"),
    "EqProd": _combiner("EqProd", "T(x * y)"),
    "EqMax": _combiner("EqMax", "eq_max(x, y)"),
    "EqMin": _combiner("EqMin", "eq_min(x, y)"),
    "EqPowers": _combiner("EqPowers", "eq_powers(x, y)"),
    "EqAny": _combiner("EqAny", "x || y"),
    "EqAll": _combiner("EqAll", "x && y"),
    "EqArgmax": _extreme("EqArgmax", ">"),
    "EqArgmin": _extreme("EqArgmin", "<"),
    "eq_simd": """// The results of 32 lanes as one, in each of them.
template <typename J, typename T>
EQ_FN T eq_simd(T x) {
  for (int d = 16; d > 0; d /= 2) x = J::join(x, eq_shuffle(x, d));
  return x;
}""",
    "eq_group": """// The results of all lanes of a group as one.
template <typename J, typename T>
EQ_FN T eq_group(T x, T none, EQ_LOCAL T* slots, uint lane, uint count) {
  x = eq_simd<J>(x);
  if (lane % 32 == 0) slots[lane / 32] = x;
  EQ_BARRIER();
  uint span = 1;
  while (span < count) span *= 2;
  x = lane % span < count ? slots[lane % span] : none;
  for (uint d = span / 2; d > 0; d /= 2) x = J::join(x, eq_shuffle(x, int(d)));
  return x;
}""",
    **SPECIAL,
    **BESSEL,
}
"""Definitions in an order in which each comes after what it calls."""
_WORD = re.compile(r"\b(?:eq_\w+|Eq[A-Z]\w*)")


def header_of(dialect: Dialect, body: str) -> str:
    """The macros, and the functions that ``body`` calls, directly or not."""
    known = {**dialect.mathematics}
    known |= {n: f for n, f in FUNCTIONS.items() if n not in known}
    order = ["EqPack", *dialect.mathematics, *(n for n in FUNCTIONS if n in known)]
    order = list(dict.fromkeys(order))
    needed: set[str] = set()
    stack = [n for n in _WORD.findall(body) if n in known]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack += [n for n in _WORD.findall(known[name]) if n in known]
    return dialect.macros + "".join(f"{known[n]}\n" for n in order if n in needed)
