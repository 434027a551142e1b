#include "stowage/runtime/cpu/kernels/instruction_set.h"

#include <atomic>
#include <cstdlib>

#include <hwy/targets.h>

namespace stow::cpu {

std::string instruction_set_limit() {
  const char* name = std::getenv("STOW_ISA");
  return name ? name : "";
}

namespace {

std::atomic<bool> g_allows_tiles = instruction_set_limit().empty();

}  // namespace

std::string instruction_set_in_use() {
  // The better one of two Highway targets has the smaller number.
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

Result<void> limit_instruction_set() {
  const std::string name = instruction_set_limit();
  g_allows_tiles = name.empty();
  if (name.empty() || name == "avx512") return {};
  // The better one of two Highway targets has the smaller number.
  constexpr int64_t kBetterThanAvx2 = HWY_AVX2 - 1;
  int64_t unwanted;
  if (name == "avx2")
    unwanted = kBetterThanAvx2;
  else if (name == "baseline")
    unwanted = HWY_AVX2 | kBetterThanAvx2;
  else
    return fail(
        "STOW_ISA = '{}'; it may be avx512, avx2 or baseline, or not set for all that the machine "
        "has",
        name);
  // Not DisableTargets(), after which whoever asks for the supported targets has undone it.
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~unwanted);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return {};
}

void limit_instruction_set_once() {
  static const Result<void> limited = limit_instruction_set();
  if (!limited) throw TraceError("[environment] " + limited.error());
}

bool allows_tiles() {
  return g_allows_tiles;
}

}  // namespace stow::cpu
