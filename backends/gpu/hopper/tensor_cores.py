"""What kernels for NVIDIA's tensor cores of compute capability 9.0 (Hopper) share:
instructions by name, with those that copy memory in the background.

Instructions: the PTX ISA of NVIDIA, sections on ``wgmma``, ``mbarrier`` and
``cp.async.bulk``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HopperKernel:
    """A kernel as text, how to start it, and the shape of its result."""

    stem: str
    header: str
    body: str
    parts: tuple[str, ...]
    """Inputs that another kernel has split."""
    arrays: tuple[str, ...]
    """Inputs that may be views of packed memory: how they lie is told to the kernel."""
    groups: int
    shape: tuple[int, ...]
    shared_bytes: int = 0

    @property
    def inputs(self) -> tuple[str, ...]:
        """All of them, the last one what :func:`told` makes."""
        return (*self.parts, *self.arrays, LIES)

    @property
    def name(self) -> str:
        """Of this text and no other."""
        digest = hashlib.sha256(f"{self.header}{self.body}".encode()).hexdigest()[:16]
        return f"{self.stem}_{digest}"


def constants(values: dict[str, int]) -> str:
    """Their definition."""
    words = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"constexpr int {words};\n"


LIES = "lies"
"""An input of integers."""


def told(arrays: Iterable[tuple[Sequence[int], Sequence[int], int]]) -> list[int]:
    """What :data:`LIES` says of arrays: shapes, strides, and where the first element
    is. One text serves all shapes so, and is compiled before it runs: MLX tells strides
    only to what it compiles itself, 1.5 s for each kernel."""
    found: list[int] = []
    for shape, strides, offset in arrays:
        found += [len(shape), offset, *shape, *strides]
    return found


def hearing(arrays: Iterable[str]) -> str:
    """The text that reads it."""
    lines = [f"const auto* told = {LIES};\n"]
    for x in arrays:
        lines.append(
            f"const int {x}_axes = told[0];\n{x} += told[1];\n"
            f"const auto *{x}_sizes = told + 2, *{x}_steps = told + 2 + {x}_axes;\n"
            f"told += 2 + 2 * {x}_axes;\n"
        )
    return "".join(lines)


def _multiplying(columns: int, held: bool) -> str:
    """The function that multiplies 64 rows, in memory or ``held`` in registers, by so
    many columns."""
    count = columns // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    if held:
        given = "const unsigned (&left)[4]"
        left = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        words = ", ".join(f'"r"(left[{i}])' for i in range(4))
        right, more, turned = count + 4, count + 5, "0"
    else:
        given, left, words = "unsigned long long left", f"%{count}", '"l"(left)'
        right, more, turned = count + 1, count + 2, "0, 0"
    return f"""__device__ inline void tensor_multiply(
    float (&sums)[{count}], {given}, unsigned long long right, int more) {{
  asm volatile(
      "{{ .reg .pred p; setp.ne.b32 p, %{more}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 "
      "{{{sums}}}, {left}, %{right}, p, 1, 1, {turned}; }}"
      : {outs}
      : {words}, "l"(right), "r"(more));
}}
"""


OFFSET = """// Where row i begins: rows count along `axis`, then along the axes before
// the last two, the last of them first.
template <typename Shape, typename Strides>
__device__ inline long long eq_offset(
    long long i, int axis, int ndim, const Shape& shape, const Strides& strides) {
  long long found = i % shape[axis] * strides[axis];
  i /= shape[axis];
  for (int a = ndim - 3; a >= 0; a--) {
    found += i % shape[a] * strides[a];
    i /= shape[a];
  }
  return found;
}
"""

PAIR = """
// Two numbers as bfloat16, rounded to the nearest, the first in the lower half.
__device__ inline unsigned eq_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  unsigned found;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(second), "f"(first));
  return found;
#else
  unsigned halves[2];
  for (int i = 0; i < 2; i++) {
    const float x = i ? second : first;
    const unsigned bits = __float_as_int(x);
    halves[i] = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  return halves[0] | halves[1] << 16;
#endif
}
"""


_BASE = """#ifdef __CUDA_ARCH__
__device__ inline unsigned tensor_address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
// Barriers on which copies of memory are awaited, and those that have read them.
__device__ inline void tensor_barrier(unsigned at, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals));
}
__device__ inline void tensor_barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ inline void tensor_expect(unsigned at, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
               "r"(bytes)
               : "memory");
}
__device__ inline void tensor_arrive(unsigned at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ inline void tensor_wait(unsigned at, unsigned phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
      "@p bra done; bra again; done: }" ::"r"(at),
      "r"(phase)
      : "memory");
}
__device__ inline void tensor_copy(unsigned to, const void* from, unsigned bytes,
                                   unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
      "%2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Matrices of rows of 64 bytes, swizzled, 8 of them in 512 bytes.
__device__ inline unsigned long long tensor_matrix(unsigned at) {
  return (at & 0x3ffff) >> 4 | 1ull << 16 | 32ull << 32 | 2ull << 62;
}
__device__ inline void tensor_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void tensor_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// 64 rows by so many columns, 16 indices: to the sums, or instead of them.
"""

_SIX = """// Of the nine products of two sums of three parts the six that count, the
// small ones first: 64 rows, whose parts `left` gives, by the columns at `right`, 32
// indices. Parts of columns are 8192 bytes apart.
template <int N, typename Left>
__device__ inline void eq_multiply(float (&sums)[N], const Left& left,
                                   unsigned long long right) {
  constexpr int of_x[6] = {2, 0, 1, 1, 0, 0}, of_y[6] = {0, 2, 1, 0, 1, 0};
  #pragma unroll
  for (int i = 0; i < 6; i++) {
    #pragma unroll
    for (int s = 0; s < 2; s++) {
      tensor_multiply(sums, left(of_x[i], s), right + (of_y[i] * 8192 + s * 32) / 16,
                      i + s);
    }
  }
}
"""


def instructions(*products: tuple[int, bool]) -> str:
    """Functions for instructions; of those that multiply 64 rows the ones for so many
    columns, with rows in memory or (true) in registers. ``eq_multiply`` multiplies by
    them what three parts of bfloat16 make."""
    return _BASE + "".join(_multiplying(*p) for p in products) + "#endif\n" + _SIX


DOT = """// A multiply-add at a time, as float32 has it.
__device__ __noinline__ float eq_dot(const float* x, long long by_x, const float* y,
                                     long long by_y, int size) {
  float sum = 0.0f;
  for (int i = 0; i < size && sum == sum; i++) {
    sum = fmaf(x[i * by_x], y[i * by_y], sum);
  }
  return sum;
}
"""
