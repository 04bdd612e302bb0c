// Hopper's tensor cores and copies in the background, as generated kernels call them.
//
// A copy happens at any time until it is waited for. A lane computes what it is given of
// a product; sums are cut off, not rounded.

namespace model {

struct Copy {
  char* to;
  const char* from;
  unsigned bytes;
  unsigned barrier;
};
struct Barrier {
  uint16_t wanted, there;
  uint16_t phase;
  uint16_t blocks;  // of 512 bytes, expected and not copied yet
};
inline std::vector<Copy> copies;

inline char* at(unsigned address) {
  if (address >= launch->shared_size) fail("an address outside of the group's memory");
  return launch->shared + address;
}

inline void check_phase(Barrier* b) {
  if (b->there == b->wanted && !b->blocks) b->phase ^= 1, b->there = 0;
}

inline void copy_one() {
  if (copies.empty()) return;
  const size_t i = launch->random() % copies.size();
  const Copy c = copies[i];
  copies.erase(copies.begin() + i);
  at(c.barrier), at((c.to - launch->shared) + c.bytes - 1);
  memcpy(c.to, c.from, c.bytes);
  auto* b = (Barrier*)at(c.barrier);
  b->blocks -= c.bytes / 512;
  check_phase(b);
}

inline float cut_off(double x) {
  const float y = float(x);
  return std::fabs(double(y)) > std::fabs(x) ? std::nextafter(y, 0.0f) : y;
}

// Element k of a row: rows of 64 bytes, 8 of them, the next 8 `step` bytes on.
inline float element(unsigned long long matrix, int row, int k) {
  const unsigned start = (matrix & 0x3fff) << 4, step = (matrix >> 32 & 0x3fff) << 4;
  if (matrix >> 62 != 2) fail("a matrix that is not swizzled by 64 bytes");
  unsigned address = start + row / 8 * step + row % 8 * 64 + k * 2;
  address ^= (address >> 7 & 3) << 4;
  bfloat16_t x;
  memcpy(&x, at(address), 2);
  return float(x);
}

}  // namespace model

#define __noinline__
#define fmaf(x, y, z) ::fmaf(x, y, z)
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

inline unsigned tensor_address(const void* p) {
  return unsigned((const char*)p - model::launch->shared);
}
inline void tensor_barrier(unsigned at, unsigned arrivals) {
  *(model::Barrier*)model::at(at) = {uint16_t(arrivals), 0, 0, 0};
  model::copies.clear();
}
inline void tensor_barriers_made() {}
inline void tensor_arrive(unsigned at) {
  auto* b = (model::Barrier*)model::at(at);
  if (b->there == b->wanted) model::fail("a barrier at which too many arrive");
  b->there++;
  model::check_phase(b);
}
inline void tensor_expect(unsigned at, unsigned bytes) {
  ((model::Barrier*)model::at(at))->blocks += bytes / 512;
  tensor_arrive(at);
}
inline void tensor_wait(unsigned at, unsigned phase) {
  for (int i = 0; ((model::Barrier*)model::at(at))->phase == phase; i++) {
    if (i > 100000) model::fail("a wait for what does not come");
    if (model::launch->random() % 2) model::copy_one();
    model::launch->now->state = model::RUNS;
    model::pause_lane();
  }
}
inline void tensor_copy(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  if (to % 16 || (uintptr_t)from % 16) model::fail("a copy that is not aligned");
  model::copies.push_back({model::at(to), (const char*)from, bytes, barrier});
  if (model::launch->random() % 2) model::copy_one();
}
inline unsigned long long tensor_matrix(unsigned at) {
  return (at & 0x3ffff) >> 4 | 1ull << 16 | 32ull << 32 | 2ull << 62;
}
// What 32 lanes do in step.
inline void tensor_begin() { model::shuffle_xor(0, 0); }
inline void tensor_end() { model::shuffle_xor(0, 0); }
namespace model {

template <int N>
void multiply(float (&sums)[N], const float (&left)[2][16], unsigned long long right, int more) {
  const int lane = launch->now->number % 32;
  for (int i = 0; i < N; i++) {
    const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double sum = more ? sums[i] : 0.0;
    for (int k = 0; k < 16; k++) {
      sum += double(left[i / 2 % 2][k]) * element(right, col, k);
    }
    sums[i] = cut_off(sum);
  }
}

}  // namespace model

// 64 rows in memory, 16 for each 32 lanes: two rows of a lane.
template <int N>
void tensor_multiply(float (&sums)[N], unsigned long long left, unsigned long long right,
                     int more) {
  const int thread = model::launch->now->number % 128;
  float rows[2][16];
  for (int j = 0; j < 2; j++) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * j;
    for (int k = 0; k < 16; k++) rows[j][k] = model::element(left, row, k);
  }
  model::multiply(sums, rows, right, more);
}
// In registers: of 4 lanes each has 2 of 8 indices.
template <int N>
void tensor_multiply(float (&sums)[N], const unsigned (&left)[4], unsigned long long right,
                     int more) {
  float rows[2][16];
  for (int d = 0; d < 4; d++) {
    const int from = model::launch->now->number % 4 ^ d;
    for (int i = 0; i < 4; i++) {
      const unsigned two = model::shuffle_xor(left[i], d);
      rows[i % 2][i / 2 * 8 + from * 2] = as_type<float>(two << 16);
      rows[i % 2][i / 2 * 8 + from * 2 + 1] = as_type<float>(two & 0xffff0000);
    }
  }
  model::multiply(sums, rows, right, more);
}
