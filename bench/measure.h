// What the benchmarks of kernels share: Google Benchmark around their own arguments, the instruction set
// held, the clock. Not for what has no kernels to time (pack_bench.cpp).
#pragma once

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "arguments.h"
#include "stowage/runtime/cpu/kernels/instruction_set.h"

namespace stow {

/// Holds kernels to STOW_ISA; a name that is none ends the program.
inline void hold_instruction_set() {
  const Result<void> held = cpu::limit_instruction_set();
  if (held) return;
  fmt::print(stderr, "{}\n", held.error());
  std::exit(1);
}

/// Seconds since some moment. One thread is timed by its processor time, which a busy neighbour disturbs
/// less.
inline double now_s(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The seconds of one call of f: the mean of `calls` calls.
template <typename F>
double seconds_of(F& f, int calls, int threads) {
  const double start = now_s(threads);
  for (int i = 0; i < calls; ++i) f();
  return (now_s(threads) - start) / calls;
}

/// Calls of f that take some 20 ms, one at least.
template <typename F>
int calls_in_a_turn(F& f, int threads) {
  return static_cast<int>(std::max(1.0, 0.02 / std::max(seconds_of(f, 1, threads), 1e-7)));
}

/// The least seconds of a call of each: the two alternate in short turns, so that a busy neighbour meets
/// both, and the best turn counts. `state` gets the time of ours.
template <typename Ours, typename Theirs>
std::pair<double, double> best_of_turns(benchmark::State& state, int threads, Ours& ours, Theirs& theirs) {
  ours(), theirs();
  const int calls = calls_in_a_turn(ours, threads), their_calls = calls_in_a_turn(theirs, threads);
  double best = 1e30, their_best = 1e30;
  for (auto _ : state) {
    const double s = seconds_of(ours, calls, threads);
    best = std::min(best, s);
    their_best = std::min(their_best, seconds_of(theirs, their_calls, threads));
    state.SetIterationTime(s);
  }
  return {best, their_best};
}

/// Takes Google Benchmark's flags, calls `add` with the other arguments, which registers benchmarks, and
/// runs them. Returns the exit status: 0, or 2 after saying what was not understood.
inline int run_kernel_benchmarks(int argc, char** argv, std::string_view usage,
                                 const std::function<void(Arguments)>& add) {
  hold_instruction_set();
  if (!asks_for_help(argc, argv)) benchmark::Initialize(&argc, argv);
  return run_bench_program(argc, argv, usage, [&](const Arguments& arguments) {
    add(arguments);
    benchmark::RunSpecifiedBenchmarks();
  });
}

}  // namespace stow
