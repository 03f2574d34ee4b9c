// Filters: values of projected matrices Y = V^T X V, for atoms whose rank p is below their size, and
// gradients in V. Divergences to the identity are those with alpha + beta = 1, which need no
// eigenvalues; after them comes the size of Y, its determinant to the power 1/p.
#pragma once
#include "lane_math.hpp"
#include "spectra.hpp"
#include "tasks.hpp"

namespace DIVLEARN_ISA {

using divlearn::Filters;
using divlearn::Line;

constexpr int MOST_RANK = 16;
constexpr double SMALLEST_PIVOT = 1e-290;  // what is singular up to rounding has a large divergence

typedef Lane Small[MOST_RANK][MOST_RANK];

// R rows and C columns of the product of a filter's rows with X, a packed lower triangle.
template <int R, int C>
DIVLEARN_INLINE void product_tile(const double* rows, const Lane* X, int d, int column, Lane* out) {
  Lane sums[R][C] = {};
  for (int f = 0; f < d; ++f) {
    Lane x[C];
    for (int c = 0; c < C; ++c) {
      const int e = column + c;
      x[c] = X[f >= e ? packed_row(f) + e : packed_row(e) + f];
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) sums[r][c] += rows[r * d + f] * x[c];
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) out[r * d + column + c] = sums[r][c];
}

template <int R>
DIVLEARN_INLINE void product_rows(const double* rows, const Lane* X, int d, Lane* out) {
  constexpr int C = REGISTERS == 32 ? 4 : 2;
  int column = 0;
  for (; column + C <= d; column += C) product_tile<R, C>(rows, X, d, column, out);
  for (; column < d; ++column) product_tile<R, 1>(rows, X, d, column, out);
}

// Products (p, d) of a filter's rows with the matrices of a group.
static void multiply(const double* rows, const Lane* X, int p, int d, Lane* out) {
  int row = 0;
  for (; row + 4 <= p; row += 4) product_rows<4>(rows + row * d, X, d, out + row * d);
  switch (p - row) {
    case 3: product_rows<3>(rows + row * d, X, d, out + row * d); break;
    case 2: product_rows<2>(rows + row * d, X, d, out + row * d); break;
    case 1: product_rows<1>(rows + row * d, X, d, out + row * d); break;
    default: break;
  }
}

// Y, its lower triangle, in the units of the data.
static void project(const double* rows, const Lane* products, Lane unit, int p, int d, Small Y) {
  for (int a = 0; a < p; ++a)
    for (int b = 0; b <= a; ++b) {
      Lane sum = {};
      for (int e = 0; e < d; ++e) sum += rows[b * d + e] * products[a * d + e];
      Y[a][b] = sum * unit;
    }
}

// L^-1, lower triangular, for L L^T = alpha Y + beta I; returns the log-determinant of the sum.
static Lane invert_factor(const Small Y, double alpha, double beta, int p, Small inverse) {
  Small L;
  Lane logdet = {};
  for (int j = 0; j < p; ++j) {
    Lane pivot = alpha * Y[j][j] + beta;
    for (int k = 0; k < j; ++k) pivot -= L[j][k] * L[j][k];
    pivot = maximum(pivot, fill(SMALLEST_PIVOT));
    logdet += log_lane(pivot);
    const Lane root = reciprocal(square_root(pivot));
    inverse[j][j] = root;
    for (int i = j + 1; i < p; ++i) {
      Lane entry = alpha * Y[i][j];
      for (int k = 0; k < j; ++k) entry -= L[i][k] * L[j][k];
      L[i][j] = entry * root;
    }
  }
  for (int j = 0; j < p; ++j)
    for (int i = j + 1; i < p; ++i) {
      Lane sum = {};
      for (int k = j; k < i; ++k) sum -= L[i][k] * inverse[k][j];
      inverse[i][j] = sum * inverse[i][i];
    }
  return logdet;
}

// (L L^T)^-1, both triangles, from L^-1.
static void square_inverse(const Small inverse, int p, Small out) {
  for (int a = 0; a < p; ++a)
    for (int b = 0; b <= a; ++b) {
      Lane sum = {};
      for (int k = a; k < p; ++k) sum += inverse[k][a] * inverse[k][b];
      out[a][b] = out[b][a] = sum;
    }
}

static void filter_values(const Small Y, const Line& line, int p, Lane* values) {
  Small inverse, mixed;
  const Lane logdet = invert_factor(Y, 1.0, 0.0, p, inverse);
  for (int pair = 0; pair < line.count; ++pair) {
    const double alpha = line.alpha[pair], beta = line.beta[pair];
    Lane trace = fill(-p);
    if (alpha == 0.0) {
      for (int a = 0; a < p; ++a) trace += Y[a][a];
      values[pair] = trace - logdet;
    } else if (beta == 0.0) {
      for (int a = 0; a < p; ++a)
        for (int b = 0; b <= a; ++b) trace += inverse[a][b] * inverse[a][b];
      values[pair] = trace + logdet;
    } else {
      values[pair] = (invert_factor(Y, alpha, beta, p, mixed) - alpha * logdet) * (1.0 / (alpha * beta));
    }
  }
  values[line.count] = exp_lane(logdet * (1.0 / p));
}

// The gradient in Y of a weighted sum of the values, both triangles.
static void filter_slopes(const Small Y, const Line& line, int p, const Lane* weights, Small out) {
  Small root, inverse;
  const Lane logdet = invert_factor(Y, 1.0, 0.0, p, root);
  square_inverse(root, p, inverse);
  Lane of_inverse = weights[line.count] * exp_lane(logdet * (1.0 / p)) * (1.0 / p), of_identity = {};
  for (int a = 0; a < p; ++a)
    for (int b = 0; b < p; ++b) out[a][b] = Lane{};
  for (int pair = 0; pair < line.count; ++pair) {
    const double alpha = line.alpha[pair], beta = line.beta[pair];
    const Lane weight = weights[pair];
    if (alpha == 0.0) {
      of_identity += weight;
      of_inverse -= weight;
    } else if (beta == 0.0) {
      of_inverse += weight;
      for (int a = 0; a < p; ++a)
        for (int b = 0; b <= a; ++b) {
          Lane sum = {};
          for (int k = 0; k < p; ++k) sum += inverse[a][k] * inverse[b][k];
          out[a][b] -= weight * sum;
          if (a != b) out[b][a] -= weight * sum;
        }
    } else {
      Small factor, mixed;
      invert_factor(Y, alpha, beta, p, factor);
      square_inverse(factor, p, mixed);
      of_inverse -= weight * (1.0 / beta);
      for (int a = 0; a < p; ++a)
        for (int b = 0; b < p; ++b) out[a][b] += weight * (1.0 / beta) * mixed[a][b];
    }
  }
  for (int a = 0; a < p; ++a) {
    out[a][a] += of_identity;
    for (int b = 0; b < p; ++b) out[a][b] += of_inverse * inverse[a][b];
  }
}

static void encode_filters(const Data& data, const Filters& filters, const Line& line, int threads,
                           bool (*interrupted)(), double* out) {
  const int d = data.d, p = filters.rank, m = line.count + 1;
  constexpr int RUN = 16;  // filters per task: a group's matrices are read once for all of them
  const int most = p < 4 ? 4 / p : 1;  // filters whose rows are multiplied at a time
  const int64_t groups = group_count(data.count), runs = (filters.count + RUN - 1) / RUN;
  Interruption interruption(interrupted);
  const size_t size = (size_t)p * d;
  for_each_task(groups * runs, threads, most * size + m, interruption, [&](int64_t task, Lane* scratch) {
    const int64_t group = task / runs;
    const int begin = (int)(task % runs) * RUN;
    const int end = begin + RUN < filters.count ? begin + RUN : filters.count;
    const Lane unit = power_of_two(load(data.exponent + group * W));
    Lane* values = scratch + most * size;
    for (int first = begin; first < end; first += most) {
      const int several = end - first < most ? end - first : most;
      const double* rows = filters.rows + first * size;
      multiply(rows, group_of(data.matrix, group, d), several * p, d, scratch);
      for (int k = 0; k < several; ++k) {
        Small Y;
        project(rows + k * size, scratch + k * size, unit, p, d, Y);
        filter_values(Y, line, p, values);
        for (int w = 0; w < W && group * W + w < data.count; ++w)
          for (int j = 0; j < m; ++j)
            out[((size_t)(group * W + w) * filters.count + first + k) * m + j] = values[j][w];
      }
    }
  });
}

// Sums over fixed chunks of the data, (n, chunks, p, d), whatever the number of threads.
static void pullback_filters(const Data& data, const Filters& filters, const Line& line, int threads,
                             bool (*interrupted)(), const double* cotangent, int chunks, double* out) {
  const int d = data.d, p = filters.rank, m = line.count + 1;
  const int64_t groups = group_count(data.count);
  const size_t size = (size_t)p * d;
  Interruption interruption(interrupted);
  for_each_task((int64_t)filters.count * chunks, threads, 2 * size + m, interruption,
                [&](int64_t task, Lane* scratch) {
    const int k = (int)(task / chunks);
    const int64_t chunk = task % chunks, first = groups * chunk / chunks,
                  last = groups * (chunk + 1) / chunks;
    const double* rows = filters.rows + k * size;
    Lane *products = scratch, *sums = scratch + size, *weights = sums + size;
    for (size_t i = 0; i < size; ++i) sums[i] = Lane{};
    for (int64_t group = first; group < last; ++group) {
      const Lane unit = power_of_two(load(data.exponent + group * W));
      for (int j = 0; j < m; ++j) {
        weights[j] = Lane{};  // padded matrices count nothing
        for (int w = 0; w < W && group * W + w < data.count; ++w)
          weights[j][w] = cotangent[((size_t)(group * W + w) * filters.count + k) * m + j];
      }
      Small Y, slopes;
      multiply(rows, group_of(data.matrix, group, d), p, d, products);
      project(rows, products, unit, p, d, Y);
      filter_slopes(Y, line, p, weights, slopes);
      for (int a = 0; a < p; ++a)
        for (int b = 0; b < p; ++b) {
          const Lane slope = 2.0 * unit * slopes[a][b];
          for (int e = 0; e < d; ++e) sums[a * d + e] += slope * products[b * d + e];
        }
    }
    for (size_t i = 0; i < size; ++i) {
      double total = 0.0;
      for (int w = 0; w < W; ++w) total += sums[i][w];
      out[(size_t)task * size + i] = total;
    }
  });
}

}  // namespace DIVLEARN_ISA
