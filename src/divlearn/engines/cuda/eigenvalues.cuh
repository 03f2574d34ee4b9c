// Eigenvalues of tridiagonal matrices by the rational (square-root free) QL iteration, a thread
// each. The matrix is in shared memory, which can be indexed by variables.
#pragma once
#include "state.cuh"

constexpr int BLOCK_THREADS = D <= 18 ? 128 : 32;  // small blocks waste less memory

struct Tridiagonal {
  double2* entries;  // diagonal and squared coupling of row i at i * SOLVERS

  INLINE double2& operator[](int i) const { return entries[i * BLOCK_THREADS]; }

  // Thresholds are absolute: the largest diagonal entry lies in [1, 2). On return the first
  // components are the eigenvalues. False if the sweeps ran out.
  INLINE bool solve() const {
    constexpr double RELATIVE = EPS * EPS, ABSOLUTE = 1e-34, FLOOR = 1e-50;
    double origin = 0.0;  // sum of the shifts so far
    int top = 0;          // first row not yet deflated
    for (int sweep = 0; sweep <= 40 * D; ++sweep) {
      double2 here = (*this)[top];
      double next = 0.0;
      for (; top < D - 1; ++top) {
        const double2 following = (*this)[top + 1];
        next = following.x;
        const double value = here.x + origin;
        const double bound = fma(fabs(value * (next + origin)), RELATIVE, ABSOLUTE);
        if (!(here.y <= bound)) break;
        (*this)[top] = make_double2(value, 0.0);
        here = following;
      }
      if (top == D - 1) {
        (*this)[top].x = here.x + origin;
        return true;
      }
      // Wilkinson's shift: the eigenvalue of the leading 2 x 2 nearer to its first entry.
      const double half_gap = (next - here.x) * 0.5;
      const double square = fma(half_gap, half_gap, here.y);
      const double radius = square * reciprocal_root(square);
      const double shift = here.x - here.y * reciprocal(half_gap < 0.0 ? half_gap - radius
                                                                        : half_gap + radius);
      origin += shift;
      double pivot = ((*this)[D - 1].x - shift) + FLOOR, image = pivot, product = pivot * image;
      double sine = 0.0;
      for (int i = D - 2; i >= top; --i) {
        const double2 row = (*this)[i];
        const double entry = row.x - shift, r = product + row.y;
        const double inverse = reciprocal(r * pivot);  // one serves r and the pivot
        const double inverse_r = inverse * pivot, squared = sine * r;
        sine = row.y * inverse_r;
        (*this)[i + 1] = make_double2(fma(sine, image + entry, image), squared);
        const double cosine = product * inverse_r;
        pivot = fma(-row.y, inverse * r, entry) + FLOOR;  // never exactly zero
        image = pivot * cosine;
        product = pivot * image;
      }
      (*this)[top] = make_double2(image, sine * product);
    }
    return false;
  }
};

// values: (D, pairs); limit: ratio of eigenvalues beyond which the accurate route is taken.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
eigenvalues(const double* diagonal, const double* off_diagonal, double* values, double* exponents,
            unsigned char* states, i64* list, int* length, double limit, i64 pairs) {
  const i64 pair = (i64)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  if (pair >= pairs) return;
  const Tridiagonal T = {(double2*)shared + threadIdx.x};
  double largest = 0.0;
  bool finite = true;
  for (int i = 0; i < D; ++i) {
    const double entry = diagonal[i * pairs + pair];
    const double coupling = i + 1 < D ? off_diagonal[i * pairs + pair] : 0.0;
    T[i] = make_double2(entry, coupling);
    largest = fmax(largest, entry);
    finite &= fabs(entry) < 1e300 && fabs(coupling) < 1e300;
  }
  const double exponent = exponent_of(fmax(largest, 1e-300)), factor = power_of_two(-exponent);
  for (int i = 0; i < D; ++i) {
    const double2 row = T[i];
    const double coupling = row.y * factor;
    T[i] = make_double2(row.x * factor, coupling * coupling);
  }
  bool solved = finite && largest > 1e-300 && T.solve();
  double most = -1e300, least = 1e300;
  for (int i = 0; i < D; ++i) {
    const double value = T[i].x;
    values[i * pairs + pair] = value;
    most = fmax(most, value);
    least = fmin(least, value);
    solved &= value == value;
  }
  solved = solved && least > 0.0 && most <= limit * least;
  exponents[pair] = exponent;
  states[pair] = solved ? DIRECT : FAILED;  // until another route computes the pair
  if (!solved) append(pair, list, length);
}
