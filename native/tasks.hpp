// Work in tasks: threads, their scratch, interruption, and marks of what failed.
#pragma once
#include <new>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "kernels.hpp"
#include "lanes.hpp"

namespace DIVLEARN_ISA {

using divlearn::Atoms;
using divlearn::Data;
using divlearn::Options;
using divlearn::Parameters;
using divlearn::PullbackOutput;

DIVLEARN_INLINE int64_t group_count(int64_t count) { return (count + W - 1) / W; }
DIVLEARN_INLINE size_t packed_size(int d) { return (size_t)d * (d + 1) / 2; }

// Lets the calling thread ask whether to go on, and tells the others.
class Interruption {
 public:
  explicit Interruption(bool (*interrupted)()) : interrupted_(interrupted), stop_(0) {}
  bool operator()() {
#if defined(_OPENMP)
    const bool caller = omp_get_thread_num() == 0;
#else
    const bool caller = true;
#endif
    int stop;
#pragma omp atomic read
    stop = stop_;
    if (!stop && caller && interrupted_ && interrupted_()) {
      stop = 1;
#pragma omp atomic write
      stop_ = 1;
    }
    return stop != 0;
  }

 private:
  bool (*interrupted_)();
  int stop_;
};

// Compiled once for both loops below.
template <class Body>
__attribute__((noinline)) static void run_task(int64_t task, Lane* scratch, const Body& body) {
  body(task, scratch);
}

// Runs body(task, scratch) for every task. Each thread has its own scratch; which thread takes a
// task never changes its result. Exceptions cannot leave a parallel region, so a failed allocation
// is remembered and thrown behind it.
template <class Body>
static void for_each_task(int64_t tasks, int threads, size_t scratch_lanes, Interruption& interruption,
                          const Body& body) {
  bool failed = false;
#if defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
#pragma omp parallel num_threads(threads)
    {
      Scratch scratch(scratch_lanes);
      if (!scratch.ok()) {
#pragma omp atomic write
        failed = true;
      }
#pragma omp for schedule(dynamic, 1)
      for (int64_t task = 0; task < tasks; ++task)
        if (scratch.ok() && !interruption()) run_task(task, scratch.base(), body);
    }
    if (failed) throw std::bad_alloc();
    return;
  }
#endif
  (void)threads;
  (void)failed;
  Scratch scratch(scratch_lanes);
  if (!scratch.ok()) throw std::bad_alloc();
  for (int64_t task = 0; task < tasks && !interruption(); ++task) run_task(task, scratch.base(), body);
}

template <class Body>
static void for_each_task(int64_t tasks, int threads, size_t scratch_lanes, const Body& body) {
  Interruption never(nullptr);
  for_each_task(tasks, threads, scratch_lanes, never, body);
}

// Marks the groups of a block that failed (bit g for group first + g); returns their number.
static int64_t mark_failures(unsigned failed, int64_t first, int atom, int atoms, const Options& options) {
  for (int g = 0; failed >> g; ++g)
    if (failed >> g & 1u) options.failed[(first + g) * atoms + atom] = 1;
  return __builtin_popcount(failed);
}

}  // namespace DIVLEARN_ISA
