// Softmax heads: sums of losses and gradients, and Newton steps by conjugate gradients.
#pragma once
#include "lane_math.hpp"
#include "tasks.hpp"

namespace DIVLEARN_ISA {

using divlearn::SoftmaxHead;
using divlearn::SoftmaxSamples;

constexpr int64_t CHUNK = 1024;  // samples that one thread sums over, whatever the number of threads
constexpr int SAMPLES = REGISTERS / 4;  // whose scores are in registers together, two vectors each

// Vectors of numbers of type T hold outputs side by side; rows of outputs are padded with zeros.
template <class T>
struct Outputs {
  typedef T Vector __attribute__((vector_size(W * 8)));
  static constexpr int LANES = W * 8 / (int)sizeof(T);
  static Vector load(const T* p) { Vector x; std::memcpy(&x, p, sizeof x); return x; }
  static void store(T* p, Vector x) { std::memcpy(p, &x, sizeof x); }
  static int padded(int outputs) { return (outputs + LANES - 1) / LANES * LANES; }
};

// Scores of R samples, (R, width), for weights of (columns, width): V vectors of outputs from `first` on.
template <int R, int V, class T>
DIVLEARN_INLINE void scores(const T* design, int columns, const T* weights, int width, int first, T* out) {
  using O = Outputs<T>;
  typename O::Vector sums[R][V] = {};
  for (int j = 0; j < columns; ++j) {
    typename O::Vector w[V];
    for (int v = 0; v < V; ++v) w[v] = O::load(weights + (size_t)j * width + first + v * O::LANES);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sums[r][v] += design[(size_t)r * columns + j] * w[v];
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) O::store(out + (size_t)r * width + first + v * O::LANES, sums[r][v]);
}

template <int R, class T>
DIVLEARN_INLINE void scores(const T* design, int columns, const T* weights, int width, T* out) {
  const int pair = 2 * Outputs<T>::LANES;
  int at = 0;
  for (; at + pair <= width; at += pair) scores<R, 2>(design, columns, weights, width, at, out);
  if (at < width) scores<R, 1>(design, columns, weights, width, at, out);
}

// Second derivatives of the losses of R samples in the direction of their scores, in their place.
template <int R, class T>
DIVLEARN_INLINE void multiply_curvature(const T* shares, const double* sample_weights, int width, T* scores) {
  using O = Outputs<T>;
  for (int r = 0; r < R; ++r, shares += width, scores += width) {
    typename O::Vector sums = {};
    for (int c = 0; c < width; c += O::LANES) sums += O::load(shares + c) * O::load(scores + c);
    T mean = 0;
    for (int lane = 0; lane < O::LANES; ++lane) mean += sums[lane];
    const T weight = (T)sample_weights[r];
    for (int c = 0; c < width; c += O::LANES)
      O::store(scores + c, weight * O::load(shares + c) * (O::load(scores + c) - mean));
  }
}

// Adds products of R samples with what their scores became to sums of (columns, width).
template <int R, int V, class T>
DIVLEARN_INLINE void add_products(const T* design, int columns, const T* scores, int width, int first, T* sums) {
  using O = Outputs<T>;
  typename O::Vector given[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) given[r][v] = O::load(scores + (size_t)r * width + first + v * O::LANES);
  for (int j = 0; j < columns; ++j) {
    T* at = sums + (size_t)j * width + first;
    typename O::Vector sum[V];
    for (int v = 0; v < V; ++v) sum[v] = O::load(at + v * O::LANES);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[v] += design[(size_t)r * columns + j] * given[r][v];
    for (int v = 0; v < V; ++v) O::store(at + v * O::LANES, sum[v]);
  }
}

template <int R, class T>
DIVLEARN_INLINE void add_products(const T* design, int columns, const T* scores, int width, T* sums) {
  const int pair = 2 * Outputs<T>::LANES;
  int at = 0;
  for (; at + pair <= width; at += pair) add_products<R, 2>(design, columns, scores, width, at, sums);
  if (at < width) add_products<R, 1>(design, columns, scores, width, at, sums);
}

// Calls body<R>(first) for tiles of the samples of a chunk.
template <class Body>
DIVLEARN_INLINE void for_each_tile(int64_t chunk, int64_t samples, Body body) {
  int64_t i = chunk * CHUNK;
  const int64_t end = i + CHUNK < samples ? i + CHUNK : samples;
  for (; i + SAMPLES <= end; i += SAMPLES) body.template operator()<SAMPLES>(i);
  for (; i < end; ++i) body.template operator()<1>(i);
}

// Memory is counted in lanes: rows of (columns, outputs) or (samples, outputs) in T, padded.
template <class T>
static size_t lane_count(size_t rows, int outputs) {
  return rows * (Outputs<T>::padded(outputs) / Outputs<T>::LANES);
}

template <class T>
static void copy_padded(size_t rows, int outputs, const double* from, T* to) {
  const int width = Outputs<T>::padded(outputs);
  for (size_t i = 0; i < rows; ++i)
    for (int c = 0; c < width; ++c) to[i * width + c] = c < outputs ? (T)from[i * outputs + c] : T(0);
}

template <class T>
class SoftmaxHessian {
 public:
  SoftmaxHessian(const SoftmaxHead& head, const T* design, int threads)
      : head_(head), design_(design), threads_(threads), width_(Outputs<T>::padded(head.outputs)),
        chunks_((head.samples + CHUNK - 1) / CHUNK), size_((size_t)head.columns * width_),
        memory_(lane_count<T>(head.samples + head.columns * (size_t)(1 + chunks_), head.outputs)) {
    if (!memory_.ok()) throw std::bad_alloc();
    shares_ = (T*)memory_.base();
    direction_ = shares_ + (size_t)head.samples * width_;
    sums_ = direction_ + size_;
    copy_padded(head.samples, head.outputs, head.shares, shares_);
  }

  // Multiplies (columns, outputs) numbers by the Hessian of losses, penalty and damping.
  void multiply(const double* direction, double* product) {
    copy_padded(head_.columns, head_.outputs, direction, direction_);
    for_each_task(chunks_, threads_, lane_count<T>(SAMPLES, head_.outputs),
                  [&](int64_t chunk, Lane* scratch) { sum_chunk(chunk, (T*)scratch); });
    const int outputs = head_.outputs;
    for (int c = 0; c < outputs; ++c) {
      double along = 0;  // the bias, which is not penalised
      for (int j = 0; j < head_.columns; ++j) along += head_.bias[j] * direction[(size_t)j * outputs + c];
      for (int j = 0; j < head_.columns; ++j) {
        const double given = direction[(size_t)j * outputs + c];
        double sum = 2 * head_.penalty * (given - along * head_.bias[j]) + head_.damping * given;
        for (int64_t k = 0; k < chunks_; ++k) sum += sums_[k * size_ + (size_t)j * width_ + c];
        product[(size_t)j * outputs + c] = sum;
      }
    }
  }

 private:
  struct Tile {
    const SoftmaxHessian& of;
    T *scratch, *sums;
    template <int R>
    void operator()(int64_t first) const {
      const int columns = of.head_.columns, width = of.width_;
      const T* design = of.design_ + first * columns;
      scores<R>(design, columns, of.direction_, width, scratch);
      multiply_curvature<R>(of.shares_ + first * width, of.head_.weights + first, width, scratch);
      add_products<R>(design, columns, scratch, width, sums);
    }
  };

  void sum_chunk(int64_t chunk, T* scratch) const {
    T* sums = sums_ + chunk * size_;
    for (size_t k = 0; k < size_; ++k) sums[k] = 0;
    for_each_tile(chunk, head_.samples, Tile{*this, scratch, sums});
  }

  const SoftmaxHead& head_;
  const T* design_;
  const int threads_, width_;
  const int64_t chunks_;
  const size_t size_;
  Scratch memory_;
  T *shares_, *direction_, *sums_;
};

DIVLEARN_INLINE double inner(size_t size, const double* x, const double* y) {
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

// Solves Hessian step = -gradient as far as asked; arrays are (columns, outputs).
template <class T>
static void softmax_step(const SoftmaxHead& head, const T* design, int threads, bool (*interrupted)(),
                         const double* gradient, double* step) {
  const int outputs = head.outputs;
  const size_t size = (size_t)head.columns * outputs;
  SoftmaxHessian<T> hessian(head, design, threads);
  Scratch memory(4 * size / W + 1);
  if (!memory.ok()) throw std::bad_alloc();
  double* residual = (double*)memory.base();
  double *scaled = residual + size, *direction = scaled + size, *product = direction + size;
  const auto scale = [&] {
    for (size_t i = 0; i < size; ++i) scaled[i] = residual[i] / head.scale[i];
  };
  for (size_t i = 0; i < size; ++i) residual[i] = -gradient[i];
  scale();
  for (size_t i = 0; i < size; ++i) direction[i] = scaled[i], step[i] = 0;
  double power = inner(size, residual, scaled), all_gain = 0;
  for (int k = 1; k <= head.most_products && !interrupted(); ++k) {
    hessian.multiply(direction, product);
    const double curvature = inner(size, direction, product);
    if (!(curvature > 0)) break;
    const double length = power / curvature;
    for (size_t i = 0; i < size; ++i) step[i] += length * direction[i];
    for (size_t i = 0; i < size; ++i) residual[i] -= length * product[i];
    const double gain = 0.5 * length * power;  // of this product, in a quadratic objective
    all_gain += gain;
    if (k * gain <= head.least_gain * all_gain) break;
    if (inner(size, residual, residual) <= head.enough * head.enough) break;
    scale();
    const double following = inner(size, residual, scaled);
    for (size_t i = 0; i < size; ++i) direction[i] = scaled[i] + following / power * direction[i];
    power = following;
  }
}

// Losses at a head: turns scores of a sample into weighted slopes, and returns the weighted loss.
static double expand_sample(const SoftmaxSamples& given, int64_t i, int width, double* scores, double* size) {
  const int outputs = given.outputs;
  const double *targets = given.targets + i * outputs, weight = given.weights[i];
  double* shares = given.shares + i * outputs;
  double along = 0, rest = 0, second = 0;
  int top = 0;
  for (int c = 0; c < outputs; ++c) {
    along += targets[c] * scores[c];
    if (scores[c] > scores[top]) top = c;
  }
  const double most = scores[top];
  for (int c = outputs; c < width; ++c) scores[c] = -__builtin_inf();
  for (int c = 0; c < width; c += W) store(scores + c, exp_lane(load(scores + c) - most));
  scores[top] = 0;  // left out of the sum: the rest may be small against it
  for (int c = 0; c < outputs; ++c) rest += scores[c];
  scores[top] = 1;
  for (int c = 0; c < outputs; ++c) {
    const double share = scores[c] / (1 + rest);
    shares[c] = share;
    second += share * (1 - share);
    scores[c] = weight * (share - targets[c]);
  }
  *size += weight * second / outputs;
  return weight * (__builtin_log1p(rest) + most - along);
}

struct SoftmaxTile {
  const SoftmaxSamples& given;
  const double* weights;  // of the head, padded
  int width;
  double *scratch, *gradient, *totals;
  template <int R>
  void operator()(int64_t first) const {
    const double* design = given.design + first * given.columns;
    scores<R>(design, given.columns, weights, width, scratch);
    for (int r = 0; r < R; ++r)
      totals[0] += expand_sample(given, first + r, width, scratch + (size_t)r * width, totals + 1);
    add_products<R>(design, given.columns, scratch, width, gradient);
  }
};

// Sums losses and typical second derivatives into totals, and gradients (columns, outputs).
static void softmax_sums(const SoftmaxSamples& given, const double* head, int threads, double* totals,
                         double* gradient) {
  const int outputs = given.outputs, width = Outputs<double>::padded(outputs);
  const int64_t chunks = (given.samples + CHUNK - 1) / CHUNK;
  const size_t size = (size_t)given.columns * width, part = size + W;  // a lane for two totals
  Scratch memory((size + chunks * part) / W);
  if (!memory.ok()) throw std::bad_alloc();
  double* weights = (double*)memory.base();
  double* parts = weights + size;
  copy_padded(given.columns, outputs, head, weights);
  for_each_task(chunks, threads, lane_count<double>(SAMPLES, outputs), [&](int64_t chunk, Lane* scratch) {
    double* sums = parts + chunk * part;
    for (size_t k = 0; k < part; ++k) sums[k] = 0;
    for_each_tile(chunk, given.samples,
                  SoftmaxTile{given, weights, width, (double*)scratch, sums, sums + size});
  });
  totals[0] = totals[1] = 0;
  for (size_t k = 0; k < (size_t)given.columns * outputs; ++k) gradient[k] = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const double* sums = parts + chunk * part;
    for (int j = 0; j < given.columns; ++j)
      for (int c = 0; c < outputs; ++c) gradient[(size_t)j * outputs + c] += sums[(size_t)j * width + c];
    totals[0] += sums[size];
    totals[1] += sums[size + 1];
  }
}

}  // namespace DIVLEARN_ISA
