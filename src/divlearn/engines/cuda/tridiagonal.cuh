// Householder reduction of M = L_B^-1 X L_B^-T to tridiagonal form, a team per pair.
#pragma once
#include "whiten.cuh"

constexpr int VECTOR = even(at_least(G * C, D) + 2);  // doubles: entries past the end are zero

// A reflector is I - u u^T, |u|^2 = 2. In step k row and column k are done; the rows that are left
// move up by one as they are updated, so that registers have fixed names in a short rolled loop:
// column[c][i] is entry (k + i, g + G c).
struct Reduction {
  static constexpr int SHARED = G > 1 ? 3 * VECTOR + Team::SHARED : 0;

  Team& team;
  double (&column)[C][D];
  double* vector;    // x_i = M[k][k + i]
  double2* updates;  // u_i and p_i = (M u)_i
  double *diagonal, *off_diagonal, *stored;
  i64 pairs, pair;
  bool active, keep;

  template <int PHASE>
  INLINE void step(int k) {
    constexpr int ROWS = D - PHASE * G;
    const int g = team.thread, live = D - k;
    double x[C], square = 0.0;
#pragma unroll
    for (int c = PHASE; c < C; ++c) {
      const int j = g + G * c;
      x[c] = j > k ? column[c][0] : 0.0;
      if (j > k + 1) square = fma(x[c], x[c], square);
      if (j > k) vector[j - k] = x[c];
      if (j == D - 1) vector[live] = 0.0;
    }
    team.start_sum<0>(square);
    team.sync();
    square = team.read_sum<0>();
    const double first = vector[1], whole = fma(first, first, square);
    double image = whole * reciprocal_root(whole);
    if (first > 0.0) image = -image;  // the sign that does not cancel
    double head = first - image, scale = reciprocal_root(0.5 * fma(head, head, square));
    if (!(square > 1e-290)) {  // the column is tridiagonal already
      scale = 0.0;
      image = first;
      head = 0.0;
    }
    double p[C], u[C], other[C], along = 0.0;
#pragma unroll
    for (int c = PHASE; c < C; ++c) {
      p[c] = head * column[c][1];
      other[c] = 0.0;
    }
#pragma unroll
    for (int start = 2; start < ROWS; start += CHUNK)
      if (start < live) {
#pragma unroll
        for (int i = start; i < start + CHUNK && i < ROWS; i += 2) {
          const double2 v = *(double2*)(vector + i);
#pragma unroll
          for (int c = PHASE; c < C; ++c) {
            p[c] = fma(column[c][i], v.x, p[c]);
            if (i + 1 < ROWS) other[c] = fma(column[c][i + 1 < D ? i + 1 : i], v.y, other[c]);
          }
        }
      }
#pragma unroll
    for (int c = PHASE; c < C; ++c) {
      const int j = g + G * c;
      u[c] = (j == k + 1 ? head : x[c]) * scale;
      p[c] = j > k ? (p[c] + other[c]) * scale : 0.0;
      along = fma(p[c], u[c], along);
      if (j > k) updates[j - k] = make_double2(u[c], p[c]);
      if (j == D - 1) updates[live] = make_double2(0.0, 0.0);
      if (keep && j > k && j < D) stored[place(pair, pairs, k, j)] = u[c];
      if (c == PHASE && j == k && active) {
        diagonal[k * pairs + pair] = column[c][0];
        off_diagonal[k * pairs + pair] = image;
      }
    }
    team.start_sum<1>(along);
    team.sync();
    along = team.read_sum<1>();
    double a[C];
#pragma unroll
    for (int c = PHASE; c < C; ++c) a[c] = fma(-along, u[c], p[c]);
#pragma unroll
    for (int start = 1; start < ROWS; start += CHUNK)
      if (start < live) {
#pragma unroll
        for (int i = start; i < start + CHUNK && i < ROWS; ++i) {
          const double2 w = updates[i];
#pragma unroll
          for (int c = PHASE; c < C; ++c)
            column[c][i - 1] = fma(-w.x, a[c], fma(-w.y, u[c], column[c][i]));
        }
      }
#pragma unroll
    for (int c = PHASE; c < C; ++c) column[c][ROWS - 1] = 0.0;
  }

  // In phase p the columns below p G are done: C - p per thread are left.
  template <int PHASE>
  INLINE void run() {
    constexpr int LAST = at_most(D - 2, (PHASE + 1) * G);
    if constexpr (PHASE * G < D - 2) {
#pragma unroll 1
      for (int k = PHASE * G; k < LAST; ++k) step<PHASE>(k);
      run<PHASE + 1>();
    }
  }

  INLINE void finish() {
    constexpr int K = D > 2 ? D - 2 : 0;  // rows that have moved up
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int j = team.thread + G * c;
      if (!active) continue;
      if (j == K && j < D) diagonal[(i64)K * pairs + pair] = column[c][0];
      if (j == K + 1 && j < D) {
        off_diagonal[(i64)K * pairs + pair] = column[c][0];
        diagonal[(i64)(K + 1) * pairs + pair] = column[c][D > 1 ? 1 : 0];
      }
    }
  }
};

// pair = atom * rows + row. stored: whitened matrices before, where D > 32; if KEEP, the reflectors
// after, one per row.
template <bool KEEP>
INLINE void reduce_pairs(const double* whiteners, const double* factors, double* stored,
                         double* diagonal, double* off_diagonal, i64 count, i64 rows) {
  constexpr bool FUSED = D <= 32 && !SMALL;
  constexpr int MATRIX = FUSED ? D * ROW : 0, WORKSPACE = MATRIX + Reduction::SHARED;
  const int team_index = threadIdx.x / G;
  const i64 first = (i64)blockIdx.x * TEAMS, atom = blockIdx.y;
  i64 row = first + team_index;
  const bool active = row < rows;
  if (!active) row = rows - 1;
  const i64 pair = atom * rows + row;
  double* workspace = shared + team_index * WORKSPACE;
  double column[C][D];
  const LeftFactor left = {whiteners + atom * FACTOR};
  if constexpr (SMALL) {
    whiten_by_thread(left, RightFactor{factors, count, row}, column);
  } else if constexpr (FUSED) {
    constexpr int WARP_MATRICES = TEAMS / 4;  // matrices per warp
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int i = warp * WARP_MATRICES; i < (warp + 1) * WARP_MATRICES; ++i) {
      const i64 here = first + i < rows ? first + i : rows - 1;
      whiten_tiles(left, RightFactor{factors, count, here}, nullptr, shared + i * WORKSPACE, ROW);
    }
    __syncwarp();
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < D; ++i) {
        const int j = threadIdx.x % G + G * c;
        column[c][i] = j < D ? workspace[i * ROW + j] : 0.0;
      }
  } else {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < D; ++i) {
        const int j = threadIdx.x % G + G * c;
        column[c][i] = j < D ? stored[place(pair, 0, i, j)] : 0.0;
      }
  }
  double local[G == 1 ? VECTOR : 1];
  double2 local_updates[G == 1 ? VECTOR : 1];
  double* vector = G == 1 ? local : workspace + MATRIX;
  double2* updates = G == 1 ? local_updates : (double2*)(vector + VECTOR);
  Team team;
  team.sums = (double*)(updates + VECTOR);
  team.thread = threadIdx.x % G;
  if (team.thread == 0)
#pragma unroll
    for (int i = D; i < VECTOR; ++i) {
      vector[i] = 0.0;
      updates[i] = make_double2(0.0, 0.0);
    }
  team.sync();
  Reduction reduction = {team, column, vector, updates, diagonal, off_diagonal,
                         stored, rows * gridDim.y, pair, active, KEEP && active};
  reduction.run<0>();
  reduction.finish();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
reduce(const double* whiteners, const double* factors, double* stored, double* diagonal,
       double* off_diagonal, i64 count, i64 rows) {
  reduce_pairs<false>(whiteners, factors, stored, diagonal, off_diagonal, count, rows);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
reduce_and_keep(const double* whiteners, const double* factors, double* stored, double* diagonal,
                double* off_diagonal, i64 count, i64 rows) {
  reduce_pairs<true>(whiteners, factors, stored, diagonal, off_diagonal, count, rows);
}

// Whitened matrices (pairs, D, ROW), a warp each.
extern "C" __global__ void __launch_bounds__(32)
whiten(const double* whiteners, const double* factors, double* stored, i64 count, i64 rows) {
  if constexpr (!SMALL) {
    const i64 row = blockIdx.x, atom = blockIdx.y;
    whiten_tiles(LeftFactor{whiteners + atom * FACTOR}, RightFactor{factors, count, row},
                 (double2*)shared, stored + (atom * rows + row) * D * ROW, ROW);
  }
}
