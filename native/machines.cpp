// Compiled without fused products, which libsvm's rounding does not have.
#include "machines.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lanes.hpp"

namespace DIVLEARN_ISA {

typedef float NarrowLane __attribute__((vector_size(W * 4)));

DIVLEARN_INLINE Lane widen(const float* p) {
  NarrowLane x;
  std::memcpy(&x, p, sizeof x);
  return __builtin_convertvector(x, Lane);
}

DIVLEARN_INLINE double largest(Lane x) {
  double v[W];
  store(v, x);
  for (int half = W / 2; half; half /= 2)
    for (int w = 0; w < half; ++w) v[w] = v[w] > v[w + half] ? v[w] : v[w + half];
  return v[0];
}

constexpr double LEAST_CURVATURE = 1e-12;
constexpr int MOST_UNTIL_SHRINKING = 1000;  // steps

// The largest value so far, and the last of the places that have it.
struct Largest {
  Lane value = fill(-INFINITY), place = fill(-1);

  void see(Lane x, Lane at) {
    place = x >= value ? at : place;
    value = x >= value ? x : value;
  }
  int find(double* most) const {
    *most = largest(value);
    return *most > -INFINITY ? (int)largest(value == *most ? place : fill(-1)) : -1;
  }
};

// One problem: min 1/2 a^T Q a - 1^T a with 0 <= a <= C and y^T a = 0, where Q_ij = y_i y_j K_ij.
// Gradients are kept times y: signs then drop out of sums over K.
class PairSolver {
 public:
  PairSolver(int most, double tolerance)
      : tolerance_(tolerance), pitch_((most + W - 1) / W * W), table_((size_t)most * pitch_),
        rows_(most), order_(most) {
    for (auto* one : {&slope_, &bound_slope_, &alpha_, &most_, &diagonal_, &sign_, &rises_, &falls_})
      *one = std::vector<double>(pitch_);  // inlined: shared code would be of one instruction set
  }

  // Class a, of sign 1, has the rows [a, a_end), the other [b, b_end).
  double solve(const divlearn::PairProblems& all, const float* kernel, int64_t a, int64_t a_end,
               int64_t b, int64_t b_end) {
    begin(all, kernel, a, a_end, b, b_end);
    int until_shrinking = std::min(size_, MOST_UNTIL_SHRINKING) + 1, i, j;
    for (;;) {
      if (--until_shrinking == 0) {
        until_shrinking = std::min(size_, MOST_UNTIL_SHRINKING);
        shrink();
      }
      if (!choose(&i, &j)) {
        restore_all();
        if (!choose(&i, &j)) break;
        until_shrinking = 1;
      }
      step(i, j);
    }
    return offset();
  }

  int size() const { return size_; }
  int place(int k) const { return order_[k]; }
  double coefficient(int k) const { return alpha_[k] * sign_[k]; }

 private:
  void begin(const divlearn::PairProblems& all, const float* kernel, int64_t a, int64_t a_end,
             int64_t b, int64_t b_end) {
    const int first = (int)(a_end - a);
    size_ = active_ = first + (int)(b_end - b);
    unshrunk_ = false;
    for (int i = 0; i < size_; ++i) {
      const int64_t row = i < first ? a + i : b + i - first;
      const float* from = kernel + row * all.samples;
      rows_[i] = table_.data() + (size_t)i * pitch_;
      std::copy(from + a, from + a_end, rows_[i]);
      std::copy(from + b, from + b_end, rows_[i] + first);
      diagonal_[i] = all.diagonal[row];
      sign_[i] = i < first ? 1 : -1;
      slope_[i] = -sign_[i];
      alpha_[i] = bound_slope_[i] = 0;
      most_[i] = all.most[row];
      order_[i] = i;
      mark(i);
    }
  }

  bool at_most(int i) const { return alpha_[i] >= most_[i]; }
  bool at_zero(int i) const { return !at_most(i) && alpha_[i] <= 0; }
  bool is_free(int i) const { return rises_[i] == 0 && falls_[i] == 0; }

  // Whether a coefficient times its sign may rise or fall: 0, or -infinity to add to what is compared.
  void mark(int i) {
    const bool up = !at_most(i), down = !at_zero(i);
    rises_[i] = (sign_[i] > 0 ? up : down) ? 0 : -INFINITY;
    falls_[i] = (sign_[i] > 0 ? down : up) ? 0 : -INFINITY;
  }

  // The steepest rise, and the fall that gains most with it; false at the optimum.
  bool choose(int* first, int* second) const {
    Lane start;
    for (int w = 0; w < W; ++w) start[w] = w;
    const int whole = active_ / W * W;
    const Lane tail = start + (double)whole < (double)active_ ? fill(0) : fill(-INFINITY);
    Largest rise, gain;
    Lane at = start;
    for (int t = 0; t < whole; t += W, at += (double)W) rise.see(load(&rises_[t]) - load(&slope_[t]), at);
    if (whole < active_) rise.see(load(&rises_[whole]) - load(&slope_[whole]) + tail, at);
    double steepest, most_gain;
    *first = rise.find(&steepest);
    if (*first < 0) return false;
    const float* row = rows_[*first];
    const double own = diagonal_[*first];
    Lane fall = fill(-INFINITY);
    const auto see = [&](int t, Lane slope, Lane at) {
      fall = maximum(slope, fall);
      const Lane gap = steepest + slope;
      const Lane curvature = own + load(&diagonal_[t]) - 2.0 * widen(row + t);
      const Lane found = gap * gap / (curvature > 0 ? curvature : fill(LEAST_CURVATURE));
      gain.see(gap > 0 ? found : fill(-INFINITY), at);
    };
    at = start;
    for (int t = 0; t < whole; t += W, at += (double)W) see(t, load(&slope_[t]) + load(&falls_[t]), at);
    if (whole < active_) see(whole, load(&slope_[whole]) + load(&falls_[whole]) + tail, at);
    *second = gain.find(&most_gain);
    return *second >= 0 && !(steepest + largest(fall) < tolerance_);
  }

  // The best coefficients i and j with the others as they are.
  void step(int i, int j) {
    double &x = alpha_[i], &y = alpha_[j];
    const double before_x = x, before_y = y, most_x = most_[i], most_y = most_[j];
    double curvature = diagonal_[i] + diagonal_[j] - 2 * (double)rows_[i][j];
    if (curvature <= 0) curvature = LEAST_CURVATURE;
    const double slope_x = sign_[i] * slope_[i], slope_y = sign_[j] * slope_[j];
    if (sign_[i] != sign_[j]) {
      const double change = (-slope_x - slope_y) / curvature, difference = x - y;
      x += change;
      y += change;
      if (difference > 0 && y < 0) { y = 0; x = difference; }
      if (difference <= 0 && x < 0) { x = 0; y = -difference; }
      if (difference > most_x - most_y) {
        if (x > most_x) { x = most_x; y = most_x - difference; }
      } else if (y > most_y) { y = most_y; x = most_y + difference; }
    } else {
      const double change = (slope_x - slope_y) / curvature, sum = x + y;
      x -= change;
      y += change;
      if (sum > most_x) {
        if (x > most_x) { x = most_x; y = sum - most_x; }
      } else if (y < 0) { y = 0; x = sum; }
      if (sum > most_y) {
        if (y > most_y) { y = most_y; x = sum - most_y; }
      } else if (x < 0) { x = 0; y = sum; }
    }
    const double way_x = sign_[i] * (x - before_x), way_y = sign_[j] * (y - before_y);
    const float *row_x = rows_[i], *row_y = rows_[j];
    for (int t = 0; t < active_; t += W)
      store(&slope_[t], load(&slope_[t]) + (widen(row_x + t) * way_x + widen(row_y + t) * way_y));
    follow_bound(i, before_x >= most_x);
    follow_bound(j, before_y >= most_y);
  }

  // Keeps the part of gradients that comes from coefficients at their upper bound.
  void follow_bound(int i, bool was) {
    mark(i);
    if (was == at_most(i)) return;
    const double way = (was ? -1 : 1) * sign_[i] * most_[i];
    for (int k = 0; k < size_; ++k) bound_slope_[k] += way * rows_[i][k];
  }

  // Leaves out coefficients at a bound that the gradient pushes outwards.
  void shrink() {
    double rise = -INFINITY, fall = -INFINITY;
    for (int i = 0; i < active_; ++i) {
      rise = std::max(rise, rises_[i] - slope_[i]);
      fall = std::max(fall, falls_[i] + slope_[i]);
    }
    if (!unshrunk_ && rise + fall <= 10 * tolerance_) {
      unshrunk_ = true;
      restore_all();
    }
    const auto stays = [&](int i) {
      return is_free(i) || !(rises_[i] == 0 ? slope_[i] > fall : -slope_[i] > rise);
    };
    for (int i = 0; i < active_; ++i) {
      if (stays(i)) continue;
      for (--active_; active_ > i; --active_)
        if (stays(active_)) {
          swap(i, active_);
          break;
        }
    }
  }

  void swap(int i, int j) {
    for (int k = 0; k < size_; ++k) std::swap(rows_[k][i], rows_[k][j]);
    std::swap(rows_[i], rows_[j]);
    std::swap(order_[i], order_[j]);
    for (auto* one : {&slope_, &bound_slope_, &alpha_, &most_, &diagonal_, &sign_, &rises_, &falls_})
      std::swap((*one)[i], (*one)[j]);
  }

  // Takes all coefficients in again, and finds the gradients of those left out.
  void restore_all() {
    const int left = active_;
    active_ = size_;
    if (left == size_) return;
    int64_t free = 0;
    for (int j = 0; j < left; ++j) free += is_free(j);
    for (int j = left; j < size_; ++j) slope_[j] = bound_slope_[j] - sign_[j];
    const bool by_rows = free * size_ > 2 * (int64_t)left * (size_ - left);
    for (int i = 0; i < left; ++i) {  // in this order both ways
      if (!is_free(i)) continue;
      const double way = coefficient(i);
      for (int j = left; j < size_; ++j) slope_[j] += way * (by_rows ? rows_[j][i] : rows_[i][j]);
    }
  }

  double offset() const {
    double high = INFINITY, low = -INFINITY, sum = 0;
    int free = 0;
    for (int i = 0; i < size_; ++i) {
      if (is_free(i)) {
        ++free;
        sum += slope_[i];
      } else if (rises_[i] == 0) {
        high = std::min(high, slope_[i]);
      } else {
        low = std::max(low, slope_[i]);
      }
    }
    return free ? sum / free : (high + low) / 2;
  }

  double tolerance_;
  int pitch_, size_ = 0, active_ = 0;
  bool unshrunk_ = false;
  std::vector<float> table_;
  std::vector<float*> rows_;
  std::vector<int> order_;
  std::vector<double> slope_, bound_slope_, alpha_, most_, diagonal_, sign_, rises_, falls_;
};

void solve_pairs(const divlearn::PairProblems& all, bool (*interrupted)(), double* coefficients,
                 double* offsets) {
  const int64_t* starts = all.starts;
  int64_t largest_class = 0;
  for (int k = 0; k < all.classes; ++k) largest_class = std::max(largest_class, starts[k + 1] - starts[k]);
  std::vector<float> kernel((size_t)(all.samples * all.samples));  // of the samples, in their order
  for (int64_t i = 0; i < all.samples; ++i)
    for (int64_t j = 0; j < all.samples; ++j)
      kernel[i * all.samples + j] = (float)all.kernel[all.rows[i] * all.pitch + all.rows[j]];
  PairSolver solver((int)(2 * largest_class), all.tolerance);
  for (int a = 0; a < all.classes; ++a)
    for (int b = a + 1; b < all.classes; ++b) {
      if (interrupted()) return;
      *offsets++ = -solver.solve(all, kernel.data(), starts[a], starts[a + 1], starts[b], starts[b + 1]);
      const int64_t first = starts[a + 1] - starts[a];
      for (int k = 0; k < solver.size(); ++k) {
        const int64_t i = solver.place(k);
        double* row = coefficients + all.samples * (i < first ? b - 1 : a);
        row[i < first ? starts[a] + i : starts[b] + i - first] = solver.coefficient(k);
      }
    }
}

}  // namespace DIVLEARN_ISA
