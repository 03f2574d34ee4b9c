// All eigenvectors by the QL iteration with its rotations, for pairs with clusters of eigenvalues:
// vectors stay orthogonal there.
#pragma once
#include "range.cuh"

constexpr int STRIDE = D | 1;  // odd: entries of a column lie in different banks
constexpr int LANES = D > 32 ? 32 : power_of_two_from(D);  // threads of a pair
constexpr int BLOCK_THREADS = D > 32 ? 32 : 128;           // threads of a block
constexpr int ROWS = (D + LANES - 1) / LANES;              // of a thread

// QL iteration of a pair in shared memory. A thread has rows lane, lane + LANES, ... of Z.
struct QLSolver {
  static constexpr int SHARED = D * STRIDE + 3 * even(D);

  double *Z, *diagonal, *coupling, *buffer;
  int* order;  // of the eigenvalues; takes the place of the couplings when those are zero
  int lane;
  unsigned mask;

  INLINE void sync() const { __syncwarp(mask); }

  INLINE void load(const double* T, const double* off_diagonal, double exponent, i64 pairs) const {
    const double factor = power_of_two(-exponent);
    for (int i = lane; i < D; i += LANES) {
      diagonal[i] = T[i * pairs] * factor;
      coupling[i] = i + 1 < D ? off_diagonal[i * pairs] * factor : 0.0;
    }
  }

  // Z = H_0 H_1 ... from the reflectors (rows of `stored`); a thread has columns here.
  INLINE void form(const double* stored, i64 pair, i64 pairs) const {
    for (int at = lane; at < D * D; at += LANES)
      Z[at / D * STRIDE + at % D] = at / D == at % D ? 1.0 : 0.0;
    for (int k = D - 3; k >= 0; --k) {
      sync();
      for (int i = k + 1 + lane; i < D; i += LANES) buffer[i] = stored[place(pair, pairs, k, i)];
      sync();
      for (int j = k + 1 + lane; j < D; j += LANES) {
        double along = 0.0;
        for (int i = k + 1; i < D; ++i) along = fma(buffer[i], Z[i * STRIDE + j], along);
        for (int i = k + 1; i < D; ++i)
          Z[i * STRIDE + j] = fma(-buffer[i], along, Z[i * STRIDE + j]);
      }
    }
    sync();
  }

  // One sweep of the implicit QL iteration on rows first..last of T.
  INLINE void sweep(int first, int last) const {
    const double e = coupling[first], start = diagonal[first];
    const double tangent = (diagonal[first + 1] - start) / (2.0 * e);
    const double radius = sqrt(fma(tangent, tangent, 1.0));
    double g = diagonal[last] - start + e / (tangent + (tangent < 0.0 ? -radius : radius));
    double sine = 1.0, cosine = 1.0, moved = 0.0, below = diagonal[last], carried[ROWS];
#pragma unroll
    for (int q = 0; q < ROWS; ++q)
      if (lane + q * LANES < D) carried[q] = Z[(lane + q * LANES) * STRIDE + last];
    int i = last - 1;
    for (; i >= first; --i) {
      const double here = diagonal[i], off = coupling[i];
      const double f = sine * off, b = cosine * off, square = fma(f, f, g * g);
      sync();  // all threads have read the entries that are overwritten next
      if (!(square > 1e-290)) break;  // T splits
      const double inverse_root = reciprocal_root(square);
      sine = f * inverse_root;
      cosine = g * inverse_root;
      g = below - moved;
      const double r = fma(here - g, sine, 2.0 * cosine * b);
      moved = sine * r;
      if (lane == 0) {
        coupling[i + 1] = square * inverse_root;
        diagonal[i + 1] = g + moved;
      }
      g = fma(cosine, r, -b);
      below = here;
#pragma unroll
      for (int q = 0; q < ROWS; ++q)
        if (lane + q * LANES < D) {
          double* z = Z + (lane + q * LANES) * STRIDE + i;
          const double other = z[0];
          z[1] = fma(sine, other, cosine * carried[q]);
          carried[q] = fma(cosine, other, -sine * carried[q]);
        }
    }
#pragma unroll
    for (int q = 0; q < ROWS; ++q)
      if (lane + q * LANES < D) Z[(lane + q * LANES) * STRIDE + i + 1] = carried[q];
    if (lane == 0) {
      diagonal[i + 1] = below - moved;
      coupling[last] = 0.0;
      if (i < first) coupling[first] = g;
      else coupling[i + 1] = 0.0;
    }
    sync();
  }

  // Vectors into the columns of Z, that of the k-th smallest eigenvalue into column order[k]. The
  // largest entry of T lies in [1, 2). False if the sweeps ran out.
  INLINE bool solve() const {
    int sweeps = 0;
    for (int first = 0; first < D - 1; ++first)
      while (true) {
        int last = first;
        while (last < D - 1 && !(fabs(coupling[last]) <= negligible(last))) ++last;
        if (last == first) break;
        if (++sweeps > 30 * D) return false;
        sync();  // all threads have read the entries that the sweep changes
        sweep(first, last);
      }
    sync();
    for (int j = lane; j < D; j += LANES) order[rank(diagonal, j)] = j;
    sync();
    return true;
  }

  INLINE double negligible(int i) const {
    return EPS * (fabs(diagonal[i]) + fabs(diagonal[i + 1]) + 0.125);
  }

  INLINE static int rank(const double* values, int j) {
    int before = 0;
    for (int i = 0; i < D; ++i)
      before += values[i] < values[j] || (values[i] == values[j] && i < j);
    return before;
  }
};

// LANES threads per pair of the list: turns reflectors into the vectors that pairs need of a side,
// (row, vector) in `stored`. Pairs that do not converge are not joined.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
dense_vectors(const double* reflectors, double* stored, const double* diagonal,
              const double* off_diagonal, const double* exponents, Range* ranges, int inverse,
              const i64* list, const int* length, i64 pairs) {
  constexpr int TEAMS_HERE = BLOCK_THREADS / LANES;
  const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const unsigned mask = LANES == 32 ? ALL : ((1u << LANES % 32) - 1u)
                                                << (threadIdx.x & 31) / LANES * LANES;
  double* workspace = shared + team * QLSolver::SHARED;
  double* vectors = workspace + D * STRIDE;
  const QLSolver solver = {workspace, vectors, vectors + even(D), vectors + 2 * even(D),
                       (int*)(vectors + even(D)), lane, mask};
  for (int at = blockIdx.x * TEAMS_HERE + team; at < *length; at += gridDim.x * TEAMS_HERE) {
    const i64 pair = list[at];
    const Range range = ranges[pair];
    solver.load(diagonal + pair, off_diagonal + pair, exponents[pair], pairs);
    solver.form(reflectors, pair, pairs);
    const bool solved = solver.solve();
    for (int i = lane; i < D * WIDTH; i += LANES) {
      const int row = i / WIDTH, k = i % WIDTH, j = inverse ? D - 1 - k : k;
      const bool needed = solved && k < D && range.needs(j, inverse);
      const int from = inverse ? D - 1 - row : row;
      if (needed || !inverse)
        stored[place(pair, pairs, row, k)] =
            needed ? solver.Z[from * STRIDE + solver.order[j]] : 0.0;
    }
    if (!solved && lane == 0) ranges[pair].joined = 0;
    solver.sync();
  }
}
