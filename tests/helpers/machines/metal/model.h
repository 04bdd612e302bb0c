// A GPU on a CPU: what Metal and CUDA promise of a launch, and nothing more.
//
// Each lane is a fiber. The lanes of a group run in random order, one at a time, until
// each waits: 32 lanes for one another at a shuffle, all for one another at a barrier.
// Lanes that wait for lanes that will not come are an error, as is memory outside of a
// buffer. Memory of a group starts as NaN, and so do outputs.

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

typedef unsigned int uint;
typedef unsigned short ushort;
typedef _Float16 half;

struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    bits = x != x ? 0x7fc0 : uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t b = uint32_t(bits) << 16;
    float x;
    memcpy(&x, &b, 4);
    return x;
  }
};
typedef half __half;
typedef bfloat16_t __nv_bfloat16;

struct uint3 {
  uint x, y, z;
};

namespace model {

enum State { RUNS, SHUFFLES, WAITS, DONE };
constexpr size_t STACK = 1 << 16;

struct Lane {
  ucontext_t start;
  jmp_buf place;  // where it paused, once it has begun
  bool has_begun = false;
  std::unique_ptr<char[]> stack;
  State state;
  uint number;
  int distance;         // of a shuffle
  const void* site;     // of a barrier
  uint64_t given, got;  // by a shuffle
};

struct Launch {
  std::vector<Lane> lanes;
  jmp_buf home;
  Lane* now = nullptr;
  uint group = 0;
  void (*kernel)(void**) = nullptr;
  void** buffers = nullptr;
  std::mt19937 random;
  const char* wrong = nullptr;
  char* shared = nullptr;
  size_t shared_size = 0;
};
inline Launch* launch;
inline sigjmp_buf escape;

[[noreturn]] inline void fail(const char* why) {
  launch->wrong = why;
  siglongjmp(escape, 1);
}

// Contexts begin lanes; jumps, which make no system calls, take a quarter of the time.
__attribute__((noinline)) inline void pause_lane() {
  if (!_setjmp(launch->now->place)) _longjmp(launch->home, 1);
}

__attribute__((noinline)) inline void resume(Lane* lane) {
  launch->now = lane;
  if (_setjmp(launch->home)) return;
  if (lane->has_begun) _longjmp(lane->place, 1);
  lane->has_begun = true;
  setcontext(&lane->start);
}

template <typename T>
T shuffle_xor(T x, int d) {
  static_assert(sizeof(T) <= 8);
  Lane* lane = launch->now;
  lane->given = 0;
  memcpy(&lane->given, &x, sizeof(T));
  lane->distance = d;
  lane->state = SHUFFLES;
  pause_lane();
  T y;
  memcpy(&y, &lane->got, sizeof(T));
  return y;
}

inline void barrier(const void* site) {
  launch->now->site = site;
  launch->now->state = WAITS;
  pause_lane();
}

inline void entry() {
  for (;;) {  // a round for each group
    launch->kernel(launch->buffers);
    launch->now->state = DONE;
    pause_lane();
  }
}

// Lets the 32 lanes from `first` on have what they gave one another, if all are there.
inline bool exchange(size_t first) {
  auto& lanes = launch->lanes;
  const size_t last = std::min(first + 32, lanes.size());
  size_t there = 0, done = 0;
  for (size_t i = first; i < last; ++i) {
    there += lanes[i].state == SHUFFLES;
    done += lanes[i].state == DONE;
  }
  if (!there) return false;
  if (done) fail("a shuffle that lanes have returned before");
  if (there < last - first) return false;
  for (size_t i = first; i < last; ++i) {
    const size_t other = first + ((i - first) ^ size_t(lanes[i].distance));
    if (lanes[i].distance != lanes[first].distance) fail("shuffles that differ");
    if (other >= last) fail("a shuffle with a lane that is not there");
    lanes[i].got = lanes[other].given;
  }
  for (size_t i = first; i < last; ++i) lanes[i].state = RUNS;
  return true;
}

inline bool pass_barrier() {
  auto& lanes = launch->lanes;
  size_t there = 0, done = 0;
  for (auto& lane : lanes) {
    there += lane.state == WAITS;
    done += lane.state == DONE;
  }
  if (there + done < lanes.size()) fail("a barrier that some lanes wait at, others shuffle");
  if (done) fail("a barrier that lanes have returned before");
  for (auto& lane : lanes) {
    if (lane.site != lanes[0].site) fail("lanes wait at different barriers");
    lane.state = RUNS;
  }
  return true;
}

inline void run_group(uint group) {
  auto& l = *launch;
  l.group = group;
  memset(l.shared, 0xff, l.shared_size);
  for (auto& lane : l.lanes) lane.state = RUNS;
  std::vector<size_t> order(l.lanes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (;;) {
    std::shuffle(order.begin(), order.end(), l.random);
    bool ran = false;
    // Some 32 lanes run ahead of others, as far as the next barrier.
    const size_t ahead = order[0] / 32 * 32;
    for (size_t i : order) {
      if (l.lanes[i].state != RUNS || (l.random() % 2 && i / 32 * 32 != ahead)) continue;
      resume(&l.lanes[i]);
      ran = true;
    }
    for (size_t i = 0; i < l.lanes.size(); i += 32) ran |= exchange(i);
    if (ran) continue;
    bool left = false, runs = false;
    for (auto& lane : l.lanes) {
      left |= lane.state != DONE;
      runs |= lane.state == RUNS;
    }
    if (!left) return;
    if (!runs) pass_barrier();
  }
}

inline void on_fault(int signal) {
  launch->wrong =
      signal == SIGILL ? "a misaligned access" : "memory outside of a buffer";
  siglongjmp(escape, 1);
}

// A copy of an array between pages that cannot be touched, at the end of its own or at
// their start, `shift` bytes beyond a multiple of 16; what is left of these must keep its
// bytes.
struct Guarded {
  size_t size, room;
  char *whole, *data;
  Guarded(const void* from, size_t n, bool at_end, size_t shift) : size(n) {
    room = (n + 32 + 4095) / 4096 * 4096;
    whole = (char*)mmap(nullptr, room + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(whole + 4096, room, PROT_READ | PROT_WRITE);
    memset(whole + 4096, 0xff, room);
    data = whole + 4096 + (at_end ? (room - n - shift) / 16 * 16 : 0) + shift;
    if (from) memcpy(data, from, n);
  }
  ~Guarded() { munmap(whole, room + 8192); }
  bool is_kept() const {
    for (char* p = whole + 4096; p < whole + 4096 + room; ++p) {
      if ((p < data || p >= data + size) && *p != char(0xff)) return false;
    }
    return true;
  }
};

// Runs a kernel over copies of `arrays`; those from `outputs` on are copied back. The
// others begin where an element may, as slices do that MLX passes as they are.
inline const char* run(void (*kernel)(void**), void** arrays, const int64_t* sizes,
                       const int64_t* items, int count, int outputs, uint groups, uint group, uint seed,
                       char* shared, size_t shared_size) {
  std::vector<std::unique_ptr<Guarded>> copies;
  std::vector<void*> pointers;
  for (int i = 0; i < count; ++i) {
    const bool given = i < outputs;
    const size_t shift = given && seed / 2 % 2 ? items[i] : 0;
    copies.emplace_back(
        new Guarded(given ? arrays[i] : nullptr, sizes[i], seed % 2, shift));
    pointers.push_back(copies.back()->data);
  }
  Launch l;
  launch = &l;
  l.kernel = kernel;
  l.buffers = pointers.data();
  l.random.seed(seed);
  l.shared = shared;
  l.shared_size = shared_size;
  l.lanes.resize(group);
  for (uint i = 0; i < group; ++i) {
    Lane& lane = l.lanes[i];
    lane.number = i;
    lane.stack.reset(new char[STACK]);
    getcontext(&lane.start);
    lane.start.uc_stack.ss_sp = lane.stack.get();
    lane.start.uc_stack.ss_size = STACK;
    lane.start.uc_link = nullptr;
    makecontext(&lane.start, entry, 0);
  }
  static char own_stack[1 << 16];
  stack_t stack = {}, before = {};
  stack.ss_sp = own_stack;
  stack.ss_size = sizeof own_stack;
  sigaltstack(&stack, &before);
  struct sigaction action = {}, old_segv, old_bus, old_ill;
  action.sa_handler = on_fault;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  sigaction(SIGILL, &action, &old_ill);
  if (!sigsetjmp(escape, 1)) {
    for (uint g = 0; g < groups; ++g) run_group(g);
  }
  sigaction(SIGSEGV, &old_segv, nullptr);
  sigaction(SIGBUS, &old_bus, nullptr);
  sigaction(SIGILL, &old_ill, nullptr);
  sigaltstack(&before, nullptr);
  for (int i = 0; i < count && !l.wrong; ++i) {
    if (!copies[i]->is_kept()) l.wrong = "a write outside of a buffer";
  }
  for (int i = outputs; i < count && !l.wrong; ++i) {
    memcpy(arrays[i], copies[i]->data, sizes[i]);
  }
  return l.wrong;
}

// Small inputs of Metal: readable by number, and no address of device memory.
template <typename T>
struct Constant {
  const T* data;
  const T& operator[](int64_t i) const { return data[i]; }
};

}  // namespace model

// An address for each place in the text.
#define MODEL_SITE                \
  ([]() -> const void* {          \
    static char site;             \
    return &site;                 \
  }())

// -- Metal ---------------------------------------------------------------------------

#define device
#define EQM_SHARED static __attribute__((section("group_memory")))
template <typename T, typename S>
T as_type(S x) {
  static_assert(sizeof(T) == sizeof(S));
  T y;
  memcpy(&y, &x, sizeof(T));
  return y;
}
namespace metal {
enum class mem_flags { mem_threadgroup };
#define threadgroup_barrier(flags) model_barrier(flags, MODEL_SITE)
inline void model_barrier(mem_flags, const void* site) { model::barrier(site); }
template <typename T>
T simd_shuffle_xor(T x, ushort d) {
  return model::shuffle_xor(x, d);
}
#define MODEL_ONE(name) inline float name(float x) { return ::name##f(x); }
#define MODEL_TWO(name) inline float name(float x, float y) { return ::name##f(x, y); }
MODEL_ONE(floor) MODEL_ONE(ceil) MODEL_ONE(trunc) MODEL_ONE(rint) MODEL_ONE(fabs)
MODEL_TWO(copysign)
inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
namespace precise {
MODEL_ONE(exp) MODEL_ONE(exp2) MODEL_ONE(log) MODEL_ONE(log2) MODEL_ONE(log10)
MODEL_ONE(sqrt) MODEL_ONE(sin) MODEL_ONE(cos) MODEL_ONE(tan) MODEL_ONE(asin)
MODEL_ONE(acos) MODEL_ONE(atan) MODEL_TWO(atan2) MODEL_ONE(sinh) MODEL_ONE(cosh)
MODEL_ONE(tanh) MODEL_ONE(asinh) MODEL_ONE(acosh) MODEL_ONE(atanh) MODEL_TWO(pow)
MODEL_TWO(fmod)
}  // namespace precise
namespace fast {
using precise::exp2;
}  // namespace fast
}  // namespace metal

// -- CUDA ----------------------------------------------------------------------------

#define __device__
#define __forceinline__ inline
#define __shared__ EQM_SHARED
#define __syncthreads() model::barrier(MODEL_SITE)
#define __shfl_xor_sync(mask, x, d) model::shuffle_xor(x, d)
#define threadIdx (uint3{model::launch->now->number, 0, 0})
#define blockIdx (uint3{model::launch->group, 0, 0})
struct alignas(16) uint4 {
  uint x, y, z, w;
};
template <typename T>
T __ldg(const T* p) {
  return *p;
}
inline float __int_as_float(int x) { return as_type<float>(x); }
inline int __float_as_int(float x) { return as_type<int>(x); }
