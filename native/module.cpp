// The Python module `divlearn.engines._native`: checks shapes and alignment, lets go of the
// interpreter lock, calls the kernels of one instruction set. It knows nothing of the mathematics.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "atoms.hpp"
#include "kernels.hpp"

namespace nb = nanobind;
using divlearn::Kernels;

namespace {

using Array = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using Marks = nb::ndarray<unsigned char, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
using ConstArray = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

std::vector<const Kernels*> supported() {
  std::vector<const Kernels*> all;
#if defined(DIVLEARN_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    all.push_back(divlearn::kernels_avx512());
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(divlearn::kernels_avx2());
#endif
  all.push_back(divlearn::kernels_baseline());
  return all;
}

const Kernels& find(const std::string& name) {
  for (const Kernels* kernels : supported())
    if (name == kernels->name) return *kernels;
  throw std::invalid_argument("instruction set '" + name + "' is not available on this machine");
}

// The limit of the OpenMP runtime that the kernels use; other libraries may bring their own.
int max_threads() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

size_t packed_size(size_t d) { return d * (d + 1) / 2; }

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(std::string("divlearn native kernels: ") + what);
}

template <class A>
auto checked(const A& array, size_t size, const char* what) {
  require(array.size() == size, what);
  return array.data();
}

template <class A>
auto aligned(const A& array, size_t size, const Kernels& kernels, const char* what) {
  auto* data = checked(array, size, what);
  require(reinterpret_cast<std::uintptr_t>(data) % (kernels.lanes * sizeof(double)) == 0,
          "packed array is not aligned to the vector width");
  return data;
}

// The arrays of prepared data; matrix may be empty where it is not needed.
struct DataArrays {
  int64_t count;
  int d;
  ConstArray factor, matrix, logdet, exponent, spread;
};

struct AtomArrays {
  int count;
  ConstArray whitener, matrix, logdet, exponent, spread;
};

divlearn::Data view(const DataArrays& arrays, const Kernels& kernels) {
  require(arrays.count > 0 && arrays.d > 0, "no data");
  const size_t padded = (arrays.count + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
  const size_t size = padded * packed_size(arrays.d);
  const auto optional = [&](const ConstArray& array) {
    return array.size() ? aligned(array, size, kernels, "wrong size of packed data") : nullptr;
  };
  return {arrays.count,
          arrays.d,
          aligned(arrays.factor, size, kernels, "wrong size of packed factors"),
          optional(arrays.matrix),
          checked(arrays.logdet, padded, "wrong size of logdet"),
          checked(arrays.exponent, padded, "wrong size of exponent"),
          checked(arrays.spread, padded, "wrong size of spread")};
}

divlearn::Atoms view(const AtomArrays& arrays, int d) {
  require(arrays.count > 0, "no atoms");
  const size_t n = arrays.count, size = n * packed_size(d);
  return {arrays.count,
          checked(arrays.whitener, n * d * d, "wrong size of whitener"),
          checked(arrays.matrix, size, "wrong size of atoms"),
          checked(arrays.logdet, n, "wrong size of logdet of atoms"),
          checked(arrays.exponent, n, "wrong size of exponent of atoms"),
          checked(arrays.spread, n, "wrong size of spread of atoms")};
}

divlearn::Parameters view(const ConstArray& alpha, const ConstArray& beta, int n) {
  require(alpha.ndim() == 2 && alpha.shape(0) == (size_t)n, "parameters must be (n_atoms, m)");
  const int m = (int)alpha.shape(1);
  require(m > 0, "no parameters");
  return {m, alpha.data(), checked(beta, (size_t)n * m, "alpha and beta differ in shape")};
}

// Python handles Ctrl-C only when asked: ask now and then, from the thread that called us.
bool interrupted() {
  static thread_local std::chrono::steady_clock::time_point last;
  const auto now = std::chrono::steady_clock::now();
  if (now - last < std::chrono::milliseconds(50)) return false;
  last = now;
  nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

// Runs a kernel without the interpreter lock; failed is (groups, n_atoms) and starts as zeros.
template <class Run>
int64_t run_kernel(const Kernels& kernels, const divlearn::Data& data, const divlearn::Atoms& atoms,
                double condition_limit, int threads, Marks& failed, const Run& run) {
  const size_t groups = (data.count + kernels.lanes - 1) / kernels.lanes;
  require(failed.size() == groups * atoms.count, "wrong size of failure marks");
  const divlearn::Options options = {condition_limit, threads, interrupted, failed.data()};
  int64_t failures;
  {
    nb::gil_scoped_release release;
    failures = run(options);
  }
  if (PyErr_Occurred()) throw nb::python_error();
  return failures;
}

int64_t factor(const std::string& isa, ConstArray matrices, Array factor_out, Array matrix_out,
            Array logdet, Array exponent, Array spread, int threads) {
  const Kernels& kernels = find(isa);
  require(matrices.ndim() == 3 && matrices.shape(1) == matrices.shape(2), "matrices must be (N, d, d)");
  const int64_t count = (int64_t)matrices.shape(0);
  const int d = (int)matrices.shape(1);
  require(count > 0 && d > 0, "no data");
  const size_t padded = (count + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
  double* factors = aligned(factor_out, padded * packed_size(d), kernels, "wrong size of packed factors");
  double* copy = matrix_out.size()
                     ? aligned(matrix_out, padded * packed_size(d), kernels, "wrong size of packed matrices")
                     : nullptr;
  double* logdets = checked(logdet, padded, "wrong size of logdet");
  double* exponents = checked(exponent, padded, "wrong size of exponent");
  double* spreads = checked(spread, padded, "wrong size of spread");
  nb::gil_scoped_release release;
  return kernels.factor(count, d, matrices.data(), factors, copy, logdets, exponents, spreads,
                        threads);
}

int prepare_atoms(ConstArray atoms, Array whitener, Array matrix, Array inverse, Array logdet,
                  Array exponent, Array spread) {
  require(atoms.ndim() == 3 && atoms.shape(1) == atoms.shape(2), "atoms must be (n, d, d)");
  const int n = (int)atoms.shape(0), d = (int)atoms.shape(1);
  const size_t size = (size_t)n * packed_size(d);
  const divlearn::PreparedAtoms out = {
      checked(whitener, (size_t)n * d * d, "wrong size of whitener"),
      checked(matrix, size, "wrong size of packed atoms"),
      checked(inverse, size, "wrong size of packed inverse atoms"),
      checked(logdet, n, "wrong size of logdet of atoms"),
      checked(exponent, n, "wrong size of exponent of atoms"),
      checked(spread, n, "wrong size of spread of atoms")};
  nb::gil_scoped_release release;
  return divlearn::prepare_atoms(n, d, atoms.data(), out);
}

int64_t spectra(const std::string& isa, const DataArrays& data, const AtomArrays& atoms, Array out,
             double condition_limit, int threads, Marks failed) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto b = view(atoms, x.d);
  double* target = checked(out, (size_t)x.count * b.count * x.d, "wrong size of spectra");
  return run_kernel(kernels, x, b, condition_limit, threads, failed,
                    [&](const divlearn::Options& options) {
                      return kernels.spectra(x, b, options, target);
                    });
}

int64_t encode(const std::string& isa, const DataArrays& data, const AtomArrays& atoms,
            ConstArray alpha, ConstArray beta, Array out, double condition_limit, int threads,
            Marks failed) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto b = view(atoms, x.d);
  const auto p = view(alpha, beta, b.count);
  double* target = checked(out, (size_t)x.count * b.count * p.per_atom, "wrong size of values");
  return run_kernel(kernels, x, b, condition_limit, threads, failed,
                    [&](const divlearn::Options& options) {
                      return kernels.encode(x, b, p, options, target);
                    });
}

// Empty alpha_out asks for no gradient of the parameters, empty values for no values.
int64_t pullback(const std::string& isa, const DataArrays& data, const AtomArrays& atoms,
              ConstArray alpha, ConstArray beta, ConstArray cotangent, int chunks, Array atoms_out,
              Array alpha_out, Array beta_out, Array values, bool logdet_only,
              double condition_limit, int threads, Marks failed) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto b = view(atoms, x.d);
  const auto p = view(alpha, beta, b.count);
  const size_t pairs = (size_t)x.count * b.count * p.per_atom, slots = (size_t)b.count * chunks;
  require(chunks > 0, "no chunks");
  require(!logdet_only || (p.per_atom == 1 && x.matrix && !alpha_out.size() && !values.size()),
          "the log-determinant route has one pair per atom and no parameter gradient");
  const auto optional = [](const Array& array, size_t size) {
    return array.size() ? checked(array, size, "wrong size of output") : nullptr;
  };
  const divlearn::PullbackOutput out = {
      chunks, checked(atoms_out, slots * packed_size(x.d), "wrong size of atom gradients"),
      optional(alpha_out, slots * p.per_atom), optional(beta_out, slots * p.per_atom),
      optional(values, pairs)};
  require(!out.alpha == !out.beta, "alpha and beta gradients go together");
  const double* weights = checked(cotangent, pairs, "wrong size of cotangent");
  const auto run = logdet_only ? kernels.pullback_logdet : kernels.pullback;
  return run_kernel(kernels, x, b, condition_limit, threads, failed,
                    [&](const divlearn::Options& options) {
                      return run(x, b, p, options, weights, out);
                    });
}

int64_t logarithms(const std::string& isa, const DataArrays& data, const AtomArrays& atoms, Array out,
                   double condition_limit, int threads, Marks failed) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto b = view(atoms, x.d);
  require(b.count == 1, "one atom whitens all matrices");
  double* target = checked(out, (size_t)x.count * packed_size(x.d), "wrong size of logarithms");
  return run_kernel(kernels, x, b, condition_limit, threads, failed,
                    [&](const divlearn::Options& options) {
                      return kernels.logarithms(x, b, options, target);
                    });
}

divlearn::Filters view(const ConstArray& rows, const divlearn::Data& data) {
  require(rows.ndim() == 3 && rows.shape(2) == (size_t)data.d && rows.shape(1) <= 16 && rows.size() > 0,
          "filters must be (n, p, d) with p <= 16");
  require(data.matrix, "filters need the matrices");
  return {(int)rows.shape(0), (int)rows.shape(1), rows.data()};
}

divlearn::Line view(const ConstArray& alpha, const ConstArray& beta) {
  return {(int)alpha.size(), alpha.data(), checked(beta, alpha.size(), "alpha and beta differ in size")};
}

void encode_filters(const std::string& isa, const DataArrays& data, ConstArray rows, ConstArray alpha,
                    ConstArray beta, Array out, int threads) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto filters = view(rows, x);
  const auto line = view(alpha, beta);
  double* target =
      checked(out, (size_t)x.count * filters.count * (line.count + 1), "wrong size of values");
  {
    nb::gil_scoped_release release;
    kernels.encode_filters(x, filters, line, threads, interrupted, target);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

void pullback_filters(const std::string& isa, const DataArrays& data, ConstArray rows, ConstArray alpha,
                      ConstArray beta, ConstArray cotangent, int chunks, Array out, int threads) {
  const Kernels& kernels = find(isa);
  const auto x = view(data, kernels);
  const auto filters = view(rows, x);
  const auto line = view(alpha, beta);
  require(chunks > 0, "no chunks");
  const double* weights = checked(cotangent, (size_t)x.count * filters.count * (line.count + 1),
                                  "wrong size of cotangent");
  double* target = checked(out, rows.size() * chunks, "wrong size of filter gradients");
  {
    nb::gil_scoped_release release;
    kernels.pullback_filters(x, filters, line, threads, interrupted, weights, chunks, target);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

// Corners are checked here, for a wrong one would read elsewhere.
void box_grams(const std::string& isa, ConstArray pixels, ConstArray offset, Indices left,
               Indices right, Indices edge_start, Indices edge, Array grams) {
  const Kernels& kernels = find(isa);
  require(pixels.ndim() == 3 && pixels.size() > 0, "pixels must be (features, height, width)");
  const divlearn::Pixels image = {(int64_t)pixels.shape(1), (int64_t)pixels.shape(2),
                                  (int)pixels.shape(0) + 1, pixels.data(),
                                  checked(offset, pixels.shape(0), "wrong size of offset")};
  const size_t n = left.size(), gram_size = (size_t)image.features * image.features;
  const divlearn::Boxes boxes = {(int64_t)n, left.data(), checked(right, n, "wrong size of right"),
                                 checked(edge_start, image.height + 2, "wrong size of edge_start"),
                                 checked(edge, 2 * n, "wrong size of edge")};
  for (size_t k = 0; k < n; ++k)
    require(0 <= boxes.left[k] && boxes.left[k] <= boxes.right[k] && boxes.right[k] <= image.width,
            "a box leaves the image");
  for (size_t k = 0; k < 2 * n; ++k)
    require(0 <= boxes.edge[k] && boxes.edge[k] < 2 * boxes.count, "an edge has no box");
  require(boxes.edge_start[0] == 0 && boxes.edge_start[image.height + 1] == 2 * boxes.count,
          "edges leave the image");
  for (int64_t y = 0; y <= image.height; ++y)
    require(boxes.edge_start[y] <= boxes.edge_start[y + 1], "edges are not sorted");
  double* target = checked(grams, n * gram_size, "wrong size of grams");
  {
    nb::gil_scoped_release release;
    kernels.box_grams(image, boxes, interrupted, target);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

void softmax_sums(const std::string& isa, ConstArray design, ConstArray targets, ConstArray weights,
                  ConstArray head, Array shares, Array gradient, Array totals, int threads) {
  const Kernels& kernels = find(isa);
  require(design.ndim() == 2 && design.size() > 0, "a design must be (samples, columns)");
  require(targets.ndim() == 2 && targets.shape(1) > 0, "targets must be (samples, outputs)");
  const size_t samples = design.shape(0), columns = design.shape(1), outputs = targets.shape(1);
  const divlearn::SoftmaxSamples given = {
      (int64_t)samples, (int)columns, (int)outputs, design.data(),
      checked(targets, samples * outputs, "wrong size of targets"),
      checked(weights, samples, "wrong size of weights"),
      checked(shares, samples * outputs, "wrong size of shares")};
  const double* start = checked(head, columns * outputs, "wrong size of head");
  double* slopes = checked(gradient, columns * outputs, "wrong size of gradient");
  double* sums = checked(totals, 2, "wrong size of totals");
  nb::gil_scoped_release release;
  kernels.softmax_sums(given, start, threads, sums, slopes);
}

// The number type of the design is that of the products.
template <class T>
void softmax_step(const std::string& isa, nb::ndarray<const T, nb::c_contig, nb::device::cpu> design,
                  ConstArray shares, ConstArray weights, ConstArray scale, ConstArray bias,
                  ConstArray gradient, Array step, double penalty, double damping, double enough,
                  double least_gain, int most_products, int threads) {
  const Kernels& kernels = find(isa);
  require(design.ndim() == 2 && design.size() > 0, "a design must be (samples, columns)");
  const size_t samples = design.shape(0), columns = design.shape(1);
  require(shares.ndim() == 2 && shares.shape(0) == samples && shares.shape(1) > 0,
          "shares must be (samples, outputs)");
  const size_t outputs = shares.shape(1), size = columns * outputs;
  const divlearn::SoftmaxHead head = {
      (int64_t)samples, (int)columns, (int)outputs, shares.data(),
      checked(weights, samples, "wrong size of weights"),
      checked(scale, size, "wrong size of scale"), checked(bias, columns, "wrong size of bias"),
      penalty, damping, enough, least_gain, most_products};
  const double* slopes = checked(gradient, size, "wrong size of gradient");
  double* target = checked(step, size, "wrong size of step");
  {
    nb::gil_scoped_release release;
    if constexpr (sizeof(T) == 4)
      kernels.softmax_step_single(head, design.data(), threads, interrupted, slopes, target);
    else
      kernels.softmax_step_double(head, design.data(), threads, interrupted, slopes, target);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

void plane(const std::string& isa, ConstArray t, ConstArray alpha, ConstArray beta, Array out) {
  const Kernels& kernels = find(isa);
  require(t.ndim() == 2, "spectra must be (n, d)");
  const int d = (int)t.shape(1), points = (int)alpha.size();
  const int64_t count = (int64_t)t.shape(0);
  const double* second = checked(beta, alpha.size(), "alpha and beta differ in size");
  double* target = checked(out, alpha.size() * t.shape(0), "wrong size of divergences");
  {
    nb::gil_scoped_release release;
    kernels.plane(count, d, t.data(), points, alpha.data(), second, interrupted, target);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

void solve_pairs(const std::string& isa, ConstArray kernel, Indices rows, ConstArray diagonal,
                 ConstArray most, Indices starts, double tolerance, Array coefficients,
                 Array offsets) {
  const Kernels& kernels = find(isa);
  const size_t n = diagonal.size();
  require(starts.size() > 2, "two classes are needed");
  const size_t classes = starts.size() - 1;
  require(starts.data()[0] == 0 && starts.data()[classes] == (int64_t)n, "classes are not all samples");
  for (size_t k = 0; k < classes; ++k)
    require(starts.data()[k] < starts.data()[k + 1], "a class has no sample");
  require(kernel.ndim() == 2 && kernel.shape(0) == kernel.shape(1), "the kernel is not square");
  const int64_t pitch = (int64_t)kernel.shape(0);
  const int64_t* chosen = checked(rows, n, "wrong number of rows");
  for (size_t i = 0; i < n; ++i) require(chosen[i] >= 0 && chosen[i] < pitch, "no such row");
  const divlearn::PairProblems problems = {
      (int64_t)n, (int)classes, kernel.data(), pitch, chosen, diagonal.data(),
      checked(most, n, "wrong size of bounds"), starts.data(), tolerance};
  double* target = checked(coefficients, (classes - 1) * n, "wrong size of coefficients");
  double* levels = checked(offsets, classes * (classes - 1) / 2, "wrong size of offsets");
  {
    nb::gil_scoped_release release;
    kernels.solve_pairs(problems, interrupted, target, levels);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

void decay(const std::string& isa, ConstArray x, double scale, Array out) {
  const Kernels& kernels = find(isa);
  double* target = checked(out, x.size(), "wrong size of powers");
  nb::gil_scoped_release release;
  kernels.decay((int64_t)x.size(), x.data(), scale, target);
}

void power_sums(const std::string& isa, ConstArray x, double scale, Array out) {
  const Kernels& kernels = find(isa);
  require(x.ndim() == 2, "gaps must be (classes, samples)");
  double* target = checked(out, 3 * x.shape(1), "wrong size of sums");
  nb::gil_scoped_release release;
  kernels.power_sums((int64_t)x.shape(0), (int64_t)x.shape(1), x.data(), scale, target);
}

void pair_losses(const std::string& isa, ConstArray decisions, double sharpness, Array losses) {
  const Kernels& kernels = find(isa);
  require(losses.ndim() == 2 && losses.shape(0) > 0, "losses must be (classes, samples)");
  const size_t classes = losses.shape(0), samples = losses.shape(1);
  const double* given =
      checked(decisions, classes * (classes - 1) / 2 * samples, "wrong size of decisions");
  nb::gil_scoped_release release;
  kernels.pair_losses((int)classes, (int64_t)samples, given, sharpness, losses.data());
}

}  // namespace

NB_MODULE(_native, module) {
  nb::class_<DataArrays>(module, "DataArrays")
      .def(nb::init<int64_t, int, ConstArray, ConstArray, ConstArray, ConstArray, ConstArray>());
  nb::class_<AtomArrays>(module, "AtomArrays")
      .def(nb::init<int, ConstArray, ConstArray, ConstArray, ConstArray, ConstArray>());
  module.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels* kernels : supported()) names.push_back(kernels->name);
    return names;
  });
  module.def("max_threads", &max_threads);
  module.def("lanes", [](const std::string& isa) { return find(isa).lanes; });
  module.def("factor", &factor);
  module.def("prepare_atoms", &prepare_atoms);
  module.def("spectra", &spectra);
  module.def("encode", &encode);
  module.def("pullback", &pullback);
  module.def("logarithms", &logarithms);
  module.def("encode_filters", &encode_filters);
  module.def("pullback_filters", &pullback_filters);
  module.def("box_grams", &box_grams);
  module.def("softmax_sums", &softmax_sums);
  module.def("softmax_step", &softmax_step<float>);
  module.def("softmax_step", &softmax_step<double>);
  module.def("plane", &plane);
  module.def("solve_pairs", &solve_pairs);
  module.def("decay", &decay);
  module.def("power_sums", &power_sums);
  module.def("pair_losses", &pair_losses);
}
