// Small eigenvalues from the inverse. Rounding moves the eigenvalues of A = G G^T by eps times its
// largest one, and those of A^-1 = L^T L, L = G^-1, by eps times its largest one. Each is taken
// from the side where it is large: relative errors are then about eps times the root of the ratio
// of the largest to the smallest eigenvalue instead of the ratio itself.
#pragma once
#include "packed.hpp"
#include "tasks.hpp"
#include "tridiagonal.hpp"

namespace DIVLEARN_ISA {

// G <- (G G^T)^-1 (lower triangle); work: d lanes.
static void inverse_gram(int d, Lane* G, Lane* work) {
  for (int i = 0; i < d; ++i) work[i] = reciprocal(G[packed_row(i) + i]);
  triangular_inverse(d, G, work);
  transposed_gram(d, G);
}

// Joins the eigenvalues of both sides, each ascending: `values` of A, `inverse` of A^-1 in the
// reciprocal unit. Those below index `cut` come from the inverse. The cut lies in a gap, so that
// vectors of one side are orthogonal to those of the other. Returns the factor of eps by which
// rounding may move a vector or, relatively, an eigenvalue; infinite or NaN if there is no cut.
static Lane join_sides(int d, const Lane* inverse, Lane* values, Lane* cut) {
  const Lane largest = values[d - 1], inverse_least = inverse[d - 1];
  // Everything from the inverse, unless rounding has left nothing of its smallest eigenvalue.
  Lane error = inverse[0] > 0.0 ? inverse_least * reciprocal(inverse[0]) : fill(__builtin_inf());
  *cut = fill(d);
  for (int k = 1; k < d; ++k) {
    const Lane above = values[k], below = reciprocal(inverse[d - k]), gap = above - below;
    const Lane here = maximum(largest, above * below * inverse_least) * reciprocal(gap);
    const Mask better = (below > 0.0) & (gap > 0.0) & (here < error);
    error = better ? here : error;
    *cut = better ? fill(k) : *cut;
  }
  for (int i = 0; i < d; ++i)
    values[i] = *cut > (double)i ? reciprocal(inverse[d - 1 - i]) : values[i];
  return error;
}

// A lower bound on the condition of X = L L^T once its diagonal is one: a Rayleigh quotient of the
// scaled inverse after one step of inverse iteration; work: 2 d lanes.
static Lane scaled_condition(int d, const Lane* L, Lane* work) {
  Lane *variance = work, *y = work + d;
  const auto solve = [&] {  // y <- L^-1 y
    for (int i = 0; i < d; ++i) {
      const Lane* row = L + packed_row(i);
      Lane sum = y[i];
      for (int j = 0; j < i; ++j) sum -= row[j] * y[j];
      y[i] = sum * reciprocal(row[i]);
    }
  };
  for (int i = 0; i < d; ++i) {
    const Lane* row = L + packed_row(i);
    variance[i] = Lane{};
    for (int j = 0; j <= i; ++j) variance[i] += row[j] * row[j];
    y[i] = variance[i] * reciprocal(row[i]);
  }
  solve();
  Lane norm = {}, quotient = {};
  for (int i = d - 1; i >= 0; --i) {  // y <- D L^-T y
    const Lane* row = L + packed_row(i);
    const Lane solution = y[i] * reciprocal(row[i]);
    for (int j = 0; j < i; ++j) y[j] -= row[j] * solution;
    y[i] = variance[i] * solution;
    norm += y[i] * solution;
  }
  solve();
  for (int i = 0; i < d; ++i) quotient += y[i] * y[i];
  return quotient * reciprocal(norm);
}

// d times such a bound for an atom: the trace of the scaled inverse.
static double scaled_condition(int d, const double* packed, const double* whitener) {
  double trace = 0.0;
  for (int i = 0; i < d; ++i) {
    double inverse = 0.0;
    for (int k = i; k < d; ++k) inverse += whitener[(size_t)k * d + i] * whitener[(size_t)k * d + i];
    trace += packed[packed_row(i) + i] * inverse;
  }
  return trace;
}

}  // namespace DIVLEARN_ISA
