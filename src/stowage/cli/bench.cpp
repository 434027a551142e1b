#include <fmt/core.h>

#include <vector>

#include "stowage/base/nearest.h"
#include "stowage/cli/commands.h"

namespace stow {
namespace {

struct Bench {
  const char* name;
  const char* help;
  Command run;
};
const std::vector<Bench> kBenches = {
    {"step", "the training step of a benchmark's model", run_bench_step},
    {"generate", "the prefill and the decoding of a language model", run_bench_generate},
    {"collectives", "bytes a second of each collective, beside memcpy", run_bench_collectives},
    {"placement", "memory and bytes sent for an array that each process has", run_bench_placement},
    {"program1", "ten scanned layers, more and more of them offloaded", run_program1},
    {"program2", "four layers of gelu trained by Adam, more and more of it offloaded",
     run_program2},
};

}  // namespace

Result<int> run_bench(std::span<const std::string> arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  if (name == "-h" || name == "--help") {
    fmt::print("./stowage bench NAME …\n\n");
    for (const Bench& bench : kBenches) fmt::print("  {:<12}{}\n", bench.name, bench.help);
    fmt::print("\n./stowage bench NAME --help lists the options of one.\n");
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const Bench& bench : kBenches) {
    names.push_back(bench.name);
    if (name == bench.name) return bench.run(arguments.subspan(1));
  }
  return fail("bench: no '{}'; did you mean '{}'?", name, nearest_name(name, names));
}

}  // namespace stow
