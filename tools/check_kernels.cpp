// Compares the kernels of every instruction set of this machine with closed forms.
//
// Data X_i = Q diag(e^a_i) Q^T and atoms B_k = Q diag(e^b_k) Q^T share their eigenvectors Q, so
// that t = a - b are the log-eigenvalues, V = sum f(t) the values and Q diag(-f'(t)/e^b) Q^T the
// gradients. tools/check_kernels.sh builds this, also for other processors, and runs it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "../native/atoms.hpp"
#include "../native/kernels.hpp"

namespace {

typedef long double Real;
typedef std::vector<double> Array;

int failures = 0;

void expect(const char* isa, const char* what, int d, double error, double allowed) {
  if (error <= allowed) return;
  std::printf("%s, %s, d = %d: error %.3g > %.3g\n", isa, what, d, error, allowed);
  ++failures;
}

Real f(Real t, Real alpha, Real beta) {
  if (alpha == 0 && beta == 0) return t * t / 2;
  if (alpha == 0) return (std::expm1(beta * t) - beta * t) / (beta * beta);
  if (beta == 0) return f(-t, beta, alpha);
  const Real mixture = alpha * std::expm1(beta * t) + beta * std::expm1(-alpha * t);
  return std::log1p(mixture / (alpha + beta)) / (alpha * beta);
}

Real slope(Real (*of)(Real, Real, Real), Real t, Real alpha, Real beta, int argument) {
  const Real h = 1e-5L;
  const Real dt = argument == 0 ? h : 0, da = argument == 1 ? h : 0, db = argument == 2 ? h : 0;
  return (of(t + dt, alpha + da, beta + db) - of(t - dt, alpha - da, beta - db)) / (2 * h);
}

// A rotation: the product of a few reflections, in long double.
std::vector<Real> rotation(int d, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<Real> Q((size_t)d * d), v(d);
  for (int i = 0; i < d; ++i) Q[(size_t)i * d + i] = 1;
  for (int k = 0; k < 4; ++k) {
    Real square = 0;
    for (Real& x : v) x = normal(random), square += x * x;
    for (int i = 0; i < d; ++i) {
      Real dot = 0;
      for (int j = 0; j < d; ++j) dot += Q[(size_t)i * d + j] * v[j];
      for (int j = 0; j < d; ++j) Q[(size_t)i * d + j] -= 2 * dot * v[j] / square;
    }
  }
  return Q;
}

void rotate(int d, const std::vector<Real>& Q, const Real* values, double* out) {
  for (int i = 0; i < d; ++i)
    for (int j = 0; j < d; ++j) {
      Real sum = 0;
      for (int k = 0; k < d; ++k) sum += Q[(size_t)i * d + k] * values[k] * Q[(size_t)j * d + k];
      out[(size_t)i * d + j] = (double)sum;
    }
}

struct Aligned {  // to a cache line, as packed lanes must be
  explicit Aligned(size_t size)
      : data((double*)::operator new(size * sizeof(double), std::align_val_t{64})) {}
  ~Aligned() { ::operator delete(data, std::align_val_t{64}); }
  double* data;
};

// Log-eigenvalues of data and atoms lie in [-extent, extent].
void check(const divlearn::Kernels& kernels, int d, double extent, double alpha, double beta) {
  const int N = 13, n = 3, chunks = 2, W = kernels.lanes;
  const size_t size = (size_t)d * (d + 1) / 2, padded = (size_t)(N + W - 1) / W * W;
  std::mt19937 random(d);
  std::uniform_real_distribution<double> uniform(-extent, extent);
  const std::vector<Real> Q = rotation(d, random);
  Array a((size_t)N * d), b((size_t)n * d), X((size_t)N * d * d), B((size_t)n * d * d);
  const auto fill = [&](int count, Array& logs, Array& matrices) {
    std::vector<Real> values(d);
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < d; ++j)
        values[j] = std::exp((Real)(logs[(size_t)i * d + j] = uniform(random)));
      rotate(d, Q, values.data(), &matrices[(size_t)i * d * d]);
    }
  };
  fill(N, a, X);
  fill(n, b, B);

  Aligned factor(padded * size), matrix(padded * size);
  Array logdet(padded), exponent(padded), spread(padded);
  if (kernels.factor(N, d, X.data(), factor.data, matrix.data, logdet.data(), exponent.data(),
                     spread.data(), 1) != -1)
    std::abort();
  Array whitener((size_t)n * d * d), packed(n * size), inverse(n * size);
  Array atom_logdet(n), atom_exponent(n), atom_spread(n);
  if (divlearn::prepare_atoms(n, d, B.data(), {whitener.data(), packed.data(), inverse.data(),
                              atom_logdet.data(), atom_exponent.data(), atom_spread.data()}) != -1)
    std::abort();
  const divlearn::Data data = {N, d, factor.data, matrix.data, logdet.data(), exponent.data(),
                               spread.data()};
  const divlearn::Atoms atoms = {n, whitener.data(), packed.data(), atom_logdet.data(),
                                 atom_exponent.data(), atom_spread.data()};
  const Array alphas(n, alpha), betas(n, beta), weights((size_t)N * n, 1.0);
  const divlearn::Parameters parameters = {1, alphas.data(), betas.data()};
  std::vector<unsigned char> failed(padded / W * n);
  const divlearn::Options options = {1e5, 1, nullptr, failed.data()};
  Array t((size_t)N * n * d), V((size_t)N * n), again((size_t)N * n);
  Array sums(n * chunks * size), in_alpha(n * chunks), in_beta(n * chunks);
  int64_t unanswered = kernels.spectra(data, atoms, options, t.data());
  unanswered += kernels.encode(data, atoms, parameters, options, V.data());
  unanswered += kernels.pullback(data, atoms, parameters, options, weights.data(),
      {chunks, sums.data(), in_alpha.data(), in_beta.data(), again.data()});
  expect(kernels.name, "pairs without an answer", d, (double)unanswered, 0);

  // Rounding moves eigenvalues by eps times both condition numbers.
  const double allowed = 50 * d * 2.2e-16 * std::exp(4 * extent);
  double spectra_error = 0, value_error = 0, gradient_error = 0, parameter_error = 0;
  for (int k = 0; k < n; ++k) {
    std::vector<Real> gradient(d), values(d);
    Real first = 0, second = 0;
    for (int i = 0; i < N; ++i) {
      Array expected(d);
      Real value = 0;
      for (int j = 0; j < d; ++j) {
        const Real log_ratio = (Real)a[(size_t)i * d + j] - b[(size_t)k * d + j];
        expected[j] = (double)log_ratio;
        value += f(log_ratio, alpha, beta);
        gradient[j] += slope(f, log_ratio, alpha, beta, 0) * std::exp(-(Real)b[(size_t)k * d + j]);
        if (alpha > 0 && beta > 0) {
          first += slope(f, log_ratio, alpha, beta, 1);
          second += slope(f, log_ratio, alpha, beta, 2);
        }
      }
      std::sort(expected.begin(), expected.end());
      for (int j = 0; j < d; ++j)
        spectra_error = std::max(
            spectra_error, std::fabs(t[((size_t)i * n + k) * d + j] - expected[j]));
      const size_t pair = (size_t)i * n + k;
      const double off = std::max(std::fabs(V[pair] - (double)value), std::fabs(again[pair] - V[pair]));
      value_error = std::max(value_error, off / (1.0 + (double)value));
    }
    // K^T S K, with the scale of the atom undone, against Q diag(gradient) Q^T.
    Array S((size_t)d * d), found((size_t)d * d), wanted((size_t)d * d);
    double alpha_sum = 0, beta_sum = 0;
    for (int c = 0; c < chunks; ++c) {
      for (int i = 0; i < d; ++i)
        for (int j = 0; j <= i; ++j)
          S[(size_t)i * d + j] += sums[(k * chunks + c) * size + (size_t)i * (i + 1) / 2 + j];
      alpha_sum += in_alpha[k * chunks + c];
      beta_sum += in_beta[k * chunks + c];
    }
    for (int i = 0; i < d; ++i)
      for (int j = 0; j < i; ++j) S[(size_t)j * d + i] = S[(size_t)i * d + j];
    const double* K = &whitener[(size_t)k * d * d];
    Array SK((size_t)d * d);
    for (int i = 0; i < d; ++i)
      for (int m = 0; m < d; ++m)
        for (int j = 0; j < d; ++j)
          SK[(size_t)i * d + j] += S[(size_t)i * d + m] * K[(size_t)m * d + j];
    for (int m = 0; m < d; ++m)
      for (int i = 0; i < d; ++i)
        for (int j = 0; j < d; ++j)
          found[(size_t)i * d + j] += K[(size_t)m * d + i] * SK[(size_t)m * d + j];
    rotate(d, Q, gradient.data(), wanted.data());
    double largest = 0, off = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::fabs(wanted[i]));
      off = std::max(off, std::fabs(std::ldexp(found[i], -(int)atom_exponent[k]) - wanted[i]));
    }
    gradient_error = std::max(gradient_error, off / largest);
    if (alpha > 0 && beta > 0) {
      const double size_of = 1.0 + std::fabs((double)first) + std::fabs((double)second);
      parameter_error = std::max({parameter_error, std::fabs(alpha_sum - (double)first) / size_of,
                                  std::fabs(beta_sum - (double)second) / size_of});
    }
  }
  // The differences that stand for slopes are right to nine digits.
  expect(kernels.name, "spectra", d, spectra_error, allowed);
  expect(kernels.name, "values", d, value_error, allowed);
  expect(kernels.name, "gradients in atoms", d, gradient_error, allowed + 1e-9);
  expect(kernels.name, "gradients in alpha and beta", d, parameter_error, allowed + 1e-9);
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // an emulator takes minutes
  std::vector<const divlearn::Kernels*> all = {divlearn::kernels_baseline()};
#if defined(DIVLEARN_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(divlearn::kernels_avx2());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    all.push_back(divlearn::kernels_avx512());
#endif
  const double points[][2] = {{0.7, 1.2}, {0.4, 0.6}, {0, 0}, {0, 1}, {1, 0}, {0.3, 2.5}};
  for (const divlearn::Kernels* kernels : all) {
    int count = 0;
    for (int d : {1, 2, 3, 5, 8, 18, 29, 70})
      for (double extent : {0.5, 4.0})  // the wider one takes the accurate route
        for (const auto& point : points) check(*kernels, d, extent, point[0], point[1]), ++count;
    std::printf("%s: %d cases of %d lanes\n", kernels->name, count, kernels->lanes);
  }
  std::printf(failures ? "%d failures\n" : "passed\n", failures);
  return failures != 0;
}
