// Support vector machines between pairs of classes, by the steps of libsvm (Chang and Lin, 2011):
// second-order choice of two coefficients (Fan, Chen and Lin, 2005), and shrinking. Numbers are
// rounded as libsvm rounds them, so that results are its own, but loops run in lanes.
#pragma once
#include "kernels.hpp"

namespace DIVLEARN_ISA {

void solve_pairs(const divlearn::PairProblems&, bool (*interrupted)(), double* coefficients,
                 double* offsets);

}  // namespace DIVLEARN_ISA
