// Eigenvalues of tridiagonal lanes by the rational (square-root free) QL iteration.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

// Scales T by a power of two per lane so that its largest diagonal entry lies in [1, 2).
// Thresholds below are then absolute. Returns the exponent taken out.
DIVLEARN_INLINE Lane normalize(int d, Lane* diagonal, Lane* off_diagonal) {
  Lane largest = diagonal[0];
  for (int i = 1; i < d; ++i) largest = maximum(largest, diagonal[i]);
  const Mask exponent = exponent_of(maximum(largest, fill(1e-300)));
  const Lane factor = power_of_two(-exponent);
  for (int i = 0; i < d; ++i) diagonal[i] *= factor;
  for (int i = 0; i + 1 < d; ++i) off_diagonal[i] *= factor;
  return to_double(exponent);
}

// K groups of lanes at once, interleaved (entry i of group g at i * K + g) to hide the latency of
// the recurrence. Each lane deflates on its own: a coupling set to zero lets later sweeps pass over
// what is done without changing it. On entry `squared` holds e_i^2 with room for d entries; both
// arrays are overwritten. Returns false if some lane did not converge (NaN included).
template <int K>
static bool rational_ql(int d, Lane* diagonal, Lane* squared, Lane* eigenvalues) {
  constexpr double RELATIVE = EPS * EPS, ABSOLUTE = 1e-34, FLOOR = 1e-50;
  Lane origin[K] = {};           // sum of the shifts so far
  Mask top[K] = {};              // first row not yet deflated
  int low[K] = {}, high[K] = {};  // its range over the lanes
  for (int g = 0; g < K; ++g) squared[(d - 1) * K + g] = Lane{};
  for (int sweep = 0; sweep <= 40 * d; ++sweep) {
    Lane shift[K], pivot[K], image[K], sine[K];
    int first = d - 1;
    for (int g = 0; g < K; ++g) {
      Lane here, next, coupling;
      Mask live;
      for (;;) {
        // Each lane's row is picked by selection: few rows are in play, and hardware gathers are
        // slow on many machines.
        here = next = coupling = Lane{};
        for (int row = low[g]; row <= high[g]; ++row) {
          const Mask mine = top[g] == (int64_t)row;
          here = mine ? diagonal[row * K + g] : here;
          coupling = mine ? squared[row * K + g] : coupling;
          next = mine ? diagonal[(row + 1 < d ? row + 1 : row) * K + g] : next;
        }
        live = top[g] < (int64_t)(d - 1);
        const Lane value = here + origin[g];
        const Lane bound = absolute(value * (next + origin[g])) * RELATIVE + ABSOLUTE;
        const Mask deflated = live & (coupling <= bound);
        if (!any(deflated)) break;
        for (int row = low[g]; row <= high[g]; ++row) {
          const Mask mine = deflated & (top[g] == (int64_t)row);
          eigenvalues[row * K + g] = mine ? value : eigenvalues[row * K + g];
          squared[row * K + g] = mine ? Lane{} : squared[row * K + g];
        }
        top[g] -= deflated;
        while (!any(top[g] <= (int64_t)low[g])) ++low[g];
        if (any(top[g] > (int64_t)high[g])) ++high[g];
      }
      first = low[g] < first ? low[g] : first;
      // Wilkinson's shift: the eigenvalue of the leading 2x2 nearer to its first entry.
      coupling = live ? coupling : fill(1.0);
      const Lane half_gap = (next - here) * 0.5;
      const Lane radius = square_root(half_gap * half_gap + coupling);
      const Lane root = half_gap < 0.0 ? half_gap - radius : half_gap + radius;
      shift[g] = here - coupling * reciprocal(root);
      pivot[g] = image[g] = (diagonal[(d - 1) * K + g] - shift[g]) + FLOOR;
      sine[g] = Lane{};
    }
    if (first >= d - 1) {
      for (int g = 0; g < K; ++g)
        eigenvalues[(d - 1) * K + g] = diagonal[(d - 1) * K + g] + origin[g];
      return true;
    }
    for (int g = 0; g < K; ++g) origin[g] += shift[g];
    Lane product[K];  // pivot * image
    for (int g = 0; g < K; ++g) product[g] = pivot[g] * image[g];
    for (int i = d - 2; i >= first; --i) {
#pragma GCC unroll 8
      for (int g = 0; g < K; ++g) {
        const Lane coupling = squared[i * K + g];
        const Lane entry = diagonal[i * K + g] - shift[g];
        const Lane r = product[g] + coupling;
        squared[(i + 1) * K + g] = sine[g] * r;
        const Lane inverse = reciprocal(r * pivot[g]);  // one reciprocal serves r and the pivot
        const Lane inverse_r = inverse * pivot[g];
        sine[g] = coupling * inverse_r;
        diagonal[(i + 1) * K + g] = image[g] + sine[g] * (image[g] + entry);
        const Lane cosine = product[g] * inverse_r;
        pivot[g] = (entry - coupling * (inverse * r)) + FLOOR;  // never exactly zero
        image[g] = pivot[g] * cosine;
        product[g] = pivot[g] * pivot[g] * cosine;
      }
    }
    for (int g = 0; g < K; ++g) {
      squared[first * K + g] = sine[g] * product[g];
      diagonal[first * K + g] = image[g];
    }
  }
  return false;
}

// Ascending order within each lane (odd-even transposition: no data-dependent addressing).
static void sort_lanes(int d, Lane* values) {
  for (int round = 0; round < d; ++round)
    for (int i = round & 1; i + 1 < d; i += 2) {
      const Lane a = values[i], b = values[i + 1];
      values[i] = minimum(a, b);
      values[i + 1] = maximum(a, b);
    }
}

}  // namespace DIVLEARN_ISA
