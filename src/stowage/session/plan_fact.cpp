#include "stowage/session/plan_fact.h"

#include <utility>

#include <fmt/format.h>

#include "stowage/io/digest.h"
#include "stowage/ir/schedule_printer.h"

namespace stow {

comm::Fact fact_of_plan(std::string name, const Executable& program) {
  std::string text = print(program.schedule(), {.places = false});
  for (const KindAnalysis& kind : program.memory_analysis().kinds)
    text += fmt::format("{}\n", kind.total_bytes);
  return {std::move(name), digest_of(text)};
}

}  // namespace stow
