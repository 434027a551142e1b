// ByteData: a file's bytes as tokens, its last tenth held out for validation.
// Not a tokenizer; a token is a byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

class ByteData {
 public:
  /// Reads `path`. Windows are `seq + 1` tokens long.
  /// Errors: a missing or empty file; a part too short for one window; a byte beyond `vocab`.
  static Result<ByteData> open(const std::string& path, int64_t vocab, int64_t seq);

  /// Returns the batch of a step: [batch, seq + 1] row-major. A pure function of seed and step: a
  /// resumed run continues with the same data.
  std::vector<int32_t> train_batch(uint64_t seed, int64_t step, int64_t batch) const;
  /// The number of validation windows, which divide the held-out part from its beginning.
  int64_t n_validation_windows() const;
  /// Returns validation windows from number `first_window` on: [batch, seq + 1] row-major.
  std::vector<int32_t> validation_batch(int64_t first_window, int64_t batch) const;
  /// Returns the first bytes of the held-out part, as the prompt of a sample.
  std::string validation_text(int64_t bytes) const;

  int64_t train_bytes() const { return n_train_; }
  /// Digest of all bytes, in hexadecimal digits (io/digest.h).
  std::string digest() const;

 private:
  std::string text_;
  int64_t n_train_ = 0;
  int64_t seq_ = 0;
};

/// Returns a well-mixed 64-bit hash of its arguments. Source: Steele et al. 2014, SplitMix64.
uint64_t mix_bits(uint64_t a, uint64_t b, uint64_t c);

}  // namespace stow
