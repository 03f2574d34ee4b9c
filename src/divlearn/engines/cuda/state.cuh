// What became of the pairs, and those that wait for another route.
#pragma once
#include "team.cuh"

// What became of a pair: its `values` are eigenvalues of T 2^-exponent; or they are logarithms of
// eigenvalues from the accurate route; or there are none.
enum State : unsigned char { DIRECT = 0, ACCURATE = 1, FAILED = 2 };

// Pairs that wait for another route, in no order.
INLINE void append(i64 pair, i64* list, int* length) { list[atomicAdd(length, 1)] = pair; }

// log(value 2^exponent), exact in the power of two wherever that stays a normal number.
INLINE double log_scaled(double value, double exponent) {
  return fabs(exponent) < 900.0 ? log(value * power_of_two(exponent))
                                : fma(exponent, LN2, log(value));
}
