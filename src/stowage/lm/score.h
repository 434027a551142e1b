// Scoring: log-probabilities of given tokens, with logits and hidden states where asked for.
// Not generation; generate.h has it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/lm/model.h"
#include "stowage/session/compile.h"

namespace stow::lm {

/// Rows of tokens, padded on either side.
struct TokenRows {
  int64_t n = 0, length = 0;      ///< B and T.
  std::vector<int32_t> tokens;    ///< [B, T]
  /// Each row's first real token, and how many there are [B]. Empty: every token is real.
  std::vector<int32_t> start, lengths;

  bool is_padded() const { return !start.empty(); }
  /// Errors: "KEY: …" where sizes differ, a range leaves its row, or a token is no id of the model.
  Result<void> check(int64_t vocab) const;
};

/// The form of a scoring program.
struct ScoreShape {
  int64_t rows = 1, length = 1;  ///< Rows and length of one call.
  bool padded = false;           ///< Rows have start and lengths.
  bool logits = false, hidden = false;
  /// Tokens whose logits exist at a time, where not all are asked for.
  int64_t chunk = 256;
};

/// A scoring program of one shape, planned. Nothing of a tensor exists before it runs.
class ScoreProgram {
 public:
  /// Plans it for weights held so. Memory up to `capacities` is spent on moves that run ahead.
  ScoreProgram(const HfConfig& config, const WeightOptions& weights, const ScoreShape& shape,
               const Device::Capacities& capacities, int threads);

  const ScoreShape& shape() const { return shape_; }
  const WeightOptions& weights() const { return weights_; }
  const MemoryAnalysis& analysis() const { return program_->memory_analysis(); }
  /// The peak of loading the model and running the program, weights included.
  BytesByKind peak_bytes() const;

  /// Results of one row or more, as in ScoreResult.
  struct Part {
    std::vector<float> logprobs, logits, hidden;  // [r, T-1], [r, T, V], [L+1, r, T, d]
  };
  /// Runs rows [begin, begin + shape().rows) of those that there are.
  Part run(const Model& model, const TokenRows& rows, int64_t begin) const;

 private:
  WeightOptions weights_;
  ScoreShape shape_;
  ExecutablePtr program_;
};

struct ScoreOptions {
  bool logits = false, hidden = false;
  int64_t rows = 0;                     ///< Rows a call; 0: as many as 4096 tokens hold, or fit.
  std::optional<int64_t> memory_bytes;  ///< Device memory allowed; none: what the machine has.
  std::optional<DType> dtype, compute;  ///< See WeightOptions.
  std::optional<MemoryKind> weights;    ///< None: the device, or where they do not fit the disk.
  std::shared_ptr<const AdapterFiles> adapter = {};  ///< See WeightOptions.
  int threads = 1;
};

/// The first program that fits `memory_bytes`, from the fastest down: fewer rows a call, fewer tokens
/// whose logits exist, then weights on the disk. None of these changes a number.
/// Errors: CapacityError that names the least memory with which one fits.
ScoreProgram plan_score(const HfConfig& config, const TokenRows& rows, const ScoreOptions& options);

/// The results of scoring, row-major.
struct ScoreResult {
  std::vector<float> logprobs;  ///< [B, T-1]: of token t+1 given those before; 0 for padding.
  std::vector<float> logits;    ///< [B, T, V], where asked for.
  std::vector<float> hidden;    ///< [L+1, B, T, d], where asked for.
  int64_t n_tokens = 0;         ///< Tokens that have a log-probability.
  double mean_logprob() const;  ///< Over these; 0 where there are none.
};

/// Scores all rows with a program, some at a time.
ScoreResult score(const Model& model, const ScoreProgram& program, const TokenRows& rows);
/// Plans and scores.
ScoreResult score(const Model& model, const TokenRows& rows, const ScoreOptions& options = {});

/// A device with room for a plan: `memory_bytes` of memory, which the host's part shares, except that
/// weights in pinned_host memory have memory of their own.
DevicePtr device_for(MemoryKind weights, std::optional<int64_t> memory_bytes, int threads);

}  // namespace stow::lm
