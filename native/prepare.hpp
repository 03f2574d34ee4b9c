// Data as the kernels take it: scaled, packed in lanes, factored.
#pragma once
#include "packed.hpp"
#include "tasks.hpp"

namespace DIVLEARN_ISA {

static void load_group(int64_t count, int64_t group, int d, const double* matrices, Lane* packed) {
  for (int w = 0; w < W; ++w) {
    const int64_t index = group * W + w < count ? group * W + w : count - 1;
    const double* source = matrices + (size_t)index * d * d;
    double* target = (double*)packed + w;
    for (int i = 0; i < d; ++i)
      for (int j = 0; j <= i; ++j) target[(packed_row(i) + j) * W] = source[(size_t)i * d + j];
  }
}

// Multiplies by 2^-e, e halfway between the exponents of the largest and the smallest diagonal
// entry: both factors and their squares then stay in range for any finite input that has them.
static Lane scale_group(int d, Lane* packed) {
  Lane largest = packed[0], smallest_entry = packed[0];
  for (int i = 1; i < d; ++i) {
    largest = maximum(largest, packed[packed_row(i) + i]);
    smallest_entry = minimum(smallest_entry, packed[packed_row(i) + i]);
  }
  const Lane middle = to_double(exponent_of(largest)) + to_double(exponent_of(smallest_entry));
  Lane exponent, half;  // 2^-exponent itself may not be a normal number
  for (int w = 0; w < W; ++w) {
    exponent[w] = __builtin_floor(middle[w] * 0.5);
    half[w] = __builtin_floor(exponent[w] * 0.5);
  }
  const Lane factor = power_of_two(-half), rest = power_of_two(half - exponent);
  for (size_t i = 0; i < packed_size(d); ++i) packed[i] = packed[i] * factor * rest;
  return exponent;
}

static int64_t factor(int64_t count, int d, const double* matrices, double* factor_out,
                   double* matrix_out, double* logdet, double* exponent, double* spread,
                   int threads) {
  const int64_t groups = group_count(count);
  const size_t size = packed_size(d);
  int64_t failed = count;
  for_each_task(groups, threads, d, [&](int64_t group, Lane* inverse_diagonal) {
    Lane* packed = (Lane*)factor_out + group * size;
    load_group(count, group, d, matrices, packed);
    const Lane power = scale_group(d, packed);
    if (matrix_out) std::memcpy((Lane*)matrix_out + group * size, packed, size * sizeof(Lane));
    cholesky(d, [&](int i, int j) { return packed[packed_row(i) + j]; }, packed, inverse_diagonal);
    Lane largest = inverse_diagonal[0], least = inverse_diagonal[0];
    Mask good = inverse_diagonal[0] > 0.0;
    for (int i = 1; i < d; ++i) {
      good &= inverse_diagonal[i] > 0.0;
      largest = maximum(largest, inverse_diagonal[i]);
      least = minimum(least, inverse_diagonal[i]);
    }
    const Lane ratio = largest / least;
    store(logdet + group * W, logdet_from_inverse_diagonal(d, inverse_diagonal));
    store(exponent + group * W, power);
    store(spread + group * W, ratio * ratio);
    for (int w = 0; w < W; ++w)
      if (!good[w]) {
#pragma omp critical
        failed = group * W + w < failed ? group * W + w : failed;
      }
  });
  return failed < count ? failed : -1;
}

}  // namespace DIVLEARN_ISA
