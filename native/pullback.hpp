// Gradients, summed over the data: eigenvectors exist a few at a time, sums one per atom and chunk.
#pragma once
#include "eigenvectors.hpp"
#include "encode.hpp"

namespace DIVLEARN_ISA {

constexpr int TILE = W == 8 ? 4 : 2;  // eigenvectors at a time
constexpr int LARGE = 64;  // dimension from which a block of GROUPS with its reflectors leaves the cache

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
  void weigh(long group, const Lane* t, Lane* weight) {
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
  Lane cotangent_of(long group, int pair) const {
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
static void add_eigenvectors(int d, const Lane* A, const Lane* scale, const Lane* diagonal,
                             const Lane* off_diagonal, const Lane* eigenvalues, const Lane* weight,
                             Lane* scratch, Lane* total) {
  Lane *tile = scratch, *work = tile + (size_t)d * TILE;
  Lane* basis = work + 2 * (size_t)d * TILE;
  for (int k = 0; k < d; k += TILE) {
    Lane values[TILE], weights[TILE];
    for (int c = 0; c < TILE; ++c) {
      values[c] = eigenvalues[k + c < d ? k + c : d - 1];
      weights[c] = k + c < d ? weight[k + c] : Lane{};
    }
    twisted_vectors<TILE>(d, diagonal, off_diagonal, values, tile, work);
    for (int c = 0; c < TILE; ++c) {
      if (k + c < d)
        settle_vector<TILE>(d, k + c, Clusters::first_neighbour(eigenvalues, k + c), tile, c, basis);
      else  // a repeated column: keep it finite, its weight is zero
        for (int i = 0; i < d; ++i) tile[i * TILE + c] = Lane{};
    }
    apply_reflectors<TILE>(d, A, scale, tile);
    add_outer_products<TILE>(d, tile, weights, total);
  }
}

constexpr size_t eigenvector_lanes(size_t d) { return 3 * d * TILE + d * d; }

static bool add_accurate(const Data& data, long group, const Atoms& atoms, int atom, Lane* scratch,
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

template <int K>
struct BlockPullback {
  static size_t lanes(int d) {
    const size_t direct = eigenvector_lanes(d) + 2 * (size_t)d;
    const size_t careful = accurate_lanes(d) + 4 * (size_t)d;
    return K * (packed_size(d) + 3 * (size_t)d) + 4 * (size_t)d + Interleaved<K>::lanes(d) +
           (direct > careful ? direct : careful);
  }

  // Adds groups [first, first + groups) to the totals; bit g of the result says group g failed.
  static unsigned add(const Data& data, long first, int groups, const Atoms& atoms, int atom,
                      double limit, Lane* scratch, Totals& totals) {
    if (K > NARROW && groups <= NARROW)
      return BlockPullback<NARROW>::add(data, first, groups, atoms, atom, limit, scratch, totals);
    const int d = data.d;
    const size_t size = packed_size(d), stride = size + 3 * (size_t)d;
    Lane* reduced = scratch;  // per group: A, diagonal, off-diagonal, scale
    Lane *work = reduced + K * stride, *sorted = work + 3 * d;
    Interleaved<K> block(d, sorted + d);
    Lane* rest = sorted + d + Interleaved<K>::lanes(d);
    Lane exponent[K];
    bool converged = limit > 0.0;
    if (converged) {
      for (int g = 0; g < groups; ++g) {
        Lane *A = reduced + g * stride, *diagonal = A + size, *off = diagonal + d;
        exponent[g] = reduce_group(data, first + g, atoms, atom, A, diagonal, off, off + d, work);
        block.put(d, g, diagonal, off);
      }
      block.pad(d, (1u << groups) - 1u);
      converged = block.solve(d);
    }
    unsigned failures = 0;
    for (int g = 0; g < groups; ++g) {
      if (converged) {
        for (int i = 0; i < d; ++i) sorted[i] = block.values[i * K + g];
        sort_lanes(d, sorted);
      }
      if (!converged || ill_conditioned(d, sorted, 1, limit) || Clusters::degenerate(d, sorted)) {
        if (!add_accurate(data, first + g, atoms, atom, rest, totals)) failures |= 1u << g;
        continue;
      }
      Lane *t = rest, *weight = t + d;
      const Lane *A = reduced + g * stride, *diagonal = A + size, *off = diagonal + d;
      log_spectrum(d, sorted, 1, exponent[g] + pair_exponent(data, first + g, atoms, atom), t);
      totals.weigh(first + g, t, weight);
      add_eigenvectors(d, A, off + d, diagonal, off, sorted, weight, weight + d, totals.matrix);
    }
    return failures;
  }
};

// Tasks are (atom, chunk of the data); a chunk's sums are added in a fixed order.
template <int K>
static long pullback_blocks(const Data& data, const Atoms& atoms, const Parameters& parameters,
                            const Options& options, const double* cotangent,
                            const PullbackOutput& out) {
  const int d = data.d;
  const long groups = group_count(data.count);
  const size_t sums = Totals::lanes(d, parameters.per_atom);
  long failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task((long)atoms.count * out.chunks, options.threads, sums + BlockPullback<K>::lanes(d),
                interruption, [&](long task, Lane* scratch) {
    const int atom = (int)(task / out.chunks), chunk = (int)(task % out.chunks);
    const long begin = groups * chunk / out.chunks, end = groups * (chunk + 1) / out.chunks;
    Totals totals(data, atoms, parameters, cotangent, out, atom, scratch);
    long count = 0;
    for (long first = begin; first < end && !interruption(); first += K) {
      const int here = (int)(end - first < K ? end - first : K);
      const unsigned failed = BlockPullback<K>::add(
          data, first, here, atoms, atom, options.condition_limit, scratch + sums, totals);
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

static long pullback(const Data& data, const Atoms& atoms, const Parameters& parameters,
                     const Options& options, const double* cotangent, const PullbackOutput& out) {
  return data.d < LARGE
             ? pullback_blocks<GROUPS>(data, atoms, parameters, options, cotangent, out)
             : pullback_blocks<NARROW>(data, atoms, parameters, options, cotangent, out);
}

static long pullback_logdet(const Data& data, const Atoms& atoms, const Parameters& parameters,
                            const Options& options, const double* cotangent,
                            const PullbackOutput& out) {
  const int d = data.d;
  const long groups = group_count(data.count);
  const size_t size = packed_size(d), sums = Totals::lanes(d, 1);
  long failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task((long)atoms.count * out.chunks, options.threads, sums + size + d, interruption,
                [&](long task, Lane* scratch) {
    const int atom = (int)(task / out.chunks), chunk = (int)(task % out.chunks);
    const long begin = groups * chunk / out.chunks, end = groups * (chunk + 1) / out.chunks;
    Totals totals(data, atoms, parameters, cotangent, out, atom, scratch);
    Lane *N = scratch + sums, *inverse_diagonal = N + size;
    const double alpha = parameters.alpha[atom], beta = parameters.beta[atom];
    for (long group = begin; group < end; ++group) {
      const Lane exponent = pair_exponent(data, group, atoms, atom);
      if (any(~(absolute(exponent) < EXPONENT_LIMIT))) {
        const long count = mark_failures(1u, group, atom, atoms.count, options);
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
