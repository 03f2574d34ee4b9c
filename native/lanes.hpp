// Lanes: one vector register holds the same entry of several matrices, so that a batch of small
// problems runs in step without a shuffle. Everything else in this folder is written on `Lane`.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define DIVLEARN_INLINE static inline __attribute__((always_inline))

// Every instruction set is compiled into its own namespace: the same inline function compiled with
// AVX-512 must never be the one the linker keeps for a machine without it.
namespace DIVLEARN_ISA {

#if defined(__AVX512F__)
constexpr int W = 8;  // matrices side by side
#elif defined(__AVX2__)
constexpr int W = 4;
#else
constexpr int W = 2;
#endif

typedef double Lane __attribute__((vector_size(W * 8)));
typedef int64_t Mask __attribute__((vector_size(W * 8)));
typedef uint64_t Bits __attribute__((vector_size(W * 8)));

constexpr double EPS = 2.220446049250313e-16;

DIVLEARN_INLINE Lane fill(double x) { return Lane{} + x; }
DIVLEARN_INLINE Lane load(const double* p) { Lane x; std::memcpy(&x, p, sizeof x); return x; }
DIVLEARN_INLINE void store(double* p, Lane x) { std::memcpy(p, &x, sizeof x); }
DIVLEARN_INLINE Lane absolute(Lane x) { return (Lane)((Bits)x & (Bits{} + 0x7fffffffffffffffULL)); }
DIVLEARN_INLINE Lane maximum(Lane a, Lane b) { return a > b ? a : b; }
DIVLEARN_INLINE Lane minimum(Lane a, Lane b) { return a < b ? a : b; }
// Position of entry (row, 0) in a packed lower triangle.
DIVLEARN_INLINE int packed_row(int row) { return row * (row + 1) / 2; }

#if defined(__AVX512F__)

DIVLEARN_INLINE Lane square_root(Lane x) { return (Lane)_mm512_sqrt_pd((__m512d)x); }
DIVLEARN_INLINE bool any(Mask m) { return _mm512_movepi64_mask((__m512i)m) != 0; }

// Newton's iteration from the 14-bit estimate: four times the throughput of the divider.
DIVLEARN_INLINE Lane reciprocal(Lane x) {
  const __m512d a = (__m512d)x, one = _mm512_set1_pd(1.0);
  __m512d r = _mm512_rcp14_pd(a);
  __m512d e = _mm512_fnmadd_pd(a, r, one);
  e = _mm512_fmadd_pd(e, e, e);
  r = _mm512_fmadd_pd(r, e, r);
  e = _mm512_fnmadd_pd(a, r, one);
  return (Lane)_mm512_fmadd_pd(r, e, r);
}

DIVLEARN_INLINE Lane reciprocal_root(Lane x) {
  const __m512d a = (__m512d)x, one = _mm512_set1_pd(1.0);
  const __m512d half = _mm512_set1_pd(0.5), three_eighths = _mm512_set1_pd(0.375);
  __m512d r = _mm512_rsqrt14_pd(a);
  for (int step = 0; step < 2; ++step) {
    const __m512d e = _mm512_fnmadd_pd(_mm512_mul_pd(a, r), r, one);
    const __m512d c = _mm512_fmadd_pd(three_eighths, e, half);
    r = _mm512_fmadd_pd(_mm512_mul_pd(r, e), c, r);
  }
  return (Lane)r;
}

// Row `rows[w]` of an array of lanes with the given stride, a row of its own for every lane.
DIVLEARN_INLINE Lane gather(const Lane* base, Mask rows, int stride) {
  const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i index = _mm512_add_epi64((__m512i)(rows * (int64_t)(stride * W)), lane);
  return (Lane)_mm512_i64gather_pd(index, (const double*)base, 8);
}

DIVLEARN_INLINE void scatter(Lane* base, Mask rows, int stride, Mask where, Lane value) {
  const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i index = _mm512_add_epi64((__m512i)(rows * (int64_t)(stride * W)), lane);
  _mm512_mask_i64scatter_pd((double*)base, _mm512_movepi64_mask((__m512i)where), index,
                            (__m512d)value, 8);
}

#else

#if defined(__AVX2__)
DIVLEARN_INLINE Lane square_root(Lane x) { return (Lane)_mm256_sqrt_pd((__m256d)x); }
DIVLEARN_INLINE bool any(Mask m) { return _mm256_movemask_pd((__m256d)m) != 0; }
#else
DIVLEARN_INLINE Lane square_root(Lane x) {
  for (int w = 0; w < W; ++w) x[w] = __builtin_sqrt(x[w]);
  return x;
}
DIVLEARN_INLINE bool any(Mask m) {
  int64_t bits = 0;
  for (int w = 0; w < W; ++w) bits |= m[w];
  return bits != 0;
}
#endif

DIVLEARN_INLINE Lane reciprocal(Lane x) { return 1.0 / x; }
DIVLEARN_INLINE Lane reciprocal_root(Lane x) { return 1.0 / square_root(x); }

DIVLEARN_INLINE Lane gather(const Lane* base, Mask rows, int stride) {
  Lane x;
  for (int w = 0; w < W; ++w) x[w] = ((const double*)base)[rows[w] * stride * W + w];
  return x;
}

DIVLEARN_INLINE void scatter(Lane* base, Mask rows, int stride, Mask where, Lane value) {
  for (int w = 0; w < W; ++w)
    if (where[w]) ((double*)base)[rows[w] * stride * W + w] = value[w];
}

#endif

DIVLEARN_INLINE int64_t smallest(Mask m) {
  int64_t least = m[0];
  for (int w = 1; w < W; ++w) least = m[w] < least ? m[w] : least;
  return least;
}

// Scratch for one thread: one allocation, handed out in pieces.
class Scratch {
 public:
  explicit Scratch(size_t lanes) : base_(nullptr), used_(0) {
    if (posix_memalign((void**)&base_, 64, (lanes + 8) * sizeof(Lane)) != 0) base_ = nullptr;
  }
  ~Scratch() { std::free(base_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool ok() const { return base_ != nullptr; }
  Lane* take(size_t lanes) {
    Lane* piece = base_ + used_;
    used_ += lanes;
    return piece;
  }

 private:
  Lane* base_;
  size_t used_;
};

}  // namespace DIVLEARN_ISA
