// Atoms as the kernels take them: plain scalars, one atom after the other. There are few of them,
// so this is ordinary code for any machine.
#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

namespace divlearn {

struct PreparedAtoms {  // outputs, shapes as in `Atoms`
  double *whitener, *matrix, *inverse, *logdet, *exponent, *spread;
};

// L <- Cholesky factor (row-major, lower) of the packed lower triangle A; false if there is none.
// Column by column, so that the inner loop runs along a row and is vectorized.
inline bool factor_packed(int d, const double* A, double* L, double* column) {
  for (int i = 0; i < d; ++i)
    for (int j = 0; j <= i; ++j) L[(size_t)i * d + j] = A[(size_t)i * (i + 1) / 2 + j];
  for (int j = 0; j < d; ++j) {
    const double square = L[(size_t)j * d + j];
    if (!(square > 0.0)) return false;
    const double pivot = std::sqrt(square);
    L[(size_t)j * d + j] = pivot;
    for (int i = j + 1; i < d; ++i) column[i] = L[(size_t)i * d + j] /= pivot;
    for (int i = j + 1; i < d; ++i) {
      double* row = L + (size_t)i * d;
      const double factor = column[i];
      for (int k = j + 1; k <= i; ++k) row[k] -= factor * column[k];
    }
  }
  return true;
}

// K with K L = I: the residual is small on the side that multiplies the data.
inline void invert_factor(int d, const double* L, double* K) {
  for (int i = 0; i < d; ++i) {
    double* row = K + (size_t)i * d;
    for (int j = 0; j < d; ++j) row[j] = 0.0;
    row[i] = 1.0;
    for (int j = i; j >= 0; --j) {  // row[j] holds the right-hand side until it is divided
      const double* other = L + (size_t)j * d;
      row[j] /= other[j];
      for (int k = 0; k < j; ++k) row[k] -= row[j] * other[k];
    }
  }
}

// Packed lower triangle of K^T K.
inline void invert_packed(int d, const double* K, double* inverse) {
  for (size_t i = 0; i < (size_t)d * (d + 1) / 2; ++i) inverse[i] = 0.0;
  for (int k = 0; k < d; ++k) {
    const double* row = K + (size_t)k * d;
    for (int i = 0; i <= k; ++i) {
      double* out = inverse + (size_t)i * (i + 1) / 2;
      for (int j = 0; j <= i; ++j) out[j] += row[i] * row[j];
    }
  }
}

// Returns the index of the first atom without a Cholesky factor, or -1. Scaling as for the data.
inline int prepare_atoms(int n, int d, const double* atoms, const PreparedAtoms& out) {
  const size_t size = (size_t)d * (d + 1) / 2;
  std::vector<double> factor((size_t)d * d), column(d);
  for (int atom = 0; atom < n; ++atom) {
    const double* B = atoms + (size_t)atom * d * d;
    double* packed = out.matrix + atom * size;
    int most = -5000, least = 5000;
    for (int i = 0; i < d; ++i) {
      if (!(B[(size_t)i * d + i] > 0.0)) return atom;
      const int exponent = std::ilogb(B[(size_t)i * d + i]);
      most = exponent > most ? exponent : most;
      least = exponent < least ? exponent : least;
    }
    const int middle = (int)std::floor((most + least) * 0.5);
    for (int i = 0; i < d; ++i)
      for (int j = 0; j <= i; ++j)
        packed[(size_t)i * (i + 1) / 2 + j] = std::ldexp(B[(size_t)i * d + j], -middle);
    if (!factor_packed(d, packed, factor.data(), column.data())) return atom;
    double sum = 0.0, smallest = factor[0], largest = factor[0];
    for (int i = 0; i < d; ++i) {
      const double pivot = factor[(size_t)i * d + i];
      sum += std::log(pivot);
      smallest = pivot < smallest ? pivot : smallest;
      largest = pivot > largest ? pivot : largest;
    }
    out.logdet[atom] = 2.0 * sum;
    out.exponent[atom] = middle;
    out.spread[atom] = (largest / smallest) * (largest / smallest);
    invert_factor(d, factor.data(), out.whitener + (size_t)atom * d * d);
    invert_packed(d, out.whitener + (size_t)atom * d * d, out.inverse + atom * size);
  }
  return -1;
}

}  // namespace divlearn
