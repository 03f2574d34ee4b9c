// Wide and clustered spectra: large eigenvalues from the pencil, small ones from its inverse.
#pragma once
#include "range.cuh"

// Eigenvalues of A are `direct` 2^exponent, those of A^-1 `inverse` 2^inverse_exponent, ascending.
struct Sides {
  const double *direct, *inverse;
  double exponent, inverse_exponent;

  // The cut, in a gap, so that vectors of one side are orthogonal to those of the other; -1 if there
  // is none. error: the factor of eps by which rounding may move a vector or, relatively, a value.
  INLINE int find_cut(double* error) const {
    const double shift = exponent + inverse_exponent;
    if (!(fabs(shift) < 900.0)) return -1;
    const double unit = power_of_two(shift), largest = direct[D - 1];
    const double inverse_least = inverse[D - 1] * unit;
    int cut = D;
    *error = inverse[0] > 0.0 ? inverse[D - 1] / inverse[0] : 1e300;
    for (int k = 1; k < D; ++k) {
      const double above = direct[k], below = 1.0 / (inverse[D - k] * unit), gap = above - below;
      const double here = fmax(largest, above * below * inverse_least) / gap;
      if (below > 0.0 && gap > 0.0 && here < *error) {
        *error = here;
        cut = k;
      }
    }
    return cut;
  }

  // Logarithm of eigenvalue i.
  INLINE double logarithm(int i, int cut, double unit) const {
    return i < cut ? log_scaled(1.0 / inverse[D - 1 - i], unit - inverse_exponent)
                   : log_scaled(direct[i], unit + exponent);
  }
};

// Copies eigenvalues in ascending order; false if one is NaN.
INLINE bool sort_values(const double* values, i64 pairs, double* sorted) {
  bool finite = true;
  for (int i = 0; i < D; ++i) {
    const double value = values[i * pairs];
    finite &= value == value;
    int at = i;
    for (; at > 0 && sorted[at - 1] > value; --at) sorted[at] = sorted[at - 1];
    sorted[at] = value;
  }
  return finite;
}

// A thread per pair of the list: sorts the eigenvalues of both sides, and finds the cut between
// them. Pairs that span no more than `limit` do not need the inverse. Errors may be as large as
// those of the factorization.
extern "C" __global__ void __launch_bounds__(128)
join(double* values, const double* exponents, double* inverse_values,
     const double* inverse_exponents, const double* data_errors, const double* atom_errors,
     const i64* list, int listed, Range* ranges, double limit, i64 rows, i64 pairs) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= listed) return;
  const i64 pair = list[at];
  double direct[D], inverse[D];
  if (!(sort_values(values + pair, pairs, direct) &&
        sort_values(inverse_values + pair, pairs, inverse)))
    return;
  const Sides sides = {direct, inverse, exponents[pair], inverse_exponents[pair]};
  const double inherited = fmin(data_errors[pair % rows] + atom_errors[pair / rows], 1.0 / EPS);
  double error = direct[D - 1] / direct[0];
  int cut = 0;
  if (!(direct[0] > 0.0 && error <= limit)) {
    cut = sides.find_cut(&error);
    if (cut < 0 || !(error <= inherited)) return;
  }
  const double tolerance = EPS * (error + 0.25 * inherited);
  int start = 0, first = 0, end = 0;
  double lowest = sides.logarithm(0, cut, 0.0);
  for (int i = 0; i < D; ++i) {
    values[i * pairs + pair] = direct[i];
    inverse_values[i * pairs + pair] = inverse[i];
    const double t = sides.logarithm(i, cut, 0.0);
    if (t - lowest > tolerance) {
      start = i;
      lowest = t;
    }
    if (i + 1 - start > (end - first > 2 ? end - first : 2)) {
      first = start;
      end = i + 1;
    }
  }
  ranges[pair] = {(unsigned char)cut, (unsigned char)first, (unsigned char)end, 1};
}

// Logarithms of joined eigenvalues into `values`, a thread per pair of the list; `rest` lists
// pairs for the Jacobi route.
extern "C" __global__ void __launch_bounds__(128)
joined_logs(double* values, const double* exponents, const double* inverse_values,
            const double* inverse_exponents, const double* data_exponents,
            const double* atom_exponents, const Range* ranges, unsigned char* states,
            const i64* list, int listed, i64* rest, int* length, i64 rows, i64 pairs) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= listed) return;
  const i64 pair = list[at];
  const Range range = ranges[pair];
  if (!range.joined) {
    append(pair, rest, length);
    return;
  }
  const double unit = data_exponents[pair % rows] - atom_exponents[pair / rows];
  for (int i = 0; i < D; ++i) {
    const double value =
        i < range.cut ? 1.0 / inverse_values[(D - 1 - i) * pairs + pair] : values[i * pairs + pair];
    const double exponent = i < range.cut ? -inverse_exponents[pair] : exponents[pair];
    values[i * pairs + pair] = log_scaled(value, unit + exponent);
  }
  states[pair] = ACCURATE;
}
