// Eigenvectors of tridiagonal lanes from their eigenvalues: one twisted factorization each, O(d) a
// vector instead of the O(d^2) of accumulated rotations, then Gram-Schmidt inside clusters.
#pragma once
#include "jacobi.hpp"

namespace DIVLEARN_ISA {

// P vectors at once (independent recurrences hide each other's latency). T - lambda I is factored
// from both ends; the two halves meet at the row where the residual is smallest. Z[row * P + c] is
// not normalized; work: 2 d P lanes. For a member of a cluster, row i of whose space has squared norm
// distance/gamma_i (see clusters.hpp), they meet where most of that is not yet taken.
template <int P, bool CLUSTERED = false>
DIVLEARN_INLINE void twisted_vectors(int d, const Lane* diagonal, const Lane* off_diagonal,
                                     const Lane* eigenvalues, Lane* Z, Lane* work,
                                     const Lane* distance = nullptr,
                                     const Lane* taken = nullptr) {
  constexpr double FLOOR = 1e-50;
  Lane *down = work, *up = work + (size_t)d * P;  // multipliers of the two factorizations
  Lane first[P], last[P];  // pivots from the first row down and from the last row up
  for (int c = 0; c < P; ++c) {
    first[c] = diagonal[0] - eigenvalues[c];
    last[c] = diagonal[d - 1] - eigenvalues[c];
  }
  for (int i = 0, j = d - 1; j > 0; ++i, --j) {  // both at once: each waits for its reciprocals
    const Lane e = off_diagonal[i], f = off_diagonal[j - 1];
#pragma GCC unroll 4
    for (int c = 0; c < P; ++c) {
      Z[j * P + c] = last[c];  // until the halves meet
      const Lane a = first[c] + FLOOR, b = last[c] + FLOOR;  // never exactly zero
      const Lane both = reciprocal(a * b);
      const Lane over = e * (both * b), under = f * (both * a);
      down[i * P + c] = over;
      up[j * P + c] = under;
      first[c] = (diagonal[i + 1] - eigenvalues[c]) - e * over;
      last[c] = (diagonal[j - 1] - eigenvalues[c]) - f * under;
    }
  }
  Lane best[P];
  Mask twist[P];
  for (int c = 0; c < P; ++c) {
    Z[c] = last[c];
    best[c] = fill(__builtin_inf());
    twist[c] = Mask{};
  }
  // gamma_i, the residual if they meet in row i, is the pivot from below less what comes from above.
  for (int i = 0; i < d; ++i) {
#pragma GCC unroll 4
    for (int c = 0; c < P; ++c) {
      Lane gamma = Z[i * P + c];
      if (i > 0) gamma -= off_diagonal[i - 1] * down[(i - 1) * P + c];
      gamma = absolute(gamma);
      if (CLUSTERED) gamma = taken[i] - distance[c] * reciprocal(maximum(gamma, fill(1e-280)));
      const Mask better = gamma < best[c];
      best[c] = better ? gamma : best[c];
      twist[c] = better ? Mask{} + i : twist[c];
    }
  }
  Lane entry[P];
  for (int c = 0; c < P; ++c) entry[c] = fill(1.0);
  for (int i = d - 1; i >= 0; --i)
#pragma GCC unroll 4
    for (int c = 0; c < P; ++c) {
      if (i < d - 1) entry[c] = twist[c] > i ? -down[i * P + c] * entry[c] : fill(1.0);
      Z[i * P + c] = entry[c];
    }
  for (int c = 0; c < P; ++c) entry[c] = Z[c];
  for (int i = 1; i < d; ++i)
#pragma GCC unroll 4
    for (int c = 0; c < P; ++c) {
      entry[c] = twist[c] < i ? -up[i * P + c] * entry[c] : Z[i * P + c];
      Z[i * P + c] = entry[c];
    }
}

// How eigenvalues (sorted, of a T scaled to norm about 1) cluster. Vectors of eigenvalues nearer
// than WINDOW are orthogonalized against each other; below DEGENERATE they may
// all be the same (see clusters.hpp).
struct Clusters {
  static constexpr double WINDOW = 1e-3, DEGENERATE = 1e-10;

  static bool degenerate(int d, const Lane* eigenvalues) {
    Mask bad = {};
    for (int i = 0; i + 1 < d; ++i)
      bad |= ~(eigenvalues[i + 1] - eigenvalues[i] > DEGENERATE);  // NaN counts
    return any(bad);
  }

  // First index whose eigenvalue is within the window of eigenvalue k in some lane.
  static int first_neighbour(const Lane* eigenvalues, int k) {
    int first = k;
    while (first > 0 && any(eigenvalues[k] - eigenvalues[first - 1] < WINDOW)) --first;
    return first;
  }
};

// Column c of the tile is eigenvector number k: orthogonalize it against its neighbours among the
// vectors already in `basis` (vector j at j * d), normalize it and append it there.
template <int P>
DIVLEARN_INLINE void settle_vector(int d, int k, int first, Lane* tile, int c, Lane* basis) {
  Lane* vector = basis + (size_t)k * d;
  for (int i = 0; i < d; ++i) vector[i] = tile[i * P + c];
  Lane scale = reciprocal_root(dot(d, vector, vector));
  for (int i = 0; i < d; ++i) vector[i] *= scale;
  for (int j = first; j < k; ++j) {
    const Lane* other = basis + (size_t)j * d;
    const Lane overlap = dot(d, vector, other);
    for (int i = 0; i < d; ++i) vector[i] -= overlap * other[i];
  }
  if (first < k) {
    scale = reciprocal_root(dot(d, vector, vector));
    for (int i = 0; i < d; ++i) vector[i] *= scale;
  }
  for (int i = 0; i < d; ++i) tile[i * P + c] = vector[i];
}

// total += sum_c weight_c z_c z_c^T (lower triangle) for a tile of P columns.
template <int P>
DIVLEARN_INLINE void add_outer_products(int d, const Lane* Z, const Lane* weight, Lane* total) {
  int i = 0;
  for (; i + 1 < d; i += 2) {
    Lane first[P], second[P];
    for (int c = 0; c < P; ++c) {
      first[c] = weight[c] * Z[i * P + c];
      second[c] = weight[c] * Z[(i + 1) * P + c];
    }
    Lane *upper = total + packed_row(i), *lower = total + packed_row(i + 1);
    for (int j = 0; j <= i; ++j) {
      Lane a = upper[j], b = lower[j];
#pragma GCC unroll 4
      for (int c = 0; c < P; ++c) {
        const Lane z = Z[j * P + c];
        a += first[c] * z;
        b += second[c] * z;
      }
      upper[j] = a;
      lower[j] = b;
    }
    for (int c = 0; c < P; ++c) lower[i + 1] += second[c] * Z[(i + 1) * P + c];
  }
  if (i < d)
    for (int j = 0; j <= i; ++j)
      for (int c = 0; c < P; ++c)
        total[packed_row(i) + j] += weight[c] * Z[i * P + c] * Z[j * P + c];
}

}  // namespace DIVLEARN_ISA
