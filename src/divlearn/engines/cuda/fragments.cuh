// Triangular factors as the kernels load them: entry by entry across the matrices where a thread
// holds one (d <= 8), as tensor-core fragments of 8 x 8 tiles where a warp does.
#pragma once
#include "team.cuh"

constexpr int FACTOR = SMALL ? triangle(D) : triangle(TILES) * 64;  // doubles per matrix

// Place of entry (i, j), i >= j, of the right factor L_X in `multiply_add_tile`: a lane's two
// halves of a tile side by side.
INLINE int right_place(int i, int j) {
  const int tile = triangle(i / 8) + j / 8, lane = (j & 7) * 4 + (i & 3);
  return (tile * 32 + lane) * 2 + (i >> 2 & 1);
}

// The same for the left factor L_B^-1.
INLINE int left_place(int i, int j) {
  const int tile = triangle(i / 8) + j / 8, lane = (i & 7) * 4 + (j & 3);
  return (tile * 32 + lane) * 2 + (j >> 2 & 1);
}

// The factor of one matrix of many; `count` is the number of matrices in the array.
struct RightFactor {
  const double* start;
  i64 count, index;

  INLINE double entry(int i, int j) const {
    if constexpr (SMALL) return __ldg(start + (i64)(triangle(i) + j) * count + index);
    else return __ldg(start + index * FACTOR + right_place(i, j));
  }

  INLINE double2 tile(int i, int j) const {  // this lane's share
    const double2* tiles = (const double2*)(start + index * FACTOR);
    return __ldg(tiles + (triangle(i) + j) * 32 + (threadIdx.x & 31));
  }
};

struct LeftFactor {
  const double* start;  // of this atom

  INLINE double entry(int i, int j) const {
    return __ldg(start + (SMALL ? triangle(i) + j : left_place(i, j)));
  }

  INLINE double2 tile(int i, int j) const {
    return __ldg((const double2*)start + (triangle(i) + j) * 32 + (threadIdx.x & 31));
  }
};
