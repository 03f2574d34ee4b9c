// f(t; alpha, beta) of divlearn.spectral for alpha, beta >= 0: the same rules and names, and
// a cheaper form of the sum over a spectrum for parameters and data that allow it.
#pragma once
#include "team.cuh"

struct Point {  // one (alpha, beta) with what depends on it alone
  double alpha, beta, theta, product;
  bool origin;

  INLINE Point(double a, double b)
      : alpha(a), beta(b), theta(a + b), product(a * b), origin(a == 0.0 && b == 0.0) {}
};

struct Scalar {
  double f, f_t, f_alpha, f_beta;
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
__device__ constexpr Series SERIES;

INLINE double horner(const double* coefficients, double x) {
  double sum = coefficients[TERMS - 1];
  for (int k = TERMS - 2; k >= 0; --k) sum = fma(sum, x, coefficients[k]);
  return sum;
}

// (e^x - 1 - x)/x^2; e^x overflows before chi does.
INLINE double chi(double x) {
  if (fabs(x) < 2.0) return horner(SERIES.chi, x);
  if (x <= 700.0) return (expm1(x) / x - 1.0) / x;
  const double root = exp(0.5 * x) / x;
  return root * root;
}

// (chi(x) - 1/2)/x.
INLINE double tau(double x, double chi_x) {
  return fabs(x) < 2.0 ? horner(SERIES.tau, x) : (chi_x - 0.5) / x;
}

// chi'(x) = ((x - 2) e^x + x + 2)/x^3.
INLINE double kappa(double x, double chi_x) {
  if (fabs(x) < 2.0) return horner(SERIES.kappa, x);
  const double inverse = 1.0 / x;
  if (x > 0.0) return (1.0 - 2.0 * inverse) * chi_x + inverse;
  return ((1.0 - 2.0 * inverse) * exp(x) + 1.0 + 2.0 * inverse) * inverse * inverse;
}

// (w - log(1 + w))/w^2, w > -1: by the series of atanh near 0, whose terms are all positive.
INLINE double log_second_remainder(double w) {
  if (fabs(w) > 0.5) return (1.0 - log1p(w) / w) / w;
  const double v = w / (2.0 + w), square = v * v;
  double sum = 1.0 / 37.0;
  for (int k = 16; k >= 0; --k) sum = fma(sum, square, 1.0 / (2 * k + 3));
  const double third = 0.25 * (1.0 - v) * (1.0 + (1.0 - v) * (1.0 - v) * sum);
  return 0.5 - w * third;
}

// d/dz log(1 + z)/z, z > -1.
INLINE double log_mean_slope(double z) {
  if (fabs(z) <= 0.5) return log_second_remainder(z) - 1.0 / (1.0 + z);
  return (1.0 / (1.0 + z) - log1p(z) / z) / z;
}

// Canonical arguments, t, alpha, beta >= 0, and quantities that all rules use.
struct Canonical {
  double t, alpha, beta, theta, a, b, s, decay;  // s = theta t, decay = e^-s

  // log(a + b e^-s), also where e^-s is below the range of normal numbers.
  INLINE double log_mixture() const {
    const double mixture = a + b * decay;
    if (mixture > 1e-290) return log(mixture);
    const double first = a > 0.0 ? log(fmax(a, 1e-307)) : -1e300;
    const double second = b > 0.0 ? log(fmax(b, 1e-307)) - s : -1e300;
    const double larger = fmax(first, second);
    return larger + log1p(exp(fmin(first, second) - larger));
  }
};

// For p >= 2 and q <= p: f = (t + log(1 + w)/beta)/alpha with w in [-1/2, 0].
INLINE Scalar decaying(const Canonical& x, bool with_parameters) {
  const double drop = x.decay - 1.0, w = x.b * drop, inverse = 1.0 / x.alpha;
  const double remainder = log_second_remainder(w), scale = 1.0 / x.theta;
  Scalar out = {};
  out.f = (x.t + drop * scale * (1.0 - w * remainder)) * inverse;
  if (!with_parameters) return out;
  const double gap = 1.0 / (1.0 + w);
  out.f_alpha = ((1.0 - (1.0 + x.s) * x.decay) * gap * scale * scale - out.f) * inverse;
  const double rate = drop * drop * remainder - x.decay * (x.s - 1.0 + x.decay) * gap;
  out.f_beta = rate * scale * scale * inverse;
  return out;
}

// For q > 5 and z > 1 (see `moderate`): f = (t + log(a + b e^-s)/beta)/alpha.
INLINE Scalar growing(const Canonical& x, double log_mixture, bool with_parameters) {
  const double gain = x.t + log_mixture / x.beta, inverse = 1.0 / x.alpha;
  Scalar out = {};
  out.f = gain * inverse;
  if (!with_parameters) return out;
  const double share = exp(-x.s - log_mixture), rest = 1.0 - x.b * share;
  const double rate = rest * (1.0 - (1.0 + x.s) * x.decay) / x.theta;
  out.f_alpha = (rate - gain) * inverse * inverse;
  const double spread = x.b * (x.beta * x.t * share + rest * (1.0 - x.decay));
  out.f_beta = -(log_mixture + spread) * inverse / x.beta / x.beta;
  return out;
}

// Elsewhere: f = t^2 m log(1 + z)/z, where m = b chi(q) + a chi(-p) > 0 and z = p q m.
INLINE Scalar moderate(const Canonical& x, bool with_parameters) {
  const double t = x.t, p = x.alpha * t, q = x.beta * t;
  const double chi_q = chi(q), chi_p = chi(-p), m = x.b * chi_q + x.a * chi_p;
  const double weighted = p == 0.0 ? 0.0 : p * m;  // 0 on the axis, even if m is infinite
  const double z = q * weighted;
  Scalar out = {};
  out.f = t * (t * m * (z == 0.0 ? 1.0 : log1p(z) / z));
  if (!with_parameters) return out;
  const double rate = m * log_mean_slope(z), inverse = 1.0 / (1.0 + z);
  const double third = x.b * tau(q, chi_q) + x.a * tau(-p, chi_p);
  const double along_p = q * m * rate - (x.a * kappa(-p, chi_p) + x.b * third) * inverse;
  double along_q = (x.b * kappa(q, chi_q) + (x.a == 0.0 ? 0.0 : x.a * third)) * inverse;
  if (weighted != 0.0) along_q += weighted * rate;
  out.f_alpha = t * (t * (t * along_p));
  out.f_beta = t * (t * (t * along_q));
  return out;
}

// (1 - e^-s)/(theta (a + b e^-s)).
INLINE double slope(const Canonical& x) {
  const double rise = x.s < 2.0 ? x.t * (1.0 - x.s * horner(SERIES.chi, -x.s))
                                : (1.0 - x.decay) / x.theta;
  if (x.s <= 600.0) return rise / (x.a + x.b * x.decay);
  // The mixture may be below the range while its quotient is not.
  const double root = exp(-0.5 * x.log_mixture());
  return rise * root * root;
}

// The careful form: right next to the axes, at the origin, for t near 0 and for |t| to 700.
__device__ __noinline__ Scalar evaluate(double t, Point point, bool with_slope,
                                        bool with_parameters) {
  Scalar out = {};
  if (point.origin) {
    out.f = 0.5 * t * t;
    out.f_t = t;
    out.f_beta = t * t * t * (1.0 / 6.0);
    out.f_alpha = -out.f_beta;
    return out;
  }
  // f(t; alpha, beta) = f(-t; beta, alpha): everything below has t >= 0.
  const bool swapped = t < 0.0;
  Canonical x;
  x.theta = point.theta;
  x.t = fabs(t);
  x.alpha = swapped ? point.beta : point.alpha;
  x.beta = swapped ? point.alpha : point.beta;
  x.a = x.alpha / point.theta;
  x.b = x.beta / point.theta;
  if (x.alpha > 0.0) x.a = fmax(x.a, 1e-307);
  x.s = point.theta * x.t;
  x.decay = exp(-x.s);
  const double p = x.alpha * x.t, q = x.beta * x.t;
  double log_mixture = 0.0;
  bool grows = false;
  if (p >= 2.0 && q <= p) {
    out = decaying(x, with_parameters);
  } else {
    if (q > 5.0) {
      log_mixture = x.log_mixture();
      grows = q + log_mixture > LN2;
    }
    out = grows ? growing(x, log_mixture, with_parameters) : moderate(x, with_parameters);
  }
  if (with_slope) out.f_t = swapped ? -slope(x) : slope(x);
  if (swapped) {
    const double first = out.f_alpha;
    out.f_alpha = out.f_beta;
    out.f_beta = first;
  }
  return out;
}

// The same from u = e^(theta t) alone, one exponential and one logarithm: absolute errors of about
// eps/(alpha beta min(alpha, beta)), for parameters away from the axes.
INLINE Scalar evaluate_quickly(double t, const Point& point) {
  const double inverse_theta = 1.0 / point.theta, inverse_product = 1.0 / point.product;
  const double u = exp(point.theta * t), denominator = fma(point.alpha, u, point.beta);
  const double inverse = reciprocal(denominator), share = u * inverse;
  Scalar out;
  out.f_t = share - inverse;
  out.f = (log(denominator * inverse_theta) - point.alpha * t) * inverse_product;
  const double rise = point.alpha * t * share - inverse_theta;
  out.f_alpha = (rise + share - t) * inverse_product - out.f / point.alpha;
  out.f_beta = (rise + inverse) * inverse_product - out.f / point.beta;
  return out;
}

// Whether `evaluate_quickly` serves a whole spectrum, given its sum of f and its largest |t|.
INLINE bool quick_enough(const Point& point, double sum, double extent) {
  constexpr double LEAST_PARAMETER = 0.25, LARGEST_RATIO = 4.0;
  constexpr double SMALLEST = 0.1, LARGEST_EXPONENT = 300.0;
  const double least = fmin(point.alpha, point.beta);
  return least >= LEAST_PARAMETER && point.theta <= (1.0 + LARGEST_RATIO) * least &&
         sum * point.product > SMALLEST * D && extent * point.theta < LARGEST_EXPONENT;
}
