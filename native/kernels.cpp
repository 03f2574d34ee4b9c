// The table of kernels of one instruction set; this file is compiled once for each.
#include "kernels.hpp"

#include "elementwise.hpp"
#include "encode.hpp"
#include "filters.hpp"
#include "machines.hpp"
#include "plane.hpp"
#include "prepare.hpp"
#include "pullback.hpp"
#include "regions.hpp"
#include "softmax.hpp"
#include "spectra.hpp"

namespace DIVLEARN_ISA {

#define DIVLEARN_STRING_(x) #x
#define DIVLEARN_STRING(x) DIVLEARN_STRING_(x)
static const divlearn::Kernels TABLE = {DIVLEARN_STRING(DIVLEARN_ISA), W, factor, spectra, encode,
                                        pullback, pullback_logdet, logarithms, encode_filters, pullback_filters,
                                        box_grams, softmax_sums, softmax_step<float>, softmax_step<double>,
                                        plane, solve_pairs, decay, power_sums, pair_losses};

}  // namespace DIVLEARN_ISA

namespace divlearn {
#define DIVLEARN_JOIN_(a, b) a##b
#define DIVLEARN_JOIN(a, b) DIVLEARN_JOIN_(a, b)
const Kernels* DIVLEARN_JOIN(kernels_, DIVLEARN_ISA)() { return &DIVLEARN_ISA::TABLE; }
}  // namespace divlearn
