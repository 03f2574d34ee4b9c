// Householder reduction of packed symmetric lanes to tridiagonal form, and its way back for vectors.
#pragma once
#include "lanes.hpp"

namespace DIVLEARN_ISA {

constexpr int ROW_TILE = W == 8 ? 4 : 2;  // what the register file holds

// One pass over rows [i0, i0 + R): A -= v q^T + q v^T (the last step's update) and p += A u (the
// next step's product). Fused, each entry is loaded and stored once for four multiply-adds.
template <int R>
DIVLEARN_INLINE void update_and_multiply(int i0, Lane* A, const Lane* v, const Lane* q,
                                         const Lane* u, Lane* p) {
  Lane vi[R], qi[R], ui[R], pi[R];
  Lane* row[R];
  for (int r = 0; r < R; ++r) {
    vi[r] = v[i0 + r];
    qi[r] = q[i0 + r];
    ui[r] = u[i0 + r];
    pi[r] = Lane{};
    row[r] = A + packed_row(i0 + r);
  }
  for (int j = 0; j < i0; ++j) {
    const Lane vj = v[j], qj = q[j], uj = u[j];
    Lane pj = p[j];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      Lane x = row[r][j];
      x -= vi[r] * qj;
      x -= qi[r] * vj;
      row[r][j] = x;
      pi[r] += x * uj;
      pj += x * ui[r];
    }
    p[j] = pj;
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int s = 0; s <= r; ++s) {
      Lane x = row[r][i0 + s];
      x -= vi[r] * qi[s];
      x -= qi[r] * vi[s];
      row[r][i0 + s] = x;
      pi[r] += x * ui[s];
      if (s < r) pi[s] += x * ui[r];
    }
  for (int r = 0; r < R; ++r) p[i0 + r] = pi[r];
}

// A = Q T Q^T. diagonal[0..d), off_diagonal[0..d-1) (entry k couples k and k+1). Row k of A then
// holds the reflector v_k (length k) and scale[k] its 2/(v^T v); work: 4 d lanes.
static void tridiagonalize(int d, Lane* A, Lane* diagonal, Lane* off_diagonal, Lane* scale,
                           Lane* work) {
  Lane *v = work, *q = v + d, *u = q + d, *p = u + d;
  for (int i = 0; i < d; ++i) v[i] = q[i] = Lane{};
  scale[0] = scale[d > 1 ? 1 : 0] = Lane{};
  for (int k = d - 1; k >= 1; --k) {
    Lane* row = A + packed_row(k);
    const Lane vk = v[k], qk = q[k];
    for (int j = 0; j <= k; ++j) {
      row[j] -= vk * q[j];
      row[j] -= qk * v[j];
    }
    diagonal[k] = row[k];
    if (k == 1) {
      off_diagonal[0] = row[0];
      break;
    }
    Lane even = {}, odd = {};
    int j = 0;
    for (; j + 1 < k; j += 2) {
      even += row[j] * row[j];
      odd += row[j + 1] * row[j + 1];
    }
    if (j < k) even += row[j] * row[j];
    const Lane square = even + odd, last = row[k - 1];
    const Lane norm = square_root(square);
    const Lane image = last < 0.0 ? norm : -norm;  // the sign that does not cancel
    const Lane half = square - last * image;
    const Lane inverse = half > 1e-280 ? reciprocal(maximum(half, fill(1e-280))) : Lane{};
    off_diagonal[k - 1] = image;
    scale[k] = inverse;
    row[k - 1] = last - image;
    for (j = 0; j < k; ++j) u[j] = row[j];

    int i = 0;
    for (; i + ROW_TILE <= k; i += ROW_TILE) update_and_multiply<ROW_TILE>(i, A, v, q, u, p);
    for (; i < k; ++i) update_and_multiply<1>(i, A, v, q, u, p);
    Lane product = {};
    for (j = 0; j < k; ++j) {
      p[j] *= inverse;
      product += p[j] * u[j];
    }
    product *= inverse * 0.5;
    for (j = 0; j < k; ++j) {
      q[j] = p[j] - product * u[j];
      v[j] = u[j];
    }
  }
  diagonal[0] = d > 1 ? A[0] - 2.0 * v[0] * q[0] : A[0];
}

// Z <- Q Z for a tile of P columns, Z[row * P + column]. The update by one reflector and the
// product with the next share a pass.
template <int P>
DIVLEARN_INLINE void apply_reflectors(int d, const Lane* A, const Lane* scale, Lane* Z) {
  if (d < 3) return;
  Lane weight[P];
  const Lane* v = A + packed_row(2);
  for (int c = 0; c < P; ++c) weight[c] = v[0] * Z[c] + v[1] * Z[P + c];
  for (int k = 2; k < d; ++k) {
    const Lane* next = k + 1 < d ? A + packed_row(k + 1) : v;  // the last product is not used
    Lane following[P];
    for (int c = 0; c < P; ++c) {
      weight[c] *= scale[k];
      following[c] = k + 1 < d ? next[k] * Z[k * P + c] : Lane{};
    }
    for (int r = 0; r < k; ++r) {
      const Lane vr = v[r], nr = next[r];
#pragma GCC unroll 4
      for (int c = 0; c < P; ++c) {
        const Lane z = Z[r * P + c] - vr * weight[c];
        Z[r * P + c] = z;
        following[c] += nr * z;
      }
    }
    for (int c = 0; c < P; ++c) weight[c] = following[c];
    v = next;
  }
}

}  // namespace DIVLEARN_ISA
