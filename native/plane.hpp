// Divergences of a spectrum t at several points (alpha, beta). Those of one theta = alpha + beta share
// the exponentials, and the logarithm of a product serves all of t.
#pragma once
#include <algorithm>
#include <vector>

#include "scalar.hpp"
#include "tasks.hpp"

namespace DIVLEARN_ISA {

// Points by theta, with their places among those that were given.
class Points {
 public:
  struct Entry {
    Point point;
    int place;
  };

  Points(int count, const double* alpha, const double* beta) {
    entries_.reserve(count);
    for (int k = 0; k < count; ++k) entries_.push_back({Point(alpha[k], beta[k]), k});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& one, const Entry& other) {
      return one.point.theta != other.point.theta ? one.point.theta < other.point.theta
                                                  : one.place < other.place;
    });
  }
  const Entry* begin() const { return entries_.data(); }
  const Entry* end() const { return entries_.data() + entries_.size(); }

 private:
  std::vector<Entry> entries_;
};

// (1 + x)(1 + y) - 1.
DIVLEARN_INLINE Lane join(Lane x, Lane y) { return x + y * (1.0 + x); }

// log prod_i (1 + share w_i), `factors` of them at a time, for factors from 1/2 on.
DIVLEARN_INLINE Lane log_product(int d, const Lane* w, double share, int factors) {
  Lane sum = {};
  for (int start = 0; start < d; start += factors) {
    const int stop = start + factors < d ? start + factors : d;
    Lane part[4] = {};  // chains that do not wait for each other
    int i = start;
    for (; i + 3 < stop; i += 4)
      for (int c = 0; c < 4; ++c) part[c] = join(part[c], share * w[i + c]);
    for (; i < stop; ++i) part[0] = join(part[0], share * w[i]);
    sum += log1p_lane(join(join(part[0], part[1]), join(part[2], part[3])));
  }
  return sum;
}

// A spectrum and what its divergences share.
class Spectrum {
 public:
  static int lanes(int d) { return 2 * d; }

  // Relative errors of about eps times `errors` are allowed.
  Spectrum(int d, const Lane* t, double errors, Lane* scratch)
      : d_(d), t_(t), errors_(errors), rise_(scratch), fall_(scratch + d) {
    for (int i = 0; i < d; ++i) {
      total_ += t[i];
      squares_ += t[i] * t[i];
      size_ += absolute(t[i]);
      extent_ = maximum(extent_, absolute(t[i]));
    }
    for (int w = 0; w < W; ++w) widest_ = extent_[w] > widest_ ? extent_[w] : widest_;
  }

  // Points come by theta.
  Lane divergence(const Point& point) {
    if (point.origin) return 0.5 * squares_;
    Lane sum;
    if (quickly(point, &sum)) return sum;
    sum = Lane{};
    for (int i = 0; i < d_; ++i) sum += evaluate<false, false>(t_[i], point).f;
    return sum;
  }

 private:
  // With s = theta t, sum_i f(t_i) = [sum_i log(1 + (e^s_i - 1) alpha/theta) - alpha sum_i t_i]/(alpha beta),
  // or the same of -t with alpha and beta swapped. The error is about eps times the smaller of alpha
  // and beta times sum_i |t_i|, over alpha beta, and the result's own.
  bool quickly(const Point& point, Lane* sum) {
    constexpr double LARGEST_EXPONENT = 700.0, SMALLEST_SHARE = 1e-100;
    if (any(~(extent_ * point.theta < LARGEST_EXPONENT))) return false;
    if (point.theta != theta_) prepare(point.theta);
    const bool falls = point.beta < point.alpha;
    const double least = falls ? point.beta : point.alpha;
    const Lane* w = falls ? fall_ : rise_;
    const Lane total = falls ? -total_ : total_;
    if (least == 0.0) {  // sum_i (e^s_i - 1 - s_i)/theta^2
      Lane powers = {};
      for (int i = 0; i < d_; ++i) powers += w[i];
      const Lane scaled = powers - point.theta * total;
      *sum = scaled * (1.0 / (point.theta * point.theta));
      return !any(~(errors_ * scaled > point.theta * size_));
    }
    if (!(least > SMALLEST_SHARE * point.theta)) return false;
    const double most = LARGEST_EXPONENT / (1.0 + point.theta * widest_);
    const int factors = most < 1.0 ? 1 : (most < d_ ? (int)most : d_);
    const Lane scaled = log_product(d_, w, least / point.theta, factors) - least * total;
    *sum = scaled * (1.0 / point.product);
    return !any(~(errors_ * scaled > least * size_));
  }

  void prepare(double theta) {
    theta_ = theta;
    for (int i = 0; i < d_; ++i) {
      const Lane up = expm1_lane(theta * absolute(t_[i])), down = -up * reciprocal(1.0 + up);
      const Mask rises = t_[i] > 0.0;
      rise_[i] = rises ? up : down;
      fall_[i] = rises ? down : up;
    }
  }

  int d_;
  const Lane* t_;
  double errors_;
  Lane *rise_, *fall_;  // e^s - 1 and e^-s - 1
  Lane total_ = {}, squares_ = {}, size_ = {}, extent_ = {};
  double widest_ = 0.0, theta_ = -1.0;
};

// Spectra (count, d) to divergences (count, points).
static void plane(int64_t count, int d, const double* t, int points, const double* alpha,
                  const double* beta, bool (*interrupted)(), double* out) {
  constexpr double ERRORS = 512.0;  // divergences are compared, not returned
  const Points given(points, alpha, beta);
  Interruption interruption(interrupted);
  for_each_task(group_count(count), 1, Spectrum::lanes(d) + (size_t)d, interruption,
                [&](int64_t group, Lane* scratch) {
    const int64_t first = group * W;
    const int here = (int)(count - first < W ? count - first : W);
    Lane* own = scratch + Spectrum::lanes(d);
    for (int w = 0; w < W; ++w)
      for (int i = 0; i < d; ++i) own[i][w] = t[(first + (w < here ? w : 0)) * d + i];
    Spectrum spectrum(d, own, ERRORS, scratch);
    for (const Points::Entry& one : given) {
      const Lane value = maximum(spectrum.divergence(one.point), Lane{});
      for (int w = 0; w < here; ++w) out[(first + w) * points + one.place] = value[w];
    }
  });
}

}  // namespace DIVLEARN_ISA
