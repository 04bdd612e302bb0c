"""Attention of float32 on Hopper's tensor cores, in one kernel: scores stay where they
are made.

Operands are split as :mod:`.products` has it, and so are the weights of values,
in registers. A thread group takes 128 queries, keeps them in its memory, and goes
through the keys 128 at a time, with the largest score and the sum of the weights so far
(Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
Results that are not finite are computed again in float32, score by score.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from .products import (
    BLOCK,
    INNER,
    LAUNCHES_S,
    OWN_FLOPS_PER_S,
    PROCESSORS,
    ROWS,
    SPLIT_BYTES_PER_S,
    index_of,
)
from .tensor_cores import (
    DOT,
    OFFSET,
    PAIR,
    HopperKernel,
    constants,
    hearing,
    instructions,
)

MOST = 128
"""Features of queries and of values."""
STAGES = 5
"""Blocks of keys or values for which there is room."""
AHEAD = 3
"""Blocks that are copied before they are needed: fewer than there is room for, so that
one half of a thread group may be ahead of the other, and they weight in turns."""
STEP_S = 1.2e-6
"""That a processor takes for a block of keys or values."""
SCORES_BYTES_PER_S = 4e12
"""Of memory, through which scores go four times where attention is done in steps."""


@dataclass(frozen=True)
class Attention:
    """Attention of ``queries``, ... m d, over ``keys``, ... n d, and ``values``, ... n
    e, with leading axes that broadcast: their shapes. A ``bias``, ... m n or ... 1 n,
    is added to the scores."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    is_causal: bool = False
    bias: tuple[int, ...] | None = None

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading axes of the result."""
        given = (self.queries, self.keys, self.values, self.bias or ())
        return np.broadcast_shapes(*(shape[:-2] for shape in given))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return (*self.lead, self.queries[-2], self.values[-1])

    @property
    def is_possible(self) -> bool:
        """Whether the kernel has room for so many features."""
        fits = max(self.queries[-1], self.values[-1]) <= MOST
        return fits and min(prod(self.shape), self.queries[-1], self.keys[-2]) > 0

    @property
    def is_faster(self) -> bool:
        """Whether an H200 takes less time for it than for its steps."""
        if not self.is_possible:
            return False
        m, d = self.queries[-2:]
        n, e = self.values[-2:]
        seen = (n if m == 1 else max(n - m / 2, n / 2)) if self.is_causal else n
        tiles = prod(self.lead) * -(-m // ROWS)
        steps = seen / INNER + -(-d // INNER) * seen / ROWS
        rounds = -(-tiles // PROCESSORS)
        split = 10 * (prod(self.queries) + prod(self.keys) + prod(self.values))
        spent = rounds * steps * STEP_S + split / SPLIT_BYTES_PER_S + 2 * LAUNCHES_S
        scores = prod(self.lead) * m * n
        flops = 2 * scores * (d + e)
        return spent < flops / OWN_FLOPS_PER_S + 16 * scores / SCORES_BYTES_PER_S


def attending(attention: Attention, scale: float) -> HopperKernel:
    """Attention with scores that are multiplied by ``scale``.

    Its inputs are parts of queries, keys (both with rows split) and values (columns
    split), none folded; the three with leading axes broadcast; the bias, if any, of
    shape ... m n; and where it is causal the sums of values over the keys, ... 1 e,
    which tell whether one is not finite; and how these lie.
    """
    lead = attention.lead
    consts = {
        "CHUNKS": -(-attention.queries[-1] // INNER),
        "WIDTH": 64 if attention.values[-1] <= 64 else 128,
        "STAGES": STAGES,
        "AHEAD": AHEAD,
        "CAUSAL": int(attention.is_causal),
        "BIASED": int(attention.bias is not None),
    }
    texts = {
        "@QUERY_OF": index_of(lead, attention.queries[:-2]),
        "@KEY_OF": index_of(lead, attention.keys[:-2]),
        "@VALUE_OF": index_of(lead, attention.values[:-2]),
        "@SCALE": f"{scale!r}f",
        "@BIAS_AT": _BIAS_AT if attention.bias is not None else _NO_BIAS,
        "@IS_ODD": _IS_ODD if attention.is_causal else "",
        "@OR_ODD": " || odd[col]" if attention.is_causal else "",
        "@AND_EVEN": " && !odd[col]" if attention.is_causal else "",
    }
    arrays = ["queries", "keys", "values"]
    arrays += ["bias"] * (attention.bias is not None) + ["totals"] * attention.is_causal
    body = constants(consts) + hearing(arrays) + _ATTENTION
    for mark, text in texts.items():
        body = body.replace(mark, text)
    used = {(128, False), (consts["WIDTH"], True)}
    header = instructions(*sorted(used)) + OFFSET + PAIR + DOT + _EXACT
    parts = ("query_parts", "key_parts", "value_parts")
    groups = prod(lead) * -(-attention.queries[-2] // ROWS)
    room = (consts["CHUNKS"] + STAGES) * 2 * BLOCK + 16 * STAGES + 8 + 1024
    shape = attention.shape
    return HopperKernel(
        "attention", header, body, parts, tuple(arrays), groups, shape, room
    )


_EXACT = """
__device__ inline float eq_exp2(float x) {
#ifdef __CUDA_ARCH__
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
#else
  return exp2f(x);
#endif
}
// One query over all keys, also those whose weight is 0.
struct EqQuery {
  const float* query;
  const float* keys;
  const float* bias;
  long long by_query, by_key, by_feature, by_bias;
  int features, count, seen;
  float scale;
};
__device__ __noinline__ float eq_score(const EqQuery& q, int key) {
  if (key >= q.seen) return -__int_as_float(0x7f800000);
  const float* from = q.keys + key * q.by_key;
  const float dot = eq_dot(q.query, q.by_query, from, q.by_feature, q.features);
  return q.scale * dot + (q.bias ? q.bias[key * q.by_bias] : 0.0f);
}
// The largest score, and the sum of the weights: NaN where one is.
__device__ __noinline__ float2 eq_scores(const EqQuery& q) {
  float most = -__int_as_float(0x7f800000), sum = 0.0f;
  for (int i = 0; i < q.count && most == most; i++) {
    const float s = eq_score(q, i);
    most = s > most || s != s ? s : most;
  }
  for (int i = 0; i < q.count && sum == sum; i++) {
    sum += eq_exp2((eq_score(q, i) - most) * 1.44269504f);
  }
  return make_float2(most, sum);
}
__device__ __noinline__ float eq_attended(const EqQuery& q, float2 known,
                                          const float* values, long long by_value) {
  float sum = known.y - known.y;
  for (int i = 0; i < q.count && sum == sum; i++) {
    const float weight = eq_exp2((eq_score(q, i) - known.x) * 1.44269504f) / known.y;
    sum = fmaf(weight, values[i * by_value], sum);
  }
  return sum;
}
"""

_BIAS_AT = """
  const long long bias_at =
      eq_offset((long long)g * m + row, bias_axes - 2, bias_axes, bias_sizes,
                bias_steps);
  const float* bias_from = bias + bias_at;
  const long long by_bias = bias_steps[bias_axes - 1];"""
_NO_BIAS = """
  const float* bias_from = nullptr;
  const long long by_bias = 0;"""
_IS_ODD = """
// Columns of values that are not all finite: what no query sees counts too.
__shared__ bool odd[128];
if (thread < 128) odd[thread] = false;
if (thread < width) {
  const long long from =
      eq_offset(g, totals_axes - 2, totals_axes, totals_sizes, totals_steps);
  const float total = totals[from + thread * totals_steps[totals_axes - 1]];
  odd[thread] = !(fabsf(total) < INFINITE);
}"""

_ATTENTION = """
// 4 of 8 warps take the upper 64 queries, 4 the lower ones. One thread has blocks
// copied: of 128 keys as many as their features fill, then four of 32 values each.
constexpr unsigned PART = 128 * 32 * 2, BLOCK = 3 * PART;
const float INFINITE = __int_as_float(0x7f800000);
const int m = queries_sizes[queries_axes - 2];
const int features = queries_sizes[queries_axes - 1];
const int n = keys_sizes[keys_axes - 2], width = values_sizes[values_axes - 1];
const int query_blocks = (m + 127) / 128, key_blocks = (n + 127) / 128;
const int value_blocks = (n + 31) / 32;
extern __shared__ unsigned char memory[];
const unsigned base = (tensor_address(memory) + 1023) & ~1023u;
const unsigned ring = base + CHUNKS * BLOCK, full = ring + STAGES * BLOCK;
const unsigned empty = full + 8 * STAGES, ready = empty + 8 * STAGES;
const int thread = threadIdx.x, upper = thread / 128, lane = thread % 32;
// Those that see many keys begin first.
const int g = blockIdx.x / query_blocks;
const int block = query_blocks - 1 - blockIdx.x % query_blocks;@IS_ODD
int limit = n;
if (CAUSAL) {
  limit = block * 128 + 128 + n - m;
  limit = limit < 1 ? 1 : limit > n ? n : limit;
}
const int rounds = (limit + 127) / 128;
const int blocks = rounds * (CHUNKS + 4);
const size_t query_block = (size_t)(@QUERY_OF) * query_blocks + block;
const char* query_from = (const char*)query_parts + query_block * CHUNKS * BLOCK;
const char* key_from =
    (const char*)key_parts + (size_t)(@KEY_OF) * key_blocks * CHUNKS * BLOCK;
const char* value_from =
    (const char*)value_parts + (size_t)(@VALUE_OF) * value_blocks * BLOCK;
if (thread == 0) {
  for (int i = 0; i < STAGES; i++) {
    tensor_barrier(full + 8 * i, 1);
    tensor_barrier(empty + 8 * i, 8);
  }
  tensor_barrier(ready, 1);
  tensor_barriers_made();
}
__syncthreads();
auto copy = [&](int i) {
  const int round = i / (CHUNKS + 4), c = i % (CHUNKS + 4), stage = i % STAGES;
  // Beyond the last values are some that count 0 times.
  const int value = round * 4 + c - CHUNKS;
  const int there = value < value_blocks ? value : value_blocks - 1;
  const char* from = c < CHUNKS ? key_from + (size_t)(round * CHUNKS + c) * BLOCK
                                : value_from + (size_t)there * BLOCK;
  tensor_expect(full + 8 * stage, BLOCK);
  tensor_copy(ring + stage * BLOCK, from, BLOCK, full + 8 * stage);
};
if (thread == 0) {
  tensor_expect(ready, CHUNKS * BLOCK);
  for (int c = 0; c < CHUNKS; c++) {
    tensor_copy(base + c * BLOCK, query_from + (size_t)c * BLOCK, BLOCK, ready);
  }
  for (int i = 0; i < AHEAD && i < blocks; i++) copy(i);
}
const int top = block * 128 + thread / 32 * 16 + lane / 4, first = lane % 4 * 2;
float sums[WIDTH / 2], most[2], weight[2];
#pragma unroll
for (int i = 0; i < WIDTH / 2; i++) sums[i] = 0.0f;
for (int j = 0; j < 2; j++) {
  most[j] = -INFINITE;
  weight[j] = 0.0f;
}
int at = 0;
auto refill = [&]() {
  const int next = at + AHEAD;
  if (thread == 0 && next < blocks) {
    const int round = next / STAGES;
    if (round) tensor_wait(empty + 8 * (next % STAGES), (round - 1) & 1);
    copy(next);
  }
};
auto release = [&]() {
  if (lane == 0) tensor_arrive(empty + 8 * (at % STAGES));
  at++;
};
tensor_wait(ready, 0);
#pragma unroll 1
for (int round = 0; round < rounds; round++) {
  float scores[64];
  #pragma unroll
  for (int i = 0; i < 64; i++) scores[i] = 0.0f;
  #pragma unroll 1
  for (int c = 0; c < CHUNKS; c++) {
    tensor_wait(full + 8 * (at % STAGES), (at / STAGES) & 1);
    const unsigned long long x = tensor_matrix(base + c * BLOCK + upper * (PART / 2));
    const unsigned long long y = tensor_matrix(ring + at % STAGES * BLOCK);
    auto rows = [&](int part, int s) { return x + (part * PART + s * 32) / 16; };
    float some[64];
    tensor_begin();
    eq_multiply(some, rows, y);
    refill();
    tensor_end();
    release();
    #pragma unroll
    for (int i = 0; i < 64; i++) scores[i] += some[i];
  }
  // Scores of two rows: 2 keys of each 8.
  #pragma unroll
  for (int j = 0; j < 2; j++) {
    const int row = top + 8 * j < m ? top + 8 * j : m - 1;
    const int seen = CAUSAL && row + 1 + n - m < n ? row + 1 + n - m : n;@BIAS_AT
    float high = most[j];
    #pragma unroll
    for (int i = 0; i < 32; i++) {
      const int key = round * 128 + i / 2 * 8 + first + i % 2;
      float* s = &scores[i / 2 * 4 + j * 2 + i % 2];
      *s *= @SCALE;
      if (BIASED && key < n) *s += bias_from[key * by_bias];
      if (key >= seen) *s = -INFINITE;
      high = *s > high ? *s : high;
    }
    #pragma unroll
    for (int d = 1; d < 4; d *= 2) {
      const float other = __shfl_xor_sync(0xffffffff, high, d);
      high = other > high ? other : high;
    }
    // Where nothing is seen yet, all weights are 0.
    const float from = high == -INFINITE ? 0.0f : high;
    const float kept = eq_exp2((most[j] - from) * 1.44269504f);
    most[j] = high;
    float total = 0.0f;
    #pragma unroll
    for (int i = 0; i < 32; i++) {
      float* s = &scores[i / 2 * 4 + j * 2 + i % 2];
      *s = eq_exp2((*s - from) * 1.44269504f);
      total += *s;
    }
    weight[j] = weight[j] * kept + total;
    #pragma unroll
    for (int i = 0; i < WIDTH / 4; i++) sums[i / 2 * 4 + j * 2 + i % 2] *= kept;
  }
  #pragma unroll
  for (int c = 0; c < 4; c++) {
    unsigned parts[3][2][4];
    #pragma unroll
    for (int s = 0; s < 2; s++) {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        float u = scores[(4 * c + 2 * s + i / 2) * 4 + i % 2 * 2];
        float v = scores[(4 * c + 2 * s + i / 2) * 4 + i % 2 * 2 + 1];
        #pragma unroll
        for (int p = 0; p < 3; p++) {
          const unsigned two = eq_pair(u, v);
          parts[p][s][i] = two;
          u -= __int_as_float(two << 16);
          v -= __int_as_float(two & 0xffff0000);
        }
      }
    }
    float some[WIDTH / 2];
    tensor_wait(full + 8 * (at % STAGES), (at / STAGES) & 1);
    const unsigned long long y = tensor_matrix(ring + at % STAGES * BLOCK);
    auto rows = [&](int part, int s) -> const unsigned(&)[4] { return parts[part][s]; };
    tensor_begin();
    eq_multiply(some, rows, y);
    refill();
    tensor_end();
    release();
    #pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) sums[i] += some[i];
  }
}
bool is_odd = false;
#pragma unroll
for (int j = 0; j < 2; j++) {
  #pragma unroll
  for (int d = 1; d < 4; d *= 2) weight[j] += __shfl_xor_sync(0xffffffff, weight[j], d);
  const int row = top + 8 * j;
  float* to = result + ((long long)g * m + row) * width;
  #pragma unroll
  for (int i = 0; i < WIDTH / 4; i++) {
    const int col = i / 2 * 8 + first + i % 2;
    if (row < m && col < width) {
      const float y = sums[i / 2 * 4 + j * 2 + i % 2] / weight[j];
      is_odd |= !(fabsf(y) < INFINITE)@OR_ODD;
      to[col] = y;
    }
  }
}
if (!is_odd) return;
#pragma unroll 1
for (int j = 0; j < 2; j++) {
  const int row = top + 8 * j;
  if (row >= m) continue;
  const long long line = (long long)g * m + row;@BIAS_AT
  const long long query_at =
      eq_offset(line, queries_axes - 2, queries_axes, queries_sizes, queries_steps);
  const long long key_at =
      eq_offset((long long)g * n, keys_axes - 2, keys_axes, keys_sizes, keys_steps);
  const long long value_at = eq_offset((long long)g * n, values_axes - 2, values_axes,
                                       values_sizes, values_steps);
  EqQuery q;
  q.query = queries + query_at, q.by_query = queries_steps[queries_axes - 1];
  q.keys = keys + key_at, q.by_key = keys_steps[keys_axes - 2];
  q.by_feature = keys_steps[keys_axes - 1];
  q.bias = bias_from, q.by_bias = by_bias;
  q.features = features, q.count = n, q.scale = @SCALE;
  q.seen = CAUSAL && row + 1 + n - m < n ? row + 1 + n - m : n;
  const float2 known = eq_scores(q);
  #pragma unroll 1
  for (int i = 0; i < WIDTH / 4; i++) {
    const int col = i / 2 * 8 + first + i % 2;
    if (col >= width) continue;
    float* to = result + line * width + col;
    if (fabsf(*to) < INFINITE@AND_EVEN) continue;
    *to =
        eq_attended(q, known, values + value_at + col * values_steps[values_axes - 1],
                    values_steps[values_axes - 2]);
  }
}
"""
