// Dense steps on packed lower triangles of lanes: whitening, products, Cholesky and its inverse.
// Tiles of rows keep their sums in registers; the row count of a tile is a template parameter.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

constexpr int TILE_COLUMNS = REGISTERS == 32 ? 4 : 2;  // with four rows: what the registers hold

// Columns [j0, j0 + N) of rows [i0, i0 + R) of G = K C, j0 + N <= i0, with K (row-major scalars,
// zero above the diagonal) and C (packed lanes) lower triangular.
template <int R, int N>
DIVLEARN_INLINE void whiten_tile(int d, int i0, int j0, const double* K, const Lane* C, Lane* G) {
  const double* k_row[R];
  Lane sum[R][N];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    k_row[r] = K + (size_t)(i0 + r) * d;
#pragma GCC unroll 4
    for (int c = 0; c < N; ++c) {  // the corner where the columns of C begin one by one
      sum[r][c] = Lane{};
#pragma GCC unroll 4
      for (int k = c; k < N; ++k) sum[r][c] += k_row[r][j0 + k] * C[packed_row(j0 + k) + j0 + c];
    }
  }
  for (int k = j0 + N; k < i0 + R; ++k) {
    const Lane* source = C + packed_row(k) + j0;
    Lane x[N];
#pragma GCC unroll 4
    for (int c = 0; c < N; ++c) x[c] = source[c];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const double y = k_row[r][k];
#pragma GCC unroll 4
      for (int c = 0; c < N; ++c) sum[r][c] += y * x[c];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < N; ++c) G[packed_row(i0 + r) + j0 + c] = sum[r][c];
}

template <int R>
DIVLEARN_INLINE void whiten_rows(int d, int i0, const double* K, const Lane* C, Lane* G) {
  for (int j = 0; j < i0; j += TILE_COLUMNS)  // i0 is a multiple of it
    whiten_tile<R, TILE_COLUMNS>(d, i0, j, K, C, G);
  for (int j = i0; j < i0 + R; ++j)
    for (int i = j; i < i0 + R; ++i) {
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

// Columns [j0, j0 + C) of the same rows of M = G G^T, j0 + C <= i0, over G itself.
template <int R, int C>
DIVLEARN_INLINE void gram_tile(int i0, int j0, Lane* G) {
  Lane *row[R], *column[C], sum[R][C];
  for (int r = 0; r < R; ++r) row[r] = G + packed_row(i0 + r);
  for (int c = 0; c < C; ++c) column[c] = G + packed_row(j0 + c);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {  // the corner where the columns' rows end one by one
      sum[r][c] = Lane{};
#pragma GCC unroll 4
      for (int k = 0; k <= c; ++k) sum[r][c] += row[r][j0 + k] * column[c][j0 + k];
    }
  for (int k = 0; k < j0; ++k) {
    Lane x[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) x[c] = column[c][k];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Lane y = row[r][k];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] += y * x[c];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) row[r][j0 + c] = sum[r][c];
}

// Rows [i0, i0 + R) of M. Columns go down, so that nothing still needed is lost.
template <int R>
DIVLEARN_INLINE void gram_rows(int i0, Lane* G) {
  Lane* row[R];
  for (int r = 0; r < R; ++r) row[r] = G + packed_row(i0 + r);
  Lane corner[R][R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int s = 0; s <= r; ++s) {
      corner[r][s] = Lane{};
#pragma GCC unroll 4
      for (int k = i0; k <= i0 + s; ++k) corner[r][s] += row[r][k] * row[s][k];
    }
  for (int k = 0; k < i0; ++k)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int s = 0; s <= r; ++s) corner[r][s] += row[r][k] * row[s][k];
  int j = i0;
  for (; j >= TILE_COLUMNS; j -= TILE_COLUMNS) gram_tile<R, TILE_COLUMNS>(i0, j - TILE_COLUMNS, G);
  for (; j >= 1; --j) gram_tile<R, 1>(i0, j - 1, G);
  for (int r = 0; r < R; ++r)
    for (int s = 0; s <= r; ++s) row[r][i0 + s] = corner[r][s];
}

// G <- G G^T (lower triangle), from the last rows up: the first tile takes what does not fill one.
static void gram(int d, Lane* G) {
  int end = d;
  for (; end >= 4; end -= 4) gram_rows<4>(end - 4, G);
  if (end == 3) gram_rows<3>(0, G);
  if (end == 2) gram_rows<2>(0, G);
  if (end == 1) gram_rows<1>(0, G);
}

// The Cholesky factor of a matrix given entry by entry, tile by tile; inverse_diagonal gets 1/l_ii.
// Lanes that are not positive turn to NaN.
template <int R, class Source>
DIVLEARN_INLINE void cholesky_rows(int i0, const Source& source, Lane* L, Lane* inverse_diagonal) {
  constexpr int C = TILE_COLUMNS;
  Lane* row[R];
  for (int r = 0; r < R; ++r) row[r] = L + packed_row(i0 + r);
  for (int j0 = 0; j0 < i0; j0 += C) {  // i0 is a multiple of C
    const Lane* done[C];
    Lane sum[R][C];
    for (int c = 0; c < C; ++c) done[c] = L + packed_row(j0 + c);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = source(i0 + r, j0 + c);
    for (int k = 0; k < j0; ++k) {
      Lane x[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) x[c] = done[c][k];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Lane y = row[r][k];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] -= y * x[c];
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const Lane scale = inverse_diagonal[j0 + c];
#pragma GCC unroll 4
      for (int b = 0; b < c; ++b) {
        const Lane x = done[c][j0 + b];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum[r][c] -= sum[r][b] * x;
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) row[r][j0 + c] = sum[r][c] *= scale;
    }
  }
  Lane corner[R][R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int s = 0; s <= r; ++s) corner[r][s] = source(i0 + r, i0 + s);
  for (int k = 0; k < i0; ++k)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int s = 0; s <= r; ++s) corner[r][s] -= row[r][k] * row[s][k];
#pragma GCC unroll 4
  for (int s = 0; s < R; ++s) {
    const Lane root = reciprocal_root(corner[s][s]);
    inverse_diagonal[i0 + s] = root;
    row[s][i0 + s] = corner[s][s] * root;
#pragma GCC unroll 4
    for (int r = s + 1; r < R; ++r) row[r][i0 + s] = corner[r][s] *= root;
#pragma GCC unroll 4
    for (int r = s + 1; r < R; ++r)
#pragma GCC unroll 4
      for (int q = s + 1; q <= r; ++q) corner[r][q] -= corner[r][s] * corner[q][s];
  }
}

template <class Source>
static void cholesky(int d, const Source& source, Lane* L, Lane* inverse_diagonal) {
  int i = 0;
  for (; i + 4 <= d; i += 4) cholesky_rows<4>(i, source, L, inverse_diagonal);
  if (d - i == 3) cholesky_rows<3>(i, source, L, inverse_diagonal);
  if (d - i == 2) cholesky_rows<2>(i, source, L, inverse_diagonal);
  if (d - i == 1) cholesky_rows<1>(i, source, L, inverse_diagonal);
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

// Rows [i0, i0 + R) of L <- L^-1, in place: columns go up, so that nothing still needed is lost.
template <int R>
DIVLEARN_INLINE void inverse_rows(int i0, Lane* L, const Lane* inverse_diagonal) {
  constexpr int C = TILE_COLUMNS;
  Lane *row[R], corner[R][R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    row[r] = L + packed_row(i0 + r);
#pragma GCC unroll 4
    for (int s = 0; s < r; ++s) corner[r][s] = row[r][i0 + s];
  }
  for (int j0 = 0; j0 < i0; j0 += C) {  // i0 is a multiple of C
    Lane sum[R][C];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {  // the corner where the columns begin one by one
        sum[r][c] = Lane{};
#pragma GCC unroll 4
        for (int k = c; k < C; ++k) sum[r][c] -= row[r][j0 + k] * L[packed_row(j0 + k) + j0 + c];
      }
    for (int k = j0 + C; k < i0; ++k) {
      const Lane* done = L + packed_row(k) + j0;
      Lane x[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) x[c] = done[c];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Lane y = row[r][k];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] -= y * x[c];
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int s = 0; s < r; ++s) sum[r][c] -= corner[r][s] * sum[s][c];
        row[r][j0 + c] = sum[r][c] *= inverse_diagonal[i0 + r];
      }
  }
  for (int s = 0; s < R; ++s) {
    row[s][i0 + s] = inverse_diagonal[i0 + s];
    for (int r = s + 1; r < R; ++r) {
      Lane sum = {};
      for (int k = s; k < r; ++k) sum -= corner[r][k] * row[k][i0 + s];
      row[r][i0 + s] = sum * inverse_diagonal[i0 + r];
    }
  }
}

// L <- L^-1.
static void triangular_inverse(int d, Lane* L, const Lane* inverse_diagonal) {
  int i = 0;
  for (; i + 4 <= d; i += 4) inverse_rows<4>(i, L, inverse_diagonal);
  if (d - i == 3) inverse_rows<3>(i, L, inverse_diagonal);
  if (d - i == 2) inverse_rows<2>(i, L, inverse_diagonal);
  if (d - i == 1) inverse_rows<1>(i, L, inverse_diagonal);
}

// Rows [i0, i0 + R) of M = L^T L over L itself: later rows are still those of L.
template <int R>
DIVLEARN_INLINE void transposed_gram_rows(int d, int i0, Lane* L) {
  constexpr int C = TILE_COLUMNS;
  Lane *row[R], corner[R][R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    row[r] = L + packed_row(i0 + r);
#pragma GCC unroll 4
    for (int s = 0; s <= r; ++s) corner[r][s] = row[r][i0 + s];
  }
  for (int j0 = 0; j0 < i0; j0 += C) {  // i0 is a multiple of C
    Lane sum[R][C];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        sum[r][c] = Lane{};
#pragma GCC unroll 4
        for (int k = r; k < R; ++k) sum[r][c] += corner[k][r] * row[k][j0 + c];
      }
    for (int k = i0 + R; k < d; ++k) {
      const Lane* other = L + packed_row(k);
      Lane x[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) x[c] = other[j0 + c];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Lane y = other[i0 + r];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] += y * x[c];
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) row[r][j0 + c] = sum[r][c];
  }
  for (int r = 0; r < R; ++r)
    for (int s = 0; s <= r; ++s) {
      Lane sum = {};
      for (int k = r; k < R; ++k) sum += corner[k][r] * corner[k][s];
      for (int k = i0 + R; k < d; ++k) {
        const Lane* other = L + packed_row(k) + i0;
        sum += other[r] * other[s];
      }
      row[r][i0 + s] = sum;
    }
}

// L <- L^T L (lower triangle).
static void transposed_gram(int d, Lane* L) {
  int i = 0;
  for (; i + 4 <= d; i += 4) transposed_gram_rows<4>(d, i, L);
  if (d - i == 3) transposed_gram_rows<3>(d, i, L);
  if (d - i == 2) transposed_gram_rows<2>(d, i, L);
  if (d - i == 1) transposed_gram_rows<1>(d, i, L);
}

}  // namespace DIVLEARN_ISA
