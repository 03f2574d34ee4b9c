// Matrices in the form of the kernels: scaled by a power of two, factored; atoms also inverted.
#pragma once
#include "fragments.cuh"

constexpr int MATRIX_THREADS = D <= 32 ? 32 : 128;  // threads that prepare one matrix
constexpr int FACTOR_ROW = D | 1;              // odd: columns then lie in different banks

INLINE void sync_threads() {
  if constexpr (MATRIX_THREADS > 32) __syncthreads();
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
    if (!(entry > 0.0)) return false;  // the same for all threads
    int power;
    frexp(entry, &power);
    most = fmax(most, (double)power);
    least = fmin(least, (double)power);
  }
  *exponent = floor((most + least) * 0.5);
  for (int at = thread; at < D * D; at += MATRIX_THREADS)
    L[at / D * FACTOR_ROW + at % D] = ldexp(matrix[at], -(int)*exponent);
  sync_threads();
  double largest = 0.0, smallest = 1e300, sum = 0.0;
  for (int k = 0; k < D; ++k) {
    const double square = L[k * FACTOR_ROW + k];
    if (!(square > 0.0)) return false;
    const double pivot = sqrt(square), inverse = 1.0 / pivot;
    sync_threads();
    for (int i = k + thread; i < D; i += MATRIX_THREADS)
      L[i * FACTOR_ROW + k] = i == k ? pivot : L[i * FACTOR_ROW + k] * inverse;
    sync_threads();
    for (int i = k + 1 + thread; i < D; i += MATRIX_THREADS) {
      const double entry = L[i * FACTOR_ROW + k];
      for (int j = k + 1; j <= i; ++j) L[i * FACTOR_ROW + j] -= entry * L[j * FACTOR_ROW + k];
    }
    sync_threads();
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
  for (int i = threadIdx.x; i < D; i += MATRIX_THREADS) {
    double* row = K + i * FACTOR_ROW;
    for (int j = 0; j < D; ++j) row[j] = j == i ? 1.0 : 0.0;
    for (int j = i; j >= 0; --j) {
      row[j] /= L[j * FACTOR_ROW + j];
      for (int k = 0; k < j; ++k) row[k] -= row[j] * L[j * FACTOR_ROW + k];
    }
  }
  sync_threads();
}

INLINE void report_failure(i64 index, i64* failed) {
  if (threadIdx.x == 0) atomicMin((unsigned long long*)failed, (unsigned long long)index);
}

// One block per matrix. failed: the first matrix without a factor, if any.
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
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
    for (int at = threadIdx.x; at < D * D; at += MATRIX_THREADS) {
      const int i = at / D, j = at % D;
      if (j <= i) factors[(i64)(triangle(i) + j) * count + index] = L[i * FACTOR_ROW + j];
    }
  } else {
    for (int at = threadIdx.x; at < 64 * TILES * TILES; at += MATRIX_THREADS) {
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
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
prepare_atoms(const double* matrices, double* whiteners, double* factors, double* exponents,
              double* logdets, double* spreads, i64* failed) {
  const i64 index = blockIdx.x;
  double exponent, logdet, spread;
  if (!factor_shared(matrices + index * D * D, shared, &exponent, &logdet, &spread)) {
    report_failure(index, failed);
    return;
  }
  double *K = shared, *L = whiteners + index * D * FACTOR_ROW;
  for (int at = threadIdx.x; at < D * FACTOR_ROW; at += MATRIX_THREADS) L[at] = shared[at];
  sync_threads();
  invert_factor(L, K);
  for (int at = threadIdx.x; at < 64 * TILES * TILES; at += MATRIX_THREADS) {
    const int i = at / (8 * TILES), j = at % (8 * TILES);
    if (SMALL ? i < D && j <= i : j / 8 <= i / 8)
      factors[index * FACTOR + (SMALL ? triangle(i) + j : left_place(i, j))] =
          i < D && j <= i ? K[i * FACTOR_ROW + j] : 0.0;
  }
  for (int at = threadIdx.x; at < D * FACTOR_ROW; at += MATRIX_THREADS)
    L[at] = at % FACTOR_ROW <= at / FACTOR_ROW ? K[at] : 0.0;
  if (threadIdx.x == 0) {
    exponents[index] = exponent;
    logdets[index] = logdet;
    spreads[index] = spread;
  }
}

// d times a lower bound on the condition of X once its diagonal is one: a Rayleigh quotient of the
// scaled inverse after one step of inverse iteration. Factorizing X has moved the eigenvalues of
// its pencils by about so many eps. work: 3 D doubles.
INLINE double inherited_error(const double* matrix, double exponent, const double* K,
                              double* work) {
  double *y = work, *image = work + D, *solution = work + 2 * D;
  const auto variance = [&](int i) { return ldexp(matrix[i * D + i], -(int)exponent); };
  const auto multiply = [&] {  // image = K y
    sync_threads();
    for (int i = threadIdx.x; i < D; i += MATRIX_THREADS) {
      image[i] = 0.0;
      for (int j = 0; j <= i; ++j) image[i] = fma(K[i * FACTOR_ROW + j], y[j], image[i]);
    }
    sync_threads();
  };
  for (int i = threadIdx.x; i < D; i += MATRIX_THREADS) y[i] = variance(i) * K[i * FACTOR_ROW + i];
  multiply();
  for (int i = threadIdx.x; i < D; i += MATRIX_THREADS) {
    double sum = 0.0;
    for (int k = i; k < D; ++k) sum = fma(K[k * FACTOR_ROW + i], image[k], sum);
    solution[i] = sum;
    y[i] = variance(i) * sum;
  }
  multiply();
  double norm = 0.0, square = 0.0;
  for (int i = 0; i < D; ++i) {
    norm = fma(y[i], solution[i], norm);
    square = fma(image[i], image[i], square);
  }
  return D * square / norm;
}

// Factors of the inverses of pencils: J A^-1 J = M M^T with M = (J L_B^T J)(J L_X^-T J), J the
// reversed identity, is a product of lower triangles as A is. Of atoms the left one is formed, of
// data the right one. Blocks take matrices in turn; scratch holds D * FACTOR_ROW doubles for each.
extern "C" __global__ void __launch_bounds__(MATRIX_THREADS)
prepare_inverses(const double* matrices, double* scratch, double* factors, double* errors,
                 i64 count, int of_atoms) {
  double *K = shared, *L = scratch + (i64)blockIdx.x * D * FACTOR_ROW;
  for (i64 index = blockIdx.x; index < count; index += gridDim.x) {
    const double* matrix = matrices + index * D * D;
    double exponent, logdet, spread;
    factor_shared(matrix, shared, &exponent, &logdet, &spread);  // which has worked before
    for (int at = threadIdx.x; at < D * FACTOR_ROW; at += MATRIX_THREADS) L[at] = shared[at];
    sync_threads();
    invert_factor(L, K);
    const double error = inherited_error(matrix, exponent, K, shared + D * FACTOR_ROW);
    if (threadIdx.x == 0) errors[index] = error;
    const double* source = of_atoms ? L : K;
    for (int at = threadIdx.x; at < 64 * TILES * TILES; at += MATRIX_THREADS) {
      const int i = at / (8 * TILES), j = at % (8 * TILES);
      if (SMALL ? i >= D || j > i : j / 8 > i / 8) continue;
      const double entry =
          i < D && j <= i ? source[(D - 1 - j) * FACTOR_ROW + D - 1 - i] : 0.0;
      if (SMALL && !of_atoms) factors[(i64)(triangle(i) + j) * count + index] = entry;
      else if (SMALL) factors[index * FACTOR + triangle(i) + j] = entry;
      else factors[index * FACTOR + (of_atoms ? left_place(i, j) : right_place(i, j))] = entry;
    }
    sync_threads();
  }
}
