// Dense steps on packed lower triangles of lanes: whitening, products, Cholesky and its inverse.
// Tiles of rows keep their sums in registers; the row count of a tile is a template parameter.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

// Rows [i0, i0 + R) of G = K C with K (row-major scalars) and C (packed lanes) lower triangular.
template <int R>
DIVLEARN_INLINE void whiten_rows(int d, int i0, const double* K, const Lane* C, Lane* G) {
  const double* k_row[R];
  Lane* g_row[R];
  for (int r = 0; r < R; ++r) {
    k_row[r] = K + (size_t)(i0 + r) * d;
    g_row[r] = G + packed_row(i0 + r);
  }
  int j = 0;
  for (; j + 1 <= i0; j += 2) {  // two columns at a time, full for every row of the tile
    Lane left[R], right[R];
    const Lane first = C[packed_row(j) + j];
    for (int r = 0; r < R; ++r) {
      left[r] = k_row[r][j] * first;
      right[r] = Lane{};
    }
    for (int k = j + 1; k < i0 + R; ++k) {  // K is zero above its diagonal
      const Lane a = C[packed_row(k) + j], b = C[packed_row(k) + j + 1];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        left[r] += k_row[r][k] * a;
        right[r] += k_row[r][k] * b;
      }
    }
    for (int r = 0; r < R; ++r) {
      g_row[r][j] = left[r];
      g_row[r][j + 1] = right[r];
    }
  }
  for (; j < i0 + R; ++j)
    for (int i = j > i0 ? j : i0; i < i0 + R; ++i) {
      Lane sum = {};
      for (int k = j; k <= i; ++k) sum += K[(size_t)i * d + k] * C[packed_row(k) + j];
      G[packed_row(i) + j] = sum;
    }
}

// G = K C.
static void whiten(int d, const double* K, const Lane* C, Lane* G) {
  int i = 0;
  for (; i + 4 <= d; i += 4) whiten_rows<4>(d, i, K, C, G);
  if (d - i == 3) whiten_rows<3>(d, i, K, C, G);
  if (d - i == 2) whiten_rows<2>(d, i, K, C, G);
  if (d - i == 1) whiten_rows<1>(d, i, K, C, G);
}

// Rows [i0, i0 + R) of M = G G^T over G itself. Columns go down, so that nothing still needed is lost.
template <int R>
DIVLEARN_INLINE void gram_rows(int i0, Lane* G) {
  Lane* row[R];
  for (int r = 0; r < R; ++r) row[r] = G + packed_row(i0 + r);
  Lane corner[R][R];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s <= r; ++s) {
      Lane sum = {};
      for (int k = 0; k <= i0 + s; ++k) sum += row[r][k] * row[s][k];
      corner[r][s] = sum;
    }
  int j = i0 - 1;
  for (; j >= 1; j -= 2) {
    const Lane *upper = G + packed_row(j), *lower = G + packed_row(j - 1);
    Lane left[R], right[R];
    for (int r = 0; r < R; ++r) {
      left[r] = row[r][j] * upper[j];
      right[r] = Lane{};
    }
    for (int k = 0; k < j; ++k) {
      const Lane a = upper[k], b = lower[k];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        left[r] += row[r][k] * a;
        right[r] += row[r][k] * b;
      }
    }
    for (int r = 0; r < R; ++r) {
      row[r][j] = left[r];
      row[r][j - 1] = right[r];
    }
  }
  if (j == 0)
    for (int r = 0; r < R; ++r) row[r][0] = row[r][0] * G[0];
  for (int r = 0; r < R; ++r)
    for (int s = 0; s <= r; ++s) row[r][i0 + s] = corner[r][s];
}

// G <- G G^T (lower triangle), from the last rows up.
static void gram(int d, Lane* G) {
  int end = d;
  for (; end >= 4; end -= 4) gram_rows<4>(end - 4, G);
  if (end == 3) gram_rows<3>(0, G);
  if (end == 2) gram_rows<2>(0, G);
  if (end == 1) gram_rows<1>(0, G);
}

// A <- its Cholesky factor; inverse_diagonal gets 1/l_ii. Lanes that are not positive turn to NaN.
template <int R>
DIVLEARN_INLINE void cholesky_rows(int i0, Lane* A, Lane* inverse_diagonal) {
  Lane* row[R];
  for (int r = 0; r < R; ++r) row[r] = A + packed_row(i0 + r);
  for (int j = 0; j < i0; ++j) {
    const Lane* done = A + packed_row(j);
    Lane sum[R];
    for (int r = 0; r < R; ++r) sum[r] = row[r][j];
    for (int k = 0; k < j; ++k) {
      const Lane u = done[k];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r] -= row[r][k] * u;
    }
    for (int r = 0; r < R; ++r) row[r][j] = sum[r] * inverse_diagonal[j];
  }
  for (int r = 0; r < R; ++r) {
    for (int s = 0; s < r; ++s) {
      Lane sum = row[r][i0 + s];
      for (int k = 0; k < i0 + s; ++k) sum -= row[r][k] * row[s][k];
      row[r][i0 + s] = sum * inverse_diagonal[i0 + s];
    }
    Lane even = row[r][i0 + r], odd = {};
    int k = 0;
    for (; k + 1 < i0 + r; k += 2) {
      even -= row[r][k] * row[r][k];
      odd -= row[r][k + 1] * row[r][k + 1];
    }
    if (k < i0 + r) even -= row[r][k] * row[r][k];
    const Lane pivot = even + odd;
    const Lane root = reciprocal_root(pivot);
    inverse_diagonal[i0 + r] = root;
    row[r][i0 + r] = pivot * root;
  }
}

static void cholesky(int d, Lane* A, Lane* inverse_diagonal) {
  int i = 0;
  for (; i + 4 <= d; i += 4) cholesky_rows<4>(i, A, inverse_diagonal);
  if (d - i == 3) cholesky_rows<3>(i, A, inverse_diagonal);
  if (d - i == 2) cholesky_rows<2>(i, A, inverse_diagonal);
  if (d - i == 1) cholesky_rows<1>(i, A, inverse_diagonal);
}

// -2 sum log(1/l_ii): the log-determinant, one logarithm for four pivots.
DIVLEARN_INLINE Lane logdet_from_inverse_diagonal(int d, const Lane* inverse_diagonal) {
  Lane sum = {}, product = fill(1.0);
  for (int i = 0; i < d; ++i) {
    product *= inverse_diagonal[i];
    if ((i & 3) == 3 || i == d - 1) {
      sum += log_lane(product);
      product = fill(1.0);
    }
  }
  return -2.0 * sum;
}

// L <- L^-1, in place, row by row.
static void triangular_inverse(int d, Lane* L, const Lane* inverse_diagonal) {
  for (int i = 0; i < d; ++i) {
    Lane* row = L + packed_row(i);
    const Lane factor = -inverse_diagonal[i];
    int j = 0;
    for (; j + 3 < i; j += 4) {
      Lane sum[4] = {};
      for (int k = j; k < j + 4; ++k)
        for (int c = j; c <= k; ++c) sum[c - j] += row[k] * L[packed_row(k) + c];
      for (int k = j + 4; k < i; ++k) {
        const Lane u = row[k];
        const Lane* done = L + packed_row(k) + j;
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sum[c] += u * done[c];
      }
      for (int c = 0; c < 4; ++c) row[j + c] = sum[c] * factor;
    }
    for (; j < i; ++j) {
      Lane sum = {};
      for (int k = j; k < i; ++k) sum += row[k] * L[packed_row(k) + j];
      row[j] = sum * factor;
    }
    row[i] = inverse_diagonal[i];
  }
}

// total += weight * L^T L (lower triangle).
static void add_transposed_gram(int d, const Lane* L, Lane weight, Lane* total) {
  for (int i = 0; i < d; ++i) {
    Lane* out = total + packed_row(i);
    int j = 0;
    for (; j + 3 <= i; j += 4) {
      Lane sum[4] = {};
      for (int k = i; k < d; ++k) {
        const Lane* row = L + packed_row(k);
        const Lane u = row[i];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sum[c] += u * row[j + c];
      }
      for (int c = 0; c < 4; ++c) out[j + c] += weight * sum[c];
    }
    for (; j <= i; ++j) {
      Lane sum = {};
      for (int k = i; k < d; ++k) sum += L[packed_row(k) + i] * L[packed_row(k) + j];
      out[j] += weight * sum;
    }
  }
}

}  // namespace DIVLEARN_ISA
