// Distribution of a matrix over threads, and communication between them.
//
// Every module is compiled for one dimension D. A team of G threads holds a matrix, thread g the
// columns g, g + G, ... (C of them) in registers: one thread, part of a warp, a warp, or a block.
#pragma once
#include "intrinsics.cuh"

constexpr int D = DIMENSION, G = TEAM, C = COLUMNS;
static_assert(G * C >= D, "columns without a thread");

constexpr unsigned ALL = 0xffffffffu;
constexpr double EPS = 2.220446049250313e-16, LN2 = 0.6931471805599453;

constexpr int even(int x) { return x + (x & 1); }
constexpr int at_most(int x, int y) { return x < y ? x : y; }
constexpr int at_least(int x, int y) { return x > y ? x : y; }
constexpr int power_of_two_from(int x) { return x <= 1 ? 1 : 2 * power_of_two_from((x + 1) / 2); }

constexpr int THREADS = G <= 32 ? 128 : G;  // of a block
constexpr int TEAMS = THREADS / G;
constexpr int ROW = (D + 3) / 4 * 4;  // doubles from one row of a stored matrix to the next
constexpr int TILES = (D + 7) / 8;    // rows of 8 x 8 tiles
constexpr int CHUNK = D <= 32 ? 4 : 8;  // rows that are skipped together when complete
constexpr int VECTOR_ROW = even(D);
constexpr bool SMALL = D <= 8;          // a single thread holds a matrix
constexpr int WIDTH = SMALL ? D : ROW;  // of a stored matrix

constexpr int triangle(int i) { return i * (i + 1) / 2; }

// Place of entry (i, j) of the matrix stored for a pair: entry by entry across the pairs where a
// thread holds a matrix, matrix by matrix with padded rows where a team does.
INLINE i64 place(i64 pair, i64 pairs, int i, int j) {
  return SMALL ? (i64)(i * D + j) * pairs + pair : (pair * D + i) * ROW + j;
}

extern __shared__ __align__(16) double shared[];

INLINE double power_of_two(double e) {  // for integers e in the range of normal numbers
  return __longlong_as_double((i64)(e + 1023.0) << 52);
}

INLINE double exponent_of(double x) {  // floor(log2 x) of a normal x > 0
  return (double)((int)(__double_as_longlong(x) >> 52 & 2047) - 1023);
}

// Sums over a team: `start_sum`, then `sync`, then `read_sum`; slots alternate.
struct Team {
  static constexpr int WARPS = (G + 31) / 32;
  static constexpr int SHARED = G > 32 ? even(2 * WARPS) : 0;  // doubles a team needs

  double* sums;
  double thread_sums[2];
  int thread;  // within the team

  INLINE void sync() const {
    if constexpr (G > 32) __syncthreads();
    else if constexpr (G > 1) __syncwarp();
  }

  template <int SLOT>
  INLINE void start_sum(double x) {
#pragma unroll
    for (int offset = at_most(G, 32) / 2; offset; offset >>= 1)
      x += __shfl_xor_sync(ALL, x, offset);
    if constexpr (G > 32) {
      if ((threadIdx.x & 31) == 0) sums[SLOT * WARPS + threadIdx.x / 32] = x;
    } else {
      thread_sums[SLOT] = x;
    }
  }

  template <int SLOT>
  INLINE double read_sum() const {
    if constexpr (G > 32) {
      double sum = 0.0;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) sum += sums[SLOT * WARPS + w];
      return sum;
    } else {
      return thread_sums[SLOT];
    }
  }

  // Whether x holds for any thread, of any team in the warp.
  INLINE bool any(bool x) const {
    if constexpr (G > 32) return __syncthreads_or(x);
    else if constexpr (G > 1) return __any_sync(ALL, x);
    else return x;
  }
};
