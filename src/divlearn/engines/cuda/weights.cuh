// Weights of eigenvectors in the gradient, and the gradients of parameters, a thread per pair.
#pragma once
#include "range.cuh"
#include "scalar.cuh"
#include "spectrum.cuh"

// Keeps derivatives in range: sums of infinities would be NaN.
INLINE double saturate(double x) { return fmin(fmax(x, -1e300), 1e300); }

// Sums over a spectrum; the slopes f_t are kept one by one.
template <class Evaluate>
INLINE Scalar add_up(const Spectrum& t, const Evaluate& function, double* slopes, double* extent) {
  Scalar sum = {};
  *extent = 0.0;
  for (int i = 0; i < D; ++i) {
    const double entry = t[i];
    const Scalar scalar = function(entry);
    slopes[i] = saturate(scalar.f_t);
    sum.f += scalar.f;
    sum.f_alpha += saturate(scalar.f_alpha);
    sum.f_beta += saturate(scalar.f_beta);
    *extent = fmax(*extent, fabs(entry));
  }
  return sum;
}

// weights (D, pairs) = sum over parameters of cotangent * f_t; the shares of each pair in the
// gradients of the parameters (m, pairs), unless null; and values, unless null. cotangent and
// values are laid out as `out` in `divergences`. Where there are `ranges`, weights are relative to
// that of the run of equal eigenvalues, which goes to `references`.
extern "C" __global__ void __launch_bounds__(128)
weigh(const double* values, const double* exponents, const unsigned char* states,
      const double* data_exponents, const double* atom_exponents, const double* alpha,
      const double* beta, const double* cotangent, double* weights, double* alpha_shares,
      double* beta_shares, double* out, const Range* ranges, double* references, int m,
      i64 row_stride, i64 rows, i64 pairs) {
  const PairIndex at = pair_of_thread(nullptr, nullptr, rows, pairs);
  if (at.pair < 0) return;
  const Spectrum t =
      spectrum_of(values, exponents, states, data_exponents, atom_exponents, at, pairs);
  const bool valid = states[at.pair] != FAILED;
  for (int k = 0; k < m; ++k) {
    const i64 place = at.row * row_stride + at.atom * m + k;
    const Point point(alpha[at.atom * m + k], beta[at.atom * m + k]);
    const double c = valid ? cotangent[place] : 0.0;
    double slopes[D], extent;
    Scalar sum = {};
    if (c != 0.0 || (valid && out)) {
      bool quick = point.product > 0.0;
      if (quick) {
        const auto quickly = [&](double x) { return evaluate_quickly(x, point); };
        sum = add_up(t, quickly, slopes, &extent);
        quick = quick_enough(point, sum.f, extent);
      }
      if (!quick) {
        const bool all = alpha_shares != nullptr;
        const auto carefully = [&](double x) { return evaluate(x, point, true, all); };
        sum = add_up(t, carefully, slopes, &extent);
      }
    }
    // Without a weight there is no share: 0 * inf would be NaN.
    for (int i = 0; i < D; ++i) {
      const double before = k ? weights[i * pairs + at.pair] : 0.0;
      weights[i * pairs + at.pair] = before + (c != 0.0 ? c * slopes[i] : 0.0);
    }
    if (alpha_shares) {
      alpha_shares[k * pairs + at.pair] = c != 0.0 ? c * sum.f_alpha : 0.0;
      beta_shares[k * pairs + at.pair] = c != 0.0 ? c * sum.f_beta : 0.0;
    }
    if (out) out[place] = sum.f;
  }
  if (!ranges) return;
  const Range range = ranges[at.pair];
  const bool run = range.joined && range.end > range.first;
  const double reference = run ? weights[range.first * pairs + at.pair] : 0.0;
  for (int i = 0; run && i < D; ++i) {
    double& weight = weights[i * pairs + at.pair];
    weight = range.in_run(i) ? 0.0 : weight - reference;
  }
  references[at.pair] = reference;
}
