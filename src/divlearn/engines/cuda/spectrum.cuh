// Spectra of pairs.
#pragma once
#include "state.cuh"

// The log-eigenvalues of a pair, read from memory at every use.
struct Spectrum {
  const double* values;  // of this pair, `pairs` apart
  i64 pairs;
  double exponent;
  bool direct;

  INLINE double operator[](int i) const {
    const double value = values[i * pairs];
    return direct ? log_scaled(value, exponent) : value;
  }
};

struct PairIndex {
  i64 pair, atom, row;
};

// The pair a thread works on: of a list if there is one, of all pairs otherwise; -1 beyond the end.
INLINE PairIndex pair_of_thread(const i64* list, const int* length, i64 rows, i64 pairs) {
  i64 pair = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (pair >= (list ? *length : pairs)) return {-1, 0, 0};
  if (list) pair = list[pair];
  return {pair, pair / rows, pair % rows};
}

INLINE Spectrum spectrum_of(const double* values, const double* exponents,
                            const unsigned char* states, const double* data_exponents,
                            const double* atom_exponents, const PairIndex& at, i64 pairs) {
  return {values + at.pair, pairs,
          exponents[at.pair] + data_exponents[at.row] - atom_exponents[at.atom],
          states[at.pair] == DIRECT};
}

