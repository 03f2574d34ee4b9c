// Instructions that CUDA C++ has no functions for.
#pragma once

#define INLINE __device__ __forceinline__

typedef long long i64;

// 1/x for normal x: the hardware's 20 bits and one cubic step, no branch for special cases.
INLINE double reciprocal(double x) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double error = fma(-x, y, 1.0);
  return fma(y, fma(error, error, error), y);
}

// 1/sqrt(x) for normal x > 0, likewise.
INLINE double reciprocal_root(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double error = fma(-x * y, y, 1.0);
  return fma(y * error, fma(error, 0.375, 0.5), y);
}

// 8 x 8 += (8 x 4)(4 x 8) on the tensor cores, by a whole warp. Of the first factor a lane holds
// row lane/4, column lane%4; of the second row lane%4, column lane/4; of the sum row lane/4,
// columns 2 (lane%4) and the next.
INLINE void multiply_add_tile(double2& sum, double first, double second) {
  asm volatile(
      "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(sum.x), "+d"(sum.y)
      : "d"(first), "d"(second));
}
