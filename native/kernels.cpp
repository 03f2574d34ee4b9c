// The verbs of the engine on blocks of lanes. Compiled once per instruction set.
#include "kernels.hpp"

#include <new>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "eigenvalues.hpp"
#include "eigenvectors.hpp"
#include "jacobi.hpp"
#include "packed.hpp"
#include "scalar.hpp"
#include "tridiagonal.hpp"

namespace DIVLEARN_ISA {

using divlearn::Atoms;
using divlearn::Data;
using divlearn::Options;
using divlearn::Parameters;
using divlearn::PullbackOutput;

constexpr int TILE = W == 8 ? 4 : 2;        // eigenvectors at a time
constexpr int GROUPS = W == 8 ? 6 : 4;      // groups of lanes whose QL sweeps are interleaved
constexpr int NARROW = 2;                   // the same where few are left, or a block with its
constexpr int LARGE = 64;                   // reflectors would leave the cache, from this d on

DIVLEARN_INLINE long group_count(long count) { return (count + W - 1) / W; }
DIVLEARN_INLINE size_t packed_size(int d) { return (size_t)d * (d + 1) / 2; }

// Lets the calling thread ask whether to go on, and tells the others.
class Interruption {
 public:
  explicit Interruption(bool (*interrupted)()) : interrupted_(interrupted), stop_(0) {}
  bool operator()() {
#if defined(_OPENMP)
    const bool caller = omp_get_thread_num() == 0;
#else
    const bool caller = true;
#endif
    int stop;
#pragma omp atomic read
    stop = stop_;
    if (!stop && caller && interrupted_ && interrupted_()) {
      stop = 1;
#pragma omp atomic write
      stop_ = 1;
    }
    return stop != 0;
  }

 private:
  bool (*interrupted_)();
  int stop_;
};

// Runs body(task, scratch) for every task. Each thread has its own scratch; which thread takes a
// task never changes its result. Exceptions cannot leave a parallel region, so a failed allocation
// is remembered and thrown behind it.
template <class Body>
static void for_each_task(long tasks, int threads, size_t scratch_lanes, Interruption& interruption,
                          const Body& body) {
  bool failed = false;
#if defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
#pragma omp parallel num_threads(threads)
    {
      Scratch scratch(scratch_lanes);
      if (!scratch.ok()) {
#pragma omp atomic write
        failed = true;
      }
#pragma omp for schedule(dynamic, 1)
      for (long task = 0; task < tasks; ++task)
        if (scratch.ok() && !interruption()) body(task, scratch.base());
    }
    if (failed) throw std::bad_alloc();
    return;
  }
#endif
  (void)threads;
  (void)failed;
  Scratch scratch(scratch_lanes);
  if (!scratch.ok()) throw std::bad_alloc();
  for (long task = 0; task < tasks && !interruption(); ++task) body(task, scratch.base());
}

template <class Body>
static void for_each_task(long tasks, int threads, size_t scratch_lanes, const Body& body) {
  Interruption never(nullptr);
  for_each_task(tasks, threads, scratch_lanes, never, body);
}

// Marks the groups of a block that failed (bit g for group first + g); returns their number.
static long mark_failures(unsigned failed, long first, int atom, int atoms, const Options& options) {
  for (int g = 0; failed >> g; ++g)
    if (failed >> g & 1u) options.failed[(first + g) * atoms + atom] = 1;
  return __builtin_popcount(failed);
}

// ---------------------------------------------------------------- preparing data

static void load_group(long count, long group, int d, const double* matrices, Lane* packed) {
  for (int w = 0; w < W; ++w) {
    const long index = group * W + w < count ? group * W + w : count - 1;
    const double* source = matrices + (size_t)index * d * d;
    double* target = (double*)packed + w;
    for (int i = 0; i < d; ++i)
      for (int j = 0; j <= i; ++j) target[(packed_row(i) + j) * W] = source[(size_t)i * d + j];
  }
}

// Multiplies by 2^-e, e halfway between the exponents of the largest and the smallest diagonal
// entry: both factors and their squares then stay in range for any finite input that has them.
static Lane scale_group(int d, Lane* packed) {
  Lane largest = packed[0], smallest_entry = packed[0];
  for (int i = 1; i < d; ++i) {
    largest = maximum(largest, packed[packed_row(i) + i]);
    smallest_entry = minimum(smallest_entry, packed[packed_row(i) + i]);
  }
  const Lane middle = to_double(exponent_of(largest)) + to_double(exponent_of(smallest_entry));
  Lane exponent;
  for (int w = 0; w < W; ++w) exponent[w] = __builtin_floor(middle[w] * 0.5);
  Mask integer;
  for (int w = 0; w < W; ++w) integer[w] = (int64_t)exponent[w];
  const Mask half = integer / 2;  // 2^-e itself may not be a normal number
  const Lane factor = power_of_two(-half), rest = power_of_two(half - integer);
  for (size_t i = 0; i < packed_size(d); ++i) packed[i] = packed[i] * factor * rest;
  return exponent;
}

static long factor(long count, int d, const double* matrices, double* factor_out,
                   double* matrix_out, double* logdet, double* exponent, double* spread,
                   int threads) {
  const long groups = group_count(count);
  const size_t size = packed_size(d);
  long failed = count;
  for_each_task(groups, threads, d, [&](long group, Lane* inverse_diagonal) {
    Lane* packed = (Lane*)factor_out + group * size;
    load_group(count, group, d, matrices, packed);
    const Lane power = scale_group(d, packed);
    if (matrix_out) std::memcpy((Lane*)matrix_out + group * size, packed, size * sizeof(Lane));
    cholesky(d, [&](int i, int j) { return packed[packed_row(i) + j]; }, packed, inverse_diagonal);
    Lane largest = inverse_diagonal[0], least = inverse_diagonal[0];
    Mask good = inverse_diagonal[0] > 0.0;
    for (int i = 1; i < d; ++i) {
      good &= inverse_diagonal[i] > 0.0;
      largest = maximum(largest, inverse_diagonal[i]);
      least = minimum(least, inverse_diagonal[i]);
    }
    const Lane ratio = largest / least;
    store(logdet + group * W, logdet_from_inverse_diagonal(d, inverse_diagonal));
    store(exponent + group * W, power);
    store(spread + group * W, ratio * ratio);
    for (int w = 0; w < W; ++w)
      if (!good[w]) {
#pragma omp critical
        failed = group * W + w < failed ? group * W + w : failed;
      }
  });
  return failed < count ? failed : -1;
}

// ---------------------------------------------------------------- spectra of one group

// t = log of `values` * 2^exponent, exact in the power of two wherever that stays a normal number.
DIVLEARN_INLINE void log_spectrum(int d, const Lane* values, int stride, Lane exponent, Lane* t) {
  if (any(~(absolute(exponent) < 900.0))) {
    for (int i = 0; i < d; ++i) t[i] = log_lane(values[i * stride]) + exponent * LN2;
    return;
  }
  Mask integer;
  for (int w = 0; w < W; ++w) integer[w] = (int64_t)exponent[w];
  const Lane factor = power_of_two(integer);
  for (int i = 0; i < d; ++i) t[i] = log_lane(values[i * stride] * factor);
}

DIVLEARN_INLINE Lane pair_exponent(const Data& data, long group, const Atoms& atoms, int atom) {
  return load(data.exponent + group * W) - atoms.exponent[atom];
}

DIVLEARN_INLINE const Lane* group_of(const double* packed, long group, int d) {
  return (const Lane*)packed + group * packed_size(d);
}

DIVLEARN_INLINE const double* whitener_of(const Atoms& atoms, int atom, int d) {
  return atoms.whitener + (size_t)atom * d * d;
}

// True where the tridiagonal route cannot be trusted: not positive, NaN, or a ratio of eigenvalues
// whose inverse comes near the rounding error of the largest.
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

static AccurateResult accurate(const Data& data, long group, const Atoms& atoms, int atom,
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

// Spectra of up to K groups against one atom: t[g * d + i]. Bit g of the result says group g failed.
// A block with few groups left takes the narrow variant: padding would cost as much as data.
template <int K>
struct BlockSpectra {
  static size_t lanes(int d) {
    return packed_size(d) + 7 * (size_t)d + 3 * (size_t)K * (d + 1) + accurate_lanes(d);
  }

  static unsigned compute(const Data& data, long first, int groups, const Atoms& atoms, int atom,
                          double limit, Lane* scratch, Lane* t) {
    if (K > NARROW && groups <= NARROW)
      return BlockSpectra<NARROW>::compute(data, first, groups, atoms, atom, limit, scratch, t);
    const int d = data.d;
    Lane *A = scratch, *diagonal = A + packed_size(d), *off = diagonal + d, *scale = off + d;
    Lane* work = scale + d;
    Lane *blocked = work + 4 * d, *squared = blocked + K * (d + 1);
    Lane *values = squared + K * (d + 1), *rest = values + K * (d + 1);
    Lane exponent[K];
    for (int g = 0; g < K; ++g) {
      if (g >= groups) {  // repeat the last group: it converges in step with the others
        for (int i = 0; i < d; ++i) {
          blocked[i * K + g] = blocked[i * K + groups - 1];
          squared[i * K + g] = squared[i * K + groups - 1];
        }
        continue;
      }
      whiten(d, whitener_of(atoms, atom, d), group_of(data.factor, first + g, d), A);
      gram(d, A);
      tridiagonalize(d, A, diagonal, off, scale, work);
      exponent[g] = normalize(d, diagonal, off);
      for (int i = 0; i < d; ++i) {
        blocked[i * K + g] = diagonal[i];
        squared[i * K + g] = i + 1 < d ? off[i] * off[i] : Lane{};
      }
    }
    const bool converged = limit > 0.0 && rational_ql<K>(d, blocked, squared, values);
    unsigned failures = 0;
    for (int g = 0; g < groups; ++g) {
      Lane* spectrum = t + (size_t)g * d;
      if (converged && !ill_conditioned(d, values + g, K, limit)) {
        log_spectrum(d, values + g, K, exponent[g] + pair_exponent(data, first + g, atoms, atom),
                     spectrum);
        continue;
      }
      const AccurateResult result = accurate(data, first + g, atoms, atom, rest);
      if (!result.ok) failures |= 1u << g;
      log_spectrum(d, result.values, 1, result.exponent, spectrum);
    }
    return failures;
  }
};

// Tasks are (block of groups, atom), block outermost: a block's factors stay in the cache.
static long spectra(const Data& data, const Atoms& atoms, const Options& options, double* out) {
  constexpr int K = GROUPS;
  const int d = data.d;
  const long groups = group_count(data.count), blocks = (groups + K - 1) / K;
  const size_t own = BlockSpectra<K>::lanes(d);
  long failures = 0;
  Interruption interruption(options.interrupted);
  for_each_task(blocks * atoms.count, options.threads, own + (size_t)K * d, interruption,
                [&](long task, Lane* scratch) {
    const long first = task / atoms.count * K;
    const int atom = (int)(task % atoms.count);
    const int here = (int)(groups - first < K ? groups - first : K);
    Lane* block = scratch + own;
    const unsigned failed = BlockSpectra<K>::compute(data, first, here, atoms, atom,
                                                     options.condition_limit, scratch, block);
    if (failed) {
      const long count = mark_failures(failed, first, atom, atoms.count, options);
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

// ---------------------------------------------------------------- encode

// alpha + beta = 1: log-determinants alone.
static bool on_logdet_line(const Data& data, const Parameters& parameters, int atom) {
  const double alpha = parameters.alpha[atom], beta = parameters.beta[atom];
  return parameters.per_atom == 1 && data.matrix && alpha > 0.0 && beta > 0.0 &&
         __builtin_fabs(alpha + beta - 1.0) <= EPS;
}

// It subtracts log-determinants: its error is absolute, about eps times the condition number. It
// serves where that is small against the result.
constexpr double SPREAD_LIMIT = 1e6, SMALLEST_RESULT = 0.005, EXPONENT_LIMIT = 400.0;

DIVLEARN_INLINE bool trusted(int d, Lane scaled_result, Lane spread, Lane exponent) {
  return !any(~(scaled_result > SMALLEST_RESULT * d) | ~(spread < SPREAD_LIMIT) |
              ~(absolute(exponent) < EXPONENT_LIMIT));
}

DIVLEARN_INLINE Lane exact_power(Lane exponent) {
  Mask integer;
  for (int w = 0; w < W; ++w) integer[w] = (int64_t)exponent[w];
  return power_of_two(integer);
}

// The Cholesky factor of N = alpha X + beta B, in units of 2^(exponent of B).
DIVLEARN_INLINE void mixed_cholesky(const Data& data, long group, const Atoms& atoms, int atom,
                                    double alpha, double beta, Lane exponent, Lane* N,
                                    Lane* inverse_diagonal) {
  const size_t size = packed_size(data.d);
  const Lane* X = group_of(data.matrix, group, data.d);
  const double* B = atoms.matrix + atom * size;
  const Lane weight = alpha * exact_power(exponent);
  const auto mixture = [&](int i, int j) {
    const int at = packed_row(i) + j;
    return weight * X[at] + beta * B[at];
  };
  cholesky(data.d, mixture, N, inverse_diagonal);
}

// D on theta = 1: [logdet N - alpha logdet X - beta logdet B]/(alpha beta).
static bool logdet_value(const Data& data, long group, const Atoms& atoms, int atom, double alpha,
                         double beta, Lane* scratch, Lane* value) {
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
  return trusted(d, scaled, load(data.spread + group * W) * atoms.spread[atom], exponent);
}

static long encode(const Data& data, const Atoms& atoms, const Parameters& parameters,
                   const Options& options, double* out) {
  constexpr int K = GROUPS;
  const int d = data.d, m = parameters.per_atom;
  const long groups = group_count(data.count), blocks = (groups + K - 1) / K;
  const size_t own = BlockSpectra<K>::lanes(d);
  long failures = 0;
  const auto write = [&](long group, int atom, int pair, Lane value) {
    for (int w = 0; w < W && group * W + w < data.count; ++w)
      out[((size_t)(group * W + w) * atoms.count + atom) * m + pair] = value[w];
  };
  constexpr int RUN = 16;  // atoms per task: a group's data is read once for all of them
  const long runs = (atoms.count + RUN - 1) / RUN;
  Interruption interruption(options.interrupted);
  for_each_task(blocks * runs, options.threads, own + (size_t)K * d, interruption,
                [&](long task, Lane* scratch) {
    const long first = task / runs * K;
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
                          parameters.beta[atom], scratch, &value))
          continue;
        write(first + g, atom, 0, value);
        missing[atom - begin] &= ~(1u << g);
      }
    Lane* t = scratch + own;
    for (int atom = begin; atom < end; ++atom) {
      if (!missing[atom - begin]) continue;
      const unsigned failed =
          missing[atom - begin] & BlockSpectra<K>::compute(data, first, here, atoms, atom,
                                                           options.condition_limit, scratch, t);
      if (failed) {
        const long count = mark_failures(failed, first, atom, atoms.count, options);
#pragma omp atomic
        failures += count;
      }
      for (int g = 0; g < here; ++g) {
        if (!(missing[atom - begin] >> g & 1u)) continue;
        for (int pair = 0; pair < m; ++pair) {
          const Point point(parameters.alpha[atom * m + pair], parameters.beta[atom * m + pair]);
          write(first + g, atom, pair, divergence(d, t + (size_t)g * d, point));
        }
      }
    }
  });
  return failures;
}

// ---------------------------------------------------------------- pullback

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
  Lane* const matrix;

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
    return K * (packed_size(d) + 3 * (size_t)d) + 4 * (size_t)d + 3 * (size_t)K * (d + 1) +
           (size_t)d + (direct > careful ? direct : careful);
  }

  // Adds groups [first, first + groups) to the totals; bit g of the result says group g failed.
  static unsigned add(const Data& data, long first, int groups, const Atoms& atoms, int atom,
                 double limit, Lane* scratch, Totals& totals) {
    if (K > NARROW && groups <= NARROW)
      return BlockPullback<NARROW>::add(data, first, groups, atoms, atom, limit, scratch, totals);
    const int d = data.d;
    const size_t size = packed_size(d), stride = size + 3 * (size_t)d;
    Lane* reduced = scratch;  // per group: A, diagonal, off-diagonal, scale
    Lane *work = reduced + K * stride, *blocked = work + 4 * d;
    Lane *squared = blocked + K * (d + 1), *values = squared + K * (d + 1);
    Lane *sorted = values + K * (d + 1), *rest = sorted + d;
    Lane exponent[K];
    for (int g = 0; g < K; ++g) {
      if (g >= groups) {
        for (int i = 0; i < d; ++i) {
          blocked[i * K + g] = blocked[i * K + groups - 1];
          squared[i * K + g] = squared[i * K + groups - 1];
        }
        continue;
      }
      Lane *A = reduced + g * stride, *diagonal = A + size, *off = diagonal + d, *scale = off + d;
      whiten(d, whitener_of(atoms, atom, d), group_of(data.factor, first + g, d), A);
      gram(d, A);
      tridiagonalize(d, A, diagonal, off, scale, work);
      exponent[g] = normalize(d, diagonal, off);
      for (int i = 0; i < d; ++i) {
        blocked[i * K + g] = diagonal[i];
        squared[i * K + g] = i + 1 < d ? off[i] * off[i] : Lane{};
      }
    }
    const bool converged = limit > 0.0 && rational_ql<K>(d, blocked, squared, values);
    unsigned failures = 0;
    for (int g = 0; g < groups; ++g) {
      for (int i = 0; i < d; ++i) sorted[i] = values[i * K + g];
      if (converged) sort_lanes(d, sorted);
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
      add_transposed_gram(d, N, totals.cotangent_of(group, 0), totals.matrix);
    }
    totals.write(chunk);
  });
  return failures;
}

#define DIVLEARN_STRING_(x) #x
#define DIVLEARN_STRING(x) DIVLEARN_STRING_(x)
static const divlearn::Kernels TABLE = {DIVLEARN_STRING(DIVLEARN_ISA), W, factor, spectra, encode,
                                        pullback, pullback_logdet};

}  // namespace DIVLEARN_ISA

namespace divlearn {
#define DIVLEARN_JOIN_(a, b) a##b
#define DIVLEARN_JOIN(a, b) DIVLEARN_JOIN_(a, b)
const Kernels* DIVLEARN_JOIN(kernels_, DIVLEARN_ISA)() { return &DIVLEARN_ISA::TABLE; }
}  // namespace divlearn
