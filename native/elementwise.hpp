// Exponentials of arrays, entry by entry, and sums of them by column.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

// Calls `body(start, width)` for entries in steps of whole lanes, and then for what is left.
template <class Body>
DIVLEARN_INLINE void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + W <= count; i += W) body(i, W);
  if (i < count) body(i, (int)(count - i));
}

// The first `width` entries of a lane; the others are zero.
DIVLEARN_INLINE Lane load(const double* p, int width) {
  if (width == W) return load(p);
  Lane x{};
  for (int w = 0; w < width; ++w) x[w] = p[w];
  return x;
}

DIVLEARN_INLINE void store(double* p, Lane x, int width) {
  if (width == W) return store(p, x);
  for (int w = 0; w < width; ++w) p[w] = x[w];
}

// exp(-scale x): zero where x is infinite.
void decay(int64_t count, const double* x, double scale, double* out) {
  for_lanes(count, [&](int64_t i, int width) __attribute__((always_inline)) {
    const Lane exponent = load(x + i, width) * -scale, power = exp_lane(exponent);
    store(out + i, exponent == exponent ? power : exponent, width);
  });
}

// Sums over rows x of e^(scale x), x e^(scale x) and x^2 e^(scale x): (3, columns).
void power_sums(int64_t rows, int64_t columns, const double* x, double scale, double* out) {
  for_lanes(columns, [&](int64_t i, int width) __attribute__((always_inline)) {
    Lane sums[3] = {};
    for (int64_t row = 0; row < rows; ++row) {
      const Lane entry = load(x + row * columns + i, width), power = exp_lane(scale * entry);
      const Lane first = power * entry;
      sums[0] += power;
      sums[1] += first;
      sums[2] += first * entry;
    }
    for (int k = 0; k < 3; ++k) store(out + k * columns + i, sums[k], width);
  });
}

// Sums over pairs (k, l) of log(1 + e^-m) to class k and log(1 + e^m) to class l, for margins
// m = sharpness decision; decisions are (pairs, columns), losses (classes, columns), zero before.
void pair_losses(int classes, int64_t columns, const double* decisions, double sharpness,
                 double* losses) {
  for_lanes(columns, [&](int64_t i, int width) __attribute__((always_inline)) {
    const double* decision = decisions + i;
    for (int k = 0; k < classes; ++k) {
      Lane sum{};
      for (int l = k + 1; l < classes; ++l, decision += columns) {
        const Lane margin = sharpness * load(decision, width);
        // As many decimals as those of one: small losses do not need more.
        const Lane tail = log_lane(exp_lane(-absolute(margin)) + 1.0);
        sum += tail - minimum(margin, Lane{});
        double* other = losses + l * columns + i;
        store(other, load(other, width) + (tail + maximum(margin, Lane{})), width);
      }
      double* own = losses + k * columns + i;
      store(own, load(own, width) + sum, width);
    }
  });
}

}  // namespace DIVLEARN_ISA
