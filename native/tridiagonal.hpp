// Householder reduction of packed symmetric lanes to tridiagonal form, and its way back for vectors.
#pragma once
#include "lanes.hpp"

namespace DIVLEARN_ISA {

constexpr int ROW_TILE = REGISTERS == 32 ? 4 : 2;  // what the register file holds

// Reflector v and its companion q: the matrix still lacks - v q^T - q v^T.
struct Pending {
  const Lane *v, *q;
};

// One pass over rows [i0, i0 + R): A gets the pending updates, p += A u. Fused, each entry is loaded
// and stored once; without updates it is only loaded.
template <int R, int UPDATES>
DIVLEARN_INLINE void update_and_multiply(int i0, Lane* A, const Pending* pending, const Lane* u,
                                         Lane* p) {
  Lane vi[UPDATES + 1][R], qi[UPDATES + 1][R], ui[R], pi[R];
  Lane* row[R];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < UPDATES; ++n) {
      vi[n][r] = pending[n].v[i0 + r];
      qi[n][r] = pending[n].q[i0 + r];
    }
    ui[r] = u[i0 + r];
    pi[r] = Lane{};
    row[r] = A + packed_row(i0 + r);
  }
  for (int j = 0; j < i0; ++j) {
    Lane vj[UPDATES + 1], qj[UPDATES + 1];
#pragma GCC unroll 2
    for (int n = 0; n < UPDATES; ++n) {
      vj[n] = pending[n].v[j];
      qj[n] = pending[n].q[j];
    }
    const Lane uj = u[j];
    Lane pj = p[j];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      Lane x = row[r][j];
#pragma GCC unroll 2
      for (int n = 0; n < UPDATES; ++n) {
        x -= vi[n][r] * qj[n];
        x -= qi[n][r] * vj[n];
      }
      if (UPDATES) row[r][j] = x;
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
#pragma GCC unroll 2
      for (int n = 0; n < UPDATES; ++n) {
        x -= vi[n][r] * qi[n][s];
        x -= qi[n][r] * vi[n][s];
      }
      if (UPDATES) row[r][i0 + s] = x;
      pi[r] += x * ui[s];
      if (s < r) pi[s] += x * ui[r];
    }
  for (int r = 0; r < R; ++r) p[i0 + r] = pi[r];
}

template <int R, int UPDATES>
DIVLEARN_INLINE void pass(int k, Lane* A, const Pending* pending, const Lane* u, Lane* p) {
  int i = 0;
  for (; i + R <= k; i += R) update_and_multiply<R, UPDATES>(i, A, pending, u, p);
  for (; i < k; ++i) update_and_multiply<1, UPDATES>(i, A, pending, u, p);
}

// A = Q T Q^T. diagonal[0..d), off_diagonal[0..d-1) (entry k couples k and k+1). Row k of A then
// holds the reflector v_k (length k) and scale[k] its 2/(v^T v); work: 3 d lanes.
//
// Updates wait in pairs: every other step only reads the matrix, which matters once it outgrows the
// first-level cache. The reflectors themselves stay where they are kept, in the rows of A.
static void tridiagonalize(int d, Lane* A, Lane* diagonal, Lane* off_diagonal, Lane* scale,
                           Lane* work) {
  Lane *p = work, *companion[2] = {work + d, work + 2 * d};
  Pending pending[2];
  int waiting = 0;
  scale[0] = scale[d > 1 ? 1 : 0] = Lane{};
  for (int k = d - 1; k >= 1; --k) {
    Lane* row = A + packed_row(k);
    for (int n = 0; n < waiting; ++n) {
      const Lane *v = pending[n].v, *q = pending[n].q, vk = v[k], qk = q[k];
      for (int j = 0; j <= k; ++j) row[j] = row[j] - vk * q[j] - qk * v[j];
    }
    diagonal[k] = row[k];
    if (k == 1) {
      off_diagonal[0] = row[0];
      break;
    }
    const Lane square = dot(k, row, row), last = row[k - 1];
    const Lane norm = square_root(square);
    const Lane image = last < 0.0 ? norm : -norm;  // the sign that does not cancel
    const Lane half = square - last * image;
    const Lane inverse = half > 1e-280 ? reciprocal(maximum(half, fill(1e-280))) : Lane{};
    off_diagonal[k - 1] = image;
    scale[k] = inverse;
    row[k - 1] = last - image;

    const Lane* u = row;
    if (waiting == 2) {
      pass<2, 2>(k, A, pending, u, p);
      waiting = 0;
    } else {
      pass<ROW_TILE, 0>(k, A, pending, u, p);
    }
    if (waiting == 1) {
      const Lane *v = pending[0].v, *q = pending[0].q;
      const Lane along_v = dot(k, v, u), along_q = dot(k, q, u);
      for (int j = 0; j < k; ++j) p[j] = p[j] - v[j] * along_q - q[j] * along_v;
    }
    const Lane product = dot(k, p, u) * inverse * (inverse * 0.5);
    Lane* q = companion[waiting];
    for (int j = 0; j < k; ++j) q[j] = p[j] * inverse - product * u[j];
    pending[waiting++] = {u, q};
  }
  Lane first = A[0];
  for (int n = 0; n < waiting; ++n) first -= 2.0 * pending[n].v[0] * pending[n].q[0];
  diagonal[0] = first;
}

// Z <- H_{k+1} H_k Z for a tile of P columns, with reflectors v (length k) and w (length k + 1). On
// entry along_v = v^T Z, along_w = w^T Z and overlap = v^T w; on return, where MORE, those of the
// next two reflectors: the update by two and the products with the next two share a pass.
template <int P, bool MORE>
DIVLEARN_INLINE void apply_two(int k, const Lane* A, const Lane* scale, Lane* Z, Lane* along_v,
                               Lane* along_w, Lane* overlap) {
  const Lane *v = A + packed_row(k), *w = A + packed_row(k + 1);
  const Lane *next_v = MORE ? A + packed_row(k + 2) : v, *next_w = MORE ? A + packed_row(k + 3) : w;
  Lane by_v[P], by_w[P], following_v[P] = {}, following_w[P] = {}, product = {};
  for (int c = 0; c < P; ++c) {
    by_v[c] = scale[k] * along_v[c];
    by_w[c] = scale[k + 1] * (along_w[c] - *overlap * by_v[c]);
  }
  for (int r = 0; r <= k; ++r) {
    const Lane vr = r < k ? v[r] : Lane{}, wr = w[r], next_vr = next_v[r], next_wr = next_w[r];
    if (MORE) product += next_vr * next_wr;
#pragma GCC unroll 4
    for (int c = 0; c < P; ++c) {
      const Lane z = Z[r * P + c] - vr * by_v[c] - wr * by_w[c];
      Z[r * P + c] = z;
      if (!MORE) continue;
      following_v[c] += next_vr * z;
      following_w[c] += next_wr * z;
    }
  }
  if (!MORE) return;
  *overlap = product + next_v[k + 1] * next_w[k + 1];
  for (int c = 0; c < P; ++c) {
    const Lane below = Z[(k + 1) * P + c];
    along_v[c] = following_v[c] + next_v[k + 1] * below;
    along_w[c] = following_w[c] + next_w[k + 1] * below + next_w[k + 2] * Z[(k + 2) * P + c];
  }
}

// Z <- Q Z for a tile of P columns, Z[row * P + column].
template <int P>
DIVLEARN_INLINE void apply_reflectors(int d, const Lane* A, const Lane* scale, Lane* Z) {
  if (d < 3) return;
  const Lane* v = A + packed_row(2);
  Lane along_v[P], along_w[P], overlap = {};
  for (int c = 0; c < P; ++c) along_v[c] = v[0] * Z[c] + v[1] * Z[P + c];
  int k = 2;
  if (d % 2) {  // an odd number of reflectors
    for (int c = 0; c < P; ++c) {
      const Lane by_v = scale[2] * along_v[c];
      Z[c] -= v[0] * by_v;
      Z[P + c] -= v[1] * by_v;
    }
    if (d == 3) return;
    v = A + packed_row(++k);
    for (int c = 0; c < P; ++c)
      along_v[c] = v[0] * Z[c] + v[1] * Z[P + c] + v[2] * Z[2 * P + c];
  }
  const Lane* w = A + packed_row(k + 1);
  for (int c = 0; c < P; ++c) along_w[c] = w[k] * Z[k * P + c];
  for (int r = 0; r < k; ++r) {
    overlap += v[r] * w[r];
    for (int c = 0; c < P; ++c) along_w[c] += w[r] * Z[r * P + c];
  }
  for (; k + 3 < d; k += 2) apply_two<P, true>(k, A, scale, Z, along_v, along_w, &overlap);
  apply_two<P, false>(k, A, scale, Z, along_v, along_w, &overlap);
}

}  // namespace DIVLEARN_ISA
