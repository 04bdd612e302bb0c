"""Bessel functions of float32 for bodies of kernels, as :mod:`.special`: by their even
polynomials near 0, and where they are far from it by exponentials and angles."""

from __future__ import annotations

import math

from ...native.math import coefficients as c
from .special import halves, horner, literal


def _bessel_i(order: int) -> dict[str, str]:
    near = getattr(c, f"BESSEL_I{order}_32")
    far = getattr(c, f"BESSEL_I{order}_FAR_32")
    sign = "x < 0.0f ? -y : y" if order else "y"  # 0 of -0, as SciPy has it
    near_text = ("a * " if order else "") + horner(near, "z")
    body = """  const float a = eq_fabs(x);
  if (x != x) return x;
"""
    return {
        f"eq_i{order}": f"""EQ_FN float eq_i{order}(float x) {{
{body}  float y;
  if (a <= 5.0f) {{
    const float z = a * a;
    y = {near_text};
  }} else {{
    const float r = 1.0f / a;
    y = eq_exp_of(eq_min(a, 100.0f), 0.0f, {horner(far, "r")} / eq_sqrt(a));
    y = a > 100.0f ? (a == EQ_INF ? EQ_NAN : EQ_INF) : y;  // as SciPy has it
  }}
  return {sign};
}}""",
        f"eq_i{order}e": f"""EQ_FN float eq_i{order}e(float x) {{
{body}  float y;
  if (a <= 5.0f) {{
    const float z = a * a;
    y = eq_exp_of(-a, 0.0f, {near_text});
  }} else {{
    const float r = 1.0f / a;
    y = {horner(far, "r")} / eq_sqrt(a);
  }}
  return {sign};
}}""",
    }


def _bessel_j(order: int) -> dict[str, str]:
    near = getattr(c, f"BESSEL_J{order}_32")
    p, q = (getattr(c, f"BESSEL_J{order}_{n}_32") for n in "PQ")
    high, low = halves(c.BESSEL_ROOTS[order])
    root = f"((a - {high}) - {low}) * (a + {high})"
    first, second = ("o + s", "s - o") if order == 0 else ("s - o", "-(o + s)")
    sign = "y * eq_copysign(1.0f, x)" if order else "y"
    return {
        f"eq_j{order}": f"""EQ_FN float eq_j{order}(float x) {{
  const float a = eq_fabs(x);
  if (x != x) return x;
  float y;
  if (a <= 4.0f) {{
    const float z = a * a;
    y = {root} * {horner(near, "z")}{" * a" if order else ""};
  }} else {{
    const float r = 1.0f / a, v = r * r;
    const float s = eq_sin(a), o = eq_cos(a);
    const float size = eq_sqrt(r) * {literal(1 / math.sqrt(math.pi))};
    y = size * ({horner(p, "v")} * ({first}) - r * {horner(q, "v")} * ({second}));
  }}
  return {sign};
}}"""
    }


BESSEL: dict[str, str] = {
    **_bessel_i(0),
    **_bessel_i(1),
    **_bessel_j(0),
    **_bessel_j(1),
}
"""Definitions."""
