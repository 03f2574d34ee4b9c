// Spectra of blocks of lanes against one atom: the fast route, its complement by the inverse where
// eigenvalues span too much for it, and one-sided Jacobi where that does not do either.
#pragma once
#include "eigenvalues.hpp"
#include "inverse.hpp"
#include "jacobi.hpp"

namespace DIVLEARN_ISA {

// t = log of `values` * 2^exponent, exact in the power of two wherever that stays a normal number.
DIVLEARN_INLINE void log_spectrum(int d, const Lane* values, int stride, Lane exponent, Lane* t) {
  if (any(~(absolute(exponent) < 900.0))) {
    for (int i = 0; i < d; ++i) t[i] = log_lane(values[i * stride]) + exponent * LN2;
    return;
  }
  const Lane factor = power_of_two(exponent);
  for (int i = 0; i < d; ++i) t[i] = log_lane(values[i * stride] * factor);
}

DIVLEARN_INLINE Lane pair_exponent(const Data& data, int64_t group, const Atoms& atoms, int atom) {
  return load(data.exponent + group * W) - atoms.exponent[atom];
}

DIVLEARN_INLINE const Lane* group_of(const double* packed, int64_t group, int d) {
  return (const Lane*)packed + group * packed_size(d);
}

DIVLEARN_INLINE const double* whitener_of(const Atoms& atoms, int atom, int d) {
  return atoms.whitener + (size_t)atom * d * d;
}

// True where the eigenvalues of A alone cannot be trusted: not positive, NaN, or a ratio of them whose
// inverse comes near the rounding error of the largest.
DIVLEARN_INLINE bool ill_conditioned(int d, const Lane* values, int stride, double limit) {
  Lane largest = values[0], least = values[0];
  for (int i = 1; i < d; ++i) {
    largest = maximum(largest, values[i * stride]);
    least = minimum(least, values[i * stride]);
  }
  Mask bad = ~(least > 0.0) | ~(largest <= limit * least);
  for (int i = 0; i < d; ++i) bad |= values[i * stride] != values[i * stride];
  return any(bad);
}

struct AccurateResult {
  bool ok;
  Lane* columns;  // orthogonal, |column j|^2 = values[j]
  Lane* values;
  Lane exponent;  // eigenvalues are values * 2^exponent
};

constexpr size_t accurate_lanes(size_t d) { return d * (d + 1) / 2 + d * d + d; }

static AccurateResult accurate(const Data& data, int64_t group, const Atoms& atoms, int atom,
                               Lane* scratch) {
  const int d = data.d;
  Lane *G = scratch, *columns = G + packed_size(d), *values = columns + (size_t)d * d;
  whiten(d, whitener_of(atoms, atom, d), group_of(data.factor, group, d), G);
  const Lane exponent = unpack_columns(d, G, columns);
  const bool converged = one_sided_jacobi(d, columns, values);
  bool positive = true;
  for (int i = 0; i < d; ++i) positive &= !any(~(values[i] > 0.0));
  return {converged && positive, columns, values,
          2.0 * exponent + pair_exponent(data, group, atoms, atom)};
}

constexpr int GROUPS = W == 8 ? 6 : W == 4 ? 8 : 4;  // of lanes, whose QL sweeps are interleaved
constexpr int NARROW = 2;  // the same where few are left: padding would cost as much as data

// A = L_B^-1 X L_B^-T, or its inverse, as Q T Q^T for one group: reflectors in A and scale, T scaled
// to about norm 1. Returns the exponent taken out of T; work: 3 d lanes.
template <bool INVERSE = false>
static Lane reduce_group(const Data& data, int64_t group, const Atoms& atoms, int atom, Lane* A,
                         Lane* diagonal, Lane* off_diagonal, Lane* scale, Lane* work) {
  const int d = data.d;
  whiten(d, whitener_of(atoms, atom, d), group_of(data.factor, group, d), A);
  if (INVERSE)
    inverse_gram(d, A, work);
  else
    gram(d, A);
  tridiagonalize(d, A, diagonal, off_diagonal, scale, work);
  return normalize(d, diagonal, off_diagonal);
}

// Joins the sorted eigenvalues of A and of its inverse, given with the exponents taken out of them.
// `cut` and the result as in join_sides.
static Lane join_scaled(int d, Lane exponent, Lane inverse_exponent, Lane* inverse, Lane* values,
                        Lane* cut) {
  const Lane shift = exponent + inverse_exponent;
  if (any(~(absolute(shift) < 900.0))) return fill(__builtin_inf());
  const Lane factor = power_of_two(shift);
  for (int i = 0; i < d; ++i) inverse[i] *= factor;
  return join_sides(d, inverse, values, cut);
}

// The factor of eps by which factorizing X and B has moved the eigenvalues already, or less; work:
// 2 d lanes. Routes that add no more than that are good enough. It is small for graded matrices.
static Lane inherited_error(const Data& data, int64_t group, const Atoms& atoms, int atom, Lane* work) {
  const int d = data.d;
  const double* packed = atoms.matrix + atom * packed_size(d);
  const Lane error = (double)d * scaled_condition(d, group_of(data.factor, group, d), work) +
                     scaled_condition(d, packed, whitener_of(atoms, atom, d));
  return minimum(error, fill(1.0 / EPS));
}

// Tridiagonal matrices of K groups, GROUPS or NARROW, interleaved as the QL iteration takes them.
struct Interleaved {
  const int K;
  Lane *diagonal, *squared, *values;

  static size_t lanes(int d, int K) { return 3 * (size_t)K * (d + 1); }

  Interleaved(int d, int K, Lane* scratch)
      : K(K), diagonal(scratch), squared(diagonal + K * (d + 1)), values(squared + K * (d + 1)) {}

  Lane* end(int d) const { return values + K * (d + 1); }

  void put(int d, int g, const Lane* from, const Lane* off_diagonal) {
    for (int i = 0; i < d; ++i) {
      diagonal[i * K + g] = from[i];
      squared[i * K + g] = i + 1 < d ? off_diagonal[i] * off_diagonal[i] : Lane{};
    }
  }

  // Fills the places that are not `present` (bit g) with a group that is: they converge in step.
  void pad(int d, unsigned present) {
    const int source = __builtin_ctz(present);
    for (int g = 0; g < K; ++g)
      for (int i = 0; i < d && !(present >> g & 1u); ++i) {
        diagonal[i * K + g] = diagonal[i * K + source];
        squared[i * K + g] = squared[i * K + source];
      }
  }

  void take_sorted(int d, int g, Lane* out) const {
    for (int i = 0; i < d; ++i) out[i] = values[i * K + g];
    sort_lanes(d, out);
  }

  bool solve(int d) {
    return K == GROUPS ? rational_ql<GROUPS>(d, diagonal, squared, values)
                       : rational_ql<NARROW>(d, diagonal, squared, values);
  }
};

static size_t spectra_lanes(int d) {
  return packed_size(d) + 8 * (size_t)d + 2 * Interleaved::lanes(d, GROUPS) + accurate_lanes(d);
}

// Spectra of up to GROUPS groups against one atom: t[g * d + i]. Bit g of the result says group g failed.
static unsigned block_spectra(const Data& data, int64_t first, int groups, const Atoms& atoms,
                              int atom, double limit, Lane* scratch, Lane* t) {
  const int K = groups > NARROW ? GROUPS : NARROW;
  const int d = data.d;
  Lane *A = scratch, *diagonal = A + packed_size(d), *off = diagonal + d, *scale = off + d;
  Lane *work = scale + d, *sorted = work + 3 * d, *sorted_inverse = sorted + d;
  Interleaved block(d, K, sorted_inverse + d);
  Interleaved inverse(d, K, block.end(d));
  Lane* rest = inverse.end(d);
  Lane exponent[GROUPS], inverse_exponent[GROUPS];
  unsigned waiting = (1u << groups) - 1u;
  bool converged = limit > 0.0;
  if (converged) {
    for (int g = 0; g < groups; ++g) {
      exponent[g] = reduce_group(data, first + g, atoms, atom, A, diagonal, off, scale, work);
      block.put(d, g, diagonal, off);
    }
    block.pad(d, waiting);
    converged = block.solve(d);
  }
  for (int g = 0; converged && g < groups; ++g) {
    if (ill_conditioned(d, block.values + g, K, limit)) continue;
    const Lane shift = exponent[g] + pair_exponent(data, first + g, atoms, atom);
    log_spectrum(d, block.values + g, K, shift, t + (size_t)g * d);
    waiting &= ~(1u << g);
  }
  if (!waiting) return 0;
  if (converged) {
    for (int g = 0; g < groups; ++g) {
      if (!(waiting >> g & 1u)) continue;
      inverse_exponent[g] =
          reduce_group<true>(data, first + g, atoms, atom, A, diagonal, off, scale, work);
      inverse.put(d, g, diagonal, off);
    }
    inverse.pad(d, waiting);
    converged = inverse.solve(d);
  }
  unsigned failures = 0;
  for (int g = 0; g < groups; ++g) {
    if (!(waiting >> g & 1u)) continue;
    Lane *spectrum = t + (size_t)g * d, cut;
    if (converged) {
      block.take_sorted(d, g, sorted);
      inverse.take_sorted(d, g, sorted_inverse);
      const Lane error =
          join_scaled(d, exponent[g], inverse_exponent[g], sorted_inverse, sorted, &cut);
      if (!any(~(error <= inherited_error(data, first + g, atoms, atom, work)))) {
        const Lane shift = exponent[g] + pair_exponent(data, first + g, atoms, atom);
        log_spectrum(d, sorted, 1, shift, spectrum);
        continue;
      }
    }
    const AccurateResult result = accurate(data, first + g, atoms, atom, rest);
    if (!result.ok) failures |= 1u << g;
    log_spectrum(d, result.values, 1, result.exponent, spectrum);
  }
  return failures;
}

// Tasks are (block of groups, atom), block outermost: a block's factors stay in the cache.
static int64_t spectra(const Data& data, const Atoms& atoms, const Options& options, double* out) {
  constexpr int K = GROUPS;
  const int d = data.d;
  const int64_t groups = group_count(data.count), blocks = (groups + K - 1) / K;
  const size_t own = spectra_lanes(d);
  int64_t failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task(blocks * atoms.count, options.threads, own + (size_t)K * d, interruption,
                [&](int64_t task, Lane* scratch) {
    const int64_t first = task / atoms.count * K;
    const int atom = (int)(task % atoms.count);
    const int here = (int)(groups - first < K ? groups - first : K);
    Lane* block = scratch + own;
    const unsigned failed = block_spectra(data, first, here, atoms, atom,
                                          options.condition_limit, scratch, block);
    if (failed) {
      const int64_t count = mark_failures(failed, first, atom, atoms.count, options);
#pragma omp atomic
      failures += count;
    }
    for (int g = 0; g < here; ++g) {
      Lane* t = block + (size_t)g * d;
      sort_lanes(d, t);
      for (int w = 0; w < W && (first + g) * W + w < data.count; ++w)
        for (int i = 0; i < d; ++i)
          out[((size_t)((first + g) * W + w) * atoms.count + atom) * d + i] = t[i][w];
    }
  });
  return failures;
}

}  // namespace DIVLEARN_ISA
