// The last route: one-sided Jacobi on G = L_B^-1 L_X itself, never on G G^T. Small eigenvalues
// keep their relative accuracy, and eigenvectors stay orthogonal in clusters.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

// Columns of the packed lower triangle G as full columns (column-major), scaled per lane by a power
// of two so that the largest entry lies in [1, 2); returns the exponent taken out.
DIVLEARN_INLINE Lane unpack_columns(int d, const Lane* G, Lane* columns) {
  Lane largest = fill(1e-300);
  for (int i = 0; i < d * (d + 1) / 2; ++i) largest = maximum(largest, absolute(G[i]));
  const Mask exponent = exponent_of(largest);
  const Lane factor = power_of_two(-exponent);
  for (int j = 0; j < d; ++j)
    for (int i = 0; i < d; ++i)
      columns[j * d + i] = i >= j ? G[packed_row(i) + j] * factor : Lane{};
  return to_double(exponent);
}

// Rotates the columns until they are orthogonal: eigenvalues[j] = |column j|^2, and the normalized
// columns are the eigenvectors of G G^T. Returns false if the sweeps ran out (NaN included).
static bool one_sided_jacobi(int d, Lane* columns, Lane* eigenvalues) {
  const double tolerance = EPS * __builtin_sqrt((double)d);
  bool converged = false;
  for (int sweep = 0; sweep < 40 && !converged; ++sweep) {
    converged = true;
    for (int p = 0; p < d; ++p) eigenvalues[p] = dot(d, columns + p * d, columns + p * d);
    for (int p = 0; p + 1 < d; ++p)
      for (int q = p + 1; q < d; ++q) {
        Lane *x = columns + p * d, *y = columns + q * d;
        const Lane a = eigenvalues[p], b = eigenvalues[q], c = dot(d, x, y);
        // Written so that NaN counts as not orthogonal.
        const Mask orthogonal = absolute(c) <= tolerance * square_root(a) * square_root(b);
        if (!any(~orthogonal)) continue;
        converged = false;
        const Lane half_gap = (b - a) * 0.5;
        const Lane radius = square_root(half_gap * half_gap + c * c);
        const Lane root = half_gap < 0.0 ? half_gap - radius : half_gap + radius;
        const Lane tangent = orthogonal ? Lane{} : c / root;
        const Lane cosine = reciprocal_root(tangent * tangent + 1.0), sine = tangent * cosine;
        eigenvalues[p] = a - tangent * c;
        eigenvalues[q] = b + tangent * c;
        for (int k = 0; k < d; ++k) {
          const Lane u = x[k], w = y[k];
          x[k] = cosine * u - sine * w;
          y[k] = sine * u + cosine * w;
        }
      }
  }
  for (int p = 0; p < d; ++p) eigenvalues[p] = dot(d, columns + p * d, columns + p * d);
  return converged;
}

}  // namespace DIVLEARN_ISA
