// OnTarget: limits kernels to an instruction set within a scope.
// Not a runtime::Target.
#pragma once

#include <cstdint>

#include <hwy/targets.h>

namespace stow {

/// While it lives, kernels use `target`, a Highway target; the destructor restores the previous
/// targets.
class OnTarget {
 public:
  explicit OnTarget(int64_t target) { use(target); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
  ~OnTarget() { use(before_); }

 private:
  static void use(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  const int64_t before_ = hwy::SupportedTargets();
};

}  // namespace stow
