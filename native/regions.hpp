// Sums over boxes of products of pixel features, by integral images that exist one row at a time.
#pragma once
#include "tasks.hpp"

namespace DIVLEARN_ISA {

using divlearn::Boxes;
using divlearn::Pixels;

static const int SWEEP_LANES = 1024 / W;  // per pixel: more sweeps gather pixels more often, which costs more than the cache

// Rows [first, last) of the matrix of products. Row i starts at the lane of its diagonal entry:
// some products are computed twice, but no lane is ever cut.
struct Rows {
  int first, last, lanes;
};

static int lane_count(int features) { return (features + W - 1) / W; }

static Rows take_rows(int first, int features) {
  Rows rows = {first, first, 0};
  for (; rows.last < features; ++rows.last) {
    const int more = lane_count(features) - rows.last / W;
    if (rows.lanes && rows.lanes + more > SWEEP_LANES) break;
    rows.lanes += more;
  }
  return rows;
}

// Pixel by pixel, the features of one row of the image; lanes beyond the features stay zero.
static void gather_row(const Pixels& pixels, int64_t y, Lane* row) {
  const int stride = lane_count(pixels.features) * W, last = pixels.features - 1;
  double* out = reinterpret_cast<double*>(row);
  for (int i = 0; i < last; ++i) {
    const double* values = pixels.values + (i * pixels.height + y) * pixels.width;
    for (int64_t x = 0; x < pixels.width; ++x) out[x * stride + i] = values[x] - pixels.offset[i];
  }
  for (int64_t x = 0; x < pixels.width; ++x) out[x * stride + last] = 1;
}

// Adds a row of pixels to the integral; running holds the sums along that row.
static void add_row(const Rows& rows, const Pixels& pixels, const Lane* row, Lane* running,
                    Lane* integral) {
  const int lanes = lane_count(pixels.features);
  for (int k = 0; k < rows.lanes; ++k) running[k] = Lane{};
  for (int64_t x = 0; x < pixels.width; ++x) {
    const Lane* pixel = row + x * lanes;
    const double* value = reinterpret_cast<const double*>(pixel);
    integral += rows.lanes;
    int k = 0;
    for (int i = rows.first; i < rows.last; ++i) {
      const Lane factor = fill(value[i]);
      for (int lane = i / W; lane < lanes; ++lane, ++k) {
        running[k] += factor * pixel[lane];
        integral[k] += running[k];
      }
    }
  }
}

// Adds sign * (integral[right] - integral[left]) to the rows of one box, from the diagonal on.
static void add_edge(const Rows& rows, int features, const Lane* left, const Lane* right, double sign,
                     double* gram) {
  const double* minuend = reinterpret_cast<const double*>(right);
  const double* subtrahend = reinterpret_cast<const double*>(left);
  for (int i = rows.first; i < rows.last; ++i) {
    const int start = i / W * W;
    for (int j = i; j < features; ++j)
      gram[i * features + j] += sign * (minuend[j - start] - subtrahend[j - start]);
    minuend += lane_count(features) * W - start;
    subtrahend += lane_count(features) * W - start;
  }
}

static void sweep(const Pixels& pixels, const Boxes& boxes, const Rows& rows, Lane* scratch,
                  double* grams) {
  const size_t gram_size = (size_t)pixels.features * pixels.features;
  Lane* running = scratch;
  Lane* row = running + rows.lanes;
  Lane* integral = row + pixels.width * lane_count(pixels.features);  // (width + 1, lanes)
  std::memset(row, 0, (integral - row + (pixels.width + 1) * rows.lanes) * sizeof(Lane));
  for (int64_t y = 0; y <= pixels.height; ++y) {
    for (int64_t e = boxes.edge_start[y]; e < boxes.edge_start[y + 1]; ++e) {
      const int64_t box = boxes.edge[e] % boxes.count;
      const double sign = boxes.edge[e] < boxes.count ? -1 : 1;  // upper edges come first
      add_edge(rows, pixels.features, integral + boxes.left[box] * rows.lanes,
               integral + boxes.right[box] * rows.lanes, sign, grams + box * gram_size);
    }
    if (y == pixels.height) break;
    gather_row(pixels, y, row);
    add_row(rows, pixels, row, running, integral);
  }
}

static void box_grams(const Pixels& pixels, const Boxes& boxes, bool (*interrupted)(), double* grams) {
  const int64_t lanes = lane_count(pixels.features);
  const int64_t most = lanes > SWEEP_LANES ? lanes : SWEEP_LANES;
  Scratch scratch(pixels.width * lanes + (pixels.width + 2) * most);
  if (!scratch.ok()) throw std::bad_alloc();
  for (Rows rows = take_rows(0, pixels.features); rows.lanes && !interrupted();
       rows = take_rows(rows.last, pixels.features))
    sweep(pixels, boxes, rows, scratch.base(), grams);
}

}  // namespace DIVLEARN_ISA
