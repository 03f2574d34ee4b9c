// alpha + beta = 1 without eigenvalues: log-determinants and inverses of N = alpha X + beta B.
#pragma once
#include "state.cuh"

constexpr int PIVOT_ROW = even(at_least(G * C, D) + 2);

struct Mixture {
  static constexpr int SHARED = G > 1 ? 2 * PIVOT_ROW + Team::SHARED : 0;

  Team& team;
  double* vector;  // two of them, used in turn
  double column[C][D];

  INLINE void load(const double* X, const double* B, double of_X, double of_B) {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < D; ++i) {
        const int j = team.thread + G * c;
        column[c][i] = j < D ? fma(of_X, __ldg(X + i * D + j), of_B * __ldg(B + i * D + j)) : 0.0;
      }
  }

  // Elimination: rows that are left move up by one, as in `Reduction`.
  template <int PHASE>
  INLINE void eliminate(int k, double (&pivots)[C]) {
    constexpr int ROWS = D - PHASE * G;
    const int live = D - k;
    double* v = vector + (k & 1) * PIVOT_ROW;
#pragma unroll
    for (int c = PHASE; c < C; ++c) {
      const int j = team.thread + G * c;
      if (j >= k) v[j - k] = column[c][0];
      if (j == D - 1) v[live] = v[live + 1] = 0.0;
    }
    team.sync();
    const double pivot = v[0], inverse = 1.0 / pivot;
    double factor[C];
#pragma unroll
    for (int c = PHASE; c < C; ++c) {
      factor[c] = column[c][0] * inverse;
      if (team.thread + G * c == k) pivots[c] = pivot;
    }
#pragma unroll
    for (int start = 0; start < ROWS; start += CHUNK)
      if (start < live) {
#pragma unroll
        for (int i = start; i < start + CHUNK && i < ROWS; i += 2) {
          const double2 w = *(double2*)(v + i);
#pragma unroll
          for (int c = PHASE; c < C; ++c) {
            if (i > 0) column[c][i > 0 ? i - 1 : 0] = fma(-w.x, factor[c], column[c][i]);
            if (i + 1 < ROWS)
              column[c][i] = fma(-w.y, factor[c], column[c][i + 1 < D ? i + 1 : i]);
          }
        }
      }
#pragma unroll
    for (int c = PHASE; c < C; ++c) column[c][ROWS - 1] = 0.0;
  }

  template <int PHASE>
  INLINE void run(double (&pivots)[C]) {
    if constexpr (PHASE * G < D) {
#pragma unroll 1
      for (int k = PHASE * G; k < at_most(D, (PHASE + 1) * G); ++k) eliminate<PHASE>(k, pivots);
      run<PHASE + 1>(pivots);
    }
  }

  // Gauss-Jordan: D sweeps leave -N^-1; a row that is done comes back at the end of the column.
  INLINE void invert() {
#pragma unroll(G == 1 ? D : 1)
    for (int k = 0; k < D; ++k) {
      double* v = vector + (k & 1) * PIVOT_ROW;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int j = team.thread + G * c;
        if (j < D) v[j >= k ? j - k : j - k + D] = column[c][0];
      }
      team.sync();
      const double inverse = 1.0 / v[0];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const bool workspace = team.thread + G * c == k;
        const double factor = workspace ? -inverse : column[c][0] * inverse;
#pragma unroll
        for (int i = 1; i < D; ++i)
          column[c][i - 1] = fma(-v[i], factor, workspace ? 0.0 : column[c][i]);
        column[c][D - 1] = factor;
      }
    }
  }
};

struct TeamPlace {
  i64 atom, row, pair;
  bool active;

  INLINE explicit TeamPlace(i64 rows) {
    atom = blockIdx.y;
    row = (i64)blockIdx.x * TEAMS + threadIdx.x / G;
    active = row < rows;
    if (!active) row = rows - 1;
    pair = atom * rows + row;
  }
};

INLINE double* team_shared(double* local) {
  return G == 1 ? local : shared + threadIdx.x / G * Mixture::SHARED;
}

// D = [logdet N - alpha logdet X - beta logdet B]/(alpha beta). It subtracts log-determinants: its
// error is absolute, about eps times the condition number. Where that is not small against the
// result, or beyond the range, the pair goes to the list.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
logdet_values(const double* matrices, const double* atoms, const double* data_exponents,
              const double* atom_exponents, const double* data_logdets,
              const double* atom_logdets, const double* data_spreads, const double* atom_spreads,
              const double* alphas, const double* betas, double* out, i64 row_stride, i64* list,
              int* length, i64 rows) {
  constexpr double SPREAD_LIMIT = 1e6, SMALLEST_RESULT = 0.005, EXPONENT_LIMIT = 400.0;
  const TeamPlace at(rows);
  double local[G == 1 ? 2 * PIVOT_ROW : 1];
  Team team;
  team.thread = threadIdx.x % G;
  Mixture mixture = {team, team_shared(local)};
  team.sums = mixture.vector + 2 * PIVOT_ROW;
  const double alpha = alphas[at.atom], beta = betas[at.atom];
  const double unit = atom_exponents[at.atom], exponent = data_exponents[at.row] - unit;
  const bool in_range = fabs(exponent) < EXPONENT_LIMIT && fabs(unit) < 1000.0;
  const double scale = in_range ? power_of_two(-unit) : 0.0;
  mixture.load(matrices + at.row * D * D, atoms + at.atom * D * D, alpha * scale, beta * scale);
  double pivots[C], logs = 0.0;
#pragma unroll
  for (int c = 0; c < C; ++c) pivots[c] = 1.0;
  mixture.run<0>(pivots);
#pragma unroll
  for (int c = 0; c < C; ++c) logs += log(pivots[c]);
  team.start_sum<0>(logs);
  team.sync();
  if (team.thread || !at.active) return;
  const double logdet =
      team.read_sum<0>() - alpha * data_logdets[at.row] - beta * atom_logdets[at.atom];
  const double scaled = logdet - exponent * (alpha * D * LN2);
  out[at.row * row_stride + at.atom] = scaled / (alpha * beta);
  if (!(in_range && scaled > SMALLEST_RESULT * D &&
        data_spreads[at.row] * atom_spreads[at.atom] < SPREAD_LIMIT))
    append(at.pair, list, length);
}

// cotangent * N^-1 in units of 2^-(exponent of B).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
weighted_inverses(const double* matrices, const double* atoms, const double* atom_exponents,
                  const double* alphas, const double* betas, const double* cotangent,
                  i64 row_stride, double* stored, i64 rows) {
  const TeamPlace at(rows);
  double local[G == 1 ? 2 * PIVOT_ROW : 1];
  Team team;
  team.thread = threadIdx.x % G;
  Mixture mixture = {team, team_shared(local)};
  const double scale = power_of_two(-atom_exponents[at.atom]);
  mixture.load(matrices + at.row * D * D, atoms + at.atom * D * D, alphas[at.atom] * scale,
               betas[at.atom] * scale);
  mixture.invert();
  const double weight = -cotangent[at.row * row_stride + at.atom];
  if (!at.active) return;
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
#pragma unroll
    for (int i = 0; i < D; ++i)
      if (j < D) stored[place(at.pair, rows * gridDim.y, i, j)] = weight * mixture.column[c][i];
  }
}
