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

// sum_k c_k x^k with c_k = 1/(k+2)! (chi), 1/(k+3)! (tau), (k+1)/(k+3)! (kappa).
constexpr int TERMS = 26;
struct Series {
  double chi[TERMS], tau[TERMS], kappa[TERMS];
  constexpr Series() : chi(), tau(), kappa() {
    double factorial = 2.0;  // (k + 2)!
    for (int k = 0; k < TERMS; ++k) {
      const double next = factorial * (k + 3);
      chi[k] = 1.0 / factorial;
      tau[k] = 1.0 / next;
      kappa[k] = (k + 1) / next;
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

// (e^x - 1 - x)/x^2. Series for |x| < 2, closed form beyond; e^x overflows before chi does.
DIVLEARN_INLINE Lane chi(Lane x) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.chi, near ? x : Lane{});
  if (any(~near)) {
    Lane far = ((exp_lane(x) - 1.0) / x - 1.0) / x;
    const Mask huge = x > 700.0;
    if (any(huge)) {
      const Lane root = exp_lane(0.5 * x) / x;
      far = huge ? root * root : far;
    }
    value = near ? value : far;
  }
  return value;
}

// (chi(x) - 1/2)/x.
DIVLEARN_INLINE Lane tau(Lane x, Lane chi_x) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.tau, near ? x : Lane{});
  if (any(~near)) value = near ? value : (chi_x - 0.5) / x;
  return value;
}

// chi'(x) = ((x - 2) e^x + x + 2)/x^3.
DIVLEARN_INLINE Lane kappa(Lane x, Lane chi_x) {
  const Mask near = absolute(x) < 2.0;
  Lane value = horner(SERIES.kappa, near ? x : Lane{});
  if (any(~near)) {
    const Lane inverse = 1.0 / x;
    const Lane rising = (1.0 - 2.0 * inverse) * chi_x + inverse;
    const Lane falling =
        ((1.0 - 2.0 * inverse) * exp_lane(x) + 1.0 + 2.0 * inverse) * inverse * inverse;
    value = near ? value : (x > 0.0 ? rising : falling);
  }
  return value;
}

// (w - log(1 + w))/w^2, w > -1: by the series of atanh near 0, whose terms are all positive.
DIVLEARN_INLINE Lane log_second_remainder(Lane w) {
  const Mask near = absolute(w) <= 0.5;
  const Lane x = near ? w : Lane{};
  const Lane v = x / (2.0 + x), v2 = v * v;
  Lane sum = fill(1.0 / 37.0);
  for (int k = 16; k >= 0; --k) sum = sum * v2 + 1.0 / (2 * k + 3);
  const Lane third = 0.25 * (1.0 - v) * (1.0 + (1.0 - v) * (1.0 - v) * sum);
  Lane value = 0.5 - x * third;
  if (any(~near)) value = near ? value : (1.0 - log1p_lane(w) / w) / w;
  return value;
}

// d/dz log(1 + z)/z, z > -1.
DIVLEARN_INLINE Lane log_mean_slope(Lane z) {
  const Mask near = absolute(z) <= 0.5;
  Lane value = log_second_remainder(near ? z : Lane{}) - 1.0 / (1.0 + (near ? z : Lane{}));
  if (any(~near)) value = near ? value : (1.0 / (1.0 + z) - log1p_lane(z) / z) / z;
  return value;
}

struct Scalar {
  Lane f, f_t, f_alpha, f_beta;
};

// Canonical arguments, t, alpha, beta >= 0, and what every rule derives from them.
struct Canonical {
  Lane t, alpha, beta, a, b, s, decay;  // s = theta t, decay = e^-s
  double theta;

  // log(a + b e^-s), also where e^-s is below the range of normal numbers.
  Lane log_mixture() const {
    const Lane mixture = a + b * decay;
    if (!any(~(mixture > 1e-290))) return log_lane(mixture);
    const Lane first = a > 0.0 ? log_lane(maximum(a, fill(1e-307))) : fill(-1e300);
    const Lane second = b > 0.0 ? log_lane(maximum(b, fill(1e-307))) - s : fill(-1e300);
    const Lane larger = maximum(first, second);
    return larger + log1p_lane(exp_lane(minimum(first, second) - larger));
  }
};

DIVLEARN_INLINE void choose(Mask group, const Scalar& part, Scalar* whole) {
  whole->f = group ? part.f : whole->f;
  whole->f_alpha = group ? part.f_alpha : whole->f_alpha;
  whole->f_beta = group ? part.f_beta : whole->f_beta;
}

// For p >= 2 and q <= p: f = (t + log(1 + w)/beta)/alpha with w in [-1/2, 0].
template <bool WITH_PARAMETERS>
DIVLEARN_INLINE Scalar decaying(const Canonical& x, Mask group) {
  const Lane drop = x.decay - 1.0, w = group ? x.b * drop : Lane{};
  const Lane remainder = log_second_remainder(w), inverse = 1.0 / x.alpha;
  const double scale = 1.0 / x.theta;
  Scalar out = {};
  out.f = (x.t + drop * scale * (1.0 - w * remainder)) * inverse;
  if (!WITH_PARAMETERS) return out;
  const Lane gap = 1.0 / (1.0 + w);
  out.f_alpha = ((1.0 - (1.0 + x.s) * x.decay) * gap * scale * scale - out.f) * inverse;
  const Lane bend = drop * drop * remainder - x.decay * (x.s - 1.0 + x.decay) * gap;
  out.f_beta = bend * scale * scale * inverse;
  return out;
}

// For q > 5 and z > 1 (see `moderate`): f = (t + log(a + b e^-s)/beta)/alpha.
template <bool WITH_PARAMETERS>
DIVLEARN_INLINE Scalar growing(const Canonical& x, Lane log_mixture) {
  const Lane gain = x.t + log_mixture / x.beta, inverse = 1.0 / x.alpha;
  Scalar out = {};
  out.f = gain * inverse;
  if (!WITH_PARAMETERS) return out;
  const Lane share = exp_lane(-x.s - log_mixture), rest = 1.0 - x.b * share;
  const Lane bend = rest * (1.0 - (1.0 + x.s) * x.decay) / x.theta;
  out.f_alpha = (bend - gain) * inverse * inverse;
  const Lane spread = x.b * (x.beta * x.t * share + rest * (1.0 - x.decay));
  out.f_beta = -(log_mixture + spread) * inverse / x.beta / x.beta;
  return out;
}

// Elsewhere: f = t^2 m log(1 + z)/z, where m = b chi(q) + a chi(-p) > 0 and z = p q m.
template <bool WITH_PARAMETERS>
DIVLEARN_INLINE Scalar moderate(const Canonical& x, Mask group) {
  // Other lanes could overflow on the way; they are not used.
  const Lane t = group ? x.t : Lane{};
  const Lane p = x.alpha * t, q = x.beta * t;
  const Lane chi_q = chi(q), chi_p = chi(-p);
  const Lane m = x.b * chi_q + x.a * chi_p;
  const Mask on_axis = p == 0.0;
  const Lane weighted = on_axis ? Lane{} : p * m;  // 0 on the axis, even if m is infinite
  const Lane z = q * weighted;
  Scalar out = {};
  out.f = t * (t * m * (z == 0.0 ? fill(1.0) : log1p_lane(z) / (z == 0.0 ? fill(1.0) : z)));
  if (!WITH_PARAMETERS) return out;
  const Lane bend = m * log_mean_slope(z), inverse = 1.0 / (1.0 + z);
  const Lane tau_q = tau(q, chi_q), third = x.b * tau_q + x.a * tau(-p, chi_p);
  const Lane along_p = q * m * bend - (x.a * kappa(-p, chi_p) + x.b * third) * inverse;
  Lane along_q = (x.b * kappa(q, chi_q) + (x.a == 0.0 ? Lane{} : x.a * third)) * inverse;
  along_q += weighted == 0.0 ? Lane{} : weighted * bend;
  out.f_alpha = t * (t * (t * along_p));
  out.f_beta = t * (t * (t * along_q));
  return out;
}

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
  const Mask swapped = t < 0.0;
  Canonical x;
  x.theta = point.theta;
  x.t = absolute(t);
  x.alpha = swapped ? fill(point.beta) : fill(point.alpha);
  x.beta = swapped ? fill(point.alpha) : fill(point.beta);
  x.a = x.alpha / point.theta;
  x.b = x.beta / point.theta;
  x.a = x.alpha > 0.0 ? maximum(x.a, fill(1e-307)) : x.a;
  x.s = point.theta * x.t;
  x.decay = exp_lane(-x.s);

  const Lane p = x.alpha * x.t, q = x.beta * x.t;
  const Mask is_decaying = (p >= 2.0) & (q <= p);
  Mask is_growing = ~is_decaying & (q > 5.0);
  Lane log_mixture = {};
  const bool steep = any(is_growing) || (WITH_SLOPE && any(x.s > 600.0));
  if (steep) {
    log_mixture = x.log_mixture();
    is_growing &= q + log_mixture > LN2;
  }
  const Mask rest = ~(is_decaying | is_growing);
  if (any(rest)) out = moderate<WITH_PARAMETERS>(x, rest);
  if (any(is_decaying)) choose(is_decaying, decaying<WITH_PARAMETERS>(x, is_decaying), &out);
  if (any(is_growing)) choose(is_growing, growing<WITH_PARAMETERS>(x, log_mixture), &out);

  if (WITH_SLOPE) {  // (1 - e^-s)/(theta (a + b e^-s))
    const Mask near = x.s < 2.0;
    Lane rise = x.t * (1.0 - x.s * horner(SERIES.chi, near ? -x.s : Lane{}));
    if (any(~near)) rise = near ? rise : (1.0 - x.decay) / point.theta;
    Lane slope = rise / (x.a + x.b * x.decay);
    const Mask deep = x.s > 600.0;
    if (any(deep)) {  // the mixture may be below the range while its quotient is not
      const Lane root = exp_lane(-0.5 * log_mixture);
      slope = deep ? rise * root * root : slope;
    }
    out.f_t = swapped ? -slope : slope;
  }
  if (WITH_PARAMETERS) {
    const Lane first = out.f_alpha;
    out.f_alpha = swapped ? out.f_beta : out.f_alpha;
    out.f_beta = swapped ? first : out.f_beta;
  }
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
  constexpr double LEAST_PARAMETER = 0.25, LARGEST_RATIO = 4.0;
  constexpr double SMALLEST = 0.1, LARGEST_EXPONENT = 300.0;
  const double least = point.alpha < point.beta ? point.alpha : point.beta;
  if (!(least >= LEAST_PARAMETER && point.theta <= (1.0 + LARGEST_RATIO) * least)) return false;
  Lane extent = {};
  for (int i = 0; i < d; ++i) extent = maximum(extent, absolute(t[i]));
  return !any(~(sum * point.product > SMALLEST * d) | ~(extent * point.theta < LARGEST_EXPONENT));
}

// On an axis sum_i f(t_i) = sum_i (e^s_i - 1 - s_i)/theta^2, where s is theta t, or -theta t if beta is
// zero. The error is about eps (d + sum_i |s_i|)/theta^2 and the result's own.
static bool quick_axis_sum(int d, const Lane* t, const Point& point, Lane* sum) {
  constexpr double SMALLEST = 0.05, LARGEST_EXPONENT = 700.0;
  const double factor = point.alpha == 0.0 ? point.theta : -point.theta;
  Lane powers = {}, exponents = {}, largest = {};
  for (int i = 0; i < d; ++i) {
    const Lane exponent = factor * t[i];
    largest = maximum(largest, exponent);
    powers += exp_lane(exponent);
    exponents += exponent;
  }
  const Lane scaled = powers - (double)d - exponents;
  *sum = scaled * (1.0 / (point.theta * point.theta));
  return !any(~(scaled > SMALLEST * d) | ~(largest < LARGEST_EXPONENT));
}

// sum_i f(t_i) = [log prod_i (alpha u_i + beta)/theta - alpha sum_i t_i]/(alpha beta), u = e^(theta t):
// one logarithm for four eigenvalues. Its absolute error is about d eps/(alpha beta), so it serves
// only where the result is not small against that, and where four factors cannot overflow.
static bool quick_sum(int d, const Lane* t, const Point& point, Lane* sum) {
  constexpr double SMALLEST = 0.05, LARGEST_EXPONENT = 170.0, SMALLEST_SHARE = 1e-10;
  if (point.origin) {
    Lane total = {};
    for (int i = 0; i < d; ++i) total += t[i] * t[i];
    *sum = 0.5 * total;
    return true;
  }
  if (point.alpha == 0.0 || point.beta == 0.0) return quick_axis_sum(d, t, point, sum);
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
