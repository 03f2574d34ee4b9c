// Eigenvectors where eigenvalues are equal or nearly so. The sum of w z z^T over a cluster needs any
// orthonormal basis of its space. Let P be the projector to that space and s a shift beside the
// cluster, some widths away. Column r of (T - s I)^-1, which a twisted factorization yields, is
// P e_r up to a factor, and its gamma_r is the distance of s over P_rr. Rows r chosen as in a
// pivoted Cholesky decomposition of P make these columns independent. The largest cluster of all
// is what is left of the identity, and needs no vectors.
#pragma once
#include "eigenvectors.hpp"

namespace DIVLEARN_ISA {

constexpr int TILE = REGISTERS == 32 ? 4 : 2;  // eigenvectors at a time

// Marks the longest run of ascending t that agrees up to `tolerance`, if it has three members.
static void longest_run(int d, const Lane* t, Lane tolerance, Mask* member) {
  Lane start = t[0], length = {}, longest = fill(2.0), best = fill(__builtin_inf());
  for (int i = 0; i < d; ++i) {
    const Mask goes_on = t[i] - start <= tolerance;
    start = goes_on ? start : t[i];
    length = goes_on ? length + 1.0 : fill(1.0);
    const Mask longer = length > longest;
    longest = longer ? length : longest;
    best = longer ? start : best;
  }
  for (int i = 0; i < d; ++i) member[i] = (t[i] >= best) & (t[i] - best <= tolerance);
}

// A, or its inverse, as Q T Q^T: reflectors in A and scale.
struct Reduced {
  Lane *A, *diagonal, *off_diagonal, *scale;

  static constexpr size_t lanes(size_t d) { return d * (d + 1) / 2 + 3 * d; }

  Reduced(int d, Lane* scratch)
      : A(scratch), diagonal(A + packed_row(d)), off_diagonal(diagonal + d),
        scale(off_diagonal + d) {}
};

// Eigenvectors of one reduced matrix, those that are needed.
class ClusteredVectors {
 public:
  static constexpr size_t lanes(size_t d) { return 7 * d + d * TILE + d * d; }

  // `found` holds the eigenvalues, entry i at i * stride.
  ClusteredVectors(int d, const Reduced& reduced, const Lane* found, int stride, Lane* scratch)
      : d_(d), reduced_(reduced), values(scratch), needed((Mask*)(values + d)),
        weight(values + 2 * d), shift_(weight + d), distance_(shift_ + d), taken_(distance_ + d),
        starts_((Mask*)(taken_ + d)), work_(taken_ + 2 * d), basis_(work_ + (size_t)d * TILE) {
    for (int i = 0; i < d; ++i) values[i] = found[i * stride];
    sort_lanes(d, values);
    place_shifts();
  }

  // False if vectors that are needed are not independent, or no eigenvectors.
  bool find() {
    for (int k = 0; k < d_; ++k) {
      for (int i = 0; i < d_; ++i) taken_[i] = starts_[k] ? Lane{} : taken_[i];
      if (!any(needed[k])) continue;
      Lane* vector = basis_ + (size_t)k * d_;
      twisted_vectors<1, true>(d_, reduced_.diagonal, reduced_.off_diagonal, shift_ + k, vector,
                               work_, distance_ + k, taken_);
      if (any(needed[k] & ~(settle(k, vector) & solves(k, vector)))) return false;
      for (int i = 0; i < d_; ++i) taken_[i] += vector[i] * vector[i];
    }
    return true;
  }

  // total += Z diag(weight) Z^T over the needed vectors of A.
  void add(Lane* total) const {
    for (int k = 0; k < d_;) {
      int chosen[TILE], count = 0;
      for (; k < d_ && count < TILE; ++k)
        if (any(needed[k])) chosen[count++] = k;
      if (count == 0) return;
      Lane weights[TILE] = {};
      for (int c = 0; c < TILE; ++c) {
        const int index = chosen[c < count ? c : 0];
        if (c < count) weights[c] = needed[index] ? weight[index] : Lane{};
        const Lane* vector = basis_ + (size_t)index * d_;
        for (int i = 0; i < d_; ++i) work_[i * TILE + c] = vector[i];
      }
      apply_reflectors<TILE>(d_, reduced_.A, reduced_.scale, work_);
      add_outer_products<TILE>(d_, work_, weights, total);
    }
  }

 private:
  // Rounding moves eigenvalues by about eps, and large ones that X and B make equal by some more.
  Lane close(int k) const { return EPS * (8.0 + 56.0 * values[k]); }

  // Whether the residual of a vector is of that size.
  Mask solves(int k, const Lane* vector) const {
    const Lane *diagonal = reduced_.diagonal, *off = reduced_.off_diagonal;
    Lane square = {};
    for (int i = 0; i < d_; ++i) {
      Lane residual = (diagonal[i] - values[k]) * vector[i];
      if (i > 0) residual += off[i - 1] * vector[i - 1];
      if (i + 1 < d_) residual += off[i] * vector[i + 1];
      square += residual * residual;
    }
    const Lane bound = 8.0 * close(k);
    return square <= bound * bound;
  }

  // An eigenvalue by itself is its own shift; members of a cluster share one below it, which is
  // nearer to them than any other eigenvalue.
  void place_shifts() {
    Lane* start = shift_;  // of the cluster
    for (int k = 0; k < d_; ++k) {
      starts_[k] = ~Mask{};
      if (k > 0) {
        const Lane gap = values[k] - values[k - 1], width = values[k - 1] - start[k - 1];
        starts_[k] = ~(gap <= minimum(maximum(4.0 * width, close(k)), 8.0 * close(k)));
      }
      start[k] = starts_[k] ? values[k] : start[k > 0 ? k - 1 : 0];
    }
    Lane end = {};
    Mask last = ~Mask{};
    for (int k = d_ - 1; k >= 0; --k) {
      const Mask alone = starts_[k] & last;
      end = last ? values[k] : end;
      const Lane width = end - start[k], below = maximum(2.0 * width, 0.5 * close(k));
      shift_[k] = alone ? values[k] : start[k] - below;
      distance_[k] = alone ? fill(1.0) : below + 0.5 * width;
      last = starts_[k];
    }
  }

  // Normalizes vector k, orthogonal to its neighbours; false where too little of it is left for
  // what is left to be a vector of its own.
  Mask settle(int k, Lane* vector) {
    constexpr double WINDOW = 0.1, LEAST = 0.01;  // of the norm of T, of the squared norm
    scale(vector, dot(d_, vector, vector));
    Lane left = fill(1.0);
    for (int round = 0; round < 2; ++round) {
      for (int j = k - 1; j >= 0 && any(values[k] - values[j] < WINDOW); --j) {
        if (!any(needed[j])) continue;
        const Lane* other = basis_ + (size_t)j * d_;
        const Lane overlap = dot(d_, vector, other);
        for (int i = 0; i < d_; ++i) vector[i] -= overlap * other[i];
      }
      const Lane square = dot(d_, vector, vector);
      left *= square;
      scale(vector, square);
      if (!any(square < 0.5)) break;
    }
    return left > LEAST;
  }

  // Divides by a norm; zero where there is none.
  void scale(Lane* vector, Lane square) const {
    const Mask positive = square > 1e-200;
    const Lane factor = reciprocal_root(positive ? square : fill(1.0));
    for (int i = 0; i < d_; ++i) vector[i] = positive ? vector[i] * factor : Lane{};
  }

  const int d_;
  const Reduced reduced_;

 public:
  Lane* const values;  // ascending
  Mask* const needed;  // set before `find`
  Lane* const weight;  // set before `add`

 private:
  Lane *const shift_, *const distance_, *const taken_;
  Mask* const starts_;  // whether it is the first of its cluster
  Lane *const work_, *const basis_;
};

}  // namespace DIVLEARN_ISA
