// sum over the data of Z diag(weight) Z^T per atom, on the tensor cores. Sums of slices of the data
// go to `partial` (slices, atoms, D, D); they are added up later, in their order.
#pragma once
#include "team.cuh"

constexpr int BLOCK_THREADS = 128;
constexpr bool SHARE_ROWS = TILES > 4;  // warps share rows of tiles, else each has a slice
constexpr int TILE_ROWS = SHARE_ROWS ? (TILES + 3) / 4 : TILES;  // per warp

struct Summation {
  double2 sums[TILE_ROWS][TILES];
  int lane, first, step;  // this warp has rows first, first + step, ... of tiles

  INLINE double load(const double* Z, int tile, int vector) const {
    const int row = 8 * tile + lane / 4;
    return tile < TILES && row < D ? __ldg(Z + row * ROW + vector + (lane & 3)) : 0.0;
  }

  INLINE void clear() {
#pragma unroll
    for (int q = 0; q < TILE_ROWS; ++q)
#pragma unroll
      for (int j = 0; j < TILES; ++j) sums[q][j] = make_double2(0.0, 0.0);
  }

  INLINE void add(const double* Z, const double* weights, i64 pairs) {
#pragma unroll 2
    for (int vector = 0; vector < ROW; vector += 4) {
      const int column = vector + (lane & 3);
      const double weight = column < D ? __ldg(weights + column * pairs) : 0.0;
      double right[TILES];
#pragma unroll
      for (int j = 0; j < TILES; ++j) right[j] = load(Z, j, vector);
#pragma unroll
      for (int q = 0; q < TILE_ROWS; ++q) {
        const double left = weight * (SHARE_ROWS ? load(Z, first + step * q, vector) : right[q]);
#pragma unroll
        for (int j = 0; j < TILES; ++j)
          if (SHARE_ROWS ? j <= first + step * q : j <= q)
            multiply_add_tile(sums[q][j], left, right[j]);
      }
    }
  }

  INLINE void write(double* out) const {
#pragma unroll
    for (int q = 0; q < TILE_ROWS; ++q)
#pragma unroll
      for (int j = 0; j < TILES; ++j) {
        const int r = first + step * q, y = 8 * r + lane / 4, x = 8 * j + 2 * (lane & 3);
        if (j > r || y >= D) continue;
        if (x < D) out[y * D + x] = out[x * D + y] = sums[q][j].x;
        if (x + 1 < D) out[y * D + x + 1] = out[(x + 1) * D + y] = sums[q][j].y;
      }
  }
};

// Small matrices: every thread adds up outer products of its own, then the block does.
struct SmallSummation {
  double sums[triangle(SMALL ? D : 1)];

  INLINE void clear() {
#pragma unroll
    for (int i = 0; i < triangle(SMALL ? D : 1); ++i) sums[i] = 0.0;
  }

  INLINE void add(const double* stored, const double* weights, i64 pair, i64 pairs) {
#pragma unroll 2
    for (int j = 0; j < D; ++j) {
      double z[D];
#pragma unroll
      for (int i = 0; i < D; ++i) z[i] = __ldg(stored + place(pair, pairs, i, j));
      const double weight = __ldg(weights + j * pairs + pair);
#pragma unroll
      for (int y = 0; y < D; ++y)
#pragma unroll
        for (int x = 0; x <= y; ++x)
          sums[triangle(y) + x] = fma(weight * z[y], z[x], sums[triangle(y) + x]);
    }
  }

  INLINE void write(double* out) {
#pragma unroll
    for (int i = 0; i < triangle(SMALL ? D : 1); ++i) {
#pragma unroll
      for (int offset = 16; offset; offset >>= 1)
        sums[i] += __shfl_xor_sync(ALL, sums[i], offset);
      if ((threadIdx.x & 31) == 0) shared[threadIdx.x / 32 * triangle(D) + i] = sums[i];
    }
    __syncthreads();
    for (int at = threadIdx.x; at < D * D; at += BLOCK_THREADS) {
      const int y = at / D, x = at % D, i = y >= x ? triangle(y) + x : triangle(x) + y;
      double sum = 0.0;
      for (int warp = 0; warp < BLOCK_THREADS / 32; ++warp) sum += shared[warp * triangle(D) + i];
      out[at] = sum;
    }
  }
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
accumulate(const double* stored, const double* weights, double* partial, i64 rows, int slices) {
  const int warp = threadIdx.x / 32;
  const int slice = SMALL || SHARE_ROWS ? blockIdx.x : blockIdx.x * 4 + warp;
  if (slice >= slices) return;
  const i64 atom = blockIdx.y, atoms = gridDim.y, pairs = rows * atoms;
  const i64 begin = rows * slice / slices, end = rows * (slice + 1) / slices;
  double* out = partial + (slice * atoms + atom) * D * D;
  if constexpr (SMALL) {
    SmallSummation total;
    total.clear();
    for (i64 row = begin + threadIdx.x; row < end; row += BLOCK_THREADS)
      total.add(stored, weights, atom * rows + row, pairs);
    total.write(out);
  } else {
    Summation total;
    total.lane = threadIdx.x & 31;
    total.first = SHARE_ROWS ? warp : 0;
    total.step = SHARE_ROWS ? 4 : 1;
    total.clear();
    for (i64 row = begin; row < end; ++row) {
      const i64 pair = atom * rows + row;
      total.add(stored + pair * D * ROW, weights + pair, pairs);
    }
    total.write(out);
  }
}
