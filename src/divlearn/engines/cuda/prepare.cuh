// Matrices as the kernels take them: scaled by a power of two, factored; atoms inverted too.
#pragma once
#include "fragments.cuh"

constexpr int PREPARERS = D <= 32 ? 32 : 128;  // threads that prepare one matrix
constexpr int FACTOR_ROW = D | 1;              // odd: columns then lie in different banks

INLINE void sync_preparers() {
  if constexpr (PREPARERS > 32) __syncthreads();
  else __syncwarp();
}

// Scales by 2^-e, e halfway between the exponents of the largest and the smallest diagonal entry,
// and factors in place, L[i * FACTOR_ROW + j]. False if there is no factor.
INLINE bool factor_shared(const double* matrix, double* L, double* exponent, double* logdet,
                          double* spread) {
  const int thread = threadIdx.x;
  double most = -5000.0, least = 5000.0;
  for (int i = 0; i < D; ++i) {
    const double entry = matrix[i * D + i];
    if (!(entry > 0.0)) return false;  // all threads see the same
    int power;
    frexp(entry, &power);
    most = fmax(most, (double)power);
    least = fmin(least, (double)power);
  }
  *exponent = floor((most + least) * 0.5);
  for (int at = thread; at < D * D; at += PREPARERS)
    L[at / D * FACTOR_ROW + at % D] = ldexp(matrix[at], -(int)*exponent);
  sync_preparers();
  double largest = 0.0, smallest = 1e300, sum = 0.0;
  for (int k = 0; k < D; ++k) {
    const double square = L[k * FACTOR_ROW + k];
    if (!(square > 0.0)) return false;
    const double pivot = sqrt(square), inverse = 1.0 / pivot;
    sync_preparers();
    for (int i = k + thread; i < D; i += PREPARERS)
      L[i * FACTOR_ROW + k] = i == k ? pivot : L[i * FACTOR_ROW + k] * inverse;
    sync_preparers();
    for (int i = k + 1 + thread; i < D; i += PREPARERS) {
      const double entry = L[i * FACTOR_ROW + k];
      for (int j = k + 1; j <= i; ++j) L[i * FACTOR_ROW + j] -= entry * L[j * FACTOR_ROW + k];
    }
    sync_preparers();
    largest = fmax(largest, pivot);
    smallest = fmin(smallest, pivot);
    sum += log(pivot);
  }
  *logdet = 2.0 * sum;
  *spread = (largest / smallest) * (largest / smallest);
  return true;
}

// K with K L = I, row by row: the residual is small on the side that multiplies the data.
INLINE void invert_factor(const double* L, double* K) {
  for (int i = threadIdx.x; i < D; i += PREPARERS) {
    double* row = K + i * FACTOR_ROW;
    for (int j = 0; j < D; ++j) row[j] = j == i ? 1.0 : 0.0;
    for (int j = i; j >= 0; --j) {
      row[j] /= L[j * FACTOR_ROW + j];
      for (int k = 0; k < j; ++k) row[k] -= row[j] * L[j * FACTOR_ROW + k];
    }
  }
  sync_preparers();
}

INLINE void report_failure(i64 index, i64* failed) {
  if (threadIdx.x == 0) atomicMin((unsigned long long*)failed, (unsigned long long)index);
}

// One block per matrix. failed: the first matrix without a factor, if any.
extern "C" __global__ void __launch_bounds__(PREPARERS)
prepare_data(const double* matrices, double* factors, double* exponents, double* logdets,
             double* spreads, i64* failed, i64 count) {
  const i64 index = blockIdx.x;
  double exponent, logdet, spread;
  if (!factor_shared(matrices + index * D * D, shared, &exponent, &logdet, &spread)) {
    report_failure(index, failed);
    return;
  }
  const double* L = shared;
  if constexpr (SMALL) {
    for (int at = threadIdx.x; at < D * D; at += PREPARERS) {
      const int i = at / D, j = at % D;
      if (j <= i) factors[(i64)(triangle(i) + j) * count + index] = L[i * FACTOR_ROW + j];
    }
  } else {
    for (int at = threadIdx.x; at < 64 * TILES * TILES; at += PREPARERS) {
      const int i = at / (8 * TILES), j = at % (8 * TILES);
      if (j / 8 <= i / 8)
        factors[index * FACTOR + right_place(i, j)] =
            i < D && j <= i ? L[i * FACTOR_ROW + j] : 0.0;
    }
  }
  if (threadIdx.x == 0) {
    exponents[index] = exponent;
    logdets[index] = logdet;
    spreads[index] = spread;
  }
}

// One block per atom; L is read back from global memory, where two triangles would not fit.
extern "C" __global__ void __launch_bounds__(PREPARERS)
prepare_atoms(const double* matrices, double* whiteners, double* factors, double* exponents,
              double* logdets, double* spreads, i64* failed) {
  const i64 index = blockIdx.x;
  double exponent, logdet, spread;
  if (!factor_shared(matrices + index * D * D, shared, &exponent, &logdet, &spread)) {
    report_failure(index, failed);
    return;
  }
  double *K = shared, *L = whiteners + index * D * FACTOR_ROW;
  for (int at = threadIdx.x; at < D * FACTOR_ROW; at += PREPARERS) L[at] = shared[at];
  sync_preparers();
  invert_factor(L, K);
  for (int at = threadIdx.x; at < 64 * TILES * TILES; at += PREPARERS) {
    const int i = at / (8 * TILES), j = at % (8 * TILES);
    if (SMALL ? i < D && j <= i : j / 8 <= i / 8)
      factors[index * FACTOR + (SMALL ? triangle(i) + j : left_place(i, j))] =
          i < D && j <= i ? K[i * FACTOR_ROW + j] : 0.0;
  }
  for (int at = threadIdx.x; at < D * FACTOR_ROW; at += PREPARERS)
    L[at] = at % FACTOR_ROW <= at / FACTOR_ROW ? K[at] : 0.0;
  if (threadIdx.x == 0) {
    exponents[index] = exponent;
    logdets[index] = logdet;
    spreads[index] = spread;
  }
}
