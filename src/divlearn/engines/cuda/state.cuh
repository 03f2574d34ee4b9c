// States of pairs, and lists of those that need another route.
#pragma once
#include "team.cuh"

// State of the `values` of a pair: eigenvalues of T 2^-exponent; logarithms of eigenvalues, from
// the accurate route; or none.
enum State : unsigned char { DIRECT = 0, ACCURATE = 1, FAILED = 2 };

// Appends a pair to the list of those that need another route; the order of the list varies.
INLINE void append(i64 pair, i64* list, int* length) { list[atomicAdd(length, 1)] = pair; }

// log(value 2^exponent), exact in the power of two wherever that stays a normal number.
INLINE double log_scaled(double value, double exponent) {
  return fabs(exponent) < 900.0 ? log(value * power_of_two(exponent))
                                : fma(exponent, LN2, log(value));
}
