// Wide and clustered spectra. Rounding moves the eigenvalues of A = L_B^-1 X L_B^-T by eps times
// the largest, and those of A^-1 by eps times its largest: each is taken from the side where it is
// large. The sum of w z z^T over equal eigenvalues needs any basis of their space. That of the
// longest run of equal eigenvalues is the identity less the sum of the others: no vectors needed.
#pragma once
#include "state.cuh"

// Where the eigenvalues of a pair come from, ascending: below `cut` from the inverse. Those of the
// run [first, end) are equal. `joined` is 0 for pairs that take another route.
struct Range {
  unsigned char cut, first, end, joined;

  INLINE bool in_run(int i) const { return i >= first && i < end; }

  // Whether the pair needs column j of a side; the columns of the inverse are in reverse order.
  INLINE bool needs(int j, bool inverse) const {
    const int i = inverse ? D - 1 - j : j;
    return j < D && !in_run(i) && (inverse ? i < cut : i >= cut);
  }
};
