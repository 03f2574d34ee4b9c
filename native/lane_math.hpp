// Logarithm and exponential of lanes, within about one unit in the last place on normal numbers.
#pragma once
#include "lanes.hpp"

namespace DIVLEARN_ISA {

constexpr double LN2_HIGH = 6.93147180369123816490e-01;  // 32 trailing zero bits: k * high is exact
constexpr double LN2_LOW = 1.90821492927058770002e-10;
constexpr double LN2 = 0.6931471805599453094172321214581766;
constexpr double ROUNDER = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer

// |k| < 2^51, exactly; AVX2 has no conversion of 64-bit integers.
DIVLEARN_INLINE Lane to_double(Mask k) {
  return (Lane)(k + (int64_t)0x4338000000000000LL) - ROUNDER;
}

// 2^k for integers k in the normal range.
DIVLEARN_INLINE Lane power_of_two(Mask k) { return (Lane)((k + 1023) << 52); }

// The same for exponents that are whole numbers held as doubles.
DIVLEARN_INLINE Lane power_of_two(Lane exponent) {
  return power_of_two((Mask)(exponent + ROUNDER) - (int64_t)0x4338000000000000LL);
}

DIVLEARN_INLINE Mask exponent_of(Lane x) {
  return (Mask)(((Bits)x >> 52) & (Bits{} + 0x7ffULL)) - 1023;
}

// x > 0 and normal. The argument reduction and the polynomial are those of fdlibm's e_log.c.
DIVLEARN_INLINE Lane log_lane(Lane x) {
  Mask k = exponent_of(x);
  Lane m = (Lane)(((Bits)x & (Bits{} + 0x000fffffffffffffULL)) | (Bits{} + 0x3ff0000000000000ULL));
  const Mask high = m > 1.4142135623730951;
  m = high ? m * 0.5 : m;
  k -= high;  // a true mask is -1
  const Lane f = m - 1.0, exponent = to_double(k);
  const Lane s = f * reciprocal(f + 2.0);
  const Lane z = s * s, w = z * z;
  const Lane even = w * (3.999999999940941908e-01 +
                         w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const Lane odd = z * (6.666666666666735130e-01 +
                        w * (2.857142874366239149e-01 +
                             w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const Lane half_square = 0.5 * f * f;
  return exponent * LN2_HIGH -
         ((half_square - (s * (half_square + (even + odd)) + exponent * LN2_LOW)) - f);
}

// e^x = 2^k (1 + p), and p keeps its digits near 0; x is in the range of normal results.
DIVLEARN_INLINE Lane reduced_exponential(Lane x, Mask* exponent) {
  const Lane shifted = x * 1.4426950408889634 + ROUNDER;
  const Lane k = shifted - ROUNDER;
  *exponent = (Mask)shifted - (int64_t)0x4338000000000000LL;
  const Lane r = (x - k * LN2_HIGH) - k * LN2_LOW;
  Lane p = fill(1.0 / 6227020800.0);  // 1/13!
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  return p * (r * r) + r;
}

// Saturates to 0 and inf outside the range of normal results.
DIVLEARN_INLINE Lane exp_lane(Lane x) {
  Mask k;
  const Lane p = reduced_exponential(minimum(maximum(x, fill(-708.0)), fill(709.0)), &k);
  const Lane y = (Lane)((Mask)(p + 1.0) + (k << 52));
  const Lane bounded = x < -708.0 ? Lane{} : y;
  return x > 709.0 ? fill(__builtin_inf()) : bounded;
}

// e^x - 1 for |x| <= 700, accurate near 0.
DIVLEARN_INLINE Lane expm1_lane(Lane x) {
  Mask k;
  const Lane p = reduced_exponential(x, &k), scale = power_of_two(k);
  return scale * p + (scale - 1.0);
}

// z > -1, accurate near 0.
DIVLEARN_INLINE Lane log1p_lane(Lane z) {
  const Lane u = z + 1.0;
  return log_lane(u) + (z - (u - 1.0)) * reciprocal(u);
}

}  // namespace DIVLEARN_ISA
