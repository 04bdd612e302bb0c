"""Products of float32 on tensor cores, which multiply bfloat16 and add in float32.

A float32 is the sum of three bfloat16, 8 bits of its 24 each. Of the nine products of
two such sums three are below 2⁻²⁴ of the whole; the other six are added, the small ones
first. Tensor cores cut off what they add instead of rounding it, so a tile takes up
what 32 indices give by an addition of float32, which rounds. An H200 makes 130 to 138
Tflop/s of it (127 with the splits) where float32's own units make 51, and is nearer to
the exact product: the root of the mean square of the error is 2.1e-7 of 4096 indices,
1.15e-6 by cuBLAS. For NVIDIA's tensor cores of compute capability 9.0 (Hopper,
``wgmma``).

First :func:`splitting` stores the parts of an operand as blocks of 128 rows by 32
indices, in the order in which a thread group's memory is to hold them, so that
:func:`multiplying` copies each as a whole. A result that is not finite is computed
again by multiply-adds of float32: parts of ∞ are ∞ and NaN. Of an operand below 2⁻¹¹⁰
the parts are exact up to 2⁻¹³⁴, as bfloat16 is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from .tensor_cores import (
    DOT,
    OFFSET,
    PAIR,
    HopperKernel,
    constants,
    hearing,
    instructions,
)

ROWS, INNER = 128, 32
"""Of a block: rows of the left operand or columns of the right one, and indices that
are summed over."""
PARTS = 3
BLOCK = PARTS * ROWS * INNER
"""Elements of a block's parts."""
GROUP = 256
PROCESSORS = 132
"""Of an H200; a thread group of :func:`multiplying` takes one of them."""
STEP_S = {1: 1.25e-6, 2: 2.1e-6}
"""That a processor takes for 32 indices of a tile of so many columns in 128s."""
TILE_S = {1: 6e-6, 2: 12e-6}
"""That it takes for a tile besides, to begin it and to write it."""
SPLIT_BYTES_PER_S = 3e12
LAUNCHES_S = 1e-5
OWN_FLOPS_PER_S = 5e13
"""Of MLX's products of float32 (cuBLAS)."""
AHEAD = {1: 4, 2: 3}
"""Steps for which there is room, by the number of columns of a tile in 128s."""


@dataclass(frozen=True)
class HopperProduct:
    """The matrix product of ``left``, ... m k, by ``right``, ... k n, with leading axes
    that broadcast: their shapes."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        lead = np.broadcast_shapes(self.left[:-2], self.right[:-2])
        return (*lead, self.left[-2], self.right[-1])

    @property
    def is_one(self) -> bool:
        """Whether all of ``left`` meets the same matrix, so that its leading axes count
        as rows."""
        return prod(self.right[:-2]) == 1

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Products, and of each m, n and k."""
        *lead, m, n = self.shape
        k, count = self.left[-1], prod(lead)
        return (1, count * m, n, k) if self.is_one else (count, m, n, k)

    @property
    def halves(self) -> int:
        """Columns of a tile in 128s: whichever are computed first."""
        return min((2, 1), key=self._product_s)

    def _product_s(self, halves: int) -> float:
        count, m, n, k = self.sizes
        tiles = count * _blocks(m) * -(-n // (halves * ROWS))
        rounds = -(-tiles // PROCESSORS)
        return rounds * (-(-k // INNER) * STEP_S[halves] + TILE_S[halves])

    @property
    def seconds(self) -> float:
        """That an H200 takes to split both operands and multiply them."""
        moved = 10 * (prod(self.left) + prod(self.right))
        return self._product_s(self.halves) + moved / SPLIT_BYTES_PER_S + LAUNCHES_S

    @property
    def is_faster(self) -> bool:
        """Whether that is less than MLX's product takes."""
        flops = 2 * prod(self.sizes)
        return 0 < self.seconds < 0.95 * flops / OWN_FLOPS_PER_S


def splitting(shape: tuple[int, ...], folded: bool) -> HopperKernel:
    """What stores the parts of an operand of ``shape``, its last axis summed over: a
    right operand is turned. ``folded``: leading axes count as rows.
    """
    *lead, rows, inner = shape
    if folded:
        lead, rows = [], prod(lead) * rows
    blocks = prod(lead) * _blocks(rows), -(-inner // INNER)
    body = constants({"FOLDED": int(folded)}) + hearing(("x",)) + _SPLIT
    shape = (blocks[0], blocks[1] * BLOCK)
    return HopperKernel("split", OFFSET + PAIR, body, (), ("x",), prod(blocks), shape)


def multiplying(
    product: HopperProduct, added: bool = False, factor: float = 1.0, halves: int = 0
) -> HopperKernel:
    """What multiplies parts: ``factor`` times the product, and what is ``added``. Tiles
    have ``halves`` times 128 columns, 1 or 2; by default what is computed first.

    Its inputs are the parts of both operands; both operands, the leading axes broadcast
    unless the product :attr:`HopperProduct.is_one`; what is added, of the result's
    shape; and how these lie."""
    count, m, n, _ = product.sizes
    halves = halves or product.halves
    stages = AHEAD[halves]
    consts = {"HALVES": halves, "STAGES": stages}
    consts |= {"FOLDED": int(product.is_one), "EVEN": int(n % 2 == 0)}
    arrays = ("left", "right", *(["added"] * added))
    body = constants(consts) + hearing(arrays) + _PRODUCT
    lead = product.shape[:-2]
    texts = {
        "@LEFT_OF": "0" if product.is_one else index_of(lead, product.left[:-2]),
        "@RIGHT_OF": index_of(lead, product.right[:-2]),
        " @ADDED_AT": _ADDED_AT if added else "",
    }
    for mark, text in texts.items():
        body = body.replace(mark, text)
    plus = r" + added[added_at + (\2) * by_added]" if added else ""
    times = f"{factor!r}f * " if factor != 1 else ""
    body = re.sub(r"@MADE\((.*?), (.*?)\)", rf"{times}\1{plus}", body)
    tiles = count * _blocks(m) * -(-n // (halves * ROWS))
    room = stages * (1 + halves) * 2 * BLOCK + 16 * stages + 1024
    return HopperKernel(
        "product",
        instructions((128, False)) + OFFSET + DOT,
        body,
        ("left_parts", "right_parts"),
        arrays,
        tiles,
        product.shape,
        room,
    )


def _blocks(rows: int) -> int:
    return -(-rows // ROWS)


def index_of(lead: Sequence[int], given: Sequence[int]) -> str:
    """Which matrix of an operand with leading axes ``given`` is matrix g of ``lead``,
    with which they broadcast."""
    if prod(given) == 1:
        return "0"
    if prod(given) == prod(lead):
        return "g"
    terms, step, mine = [], 1, 1
    for i in range(1, len(lead) + 1):
        size = given[-i] if i <= len(given) else 1
        if size > 1:
            terms.append(f"g / {step} % {lead[-i]} * {mine}")
            mine *= size
        step *= lead[-i]
    return " + ".join(terms)


_SPLIT = """
// A thread group stores one block: part by part, a row of 32 elements in 64 bytes. The
// four 16 bytes of a row change places from one pair of rows to the next, as tensor
// cores have it (the swizzle of 64 bytes), so that 8 rows are read at once.
__shared__ float tile[128 * 33];
__shared__ long long starts[128];
const int t = threadIdx.x;
const int axis = x_axes - 2, inner_axis = x_axes - 1;
const int all_inner = x_sizes[inner_axis], inner_blocks = (all_inner + 31) / 32;
int all_rows = x_sizes[axis];
for (int a = 0; FOLDED && a < x_axes - 2; a++) all_rows *= x_sizes[a];
const int row_blocks = (all_rows + 127) / 128;
const int inner = blockIdx.x % inner_blocks * 32, place = blockIdx.x / inner_blocks;
const int row = place % row_blocks * 128;
const long long first = (long long)(place / row_blocks) * all_rows + row;
const int rows = all_rows - row < 128 ? all_rows - row : 128;
const int inners = all_inner - inner < 32 ? all_inner - inner : 32;
const long long step = x_steps[inner_axis];
if (t < rows) {
  starts[t] = eq_offset(first + t, axis, x_axes, x_sizes, x_steps);
}
__syncthreads();
// A whole row of 32 elements side by side is read from memory by those who store it.
const bool whole = all_inner % 32 == 0 && all_rows % 128 == 0 && step == 1;
if (!whole) {
  const bool along = step == 1 || x_steps[axis] != 1;
  for (int i = t; i < 128 * 32; i += 256) {
    const int r = along ? i / 32 : i % 128, k = along ? i % 32 : i / 128;
    const bool inside = r < rows && k < inners;
    tile[r * 33 + k] = inside ? x[starts[r] + (inner + k) * step] : 0.0f;
  }
  __syncthreads();
}
unsigned char* to = (unsigned char*)y + (size_t)blockIdx.x * 3 * 8192;
#pragma unroll
for (int i = t; i < 128 * 4; i += 256) {
  const int r = i / 4, c = i % 4;
  float left[8];
  const float* from = x + (whole ? starts[r] + inner + c * 8 : 0);
  if (whole && (size_t)from % 16 == 0) {
    #pragma unroll
    for (int j = 0; j < 2; j++) {
      const float4 four = ((const float4*)from)[j];
      left[4 * j] = four.x, left[4 * j + 1] = four.y;
      left[4 * j + 2] = four.z, left[4 * j + 3] = four.w;
    }
  } else {
    #pragma unroll
    for (int j = 0; j < 8; j++) left[j] = whole ? from[j] : tile[r * 33 + c * 8 + j];
  }
  #pragma unroll
  for (int n = 0; n < 3; n++) {
    unsigned two[4];
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      two[j] = eq_pair(left[2 * j], left[2 * j + 1]);
      left[2 * j] -= __int_as_float(two[j] << 16);
      left[2 * j + 1] -= __int_as_float(two[j] & 0xffff0000);
    }
    const uint4 part = {two[0], two[1], two[2], two[3]};
    *(uint4*)(to + n * 8192 + r * 64 + (c ^ (r >> 1 & 3)) * 16) = part;
  }
}
"""

_ADDED_AT = """
    const long long added_at =
        eq_offset(line, added_axes - 2, added_axes, added_sizes, added_steps);
    const long long by_added = added_steps[added_axes - 1];"""

_PRODUCT = """
// A thread group makes a tile of 128 rows and 128 or 256 columns: 4 of its 8 warps make
// the upper 64 rows, 4 the lower ones. One thread has blocks copied, some steps ahead.
constexpr unsigned PART = 128 * 32 * 2, BLOCK = 3 * PART, STAGE = (1 + HALVES) * BLOCK;
const int inner = left_sizes[left_axes - 1], n = right_sizes[right_axes - 1];
int m = left_sizes[left_axes - 2];
for (int a = 0; FOLDED && a < left_axes - 2; a++) m *= left_sizes[a];
const int inner_blocks = (inner + 31) / 32, row_blocks = (m + 127) / 128;
const int column_blocks = (n + 127) / 128;
const int tiles = (column_blocks + HALVES - 1) / HALVES;
extern __shared__ unsigned char memory[];
const unsigned base = (tensor_address(memory) + 1023) & ~1023u;
const unsigned full = base + STAGES * STAGE, empty = full + 8 * STAGES;
const int thread = threadIdx.x, upper = thread / 128;
// Tiles that are made at a time read few rows and columns: bands of rows, by columns.
const int g = blockIdx.x / (row_blocks * tiles);
const int tile = blockIdx.x % (row_blocks * tiles);
constexpr int BAND = 8;
const int band = tile / (BAND * tiles), in_band = tile % (BAND * tiles);
const int rest = row_blocks - band * BAND, high = rest < BAND ? rest : BAND;
const int block = band * BAND + in_band % high;
const int column_block = in_band / high * HALVES, others = column_blocks - column_block;
const int halves = others < HALVES ? others : HALVES;
const size_t left_block = (size_t)(@LEFT_OF) * row_blocks + block;
const size_t right_block = (size_t)(@RIGHT_OF) * column_blocks + column_block;
const char* left_from = (const char*)left_parts + left_block * inner_blocks * BLOCK;
const char* right_from = (const char*)right_parts + right_block * inner_blocks * BLOCK;
if (thread == 0) {
  for (int i = 0; i < STAGES; i++) {
    tensor_barrier(full + 8 * i, 1);
    tensor_barrier(empty + 8 * i, 8);
  }
  tensor_barriers_made();
}
__syncthreads();
auto copy = [&](int k, int stage) {
  const unsigned to = base + stage * STAGE, barrier = full + 8 * stage;
  tensor_expect(barrier, (1 + halves) * BLOCK);
  tensor_copy(to, left_from + (size_t)k * BLOCK, BLOCK, barrier);
  for (int h = 0; h < halves; h++) {
    const size_t from = (size_t)(h * inner_blocks + k) * BLOCK;
    tensor_copy(to + (1 + h) * BLOCK, right_from + from, BLOCK, barrier);
  }
};
if (thread == 0) {
  for (int k = 0; k < STAGES && k < inner_blocks; k++) copy(k, k);
}
float sums[HALVES][64], some[64];
#pragma unroll
for (int h = 0; h < HALVES; h++) {
  #pragma unroll
  for (int i = 0; i < 64; i++) sums[h][i] = 0.0f;
}
int stage = 0, phase = 0;
for (int k = 0; k < inner_blocks; k++) {
  tensor_wait(full + 8 * stage, phase);
  const unsigned at = base + stage * STAGE;
  const unsigned long long x = tensor_matrix(at + upper * (PART / 2));
  const unsigned long long y = tensor_matrix(at + BLOCK);
  auto rows = [&](int part, int s) { return x + (part * PART + s * 32) / 16; };
  #pragma unroll
  for (int h = 0; h < HALVES; h++) {
    // What lies where no columns are is multiplied too, and not stored.
    tensor_begin();
    eq_multiply(some, rows, y + h * BLOCK / 16);
    const int next = k + STAGES - 1, last = stage ? stage - 1 : STAGES - 1;
    if (h == 0 && thread == 0 && k > 0 && next < inner_blocks) {
      tensor_wait(empty + 8 * last, stage ? phase : phase ^ 1);
      copy(next, last);
    }
    tensor_end();
    if (h == HALVES - 1 && thread % 32 == 0) tensor_arrive(empty + 8 * stage);
    #pragma unroll
    for (int i = 0; i < 64; i++) sums[h][i] += some[i];
  }
  if (++stage == STAGES) {
    stage = 0;
    phase ^= 1;
  }
}
// A thread has 2 columns of each 8, of two rows.
const int lane = thread % 32, top = block * 128 + thread / 32 * 16 + lane / 4;
const int first = column_block * 128 + lane % 4 * 2;
bool is_finite = true;
#pragma unroll
for (int j = 0; j < 2; j++) {
  const long long line = (long long)g * m + top + 8 * j;
  if (top + 8 * j < m) {
    float* to = result + line * n; @ADDED_AT
    #pragma unroll
    for (int h = 0; h < HALVES; h++) {
      #pragma unroll
      for (int i = 0; i < 16; i++) {
        const int col = first + h * 128 + i * 8;
        const float* sum = &sums[h][4 * i + 2 * j];
        if (EVEN && col < n) {
          is_finite &= fabsf(sum[0]) + fabsf(sum[1]) < __int_as_float(0x7f800000);
          *(float2*)(to + col) =
              make_float2(@MADE(sum[0], col), @MADE(sum[1], col + 1));
        } else if (!EVEN) {
          #pragma unroll
          for (int c = 0; c < 2; c++) {
            if (col + c < n) {
              is_finite &= fabsf(sum[c]) < __int_as_float(0x7f800000);
              to[col + c] = @MADE(sum[c], col + c);
            }
          }
        }
      }
    }
  }
}
if (is_finite) return;
#pragma unroll 1
for (int i = 0; i < 64 * HALVES; i++) {
  const int row = top + i % 2 * 8, col = first + i / 4 * 8 + i / 2 % 2;
  if (row >= m || col >= n) continue;
  const long long line = (long long)g * m + row;
  const float old = result[line * n + col];
  if (fabsf(old) < __int_as_float(0x7f800000)) continue;
  const long long x_at =
      eq_offset(line, left_axes - 2, left_axes, left_sizes, left_steps);
  const long long y_at = eq_offset((long long)g * n + col, right_axes - 1, right_axes,
                                   right_sizes, right_steps);
  const float sum = eq_dot(left + x_at, left_steps[left_axes - 1], right + y_at,
                           right_steps[right_axes - 2], inner); @ADDED_AT
  result[line * n + col] = @MADE(sum, col);
}
"""
