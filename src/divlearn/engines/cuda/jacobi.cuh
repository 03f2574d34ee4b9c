// The accurate route: one-sided Jacobi on G = L_B^-1 L_X itself, never on G G^T. Small eigenvalues
// keep their relative accuracy, and eigenvectors stay orthogonal in clusters.
//
// The order of rotations is round-robin: in every round of a sweep each column is rotated with one
// other. A rotation is computed by one thread for d <= 32 and by eight beyond. For d <= 32 several
// pairs share a warp, and all of them continue until the last has converged.
#pragma once
#include "fragments.cuh"
#include "state.cuh"

constexpr int PADDED_COLUMNS = even(D);
constexpr int COLUMN = D | 1;
constexpr bool IN_WARP = D <= 32;

constexpr int BLOCK_THREADS = IN_WARP ? 128 : 256;  // threads of a block
constexpr int LANES = IN_WARP ? 1 : 8;              // threads of a rotation
constexpr int PAIR_THREADS = IN_WARP ? power_of_two_from(PADDED_COLUMNS / 2) : BLOCK_THREADS;
constexpr int BLOCK_PAIRS = BLOCK_THREADS / PAIR_THREADS;
constexpr int ROTATIONS = PAIR_THREADS / LANES;  // at a time

// Pairs without a result, for the host: indices of atoms and rows of all data.
struct Failures {
  i64* pairs;
  int* length;

  INLINE void add(i64 atom, i64 row) const {
    const int at = atomicAdd(length, 1);
    if (at >= MOST_FAILURES) return;  // the host sees their number
    pairs[2 * at] = atom;
    pairs[2 * at + 1] = row;
  }
};

struct Jacobi {
  double *columns, *largest;
  int thread, lane, rotation;  // index of the thread, its place in a rotation, and the rotation

  INLINE void sync() const {
    if constexpr (IN_WARP) __syncwarp();
    else __syncthreads();
  }

  // Whether x holds for any thread, of any pair in the warp.
  INLINE bool any(bool x) const {
    if constexpr (IN_WARP) return __any_sync(ALL, x);
    else return __syncthreads_or(x);
  }

  INLINE bool any_of_pair(bool x) const { return maximum(x ? 1.0 : 0.0) > 0.0; }

  INLINE double* column(int j) const { return columns + j * COLUMN; }

  INLINE double sum(double x) const {  // over the threads of a rotation
#pragma unroll
    for (int offset = LANES / 2; offset; offset >>= 1) x += __shfl_xor_sync(ALL, x, offset);
    return x;
  }

  INLINE double dot(const double* x, const double* y) const {
    double total = 0.0;
    for (int i = lane; i < D; i += LANES) total = fma(x[i], y[i], total);
    return sum(total);
  }

  INLINE double maximum(double x) const {
#pragma unroll
    for (int offset = at_most(PAIR_THREADS, 32) / 2; offset; offset >>= 1)
      x = fmax(x, __shfl_xor_sync(ALL, x, offset));
    if constexpr (!IN_WARP) {
      if ((threadIdx.x & 31) == 0) largest[threadIdx.x / 32] = x;
      __syncthreads();
      for (int w = 0; w < BLOCK_THREADS / 32; ++w) x = fmax(x, largest[w]);
    }
    return x;
  }

  // Columns of G, scaled so that its largest entry lies in [1, 2); returns its exponent.
  INLINE double load(const LeftFactor& left, const RightFactor& right) const {
    double most = 0.0;
    for (int at = thread; at < D * D; at += PAIR_THREADS) {
      const int i = at % D, j = at / D;
      double entry = 0.0;
      for (int m = j; m <= i; ++m) entry = fma(left.entry(i, m), right.entry(m, j), entry);
      column(j)[i] = entry;
      most = fmax(most, fabs(entry));
    }
    const double exponent = exponent_of(fmin(fmax(maximum(most), 1e-300), 1e300));
    const double factor = power_of_two(-exponent);
    for (int at = thread; at < D * D; at += PAIR_THREADS) column(at / D)[at % D] *= factor;
    sync();
    return exponent;
  }

  // Makes columns x and y orthogonal; returns whether they were not (NaN counts).
  INLINE bool rotate(double* x, double* y, bool valid) const {
    double a = 0.0, b = 0.0, c = 0.0;
    for (int i = lane; i < D; i += LANES) {
      const double u = x[i], w = y[i];
      a = fma(u, u, a);
      b = fma(w, w, b);
      c = fma(u, w, c);
    }
    a = sum(a);
    b = sum(b);
    c = sum(c);
    if (!valid || fabs(c) <= EPS * sqrt((double)D) * sqrt(a) * sqrt(b)) return false;
    const double half_gap = (b - a) * 0.5, radius = sqrt(fma(half_gap, half_gap, c * c));
    const double tangent = c / (half_gap < 0.0 ? half_gap - radius : half_gap + radius);
    const double cosine = rsqrt(fma(tangent, tangent, 1.0)), sine = tangent * cosine;
    for (int i = lane; i < D; i += LANES) {
      const double u = x[i], w = y[i];
      x[i] = cosine * u - sine * w;
      y[i] = sine * u + cosine * w;
    }
    return true;
  }

  INLINE bool rotate_round(int round) const {
    constexpr int ROUNDS = PADDED_COLUMNS - 1;
    bool rotated = false;
    for (int first = 0; first < PADDED_COLUMNS / 2; first += ROTATIONS) {
      const int number = first + rotation;
      const int p = number == 0 ? ROUNDS : (round + number) % ROUNDS;
      const int q = (round + ROUNDS - number % ROUNDS) % ROUNDS;
      const bool valid = number < PADDED_COLUMNS / 2 && p < D && q < D;
      const int low = valid ? (p < q ? p : q) : 0, high = valid ? (p < q ? q : p) : 0;
      rotated |= rotate(column(low), column(high), valid);
    }
    sync();
    return rotated;
  }

  INLINE bool orthogonalize() const {
    if constexpr (D > 1) {
      bool rotated = true;  // whether this thread rotated in the last sweep
      for (int sweep = 0; sweep < 40; ++sweep) {
        rotated = false;
        for (int round = 0; round < PADDED_COLUMNS - 1; ++round) rotated |= rotate_round(round);
        if (!any(rotated)) break;
      }
      return !rotated;
    }
    return true;
  }
};

// Every pair of the list: logarithms of its eigenvalues into `values`, and its eigenvectors into
// `stored` unless that is null.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
accurate(const double* whiteners, const double* factors, const double* data_exponents,
         const double* atom_exponents, double* stored, double* values, unsigned char* states,
         const i64* list, const int* length, i64* failed, int* failures, i64 count, i64 rows,
         i64 pairs, i64 first_atom, i64 first_row) {
  const Failures failed_pairs = {failed, failures};
  const int pair_index = threadIdx.x / PAIR_THREADS, thread = threadIdx.x % PAIR_THREADS;
  const int listed = *length;
  double* columns = shared + pair_index * D * COLUMN;
  const Jacobi jacobi = {columns, shared + BLOCK_PAIRS * D * COLUMN, thread, thread % LANES,
                       thread / LANES};
  for (int start = blockIdx.x * BLOCK_PAIRS; start < listed; start += gridDim.x * BLOCK_PAIRS) {
    const int at = start + pair_index;
    const bool active = at < listed;  // others compute the last pair again
    const i64 pair = list[active ? at : listed - 1], atom = pair / rows, row = pair % rows;
    const double scale =
        jacobi.load(LeftFactor{whiteners + atom * FACTOR}, RightFactor{factors, count, row});
    const double exponent = 2.0 * scale + data_exponents[row] - atom_exponents[atom];
    bool has_failed = !jacobi.orthogonalize();
    for (int first = 0; first < D; first += ROTATIONS) {
      const int j = first + jacobi.rotation;
      const double* column = jacobi.column(j < D ? j : 0);
      const double square = jacobi.dot(column, column);
      has_failed |= !(square > 1e-290 && square < 1e290);
      if (j >= D || !active) continue;
      if (jacobi.lane == 0) values[j * pairs + pair] = log_scaled(square, exponent);
      if (stored)
        for (int i = jacobi.lane; i < D; i += LANES)
          stored[place(pair, pairs, i, j)] = column[i] * rsqrt(square);
    }
    has_failed = jacobi.any_of_pair(has_failed);
    for (int i = thread; stored && active && i < D * WIDTH; i += PAIR_THREADS)
      if (has_failed || i % WIDTH >= D)  // finite: its weights are zero
        stored[place(pair, pairs, i / WIDTH, i % WIDTH)] = 0.0;
    if (thread == 0 && active) {
      states[pair] = has_failed ? FAILED : ACCURATE;
      if (has_failed) failed_pairs.add(first_atom + atom, first_row + row);
    }
    jacobi.sync();
  }
}
