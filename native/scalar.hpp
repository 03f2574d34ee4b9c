// f(t; alpha, beta) of divlearn.spectral for lanes, alpha, beta >= 0: the same recipe, the same
// names, plus a cheaper form of the sum over a spectrum for parameters and data that allow it.
#pragma once
#include "lane_math.hpp"

namespace DIVLEARN_ISA {

struct Point {  // one (alpha, beta) with what depends on it alone
  double alpha, beta, theta, product;
  bool origin;
  Point(double a, double b)
      : alpha(a), beta(b), theta(a + b), product(a * b), origin(a == 0.0 && b == 0.0) {}
};

// sum_k c_k x^k with c_k = 1/(k+2)! (chi), 1/(k+3)! (tau), (k+1)/(k+3)! (kappa), (k+1)/(k+2)! (omega).
constexpr int TERMS = 26;
struct Series {
  double chi[TERMS], tau[TERMS], kappa[TERMS], omega[TERMS];
  constexpr Series() : chi(), tau(), kappa(), omega() {
    double factorial = 2.0;  // (k + 2)!
    for (int k = 0; k < TERMS; ++k) {
      const double next = factorial * (k + 3);
      chi[k] = 1.0 / factorial;
      tau[k] = 1.0 / next;
      kappa[k] = (k + 1) / next;
      omega[k] = (k + 1) / factorial;
      factorial = next;
    }
  }
};
static constexpr Series SERIES;

DIVLEARN_INLINE Lane horner(const double* coefficients, Lane x) {
  Lane sum = fill(coefficients[TERMS - 1]);
  for (int k = TERMS - 2; k >= 0; --k) sum = sum * x + coefficients[k];
  return sum;
}

// Series for |x| < 2, closed form beyond. `e` is e^x.
DIVLEARN_INLINE Lane chi(Lane x, Lane e) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.chi, near ? x : Lane{});
  if (any(~near)) value = near ? value : (e - 1.0 - x) / (x * x);
  return value;
}

DIVLEARN_INLINE Lane tau(Lane x, Lane chi_x) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.tau, near ? x : Lane{});
  if (any(~near)) value = near ? value : (chi_x - 0.5) / x;
  return value;
}

DIVLEARN_INLINE Lane kappa(Lane x, Lane e) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.kappa, near ? x : Lane{});
  if (any(~near)) value = near ? value : ((x - 2.0) * e + x + 2.0) / (x * x * x);
  return value;
}

// (1 - (1 + s) e^-s)/s^2 for s >= 0.
DIVLEARN_INLINE Lane omega(Lane s, Lane e) {
  const Mask near = s < 2.0;
  Lane value = horner(SERIES.omega, near ? -s : Lane{});
  if (any(~near)) value = near ? value : (1.0 - (1.0 + s) * e) / (s * s);
  return value;
}

// Derivative of log1p(z)/z, z > -1.
DIVLEARN_INLINE Lane log_ratio_slope(Lane z) {
  const Mask near = (z >= -0.5) & (z <= 1.0);
  const Lane zn = near ? z : Lane{};
  const Lane w = zn / (2.0 + zn), w2 = w * w;
  Lane sum = fill(1.0 / 37.0);
  for (int k = 16; k >= 0; --k) sum = sum * w2 + 1.0 / (2 * k + 3);
  Lane value = -0.5 * (1.0 - w) * (1.0 - w) * (1.0 / (1.0 + w) + w * sum);
  if (any(~near)) value = near ? value : (z / (1.0 + z) - log1p_lane(z)) / (z * z);
  return value;
}

struct Scalar {
  Lane f, f_t, f_alpha, f_beta;
};

// The careful form: right next to the axes, at the origin, for t near 0 and for |t| to 700.
template <bool WITH_SLOPE, bool WITH_PARAMETERS>
static Scalar evaluate(Lane t, const Point& point) {
  Scalar out = {};
  if (point.origin) {
    out.f = 0.5 * t * t;
    out.f_t = t;
    if (WITH_PARAMETERS) {
      out.f_beta = t * t * t * (1.0 / 6.0);
      out.f_alpha = -out.f_beta;
    }
    return out;
  }
  // f(t; alpha, beta) = f(-t; beta, alpha): everything below has t >= 0.
  const Mask flipped = t < 0.0;
  const Lane x = absolute(t);
  const Lane first = flipped ? fill(point.beta) : fill(point.alpha);
  const Lane second = flipped ? fill(point.alpha) : fill(point.beta);
  const Lane a = first / point.theta, b = second / point.theta;
  const Lane p = first * x, q = second * x, s = p + q;
  const Lane decay = exp_lane(-s), denominator = a + b * decay;

  if (WITH_SLOPE) {
    const Mask near = s < 2.0;
    Lane psi = 1.0 - s * horner(SERIES.chi, near ? -s : Lane{});  // (1 - e^-s)/s
    if (any(~near)) psi = near ? psi : (1.0 - decay) / s;
    const Lane slope = x * psi / denominator;
    out.f_t = flipped ? -slope : slope;
  }

  const Lane grow_q = exp_lane(q), decay_p = exp_lane(-p);
  const Lane chi_q = chi(q, grow_q), chi_p = chi(-p, decay_p);
  const Lane m = b * chi_q + a * chi_p;
  const Mask on_axis = (p == 0.0) | (q == 0.0);
  const Lane z = on_axis ? Lane{} : p * q * m;
  const Lane log_z = log1p_lane(z);
  Lane phi = z < 1e-300 ? m : m * (log_z / z);
  const Mask large = ~on_axis & (((z > 1.0) & (q > 30.0)) | (q > 700.0));
  const Mask wide = ~on_axis & (z > 1.0);
  Lane log_denominator = {};
  if (any(wide | large)) {
    const Lane safe_a = maximum(a, fill(1e-307));
    log_denominator = log_lane(safe_a) + log1p_lane(b / safe_a * decay);
    phi = large ? (q + log_denominator) / (p * q) : phi;
  }
  out.f = x * x * phi;
  if (!WITH_PARAMETERS) return out;

  const Lane cross = b * tau(q, chi_q) + a * tau(-p, chi_p);
  const Lane bend = m * m * log_ratio_slope(z), inverse = 1.0 / (1.0 + z);
  Lane phi_p = q * bend - (a * kappa(-p, decay_p) + b * cross) * inverse;
  Lane phi_q = p * bend + (b * kappa(q, grow_q) + a * cross) * inverse;
  const Mask steep = (q <= p) & (p >= 1.0);
  if (any(large | steep)) {
    const Lane ratio = omega(s, decay) / denominator;
    const Lane safe_p = maximum(p, fill(1e-300));
    phi_p = large ? (ratio - phi) / safe_p : phi_p;
    const Lane psi = s < 1e-8 ? fill(1.0) : (1.0 - decay) / s;  // only used where s >= 1
    phi_q = steep ? (ratio + psi * psi * log_ratio_slope(steep ? -q * psi : Lane{})) / safe_p
                  : phi_q;
  }
  if (any(wide & ~steep)) {
    const Lane bracket = -log_denominator - b * (q * decay + a * (1.0 - decay)) / denominator;
    phi_q = (wide & ~steep) ? bracket / (p * q * q) : phi_q;
  }
  const Lane cube = x * x * x;
  out.f_alpha = cube * (flipped ? phi_q : phi_p);
  out.f_beta = cube * (flipped ? phi_p : phi_q);
  return out;
}

// The same from u = e^(theta t) alone, one exponential and one logarithm: absolute errors of about
// eps/(alpha beta min(alpha, beta)), for parameters away from the axes.
DIVLEARN_INLINE Scalar evaluate_quickly(Lane t, const Point& point) {
  const double inverse_theta = 1.0 / point.theta, inverse_product = 1.0 / point.product;
  const Lane u = exp_lane(point.theta * t);
  const Lane denominator = point.alpha * u + point.beta, inverse = reciprocal(denominator);
  const Lane share = u * inverse;
  Scalar out;
  out.f_t = share - inverse;
  out.f = (log_lane(denominator * inverse_theta) - point.alpha * t) * inverse_product;
  const Lane rise = point.alpha * t * share - inverse_theta;
  out.f_alpha = (rise + share - t) * inverse_product - out.f * (1.0 / point.alpha);
  out.f_beta = (rise + inverse) * inverse_product - out.f * (1.0 / point.beta);
  return out;
}

// Whether `evaluate_quickly` serves a whole spectrum, given its sum of f.
DIVLEARN_INLINE bool quick_enough(int d, const Lane* t, const Point& point, Lane sum) {
  constexpr double SMALLEST_PARAMETER = 0.25, SMALLEST = 0.1, LARGEST_EXPONENT = 300.0;
  if (!(point.alpha >= SMALLEST_PARAMETER && point.beta >= SMALLEST_PARAMETER)) return false;
  Lane extent = {};
  for (int i = 0; i < d; ++i) extent = maximum(extent, absolute(t[i]));
  return !any(~(sum * point.product > SMALLEST * d) | ~(extent * point.theta < LARGEST_EXPONENT));
}

// sum_i f(t_i) = [log prod_i (alpha u_i + beta)/theta - alpha sum_i t_i]/(alpha beta), u = e^(theta t):
// one logarithm for four eigenvalues. Its absolute error is about d eps/(alpha beta), so it serves
// only where the result is not small against that, and where four factors cannot overflow.
static bool quick_sum(int d, const Lane* t, const Point& point, Lane* sum) {
  constexpr double SMALLEST = 0.01, LARGEST_EXPONENT = 170.0, SMALLEST_SHARE = 1e-10;
  if (point.origin) {
    Lane total = {};
    for (int i = 0; i < d; ++i) total += t[i] * t[i];
    *sum = 0.5 * total;
    return true;
  }
  if (!(point.alpha > SMALLEST_SHARE * point.theta && point.beta > SMALLEST_SHARE * point.theta))
    return false;
  const double scale_u = point.alpha / point.theta, scale_1 = point.beta / point.theta;
  Lane logs = {}, trace = {}, product = fill(1.0), largest = {};
  for (int i = 0; i < d; ++i) {
    const Lane exponent = point.theta * t[i];
    largest = maximum(largest, exponent);
    product *= scale_u * exp_lane(exponent) + scale_1;
    trace += t[i];
    if ((i & 3) == 3 || i == d - 1) {
      logs += log_lane(product);
      product = fill(1.0);
    }
  }
  const Lane scaled = logs - point.alpha * trace;
  *sum = scaled * (1.0 / point.product);
  return !any(~(scaled > SMALLEST * d) | ~(largest < LARGEST_EXPONENT));
}

// D = sum_i f(t_i).
DIVLEARN_INLINE Lane divergence(int d, const Lane* t, const Point& point) {
  Lane sum;
  if (quick_sum(d, t, point, &sum)) return sum;
  sum = Lane{};
  for (int i = 0; i < d; ++i) sum += evaluate<false, false>(t[i], point).f;
  return sum;
}

}  // namespace DIVLEARN_ISA
