#include "stowage/runtime/cpu/kernels/row_order.h"

#include <algorithm>

namespace stow::cpu {
namespace {

class StepOrder {
 public:
  explicit StepOrder(const RowProgram& program)
      : program_(program), place_(program.steps.size(), -1), seen_(program.steps.size(), 0) {}

  RowProgram run() {
    RowProgram ordered = program_;
    ordered.steps.clear();
    std::vector<int32_t> results;
    for (size_t i = 0; i < program_.steps.size(); ++i)
      if (is_result(step(static_cast<int32_t>(i)))) results.push_back(static_cast<int32_t>(i));
    while (!results.empty()) {
      auto next = results.begin();
      size_t fewest = SIZE_MAX;
      for (auto at = results.begin(); at != results.end() && fewest > 1; ++at)
        if (const size_t n = steps_to_go(*at, fewest); n < fewest) {
          fewest = n;
          next = at;
        }
      append(*next, ordered.steps);
      results.erase(next);
    }
    return ordered;
  }

 private:
  const Step& step(int32_t i) const { return program_.steps[static_cast<size_t>(i)]; }
  static bool is_result(const Step& s) {
    return s.kind == StepKind::kStore || s.kind == StepKind::kReduceColumns;
  }

  // Steps that are not placed yet and that step i needs, itself included; counting stops at
  // `enough`.
  size_t steps_to_go(int32_t i, size_t enough) {
    ++stamp_;
    size_t n = 0;
    std::vector<int32_t> stack = {i};
    while (!stack.empty() && n < enough) {
      const int32_t at = stack.back();
      stack.pop_back();
      if (place_[static_cast<size_t>(at)] >= 0 || seen_[static_cast<size_t>(at)] == stamp_)
        continue;
      seen_[static_cast<size_t>(at)] = stamp_;
      ++n;
      for (int32_t a : step(at).args)
        if (a >= 0) stack.push_back(a);
    }
    return n;
  }

  // Step i behind those that it needs. An explicit stack: chains may be long.
  void append(int32_t i, std::vector<Step>& ordered) {
    std::vector<int32_t> stack = {i};
    while (!stack.empty()) {
      const int32_t at = stack.back();
      if (place_[static_cast<size_t>(at)] >= 0) {
        stack.pop_back();
        continue;
      }
      const size_t before = stack.size();
      for (size_t k = 3; k-- > 0;)
        if (const int32_t a = step(at).args[k]; a >= 0 && place_[static_cast<size_t>(a)] < 0)
          stack.push_back(a);
      if (stack.size() > before) continue;
      stack.pop_back();
      Step placed = step(at);
      for (int32_t& a : placed.args)
        if (a >= 0) a = place_[static_cast<size_t>(a)];
      place_[static_cast<size_t>(at)] = static_cast<int32_t>(ordered.size());
      ordered.push_back(placed);
    }
  }

  const RowProgram& program_;
  std::vector<int32_t> place_;  // in the new order; -1: none yet
  std::vector<uint32_t> seen_;
  uint32_t stamp_ = 0;
};

}  // namespace

RowProgram group_steps_by_result(const RowProgram& program) {
  return StepOrder(program).run();
}

}  // namespace stow::cpu
