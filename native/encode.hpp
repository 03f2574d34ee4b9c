// Values: from spectra, or from log-determinants where alpha + beta = 1.
#pragma once
#include "plane.hpp"
#include "spectra.hpp"

namespace DIVLEARN_ISA {

// alpha + beta = 1: log-determinants alone.
static bool on_logdet_line(const Data& data, const Parameters& parameters, int atom) {
  const double alpha = parameters.alpha[atom], beta = parameters.beta[atom];
  return parameters.per_atom == 1 && data.matrix && alpha > 0.0 && beta > 0.0 &&
         __builtin_fabs(alpha + beta - 1.0) <= EPS;
}

// It subtracts log-determinants: its error is absolute, about eps times the condition number. It
// serves where that is small against the result.
constexpr double SPREAD_LIMIT = 1e6, SMALLEST_RESULT = 0.005, EXPONENT_LIMIT = 400.0;

// As `largest_spread` of divlearn.tolerances: the root of the spread is what multiplies eps.
DIVLEARN_INLINE bool trusted(int d, Lane scaled_result, Lane spread, Lane exponent,
                             double condition_limit) {
  const double wide = 1e-3 * condition_limit;
  const double limit = wide * wide > SPREAD_LIMIT ? wide * wide : SPREAD_LIMIT;
  return !any(~(scaled_result > SMALLEST_RESULT * d) | ~(spread < limit) |
              ~(absolute(exponent) < EXPONENT_LIMIT));
}

// The Cholesky factor of N = alpha X + beta B, in units of 2^(exponent of B).
DIVLEARN_INLINE void mixed_cholesky(const Data& data, int64_t group, const Atoms& atoms, int atom,
                                    double alpha, double beta, Lane exponent, Lane* N,
                                    Lane* inverse_diagonal) {
  const size_t size = packed_size(data.d);
  const Lane* X = group_of(data.matrix, group, data.d);
  const double* B = atoms.matrix + atom * size;
  const Lane weight = alpha * power_of_two(exponent);
  const auto mixture = [&](int i, int j) {
    const int at = packed_row(i) + j;
    return weight * X[at] + beta * B[at];
  };
  cholesky(data.d, mixture, N, inverse_diagonal);
}

// D on theta = 1: [logdet N - alpha logdet X - beta logdet B]/(alpha beta).
static bool logdet_value(const Data& data, int64_t group, const Atoms& atoms, int atom, double alpha,
                         double beta, double condition_limit, Lane* scratch, Lane* value) {
  const int d = data.d;
  const Lane exponent = pair_exponent(data, group, atoms, atom);
  if (any(~(absolute(exponent) < EXPONENT_LIMIT))) return false;
  Lane *N = scratch, *inverse_diagonal = N + packed_size(d);
  mixed_cholesky(data, group, atoms, atom, alpha, beta, exponent, N, inverse_diagonal);
  // Scaled log-determinants; of the exponents only the difference is left, as alpha + beta = 1.
  const Lane logdet = logdet_from_inverse_diagonal(d, inverse_diagonal) -
                      alpha * load(data.logdet + group * W) - beta * atoms.logdet[atom];
  const Lane scaled = logdet - exponent * (alpha * d * LN2);
  *value = scaled * (1.0 / (alpha * beta));
  return trusted(d, scaled, load(data.spread + group * W) * atoms.spread[atom], exponent,
                 condition_limit);
}

static int64_t encode(const Data& data, const Atoms& atoms, const Parameters& parameters,
                   const Options& options, double* out) {
  constexpr int K = GROUPS;
  constexpr double ERRORS = 32.0;
  const int d = data.d, m = parameters.per_atom;
  const int64_t groups = group_count(data.count), blocks = (groups + K - 1) / K;
  const size_t own = spectra_lanes(d), spectra = (size_t)K * d;
  std::vector<Points> points;  // of every atom with several
  for (int atom = 0; m > 1 && atom < atoms.count; ++atom)
    points.emplace_back(m, parameters.alpha + (size_t)atom * m, parameters.beta + (size_t)atom * m);
  int64_t failures = 0;
  const auto write = [&](int64_t group, int atom, int pair, Lane value) {
    for (int w = 0; w < W && group * W + w < data.count; ++w)
      out[((size_t)(group * W + w) * atoms.count + atom) * m + pair] = value[w];
  };
  constexpr int RUN = 16;  // atoms per task: a group's data is read once for all of them
  const int64_t runs = (atoms.count + RUN - 1) / RUN;
  Interruption interruption(options.interrupted);
  for_each_task(blocks * runs, options.threads, own + spectra + Spectrum::lanes(d), interruption,
                [&](int64_t task, Lane* scratch) {
    const int64_t first = task / runs * K;
    const int here = (int)(groups - first < K ? groups - first : K);
    const int begin = (int)(task % runs) * RUN;
    const int end = begin + RUN < atoms.count ? begin + RUN : atoms.count;
    unsigned missing[RUN];  // bit g: group g of this atom waits for its spectrum
    for (int atom = begin; atom < end; ++atom) missing[atom - begin] = (1u << here) - 1u;
    for (int g = 0; g < here; ++g)
      for (int atom = begin; atom < end; ++atom) {
        Lane value;
        if (!on_logdet_line(data, parameters, atom) ||
            !logdet_value(data, first + g, atoms, atom, parameters.alpha[atom],
                          parameters.beta[atom], options.condition_limit, scratch, &value))
          continue;
        write(first + g, atom, 0, value);
        missing[atom - begin] &= ~(1u << g);
      }
    Lane* t = scratch + own;
    for (int atom = begin; atom < end; ++atom) {
      if (!missing[atom - begin]) continue;
      const unsigned failed =
          missing[atom - begin] & block_spectra(data, first, here, atoms, atom,
                                                options.condition_limit, scratch, t);
      if (failed) {
        const int64_t count = mark_failures(failed, first, atom, atoms.count, options);
#pragma omp atomic
        failures += count;
      }
      for (int g = 0; g < here; ++g) {
        if (!(missing[atom - begin] >> g & 1u)) continue;
        const Lane* own_t = t + (size_t)g * d;
        if (m == 1) {
          const Point point(parameters.alpha[atom], parameters.beta[atom]);
          write(first + g, atom, 0, divergence(d, own_t, point));
          continue;
        }
        Spectrum spectrum(d, own_t, ERRORS, t + spectra);
        for (const Points::Entry& one : points[atom])
          write(first + g, atom, one.place, spectrum.divergence(one.point));
      }
    }
  });
  return failures;
}

}  // namespace DIVLEARN_ISA
