// Lanes: one vector register holds the same entry of several matrices, so that a batch of small
// problems runs in step without a shuffle. Everything else in this folder is written on `Lane`.
#pragma once
#include <cstdint>
#include <cstring>
#include <new>
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

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int REGISTERS = 32;  // of vectors: how large tiles may be
#else
constexpr int REGISTERS = 16;
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

// From the 14-bit estimate r by one step of high order in the residual e = 1 - x r: a quarter of the
// divider's time, and a short chain where recurrences wait for it.
DIVLEARN_INLINE Lane reciprocal(Lane x) {
  const __m512d a = (__m512d)x;
  const __m512d r = _mm512_rcp14_pd(a);
  const __m512d e = _mm512_fnmadd_pd(a, r, _mm512_set1_pd(1.0));
  const __m512d series = _mm512_fmadd_pd(_mm512_fmadd_pd(e, e, e), e, e);  // e + e^2 + e^3
  return (Lane)_mm512_fmadd_pd(r, series, r);
}

// Likewise with e = 1 - x r^2: (1 - e)^-1/2 = 1 + e/2 + 3/8 e^2 + 5/16 e^3 + ...
DIVLEARN_INLINE Lane reciprocal_root(Lane x) {
  const __m512d a = (__m512d)x;
  const __m512d r = _mm512_rsqrt14_pd(a);
  const __m512d e = _mm512_fnmadd_pd(_mm512_mul_pd(a, r), r, _mm512_set1_pd(1.0));
  __m512d series = _mm512_fmadd_pd(e, _mm512_set1_pd(0.3125), _mm512_set1_pd(0.375));
  series = _mm512_fmadd_pd(series, e, _mm512_set1_pd(0.5));
  return (Lane)_mm512_fmadd_pd(_mm512_mul_pd(r, e), series, r);
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

#endif

DIVLEARN_INLINE Lane dot(int n, const Lane* x, const Lane* y) {
  Lane even = {}, odd = {};
  int k = 0;
  for (; k + 1 < n; k += 2) {
    even += x[k] * y[k];
    odd += x[k + 1] * y[k + 1];
  }
  if (k < n) even += x[k] * y[k];
  return even + odd;
}

// Scratch of one thread, freed with it.
class Scratch {
 public:
  explicit Scratch(size_t lanes)
      : base_((Lane*)::operator new((lanes + 8) * sizeof(Lane), CACHE_LINE, std::nothrow)) {}
  ~Scratch() { ::operator delete(base_, CACHE_LINE); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool ok() const { return base_ != nullptr; }
  Lane* base() const { return base_; }

 private:
  static constexpr std::align_val_t CACHE_LINE{64};
  Lane* base_;
};

}  // namespace DIVLEARN_ISA
