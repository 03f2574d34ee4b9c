// Atoms of rank P, which are filters: divergences of small matrices Y = V^T X V to the identity.
//
// Everything is stored pair by pair, pairs = matrices * filters, filters running fastest: threads
// next to each other read entries next to each other. Symmetric matrices are packed, (PACKED, pairs).
#pragma once
#include "intrinsics.cuh"

constexpr int P = RANK, PACKED = P * (P + 1) / 2;
constexpr double SMALLEST = 1e-290;  // a pivot, as in projected.py

// Registers hold small matrices; larger ones are in local memory, and loops stay loops.
#if RANK <= 16
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif

INLINE constexpr int at(int i, int j) { return i * (i + 1) / 2 + j; }  // i >= j

// The matrix a Y + b I of a pair.
INLINE void load(double* A, const double* Y, i64 pair, i64 pairs, double a, double b) {
  UNROLL for (int i = 0; i < P; ++i) {
    UNROLL for (int j = 0; j < i; ++j) A[at(i, j)] = a * Y[at(i, j) * pairs + pair];
    A[at(i, i)] = fma(a, Y[at(i, i) * pairs + pair], b);
  }
}

// The Cholesky factor in place, with the reciprocals of its diagonal; returns the log-determinant.
INLINE double factor(double* A) {
  double logdet = 0.0;
  UNROLL for (int j = 0; j < P; ++j) {
    double pivot = A[at(j, j)];
    UNROLL for (int k = 0; k < j; ++k) pivot = fma(-A[at(j, k)], A[at(j, k)], pivot);
    pivot = pivot < SMALLEST ? SMALLEST : pivot;  // NaN stays NaN
    logdet += log(pivot);
    const double scale = rsqrt(pivot);
    A[at(j, j)] = scale;
    UNROLL for (int i = j + 1; i < P; ++i) {
      double entry = A[at(i, j)];
      UNROLL for (int k = 0; k < j; ++k) entry = fma(-A[at(i, k)], A[at(j, k)], entry);
      A[at(i, j)] = entry * scale;
    }
  }
  return logdet;
}

// The inverse of a factor in place, a row after the other.
INLINE void invert_factor(double* A) {
  UNROLL for (int i = 1; i < P; ++i) {
    UNROLL for (int j = 0; j < i; ++j) {
      double sum = 0.0;
      UNROLL for (int k = j; k < i; ++k) sum = fma(A[at(i, k)], A[at(k, j)], sum);
      A[at(i, j)] = -A[at(i, i)] * sum;
    }
  }
}

// The inverse of a matrix, in place of the inverse of its factor.
INLINE void multiply_inverse_factor(double* A) {
  UNROLL for (int i = 0; i < P; ++i) {
    UNROLL for (int j = 0; j <= i; ++j) {
      double sum = 0.0;
      UNROLL for (int k = i; k < P; ++k) sum = fma(A[at(k, i)], A[at(k, j)], sum);
      A[at(i, j)] = sum;
    }
  }
}

// Y = V^T (X V), a thread for each column of a pair. Products are (rows, d, P, filters), filters
// (d, P, filters).
extern "C" __global__ void __launch_bounds__(128)
project(const double* products, const double* filters, double* Y, int d, i64 rows, i64 n_filters) {
  const i64 index = blockIdx.x * i64(blockDim.x) + threadIdx.x;
  const i64 k = index % n_filters, row = index / n_filters / P;
  const int column = int(index / n_filters % P);
  if (row >= rows) return;
  const double* product = products + (row * d * P + column) * n_filters + k;
  double sum[P] = {};
  for (int a = 0; a < d; ++a) {
    const double entry = product[a * P * n_filters];
    const double* filter = filters + a * P * n_filters + k;
#pragma unroll
    for (int i = 0; i < P; ++i)
      if (i >= column) sum[i] = fma(filter[i * n_filters], entry, sum[i]);
  }
#pragma unroll
  for (int i = 0; i < P; ++i)
    if (i >= column) Y[at(i, column) * rows * n_filters + row * n_filters + k] = sum[i];
}

// Divergences of the m pairs (alpha, beta), alpha + beta = 1, and the determinant to the power 1/P,
// into out (pairs, m + 1).
extern "C" __global__ void __launch_bounds__(128)
filter_values(const double* Y, const double* alpha, const double* beta, double* out, int m,
              i64 pairs) {
  const i64 pair = blockIdx.x * i64(blockDim.x) + threadIdx.x;
  if (pair >= pairs) return;
  double A[PACKED];
  load(A, Y, pair, pairs, 1.0, 0.0);
  const double logdet = factor(A);
  double* values = out + pair * (m + 1);
  values[m] = exp(logdet / P);
  bool inverted = false;
  for (int point = 0; point < m; ++point) {
    if (alpha[point] != 1.0) continue;
    if (!inverted) invert_factor(A);
    inverted = true;
    double trace = 0.0;
    UNROLL for (int entry = 0; entry < PACKED; ++entry) trace = fma(A[entry], A[entry], trace);
    values[point] = trace + logdet - P;
  }
  for (int point = 0; point < m; ++point) {
    const double a = alpha[point], b = beta[point];
    if (a == 1.0) continue;
    if (b == 1.0) {
      double trace = 0.0;
      UNROLL for (int i = 0; i < P; ++i) trace += Y[at(i, i) * pairs + pair];
      values[point] = trace - logdet - P;
    } else {
      load(A, Y, pair, pairs, a, b);
      values[point] = (factor(A) - a * logdet) / (a * b);
    }
  }
}

// Gradients in Y of the sum of values times weights (pairs, m + 1), into slopes (PACKED, pairs).
extern "C" __global__ void __launch_bounds__(128)
filter_slopes(const double* Y, const double* alpha, const double* beta, const double* weights,
              double* slopes, int m, i64 pairs) {
  const i64 pair = blockIdx.x * i64(blockDim.x) + threadIdx.x;
  if (pair >= pairs) return;
  const double* weight = weights + pair * (m + 1);
  double A[PACKED], total[PACKED] = {};
  double identity = 0.0, inverse = 0.0, square = 0.0;  // coefficients of I, Y^-1 and Y^-2
  for (int point = 0; point < m; ++point) {
    const double a = alpha[point], b = beta[point], w = weight[point];
    if (a == 1.0) {
      inverse += w;
      square -= w;
    } else if (b == 1.0) {
      identity += w;
      inverse -= w;
    } else {
      inverse -= w / b;
      load(A, Y, pair, pairs, a, b);
      factor(A);
      invert_factor(A);
      multiply_inverse_factor(A);
      UNROLL for (int entry = 0; entry < PACKED; ++entry)
        total[entry] = fma(w / b, A[entry], total[entry]);
    }
  }
  load(A, Y, pair, pairs, 1.0, 0.0);
  inverse = fma(weight[m] / P, exp(factor(A) / P), inverse);
  invert_factor(A);
  multiply_inverse_factor(A);
  UNROLL for (int i = 0; i < P; ++i) {
    UNROLL for (int j = 0; j <= i; ++j) {
      double sum = 0.0;
      if (square != 0.0) {
        UNROLL for (int k = 0; k < P; ++k)
          sum = fma(k < i ? A[at(i, k)] : A[at(k, i)], k < j ? A[at(j, k)] : A[at(k, j)], sum);
      }
      const double entry = fma(square, sum, fma(inverse, A[at(i, j)], total[at(i, j)]));
      slopes[at(i, j) * pairs + pair] = entry + (i == j ? identity : 0.0);
    }
  }
}

// Sums over the rows of a slice of products times slopes, into partial (slices, d, P, filters): a
// thread for LINES of the d lines of a filter.
extern "C" __global__ void __launch_bounds__(128)
sum_products(const double* products, const double* slopes, double* partial, int d, i64 rows,
             i64 n_filters, i64 step) {
  const i64 index = blockIdx.x * i64(blockDim.x) + threadIdx.x, bundles = (d + LINES - 1) / LINES;
  const i64 k = index % n_filters, slice = index / n_filters / bundles;
  const int first = int(index / n_filters % bundles) * LINES;
  const i64 start = slice * step, stop = min(start + step, rows), pairs = rows * n_filters;
  if (start >= rows) return;
  double sum[LINES][P] = {};
  for (i64 row = start; row < stop; ++row) {
    for (int q = 0; q < P; ++q) {
      double slope[P];
#pragma unroll
      for (int r = 0; r < P; ++r)
        slope[r] = slopes[(r < q ? at(q, r) : at(r, q)) * pairs + row * n_filters + k];
#pragma unroll
      for (int line = 0; line < LINES; ++line) {
        const int a = min(first + line, d - 1);
        const double entry = products[((row * d + a) * P + q) * n_filters + k];
#pragma unroll
        for (int r = 0; r < P; ++r) sum[line][r] = fma(entry, slope[r], sum[line][r]);
      }
    }
  }
#pragma unroll
  for (int line = 0; line < LINES; ++line) {
    if (first + line >= d) break;
#pragma unroll
    for (int r = 0; r < P; ++r)
      partial[((slice * d + first + line) * P + r) * n_filters + k] = sum[line][r];
  }
}
