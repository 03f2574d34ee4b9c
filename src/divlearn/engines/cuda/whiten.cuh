// M = G G^T with G = L_B^-1 L_X.
#pragma once
#include "fragments.cuh"

// By a single thread.
INLINE void whiten_by_thread(const LeftFactor& left, const RightFactor& right, double (&M)[C][D]) {
  if constexpr (SMALL) {
    double rows[D][D];  // of G
#pragma unroll
    for (int i = 0; i < D; ++i)
#pragma unroll
      for (int j = 0; j < D; ++j) rows[i][j] = 0.0;
#pragma unroll
    for (int m = 0; m < D; ++m) {
      double entry[D];
#pragma unroll
      for (int j = 0; j <= m; ++j) entry[j] = right.entry(m, j);
#pragma unroll
      for (int i = m; i < D; ++i) {
        const double factor = left.entry(i, m);
#pragma unroll
        for (int j = 0; j <= m; ++j) rows[i][j] = fma(factor, entry[j], rows[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < D; ++i)
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        double sum = 0.0;
#pragma unroll
        for (int n = 0; n <= j; ++n) sum = fma(rows[i][n], rows[j][n], sum);
        M[i][j] = M[j][i] = sum;
      }
  }
}

// An entry of a tile and its mirror image.
INLINE void write_tile(double* M, int stride, int top, int left, double2 tile) {
  const int lane = threadIdx.x & 31, y = top + lane / 4, x = left + 2 * (lane & 3);
  if (y < D && x < D) M[y * stride + x] = M[x * stride + y] = tile.x;
  if (y < D && x + 1 < D) M[y * stride + x + 1] = M[(x + 1) * stride + y] = tile.y;
}

// The same where entries must be written in runs; `transposed`, 72 doubles, holds the mirror image.
INLINE void write_tile_and_transpose(double* M, int stride, int top, int left, double2 tile,
                                     double* transposed) {
  const int lane = threadIdx.x & 31, y = lane / 4, x = 2 * (lane & 3);
  __syncwarp();
  transposed[y * 9 + x] = tile.x;
  transposed[y * 9 + x + 1] = tile.y;
  __syncwarp();
  // Rows are padded to ROW, a multiple of four: pairs never leave them.
  if (top + y < D && left + x < ROW) *(double2*)(M + (top + y) * stride + left + x) = tile;
  if (left + y < D && top + x < ROW)
    *(double2*)(M + (left + y) * stride + top + x) =
        make_double2(transposed[x * 9 + y], transposed[(x + 1) * 9 + y]);
}

// By a warp, on the tensor cores: rows of tiles one after the other. The fragments of G that a
// product returns are both factors of the next, which sums over columns in any order.
// Few fragments stay in registers, many go to shared memory.
constexpr int FRAGMENTS = triangle(TILES) * 32;

INLINE void whiten_tiles(const LeftFactor& left, const RightFactor& right, double2* fragments,
                         double* M, int stride) {
  constexpr bool FEW = TILES <= 4;
  constexpr int STEP = FEW ? 1 : 32;
  const int lane = threadIdx.x & 31;
  double2 registers[FEW ? triangle(TILES) : 1];
  double2* own_fragments = FEW ? registers : fragments + lane;  // a lane reads what it wrote itself
#pragma unroll(FEW ? TILES : 1)
  for (int r = 0; r < TILES; ++r) {
    double2 row[TILES];  // of G
#pragma unroll
    for (int j = 0; j < TILES; ++j) row[j] = make_double2(0.0, 0.0);
#pragma unroll(FEW ? TILES : 1)
    for (int s = 0; s <= r; ++s) {
      const double2 a = left.tile(r, s);
#pragma unroll
      for (int j = 0; j < TILES; ++j) {
        if (j > s) continue;
        const double2 b = right.tile(s, j);
        multiply_add_tile(row[j], a.x, b.x);
        multiply_add_tile(row[j], a.y, b.y);
      }
    }
#pragma unroll
    for (int j = 0; j < TILES; ++j)
      if (j <= r) own_fragments[(triangle(r) + j) * STEP] = row[j];
#pragma unroll(FEW ? TILES : 1)
    for (int j = 0; j <= r; ++j) {
      double2 sum = make_double2(0.0, 0.0), other = sum;  // two chains hide the latency better
#pragma unroll
      for (int s = 0; s < TILES; ++s) {
        if (s > j) continue;
        const double2 b = own_fragments[(triangle(j) + s) * STEP];
        multiply_add_tile(sum, row[s].x, b.x);
        multiply_add_tile(other, row[s].y, b.y);
      }
      sum = make_double2(sum.x + other.x, sum.y + other.y);
      if constexpr (FEW) write_tile(M, stride, 8 * r, 8 * j, sum);
      else write_tile_and_transpose(M, stride, 8 * r, 8 * j, sum, (double*)(fragments + FRAGMENTS));
    }
  }
}
