// Eigenvectors of tridiagonal matrices from their eigenvalues: one twisted factorization each, O(d)
// a vector instead of the O(d^2) of accumulated rotations, then Gram-Schmidt inside clusters, then
// back through the reflectors.
#pragma once
#include "range.cuh"

// Eigenvalues of a T of norm about 1: vectors of those nearer than WINDOW are orthogonalized
// against each other; below DEGENERATE they carry no information.
constexpr double WINDOW = 1e-3, DEGENERATE = 1e-10, LEAST_PIVOT = 1e-50;
constexpr double LEAST_SQUARE = 0.25, LARGEST_SQUARE = 1e300;  // of a vector: 1 or more, at first

// Reads shared memory at every use: vectors kept in registers between passes would spill.
INLINE double read(const double* x) {
  if constexpr (G == 1) return *x;
  else return *(const volatile double*)x;
}

INLINE double multiplier(double coupling, double pivot) {
  return coupling * reciprocal(fabs(pivot) < LEAST_PIVOT ? LEAST_PIVOT : pivot);
}

// T - lambda I is factored from both ends; the halves meet where the residual is smallest.
INLINE void twisted_vector(const double* diagonal, const double* coupling, double lambda,
                           double (&z)[D]) {
  double pivot = read(diagonal) - lambda;
#pragma unroll
  for (int i = 0; i + 1 < D; ++i) {  // down; z keeps the pivots
    const double e = read(coupling + i);
    z[i] = pivot;
    pivot = fma(-e, multiplier(e, pivot), read(diagonal + i + 1) - lambda);
  }
  z[D - 1] = pivot;
  double best = fabs(pivot);
  int twist = D - 1;
  pivot = read(diagonal + D - 1) - lambda;
#pragma unroll
  for (int i = D - 2; i >= 0; --i) {  // up; z keeps the multipliers of the rows below
    const double e = read(coupling + i), share = multiplier(e, pivot);
    pivot = fma(-e, share, read(diagonal + i) - lambda);
    const double residual = fabs(fma(-e, share, z[i]));
    z[i + 1] = share;
    if (residual < best) {
      best = residual;
      twist = i;
    }
  }
  pivot = read(diagonal) - lambda;
#pragma unroll
  for (int i = 0; i + 1 < D; ++i) {  // down again, as far as the twist, for its multipliers
    const double e = read(coupling + i), share = multiplier(e, pivot);
    if (i < twist) z[i] = share;
    pivot = fma(-e, share, read(diagonal + i + 1) - lambda);
  }
  double entry = 1.0;
#pragma unroll
  for (int i = 0; i < D; ++i) {
    if (i > twist) z[i] = entry = -z[i] * entry;
    if (i == twist) z[i] = 1.0;
  }
  entry = 1.0;
#pragma unroll
  for (int i = D - 1; i >= 0; --i)
    if (i < twist) z[i] = entry = -z[i] * entry;
}

// Returns whether that was possible. Factors of close eigenvalues may overflow, and a vector may be
// rounding error after Gram-Schmidt.
INLINE bool normalize(double (&z)[D]) {
  double even_sum = 0.0, odd_sum = 0.0;
#pragma unroll
  for (int i = 0; i < D; i += 2) {
    even_sum = fma(z[i], z[i], even_sum);
    if (i + 1 < D) odd_sum = fma(z[i + 1 < D ? i + 1 : i], z[i + 1 < D ? i + 1 : i], odd_sum);
  }
  const double square = even_sum + odd_sum, scale = reciprocal_root(square);
#pragma unroll
  for (int i = 0; i < D; ++i) z[i] *= scale;
  return square > LEAST_SQUARE && square < LARGEST_SQUARE;
}

// x -= (x . y) y.
INLINE void remove_overlap(double (&x)[D], const double* y) {
  double overlap = 0.0, other = 0.0;
#pragma unroll
  for (int i = 0; i < D; i += 2) {
    overlap = fma(x[i], read(y + i), overlap);
    if (i + 1 < D) other = fma(x[i + 1 < D ? i + 1 : i], read(y + i + 1), other);
  }
  overlap += other;
#pragma unroll
  for (int i = 0; i < D; ++i) x[i] = fma(-overlap, read(y + i), x[i]);
}

// Shared memory of a team: T, its eigenvalues, a vector, and which vectors have neighbours.
struct VectorSpace {
  static constexpr int SHARED =
      G > 1 ? 3 * even(D) + 2 * VECTOR_ROW + even((D + 1) / 2) + Team::SHARED : 0;
  double *diagonal, *coupling, *values, *buffer;
  int* has_neighbors;
};

// Gram-Schmidt, right-looking: a finished vector is subtracted from later ones. Columns that are
// not needed are skipped: those of equal eigenvalues may be no basis of their space. Returns
// whether the needed columns of this thread could be normalized.
template <class Needs>
INLINE bool orthogonalize(const Team& team, const VectorSpace& space, const Needs& needs,
                          double (&z)[C][D]) {
  bool near = false, usable = true;
  const auto follows = [&](int i, int j) {
    return i > j && i < D && needs(i) && fabs(space.values[i] - space.values[j]) < WINDOW;
  };
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    if (j >= D) continue;
    usable &= normalize(z[c]) || !needs(j);
    int followers = 0;
    for (int i = j + 1; i < D; ++i) followers |= follows(i, j);
    space.has_neighbors[j] = followers && needs(j);
    near |= space.has_neighbors[j];
  }
  if (!team.any(near)) return usable;
  team.sync();
#pragma unroll(G == 1 ? D : 1)
  for (int j = 0; j < D; ++j) {
    if (!team.any(space.has_neighbors[j])) continue;
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (team.thread + G * c == j) {
        usable &= normalize(z[c]) || !needs(j);
#pragma unroll
        for (int i = 0; i < D; ++i) space.buffer[i] = z[c][i];
      }
    team.sync();
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (space.has_neighbors[j] && follows(team.thread + G * c, j))
        remove_overlap(z[c], space.buffer);
    }
    team.sync();
  }
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    usable &= normalize(z[c]) || j >= D || !needs(j);
  }
  return usable;
}

// z <- H_0 H_1 ... z with the reflectors (rows of `stored`), one at a time through shared memory.
INLINE void reflect(const Team& team, const double* stored, i64 pair, i64 pairs, double* buffer,
                    double (&z)[C][D]) {
  if constexpr (D < 3) return;
  double next[C];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    next[c] = j < D && j > D - 3 ? stored[place(pair, pairs, D > 2 ? D - 3 : 0, j)] : 0.0;
  }
#pragma unroll(G == 1 ? D : 1)
  for (int k = D - 3; k >= 0; --k) {
    double* u = buffer + (k & 1) * VECTOR_ROW;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int j = team.thread + G * c;
      if (j < VECTOR_ROW) u[j] = next[c];
    }
    team.sync();
    if (k > 0)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int j = team.thread + G * c;
        if (j < D && j > k - 1) next[c] = stored[place(pair, pairs, k - 1, j)];
      }
    double along[C], other[C];
#pragma unroll
    for (int c = 0; c < C; ++c) along[c] = other[c] = 0.0;
#pragma unroll
    for (int start = 0; start < D; start += CHUNK)
      if (start + CHUNK > k + 1) {
#pragma unroll
        for (int i = start; i < start + CHUNK && i < D; i += 2) {
          const double2 pair = *(double2*)(u + i);
#pragma unroll
          for (int c = 0; c < C; ++c) {
            along[c] = fma(pair.x, z[c][i], along[c]);
            if (i + 1 < D) other[c] = fma(pair.y, z[c][i + 1 < D ? i + 1 : i], other[c]);
          }
        }
      }
#pragma unroll
    for (int c = 0; c < C; ++c) along[c] += other[c];
#pragma unroll
    for (int start = 0; start < D; start += CHUNK)
      if (start + CHUNK > k + 1) {
#pragma unroll
        for (int i = start; i < start + CHUNK && i < D; i += 2) {
          const double2 pair = *(double2*)(u + i);
#pragma unroll
          for (int c = 0; c < C; ++c) {
            z[c][i] = fma(-pair.x, along[c], z[c][i]);
            if (i + 1 < D) {
              double& second = z[c][i + 1 < D ? i + 1 : i];
              second = fma(-pair.y, along[c], second);
            }
          }
        }
      }
  }
}

// Arrays of all pairs: reflectors, T, and eigenvalues.
struct Reduced {
  const double *reflectors, *diagonal, *off_diagonal, *values, *exponents;
};

// Eigenvectors (row, vector) into `stored`, of the columns that `needs` names. Pairs with eigenvalues
// too close together among those keep their reflectors and are `listed`.
template <class Needs, class Write, class Listed>
INLINE void find_vectors(const Reduced& inputs, i64 pair, i64 pairs, bool active,
                         const Needs& needs, const Write& write, const Listed& listed) {
  const int team_index = threadIdx.x / G;
  Team team;
  team.thread = threadIdx.x % G;
  double local[G == 1 ? 3 * even(D) + 2 * VECTOR_ROW : 1];
  int local_has_neighbors[G == 1 ? D : 1];
  double* workspace = G == 1 ? local : shared + team_index * VectorSpace::SHARED;
  VectorSpace space = {workspace, workspace + even(D), workspace + 2 * even(D),
                       workspace + 3 * even(D), nullptr};
  space.has_neighbors = G == 1 ? local_has_neighbors : (int*)(space.buffer + 2 * VECTOR_ROW);
  team.sums = space.buffer + 2 * VECTOR_ROW + even((D + 1) / 2);
  const double factor = power_of_two(-inputs.exponents[pair]);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int i = team.thread + G * c;
    if (i >= D) continue;
    space.diagonal[i] = inputs.diagonal[i * pairs + pair] * factor;
    space.coupling[i] = i + 1 < D ? inputs.off_diagonal[i * pairs + pair] * factor : 0.0;
    space.values[i] = inputs.values[i * pairs + pair];
  }
  team.sync();
  double z[C][D];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    twisted_vector(space.diagonal, space.coupling, space.values[j < D ? j : D - 1], z[c]);
  }
  bool degenerate = !orthogonalize(team, space, needs, z);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    for (int i = 0; j < D && needs(j) && i < j; ++i)  // NaN counts
      degenerate |= needs(i) && !(fabs(space.values[i] - space.values[j]) > DEGENERATE);
  }
  reflect(team, inputs.reflectors, pair, pairs, space.buffer, z);
  team.start_sum<0>(degenerate ? 1.0 : 0.0);
  team.sync();
  if (!active) return;
  if (team.read_sum<0>() > 0.0) {
    if (team.thread == 0) listed();
    return;
  }
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int j = team.thread + G * c;
    if (j >= WIDTH) continue;
#pragma unroll
    for (int i = 0; i < D; ++i) write(i, j, z[c][i]);
  }
  if constexpr (!SMALL && G * C < ROW)
    for (int j = G * C + team.thread; j < ROW; j += G)
      for (int i = 0; i < D; ++i) write(i, j, 0.0);
}

// stored: reflectors before, eigenvectors after, except of pairs that need another route. Padding
// must be finite: its weights are zero.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
eigenvectors(double* stored, const double* diagonal, const double* off_diagonal,
             const double* values, const double* exponents, unsigned char* states, i64* list,
             int* length, i64 pairs) {
  const i64 index = (i64)blockIdx.x * TEAMS + threadIdx.x / G;
  const i64 pair = index < pairs ? index : pairs - 1;
  const bool active = index < pairs && states[pair] == DIRECT;
  if (G > 32 ? !active : !__any_sync(ALL, active)) return;
  find_vectors(
      {stored, diagonal, off_diagonal, values, exponents}, pair, pairs, active,
      [&](int j) { return true; },
      [&](int i, int j, double z) { stored[place(pair, pairs, i, j)] = j < D ? z : 0.0; },
      [&] {
        states[pair] = FAILED;
        append(pair, list, length);
      });
}

// The same for one side of joined pairs: the needed columns, for the inverse with rows and columns
// in reverse. Other columns become zero, except for the inverse.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
joined_eigenvectors(const double* reflectors, double* stored, const double* diagonal,
                    const double* off_diagonal, const double* values, const double* exponents,
                    const Range* ranges, int inverse, i64* list, int* length, i64 pairs) {
  const i64 index = (i64)blockIdx.x * TEAMS + threadIdx.x / G;
  const i64 pair = index < pairs ? index : pairs - 1;
  const Range range = ranges[pair];
  const bool active = index < pairs && range.joined;
  if (G > 32 ? !active : !__any_sync(ALL, active)) return;
  const auto needs = [&](int j) { return range.needs(j, inverse); };
  find_vectors(
      {reflectors, diagonal, off_diagonal, values, exponents}, pair, pairs, active, needs,
      [&](int i, int j, double z) {
        const bool needed = needs(j);
        if (inverse && needed) stored[place(pair, pairs, D - 1 - i, D - 1 - j)] = z;
        if (!inverse) stored[place(pair, pairs, i, j)] = needed ? z : 0.0;
      },
      [&] { append(pair, list, length); });
}
