// Scoring: log-probabilities of given tokens, and logits and hidden states on request.
// Not generation; generate.h has it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/lm/model.h"
#include "stowage/session/compile.h"

namespace stow::lm {

/// Rows of tokens, which may be padded on either side.
struct TokenRows {
  int64_t n = 0, length = 0;      ///< B and T.
  std::vector<int32_t> tokens;    ///< [B, T]
  /// [B]: the index of each row's first real token, and the number of real tokens. Empty: all are
  /// real.
  std::vector<int32_t> start, lengths;

  bool is_padded() const { return !start.empty(); }
  /// Errors: "KEY: …" if sizes differ, a range leaves its row, or a token is outside of the
  /// vocabulary.
  Result<void> check(int64_t vocab) const;
};

/// The shapes and results of a scoring program.
struct ScoreShape {
  int64_t rows = 1, length = 1;         ///< Rows and length of one call.
  bool padded = false;                  ///< True if rows have start and lengths.
  bool logits = false, hidden = false;  ///< True if the program returns them.
  /// Tokens whose logits exist at a time, unless `logits`.
  int64_t chunk = 256;
};

/// A planned scoring program of one shape. It allocates no tensor before it runs.
class ScoreProgram {
 public:
  /// Plans the program. Moves ahead may use memory up to `capacities`.
  ScoreProgram(const HfConfig& config, const WeightOptions& weights, const ScoreShape& shape,
               const Device::Capacities& capacities, int threads);

  const ScoreShape& shape() const { return shape_; }
  const WeightOptions& weights() const { return weights_; }
  const MemoryAnalysis& analysis() const { return program_->memory_analysis(); }
  /// Returns the peak bytes of loading the model and running the program, weights included.
  BytesByKind peak_bytes() const;

  /// Results of r = shape().rows rows; see ScoreResult.
  struct Part {
    std::vector<float> logprobs, logits, hidden;  // [r, T-1], [r, T, V], [L+1, r, T, d]
  };
  /// Runs rows [begin, begin + shape().rows). Results of rows beyond the last are meaningless.
  Part run(const Model& model, const TokenRows& rows, int64_t begin) const;

 private:
  WeightOptions weights_;
  ScoreShape shape_;
  ExecutablePtr program_;
};

struct ScoreOptions {
  bool logits = false, hidden = false;
  int64_t rows = 0;                     ///< Rows of a call; 0: up to 4096 tokens, as many as fit.
  std::optional<int64_t> memory_bytes;  ///< Device memory allowed; none: the machine's.
  std::optional<DType> dtype, compute;  ///< See WeightOptions.
  std::optional<MemoryKind> weights;    ///< None: the device, or the disk if they do not fit.
  std::shared_ptr<const AdapterFiles> adapter = {};  ///< See WeightOptions.
  int threads = 1;
};

/// Returns the first program that fits `memory_bytes`, from the fastest down: fewer rows for each
/// call, fewer tokens whose logits exist, then weights on the disk. Results do not depend on the
/// choice.
/// Errors: CapacityError that names the least memory with which a program fits.
ScoreProgram plan_score(const HfConfig& config, const TokenRows& rows, const ScoreOptions& options);

/// The results of scoring, row-major.
struct ScoreResult {
  std::vector<float> logprobs;  ///< [B, T-1]: of token t+1 given tokens 0 to t; 0 for padding.
  std::vector<float> logits;    ///< [B, T, V] if requested, else empty.
  std::vector<float> hidden;    ///< [L+1, B, T, d] if requested, else empty.
  int64_t n_tokens = 0;         ///< Tokens that have a log-probability.
  double mean_logprob() const;  ///< Mean log-probability of those tokens; 0 if there are none.
};

/// Scores all rows with a program, shape().rows at a time.
ScoreResult score(const Model& model, const ScoreProgram& program, const TokenRows& rows);
/// Plans with plan_score() and scores.
ScoreResult score(const Model& model, const TokenRows& rows, const ScoreOptions& options = {});

/// Returns a CPU device with `memory_bytes` (none: the machine's), which pinned host memory shares.
/// If `weights` is kPinnedHost: a virtual device with unlimited pinned host memory.
DevicePtr device_for(MemoryKind weights, std::optional<int64_t> memory_bytes, int threads);

}  // namespace stow::lm
