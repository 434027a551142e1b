// How close packing comes to the largest live sum: one row a nature of problem.
// Not a test: it reads the clock. Sizes, seconds and seed are the arguments.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/arguments.h"
#include "stowage/pack/exact.h"
#include "stowage/pack/sections.h"
#include "tests/support/pack_instances.h"

namespace {

using namespace stow::pack;

double seconds_of(const auto& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr const char* kUsage = "usage: pack_bench BUFFERS [SECONDS=10] [SEED=1] [NATURE]\n";

void run(stow::Arguments arguments) {
  const int n = arguments.number("BUFFERS", 1, 100'000'000);
  const double limit = arguments.left() ? arguments.number("SECONDS", 0.0, 1e6) : 10;
  const uint64_t seed = arguments.left() ? arguments.number<uint64_t>("SEED", 0, UINT64_MAX) : 1;
  std::vector<std::string_view> natures;
  for (const Nature& nature : all_natures()) natures.push_back(nature.name);
  if (arguments.left()) natures = {arguments.word("NATURE", natures)};
  arguments.end();
  fmt::print("| nature | buffers | live at once | first pass, s | gap, % | after, s | gap, % |\n");
  fmt::print("|---|---:|---:|---:|---:|---:|---:|\n");
  for (const Nature& nature : all_natures()) {
    if (std::find(natures.begin(), natures.end(), nature.name) == natures.end()) continue;
    const Problem problem = nature.make(n, seed);
    const Sections sections = cut_sections(problem);
    double lives = 0;
    for (const SectionRect& r : sections.rects) lives += r.last - r.first + 1;
    const auto bound = static_cast<double>(sections.largest_live);
    ExactResult first, last;
    const double first_s = seconds_of([&] { first = *pack_exact(problem, {.time_limit_s = 0}); });
    const double last_s = seconds_of([&] { last = *pack_exact(problem, {.time_limit_s = limit}); });
    for (const ExactResult* result : {&first, &last}) {
      const stow::Result<void> valid = validate(problem, result->solution);
      STOW_CHECK(valid.ok(), "{}: {}", nature.name, valid.error());
    }
    const auto gap = [&](const ExactResult& r) {
      return 100 * (static_cast<double>(r.solution.height) - bound) / bound;
    };
    fmt::print("| {} | {} | {:.0f} | {:.2f} | {:.2f} | {:.1f} | {:.2f} |\n", nature.name,
               problem.buffers.size(), lives / sections.count(), first_s, gap(first), last_s,
               gap(last));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) { return stow::run_bench_program(argc, argv, kUsage, run); }
