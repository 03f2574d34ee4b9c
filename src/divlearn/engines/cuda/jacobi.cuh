// The accurate route: one-sided Jacobi on G = L_B^-1 L_X itself, never on G G^T. Small eigenvalues
// keep their relative accuracy, and eigenvectors stay orthogonal in clusters.
//
// In every round of a sweep each column meets one other, as in a tournament: a match is played by
// one thread for d <= 32 and by eight beyond, all matches of a pair at a table of threads. Several
// tables share a warp for d <= 32, so that all of them go on until the last is done.
#pragma once
#include "fragments.cuh"
#include "state.cuh"

constexpr int PLAYERS = even(D);  // columns, one more if their number is odd
constexpr int COLUMN = D | 1;
constexpr int WIDTH = SMALL ? D : ROW;  // of a stored matrix
constexpr bool IN_WARP = D <= 32;

constexpr int power_of_two_from(int x) { return x <= 1 ? 1 : 2 * power_of_two_from((x + 1) / 2); }

constexpr int ROTATORS = IN_WARP ? 128 : 256;  // threads of a block
constexpr int LANES = IN_WARP ? 1 : 8;         // of a match
constexpr int TABLE = IN_WARP ? power_of_two_from(PLAYERS / 2) : ROTATORS;
constexpr int TABLES = ROTATORS / TABLE;
constexpr int MATCHES = TABLE / LANES;  // at a time

// Pairs without an answer, for the host, as atom and row of the whole problem.
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

struct Table {
  double *columns, *largest;
  int thread, lane, match;  // this thread's number, and its place in a match

  INLINE void sync() const {
    if constexpr (IN_WARP) __syncwarp();
    else __syncthreads();
  }

  // In a warp of several tables for any of those.
  INLINE bool any(bool x) const {
    if constexpr (IN_WARP) return __any_sync(ALL, x);
    else return __syncthreads_or(x);
  }

  INLINE bool any_of_table(bool x) const { return maximum(x ? 1.0 : 0.0) > 0.0; }

  INLINE double* column(int j) const { return columns + j * COLUMN; }

  INLINE double sum(double x) const {  // over a match
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
    for (int offset = at_most(TABLE, 32) / 2; offset; offset >>= 1)
      x = fmax(x, __shfl_xor_sync(ALL, x, offset));
    if constexpr (!IN_WARP) {
      if ((threadIdx.x & 31) == 0) largest[threadIdx.x / 32] = x;
      __syncthreads();
      for (int w = 0; w < ROTATORS / 32; ++w) x = fmax(x, largest[w]);
    }
    return x;
  }

  // Columns of G, scaled so that its largest entry lies in [1, 2); returns the exponent taken out.
  INLINE double load(const LeftFactor& left, const RightFactor& right) const {
    double most = 0.0;
    for (int at = thread; at < D * D; at += TABLE) {
      const int i = at % D, j = at / D;
      double entry = 0.0;
      for (int m = j; m <= i; ++m) entry = fma(left.entry(i, m), right.entry(m, j), entry);
      column(j)[i] = entry;
      most = fmax(most, fabs(entry));
    }
    const double exponent = exponent_of(fmin(fmax(maximum(most), 1e-300), 1e300));
    const double factor = power_of_two(-exponent);
    for (int at = thread; at < D * D; at += TABLE) column(at / D)[at % D] *= factor;
    sync();
    return exponent;
  }

  // Makes columns x and y orthogonal; says whether they were not (NaN counts).
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

  INLINE bool play_round(int round) const {
    constexpr int AROUND = PLAYERS - 1;
    bool rotated = false;
    for (int first = 0; first < PLAYERS / 2; first += MATCHES) {
      const int number = first + match;
      const int p = number == 0 ? AROUND : (round + number) % AROUND;
      const int q = (round + AROUND - number % AROUND) % AROUND;
      const bool valid = number < PLAYERS / 2 && p < D && q < D;
      const int low = valid ? (p < q ? p : q) : 0, high = valid ? (p < q ? q : p) : 0;
      rotated |= rotate(column(low), column(high), valid);
    }
    sync();
    return rotated;
  }

  INLINE bool orthogonalize() const {
    if constexpr (D > 1) {
      bool rotated = true;  // whether the last sweep of this thread did anything
      for (int sweep = 0; sweep < 40; ++sweep) {
        rotated = false;
        for (int round = 0; round < PLAYERS - 1; ++round) rotated |= play_round(round);
        if (!any(rotated)) break;
      }
      return !rotated;
    }
    return true;
  }
};

// Every pair of the list: logarithms of its eigenvalues into `values`, and its eigenvectors into
// `stored` unless that is null.
extern "C" __global__ void __launch_bounds__(ROTATORS)
accurate(const double* whiteners, const double* factors, const double* data_exponents,
         const double* atom_exponents, double* stored, double* values, unsigned char* states,
         const i64* list, const int* length, i64* failed, int* failures, i64 count, i64 rows,
         i64 pairs, i64 first_atom, i64 first_row) {
  const Failures lost_pairs = {failed, failures};
  const int table_index = threadIdx.x / TABLE, thread = threadIdx.x % TABLE, listed = *length;
  double* columns = shared + table_index * D * COLUMN;
  const Table table = {columns, shared + TABLES * D * COLUMN, thread, thread % LANES,
                       thread / LANES};
  for (int start = blockIdx.x * TABLES; start < listed; start += gridDim.x * TABLES) {
    const int at = start + table_index;
    const bool active = at < listed;  // others play along
    const i64 pair = list[active ? at : listed - 1], atom = pair / rows, row = pair % rows;
    const double scale =
        table.load(LeftFactor{whiteners + atom * FACTOR}, RightFactor{factors, count, row});
    const double exponent = 2.0 * scale + data_exponents[row] - atom_exponents[atom];
    bool lost = !table.orthogonalize();
    for (int first = 0; first < D; first += MATCHES) {
      const int j = first + table.match;
      const double* column = table.column(j < D ? j : 0);
      const double square = table.dot(column, column);
      lost |= !(square > 1e-290 && square < 1e290);
      if (j >= D || !active) continue;
      if (table.lane == 0) values[j * pairs + pair] = log_scaled(square, exponent);
      if (stored)
        for (int i = table.lane; i < D; i += LANES)
          stored[place(pair, pairs, i, j)] = column[i] * rsqrt(square);
    }
    lost = table.any_of_table(lost);
    for (int i = thread; stored && active && i < D * WIDTH; i += TABLE)
      if (lost || i % WIDTH >= D)  // finite: its weights are zero
        stored[place(pair, pairs, i / WIDTH, i % WIDTH)] = 0.0;
    if (thread == 0 && active) {
      states[pair] = lost ? FAILED : ACCURATE;
      if (lost) lost_pairs.add(first_atom + atom, first_row + row);
    }
    table.sync();
  }
}
