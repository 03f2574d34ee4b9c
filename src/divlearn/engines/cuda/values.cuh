// Divergences from spectra, a thread per pair.
#pragma once
#include "scalar.cuh"
#include "spectrum.cuh"

// On an axis sum_i f(t_i) = sum_i (e^s_i - 1 - s_i)/theta^2, where s is theta t, or -theta t if beta is
// zero. The error is about eps (D + sum_i |s_i|)/theta^2 and the result's own.
INLINE bool quick_axis_sum(const Spectrum& t, const Point& point, double* sum) {
  constexpr double SMALLEST = 0.05, LARGEST_EXPONENT = 700.0;
  const double factor = point.alpha == 0.0 ? point.theta : -point.theta;
  double powers = 0.0, exponents = 0.0, largest = 0.0;
  for (int i = 0; i < D; ++i) {
    const double exponent = factor * t[i];
    largest = fmax(largest, exponent);
    powers += exp(exponent);
    exponents += exponent;
  }
  const double scaled = powers - D - exponents;
  *sum = scaled / (point.theta * point.theta);
  return scaled > SMALLEST * D && largest < LARGEST_EXPONENT;
}

// sum_i f(t_i) = [log prod_i (alpha u_i + beta)/theta - alpha sum_i t_i]/(alpha beta), u = e^(theta t):
// one logarithm for four eigenvalues. Its absolute error is about d eps/(alpha beta), so it serves
// only where the result is not small against that, and where four factors cannot overflow.
INLINE bool quick_sum(const Spectrum& t, const Point& point, double* sum) {
  constexpr double SMALLEST = 0.05, LARGEST_EXPONENT = 170.0, SMALLEST_SHARE = 1e-10;
  if (point.origin) {
    double total = 0.0;
    for (int i = 0; i < D; ++i) {
      const double entry = t[i];
      total = fma(entry, entry, total);
    }
    *sum = 0.5 * total;
    return true;
  }
  if (point.alpha == 0.0 || point.beta == 0.0) return quick_axis_sum(t, point, sum);
  if (!(point.alpha > SMALLEST_SHARE * point.theta && point.beta > SMALLEST_SHARE * point.theta))
    return false;
  const double scale_u = point.alpha / point.theta, scale_1 = point.beta / point.theta;
  double logs = 0.0, trace = 0.0, product = 1.0, largest = 0.0;
  for (int i = 0; i < D; ++i) {
    const double entry = t[i], exponent = point.theta * entry;
    largest = fmax(largest, exponent);
    product *= fma(scale_u, exp(exponent), scale_1);
    trace += entry;
    if ((i & 3) == 3 || i == D - 1) {
      logs += log(product);
      product = 1.0;
    }
  }
  const double scaled = logs - point.alpha * trace;
  *sum = scaled / point.product;
  return scaled > SMALLEST * D && largest < LARGEST_EXPONENT;
}

// Values into out[row * row_stride + atom * m + parameter]; parameters are (atoms, m).
extern "C" __global__ void __launch_bounds__(128)
divergences(const double* values, const double* exponents, const unsigned char* states,
            const double* data_exponents, const double* atom_exponents, const double* alpha,
            const double* beta, double* out, int m, i64 row_stride, const i64* list,
            const int* length, i64 rows, i64 pairs) {
  const PairIndex at = pair_of_thread(list, length, rows, pairs);
  if (at.pair < 0) return;
  const Spectrum t =
      spectrum_of(values, exponents, states, data_exponents, atom_exponents, at, pairs);
  for (int k = 0; k < m; ++k) {
    const Point point(alpha[at.atom * m + k], beta[at.atom * m + k]);
    double sum = 0.0;
    if (states[at.pair] != FAILED && !quick_sum(t, point, &sum)) {
      sum = 0.0;
      for (int i = 0; i < D; ++i) sum += evaluate(t[i], point, false, false).f;
    }
    out[at.row * row_stride + at.atom * m + k] = sum;
  }
}

// Log-eigenvalues, unsorted, into out[(row * atoms + atom) * D + i].
extern "C" __global__ void __launch_bounds__(128)
log_spectra(const double* values, const double* exponents, const unsigned char* states,
            const double* data_exponents, const double* atom_exponents, double* out,
            i64 row_stride, i64 rows, i64 pairs) {
  const PairIndex at = pair_of_thread(nullptr, nullptr, rows, pairs);
  if (at.pair < 0) return;
  const Spectrum t =
      spectrum_of(values, exponents, states, data_exponents, atom_exponents, at, pairs);
  for (int i = 0; i < D; ++i) out[at.row * row_stride + at.atom * D + i] = t[i];
}
