"""What Metal and CUDA C++ say in different words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.terms import BF16

from ...loop_ir import (
    DType,
    Unsupported,
)

SIMD = 32
"""Lanes that run in step."""
MOST_REGISTERS = 255
"""Of one thread."""
OTHER_USES = 40
"""Registers of a thread for what is not held between passes: about what compilers gave
kernels that held nothing."""


@dataclass(frozen=True)
class Dialect:
    """A language for GPUs."""

    name: str
    ids: tuple[str, ...]
    """Lines that open a body: ``group``, the number of the thread group, and ``lane``,
    that of the thread in it."""
    macros: str
    memory: Mapping[str, str]
    """Types of elements in memory, by dtype."""
    mathematics: Mapping[str, str]
    """Functions of floats, by the name that bodies call them."""
    most_held: int
    """Most elements of a row that a thread holds of one value."""
    registers: int
    """Registers of 4 bytes that the threads of a group share."""
    constant_loads: frozenset[str]
    """Dtypes that ``eq_read`` loads: an input may then be read before what stands
    before it is written."""

    def room(self, group: int) -> int:
        """Bytes of a row that each thread of a group can hold: a group whose threads
        need more registers than there are is not started at all."""
        return 4 * max(min(self.registers // group, MOST_REGISTERS) - OTHER_USES, 0)

    def memory_type(self, dtype: DType) -> str:
        """The type of an element in memory. Raises :class:`Unsupported`."""
        found = self.memory.get(dtype.name)
        if found is None:
            raise Unsupported(f"{dtype} on a GPU")
        return found


_INTEGERS = {
    **{f"int{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    "bool": "bool",
    "float32": "float",
}
_PLAIN = (
    "exp exp2 log log2 log10 sqrt sin cos tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh floor ceil trunc rint fabs pow copysign fmod fma"
).split()
_OF_TWO = ("atan2", "pow", "copysign", "fmod")
_NO_ROUNDING = ("floor", "ceil", "trunc", "rint", "fabs", "copysign", "fma")
"""What Metal has in one precision."""


def _function(name: str, call: str) -> str:
    args = {"fma": "x, y, z"}.get(name, "x, y" if name in _OF_TWO else "x")
    params = ", ".join(f"float {a}" for a in args.split(", "))
    return f"EQ_FN float eq_{name}({params}) {{ return {call}({args}); }}"


def _cuda_extreme(name: str, sign: str) -> str:
    """The larger or smaller of two, NaN if one is; one instruction for floats."""
    return f"""template <typename T>
EQ_FN T eq_{name}(T x, T y) {{
  return x {sign} y || x != x ? x : y;
}}
#if __CUDA_ARCH__ >= 800
EQ_FN float eq_{name}(float x, float y) {{
  asm("{name}.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(y));
  return x;
}}
#endif"""


_METAL_MATH = {
    f"eq_{n}": _function(
        n, f"metal::{n}" if n in _NO_ROUNDING else f"metal::precise::{n}"
    )
    for n in _PLAIN
} | {"eq_exp2_near": _function("exp2_near", "metal::fast::exp2")}
_CUDA_MATH = {f"eq_{n}": _function(n, f"{n}f") for n in _PLAIN} | {
    "eq_erf": "EQ_FN float eq_erf(float x) { return erff(x); }",
    "eq_expm1": "EQ_FN float eq_expm1(float x) { return expm1f(x); }",
    "eq_log1p": "EQ_FN float eq_log1p(float x) { return log1pf(x); }",
    "eq_exp2_near": """EQ_FN float eq_exp2_near(float x) {
#ifdef __CUDA_ARCH__
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return exp2f(x);
#endif
}""",
    **{f"eq_{n}": _cuda_extreme(n, sign) for n, sign in (("max", ">"), ("min", "<"))},
    "eq_read": """template <typename T>
EQ_FN T eq_read(const T* p) {
  return __ldg(p);
}""",
    "eq_load": """// Whether inputs begin on 16 bytes: those that are slices may not.
template <bool B>
struct EqWhole {
  static constexpr bool value = B;
};
// Of memory that the kernel only reads: it waits for no store.
template <int N, bool WHOLE, typename T>
EQ_FN EqPack<T, N> eq_load(const T* p) {
  EqPack<T, N> x;
  if (!WHOLE) {
    for (int i = 0; i < N; ++i) x.v[i] = p[i];
    return x;
  }
  if (sizeof(x) % 16) return *(const EqPack<T, N>*)p;
  for (int i = 0; i < int(sizeof(x) / 16); ++i) {
    const uint4 w = __ldg((const uint4*)p + i);
    memcpy((uint4*)&x + i, &w, 16);
  }
  return x;
}""",
    "eq_load_kept": """// What is read leaves the cache after what is written.
template <int N, bool WHOLE, typename T>
EQ_FN EqPack<T, N> eq_load_kept(const T* p) {
#if __CUDA_ARCH__ >= 800
  EqPack<T, N> x;
  if (WHOLE && sizeof(x) % 16 == 0) {
    uint64_t kept;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(kept));
    for (int i = 0; i < int(sizeof(x) / 16); ++i) {
      uint4 w;
      asm volatile(
          "ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
          : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
          : "l"((const uint4*)p + i), "l"(kept));
      memcpy((uint4*)&x + i, &w, 16);
    }
    return x;
  }
#endif
  return eq_load<N, WHOLE>(p);
}""",
    "eq_float": """// One of two bfloat16 in a register, by one instruction.
template <typename T, int N>
EQ_FN float eq_float(EqPack<T, N> p, int j) {
  return float(p.v[j]);
}
template <int N>
EQ_FN float eq_float(EqPack<__nv_bfloat16, N> p, int j) {
  uint two;
  memcpy(&two, p.v + j / 2 * 2, 4);
  return EQ_FLOAT(j % 2 ? two & 0xffff0000u : two << 16);
}""",
    "eq_shuffle": """template <typename T>
EQ_FN T eq_shuffle(T x, int d) {
  return T(EQ_SHUFFLE(x, d));
}""",
    "eq_held": """// Hides that an earlier pass made the same floats, lest they be held.
template <typename T, int N>
EQ_FN EqPack<T, N> eq_held(EqPack<T, N> p) {
#ifdef __CUDA_ARCH__
  for (int i = 0; i < N; i += 2) {
    uint two;
    memcpy(&two, p.v + i, 4);
    asm volatile("" : "+r"(two));
    memcpy(p.v + i, &two, 4);
  }
#endif
  return p;
}""",
}

METAL = Dialect(
    "metal",
    (
        "const uint group = threadgroup_position_in_grid.x;",
        "const uint lane = thread_position_in_threadgroup.x;",
    ),
    """#define EQ_FN inline
#define EQ_GLOBAL device
#define EQ_SHARED threadgroup
#define EQ_LOCAL threadgroup
#define EQ_BARRIER() metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup)
#define EQ_BITS(T, x) as_type<T>(x)
#define EQ_FLOAT(x) as_type<float>(x)
#define EQ_SHUFFLE(x, d) metal::simd_shuffle_xor(x, ushort(d))
#define EQ_INF INFINITY
#define EQ_NAN NAN
""",
    {**_INTEGERS, "float16": "half", "bfloat16": "bfloat16_t"},
    _METAL_MATH,
    16,
    1024 * 80,
    frozenset(),
)
CUDA = Dialect(
    "cuda",
    ("const unsigned group = blockIdx.x;", "const unsigned lane = threadIdx.x;"),
    """#define EQ_FN __device__ __forceinline__
#define EQ_GLOBAL
#define EQ_SHARED __shared__
#define EQ_LOCAL
#define EQ_BARRIER() __syncthreads()
#define EQ_BITS(T, x) __float_as_int(x)
#define EQ_FLOAT(x) __int_as_float(x)
#define EQ_SHUFFLE(x, d) __shfl_xor_sync(0xffffffffu, x, d)
#define EQ_INF __int_as_float(0x7f800000)
#define EQ_NAN __int_as_float(0x7fc00000)
typedef unsigned int uint;
""",
    {**_INTEGERS, "float16": "__half", "bfloat16": "__nv_bfloat16"},
    _CUDA_MATH,
    64,
    1 << 16,
    frozenset(["float32", "float16", "bfloat16"]),
)
DIALECTS = {d.name: d for d in (METAL, CUDA)}


def number(value: Any, dtype: DType) -> str:
    """A number as a literal of the type that values of ``dtype`` are computed in."""
    if dtype == np.dtype(bool):
        return "true" if value else "false"
    if dtype.kind in "iu":
        n, kind = int(value), _INTEGERS[dtype.name]
        if dtype.itemsize < 8:
            return f"{kind}({n})"
        if n == -(1 << 63):
            return f"{kind}({n + 1}l - 1)"
        return f"{kind}({n}{'u' * (dtype.kind == 'u')}l)"
    x = float(np.float32(value))
    if np.isnan(x):
        return "EQ_NAN"
    if np.isinf(x):
        return "EQ_INF" if x > 0 else "(-EQ_INF)"
    text = f"{x:.9g}"
    text += "" if "." in text or "e" in text else ".0"
    return f"({text}f)" if text.startswith("-") else f"{text}f"


def value_type(dtype: DType) -> str:
    """The type that values of ``dtype`` are computed in: halves in float."""
    if dtype == np.dtype(np.float64):
        raise Unsupported("float64 on a GPU")
    if dtype == np.dtype(np.float16) or dtype == BF16:
        return "float"
    return _INTEGERS[dtype.name]
