// What the compiled kernels offer: plain arrays in, plain arrays out, one table per instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

namespace divlearn {

// N matrices in groups of `lanes`, entry by entry ("packed lanes"), the last group padded with
// copies of the last matrix. Matrices are scaled by 2^-exponent. Packed arrays are aligned to the vector width.
struct Data {
  int64_t count;
  int d;
  const double* factor;    // Cholesky factors
  const double* matrix;    // the matrices, or null where no route needs them
  const double* logdet;    // of the scaled matrices
  const double* exponent;
  const double* spread;    // (max l_ii / min l_ii)^2: a lower bound of the condition number
};

// n atoms, scaled likewise; ordinary scalars, row-major.
struct Atoms {
  int count;
  const double* whitener;  // (n, d, d): inverse Cholesky factors, zero above the diagonal
  const double* matrix;    // (n, d(d+1)/2): packed lower triangle
  const double* logdet;
  const double* exponent;
  const double* spread;
};

// m parameter pairs per atom, (n, m), all >= 0.
struct Parameters {
  int per_atom;
  const double* alpha;
  const double* beta;
};

struct Options {
  double condition_limit;  // ratio of eigenvalues above which the accurate route is taken
  int threads;
  bool (*interrupted)();   // asked by the calling thread between pieces of work; true stops it
  unsigned char* failed;   // (groups, n): set where a group and an atom found no finite answer
};

// Where a pullback puts its sums; any of these but `atoms` may be null. Partial sums over fixed
// chunks of the data keep results independent of the number of threads.
struct PullbackOutput {
  int chunks;
  double* atoms;   // (n, chunks, d(d+1)/2)
  double* alpha;   // (n, chunks, m)
  double* beta;    // (n, chunks, m)
  double* values;  // (N, n, m)
};

// n filters V of rank p, rows of V^T, (n, p, d).
struct Filters {
  int count, rank;
  const double* rows;
};

// Pairs with alpha + beta = 1 and neither negative, the same for all filters.
struct Line {
  int count;
  const double* alpha;
  const double* beta;
};

// Features of pixels less their offsets, and one more that is one everywhere.
struct Pixels {
  int64_t height, width;
  int features;          // the constant one included
  const double* values;  // (features - 1, height, width)
  const double* offset;  // (features - 1)
};

// Boxes [top, bottom) x [left, right). Their edges by rows: those of row y are
// edge[edge_start[y] : edge_start[y + 1]], where k < count is the upper one of box k and
// count + k the lower one.
struct Boxes {
  int64_t count;
  const int64_t* left;
  const int64_t* right;
  const int64_t* edge_start;  // (height + 2)
  const int64_t* edge;        // (2 count)
};

// What a softmax head is fitted to; shares are computed.
struct SoftmaxSamples {
  int64_t samples;
  int columns, outputs;
  const double* design;   // (samples, columns)
  const double* targets;  // (samples, outputs)
  const double* weights;  // (samples)
  double* shares;         // (samples, outputs)
};

// Around the current softmax head, in principal components ("columns") of the features.
struct SoftmaxHead {
  int64_t samples;
  int columns, outputs;
  const double* shares;   // (samples, outputs): probabilities
  const double* weights;  // (samples)
  const double* scale;    // (columns, outputs): about the diagonal of the Hessian
  const double* bias;     // (columns): the direction that is not penalised, zero without a bias
  double penalty, damping;
  double enough;          // size of the residual at which to stop
  double least_gain;      // of a product, against the mean of those before, to go on
  int most_products;
};

// Support vector machines for all pairs of classes; samples come class by class.
struct PairProblems {
  int64_t samples;
  int classes;
  const double* kernel;    // (pitch, pitch): solved in single precision
  int64_t pitch;
  const int64_t* rows;     // (samples): of the kernel
  const double* diagonal;  // (samples): of the kernel, in all digits
  const double* most;      // (samples): upper bounds of the coefficients
  const int64_t* starts;   // (classes + 1): where classes begin, and the last ends
  double tolerance;
};

struct Kernels {
  const char* name;
  int lanes;
  // Returns the index of the first matrix that has no Cholesky factor, or -1.
  int64_t (*factor)(int64_t count, int d, const double* matrices, double* factor, double* matrix,
                 double* logdet, double* exponent, double* spread, int threads);
  // The following return the number of entries they set in Options::failed.
  int64_t (*spectra)(const Data&, const Atoms&, const Options&, double* out);
  int64_t (*encode)(const Data&, const Atoms&, const Parameters&, const Options&, double* out);
  int64_t (*pullback)(const Data&, const Atoms&, const Parameters&, const Options&,
                   const double* cotangent, const PullbackOutput&);
  // Theta = 1 alone: atoms get sum_i w_i N_i^-1, N = alpha X + beta B; one pair per atom.
  int64_t (*pullback_logdet)(const Data&, const Atoms&, const Parameters&, const Options&,
                          const double* cotangent, const PullbackOutput&);
  // Logs of matrices whitened by the one atom, (N, d(d+1)/2).
  int64_t (*logarithms)(const Data&, const Atoms&, const Options&, double* out);
  // Divergences of V^T X V to the identity, then its size; (N, n, pairs + 1).
  void (*encode_filters)(const Data&, const Filters&, const Line&, int threads, bool (*interrupted)(),
                         double* out);
  // Gradients in the rows of filters, (n, chunks, p, d).
  void (*pullback_filters)(const Data&, const Filters&, const Line&, int threads,
                           bool (*interrupted)(), const double* cotangent, int chunks, double* out);
  // Adds sum_p f_p f_p^T over each box to the upper triangles of grams (count, features, features).
  void (*box_grams)(const Pixels&, const Boxes&, bool (*interrupted)(), double* grams);
  // Losses of a head (columns, outputs) and typical second derivatives, then the gradient.
  void (*softmax_sums)(const SoftmaxSamples&, const double* head, int threads, double* totals,
                       double* gradient);
  // Newton step of a head, (columns, outputs), for a design of (samples, columns).
  void (*softmax_step_single)(const SoftmaxHead&, const float* design, int threads, bool (*interrupted)(),
                              const double* gradient, double* step);
  void (*softmax_step_double)(const SoftmaxHead&, const double* design, int threads,
                              bool (*interrupted)(), const double* gradient, double* step);
  // Divergences (count, points) of spectra (count, d).
  void (*plane)(int64_t count, int d, const double* t, int points, const double* alpha,
                const double* beta, bool (*interrupted)(), double* out);
  // Signed coefficients, (classes - 1, samples), and offsets, of pairs as in scikit-learn's SVC.
  void (*solve_pairs)(const PairProblems&, bool (*interrupted)(), double* coefficients,
                      double* offsets);
  // The functions of elementwise.hpp.
  void (*decay)(int64_t count, const double* x, double scale, double* out);
  void (*power_sums)(int64_t rows, int64_t columns, const double* x, double scale, double* out);
  void (*pair_losses)(int classes, int64_t columns, const double* decisions, double sharpness,
                      double* losses);
};

const Kernels* kernels_baseline();
#if defined(DIVLEARN_X86)
const Kernels* kernels_avx2();
const Kernels* kernels_avx512();
#endif

}  // namespace divlearn
