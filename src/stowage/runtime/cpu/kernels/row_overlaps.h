// RowOverlaps: facts, known at compile time, about which outputs of a row program share memory with
// which inputs.
// Not a test of addresses; a run makes that test if the fact is kMaybe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stow::cpu {

enum class Overlap : uint8_t {
  kNever,  ///< They lie in different memory.
  kMaybe,  ///< Either may be true; a run compares addresses.
  kAlways  ///< They begin at the same address.
};

/// An Overlap for each output and input. All are kMaybe if default-constructed.
class RowOverlaps {
 public:
  RowOverlaps() = default;
  RowOverlaps(size_t n_outputs, size_t n_inputs)
      : n_inputs_(n_inputs), of_(n_outputs * n_inputs, Overlap::kMaybe) {}

  Overlap of(size_t output, size_t input) const {
    return of_.empty() ? Overlap::kMaybe : of_[output * n_inputs_ + input];
  }
  void set(size_t output, size_t input, Overlap overlap) {
    of_[output * n_inputs_ + input] = overlap;
  }

 private:
  size_t n_inputs_ = 0;
  std::vector<Overlap> of_;
};

}  // namespace stow::cpu
