// Gradients, summed over the data: eigenvectors exist a few at a time, sums one per atom and chunk.
#pragma once
#include <optional>
#include <vector>

#include "clusters.hpp"
#include "encode.hpp"

namespace DIVLEARN_ISA {

// From dimension 64 on a block of GROUPS with its reflectors leaves the cache.
constexpr int block_size(int d) { return d < 64 ? GROUPS : NARROW; }

DIVLEARN_INLINE double sum_lanes(Lane x) {
  double sum = 0.0;
  for (int w = 0; w < W; ++w) sum += x[w];
  return sum;
}

// Derivatives beyond the range of floating-point numbers: sums of infinities would be NaN.
DIVLEARN_INLINE Lane saturate(Lane x) { return minimum(maximum(x, fill(-1e300)), fill(1e300)); }

// The sums of one (atom, chunk), with the scalar work on a spectrum.
class Totals {
 public:
  static size_t lanes(int d, int m) { return packed_size(d) + 2 * (size_t)m + (size_t)d; }

  Totals(const Data& data, const Atoms& atoms, const Parameters& parameters,
         const double* cotangent, const PullbackOutput& out, int atom, Lane* scratch)
      : data_(data), atoms_(atoms), parameters_(parameters), cotangent_(cotangent), out_(out),
        atom_(atom), matrix(scratch), alpha_(matrix + packed_size(data.d)),
        beta_(alpha_ + parameters.per_atom), slope_(beta_ + parameters.per_atom) {
    for (size_t i = 0; i < lanes(data.d, parameters.per_atom); ++i) scratch[i] = Lane{};
  }

  // weight[i] = sum over pairs of cotangent * f_t(t_i); adds up the parameters' gradients.
  void weigh(int64_t group, const Lane* t, Lane* weight) {
    const int d = data_.d, m = parameters_.per_atom;
    for (int i = 0; i < d; ++i) weight[i] = Lane{};
    for (int pair = 0; pair < m; ++pair) {
      const Point point(parameters_.alpha[atom_ * m + pair], parameters_.beta[atom_ * m + pair]);
      const Lane cotangent = cotangent_of(group, pair);
      Scalar sum = point.origin ? Scalar{} : add_up(d, t, point, evaluate_quickly);
      if (!quick_enough(d, t, point, sum.f))
        sum = out_.alpha ? add_up(d, t, point, evaluate<true, true>)
                         : add_up(d, t, point, evaluate<true, false>);
      const Mask counts = cotangent != 0.0;  // no weight, no share: 0 * inf must not spoil a sum
      for (int i = 0; i < d; ++i) weight[i] += counts ? cotangent * slope_[i] : Lane{};
      alpha_[pair] += counts ? cotangent * sum.f_alpha : Lane{};
      beta_[pair] += counts ? cotangent * sum.f_beta : Lane{};
      if (!out_.values) continue;
      for (int w = 0; w < W && group * W + w < data_.count; ++w)
        out_.values[((size_t)(group * W + w) * atoms_.count + atom_) * m + pair] = sum.f[w];
    }
  }

  // Padding has no weight.
  Lane cotangent_of(int64_t group, int pair) const {
    Lane c = {};
    for (int w = 0; w < W && group * W + w < data_.count; ++w)
      c[w] = cotangent_[((size_t)(group * W + w) * atoms_.count + atom_) * parameters_.per_atom +
                        pair];
    return c;
  }

  // Sums over a spectrum; the slopes f_t are kept one by one.
  template <class Evaluate>
  Scalar add_up(int d, const Lane* t, const Point& point, const Evaluate& function) {
    Scalar sum = {};
    for (int i = 0; i < d; ++i) {
      const Scalar scalar = function(t[i], point);
      slope_[i] = saturate(scalar.f_t);
      sum.f += scalar.f;
      sum.f_alpha += saturate(scalar.f_alpha);
      sum.f_beta += saturate(scalar.f_beta);
    }
    return sum;
  }

  void write(int chunk) const {
    const size_t size = packed_size(data_.d), slot = (size_t)atom_ * out_.chunks + chunk;
    const int m = parameters_.per_atom;
    for (size_t i = 0; i < size; ++i) out_.atoms[slot * size + i] = sum_lanes(matrix[i]);
    for (int pair = 0; out_.alpha && pair < m; ++pair) {
      out_.alpha[slot * m + pair] = sum_lanes(alpha_[pair]);
      out_.beta[slot * m + pair] = sum_lanes(beta_[pair]);
    }
  }

 private:
  const Data& data_;
  const Atoms& atoms_;
  const Parameters& parameters_;
  const double* cotangent_;
  const PullbackOutput& out_;
  const int atom_;

 public:
  Lane* const matrix;  // packed lower triangle: what the eigenvectors are added to

 private:
  Lane *const alpha_, *const beta_, *const slope_;
};

// total += Z diag(weight) Z^T with the eigenvectors of A = Q T Q^T, tile by tile: no more than TILE
// vectors of the full problem exist at a time.
static void add_eigenvectors(int d, const Reduced& reduced, const Lane* eigenvalues,
                             const Lane* weight, Lane* scratch, Lane* total) {
  Lane *tile = scratch, *work = tile + (size_t)d * TILE;
  Lane* basis = work + 2 * (size_t)d * TILE;
  for (int k = 0; k < d; k += TILE) {
    Lane values[TILE], weights[TILE];
    for (int c = 0; c < TILE; ++c) {
      values[c] = eigenvalues[k + c < d ? k + c : d - 1];
      weights[c] = k + c < d ? weight[k + c] : Lane{};
    }
    twisted_vectors<TILE>(d, reduced.diagonal, reduced.off_diagonal, values, tile, work);
    for (int c = 0; c < TILE; ++c) {
      if (k + c < d)
        settle_vector<TILE>(d, k + c, Clusters::first_neighbour(eigenvalues, k + c), tile, c, basis);
      else  // a repeated column: keep it finite, its weight is zero
        for (int i = 0; i < d; ++i) tile[i * TILE + c] = Lane{};
    }
    apply_reflectors<TILE>(d, reduced.A, reduced.scale, tile);
    add_outer_products<TILE>(d, tile, weights, total);
  }
}

constexpr size_t eigenvector_lanes(size_t d) { return 3 * d * TILE + d * d; }

// One side of a group: its tridiagonal form, what the QL iteration found, and the exponent.
struct Side {
  Reduced reduced;
  const Lane* found;  // entry i at i * stride
  int stride;
  Lane exponent;
};

constexpr size_t careful_lanes(size_t d) { return 2 * ClusteredVectors::lanes(d) + 5 * d; }

// The sum where eigenvalues are close together, or too far apart for A alone: then with its inverse.
static bool add_carefully(const Data& data, int64_t group, const Atoms& atoms, int atom,
                          const Side& direct, const Side* inverse, Lane* scratch, Totals& totals) {
  const int d = data.d;
  Lane *t = scratch, *weight = t + d, *work = weight + d;
  Mask* common = (Mask*)(work + 2 * d);
  Lane* vectors = work + 3 * d;
  const Side& other = inverse ? *inverse : direct;
  ClusteredVectors upper(d, direct.reduced, direct.found, direct.stride, vectors);
  ClusteredVectors lower(d, other.reduced, other.found, other.stride,
                         vectors + ClusteredVectors::lanes(d));
  for (int i = 0; i < d; ++i) {
    t[i] = upper.values[i];
    weight[i] = lower.values[i];
  }
  Lane cut = {};
  const Lane error = inverse ? join_scaled(d, direct.exponent, inverse->exponent, weight, t, &cut)
                             : t[d - 1] * reciprocal(t[0]);
  const Lane inherited = inherited_error(data, group, atoms, atom, work);
  if (inverse && any(~(error <= inherited))) return false;
  log_spectrum(d, t, 1, direct.exponent + pair_exponent(data, group, atoms, atom), t);
  longest_run(d, t, EPS * (error + 0.25 * inherited), common);
  for (int i = 0; i < d; ++i) {
    const Mask below = cut > (double)i;
    upper.needed[i] = ~common[i] & ~below;
    lower.needed[d - 1 - i] = ~common[i] & below;
  }
  if (!upper.find() || !lower.find()) return false;

  totals.weigh(group, t, weight);
  Lane reference = {};
  for (int i = 0; i < d; ++i) reference = common[i] ? weight[i] : reference;
  for (int i = 0; i < d; ++i) {
    upper.weight[i] = lower.weight[d - 1 - i] = weight[i] - reference;
    totals.matrix[packed_row(i) + i] += reference;
  }
  upper.add(totals.matrix);
  lower.add(totals.matrix);
  return true;
}

static bool add_accurate(const Data& data, int64_t group, const Atoms& atoms, int atom, Lane* scratch,
                         Totals& totals) {
  const int d = data.d;
  Lane *t = scratch, *weight = t + d, *tile = weight + d, *rest = tile + 2 * d;
  const AccurateResult result = accurate(data, group, atoms, atom, rest);
  if (!result.ok) return false;
  log_spectrum(d, result.values, 1, result.exponent, t);
  totals.weigh(group, t, weight);
  for (int k = 0; k < d; k += 2) {
    Lane weights[2] = {};
    for (int c = 0; c < 2; ++c) {
      const int column = k + c < d ? k + c : d - 1;
      const Lane norm = reciprocal_root(result.values[column]);
      for (int i = 0; i < d; ++i) tile[i * 2 + c] = result.columns[column * d + i] * norm;
      if (k + c < d) weights[c] = weight[k + c];
    }
    add_outer_products<2>(d, tile, weights, totals.matrix);
  }
  return true;
}

static size_t pullback_lanes(int d, int K) {
  const size_t direct = eigenvector_lanes(d) + 2 * (size_t)d, careful = careful_lanes(d);
  const size_t accurate = accurate_lanes(d) + 4 * (size_t)d;
  const size_t most = direct > careful ? direct : careful;
  return 2 * K * Reduced::lanes(d) + 4 * (size_t)d + 2 * Interleaved::lanes(d, K) +
         (most > accurate ? most : accurate);
}

// Adds groups [first, first + groups) to their totals; bit g of the result says group g failed.
static unsigned add_block(const Data& data, int64_t first, int groups, const Atoms& atoms, int atom,
                          double limit, Lane* scratch, Totals* const* totals) {
  const int K = groups > NARROW ? GROUPS : NARROW;
  const int d = data.d;
  const size_t size = Reduced::lanes(d);
  Lane *work = scratch + 2 * K * size, *sorted = work + 3 * d;
  Interleaved block(d, K, sorted + d);
  Interleaved inverse(d, K, block.end(d));
  Lane* rest = inverse.end(d);
  Lane exponent[GROUPS], inverse_exponent[GROUPS];
  const auto reduced = [&](int g) { return Reduced(d, scratch + g * size); };
  const auto reduced_inverse = [&](int g) { return Reduced(d, scratch + (K + g) * size); };

  unsigned waiting = (1u << groups) - 1u, wide = 0;
  bool converged = limit > 0.0;
  if (converged) {
    for (int g = 0; g < groups; ++g) {
      const Reduced r = reduced(g);
      exponent[g] = reduce_group(data, first + g, atoms, atom, r.A, r.diagonal, r.off_diagonal,
                                 r.scale, work);
      block.put(d, g, r.diagonal, r.off_diagonal);
    }
    block.pad(d, waiting);
    converged = block.solve(d);
  }
  for (int g = 0; converged && g < groups; ++g) {
    block.take_sorted(d, g, sorted);
    if (ill_conditioned(d, sorted, 1, limit)) wide |= 1u << g;
    if ((wide >> g & 1u) || Clusters::degenerate(d, sorted)) continue;
    Lane *t = rest, *weight = t + d;
    log_spectrum(d, sorted, 1, exponent[g] + pair_exponent(data, first + g, atoms, atom), t);
    totals[g]->weigh(first + g, t, weight);
    add_eigenvectors(d, reduced(g), sorted, weight, weight + d, totals[g]->matrix);
    waiting &= ~(1u << g);
  }
  bool inverted = wide != 0;
  if (wide) {
    for (int g = 0; g < groups; ++g) {
      if (!(wide >> g & 1u)) continue;
      const Reduced r = reduced_inverse(g);
      inverse_exponent[g] = reduce_group<true>(data, first + g, atoms, atom, r.A, r.diagonal,
                                               r.off_diagonal, r.scale, work);
      inverse.put(d, g, r.diagonal, r.off_diagonal);
    }
    inverse.pad(d, wide);
    inverted = inverse.solve(d);
  }
  unsigned failures = 0;
  for (int g = 0; g < groups; ++g) {
    if (!(waiting >> g & 1u)) continue;
    const bool is_wide = wide >> g & 1u;
    if (converged && (inverted || !is_wide)) {
      const Side direct = {reduced(g), block.values + g, K, exponent[g]};
      const Side other = {reduced_inverse(g), inverse.values + g, K, inverse_exponent[g]};
      if (add_carefully(data, first + g, atoms, atom, direct, is_wide ? &other : nullptr, rest,
                        *totals[g]))
        continue;
    }
    if (!add_accurate(data, first + g, atoms, atom, rest, *totals[g])) failures |= 1u << g;
  }
  return failures;
}

// Tasks are (atom, chunk of the data); a chunk's sums are added in a fixed order.
static int64_t pullback(const Data& data, const Atoms& atoms, const Parameters& parameters,
                     const Options& options, const double* cotangent, const PullbackOutput& out) {
  const int d = data.d, K = block_size(d);
  const int64_t groups = group_count(data.count);
  const size_t sums = Totals::lanes(d, parameters.per_atom);
  int64_t failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task((int64_t)atoms.count * out.chunks, options.threads, sums + pullback_lanes(d, K),
                interruption, [&](int64_t task, Lane* scratch) {
    const int atom = (int)(task / out.chunks), chunk = (int)(task % out.chunks);
    const int64_t begin = groups * chunk / out.chunks, end = groups * (chunk + 1) / out.chunks;
    Totals totals(data, atoms, parameters, cotangent, out, atom, scratch);
    Totals* all[GROUPS];
    std::fill_n(all, GROUPS, &totals);
    int64_t count = 0;
    for (int64_t first = begin; first < end && !interruption(); first += K) {
      const int here = (int)(end - first < K ? end - first : K);
      const unsigned failed =
          add_block(data, first, here, atoms, atom, options.condition_limit, scratch + sums, all);
      if (failed) count += mark_failures(failed, first, atom, atoms.count, options);
    }
    totals.write(chunk);
    if (count) {
#pragma omp atomic
      failures += count;
    }
  });
  return failures;
}

// The log of every matrix, whitened by the first atom: what a gradient at (0, 0) adds up.
static int64_t logarithms(const Data& data, const Atoms& atoms, const Options& options, double* out) {
  const int d = data.d, K = block_size(d);
  const int64_t groups = group_count(data.count), blocks = (groups + K - 1) / K;
  const size_t size = packed_size(d), sums = Totals::lanes(d, 1);
  const std::vector<double> ones(groups * W, 1.0);
  const double zero = 0.0;
  const Parameters origin = {1, &zero, &zero};
  const PullbackOutput nothing = {};
  int64_t failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task(blocks, options.threads, K * sums + pullback_lanes(d, K), interruption,
                [&](int64_t task, Lane* scratch) {
    const int64_t first = task * K;
    const int here = (int)(groups - first < K ? groups - first : K);
    std::optional<Totals> totals[GROUPS];
    Totals* all[GROUPS];
    for (int g = 0; g < here; ++g)
      all[g] = &totals[g].emplace(data, atoms, origin, ones.data(), nothing, 0, scratch + g * sums);
    const unsigned failed =
        add_block(data, first, here, atoms, 0, options.condition_limit, scratch + K * sums, all);
    if (failed) {
      const int64_t count = mark_failures(failed, first, 0, 1, options);
#pragma omp atomic
      failures += count;
    }
    for (int g = 0; g < here; ++g)
      for (int w = 0; w < W && (first + g) * W + w < data.count; ++w)
        for (size_t i = 0; i < size; ++i)
          out[((first + g) * W + w) * size + i] = totals[g]->matrix[i][w];
  });
  return failures;
}

static int64_t pullback_logdet(const Data& data, const Atoms& atoms, const Parameters& parameters,
                            const Options& options, const double* cotangent,
                            const PullbackOutput& out) {
  const int d = data.d;
  const int64_t groups = group_count(data.count);
  const size_t size = packed_size(d), sums = Totals::lanes(d, 1);
  int64_t failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task((int64_t)atoms.count * out.chunks, options.threads, sums + size + d, interruption,
                [&](int64_t task, Lane* scratch) {
    const int atom = (int)(task / out.chunks), chunk = (int)(task % out.chunks);
    const int64_t begin = groups * chunk / out.chunks, end = groups * (chunk + 1) / out.chunks;
    Totals totals(data, atoms, parameters, cotangent, out, atom, scratch);
    Lane *N = scratch + sums, *inverse_diagonal = N + size;
    const double alpha = parameters.alpha[atom], beta = parameters.beta[atom];
    for (int64_t group = begin; group < end; ++group) {
      const Lane exponent = pair_exponent(data, group, atoms, atom);
      if (any(~(absolute(exponent) < EXPONENT_LIMIT))) {
        const int64_t count = mark_failures(1u, group, atom, atoms.count, options);
#pragma omp atomic
        failures += count;
        continue;
      }
      mixed_cholesky(data, group, atoms, atom, alpha, beta, exponent, N, inverse_diagonal);
      triangular_inverse(d, N, inverse_diagonal);
      transposed_gram(d, N);
      const Lane weight = totals.cotangent_of(group, 0);
      for (size_t i = 0; i < size; ++i) totals.matrix[i] += weight * N[i];
    }
    totals.write(chunk);
  });
  return failures;
}

}  // namespace DIVLEARN_ISA
